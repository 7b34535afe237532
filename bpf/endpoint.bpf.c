//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The entry points: two programs at the host end of every pod's veth pair, and two at the node's other
 * devices. (The fifth program, sweep, removes old connections: lib/sweep.h.) All pods share them: what differs between
 * pods is in maps.
 *
 *	pod -> from_pod --> another pod                        the shortcut: from_pod decides policy. Not if the bandwidth
 *	               |                                       of either pod is limited: there are queues on the other way
 *	               |--> the device to another node's pod   from_pod decides egress policy. Not if the pod's is limited
 *	               `--> the node's stack --> to_pod        to_pod decides policy, after translation
 *	                                    `--> to_uplink     to_uplink decides policy, after translation
 *	another node's pod --> from_uplink --> pod             from_uplink decides ingress policy, if nothing is translated
 *	                                 `--> the node's stack --> to_pod
 *	to_pod, to_uplink --> the proxy                        what it has to decide about: lib/proxy.h; what is to the node
 *	                                                       itself gets there by listener.bpf.c
 *
 * They run under tc (clsact in direct action, those of other devices by TCX from Linux 6.6 on) with the link header in place.
 *
 * A request is a packet of the side that opened the connection; all others are replies. from_pod cannot know yet where
 * the node will translate the destination of a request to, so it lets it go up the stack undecided and marks it:
 * tc_index is the endpoint ID of the pod that sent it. It is 0 for all other packets. Replies are decided in from_pod.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "lib/connection.h"
#include "lib/count.h"
#include "lib/denied.h"
#include "lib/endpoint.h"
#include "lib/entry.h"
#include "lib/event.h"
#include "lib/flow.h"
#include "lib/fragments.h"
#include "lib/from_uplink.h"
#include "lib/incoming.h"
#include "lib/outgoing.h"
#include "lib/parse.h"
#include "lib/path.h"
#include "lib/policy.h"
#include "lib/proxy.h"
#include "lib/rewrite.h"
#include "lib/route.h"
#include "lib/source.h"
#include "lib/sweep.h"
#include "lib/verdict.h"

/*
 * The digest of the object and its configuration. The agent writes it, and recognizes a loaded program by it. No
 * decision depends on it.
 */
volatile const __u64 digest;

/*
 * to_stack lets a packet of a pod go up the node's stack, and marks a request with the pod's ID. If the pod may only send
 * so much, the next filter of the device has the packet wait in a queue first, and keeps the mark.
 */
static __always_inline enum verdict to_stack(struct __sk_buff *ctx, __u32 id, _Bool request)
{
	ctx->tc_index = request ? id : 0;
	count_from_pod(ctx, id);
	return VERDICT_NEXT;
}

/*
 * deliver hands a packet to another pod of this node, past the stack and straight into its namespace (Linux 5.10). The
 * kernel drops it when that pod is gone in the meantime.
 */
static __always_inline enum verdict deliver(struct __sk_buff *ctx, struct packet *pkt, const struct connection *c)
{
	if (rewrite(ctx, pkt, &c->peer_mac, &c->peer_host_mac))
		return drop(c->id, DROP_MALFORMED);
	count_from_pod(ctx, c->id);
	count_to_pod(ctx, c->peer_id);
	return bpf_redirect_peer(c->peer_ifindex, 0);
}

/*
 * send_direct sends a packet to a pod of another node, past the stack (bpf_redirect_neigh, Linux 5.10), or leaves it to the
 * stack. Its egress policy was decided.
 */
static __always_inline enum verdict send_direct(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow, const struct connection *c)
{
	struct next_hop next = {};

	if (!route_lookup(ctx, pkt, flow, &next))
		return to_stack(ctx, c->id, c->state & STATE_OPENED_HERE);
	if (rewrite(ctx, pkt, NULL, NULL))
		return drop(c->id, DROP_MALFORMED);
	ctx->tc_index = 0;
	count_from_pod(ctx, c->id);
	return bpf_redirect_neigh(next.ifindex, &next.neighbour, sizeof(next.neighbour), 0);
}

/* send has the packet take the path of its connection, or the stack if it is not plain. */
static __always_inline enum verdict send(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow, const struct connection *c)
{
	if (c->path != PATH_STACK && is_plain(ctx, pkt))
		return c->path == PATH_SHORTCUT ? deliver(ctx, pkt, c) : send_direct(ctx, pkt, flow, c);
	return to_stack(ctx, c->id, c->state & STATE_OPENED_HERE);
}

/*
 * from_pod_miss handles a packet that has no entry in the map connections, and fills in *c. It returns why the packet is
 * dropped, or DROP_NONE.
 */
static __always_inline enum drop_reason from_pod_miss(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						      const struct connection_key *key, struct connection *c, __u32 now)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;

	if (!link)
		return DROP_NO_ENDPOINT;
	reason = source_verify(pkt, link);
	if (reason)
		return reason;
	if (denies_often(link->id, flow, now))
		return DROP_DENIED_OFTEN;
	if (!(flow->flags & FLOW_TRACKED)) {
		c->id = link->id;
		c->path = PATH_STACK;
		c->state = pkt->transport.later && fragments_pass(key, now) ? 0 : STATE_OPENED_HERE;
		return DROP_NONE;
	}
	reason = path_from_pod(ctx, pkt, flow, key, link, c, now);
	if (!reason && c->state & STATE_OPENED_HERE && !(flow->flags & FLOW_ERROR))
		event_opened(ctx, pkt, flow, c, EVENT_FROM_POD, now);
	return reason;
}

/* from_pod sees what a pod sends: host end, ingress. */
SEC("tc")
int from_pod(struct __sk_buff *ctx)
{
	struct connection *own = NULL, c;
	__u32 now = ticks_now();
	struct connection_key key;
	enum drop_reason reason;
	struct packet pkt = {};
	struct flow flow = {};

	reason = packet_read(ctx, &pkt, &flow);
	if (!reason && flow.flags & FLOW_ERROR && !addr_equal(&flow.inner_destination, &pkt.source))
		reason = DROP_MALFORMED; /* the quoted packet was sent to another host */
	if (reason)
		goto drop;
	key_outgoing(&key, ctx, &pkt, &flow);
	if (flow.flags & FLOW_TRACKED)
		own = connection_find(&key, &flow, OPENED_BY_POD, 0, now);
	if (!own || !connection_copy(&c, own, &key) || !addr_equal(&pkt.source, &c.local) || !mac_equal(&pkt.sender, &c.mac)) {
		reason = from_pod_miss(ctx, &pkt, &flow, &key, &c, now);
		if (reason)
			goto drop;
	} else {
		reason = connection_decide_again(ctx, &pkt, &key, &flow, own, &c);
		if (reason) {
			connection_touch_denied(own, &flow, now);
			goto drop;
		}
		if (is_unanswered(&c, &flow))
			own->path = c.path = PATH_STACK;
		connection_note_outgoing(own, &key, &flow, now);
	}
	if (is_first_fragment(&pkt) && !(c.state & STATE_OPENED_HERE))
		fragments_note(&key, &c, now);
	return send(ctx, &pkt, &flow, &c);
drop:
	return drop_with_event(ctx, &pkt, &flow, link_id(ctx), EVENT_FROM_POD, reason, now);
}

/* to_pod_miss handles a packet that has no entry in the map connections. */
static __always_inline enum drop_reason to_pod_miss(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow,
						    struct connection_key *key, struct connection *c, __u32 now)
{
	const struct link *link = link_lookup(ctx);
	enum drop_reason reason;

	if (!link)
		return DROP_NO_ENDPOINT;
	c->id = link->id;
	reason = destination_verify(pkt, link);
	if (reason)
		return reason;
	reason = incoming_miss(ctx, pkt, flow, key, link, c, now);
	/* Of a connection through the proxy, the way into it has an event. */
	if (!reason && flow->flags & FLOW_TRACKED && !(flow->flags & FLOW_ERROR) && !(c->state & STATE_OPENED_HERE) && !comes_from_proxy(ctx))
		event_opened(ctx, pkt, flow, c, EVENT_TO_POD, now);
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
	if (!ctx->ingress_ifindex && proxy_device() && answers_proxy(ctx, &pkt, &flow))
		return to_proxy(ctx, proxy_device(), link_id(ctx));
	key_incoming(&key, ctx, &pkt, &flow);
	if (flow.flags & FLOW_TRACKED)
		own = connection_find(&key, &flow, OPENED_BY_OTHER, 1, now);
	if (!own || !connection_copy(&c, own, &key) || !addr_equal(&pkt.destination, &c.local)) {
		reason = to_pod_miss(ctx, &pkt, &flow, &key, &c, now);
	} else {
		reason = incoming_hit(ctx, &flow, &key, own, &c);
		if (!reason)
			reason = connection_note_incoming(ctx, own, &key, &flow, now);
		else
			connection_touch_denied(own, &flow, now);
	}
	if (reason == DROP_PROXY && ends_direct(ctx, &pkt, &flow))
		reason = DROP_NONE;
	if (reason && ends_proxied(ctx, &flow, reason))
		reason = DROP_NONE;
	/* The proxy's listening socket resets the sender of what belongs to none of its connections, so also who answers on a direct one. */
	if (reason == DROP_PROXY && (!(c.state & STATE_OPENED_HERE) || is_segment_of_open(&flow)))
		return redirect(ctx, &pkt, &flow, sender_of(ctx) ? ctx->tc_index : NO_ENDPOINT, c.id, EVENT_TO_POD, now);
	if (reason)
		goto drop;
	if (is_first_fragment(&pkt))
		fragments_note(&key, &c, now);
	count_to_pod(ctx, c.id);
	return VERDICT_LINK;
drop:
	if (is_denied(reason))
		denied_note(ctx, &pkt, &flow, sender_of(ctx) ? ctx->tc_index : NO_ENDPOINT, now);
	return drop_with_event(ctx, &pkt, &flow, link_id(ctx), EVENT_TO_POD, reason, now);
}

/*
 * to_uplink sees what leaves the node by a device that is no pod's host end: egress, after routing and translation.
 * Filters of other programs on the device run after it. It applies the egress policy to every request of a pod, packet
 * by packet, and drops what cannot be told from a connection with PATH_DIRECT.
 */
SEC("tc")
int to_uplink(struct __sk_buff *ctx)
{
	__u32 id = ctx->tc_index, now = ticks_now();
	enum drop_reason reason;
	struct packet pkt = {};
	struct flow flow = {};
	_Bool restricted;
	__u8 protocol;

	(void)digest; /* a reference, so that this program has the map with the digest, too */
	/* Only requests of pods: on a packet that came by another device, others may have set tc_index. */
	if (!id || (ctx->ingress_ifindex && !sender_of(ctx)))
		return VERDICT_NEXT;
	restricted = policy_restricts(id);
	reason = packet_read(ctx, &pkt, &flow);
	if (!restricted && reason)
		return VERDICT_NEXT;
	if (!reason && ctx->ingress_ifindex && connection_check_clash_outgoing(ctx, &pkt, &flow, now))
		return drop_with_event(ctx, &pkt, &flow, id, EVENT_TO_UPLINK, DROP_PATH_CLASH, now);
	if (!restricted)
		return VERDICT_NEXT;
	ctx->tc_index = 0; /* the device may be on top of another one: decide once */
	/* An ICMP error is allowed when the connection that it is about is. */
	protocol = flow.flags & FLOW_ERROR ? flow.protocol : pkt.transport.protocol;
	if (!reason && pkt.transport.later)
		reason = decide_egress(id, &pkt.destination, PROTOCOL_FRAGMENT, fragment_port(protocol));
	else if (!reason)
		reason = decide_egress(id, &pkt.destination, protocol, flow.destination_port);
	if (reason == DROP_PROXY && (pkt.transport.later || ends_direct(ctx, &pkt, &flow)))
		return VERDICT_NEXT;
	if (reason == DROP_PROXY)
		return redirect(ctx, &pkt, &flow, id, id, EVENT_TO_UPLINK, now);
	if (is_denied(reason))
		denied_note(ctx, &pkt, &flow, id, now);
	if (reason)
		return drop_with_event(ctx, &pkt, &flow, id, EVENT_TO_UPLINK, reason, now);
	return VERDICT_NEXT;
}

/*
 * from_uplink sees what comes to the node by a device that is no pod's host end: ingress, after filters of other
 * programs, and behind from_tunnel. It hands packets of connections with PATH_DIRECT to their pods, and leaves all others to
 * the stack.
 */
SEC("tc")
int from_uplink(struct __sk_buff *ctx)
{
	struct connection *own = NULL, c;
	enum drop_reason reason;
	const struct endpoint *to;
	struct connection_key key;
	struct packet pkt = {};
	struct flow flow = {};
	struct addr destination;
	const struct link *link;
	__u32 now, host_end;

	(void)digest;
	if (!destination_read(ctx, &destination))
		return VERDICT_NEXT;
	to = endpoint_lookup(&destination);
	if (!to || is_limited(to) || packet_read(ctx, &pkt, &flow) || !may_be_direct(ctx, &pkt, &flow))
		return VERDICT_NEXT;
	now = ticks_now();
	host_end = to->ifindex;
	key_incoming(&key, ctx, &pkt, &flow);
	key.ifindex = host_end;
	own = connection_find(&key, &flow, OPENED_BY_OTHER, 1, now);
	if (own) {
		if (!connection_copy(&c, own, &key) || !is_direct(ctx, &pkt, &flow, &c))
			return VERDICT_NEXT;
		reason = from_uplink_hit(&key, &flow, own, &c, now);
		if (!reason && c.path != PATH_DIRECT)
			return VERDICT_NEXT;
	} else {
		link = bpf_map_lookup_elem(&links, &host_end);
		if (!link)
			return VERDICT_NEXT;
		reason = from_uplink_miss(ctx, &pkt, &flow, &key, link, &c, now);
		if (!reason && c.path != PATH_DIRECT)
			return VERDICT_NEXT;
		if (!reason && !(c.state & STATE_OPENED_HERE))
			event_opened(ctx, &pkt, &flow, &c, EVENT_TO_POD, now);
	}
	if (reason == DROP_PROXY && ends_direct(ctx, &pkt, &flow))
		reason = DROP_NONE;
	if (reason)
		return drop_with_event(ctx, &pkt, &flow, c.id, EVENT_TO_POD, reason, now);
	if (rewrite(ctx, &pkt, &to->pod_mac, &to->host_mac))
		return drop(c.id, DROP_MALFORMED);
	count_to_pod(ctx, c.id);
	return bpf_redirect_peer(host_end, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
