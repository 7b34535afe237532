/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connections of the pods of this node: the map, how long an entry lasts, and when it is valid.
 *
 * The map is a plain hash: with an LRU, a flood of short connections would evict the idle ones of other pods. An entry
 * may be lost at any time: then the programs ask the node's conntrack, and the connection goes on.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "endpoint.h"
#include "flow.h"
#include "keyqueue.h"
#include "types.h"
#include "usage.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

/* By endpoint ID. The agent writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* the proxy reads it for each request */
	__uint(max_entries, ENDPOINT_IDS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

#define E2BIG 7 /* no room in a map */

/* How long an entry lasts after the last packet, in ticks: see CONNECTION_TICK_SHIFT. */
#define LIFETIME_TCP 8000 /* more than the 2 h after which TCP sends a keepalive: RFC 1122, section 4.2.3.6 */
#define LIFETIME_TCP_HALF_OPEN 60
#define LIFETIME_TCP_CLOSED 10
#define LIFETIME_UDP 120 /* and of other protocols */
#define LIFETIME_UDP_UNANSWERED 30
#define LIFETIME_ECHO 30

static __always_inline __u32 ticks_now(void)
{
	return bpf_ktime_get_coarse_ns() >> CONNECTION_TICK_SHIFT;
}

static __always_inline _Bool is_closed(const struct connection *c)
{
	const __u8 both = STATE_LOCAL_CLOSED | STATE_REMOTE_CLOSED;

	return c->state & STATE_RESET || (c->state & both) == both;
}

static __always_inline __u32 connection_lifetime(const struct connection *c, __u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		if (is_closed(c))
			return LIFETIME_TCP_CLOSED;
		return c->state & STATE_REPLIED ? LIFETIME_TCP : LIFETIME_TCP_HALF_OPEN;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return LIFETIME_ECHO;
	}
	return c->state & STATE_REPLIED ? LIFETIME_UDP : LIFETIME_UDP_UNANSWERED;
}

/* Who has opened a connection, and whether the node itself has. */
enum opened {
	OPENED_BY_POD = 1, /* the pod whose entry it is */
	OPENED_BY_OTHER = 2,
	OPENED_BY_NODE = 6, /* a kind of other: the bit of OPENED_BY_OTHER is set, too */
};

/* slot_matches: does the ID still belong to the endpoint that an entry was written for? */
static __always_inline _Bool slot_matches(__u32 id, __u32 generation)
{
	const struct slot *slot = bpf_map_lookup_elem(&slots, &id);

	return slot && slot->generation == generation;
}

static __always_inline __u32 slot_generation(__u32 id)
{
	const struct slot *slot = bpf_map_lookup_elem(&slots, &id);

	return slot ? slot->generation : 0;
}

/* connection_is_valid: it has not expired, and its pods are still there. */
static __always_inline _Bool connection_is_valid(const struct connection *c, __u32 now)
{
	return (__s32)(c->expires - now) > 0 && slot_matches(c->id, c->generation) &&
	       (c->path != PATH_SHORTCUT || slot_matches(c->peer_id, c->peer_generation));
}

/* connection_delete may run on two CPUs for the same entry: only one of them counts it as removed. */
static __noinline void connection_delete(const struct connection_key *key, __u32 charged)
{
	if (!bpf_map_delete_elem(&connections, key))
		usage_removed(charged);
}

/*
 * opens_another: does the packet open another connection with the same ports as the entry's? It does when the entry's
 * connection is closed, or was opened by the other side: a SYN must not pass by the right of replies. It also does when the
 * opener of the entry is a guess. Otherwise a packet that comes through the stack never replaces an open connection past
 * the stack.
 */
static __always_inline _Bool opens_another(const struct connection *c, const struct flow *flow, enum opened by, _Bool by_stack)
{
	_Bool opened_here = c->state & STATE_OPENED_HERE;

	if (!(flow->flags & FLOW_OPENS))
		return 0;
	return is_closed(c) || c->state & STATE_GUESSED || (opened_here != (by == OPENED_BY_POD) && !(by_stack && c->path != PATH_STACK));
}

/*
 * connection_find returns the entry, or NULL. It deletes an entry that is invalid, and one whose ports are taken by
 * another connection now. by says who sends the packet.
 */
static __always_inline struct connection *connection_find(const struct connection_key *key, const struct flow *flow, enum opened by,
							  _Bool by_stack, __u32 now)
{
	struct connection *c = bpf_map_lookup_elem(&connections, key);

	if (!c)
		return NULL;
	if (connection_is_valid(c, now) && !opens_another(c, flow, by, by_stack))
		return c;
	connection_delete(key, c->charged);
	return NULL;
}

static __always_inline __u64 words_of(__u16 a, __u16 b, __u16 c, __u16 d)
{
	return a | (__u64)b << 16 | (__u64)c << 32 | (__u64)d << 48;
}

/*
 * connection_checksum covers the key and the fields of an entry that never change: all but expires, path, state and the
 * revisions; peer_id counts only for a connection that began past the stack. The products are independent of each other,
 * so it takes some 5 ns.
 */
static __always_inline __u32 connection_checksum(const struct connection_key *key, const struct connection *c)
{
	const __u64 multiplier = 0x9e3779b97f4a7c15; /* 2^64 divided by the golden ratio; odd, as all its odd multiples are */
	const __u64 *of_key = (const __u64 *)key, *local = (const __u64 *)c->local.byte;
	const __u16 *mac = (const __u16 *)c->mac.byte, *peer_mac = (const __u16 *)c->peer_mac.byte;
	const __u16 *peer_host_mac = (const __u16 *)c->peer_host_mac.byte;
	__u64 sum = of_key[0] * multiplier + of_key[1] * 3 * multiplier + of_key[2] * 5 * multiplier + of_key[3] * 7 * multiplier;

	sum += local[0] * 9 * multiplier + local[1] * 11 * multiplier;
	sum += words_of(c->generation, c->generation >> 16, c->peer_generation, c->peer_generation >> 16) * 13 * multiplier;
	sum += words_of(c->peer_ifindex, c->peer_ifindex >> 16, c->id, c->peer_ifindex ? c->peer_id : 0) * 15 * multiplier;
	sum += words_of(mac[0], mac[1], mac[2], c->charged) * 17 * multiplier;
	sum += words_of(peer_mac[0], peer_mac[1], peer_mac[2], peer_host_mac[0]) * 19 * multiplier;
	sum += words_of(peer_host_mac[1], peer_host_mac[2], 0, 0) * 21 * multiplier;
	return sum >> 32;
}

/*
 * connection_insert writes an entry. The caller has asked usage_allows before. It returns false when another CPU has
 * written the entry, or the map is full. It is not global, because in Linux 6.1 an argument of a global function is no
 * key of a map.
 */
static __noinline __attribute__((unused)) _Bool connection_insert(const struct connection_key *key, struct connection *c, __u32 now)
{
	long err;

	c->checksum = connection_checksum(key, c);
	c->expires = now + connection_lifetime(c, key->protocol);
	err = bpf_map_update_elem(&connections, key, c, BPF_NOEXIST);
	if (!err) {
		usage_inserted(c->charged);
		key_queue_put(key);
	} else if (err == -E2BIG) {
		usage_refused(c->charged);
	}
	return !err;
}

/*
 * connection_copy copies an entry that was found by the key. It returns false when the entry was deleted and its memory
 * was used for another one, before or during the copy. A second lookup of the key would not show that: the same memory
 * may be the key's again by then.
 */
static __always_inline _Bool connection_copy(struct connection *copy, const struct connection *c, const struct connection_key *key)
{
	*copy = *c;
	asm volatile("" ::: "memory"); /* nothing is read from the entry after this */
	return copy->checksum == connection_checksum(key, copy);
}

/*
 * connection_touch adds state bits and extends the life of an entry. It writes only what changes, as other CPUs have
 * the entry in their caches.
 */
static __always_inline void connection_touch(struct connection *c, __u8 protocol, __u8 state, __u32 now)
{
	__u32 expires;

	if ((c->state | state) != c->state)
		c->state |= state;
	expires = now + connection_lifetime(c, protocol);
	if (c->expires != expires)
		c->expires = expires;
}

/*
 * connection_touch_denied extends the life of an entry for a packet that policy denies, as long as either side sends: without the entry,
 * policy would not know who has opened the connection.
 */
static __always_inline void connection_touch_denied(struct connection *c, const struct flow *flow, __u32 now)
{
	if ((flow->flags & (FLOW_FOLLOWS | FLOW_ERROR)) == FLOW_FOLLOWS)
		connection_touch(c, flow->protocol, 0, now);
}

/* key_outgoing fills in the key of a packet that the pod sends. */
static __always_inline void key_outgoing(struct connection_key *key, const struct __sk_buff *ctx, const struct packet *pkt,
					 const struct flow *flow)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->remote = pkt->destination;
	key->ifindex = ctx->ifindex;
	key->local_port = flow->source_port;
	key->remote_port = flow->destination_port;
	key->protocol = flow->protocol;
	key->family = ctx->protocol == bpf_htons(ETH_P_IP) ? 4 : 6;
}

/* key_incoming fills in the key of a packet that the pod gets. */
static __always_inline void key_incoming(struct connection_key *key, const struct __sk_buff *ctx, const struct packet *pkt,
					 const struct flow *flow)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->remote = flow->flags & FLOW_ERROR ? flow->inner_destination : pkt->source;
	key->ifindex = ctx->ifindex;
	key->local_port = flow->destination_port;
	key->remote_port = flow->source_port;
	key->protocol = flow->protocol;
	key->family = ctx->protocol == bpf_htons(ETH_P_IP) ? 4 : 6;
}

/* key_of_peer fills in the key of the same connection at the other pod. */
static __always_inline void key_of_peer(struct connection_key *key, const struct connection_key *own, const struct addr *local,
					__u32 ifindex)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->remote = *local;
	key->ifindex = ifindex;
	key->local_port = own->remote_port;
	key->remote_port = own->local_port;
	key->protocol = own->protocol;
	key->family = own->family;
}
