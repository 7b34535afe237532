/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs tell the agent of: packets that open a connection, and packets that are dropped. Each CPU tells of so many in a second and counts the rest, so
 * that a flood costs no more than that.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "count.h"
#include "flow.h"
#include "parse.h"
#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* bytes */
} flow_events SEC(".maps");

/* One entry for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event_budget);
} event_budgets SEC(".maps");

/* What has happened to a packet. */
struct occurrence {
	__u16 id; /* of the pod */
	__u8 place; /* enum event_place */
	__u8 reason; /* enum drop_reason */
	__u8 path; /* enum connection_path */
};

#define EVENTS_PER_TICK 2048 /* of a CPU */

/* event_allowed spends one event of this tick, or counts it as lost. */
static __always_inline struct event_budget *event_allowed(__u32 now)
{
	__u32 first = 0;
	struct event_budget *budget = bpf_map_lookup_elem(&event_budgets, &first);

	if (!budget)
		return NULL;
	if (budget->tick != now) {
		budget->tick = now;
		budget->used = 0;
	}
	if (budget->used >= EVENTS_PER_TICK) {
		budget->lost++;
		return NULL;
	}
	budget->used++;
	return budget;
}

/*
 * event_send tells of a packet. The agent looks every tenth of a second: to wake it for each would cost more than all the rest of a connection.
 */
static __noinline int event_send(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
				 const struct occurrence *what, __u32 now)
{
	struct event_budget *budget = event_allowed(now);
	struct flow_event *event;

	if (!budget)
		return 0;
	event = bpf_ringbuf_reserve(&flow_events, sizeof(*event), 0);
	if (!event) {
		budget->lost++;
		return 0;
	}
	event->time = bpf_ktime_get_boot_ns();
	event->source = pkt->source;
	event->destination = pkt->destination;
	event->source_port = flow->source_port;
	event->destination_port = flow->destination_port;
	event->id = what->id;
	event->protocol = pkt->transport.protocol;
	event->flags = flow->flags;
	event->place = what->place;
	event->reason = what->reason;
	event->path = what->path;
	event->pad = 0;
	event->length = ctx->len;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* is_noise: a pod's stack sends such packets all the time, and they are nobody's fault. */
static __always_inline _Bool is_noise(enum drop_reason reason)
{
	return reason == DROP_ARP || reason == DROP_LINK_LOCAL;
}

/* tell_dropped drops a packet, counts it, and tells of it. */
static __always_inline enum verdict tell_dropped(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 id,
						 enum event_place place, enum drop_reason reason, __u32 now)
{
	struct occurrence what = { .id = id, .place = place, .reason = reason };

	if (!is_noise(reason))
		event_send(ctx, pkt, flow, &what, now);
	return drop_of(id, reason);
}

/* tell_opened tells of a packet that has opened a connection. */
static __always_inline void tell_opened(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, const struct connection *c,
					enum event_place place, __u32 now)
{
	struct occurrence what = { .id = c->id, .place = place, .path = c->path };

	event_send(ctx, pkt, flow, &what, now);
}
