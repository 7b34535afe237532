/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A queue of the keys of all connections. With it the timer (expiry.h) can visit a few at a time; bpf_for_each_map_elem
 * would begin at the front of the map each time. A new connection's key is put at the end, and each sweep fills the
 * queue anew.
 *
 * A key may be missing, as when the queue is full, until the next sweep. A key may be there twice, or after its
 * connection has gone: that costs a lookup.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Its size is that of the map connections, rounded up to a power of two. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct connection_key);
} key_queue SEC(".maps");

/* The size of the queue less one. */
volatile const __u32 key_queue_mask;

struct expirer {
	struct bpf_timer timer;
	__u32 head; /* where the next key goes, modulo the size of the queue */
	__u32 tail; /* where the oldest key is, likewise */
};

/* One entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct expirer);
} expirer SEC(".maps");

static __always_inline struct expirer *expirer_lookup(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&expirer, &zero);
}

static __always_inline void key_queue_put(const struct connection_key *key)
{
	struct expirer *e = expirer_lookup();
	struct connection_key *to;
	__u32 at;

	if (!e || e->head - e->tail > key_queue_mask)
		return;
	at = __sync_fetch_and_add(&e->head, 1) & key_queue_mask;
	to = bpf_map_lookup_elem(&key_queue, &at);
	if (to)
		*to = *key;
}

/* key_queue_take takes the oldest key of a queue that is not empty. It returns false when the key cannot be read. */
static __always_inline _Bool key_queue_take(struct expirer *e, struct connection_key *key)
{
	__u32 at = e->tail & key_queue_mask;
	const struct connection_key *from = bpf_map_lookup_elem(&key_queue, &at);

	e->tail++;
	if (from)
		*key = *from;
	return from != NULL;
}
