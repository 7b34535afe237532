/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way into the proxy, and how what comes from there is known.
 *
 *	client -> node's stack -> to_pod, to_uplink: DROP_PROXY --> the device porin-l7 --> select_listener --> proxy
 *	client -> node's stack, which diverts all further packets to the proxy's socket (nftables)
 *	proxy -> a connection with the client's address and PROXY_MARK --> to_pod, or another node
 *
 *	client -> the node itself -> select_listener --> proxy -> a connection as above, by lo --> server
 *	server on the node -> the client's address -> to_pod: a socket of the proxy has it --> the device porin-l7 --> proxy
 *
 * A packet goes there only after the node's translation, with its real destination. The proxy applies the rules of both ends that
 * are on this node, and answers with the server's address.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "conntrack.h"
#include "count.h"
#include "denied.h"
#include "event.h"
#include "flow.h"
#include "parse.h"
#include "redirects.h"
#include "types.h"

/* One entry: index of the device porin-l7; 0 without a proxy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} proxy_link SEC(".maps");

/* comes_from_proxy: has a socket of the proxy sent the packet? */
static __always_inline _Bool comes_from_proxy(const struct __sk_buff *ctx)
{
	return !ctx->ingress_ifindex && (ctx->mark & PROXY_MARK_MASK) == PROXY_MARK;
}

/* socket_is_connected releases a socket. One that is connected to nobody is in the state without; it may be the node's own. */
static __always_inline _Bool socket_is_connected(struct bpf_sock *sock, __u32 without)
{
	_Bool connected;

	if (!sock)
		return 0;
	connected = sock->state != without;
	barrier_var(connected); /* the verifier wants an instruction for each kind of socket */
	bpf_sk_release(sock);
	return connected;
}

/*
 * goes_to_proxy: is the packet, which a pod sends, the answer on a connection of the proxy's own? As a global function it is verified by
 * itself, once.
 */
__noinline int goes_to_proxy(struct __sk_buff *ctx, const struct connection_key *key, const struct addr *local)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size;

	if (!key || !local)
		return 0;
	tuple_of(&tuple, key->family == 4, local, key->local_port, &key->remote, key->remote_port);
	size = key->family == 4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6);
	if (key->protocol == IPPROTO_TCP)
		return socket_is_connected(bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0), BPF_TCP_LISTEN);
	if (key->protocol == IPPROTO_UDP)
		return socket_is_connected(bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0), BPF_TCP_CLOSE);
	return 0;
}

/*
 * redirect_note writes the entry of a packet that opens a connection. id is the pod of this node that has sent it, or NO_ENDPOINT:
 * then the entry counts in the share of the receiver. As a global function it is verified by itself, once.
 */
__noinline int redirect_note(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 id, __u32 receiver)
{
	struct redirect from = { .id = id, .generation = slot_generation(id), .from_node = !ctx->ingress_ifindex };
	__u32 ifindex = ctx->ingress_ifindex;
	struct connection_key real = {};
	struct redirect_key key = {};
	const struct link *sender;

	if (!pkt || !flow)
		return 0;
	key_incoming(&real, ctx, pkt, flow);
	sender = id ? bpf_map_lookup_elem(&links, &ifindex) : NULL;
	if (sender)
		real.remote = real.family == 4 ? sender->ipv4 : sender->ipv6;
	else
		conntrack_opener(ctx, &real, &pkt->destination);
	/* From outside, with the address of a pod of this node: the proxy is told of no source. */
	if (sender || !ctx->ingress_ifindex || !endpoint_lookup(&real.remote))
		from.source = real.remote;
	key.client = pkt->source;
	key.server = pkt->destination;
	key.client_port = flow->source_port;
	key.server_port = flow->destination_port;
	key.protocol = flow->protocol;
	key.family = real.family;
	redirect_put(&key, &from, id ? id : receiver);
	return 0;
}

/*
 * ends_proxied: does the proxy reset a connection of its own that policy does not allow any more, for the reason? It closes what no policy accepts,
 * and the pod is to hear of it.
 */
static __always_inline _Bool ends_proxied(const struct __sk_buff *ctx, const struct flow *flow, enum drop_reason reason)
{
	return is_denied(reason) && flow->flags & FLOW_RESET && comes_from_proxy(ctx);
}

/* is_segment_of_open: is it a segment of TCP that does not open a connection? */
static __always_inline _Bool is_segment_of_open(const struct flow *flow)
{
	return flow->protocol == IPPROTO_TCP && flow->flags & FLOW_FOLLOWS;
}

/* may_redirect: only what opens or continues a connection can go to the proxy. */
static __always_inline _Bool may_redirect(const struct flow *flow)
{
	return flow->flags & FLOW_TRACKED && !(flow->flags & FLOW_ERROR) &&
	       (flow->protocol == IPPROTO_TCP || flow->protocol == IPPROTO_UDP);
}

/* proxy_device returns the device by which packets get to the proxy, 0 without one. */
static __always_inline __u32 proxy_device(void)
{
	__u32 first = 0;
	const __u32 *link = bpf_map_lookup_elem(&proxy_link, &first);

	return link ? *link : 0;
}

/* to_proxy has a packet come by the device. Drops are counted for the endpoint. */
static __always_inline enum verdict to_proxy(struct __sk_buff *ctx, __u32 device, __u32 id)
{
	const struct mac to = { PROXY_MAC };
	struct ethhdr *eth = packet_head(ctx, ETH_HLEN);

	if (!eth)
		return drop(id, DROP_MALFORMED);
	mac_copy(eth->h_dest, &to);
	ctx->tc_index = 0;
	ctx->mark = 0;
	return bpf_redirect(device, BPF_F_INGRESS);
}

/* is_to_proxy_socket: does a connection of the proxy's have the addresses and ports of the packet, or of what an ICMP error quotes? */
static __always_inline _Bool is_to_proxy_socket(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	struct addr sender = flow->flags & FLOW_ERROR ? flow->inner_destination : pkt->source;
	struct connection_key key = {};

	key.remote = pkt->destination;
	key.local_port = flow->source_port;
	key.remote_port = flow->destination_port;
	key.protocol = flow->protocol;
	key.family = ctx->protocol == bpf_htons(ETH_P_IP) ? 4 : 6;
	return goes_to_proxy(ctx, &key, &sender);
}

/*
 * answers_proxy: is the packet, which the node itself sends to a pod's address, for a connection of the proxy's own? It is the answer of a
 * server on the node, or an ICMP error of the node's. The proxy's own answer to a client is not, even if the client has chosen a port that the
 * proxy has for a connection of its own. A server on the node may have the proxy's mark, too (tcp_fwmark_accept), but has the node's address. As
 * a global function it is verified by itself, once.
 */
__noinline int answers_proxy(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	if (!pkt || !flow)
		return 0;
	if (!(flow->flags & FLOW_TRACKED) || bpf_ntohs(flow->destination_port) < PROXY_FIRST_PORT)
		return 0;
	if (comes_from_proxy(ctx) && !(class_of(&pkt->source, policy_copy()) & CLASS_HOST))
		return 0;
	return is_to_proxy_socket(ctx, pkt, flow);
}

#define TCP_DATA_OFFSET 12 /* its upper four bits: the header's length in words of four bytes */
#define SHORTEST_FRAME 60  /* what is shorter may be padded */

/* has_data: does a segment of TCP carry more than its header? */
static __always_inline _Bool has_data(struct __sk_buff *ctx, const struct packet *pkt)
{
	__u32 header;
	__u8 words;

	if (bpf_skb_load_bytes(ctx, pkt->transport.offset + TCP_DATA_OFFSET, &words, sizeof(words)))
		return 1;
	header = pkt->transport.offset + (words >> 4) * 4;
	return ctx->len > header && ctx->len > SHORTEST_FRAME;
}

/* only_resets: is the packet a reset without data? As a global function it is verified by itself, once. */
__noinline int only_resets(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	if (!pkt || !flow)
		return 0;
	return flow->flags & FLOW_RESET && !has_data(ctx, pkt);
}

/*
 * ends_direct: does the packet, which has no data, reset a connection that does not go through the proxy? It passes, so that the other end hears of it, and no half of
 * the connection is left that stands in the way of the next one with the same ports. As a global function it is verified by itself, once.
 */
__noinline int ends_direct(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	if (!pkt || !flow)
		return 0;
	return only_resets(ctx, pkt, flow) && !is_to_proxy_socket(ctx, pkt, flow);
}

/*
 * redirect hands a packet to the proxy. id is the pod of this node that has sent it, or NO_ENDPOINT; receiver the endpoint that drops are
 * counted for.
 */
static __always_inline enum verdict redirect(struct __sk_buff *ctx, struct packet *pkt, const struct flow *flow, __u32 id, __u32 receiver,
					     enum event_place place, __u32 now)
{
	struct event_detail detail = { .id = receiver, .place = place, .path = PATH_PROXY };
	__u32 device = proxy_device();

	if (!device || !may_redirect(flow))
		return drop_with_event(ctx, pkt, flow, receiver, place, DROP_PROXY, now);
	if (flow->flags & FLOW_OPENS || flow->protocol == IPPROTO_UDP) {
		redirect_note(ctx, pkt, flow, id, receiver);
		event_send(ctx, pkt, flow, &detail, now);
	}
	return to_proxy(ctx, device, receiver);
}
