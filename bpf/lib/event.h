/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Events for the agent: packets that open a connection, and packets that are dropped. Each CPU sends a limited number
 * in a second and counts the rest, so that a flood of packets does not cost more. An endpoint has a quarter of it, so that its flood
 * does not hide what others do.
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

#define EVENT_SHARES 256 /* a power of two */

/* By the low bits of the endpoint ID, for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENT_SHARES);
	__type(key, __u32);
	__type(value, struct event_share);
} event_shares SEC(".maps");

/* What an event says besides the packet. */
struct event_detail {
	__u16 id; /* of the pod */
	__u8 place; /* enum event_place */
	__u8 reason; /* enum drop_reason */
	__u8 path; /* enum connection_path */
};

#define EVENTS_PER_TICK 2048 /* on each CPU */
#define EVENTS_PER_SHARE (EVENTS_PER_TICK / 4)

/* event_allowed takes one event from the budget of this tick and from the endpoint's share, or counts it as lost and returns NULL. */
static __always_inline struct event_budget *event_allowed(__u32 id, __u32 now)
{
	__u32 first = 0, number = id % EVENT_SHARES;
	struct event_budget *budget = bpf_map_lookup_elem(&event_budgets, &first);
	struct event_share *share = bpf_map_lookup_elem(&event_shares, &number);

	if (!budget || !share)
		return NULL;
	if (budget->tick != now) {
		budget->tick = now;
		budget->used = 0;
	}
	if (share->tick != now) {
		share->tick = now;
		share->used = 0;
	}
	if (budget->used >= EVENTS_PER_TICK || share->used >= EVENTS_PER_SHARE) {
		budget->lost++;
		return NULL;
	}
	budget->used++;
	share->used++;
	return budget;
}

/*
 * event_send does not wake the agent, which reads ten times a second: a wakeup for each event would cost more than
 * everything else that is done for a connection.
 */
static __noinline int event_send(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
				 const struct event_detail *detail, __u32 now)
{
	struct event_budget *budget = event_allowed(detail->id, now);
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
	event->id = detail->id;
	event->protocol = pkt->transport.protocol;
	event->flags = flow->flags;
	event->place = detail->place;
	event->reason = detail->reason;
	event->path = detail->path;
	event->pad = 0;
	event->length = ctx->len;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* is_noise: every pod's stack sends such packets all the time; there is no event for them. */
static __always_inline _Bool is_noise(enum drop_reason reason)
{
	return reason == DROP_ARP || reason == DROP_LINK_LOCAL;
}

/* drop_with_event drops a packet, counts it, and sends an event. */
static __always_inline enum verdict drop_with_event(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 id,
						 enum event_place place, enum drop_reason reason, __u32 now)
{
	struct event_detail detail = { .id = id, .place = place, .reason = reason };

	if (!is_noise(reason))
		event_send(ctx, pkt, flow, &detail, now);
	return drop(id, reason);
}

/* event_opened sends an event for a packet that opened a connection. */
static __always_inline void event_opened(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, const struct connection *c,
					enum event_place place, __u32 now)
{
	struct event_detail detail = { .id = c->id, .place = place, .path = c->path };

	event_send(ctx, pkt, flow, &detail, now);
}
