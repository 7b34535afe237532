/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting. Every packet ends in exactly one count_from_pod(), count_to_pod() or drop(); one that goes straight from a
 * pod to a pod is counted at both.
 *
 * Counters are per CPU, so they need no atomic operation: both hooks run with bottom halves off, hence never
 * interrupt each other on a CPU.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "verdict.h"

/*
 * Endpoint ID -> struct passed. An array, as it is read for each packet: a lookup in a hash of this kind takes 50 ns
 * more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct passed);
} passed SEC(".maps");

/*
 * Endpoint ID -> struct drops. The agent makes an endpoint's entry and removes it: nothing is ever evicted. Drops of an
 * endpoint without an entry are not counted; nothing else depends on it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct drops);
} drops SEC(".maps");

static __always_inline void counter_add(struct counter *counter, const struct __sk_buff *ctx)
{
	counter->packets++;
	counter->bytes += ctx->len;
}

static __always_inline void count_from_pod(const struct __sk_buff *ctx, __u32 id)
{
	struct passed *p = bpf_map_lookup_elem(&passed, &id);

	if (p)
		counter_add(&p->from_pod, ctx);
}

static __always_inline void count_to_pod(const struct __sk_buff *ctx, __u32 id)
{
	struct passed *p = bpf_map_lookup_elem(&passed, &id);

	if (p)
		counter_add(&p->to_pod, ctx);
}

/* drop counts a dropped packet for the pod, by reason. All programs drop by it, or by drop_with_event. */
static __always_inline enum verdict drop(__u32 id, enum drop_reason reason)
{
	struct drops *d = bpf_map_lookup_elem(&drops, &id);
	__u32 i = reason;

	barrier_var(i); /* or else clang takes the values of the enum for a bound, and the verifier does not */
	if (d && i < DROP_REASONS)
		d->by_reason[i]++;
	return VERDICT_DROP;
}
