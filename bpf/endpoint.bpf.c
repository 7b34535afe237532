//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two programs at the host end of every pod's veth pair. All pods share them: what differs between pods is data.
 *
 * Both run under tc (clsact, direct action) with the link header in place.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "lib/count.h"
#include "lib/dhcp.h"
#include "lib/endpoint.h"
#include "lib/parse.h"
#include "lib/rewrite.h"
#include "lib/source.h"
#include "lib/verdict.h"

/* is_plain: nothing that a router has to answer (no hop left) or read (options), or that was not sent to it. */
static __always_inline _Bool is_plain(const struct __sk_buff *ctx, const struct packet *pkt)
{
	return pkt->hops > 1 && !pkt->for_routers && ctx->pkt_type == PACKET_HOST;
}

/*
 * deliver hands a packet to another pod of this node, past the stack and straight into its namespace (5.10). The
 * kernel drops it when that pod is gone in the meantime.
 */
static __always_inline enum verdict deliver(struct __sk_buff *ctx, struct packet *pkt, __u16 from,
					    const struct endpoint *to)
{
	rewrite_macs(pkt, to);
	if (rewrite_hops(ctx, pkt))
		return drop(ctx, DROP_MALFORMED);
	count_from_pod(ctx, from);
	count_to_pod(ctx, to->id);
	return bpf_redirect_peer(to->ifindex, 0);
}

/* from_pod sees what a pod sends: host end, ingress. */
SEC("tc")
int from_pod(struct __sk_buff *ctx)
{
	const struct link *link = link_lookup(ctx);
	const struct endpoint *to;
	enum drop_reason reason;
	struct packet pkt;

	if (!link)
		return drop(ctx, DROP_NO_ENDPOINT);
	reason = packet_parse(ctx, &pkt);
	if (reason)
		return drop(ctx, reason);
	reason = source_verify(&pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_from_pod(ctx, &pkt, link)) {
		count_from_pod(ctx, link->id);
		return VERDICT_STACK;
	}
	if (reason)
		return drop(ctx, reason);

	/* Connection tracking and egress policy belong here. */

	to = endpoint_lookup(&pkt.destination);
	if (to && is_plain(ctx, &pkt)) {
		/* The ingress policy of the destination belongs here. */
		return deliver(ctx, &pkt, link->id, to);
	}
	count_from_pod(ctx, link->id);
	return VERDICT_STACK;
}

/* to_pod sees what the node, or another one, sends to a pod: host end, egress. */
SEC("tc")
int to_pod(struct __sk_buff *ctx)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;
	struct packet pkt;

	if (!link)
		return drop(ctx, DROP_NO_ENDPOINT);
	reason = packet_parse(ctx, &pkt);
	if (reason)
		return drop(ctx, reason);
	reason = destination_verify(&pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_to_pod(ctx, &pkt, link))
		reason = DROP_NONE;
	if (reason)
		return drop(ctx, reason);

	/* Connection tracking and ingress policy belong here. */

	count_to_pod(ctx, link->id);
	return VERDICT_STACK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
