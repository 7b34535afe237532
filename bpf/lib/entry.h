/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The entries of a connection at its pods: how they are filled in, made for both pods of the shortcut, and kept up to
 * date with every packet. What the map itself promises is in connection.h.
 */
#pragma once

#include <linux/bpf.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "flow.h"
#include "types.h"
#include "usage.h"

/* connection_start fills in a pod's entry of a connection that goes through the stack. Policy is not decided yet. */
static __always_inline void connection_start(struct connection *c, const struct addr *local, const struct link *link)
{
	__builtin_memset(c, 0, sizeof(*c));
	c->local = *local;
	c->mac = link->pod_mac;
	c->charged = c->id = link->id;
	c->generation = slot_generation(c->id);
	c->path = PATH_STACK;
}

/* connection_shortcut changes the entry to the shortcut to another pod. */
static __always_inline void connection_shortcut(struct connection *c, const struct endpoint *to)
{
	c->peer_ifindex = to->ifindex;
	c->peer_mac = to->pod_mac;
	c->peer_host_mac = to->host_mac;
	c->peer_id = to->id;
	c->peer_generation = slot_generation(c->peer_id);
	c->path = PATH_SHORTCUT;
}

/* connection_direct changes the entry to the direct path, by a device to a pod of another node. */
static __always_inline void connection_direct(struct connection *c, __u32 ifindex)
{
	c->peer_ifindex = ifindex;
	c->path = PATH_DIRECT;
}

/*
 * connection_open_direct writes the entry of a connection with PATH_DIRECT. Without room for it, and when another CPU
 * has decided otherwise, the path is PATH_STACK.
 */
static __always_inline void connection_open_direct(const struct connection_key *key, struct connection *c, __u32 now)
{
	const struct connection *other;

	if (usage_allows(c->id, 1) && connection_insert(key, c, now))
		return;
	other = bpf_map_lookup_elem(&connections, key);
	if (!other || other->path != PATH_DIRECT)
		c->path = PATH_STACK;
}

/*
 * connection_reverse fills in the receiver's entry of the connection *c. It counts in the sender's share. It returns
 * false when the map endpoints does not have the sender's address.
 */
static __always_inline _Bool connection_reverse(struct connection *reverse, const struct connection *c, const struct addr *remote)
{
	const struct endpoint *from = endpoint_lookup(&c->local);

	if (!from || from->id != c->id)
		return 0;
	__builtin_memset(reverse, 0, sizeof(*reverse));
	reverse->local = *remote;
	reverse->mac = c->peer_mac;
	reverse->id = c->peer_id;
	reverse->charged = c->id;
	reverse->generation = c->peer_generation;
	reverse->revision = c->peer_revision;
	connection_shortcut(reverse, from);
	reverse->peer_generation = c->generation;
	reverse->peer_revision = c->revision;
	reverse->state = (c->state & STATE_OPENED_HERE ? 0 : STATE_OPENED_HERE | STATE_REPLIED) | (c->state & STATE_GUESSED);
	return 1;
}

/*
 * connection_open_shortcut writes the entries of both pods, or none. It returns whether the connection takes the
 * shortcut, as this or another CPU has decided.
 */
static __noinline _Bool connection_open_shortcut(const struct connection_key *key, struct connection *c,
						 const struct connection_key *peer, __u32 now)
{
	struct connection reverse;
	const struct connection *other;
	_Bool inserted;

	if (!connection_reverse(&reverse, c, &key->remote) || !usage_allows(c->id, 2))
		return 0;
	inserted = connection_insert(peer, &reverse, now);
	if (!inserted) {
		other = bpf_map_lookup_elem(&connections, peer);
		if (!other || other->path != PATH_SHORTCUT)
			return 0;
	}
	if (connection_insert(key, c, now))
		return 1;
	other = bpf_map_lookup_elem(&connections, key);
	if (other) /* written by another CPU for the same connection */
		return other->path == PATH_SHORTCUT;
	if (inserted)
		connection_delete(peer, reverse.charged);
	return 0;
}

/*
 * connection_store writes a new policy decision from *c to the entry that *c was copied from. State bits that other
 * CPUs have set meanwhile stay. The revision is written last: a CPU that reads the entry between two writes decides
 * again.
 */
static __always_inline void connection_store(struct connection *own, const struct connection *c)
{
	if (own->checksum != c->checksum)
		return; /* the memory belongs to another entry now */
	if ((own->state | c->state) != own->state)
		own->state |= c->state;
	if (!c->peer_ifindex) /* else peer_id is covered by the checksum, and does not change */
		own->peer_id = c->peer_id;
	own->peer_revision = c->peer_revision;
	asm volatile("" ::: "memory");
	own->revision = c->revision;
}

/*
 * state_of returns the state bits that a packet adds to its connection, seen from its sender. closed is the bit for a
 * FIN.
 */
static __always_inline __u8 state_of(const struct flow *flow, __u8 opened_by_sender, __u8 closed)
{
	return (opened_by_sender ? 0 : STATE_REPLIED) | (flow->flags & FLOW_FIN ? closed : 0) |
	       (flow->flags & FLOW_RESET ? STATE_RESET : 0);
}

/*
 * connection_note_outgoing updates the entry for a packet that the pod sends, and the other pod's entry if the state
 * has changed.
 */
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

/* conntrack_prevent_clash_of handles a SYN from (sent) or to the pod whose entry it is. */
static __always_inline void conntrack_prevent_clash_of(struct __sk_buff *ctx, const struct connection *own,
						       const struct connection_key *key, _Bool sent)
{
	struct connection_key reversed;

	if (!sent) {
		conntrack_prevent_clash(ctx, key, &own->local);
		return;
	}
	key_of_peer(&reversed, key, &own->local, 0);
	conntrack_prevent_clash(ctx, &reversed, &key->remote);
}

/*
 * connection_check_clash handles a packet to the pod, or from it (sent), that came through the stack, though the entry's
 * connection does not. If the packet was translated, it belongs to another connection that looks the same to the other end, and the
 * replies of the two could not be distinguished. So a SYN is dropped; when it is sent again, the node gives it another
 * port. A datagram is dropped until the connection past the stack has an answer; afterwards both connections go
 * through the stack, and at once when the other side has opened that one: it may never have an answer. A packet that was not
 * translated belongs to the connection itself: it was a fragment, or had IP options.
 */
static __always_inline enum drop_reason connection_check_clash(struct __sk_buff *ctx, struct connection *own,
							       const struct connection_key *key, const struct flow *flow, _Bool sent)
{
	_Bool opened_here = own->state & STATE_OPENED_HERE;
	struct connection_key peer_key;
	struct connection *peer;

	if (key->protocol == IPPROTO_TCP || key->protocol == IPPROTO_SCTP) {
		if (!(flow->flags & FLOW_OPENS))
			return DROP_NONE;
		if (own->path == PATH_DIRECT && conntrack_lookup(ctx, key, &own->local) != CONNTRACK_TRANSLATED)
			return DROP_NONE;
		conntrack_prevent_clash_of(ctx, own, key, sent);
		return DROP_PATH_CLASH;
	}
	if (key->protocol != IPPROTO_UDP)
		return DROP_NONE;
	if (conntrack_supports(key->protocol)) {
		if (conntrack_lookup(ctx, key, &own->local) != CONNTRACK_TRANSLATED)
			return DROP_NONE;
		if (!(own->state & STATE_REPLIED) && opened_here == sent)
			return DROP_PATH_CLASH;
	}
	key_of_peer(&peer_key, key, &own->local, own->peer_ifindex);
	peer = bpf_map_lookup_elem(&connections, &peer_key);
	if (peer)
		peer->path = PATH_STACK;
	own->path = PATH_STACK;
	return DROP_NONE;
}

/* connection_note_incoming updates the entry for a packet that came through the stack to the pod. */
static __always_inline enum drop_reason connection_note_incoming(struct __sk_buff *ctx, struct connection *own,
								 const struct connection_key *key, const struct flow *flow, __u32 now)
{
	__u8 opened_by_sender = !(own->state & STATE_OPENED_HERE);
	enum drop_reason reason = DROP_NONE;

	if (flow->flags & FLOW_ERROR)
		return DROP_NONE;
	if (own->path != PATH_STACK)
		reason = connection_check_clash(ctx, own, key, flow, 0);
	if (!reason)
		connection_touch(own, key->protocol, state_of(flow, opened_by_sender, STATE_REMOTE_CLOSED), now);
	return reason;
}

/*
 * connection_check_clash_outgoing handles a packet of a pod that the stack sends to another node: the node may have
 * translated it to the addresses and ports of a connection with PATH_DIRECT. The entry of one that is over leads nobody past the
 * stack any more: the answers are to be translated back.
 */
static __always_inline enum drop_reason connection_check_clash_outgoing(struct __sk_buff *ctx, const struct packet *pkt,
									const struct flow *flow, __u32 now)
{
	struct connection_key key;
	struct connection *own;

	if (flow->flags & FLOW_ERROR || !(flow->flags & FLOW_OPENS || (flow->flags & FLOW_TRACKED && flow->protocol == IPPROTO_UDP)))
		return DROP_NONE;
	key_outgoing(&key, ctx, pkt, flow);
	key.ifindex = ctx->ingress_ifindex;
	own = bpf_map_lookup_elem(&connections, &key);
	if (!own || own->path != PATH_DIRECT || !connection_is_valid(own, now) || !addr_equal(&own->local, &pkt->source))
		return DROP_NONE;
	if (is_closed(own)) {
		own->path = PATH_STACK;
		return DROP_NONE;
	}
	return connection_check_clash(ctx, own, &key, flow, 1);
}
