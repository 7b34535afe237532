/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of TCP that are open when layer 7 rules for them come. The proxy knows nothing of their past and resets them, unless they are
 * to go on as they are, past the proxy, until they close.
 *
 * Such a connection is known by its entry, which was made before. A SYN opens another one under the same addresses and ports, and goes to
 * the proxy; from then on the entry has STATE_PROXIED, and keeps nothing.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "conntrack.h"
#include "flow.h"
#include "parse.h"
#include "policy.h"
#include "types.h"

/* Whether connections go on that are open when layer 7 rules come. */
volatile const __u8 keep_open;

/* is_kept: does the packet pass, although its connection is for the proxy by now? The entry is that of the connection before this packet. */
static __always_inline _Bool is_kept(const struct connection *c, __u8 protocol, __u32 flow_flags)
{
	return keep_open && protocol == IPPROTO_TCP && !(flow_flags & FLOW_OPENS) && (c->state & (STATE_REPLIED | STATE_PROXIED)) == STATE_REPLIED;
}

/* opens_kept: does the packet open a connection in place of one that may be kept? Then policy is decided, though it has not changed. */
static __always_inline _Bool opens_kept(const struct flow *flow)
{
	return keep_open && flow->flags & FLOW_OPENS;
}

/*
 * opener_entry returns the entry of the connection at the pod of this node that has sent the packet as a request, or NULL. The node may have
 * translated the packet since.
 */
static __always_inline struct connection *opener_entry(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	struct connection_key key;

	if (!keep_open || flow->protocol != IPPROTO_TCP || flow->flags & FLOW_ERROR)
		return NULL;
	key_outgoing(&key, ctx, pkt, flow);
	key.ifindex = ctx->ingress_ifindex;
	conntrack_original(ctx, &key, &pkt->source);
	return bpf_map_lookup_elem(&connections, &key);
}

/* is_opener_kept is is_kept for a packet that leaves the node, or goes to another pod, as a request. */
static __always_inline _Bool is_opener_kept(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 now)
{
	const struct connection *c = opener_entry(ctx, pkt, flow);

	return c && connection_is_valid(c, now) && c->state & STATE_OPENED_HERE && is_kept(c, flow->protocol, flow->flags);
}

/* connection_note_proxied notes in an entry that the proxy gets a packet. Nobody else's packets have the right of an earlier decision any more. */
static __always_inline void connection_note_proxied(struct connection *c)
{
	if (!keep_open || c->state & STATE_PROXIED)
		return;
	c->state |= STATE_PROXIED;
	c->revision = ~policy_revision(c->id);
}

/* opener_note_proxied is the same for the entry of the pod that has sent the packet. */
static __always_inline void opener_note_proxied(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	struct connection *c = opener_entry(ctx, pkt, flow);

	if (c)
		connection_note_proxied(c);
}
