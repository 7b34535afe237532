/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Policy is decided after the node has translated a request, and tracks it. So a pod whose requests are denied could fill
 * the node's conntrack, and take the ports that others are masqueraded to. The first DENIED_PER_TICK denied requests of a pod
 * in a tick keep their entries, which the agent reads. The entries of further requests are removed. Conntrack can do so for
 * TCP and UDP only: from_pod drops the pod's packets of other protocols, without an entry in connections, until the tick ends.
 * A packet that passes only as a reply of a connection that nothing knows counts as a denied request: see decide_stack.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "conntrack.h"
#include "flow.h"
#include "parse.h"
#include "types.h"

/* By endpoint ID; NO_ENDPOINT is for requests from elsewhere. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_IDS);
	__type(key, __u32);
	__type(value, struct denied_count);
} denied_counts SEC(".maps");

/* Conntrack keeps an entry for 10 minutes at most: that makes 4,500, of the 262,144 that it usually has room for. */
#define DENIED_PER_TICK 8

/* is_denied: is it a policy that drops the packet? */
static __always_inline _Bool is_denied(enum drop_reason reason)
{
	return reason == DROP_POLICY_EGRESS || reason == DROP_POLICY_INGRESS || reason == DROP_POLICY_UNMANAGED;
}

/* denies_often: drop a packet of a pod that has no entry, because earlier requests of the pod in this tick were denied? */
static __always_inline _Bool denies_often(__u32 id, const struct flow *flow, __u32 now)
{
	const struct denied_count *d;

	if (conntrack_supports(flow->protocol))
		return 0;
	d = bpf_map_lookup_elem(&denied_counts, &id);
	return d && d->tick == now && d->used >= DENIED_PER_TICK;
}

/* denied_count counts a denied request of a pod. It returns whether it was one too many in this tick. */
static __always_inline _Bool denied_count(__u32 id, __u32 now)
{
	struct denied_count *d = bpf_map_lookup_elem(&denied_counts, &id);

	if (!d)
		return 0;
	if (d->tick != now) {
		d->tick = now;
		d->used = 0;
	}
	if (d->used >= DENIED_PER_TICK)
		return 1;
	__sync_fetch_and_add(&d->used, 1);
	return 0;
}

/* denied_note handles a packet that went through the stack and is denied. id is the pod that sent it, or NO_ENDPOINT. */
static __always_inline void denied_note(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 id, __u32 now)
{
	if (denied_count(id, now) && flow->flags & FLOW_TRACKED && !(flow->flags & FLOW_ERROR))
		conntrack_remove(ctx, pkt, flow);
}
