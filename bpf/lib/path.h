/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which path a connection takes: through the node's stack, or the shortcut from pod to pod. Its first packet decides, and all others of both
 * directions follow: what the stack has translated on the way there it must translate back, and what it has not seen at all it takes for
 * invalid.
 *
 * Without an entry the other end's entry says it, or else the node's conntrack: what it knows has been through the stack.
 * Without an answer, or without room for entries, it is the stack.
 *
 * Network policy is decided here for the shortcut, and for replies. What a pod sends up the stack otherwise goes there undecided, as nobody knows yet where
 * its destination will be translated to.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_packet.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "flow.h"
#include "parse.h"
#include "policy.h"
#include "types.h"

/* is_plain: nothing that a router has to answer (no hop left), read (options) or put together (fragments), or that was not sent to it. */
static __always_inline _Bool is_plain(const struct __sk_buff *ctx, const struct packet *pkt)
{
	return pkt->hops > 1 && !pkt->for_routers && !pkt->transport.fragment && ctx->pkt_type == PACKET_HOST;
}

/* connection_start is a pod's end of a connection that goes through the stack, and that nobody has decided about. */
static __always_inline void connection_start(struct connection *c, const struct addr *local, const struct link *link)
{
	__builtin_memset(c, 0, sizeof(*c));
	c->local = *local;
	c->mac = link->pod_mac;
	c->charged = c->id = link->id;
	c->generation = slot_generation(c->id);
	c->path = PATH_STACK;
}

/* connection_shortcut makes it one that goes straight to another pod. */
static __always_inline void connection_shortcut(struct connection *c, const struct endpoint *to)
{
	c->peer_ifindex = to->ifindex;
	c->peer_mac = to->pod_mac;
	c->peer_host_mac = to->host_mac;
	c->peer_id = to->id;
	c->peer_generation = slot_generation(c->peer_id);
	c->path = PATH_SHORTCUT;
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
	back->charged = c->id;
	back->generation = c->peer_generation;
	back->revision = c->peer_revision;
	connection_shortcut(back, from);
	back->peer_generation = c->generation;
	back->peer_revision = c->revision;
	back->state = c->state & STATE_OPENED_HERE ? 0 : STATE_OPENED_HERE | STATE_REPLIED;
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

/* decide_shortcut returns an enum drop_reason. A packet that follows others says not who has opened the connection: either may have. */
static __always_inline enum drop_reason decide_shortcut(const struct connection_key *key, struct connection *c, const struct flow *flow,
							_Bool opened_here_is_known)
{
	enum drop_reason reason;

	connection_read_revisions(c);
	reason = connection_decide(key, c, c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_OTHER);
	if (!reason || opened_here_is_known || !(flow->flags & FLOW_FOLLOWS) || connection_decide(key, c, OPENED_BY_OTHER))
		return reason;
	c->state = STATE_REPLIED;
	return DROP_NONE;
}

/*
 * decide_stack decides about a packet of a pod to the stack if it is a reply. For a request there is nothing to decide yet: c->state says so. A packet that
 * follows others, of which conntrack knows nothing, is a reply if it may be.
 */
static __always_inline enum drop_reason decide_stack(struct __sk_buff *ctx, const struct connection_key *key, struct connection *c,
						     const struct flow *flow)
{
	struct connection_key real = *key;
	_Bool restricted = policy_restricts(c->id);
	enum drop_reason reason;
	int opened;

	connection_read_revisions(c);
	if (!restricted && !(flow->flags & FLOW_FOLLOWS))
		return DROP_NONE;
	opened = flow->flags & FLOW_OPENS ? OPENED_BY_POD : conntrack_opened(ctx, &real, &c->local);
	if (opened == OPENED_BY_POD || (!opened && !(restricted && flow->flags & FLOW_FOLLOWS))) {
		if (restricted && conntrack_can_tell(key->protocol))
			c->revision = ~c->revision; /* not decided: the first reply is */
		return DROP_NONE;
	}
	reason = connection_decide(&real, c, OPENED_BY_OTHER);
	if (!reason)
		c->state = STATE_REPLIED;
	return opened ? reason : DROP_NONE;
}

/*
 * path_to_pod_of_node decides about a packet to another pod of this node, and makes the entries. When *c is not one of the shortcut afterwards, the packet is for
 * the stack.
 */
static __always_inline enum drop_reason path_to_pod_of_node(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
							    const struct connection_key *key, struct connection *c,
							    const struct endpoint *to, __u32 now)
{
	struct connection_key peer_key;
	struct connection *peer;
	enum connection_path path;
	enum drop_reason reason;

	key_of_peer(&peer_key, key, &pkt->source, to->ifindex);
	peer = connection_find(&peer_key, flow, OPENED_BY_OTHER, 0, now);
	path = peer ? peer->path : path_asked(ctx, key, &pkt->source, flow);
	if (path != PATH_SHORTCUT || !is_plain(ctx, pkt))
		return DROP_NONE;
	if (peer)
		c->state = peer->state & STATE_OPENED_HERE ? STATE_REPLIED : STATE_OPENED_HERE | (peer->state & STATE_REPLIED);
	connection_shortcut(c, to);
	reason = decide_shortcut(key, c, flow, peer != NULL);
	if (reason || flow->flags & FLOW_ERROR)
		return reason;
	if (!peer) {
		if (!connection_open_shortcut(key, c, &peer_key, now))
			c->path = PATH_STACK;
	} else if (usage_allows(c->id, 1)) {
		connection_insert(key, c, now); /* without an entry here, too: the other end's says so */
	}
	return DROP_NONE;
}

/*
 * path_from_pod decides for a packet of which the pod has no entry, and makes the entries. It fills *c: the path, and in its state whether the pod has opened the
 * connection. Data of the packet must be read again afterwards.
 */
static __always_inline enum drop_reason path_from_pod(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
						      const struct connection_key *key, const struct link *link,
						      struct connection *c, __u32 now)
{
	const struct endpoint *to = endpoint_lookup(&pkt->destination);
	enum drop_reason reason;

	connection_start(c, &pkt->source, link);
	c->state = STATE_OPENED_HERE;
	if (to && to->id != link->id) {
		reason = path_to_pod_of_node(ctx, pkt, flow, key, c, to, now);
		if (reason || c->path == PATH_SHORTCUT)
			return reason;
		connection_start(c, &pkt->source, link);
		c->state = STATE_OPENED_HERE;
	}
	if (flow->flags & FLOW_ERROR)
		return DROP_NONE;
	reason = decide_stack(ctx, key, c, flow);
	if (!reason && !(to && !is_plain(ctx, pkt)) && usage_allows(c->id, 1))
		connection_insert(key, c, now);
	return reason;
}

/*
 * connection_store notes a new decision *c in the entry that *c was copied from. What other CPUs note in it meanwhile stays. The revision comes last: who reads the
 * entry between two writes decides again.
 */
static __always_inline void connection_store(struct connection *own, const struct connection *c)
{
	if (own->checksum != c->checksum)
		return; /* its memory is another one's */
	if ((own->state | c->state) != own->state)
		own->state |= c->state;
	if (!c->peer_ifindex) /* else the checksum has it */
		own->peer_id = c->peer_id;
	own->peer_revision = c->peer_revision;
	asm volatile("" ::: "memory");
	own->revision = c->revision;
}

/*
 * connection_decide_again is for a packet that a pod sends, of a connection *c that it has an entry of, when a policy has changed since. Requests through the stack are
 * not decided here. A reply to an address of the node is one to the node itself: conntrack names those that it stands for.
 */
static __always_inline enum drop_reason connection_decide_again(struct __sk_buff *ctx, const struct connection_key *key,
								struct connection *own, struct connection *c)
{
	struct connection_key real = *key;
	enum drop_reason reason;

	if (connection_is_current(c) || (c->path == PATH_STACK && c->state & STATE_OPENED_HERE))
		return DROP_NONE;
	connection_read_revisions(c);
	if (c->path == PATH_STACK)
		conntrack_opened(ctx, &real, &c->local);
	reason = connection_decide(&real, c, c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_NODE);
	if (!reason)
		connection_store(own, c);
	return reason;
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

	if (key->protocol == IPPROTO_TCP || key->protocol == IPPROTO_SCTP)
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
