/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What from_uplink decides about packets of pods of other nodes: those of connections with PATH_DIRECT go straight into a
 * pod of this node, past the node's stack. All others, and all that are not plain, are left to the stack and to to_pod.
 */
#pragma once

#include <linux/bpf.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "entry.h"
#include "flow.h"
#include "parse.h"
#include "path.h"
#include "policy.h"
#include "remote.h"
#include "route.h"
#include "scope.h"
#include "types.h"

/* destination_read finds the destination of a packet of either family. It is all that is read of most packets. */
static __always_inline _Bool destination_read(struct __sk_buff *ctx, struct addr *destination)
{
	struct ethhdr *eth;

	switch ((__be16)ctx->protocol) {
	case bpf_htons(ETH_P_IP):
		eth = packet_head(ctx, ETH_HLEN + sizeof(struct iphdr));
		if (!eth)
			return 0;
		addr_from_ipv4(destination, ((struct iphdr *)(eth + 1))->daddr);
		return 1;
	case bpf_htons(ETH_P_IPV6):
		eth = packet_head(ctx, ETH_HLEN + sizeof(struct ipv6hdr));
		if (!eth)
			return 0;
		addr_from_ipv6(destination, &((struct ipv6hdr *)(eth + 1))->daddr);
		return 1;
	}
	return 0;
}

/* may_be_direct: may a packet that came by an uplink go straight into the pod? */
static __always_inline _Bool may_be_direct(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	return flow->flags & FLOW_TRACKED && is_plain(ctx, pkt) && conntrack_supports(flow->protocol) &&
	       !addr_verify(pkt, &pkt->source) && !addr_verify(pkt, &pkt->destination);
}

/*
 * from_uplink_miss handles a packet without an entry: is its connection one past the stack? Then it decides policy and makes
 * the entry. Otherwise c->path is PATH_STACK. The entry of a packet with FLOW_FOLLOWS was lost. To the stack's conntrack, whoever
 * speaks first would have opened the connection.
 */
static __always_inline enum drop_reason from_uplink_miss(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
							 const struct connection_key *key, const struct link *link, struct connection *c,
							 __u32 now)
{
	enum drop_reason reason;

	connection_start(c, &pkt->destination, link);
	if (flow->flags & FLOW_ERROR || !is_remote_pod(&pkt->source) ||
	    conntrack_has(ctx, key, &pkt->destination, flow) || !comes_by_its_route(ctx, pkt, flow, key->ifindex))
		return DROP_NONE;
	connection_direct(c, ctx->ifindex);
	connection_read_revisions(c);
	reason = flow->flags & FLOW_FOLLOWS ? connection_guess(key, c, 0, OPENED_BY_OTHER) : connection_decide(key, c, OPENED_BY_OTHER);
	if (reason == DROP_PROXY && !(c->state & STATE_OPENED_HERE)) {
		c->path = PATH_STACK;
		return DROP_NONE;
	}
	if (!reason && !(flow->flags & FLOW_RESET))
		connection_open_direct(key, c, now);
	return reason;
}

/*
 * from_uplink_hit handles a packet that has the entry *own; *c is a copy of it. A policy that has changed since decides
 * about it anew: the stack gets what the proxy is to see now.
 */
static __always_inline enum drop_reason from_uplink_hit(const struct connection_key *key, const struct flow *flow, struct connection *own,
							struct connection *c, __u32 now)
{
	__u8 opened_here = c->state & STATE_OPENED_HERE;
	enum drop_reason reason;

	if (!connection_is_current(c)) {
		connection_read_revisions(c);
		reason = connection_decide(key, c, opened_here ? OPENED_BY_POD : OPENED_BY_OTHER);
		if (reason == DROP_PROXY && !opened_here) {
			own->path = c->path = PATH_STACK;
			return DROP_NONE;
		}
		if (reason) {
			connection_touch_denied(own, flow, now);
			return reason;
		}
		connection_store(own, c);
	}
	if (!(flow->flags & FLOW_ERROR))
		connection_touch(own, key->protocol, state_of(flow, !opened_here, STATE_REMOTE_CLOSED), now);
	return DROP_NONE;
}

/*
 * is_unanswered: does the pod send a SYN again, which has gone past the stack? The answer may have come by another device than
 * the connection's, or by one without from_uplink: to the stack, which takes a SYN-ACK for invalid without the SYN.
 */
static __always_inline _Bool is_unanswered(const struct connection *c, const struct flow *flow)
{
	return flow->flags & FLOW_OPENS && c->path == PATH_DIRECT && !(c->state & STATE_REPLIED);
}

/*
 * is_direct: does a packet with this entry bypass the stack? Not when it comes by another device than the
 * connection's, which the stack may refuse, nor when it opens a connection against the direction of the entry's.
 */
static __always_inline _Bool is_direct(const struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
				       const struct connection *c)
{
	return c->path == PATH_DIRECT && c->peer_ifindex == ctx->ifindex && addr_equal(&pkt->destination, &c->local) &&
	       !(flow->flags & FLOW_OPENS && c->state & STATE_OPENED_HERE);
}
