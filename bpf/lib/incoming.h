/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Network policy for packets that reach a pod through the node's stack: from the node, from outside, and from pods of
 * this node by way of a Service. The node has translated the addresses by now, so both the sender's and the receiver's
 * policy can be decided.
 */
#pragma once

#include <linux/bpf.h>

#include "connection.h"
#include "conntrack.h"
#include "endpoint.h"
#include "entry.h"
#include "flow.h"
#include "fragments.h"
#include "policy.h"
#include "proxy.h"
#include "scope.h"
#include "types.h"

/*
 * sender_of returns the pod of this node that has sent the packet as a request, or NULL. ingress_ifindex is the device
 * that the packet came by; if that is a pod's host end, from_pod has set tc_index.
 */
static __always_inline const struct link *sender_of(struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;
	const struct link *link = ifindex ? bpf_map_lookup_elem(&links, &ifindex) : NULL;

	return link && link->id == ctx->tc_index ? link : NULL;
}

/* is_from_outside: the packet came by a device that is no pod's host end. */
static __always_inline _Bool is_from_outside(const struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;

	return ifindex && !bpf_map_lookup_elem(&links, &ifindex);
}

/*
 * real_sender sets the remote address of a request to what it was before the node translated it. It returns an enum
 * opened.
 */
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
		real->remote = nobody; /* from outside, with the address of a pod of this node */
	return OPENED_BY_OTHER;
}

/*
 * is_opened_by_other: does the entry know that the other side opened the connection? conntrack may name the pod, if it has seen the
 * connection only since it left the direct path.
 */
static __always_inline _Bool is_opened_by_other(const struct connection_key *key, const struct connection *c)
{
	return key->protocol == IPPROTO_TCP && !(c->state & (STATE_OPENED_HERE | STATE_GUESSED));
}

/*
 * decide_incoming decides policy for a packet to the pod of *c, and fills in who has opened the connection. has_entry
 * says that *c is a copy of an entry: then its state says who has opened the connection if conntrack does not know it.
 * The sender of a SYN opens a connection, whatever they say.
 * It returns an enum drop_reason: DROP_PROXY for a request that has to go to the proxy, and for a reply that should have come from
 * there. As a global function it is verified by itself, once.
 */
__noinline int decide_incoming(struct __sk_buff *ctx, const struct connection_key *key, struct connection *c, __u32 flow_flags, __u32 has_entry)
{
	const struct link *sender = sender_of(ctx);
	struct connection_key real;
	int opened = 0, reason;
	_Bool tracked = 1;

	if (!key || !c)
		return DROP_MALFORMED;
	real = *key;
	if (c->path == PATH_STACK)
		c->peer_id = sender ? sender->id : 0;
	connection_read_revisions(c);
	if (!policy_restricts(c->id) && !(sender && policy_restricts(sender->id)))
		return DROP_NONE;
	/* Of a connection past the stack, conntrack may have seen one side only, and take its replies for requests. */
	if (!has_entry || c->path != PATH_DIRECT || flow_flags & FLOW_OPENS)
		opened = conntrack_opener(ctx, &real, &c->local);
	if (!opened) {
		tracked = 0;
		opened = has_entry && c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_OTHER;
	}
	if (opened == OPENED_BY_POD && (flow_flags & FLOW_OPENS || (has_entry && is_opened_by_other(key, c))))
		opened = OPENED_BY_OTHER;
	if (opened == OPENED_BY_OTHER)
		opened = real_sender(ctx, &real, sender);
	else if (c->path == PATH_STACK)
		c->peer_id = 0; /* a reply: its sender's policy was decided for the request */
	if (!addr_equal(&real.remote, &key->remote) || class_of(&key->remote, policy_copy()) & CLASS_HOST)
		c->state |= STATE_TRANSLATED;
	if (!has_entry && opened == OPENED_BY_POD)
		c->state |= STATE_OPENED_HERE | STATE_REPLIED;
	connection_read_revisions(c);
	if (tracked || has_entry || sender || !(flow_flags & FLOW_FOLLOWS))
		reason = connection_decide(&real, c, opened);
	else
		reason = connection_guess(&real, c, 0, opened);
	return reason == DROP_PROXY && comes_from_proxy(ctx) ? DROP_NONE : reason;
}

/*
 * connection_charge_proxy fills in the entry of a connection of the proxy's own. It counts in the share of the pod of this node that it is for, as
 * the entry of that pod's connection to the proxy does: a pod must not use up the shares of the servers that it calls.
 */
static __always_inline void connection_charge_proxy(const struct packet *pkt, struct connection *c)
{
	const struct endpoint *client = endpoint_lookup(&pkt->source);

	if (client)
		c->charged = client->id;
}

/*
 * decide_later decides policy for a later fragment. It passes if the first one has passed, or if policy allows any port of the
 * protocol: without the first fragment the receiver cannot reassemble the datagram.
 */
static __always_inline enum drop_reason decide_later(struct __sk_buff *ctx, const struct packet *pkt, const struct connection_key *key,
						     struct connection *c, __u32 now)
{
	const struct link *sender = sender_of(ctx);
	struct connection_key real = *key;
	enum drop_reason reason;
	enum opened opened;

	c->peer_id = sender ? sender->id : 0;
	opened = real_sender(ctx, &real, sender);
	real.protocol = PROTOCOL_FRAGMENT;
	real.local_port = fragment_port(pkt->transport.protocol);
	reason = connection_decide(&real, c, opened);
	return reason == DROP_PROXY || (reason && fragments_pass(key, now)) ? DROP_NONE : reason;
}

/* incoming_miss handles a packet that has no entry, and makes one if there is room. */
static __always_inline enum drop_reason incoming_miss(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow,
						      struct connection_key *key, const struct link *link, struct connection *c,
						      __u32 now)
{
	enum drop_reason reason;

	connection_start(c, &pkt->destination, link);
	if (pkt->transport.later)
		return decide_later(ctx, pkt, key, c, now);
	if (flow->flags & FLOW_ERROR) /* allowed when the connection that it is about is */
		return decide_incoming(ctx, key, c, FLOW_FOLLOWS, 0);
	if (!(flow->flags & FLOW_TRACKED)) {
		key->remote = pkt->source;
		key->protocol = pkt->transport.protocol;
		key->local_port = key->remote_port = 0;
		return decide_incoming(ctx, key, c, 0, 0);
	}
	reason = decide_incoming(ctx, key, c, flow->flags, 0);
	if (comes_from_proxy(ctx))
		connection_charge_proxy(pkt, c);
	if (!reason && !(flow->flags & FLOW_RESET) && !source_is_link_local(pkt) && usage_allows(c->charged, 1))
		connection_insert(key, c, now);
	return reason;
}

/*
 * is_sender_known: does the packet come from the pod that the entry was decided for? Two pods may be masqueraded to the
 * same address and port, one after the other. On a packet that came by another device, others may have set tc_index.
 */
static __always_inline _Bool is_sender_known(struct __sk_buff *ctx, const struct connection *c)
{
	if (c->path != PATH_STACK || ctx->tc_index == c->peer_id)
		return 1;
	return !c->peer_id && !sender_of(ctx);
}

/* incoming_hit handles a packet that has the entry *own; *c is a copy of it. */
static __always_inline enum drop_reason incoming_hit(struct __sk_buff *ctx, const struct flow *flow, const struct connection_key *key,
						       struct connection *own, struct connection *c)
{
	_Bool current = connection_is_current(c);
	enum drop_reason reason;

	if (flow->flags & FLOW_ERROR && !ctx->ingress_ifindex)
		return DROP_NONE; /* the node quotes what the pod itself has sent */
	if (flow->flags & FLOW_ERROR) /* its sender may be a router, of which the entry must not know */
		return current && is_sender_known(ctx, c) ? DROP_NONE : decide_incoming(ctx, key, c, flow->flags, 1);
	if (c->path == PATH_SHORTCUT && is_from_outside(ctx) && policy_restricts(c->id))
		return DROP_POLICY_INGRESS; /* the other side is a pod of this node, even if a packet takes the stack */
	if (current && is_sender_known(ctx, c) && !(flow->flags & FLOW_OPENS) && (c->state & (STATE_TRANSLATED | STATE_OPENED_HERE)) != STATE_TRANSLATED)
		return DROP_NONE;
	reason = decide_incoming(ctx, key, c, flow->flags, 1);
	if (!reason && !current)
		connection_store(own, c);
	return reason;
}
