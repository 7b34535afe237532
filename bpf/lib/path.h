/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which path a connection takes: through the node's stack, or past it: the shortcut to another pod of the node, or the
 * direct path to the device that leads to another node. The first packet decides, and all others of both directions follow: the
 * stack must translate replies back if it has translated the request, and it takes packets of a connection that it has
 * not seen for invalid. Each node decides for itself.
 *
 * If a pod has no entry, the other pod's entry says the path, or else the node's conntrack: a connection that it knows
 * has been through the stack. Without an answer, or without room for entries, a connection goes through the stack. So does
 * one of a pod whose bandwidth is limited: it waits in the queues of the pod's host end, which the other paths bypass; and one that the
 * proxy is to see, as its way in is after the stack's translation.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_packet.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "entry.h"
#include "flow.h"
#include "outgoing.h"
#include "parse.h"
#include "remote.h"
#include "route.h"
#include "types.h"
#include "usage.h"

/*
 * is_plain: may the packet bypass the stack? Not when it needs a router: to answer (no hop left), to read options, or
 * to reassemble fragments; and not when its frame is not addressed to the host end.
 */
static __always_inline _Bool is_plain(const struct __sk_buff *ctx, const struct packet *pkt)
{
	return pkt->hops > 1 && !pkt->for_routers && !pkt->transport.fragment && ctx->pkt_type == PACKET_HOST;
}

/* path_from_conntrack returns the path of a packet that has no entry at either pod. */
static __always_inline enum connection_path path_from_conntrack(struct __sk_buff *ctx, const struct connection_key *key,
						       const struct addr *local, const struct flow *flow)
{
	if (!conntrack_supports(flow->protocol))
		return flow->flags & FLOW_OPENS ? PATH_SHORTCUT : PATH_STACK;
	return conntrack_lookup(ctx, key, local) == CONNTRACK_UNKNOWN ? PATH_SHORTCUT : PATH_STACK;
}

/*
 * path_to_pod_of_node handles a packet to another pod of this node: it chooses the path and, for the shortcut, decides
 * policy and makes the entries. Otherwise c->path stays PATH_STACK.
 */
static __always_inline enum drop_reason path_to_pod_of_node(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
							    const struct connection_key *key, struct connection *c,
							    const struct endpoint *to, __u32 now)
{
	struct connection_key peer_key;
	struct connection *peer;
	enum connection_path path;
	enum drop_reason reason;

	key_of_peer(&peer_key, key, &pkt->source, to->ifindex);
	peer = connection_find(&peer_key, flow, OPENED_BY_OTHER, 0, now);
	path = peer ? peer->path : path_from_conntrack(ctx, key, &pkt->source, flow);
	if (path != PATH_SHORTCUT || !is_plain(ctx, pkt))
		return DROP_NONE;
	if (peer)
		c->state = peer->state & STATE_OPENED_HERE ? STATE_REPLIED : STATE_OPENED_HERE | (peer->state & STATE_REPLIED);
	connection_shortcut(c, to);
	reason = decide_past_stack(key, c, flow, peer != NULL);
	if (reason == DROP_PROXY && c->state & STATE_OPENED_HERE) {
		c->path = PATH_STACK;
		return DROP_NONE;
	}
	if (reason == DROP_PROXY && only_resets(ctx, pkt, flow))
		reason = DROP_NONE;
	if (reason || flow->flags & (FLOW_ERROR | FLOW_RESET))
		return reason;
	if (!peer) {
		if (!connection_open_shortcut(key, c, &peer_key, now))
			c->path = PATH_STACK;
	} else if (usage_allows(c->id, 1)) {
		connection_insert(key, c, now); /* it may fail: the other pod's entry says the path, too */
	}
	return DROP_NONE;
}

/*
 * path_to_other_node handles a packet that may be to a pod of another node: it chooses the path and, past the stack,
 * decides policy and makes the entry. Otherwise c->path stays PATH_STACK. Only of TCP and UDP can conntrack be asked.
 */
static __always_inline enum drop_reason path_to_other_node(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
							   const struct connection_key *key, struct connection *c, __u32 now)
{
	struct next_hop next = {};
	enum drop_reason reason;

	if (!conntrack_supports(flow->protocol) || flow->flags & FLOW_ERROR || !is_plain(ctx, pkt) || !is_remote_pod(&pkt->destination))
		return DROP_NONE;
	if (conntrack_has(ctx, key, &pkt->source, flow) || !route_lookup(ctx, pkt, flow, &next))
		return DROP_NONE;
	connection_direct(c, next.ifindex);
	reason = decide_past_stack(key, c, flow, 0);
	if (reason == DROP_PROXY && c->state & STATE_OPENED_HERE) {
		c->path = PATH_STACK;
		return DROP_NONE;
	}
	if (reason == DROP_PROXY && only_resets(ctx, pkt, flow))
		reason = DROP_NONE;
	if (!reason && !(flow->flags & FLOW_RESET))
		connection_open_direct(key, c, now);
	return reason;
}

/*
 * path_from_pod handles a packet from a pod that has no entry for it: it chooses the path, decides policy, and makes
 * the entries, none for a reset. It fills in *c, with the path and with STATE_OPENED_HERE if the packet is a request. Pointers into the
 * packet are invalid afterwards.
 */
static __always_inline enum drop_reason path_from_pod(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
						      const struct connection_key *key, const struct link *link,
						      struct connection *c, __u32 now)
{
	const struct endpoint *to = endpoint_lookup(&pkt->destination);
	enum drop_reason reason;

	connection_start(c, &pkt->source, link);
	c->state = STATE_OPENED_HERE;
	if (to && to->id != link->id && !is_limited(to) && !is_limited(endpoint_lookup(&pkt->source))) {
		reason = path_to_pod_of_node(ctx, pkt, flow, key, c, to, now);
		if (reason || c->path == PATH_SHORTCUT)
			return reason;
		connection_start(c, &pkt->source, link);
		c->state = STATE_OPENED_HERE;
	}
	if (!to && !is_limited(endpoint_lookup(&pkt->source))) {
		reason = path_to_other_node(ctx, pkt, flow, key, c, now);
		if (reason || c->path == PATH_DIRECT)
			return reason;
		connection_start(c, &pkt->source, link);
		c->state = STATE_OPENED_HERE;
	}
	if (flow->flags & FLOW_ERROR)
		return DROP_NONE;
	reason = decide_stack(ctx, pkt, key, c, flow, now);
	if (!reason && !(flow->flags & FLOW_RESET) && !(to && !is_plain(ctx, pkt)) && usage_allows(c->id, 1))
		connection_insert(key, c, now);
	return reason;
}
