/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Network policy for what reaches a pod through the node's stack: from the node, from outside, and from pods of this node that used a Service. Here the translation is
 * done, so both the sender's policy and the receiver's can be decided.
 */
#pragma once

#include <linux/bpf.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "flow.h"
#include "policy.h"
#include "types.h"

/*
 * sender_of returns the pod of this node that has sent the packet as a request, or NULL. The kernel keeps the device that a packet came by, and from_pod sets tc_index
 * on all that comes by a pod's.
 */
static __always_inline const struct link *sender_of(struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;
	const struct link *link = ifindex ? bpf_map_lookup_elem(&links, &ifindex) : NULL;

	return link && link->id == ctx->tc_index ? link : NULL;
}

/* is_from_outside: neither a pod nor the node has sent it. What belongs to a connection by the shortcut comes from a pod, even when it takes the stack for once. */
static __always_inline _Bool is_from_outside(const struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;

	return ifindex && !bpf_map_lookup_elem(&links, &ifindex);
}

/* real_sender replaces the sender of a request by the one it was before the node translated it. It returns an enum opened. */
static __always_inline enum opened real_sender(struct __sk_buff *ctx, struct connection_key *real, const struct link *sender)
{
	struct addr nobody = {};

	if (sender) {
		real->remote = real->family == 4 ? sender->ipv4 : sender->ipv6;
		return OPENED_BY_OTHER;
	}
	if (!ctx->ingress_ifindex)
		return OPENED_BY_NODE;
	if (endpoint_lookup(&real->remote) && !ctx->tc_index && is_from_outside(ctx))
		real->remote = nobody; /* a pod's address, but not sent by a pod */
	return OPENED_BY_OTHER;
}

/*
 * decide_incoming decides about a packet to the pod of *c, and fills in who has opened the connection. known says that *c is an entry's: then its state says so where
 * conntrack does not. It returns an enum drop_reason. As a global function it is verified by itself, once.
 */
__noinline int decide_incoming(struct __sk_buff *ctx, const struct connection_key *key, struct connection *c, __u32 flow_flags, __u32 known)
{
	const struct link *sender = sender_of(ctx);
	struct connection_key real;
	int opened, reason;
	_Bool asked = 1;

	if (!key || !c)
		return DROP_MALFORMED;
	real = *key;
	if (c->path == PATH_STACK)
		c->peer_id = sender ? sender->id : 0;
	connection_read_revisions(c);
	if (!policy_restricts(c->id) && !(sender && policy_restricts(sender->id)))
		return DROP_NONE;
	opened = conntrack_opened(ctx, &real, &c->local);
	if (!opened) {
		asked = 0;
		opened = known && c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_OTHER;
	}
	if (opened == OPENED_BY_OTHER)
		opened = real_sender(ctx, &real, sender);
	else if (c->path == PATH_STACK)
		c->peer_id = 0; /* its policy was for the request */
	if (!addr_equal(&real.remote, &key->remote) || class_of(&key->remote, policy_copy()) & CLASS_HOST)
		c->state |= STATE_TRANSLATED;
	if (!known && opened == OPENED_BY_POD)
		c->state |= STATE_OPENED_HERE | STATE_REPLIED;
	connection_read_revisions(c);
	reason = connection_decide(&real, c, opened);
	if (!reason || asked || known || !(flow_flags & FLOW_FOLLOWS) || sender)
		return reason;
	c->peer_id = 0;
	if (connection_decide(&real, c, OPENED_BY_POD))
		return reason;
	c->state |= STATE_OPENED_HERE | STATE_REPLIED;
	return DROP_NONE;
}

/* incoming_open is for a packet of which the pod has no entry. It makes one if there is room. */
static __always_inline enum drop_reason incoming_open(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
						      struct connection_key *key, const struct link *link, struct connection *c,
						      __u32 now)
{
	enum drop_reason reason;

	if (pkt->transport.later)
		return DROP_NONE; /* without the first fragment nobody can put it together */
	connection_start(c, &pkt->destination, link);
	if (flow->flags & FLOW_ERROR) /* as good as the connection that it is about */
		return decide_incoming(ctx, key, c, FLOW_FOLLOWS, 0);
	if (!(flow->flags & FLOW_TRACKED)) {
		key->remote = pkt->source;
		key->protocol = pkt->transport.protocol;
		key->local_port = key->remote_port = 0;
		return decide_incoming(ctx, key, c, 0, 0);
	}
	reason = decide_incoming(ctx, key, c, flow->flags, 0);
	if (!reason && !source_is_link_local(pkt) && usage_allows(c->charged, 1))
		connection_insert(key, c, now);
	return reason;
}

/* is_sender_known: is the packet, as a request or none, of the pod that the entry was decided for? Masqueraded senders may have had the same address and port in turn. */
static __always_inline _Bool is_sender_known(const struct __sk_buff *ctx, const struct connection *c)
{
	return c->path != PATH_STACK || ctx->tc_index == c->peer_id;
}

/* incoming_known is for a packet of which the pod has the entry *c. */
static __always_inline enum drop_reason incoming_known(struct __sk_buff *ctx, const struct flow *flow, const struct connection_key *key,
						       struct connection *own, struct connection *c)
{
	_Bool current = connection_is_current(c);
	enum drop_reason reason;

	if (flow->flags & FLOW_ERROR)
		return DROP_NONE;
	if (c->path == PATH_SHORTCUT && is_from_outside(ctx) && policy_restricts(c->id))
		return DROP_POLICY_INGRESS;
	if (current && is_sender_known(ctx, c) && !(flow->flags & FLOW_OPENS) && (c->state & (STATE_TRANSLATED | STATE_OPENED_HERE)) != STATE_TRANSLATED)
		return DROP_NONE;
	reason = decide_incoming(ctx, key, c, flow->flags, 1);
	if (!reason && !current)
		connection_store(own, c);
	return reason;
}
