/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which path a connection takes: through the node's stack, or the shortcut from pod to pod. Its first packet decides, and all others of both
 * directions follow: what the stack has translated on the way there it must translate back, and what it has not seen at all it takes for
 * invalid.
 *
 * Without an entry the other end's entry says it, or else the node's conntrack: what it knows has been through the stack.
 * Without an answer, or without room for entries, it is the stack.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_packet.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "flow.h"
#include "parse.h"
#include "types.h"

/* is_plain: nothing that a router has to answer (no hop left) or read (options), or that was not sent to it. */
static __always_inline _Bool is_plain(const struct __sk_buff *ctx, const struct packet *pkt)
{
	return pkt->hops > 1 && !pkt->for_routers && ctx->pkt_type == PACKET_HOST;
}

/* connection_open_stack writes the pod's end of a connection that goes through the stack, if there is room. */
static __always_inline void connection_open_stack(const struct connection_key *key, const struct addr *local,
						  const struct link *link, __u8 state, __u32 now)
{
	struct connection c = {};

	if (!usage_allows(link->id, 1))
		return;
	c.local = *local;
	c.mac = link->pod_mac;
	c.charged = c.id = link->id;
	c.generation = slot_generation(c.id);
	c.path = PATH_STACK;
	c.state = state;
	connection_insert(key, &c, now);
}

/* connection_to is the sender's end of a connection by the shortcut. */
static __always_inline void connection_to(struct connection *c, const struct addr *local, const struct link *link,
					  const struct endpoint *to)
{
	__builtin_memset(c, 0, sizeof(*c));
	c->local = *local;
	c->mac = link->pod_mac;
	c->charged = c->id = link->id;
	c->generation = slot_generation(c->id);
	c->peer_ifindex = to->ifindex;
	c->peer_mac = to->pod_mac;
	c->peer_host_mac = to->host_mac;
	c->peer_id = to->id;
	c->peer_generation = slot_generation(c->peer_id);
	c->path = PATH_SHORTCUT;
	c->state = STATE_OPENED_HERE;
}

/* connection_back is the receiver's end of the connection *c. It counts in the sender's share. False: the sender is not known by its address. */
static __always_inline _Bool connection_back(struct connection *back, const struct connection *c, const struct addr *remote)
{
	const struct endpoint *from = endpoint_lookup(&c->local);

	if (!from || from->id != c->id)
		return 0;
	__builtin_memset(back, 0, sizeof(*back));
	back->local = *remote;
	back->mac = c->peer_mac;
	back->id = c->peer_id;
	back->generation = c->peer_generation;
	back->charged = c->id;
	back->peer_ifindex = from->ifindex;
	back->peer_mac = from->pod_mac;
	back->peer_host_mac = from->host_mac;
	back->peer_id = c->id;
	back->peer_generation = c->generation;
	back->path = PATH_SHORTCUT;
	return 1;
}

/* connection_open_shortcut writes both ends, or none. True: the connection takes the shortcut, as this or another CPU has decided. */
static __always_inline _Bool connection_open_shortcut(const struct connection_key *key, struct connection *c,
						      const struct connection_key *peer, __u32 now)
{
	struct connection back;
	const struct connection *other;
	_Bool inserted;

	if (!connection_back(&back, c, &key->remote) || !usage_allows(c->id, 2))
		return 0;
	inserted = connection_insert(peer, &back, now);
	if (!inserted) {
		other = bpf_map_lookup_elem(&connections, peer);
		if (!other || other->path != PATH_SHORTCUT)
			return 0;
	}
	if (connection_insert(key, c, now))
		return 1;
	other = bpf_map_lookup_elem(&connections, key);
	if (other) /* of another CPU, which had the same to decide */
		return other->path == PATH_SHORTCUT;
	if (inserted)
		connection_delete(peer, back.charged);
	return 0;
}

/* path_asked: what do others know of a packet of which there is no entry at either end? */
static __always_inline enum connection_path path_asked(struct __sk_buff *ctx, const struct connection_key *key,
						       const struct addr *local, const struct flow *flow)
{
	if (!conntrack_can_tell(flow->protocol))
		return flow->flags & FLOW_OPENS ? PATH_SHORTCUT : PATH_STACK;
	return conntrack_knows(ctx, key, local) == KNOWN_NOTHING ? PATH_SHORTCUT : PATH_STACK;
}

/*
 * path_from_pod decides for a packet of which the pod has no entry, and makes the entries. For the shortcut it fills *c. Data of the packet
 * must be read again afterwards.
 */
static __always_inline enum connection_path path_from_pod(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
							  const struct connection_key *key, const struct link *link,
							  struct connection *c, __u32 now)
{
	const struct endpoint *to = endpoint_lookup(&pkt->destination);
	struct connection_key peer_key;
	struct connection *peer;
	enum connection_path path = PATH_STACK;

	if (to && to->id != link->id) {
		connection_to(c, &pkt->source, link, to);
		key_of_peer(&peer_key, key, &pkt->source, to->ifindex);
		peer = connection_find(&peer_key, flow, now);
		path = peer ? peer->path : path_asked(ctx, key, &pkt->source, flow);
		if (peer)
			c->state = peer->state & STATE_OPENED_HERE ? STATE_REPLIED : STATE_OPENED_HERE | (peer->state & STATE_REPLIED);
		if (path == PATH_SHORTCUT && !is_plain(ctx, pkt))
			return PATH_STACK;
		if (flow->flags & FLOW_ERROR)
			return path;
		if (path == PATH_SHORTCUT && peer) {
			if (usage_allows(c->id, 1))
				connection_insert(key, c, now);
			return path; /* without an entry here, too: the other end's says so */
		}
		if (path == PATH_SHORTCUT && !peer && connection_open_shortcut(key, c, &peer_key, now))
			return path;
	}
	if (!(flow->flags & FLOW_ERROR))
		connection_open_stack(key, &pkt->source, link, STATE_OPENED_HERE, now);
	return PATH_STACK;
}

/* state_of is what a packet says of its connection, seen from the end that sends it. */
static __always_inline __u8 state_of(const struct flow *flow, __u8 opened_by_sender, __u8 closed)
{
	return (opened_by_sender ? 0 : STATE_REPLIED) | (flow->flags & FLOW_FIN ? closed : 0) |
	       (flow->flags & FLOW_RESET ? STATE_RESET : 0);
}

/* connection_note_outgoing notes a packet of the pod, and at the other end what is news there. */
static __always_inline void connection_note_outgoing(struct connection *own, const struct connection_key *key,
						     const struct flow *flow, __u32 now)
{
	__u8 state = state_of(flow, own->state & STATE_OPENED_HERE, STATE_LOCAL_CLOSED), before = own->state;
	struct connection_key peer_key;
	struct connection *peer;

	if (flow->flags & FLOW_ERROR)
		return;
	connection_touch(own, key->protocol, state, now);
	if (own->path != PATH_SHORTCUT || own->state == before)
		return;
	key_of_peer(&peer_key, key, &own->local, own->peer_ifindex);
	peer = bpf_map_lookup_elem(&connections, &peer_key);
	if (!peer)
		return;
	if (state & STATE_LOCAL_CLOSED)
		state = (state & ~STATE_LOCAL_CLOSED) | STATE_REMOTE_CLOSED;
	connection_touch(peer, key->protocol, state, now);
}

/*
 * connection_meets_stack is for a packet that has come through the stack, of a connection by the shortcut. When it was translated, it opens
 * another connection with the same addresses and ports as the pod sees them, and the replies of the two could not be told apart. So a SYN is refused:
 * its sender tries other ports. A datagram is refused while the other's first one has no answer; afterwards both go through the stack. What was not
 * translated is of the connection itself: it was a fragment, or had IP options.
 */
static __always_inline enum drop_reason connection_meets_stack(struct __sk_buff *ctx, struct connection *own,
							       const struct connection_key *key, const struct flow *flow)
{
	struct connection_key peer_key;
	struct connection *peer;

	if (key->protocol == IPPROTO_TCP)
		return flow->flags & FLOW_OPENS ? DROP_PATH_CLASH : DROP_NONE;
	if (key->protocol != IPPROTO_UDP)
		return DROP_NONE;
	if (conntrack_can_tell(key->protocol)) {
		if (conntrack_knows(ctx, key, &own->local) != KNOWN_TRANSLATED)
			return DROP_NONE;
		if (!(own->state & STATE_REPLIED))
			return DROP_PATH_CLASH;
	}
	key_of_peer(&peer_key, key, &own->local, own->peer_ifindex);
	peer = bpf_map_lookup_elem(&connections, &peer_key);
	if (peer)
		peer->path = PATH_STACK;
	own->path = PATH_STACK;
	return DROP_NONE;
}

/* connection_note_incoming notes a packet that has come through the stack. */
static __always_inline enum drop_reason connection_note_incoming(struct __sk_buff *ctx, struct connection *own,
								 const struct connection_key *key, const struct flow *flow, __u32 now)
{
	__u8 opened_by_sender = !(own->state & STATE_OPENED_HERE);
	enum drop_reason reason = DROP_NONE;

	if (flow->flags & FLOW_ERROR)
		return DROP_NONE;
	if (own->path == PATH_SHORTCUT)
		reason = connection_meets_stack(ctx, own, key, flow);
	if (!reason)
		connection_touch(own, key->protocol, state_of(flow, opened_by_sender, STATE_REMOTE_CLOSED), now);
	return reason;
}
