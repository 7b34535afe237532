/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting. Every packet ends in exactly one count_from_pod(), count_to_pod() or drop(); one that goes straight from a
 * pod to a pod is counted at both.
 *
 * Counters are per CPU, so they need no atomic operation: both hooks run with bottom halves off, hence never
 * interrupt each other on a CPU. An endpoint without an entry is not counted; nothing else depends on the entry.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "endpoint.h"
#include "types.h"
#include "verdict.h"

/* Endpoint ID -> struct traffic. The agent makes an endpoint's entry and removes it: nothing is ever evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct traffic);
} traffic SEC(".maps");

static __always_inline void counter_add(struct counter *counter, const struct __sk_buff *ctx)
{
	counter->packets++;
	counter->bytes += ctx->len;
}

static __always_inline void count_from_pod(const struct __sk_buff *ctx, __u32 id)
{
	struct traffic *t = bpf_map_lookup_elem(&traffic, &id);

	if (t)
		counter_add(&t->from_pod, ctx);
}

static __always_inline void count_to_pod(const struct __sk_buff *ctx, __u32 id)
{
	struct traffic *t = bpf_map_lookup_elem(&traffic, &id);

	if (t)
		counter_add(&t->to_pod, ctx);
}

/* drop is the only way to drop a packet. The reason counts at the pod whose link this is. */
static __always_inline enum verdict drop(const struct __sk_buff *ctx, enum drop_reason reason)
{
	const struct link *link = link_lookup(ctx);
	__u32 id = link ? link->id : NO_ENDPOINT;
	struct traffic *t = bpf_map_lookup_elem(&traffic, &id);
	__u32 i = reason;

	barrier_var(i); /* or else clang takes the values of the enum for a bound, and the verifier does not */
	if (t && i < DROP_REASONS)
		t->drops[i]++;
	return VERDICT_DROP;
}
