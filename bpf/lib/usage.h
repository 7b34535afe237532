/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the endpoints share the room in the map connections: a common part for all of them, and a share for each.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

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

/* usage_lookup finds the counts of an endpoint, and the sum of all. */
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

/* usage_refused counts a packet that got no entry, as there is no room. */
static __always_inline void usage_refused(__u32 id)
{
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum))
		return;
	__sync_fetch_and_add(&own->refused, 1);
	__sync_fetch_and_add(&sum->refused, 1);
}

/* usage_has_room: may n more entries be counted in *u, which has room for so many? */
static __always_inline _Bool usage_has_room(const struct usage *u, __u32 n, __u32 room)
{
	return (__s32)(u->inserted - u->removed + n) <= (__s32)room;
}

/*
 * usage_allows: may the endpoint have n more entries? A refusal is counted. As a global function it is verified by
 * itself, once.
 */
__noinline int usage_allows(__u32 id, __u32 n)
{
	__u32 zero = 0;
	const struct limits *l = bpf_map_lookup_elem(&limits, &zero);
	struct usage *own, *sum;

	if (!usage_lookup(id, &own, &sum) || !l)
		return 0;
	if (usage_has_room(sum, n, l->common) || usage_has_room(own, n, l->share))
		return 1;
	usage_refused(id);
	return 0;
}
