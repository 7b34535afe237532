//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The two programs at the host end of every pod's veth pair, the one on the node's other devices, and the one that removes old connections. All pods share
 * them: what differs between pods is data.
 *
 *	pod -> from_pod --> another pod                        decided: shortcut
 *	               `--> the node's stack --> to_pod        decided: after translation, or a reply
 *	                                    `--> to_uplink     decided: after translation
 *
 * The first three run under tc (clsact, direct action) with the link header in place. tc_index goes with a packet through the stack: the ID of the pod that has sent it as
 * a request, or 0.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "lib/connection.h"
#include "lib/count.h"
#include "lib/dhcp.h"
#include "lib/endpoint.h"
#include "lib/event.h"
#include "lib/flow.h"
#include "lib/parse.h"
#include "lib/path.h"
#include "lib/policy.h"
#include "lib/rewrite.h"
#include "lib/source.h"
#include "lib/incoming.h"
#include "lib/sweep.h"
#include "lib/verdict.h"

/*
 * to_stack lets a packet of a pod go on. request: nobody has decided about it yet. With this verdict the kernel sets tc_index to the minor number of tc_classid
 * (sch_handle_ingress in net/core/dev.c).
 */
static __always_inline enum verdict to_stack(struct __sk_buff *ctx, __u32 id, _Bool request)
{
	ctx->tc_classid = request ? id : 0;
	count_from_pod(ctx, id);
	return VERDICT_STACK;
}

/*
 * deliver hands a packet to another pod of this node, past the stack and straight into its namespace (5.10). The
 * kernel drops it when that pod is gone in the meantime.
 */
static __always_inline enum verdict deliver(struct __sk_buff *ctx, struct packet *pkt, const struct connection *c)
{
	if (rewrite(ctx, pkt, c))
		return drop_of(c->id, DROP_MALFORMED);
	count_from_pod(ctx, c->id);
	count_to_pod(ctx, c->peer_id);
	return bpf_redirect_peer(c->peer_ifindex, 0);
}

/* from_pod_open is for packets of which the pod has no entry. It returns an enum drop_reason, or gives the verdict. */
static __always_inline enum drop_reason from_pod_open(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						      const struct connection_key *key, struct connection *c, __u32 now,
						      enum verdict *verdict)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;

	if (!link)
		return DROP_NO_ENDPOINT;
	reason = source_verify(pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_from_pod(ctx, pkt, link)) {
		*verdict = to_stack(ctx, link->id, 0);
		return DROP_NONE;
	}
	if (reason)
		return reason;
	if (!(flow->flags & FLOW_TRACKED)) {
		*verdict = to_stack(ctx, link->id, 1);
		return DROP_NONE;
	}
	reason = path_from_pod(ctx, pkt, flow, key, link, c, now);
	if (reason)
		return reason;
	if (c->state & STATE_OPENED_HERE && !(flow->flags & FLOW_ERROR))
		tell_opened(ctx, pkt, flow, c, EVENT_FROM_POD, now);
	if (c->path != PATH_SHORTCUT)
		*verdict = to_stack(ctx, c->id, c->state & STATE_OPENED_HERE);
	else
		*verdict = deliver(ctx, pkt, c);
	return DROP_NONE;
}

/* from_pod sees what a pod sends: host end, ingress. */
SEC("tc")
int from_pod(struct __sk_buff *ctx)
{
	enum verdict verdict = VERDICT_DROP;
	struct connection *own = NULL, c;
	__u32 now = ticks_now();
	struct connection_key key;
	enum drop_reason reason;
	struct packet pkt = {};
	struct flow flow = {};

	reason = packet_read(ctx, &pkt, &flow);
	if (!reason && flow.flags & FLOW_ERROR && !addr_equal(&flow.about, &pkt.source))
		reason = DROP_MALFORMED; /* it is about a packet that was for somebody else */
	if (reason)
		goto drop;
	key_outgoing(&key, ctx, &pkt, &flow);
	if (flow.flags & FLOW_TRACKED)
		own = connection_find(&key, &flow, OPENED_BY_POD, 0, now);
	if (!own || !connection_copy(&c, own, &key) || !addr_equal(&pkt.source, &c.local) || !mac_equal(&pkt.sender, &c.mac)) {
		reason = from_pod_open(ctx, &pkt, &flow, &key, &c, now, &verdict);
		if (reason)
			goto drop;
		return verdict;
	}
	reason = flow.flags & FLOW_ERROR ? DROP_NONE : connection_decide_again(ctx, &key, own, &c);
	if (reason)
		goto drop;
	connection_note_outgoing(own, &key, &flow, now);
	if (c.path != PATH_SHORTCUT || !is_plain(ctx, &pkt))
		return to_stack(ctx, c.id, c.state & STATE_OPENED_HERE);
	return deliver(ctx, &pkt, &c);
drop:
	return tell_dropped(ctx, &pkt, &flow, link_id(ctx), EVENT_FROM_POD, reason, now);
}

/* to_pod_open is for packets of which the pod has no entry. It returns an enum drop_reason. */
static __always_inline enum drop_reason to_pod_open(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						    struct connection_key *key, struct connection *c, __u32 now)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;

	if (!link)
		return DROP_NO_ENDPOINT;
	c->id = link->id;
	reason = destination_verify(pkt, link);
	if (reason == DROP_LINK_LOCAL && dhcp_to_pod(ctx, pkt, link))
		return DROP_NONE;
	if (reason)
		return reason;
	reason = incoming_open(ctx, pkt, flow, key, link, c, now);
	if (!reason && flow->flags & FLOW_TRACKED && !(flow->flags & FLOW_ERROR) && !(c->state & STATE_OPENED_HERE))
		tell_opened(ctx, pkt, flow, c, EVENT_TO_POD, now);
	return reason;
}

/* to_pod sees what the node, or another one, sends to a pod: host end, egress. */
SEC("tc")
int to_pod(struct __sk_buff *ctx)
{
	struct connection *own = NULL, c;
	__u32 now = ticks_now();
	struct connection_key key;
	enum drop_reason reason;
	struct packet pkt = {};
	struct flow flow = {};

	reason = packet_read(ctx, &pkt, &flow);
	if (reason)
		goto drop;
	key_incoming(&key, ctx, &pkt, &flow);
	if (flow.flags & FLOW_TRACKED)
		own = connection_find(&key, &flow, OPENED_BY_OTHER, 1, now);
	if (!own || !connection_copy(&c, own, &key) || !addr_equal(&pkt.destination, &c.local)) {
		reason = to_pod_open(ctx, &pkt, &flow, &key, &c, now);
	} else {
		reason = incoming_known(ctx, &flow, &key, own, &c);
		if (!reason)
			reason = connection_note_incoming(ctx, own, &key, &flow, now);
	}
	if (reason)
		goto drop;
	count_to_pod(ctx, c.id);
	return VERDICT_STACK;
drop:
	return tell_dropped(ctx, &pkt, &flow, link_id(ctx), EVENT_TO_POD, reason, now);
}

/*
 * to_uplink sees what leaves the node by a device that is no pod's host end: egress, after routing and translation. Filters of others on the device come
 * after it. What pods send as requests is decided here, packet by packet.
 */
SEC("tc")
int to_uplink(struct __sk_buff *ctx)
{
	__u32 id = ctx->tc_index, now = ticks_now();
	enum drop_reason reason;
	struct packet pkt = {};
	struct flow flow = {};
	__u8 protocol;

	(void)digest; /* so that the program has the configuration by which it is known */
	if (!id || (ctx->ingress_ifindex && !sender_of(ctx)) || !policy_restricts(id))
		return VERDICT_NEXT; /* no pod's request; others may use tc_index for what comes by other devices */
	ctx->tc_index = 0; /* a device on top of another one: once is enough */
	reason = packet_read(ctx, &pkt, &flow);
	if (!reason && pkt.transport.later)
		return VERDICT_NEXT; /* without the first fragment nobody can put it together */
	protocol = flow.flags & FLOW_ERROR ? flow.protocol : pkt.transport.protocol; /* an error is as good as the connection that it is about */
	if (!reason && !egress_allows(id, &pkt.destination, protocol, flow.destination_port))
		reason = DROP_POLICY_EGRESS;
	if (reason)
		return tell_dropped(ctx, &pkt, &flow, id, EVENT_TO_UPLINK, reason, now);
	return VERDICT_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
