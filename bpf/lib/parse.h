/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From bytes to struct packet. After packet_parse() both families take the same path.
 *
 * The headers that it read stay directly accessible at packet.eth until a helper moves packet data (anything named
 * bpf_skb_*). What the rest of the path does not need is not looked at: a transport header may be missing.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "addr.h"
#include "types.h"

struct packet {
	struct addr source;
	struct addr destination;
	struct ethhdr *eth;
	__be16 protocol;   /* ETH_P_IP or ETH_P_IPV6, never anything else */
	__u8 hops;	   /* TTL or hop limit */
	_Bool for_routers; /* IPv4 options or an IPv6 hop-by-hop header: routers have to read them */
};

/*
 * packet_data and packet_end are the bounds of what is directly accessible. They are read anew each time: a bound that
 * the compiler kept, and extended to 64 bits again, is a plain number to the verifier.
 */
static __always_inline void *packet_data(const struct __sk_buff *ctx)
{
	return (void *)(long)*(const volatile __u32 *)&ctx->data;
}

static __always_inline void *packet_end(const struct __sk_buff *ctx)
{
	return (void *)(long)*(const volatile __u32 *)&ctx->data_end;
}

/*
 * packet_head returns the first len bytes for direct access, or NULL when there are not so many. Headers need not be in
 * the linear part of an skb: packet sockets and receive offloads leave them in fragments.
 */
static __always_inline void *packet_head(struct __sk_buff *ctx, __u32 len)
{
	void *data = packet_data(ctx);

	if (data + len <= packet_end(ctx))
		return data;
	if (bpf_skb_pull_data(ctx, len))
		return NULL;
	data = packet_data(ctx);
	if (data + len <= packet_end(ctx))
		return data;
	return NULL;
}

/*
 * length_ok compares the length that the header states with what is there. Link padding may follow. A packet for
 * segmentation offload may be too long for the field (BIG TCP), and the stack has checked it.
 */
static __always_inline _Bool length_ok(const struct __sk_buff *ctx, __u32 stated)
{
	return ETH_HLEN + stated <= ctx->len || ctx->gso_size;
}

static __always_inline enum drop_reason packet_parse_ipv4(struct __sk_buff *ctx, struct packet *pkt)
{
	struct iphdr *ip;

	pkt->eth = packet_head(ctx, ETH_HLEN + sizeof(*ip));
	if (!pkt->eth)
		return DROP_MALFORMED;
	ip = (void *)(pkt->eth + 1);
	if (ip->version != 4 || ip->ihl * 4 < sizeof(*ip) || !length_ok(ctx, ip->ihl * 4))
		return DROP_MALFORMED;
	if (!length_ok(ctx, bpf_ntohs(ip->tot_len)) || bpf_ntohs(ip->tot_len) < ip->ihl * 4)
		return DROP_MALFORMED;
	addr_from_ipv4(&pkt->source, ip->saddr);
	addr_from_ipv4(&pkt->destination, ip->daddr);
	pkt->protocol = bpf_htons(ETH_P_IP);
	pkt->hops = ip->ttl;
	pkt->for_routers = ip->ihl * 4 > sizeof(*ip);
	return DROP_NONE;
}

static __always_inline enum drop_reason packet_parse_ipv6(struct __sk_buff *ctx, struct packet *pkt)
{
	struct ipv6hdr *ip;

	pkt->eth = packet_head(ctx, ETH_HLEN + sizeof(*ip));
	if (!pkt->eth)
		return DROP_MALFORMED;
	ip = (void *)(pkt->eth + 1);
	if (ip->version != 6 || !length_ok(ctx, sizeof(*ip) + bpf_ntohs(ip->payload_len)))
		return DROP_MALFORMED;
	addr_from_ipv6(&pkt->source, &ip->saddr);
	addr_from_ipv6(&pkt->destination, &ip->daddr);
	pkt->protocol = bpf_htons(ETH_P_IPV6);
	pkt->hops = ip->hop_limit;
	pkt->for_routers = ip->nexthdr == IPPROTO_HOPOPTS;
	return DROP_NONE;
}

/*
 * packet_parse fills *pkt, or says why the packet is none that a pod may send or get. The kernel has taken the
 * ethertype out of the frame, and a VLAN tag off it, before it runs a program.
 */
static __always_inline enum drop_reason packet_parse(struct __sk_buff *ctx, struct packet *pkt)
{
	if (ctx->vlan_present)
		return DROP_PROTOCOL;
	switch ((__be16)ctx->protocol) {
	case bpf_htons(ETH_P_IP):
		return packet_parse_ipv4(ctx, pkt);
	case bpf_htons(ETH_P_IPV6):
		return packet_parse_ipv6(ctx, pkt);
	case bpf_htons(ETH_P_ARP):
		return DROP_ARP;
	}
	return DROP_PROTOCOL;
}
