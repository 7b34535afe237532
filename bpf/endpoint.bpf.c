//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two programs at the host end of every pod's veth pair, the one at all other devices of the node, and the one that removes old
 * connections. All pods share them: what differs between pods is data.
 *
 * The first three run under tc (clsact, direct action) with the link header in place.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "lib/connection.h"
#include "lib/count.h"
#include "lib/dhcp.h"
#include "lib/endpoint.h"
#include "lib/flow.h"
#include "lib/parse.h"
#include "lib/path.h"
#include "lib/rewrite.h"
#include "lib/source.h"
#include "lib/sweep.h"
#include "lib/verdict.h"

static __always_inline enum verdict to_stack(struct __sk_buff *ctx, __u32 id)
{
	count_from_pod(ctx, id);
	return VERDICT_STACK;
}

/*
 * deliver hands a packet to another pod of this node, past the stack and straight into its namespace (5.10). The
 * kernel drops it when that pod is gone in the meantime.
 */
static __always_inline enum verdict deliver(struct __sk_buff *ctx, struct packet *pkt, const struct connection *c)
{
	rewrite_macs(pkt, c);
	if (rewrite_hops(ctx, pkt))
		return drop(ctx, DROP_MALFORMED);
	count_from_pod(ctx, c->id);
	count_to_pod(ctx, c->peer_id);
	return bpf_redirect_peer(c->peer_ifindex, 0);
}

/* from_pod_open is for packets of which the pod has no entry. */
static __always_inline enum verdict from_pod_open(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						  const struct connection_key *key, __u32 now)
{
	const struct link *link = link_lookup(ctx);
	struct connection c;
	enum drop_reason reason;

	if (!link)
		return drop(ctx, DROP_NO_ENDPOINT);
	reason = source_verify(pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_from_pod(ctx, pkt, link))
		return to_stack(ctx, link->id);
	if (reason)
		return drop(ctx, reason);
	if (!(flow->flags & FLOW_TRACKED) || path_from_pod(ctx, pkt, flow, key, link, &c, now) == PATH_STACK)
		return to_stack(ctx, link->id);
	return deliver(ctx, pkt, &c);
}

/* from_pod sees what a pod sends: host end, ingress. */
SEC("tc")
int from_pod(struct __sk_buff *ctx)
{
	__u32 now = ticks_now();
	struct connection_key key;
	struct connection *own, c;
	enum drop_reason reason;
	struct packet pkt;
	struct flow flow;

	reason = packet_parse(ctx, &pkt);
	if (!reason)
		reason = flow_parse(ctx, &pkt, &flow);
	if (!reason && flow.flags & FLOW_ERROR && !addr_equal(&flow.about, &pkt.source))
		reason = DROP_MALFORMED; /* it is about a packet that was for somebody else */
	if (reason)
		return drop(ctx, reason);
	key_outgoing(&key, ctx, &pkt, &flow);
	own = flow.flags & FLOW_TRACKED ? connection_find(&key, &flow, now) : NULL;
	if (!own || !connection_copy(&c, own, &key) || !addr_equal(&pkt.source, &c.local) || !mac_equal(pkt.eth->h_source, &c.mac))
		return from_pod_open(ctx, &pkt, &flow, &key, now);
	connection_note_outgoing(own, &key, &flow, now);
	if (c.path != PATH_SHORTCUT || !is_plain(ctx, &pkt))
		return to_stack(ctx, c.id);
	return deliver(ctx, &pkt, &c);
}

/* to_pod_open is for packets of which the pod has no entry. */
static __always_inline enum verdict to_pod_open(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						const struct connection_key *key, __u32 now)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;

	if (!link)
		return drop(ctx, DROP_NO_ENDPOINT);
	reason = destination_verify(pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_to_pod(ctx, pkt, link)) {
		count_to_pod(ctx, link->id);
		return VERDICT_STACK;
	}
	if (reason)
		return drop(ctx, reason);
	if ((flow->flags & (FLOW_TRACKED | FLOW_ERROR)) == FLOW_TRACKED && !source_is_link_local(pkt))
		connection_open_stack(key, &pkt->destination, link, 0, now);
	count_to_pod(ctx, link->id);
	return VERDICT_STACK;
}

/* to_pod sees what the node, or another one, sends to a pod: host end, egress. */
SEC("tc")
int to_pod(struct __sk_buff *ctx)
{
	__u32 now = ticks_now();
	struct connection_key key;
	struct connection *own;
	enum drop_reason reason;
	struct packet pkt;
	struct flow flow;

	reason = packet_parse(ctx, &pkt);
	if (!reason)
		reason = flow_parse(ctx, &pkt, &flow);
	if (reason)
		return drop(ctx, reason);
	key_incoming(&key, ctx, &pkt, &flow);
	own = flow.flags & FLOW_TRACKED ? connection_find(&key, &flow, now) : NULL;
	if (!own || !addr_equal(&pkt.destination, &own->local))
		return to_pod_open(ctx, &pkt, &flow, &key, now);
	reason = connection_note_incoming(ctx, own, &key, &flow, now);
	if (reason)
		return drop(ctx, reason);
	count_to_pod(ctx, own->id);
	return VERDICT_STACK;
}

/*
 * to_uplink sees what leaves the node by a device that is no pod's host end: egress, after routing and translation. Filters of others
 * on the device come after it. tc_index is the endpoint whose egress is not decided yet, or 0.
 */
SEC("tc")
int to_uplink(struct __sk_buff *ctx)
{
	__u32 id = ctx->tc_index;

	(void)digest; /* so that the program has the configuration by which it is known */
	if (id && bpf_map_lookup_elem(&slots, &id))
		ctx->tc_index = 0;
	return VERDICT_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
