/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connections of the pods of this node: the map, its shares, and how long an entry lasts.
 *
 * A plain hash: an LRU would let a flood of short connections evict the idle ones of others. What is not there costs a
 * question to the node's conntrack, no connection; so an entry may be lost at any time.
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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

/* By endpoint ID. The agent writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_IDS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* By endpoint ID. The programs write it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_IDS);
	__type(key, __u32);
	__type(value, struct usage);
} usage SEC(".maps");

/* One entry. The agent writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limits);
} limits SEC(".maps");

#define E2BIG 7 /* no room in a map */

/* How long an entry lasts after the last packet, in ticks of a little more than a second. */
#define LASTS_TCP 3600
#define LASTS_TCP_HALF_OPEN 60
#define LASTS_TCP_CLOSED 10
#define LASTS_UDP 120 /* and of other protocols */
#define LASTS_UDP_UNANSWERED 30
#define LASTS_ECHO 30

static __always_inline __u32 ticks_now(void)
{
	return bpf_ktime_get_coarse_ns() >> CONNECTION_TICK_SHIFT;
}

static __always_inline _Bool is_closed(const struct connection *c)
{
	const __u8 both = STATE_LOCAL_CLOSED | STATE_REMOTE_CLOSED;

	return c->state & STATE_RESET || (c->state & both) == both;
}

static __always_inline __u32 connection_lasts(const struct connection *c, __u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		if (is_closed(c))
			return LASTS_TCP_CLOSED;
		return c->state & STATE_REPLIED ? LASTS_TCP : LASTS_TCP_HALF_OPEN;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return LASTS_ECHO;
	}
	return c->state & STATE_REPLIED ? LASTS_UDP : LASTS_UDP_UNANSWERED;
}

/* Who has opened a connection, and whether the node itself has. */
enum opened {
	OPENED_BY_POD = 1, /* the one whose entry it is */
	OPENED_BY_OTHER = 2,
	OPENED_BY_NODE = 6, /* which is an other, too */
};

/* slot_is: is the endpoint still the one that an entry was written for? */
static __always_inline _Bool slot_is(__u32 id, __u32 generation)
{
	const struct slot *slot = bpf_map_lookup_elem(&slots, &id);

	return slot && slot->generation == generation;
}

static __always_inline __u32 slot_generation(__u32 id)
{
	const struct slot *slot = bpf_map_lookup_elem(&slots, &id);

	return slot ? slot->generation : 0;
}

/* connection_is_valid: neither expired, nor of a pod that is gone. */
static __always_inline _Bool connection_is_valid(const struct connection *c, __u32 now)
{
	return (__s32)(c->expires - now) > 0 && slot_is(c->id, c->generation) &&
	       (c->path != PATH_SHORTCUT || slot_is(c->peer_id, c->peer_generation));
}

/* usage_lookup finds what is counted of an endpoint, and the sum. */
static __always_inline _Bool usage_lookup(__u32 id, struct usage **own, struct usage **sum)
{
	__u32 all = NO_ENDPOINT;

	*own = bpf_map_lookup_elem(&usage, &id);
	*sum = bpf_map_lookup_elem(&usage, &all);
	return *own && *sum;
}

static __always_inline void usage_inserted(__u32 id)
{
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum))
		return;
	__sync_fetch_and_add(&own->inserted, 1);
	__sync_fetch_and_add(&sum->inserted, 1);
}

static __always_inline void usage_removed(__u32 id)
{
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum))
		return;
	__sync_fetch_and_add(&own->removed, 1);
	__sync_fetch_and_add(&sum->removed, 1);
}

/* usage_refuse counts a packet that got no entry as there is no room. */
static __always_inline void usage_refuse(__u32 id)
{
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum))
		return;
	__sync_fetch_and_add(&own->refused, 1);
	__sync_fetch_and_add(&sum->refused, 1);
}

/* usage_has_room: is there room for n more entries that are counted here? */
static __always_inline _Bool usage_has_room(const struct usage *u, __u32 n, __u32 room)
{
	return (__s32)(u->inserted - u->removed + n) <= (__s32)room;
}

/* usage_allows: may the endpoint have n more entries? If not, that counts. */
static __always_inline _Bool usage_allows(__u32 id, __u32 n)
{
	__u32 zero = 0;
	const struct limits *l = bpf_map_lookup_elem(&limits, &zero);
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum) || !l)
		return 0;
	if (usage_has_room(sum, n, l->common) || usage_has_room(own, n, l->share))
		return 1;
	usage_refuse(id);
	return 0;
}

/* connection_delete is safe against another CPU that does the same: one of them counts. */
static __always_inline void connection_delete(const struct connection_key *key, __u32 charged)
{
	if (!bpf_map_delete_elem(&connections, key))
		usage_removed(charged);
}

/*
 * opens_another: does the packet open another connection with the same ports? The entry's is closed, or the other side has opened it: what replies may do, a packet that
 * opens a connection may not. What comes through the stack never replaces a connection by the shortcut.
 */
static __always_inline _Bool opens_another(const struct connection *c, const struct flow *flow, enum opened by, _Bool by_stack)
{
	_Bool opened_here = c->state & STATE_OPENED_HERE;

	if (!(flow->flags & FLOW_OPENS))
		return 0;
	return is_closed(c) || (opened_here != (by == OPENED_BY_POD) && !(by_stack && c->path == PATH_SHORTCUT));
}

/* connection_find returns the entry, or NULL. An invalid one is deleted, and so is one whose ports another connection has now. by is who sends the packet. */
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
 * connection_checksum is that of the key and of what never changes in an entry: all but expires, path, state
 * and the revisions, and peer_id of a connection that never took the shortcut. The products are independent, so that it takes some 5 ns.
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

/* connection_insert writes an entry that its caller has asked usage_allows for. When this is false another CPU has written one, or the map is full. */
static __always_inline _Bool connection_insert(const struct connection_key *key, struct connection *c, __u32 now)
{
	long err;

	c->checksum = connection_checksum(key, c);
	c->expires = now + connection_lasts(c, key->protocol);
	err = bpf_map_update_elem(&connections, key, c, BPF_NOEXIST);
	if (!err) {
		usage_inserted(c->charged);
		key_queue_put(key);
	} else if (err == -E2BIG) {
		usage_refuse(c->charged);
	}
	return !err;
}

/*
 * connection_copy copies an entry that was found by the key, or returns false: it was deleted, and its memory has become another one's before or while
 * it was copied. To compare it with the key again would not do: the memory may have become its own once more.
 */
static __always_inline _Bool connection_copy(struct connection *copy, const struct connection *c, const struct connection_key *key)
{
	*copy = *c;
	asm volatile("" ::: "memory"); /* nothing is read from the entry after this */
	return copy->checksum == connection_checksum(key, copy);
}

/* connection_touch notes a packet. The entry is written only when that changes something: other CPUs read it, too. */
static __always_inline void connection_touch(struct connection *c, __u8 protocol, __u8 state, __u32 now)
{
	__u32 expires;

	if ((c->state | state) != c->state)
		c->state |= state;
	expires = now + connection_lasts(c, protocol);
	if (c->expires != expires)
		c->expires = expires;
}

/* key_outgoing is the key of a packet that the pod sends. */
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

/* key_incoming is the key of a packet that the pod gets. */
static __always_inline void key_incoming(struct connection_key *key, const struct __sk_buff *ctx, const struct packet *pkt,
					 const struct flow *flow)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->remote = flow->flags & FLOW_ERROR ? flow->about : pkt->source;
	key->ifindex = ctx->ifindex;
	key->local_port = flow->destination_port;
	key->remote_port = flow->source_port;
	key->protocol = flow->protocol;
	key->family = ctx->protocol == bpf_htons(ETH_P_IP) ? 4 : 6;
}

/* key_of_peer is the key of the same connection at the other end. */
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
