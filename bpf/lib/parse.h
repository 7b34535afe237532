/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From bytes to struct packet. After packet_parse() both families take the same path.
 *
 * What the rest of the path does not need is not looked at: a transport header may be missing.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "addr.h"
#include "types.h"

/* Where the transport header is. */
struct transport {
	__u16 offset; /* from the start of the frame */
	__u8 protocol; /* IPPROTO_..., after all IPv6 extension headers */
	_Bool fragment; /* of a datagram */
	_Bool later;	/* none but the first fragment has the transport header */
};

struct packet {
	struct addr source;
	struct addr destination;
	struct mac sender; /* by the link header */
	__be16 protocol;   /* ETH_P_IP or ETH_P_IPV6, never anything else */
	__u8 hops;	   /* TTL or hop limit */
	_Bool for_routers; /* IPv4 options or an IPv6 hop-by-hop header: routers have to read them */
	struct transport transport;
};

/*
 * packet_data and packet_end are the bounds of what is directly accessible. They are volatile, so that the compiler
 * reads them from the context each time: a bound that it keeps and extends to 64 bits again is a plain number to the
 * verifier.
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

#define PACKET_DIRECT 256 /* bytes that the headers of nearly all packets are within */

/* packet_at returns len bytes from an offset, directly or, where they are not accessible, copied to buf; or NULL. */
static __always_inline const void *packet_at(struct __sk_buff *ctx, __u32 offset, void *buf, __u32 len)
{
	void *data;

	barrier_var(offset);
	if (offset < PACKET_DIRECT) { /* the verifier wants to know that the end cannot overflow */
		data = packet_data(ctx) + offset;
		if (data + len <= packet_end(ctx))
			return data;
	}
	return bpf_skb_load_bytes(ctx, offset, buf, len) ? NULL : buf;
}

/*
 * length_ok compares the length that the header states with what is there. Link padding may follow. A packet for
 * segmentation offload may be too long for the field (BIG TCP), and the stack has checked it.
 */
static __always_inline _Bool length_ok(const struct __sk_buff *ctx, __u32 stated)
{
	return ETH_HLEN + stated <= ctx->len || ctx->gso_size;
}

#define IP_FRAGMENT bpf_htons(0x3fff) /* more fragments, or an offset */
#define IP_OFFSET bpf_htons(0x1fff)
#define OPTIONS_MAX 40		      /* bytes of IPv4 options */
#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_LSRR 131
#define OPTION_SSRR 137

/* Where a loop through IPv4 options is. */
struct options {
	struct __sk_buff *ctx;
	__u32 at;
	__u32 end;
	enum drop_reason reason;
};

static long options_next(__u32 i, struct options *o)
{
	__u8 option[2]; /* kind and length; there is a byte after the last option, too */

	(void)i;
	if (o->at >= o->end)
		return 1;
	if (bpf_skb_load_bytes(o->ctx, o->at, option, sizeof(option))) {
		o->reason = DROP_MALFORMED;
		return 1;
	}
	switch (option[0]) {
	case OPTION_END:
		return 1;
	case OPTION_NOP:
		o->at++;
		return 0;
	case OPTION_LSRR:
	case OPTION_SSRR:
		o->reason = DROP_SOURCE_ROUTE;
		return 1;
	}
	if (option[1] < 2) {
		o->reason = DROP_MALFORMED;
		return 1;
	}
	o->at += option[1];
	return 0;
}

/*
 * options_verify refuses source routes (RFC 7126, section 4.3): with one, the destination in the header is not the last
 * one, so policy cannot be decided. It returns an enum drop_reason. As a global function it is verified by itself,
 * once, and so is the body of its loop (bpf_loop, Linux 5.17).
 */
__noinline int options_verify(struct __sk_buff *ctx, __u32 end)
{
	struct options o = { .ctx = ctx, .at = ETH_HLEN + sizeof(struct iphdr), .end = end };

	bpf_loop(OPTIONS_MAX, options_next, &o, 0);
	return o.reason;
}

static __always_inline enum drop_reason packet_parse_ipv4(struct __sk_buff *ctx, struct packet *pkt)
{
	struct ethhdr *eth = packet_head(ctx, ETH_HLEN + sizeof(struct iphdr));
	const struct iphdr *ip = (void *)(eth + 1);

	if (!eth)
		return DROP_MALFORMED;
	if (ip->version != 4 || ip->ihl * 4 < sizeof(*ip) || !length_ok(ctx, ip->ihl * 4))
		return DROP_MALFORMED;
	if (!length_ok(ctx, bpf_ntohs(ip->tot_len)) || bpf_ntohs(ip->tot_len) < ip->ihl * 4)
		return DROP_MALFORMED;
	mac_read(&pkt->sender, eth->h_source);
	addr_from_ipv4(&pkt->source, ip->saddr);
	addr_from_ipv4(&pkt->destination, ip->daddr);
	pkt->protocol = bpf_htons(ETH_P_IP);
	pkt->hops = ip->ttl;
	pkt->for_routers = ip->ihl * 4 > sizeof(*ip);
	pkt->transport.fragment = (ip->frag_off & IP_FRAGMENT) != 0;
	pkt->transport.later = (ip->frag_off & IP_OFFSET) != 0;
	pkt->transport.protocol = ip->protocol;
	pkt->transport.offset = ETH_HLEN + ip->ihl * 4;
	return pkt->for_routers ? options_verify(ctx, pkt->transport.offset) : DROP_NONE;
}

#define EXTENSIONS_MAX 8 /* IPv6 extension headers that are read */
#define IPPROTO_MOBILITY 135

/* is_extension: a header of IPv6 that another one follows, and that is not encrypted (RFC 7045). */
static __always_inline _Bool is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_ROUTING || header == IPPROTO_FRAGMENT || header == IPPROTO_AH ||
	       header == IPPROTO_DSTOPTS || header == IPPROTO_MOBILITY;
}

/* Where a loop through IPv6 extension headers is. */
struct extensions {
	struct __sk_buff *ctx;
	struct transport transport;
	enum drop_reason reason;
};

static long extensions_next(__u32 i, struct extensions *e)
{
	__u8 header[4]; /* next header; its length, or 0; of a fragment header, the offset and flags */
	__u8 protocol = e->transport.protocol;

	(void)i;
	if (!is_extension(protocol))
		return 1;
	if (protocol == IPPROTO_ROUTING) {
		e->reason = DROP_SOURCE_ROUTE;
		return 1;
	}
	if (bpf_skb_load_bytes(e->ctx, e->transport.offset, header, sizeof(header))) {
		e->reason = DROP_MALFORMED;
		return 1;
	}
	e->transport.protocol = header[0];
	switch (protocol) {
	case IPPROTO_FRAGMENT:
		e->transport.fragment = 1;
		e->transport.offset += 8;
		e->transport.later = header[2] || header[3] & 0xf8;
		return e->transport.later; /* what follows is data */
	case IPPROTO_AH:
		e->transport.offset += (header[1] + 2) * 4; /* RFC 4302, section 2.2 */
		return 0;
	}
	e->transport.offset += (header[1] + 1) * 8;
	return 0;
}

/*
 * extensions_skip finds the transport header, and returns an enum drop_reason. As a global function it is verified by
 * itself, once, and so is the body of its loop.
 */
__noinline int extensions_skip(struct __sk_buff *ctx, struct transport *transport)
{
	struct extensions e = { .ctx = ctx };

	if (!transport)
		return DROP_MALFORMED;
	e.transport = *transport;
	bpf_loop(EXTENSIONS_MAX, extensions_next, &e, 0);
	*transport = e.transport;
	if (e.reason)
		return e.reason;
	return is_extension(transport->protocol) && !transport->later ? DROP_EXTENSIONS : DROP_NONE;
}

static __always_inline enum drop_reason packet_parse_ipv6(struct __sk_buff *ctx, struct packet *pkt)
{
	struct ethhdr *eth = packet_head(ctx, ETH_HLEN + sizeof(struct ipv6hdr));
	const struct ipv6hdr *ip = (void *)(eth + 1);

	if (!eth)
		return DROP_MALFORMED;
	if (ip->version != 6 || !length_ok(ctx, sizeof(*ip) + bpf_ntohs(ip->payload_len)))
		return DROP_MALFORMED;
	mac_read(&pkt->sender, eth->h_source);
	addr_from_ipv6(&pkt->source, &ip->saddr);
	addr_from_ipv6(&pkt->destination, &ip->daddr);
	pkt->protocol = bpf_htons(ETH_P_IPV6);
	pkt->hops = ip->hop_limit;
	pkt->for_routers = ip->nexthdr == IPPROTO_HOPOPTS;
	pkt->transport.fragment = 0;
	pkt->transport.later = 0;
	pkt->transport.protocol = ip->nexthdr;
	pkt->transport.offset = ETH_HLEN + sizeof(*ip);
	return is_extension(ip->nexthdr) ? extensions_skip(ctx, &pkt->transport) : DROP_NONE;
}

/*
 * packet_parse fills *pkt, or returns why a pod may not send or get such a packet. The kernel has put the ethertype and
 * a VLAN tag into the context before it runs a program.
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
