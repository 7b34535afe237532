/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Network policy for packets that a pod sends: for the two paths past the stack, and for replies. A request to the stack
 * is not decided here, as the node may translate its destination: see endpoint.bpf.c.
 */
#pragma once

#include <linux/bpf.h>

#include "connection.h"
#include "conntrack.h"
#include "denied.h"
#include "entry.h"
#include "flow.h"
#include "policy.h"
#include "proxy.h"
#include "types.h"

/*
 * decide_past_stack decides policy for a packet past the stack. The opener is unknown when a packet with FLOW_FOLLOWS has no entry.
 */
static __always_inline enum drop_reason decide_past_stack(const struct connection_key *key, struct connection *c, const struct flow *flow,
							  _Bool opener_known)
{
	connection_read_revisions(c);
	if (!opener_known && flow->flags & FLOW_FOLLOWS)
		return connection_guess(key, c, 1, OPENED_BY_OTHER);
	return connection_decide(key, c, c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_OTHER);
}

/*
 * decide_stack decides policy for a packet of a pod to the stack, if it is a reply. A request keeps STATE_OPENED_HERE
 * and is not decided yet. If conntrack does not know the connection, a packet with FLOW_FOLLOWS counts as a reply if
 * policy allows it as one; if policy denies it as a request, only so many pass in a second. conntrack says who is behind an address of the node; if nobody is, the node has opened the
 * connection. A reset without data passes even if the connection needs the proxy by now, so that the other end hears of it.
 */
static __always_inline enum drop_reason decide_stack(struct __sk_buff *ctx, const struct packet *pkt, const struct connection_key *key,
						     struct connection *c, const struct flow *flow, __u32 now)
{
	struct connection_key real = *key;
	_Bool restricted = policy_restricts(c->id);
	enum drop_reason reason;
	int opened;

	connection_read_revisions(c);
	if (!restricted && !(flow->flags & FLOW_FOLLOWS))
		return DROP_NONE;
	opened = flow->flags & FLOW_OPENS ? OPENED_BY_POD : conntrack_opener(ctx, &real, &c->local);
	if (!opened && flow->flags & FLOW_FOLLOWS)
		c->state |= STATE_GUESSED;
	if (opened == OPENED_BY_POD || (!opened && !(restricted && flow->flags & FLOW_FOLLOWS))) {
		if (restricted && conntrack_supports(key->protocol))
			connection_leave_undecided(c);
		return DROP_NONE;
	}
	reason = connection_decide(&real, c, opened ? OPENED_BY_NODE : OPENED_BY_OTHER);
	if (reason == DROP_PROXY && (only_resets(ctx, pkt, flow) || goes_to_proxy(ctx, &real, &c->local)))
		reason = DROP_NONE;
	if (!opened && !reason && is_denied(connection_decide(&real, c, OPENED_BY_POD)) && denied_count(c->id, now))
		return DROP_DENIED_OFTEN;
	if (!reason)
		c->state = STATE_REPLIED | (c->state & STATE_GUESSED);
	return opened ? reason : DROP_NONE;
}

/*
 * connection_decide_again decides policy for a packet that a pod sends, if a policy has changed since the decision in
 * the entry *own; *c is a copy of the entry. Requests to the stack are not decided here, so one past the stack that the proxy is to
 * see now takes the stack. conntrack says who is behind an address of the node; if it does not, the node itself has opened the
 * connection. A reset without data of a connection that did not go to the proxy passes, so that the other end hears of it.
 */
static __always_inline enum drop_reason connection_decide_again(struct __sk_buff *ctx, const struct packet *pkt, const struct connection_key *key,
								const struct flow *flow, struct connection *own, struct connection *c)
{
	struct connection_key real = *key;
	enum drop_reason reason;

	if (connection_is_current(c) || (c->path == PATH_STACK && c->state & STATE_OPENED_HERE))
		return DROP_NONE;
	connection_read_revisions(c);
	if (c->path == PATH_STACK)
		conntrack_opener(ctx, &real, &c->local);
	reason = connection_decide(&real, c, c->state & STATE_OPENED_HERE ? OPENED_BY_POD : OPENED_BY_NODE);
	if (reason == DROP_PROXY && only_resets(ctx, pkt, flow) && !goes_to_proxy(ctx, &real, &c->local))
		return DROP_NONE;
	if (reason == DROP_PROXY && c->state & STATE_OPENED_HERE) {
		own->path = c->path = PATH_STACK;
		return DROP_NONE;
	}
	if (reason == DROP_PROXY && goes_to_proxy(ctx, &real, &c->local))
		reason = DROP_NONE;
	if (!reason)
		connection_store(own, c);
	return reason;
}
