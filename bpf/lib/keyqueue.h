/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A queue of the keys of all connections, by which they can be visited a few at a time: bpf_for_each_map_elem begins at the front of the map each
 * time. A new connection's key is put at the end, and the sweep makes the queue anew.
 *
 * A key may be missing, as when the queue is full. One may be there twice, or be of no connection any more: that costs a lookup.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* As many as fit into the map of connections, up to the next power of two. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct connection_key);
} key_queue SEC(".maps");

/* Its size less one. */
volatile const __u32 key_queue_mask;

struct expirer {
	struct bpf_timer timer;
	__u32 head; /* where the next key goes, and */
	__u32 tail; /* where the oldest one is: modulo the size */
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

/* key_queue_take takes the oldest key. There is one. False: it cannot be read. */
static __always_inline _Bool key_queue_take(struct expirer *e, struct connection_key *key)
{
	__u32 at = e->tail & key_queue_mask;
	const struct connection_key *from = bpf_map_lookup_elem(&key_queue, &at);

	e->tail++;
	if (from)
		*key = *from;
	return from != NULL;
}
