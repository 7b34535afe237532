/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Removing connections that have expired or whose pod is gone (bpf_for_each_map_elem, Linux 5.13), and counting the
 * others anew. The counts in the map usage can be wrong: when two CPUs remove an entry, the second one may hit a new
 * entry with the same key, and count it for the wrong endpoint.
 *
 * Connections come and go during a sweep. The number that it finds is at most the count before plus all that were made
 * meanwhile, and at least the count before less all that were removed meanwhile. A difference beyond that is corrected
 * when two sweeps in a row find it. The correction is an atomic addition, so that what other CPUs count at the same
 * time is not lost.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "expiry.h"
#include "keyqueue.h"
#include "types.h"

/* By endpoint ID. Only the sweep uses it. It is not pinned, so it ends with the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct recount);
} recount SEC(".maps");

struct sweep_run {
	__u32 now;
	struct sweep done;
};

static long recount_begin(void *map, const __u32 *id, struct recount *r, void *unused)
{
	const struct usage *u = bpf_map_lookup_elem(&usage, id);

	(void)map, (void)unused;
	if (!u)
		return 1;
	r->inserted = u->inserted;
	r->removed = u->removed;
	r->found = 0;
	return 0;
}

/* recount_note counts an entry that stays, or that the sweep has removed. */
static __always_inline void recount_note(__u32 id, _Bool stays)
{
	struct recount *r = bpf_map_lookup_elem(&recount, &id);

	if (!r)
		return;
	if (stays)
		r->found++;
	else
		r->removed++;
}

static long sweep_one(void *map, const struct connection_key *key, struct connection *c, struct sweep_run *s)
{
	_Bool stays = connection_is_valid(c, s->now);
	__u32 charged = c->charged;

	(void)map;
	s->done.visited++;
	if (!stays && bpf_map_delete_elem(&connections, key))
		return 0;
	if (stays) {
		key_queue_put(key);
	} else {
		s->done.removed++;
		usage_removed(charged);
	}
	recount_note(charged, stays);
	recount_note(NO_ENDPOINT, stays);
	return 0;
}

/* recount_difference returns how many more entries (or, if negative, fewer) there are for certain than are counted. */
static __always_inline __s32 recount_difference(const struct recount *r, const struct usage *u)
{
	__s32 more = r->found - (r->inserted - r->removed);
	__s32 inserted = u->inserted - r->inserted, removed = u->removed - r->removed; /* meanwhile */

	if (more > inserted)
		return more - inserted;
	return more < -removed ? more + removed : 0;
}

/* nearer_zero returns the one that is nearer to 0, or 0 when their signs differ. */
static __always_inline __s32 nearer_zero(__s32 a, __s32 b)
{
	if (a > 0 && b > 0)
		return a < b ? a : b;
	if (a < 0 && b < 0)
		return a > b ? a : b;
	return 0;
}

static long recount_end(void *map, const __u32 *id, struct recount *r, struct sweep_run *s)
{
	struct usage *u = bpf_map_lookup_elem(&usage, id);
	__s32 difference, correction;

	(void)map;
	if (!u)
		return 1;
	difference = recount_difference(r, u);
	correction = nearer_zero(difference, r->difference);
	r->difference = difference - correction;
	if (!correction)
		return 0;
	s->done.corrected++;
	if (correction > 0)
		__sync_fetch_and_add(&u->inserted, correction);
	else
		__sync_fetch_and_add(&u->removed, -correction);
	return 0;
}

/* sweep visits every connection. The agent runs it, never twice at a time, and gets the result in *out. */
SEC("syscall")
int sweep(struct sweep *out)
{
	struct sweep_run s = { .now = ticks_exact() };
	struct expirer *e = expirer_lookup();
	__u64 wait = out->wait_ms * 1000000ull;

	if (!e)
		return -1;
	e->tail = e->head;
	bpf_for_each_map_elem(&recount, recount_begin, &s, 0);
	bpf_for_each_map_elem(&connections, sweep_one, &s, 0);
	bpf_for_each_map_elem(&recount, recount_end, &s, 0);
	*out = s.done;
	return expiry_postpone(e, wait);
}
