/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which connection a packet belongs to, and what it says of it. An ICMP error belongs to the connection of the packet
 * that it quotes (RFC 5508).
 */
#pragma once

#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "addr.h"
#include "parse.h"
#include "types.h"

struct flow {
	struct addr inner_destination;	 /* FLOW_ERROR: destination of the quoted packet */
	__be16 source_port;	 /* of an echo, both are its identifier */
	__be16 destination_port; /* FLOW_ERROR: the ports that a reply to the quoted packet would have */
	__u8 protocol;
	__u8 flags;
};

enum flow_flag {
	FLOW_TRACKED = 1, /* the ports are known, or the protocol has none. All other packets go through the stack. */
	FLOW_OPENS = 2,	  /* it opens a connection: a SYN, an INIT or an echo request. Of a datagram it is not known. */
	FLOW_FIN = 4,
	FLOW_RESET = 8,
	FLOW_ERROR = 16,
	FLOW_FOLLOWS = 32, /* by its header, not the first packet of its connection. Never an echo reply: it carries anything */
};

/* As in linux/icmp.h and linux/icmpv6.h, which need headers of a libc. */
#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

#define SCTP_HEADER 12 /* bytes before the first chunk, RFC 9260, section 3.1 */
#define SCTP_INIT 1

#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

static __always_inline __u8 tcp_flags(__u8 tcp)
{
	if ((tcp & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN)
		return FLOW_TRACKED | FLOW_OPENS;
	return FLOW_TRACKED | FLOW_FOLLOWS | (tcp & TCP_FIN ? FLOW_FIN : 0) | (tcp & TCP_RST ? FLOW_RESET : 0);
}

/* is_echo: request or reply of a ping. */
static __always_inline _Bool is_echo(__u8 protocol, __u8 type)
{
	if (protocol == IPPROTO_ICMP)
		return type == ICMP_ECHO || type == ICMP_ECHOREPLY;
	return type == ICMPV6_ECHO_REQUEST || type == ICMPV6_ECHO_REPLY;
}

static __always_inline _Bool is_icmp_error(__u8 protocol, __u8 type)
{
	if (protocol == IPPROTO_ICMP)
		return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
	return type && type < ICMPV6_ECHO_REQUEST; /* RFC 4443, section 2.1 */
}

/* inner_addresses reads the IP header that an ICMP error quotes, and returns the offset of what follows it, or 0. */
static __always_inline __u32 inner_addresses(struct __sk_buff *ctx, __u32 at, struct addr *source, struct flow *flow)
{
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip;

	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, at, &ip.v4, sizeof(ip.v4)) || ip.v4.version != 4 || ip.v4.frag_off & IP_OFFSET)
			return 0;
		addr_from_ipv4(source, ip.v4.saddr);
		addr_from_ipv4(&flow->inner_destination, ip.v4.daddr);
		flow->protocol = ip.v4.protocol;
		return at + ip.v4.ihl * 4;
	}
	if (bpf_skb_load_bytes(ctx, at, &ip.v6, sizeof(ip.v6)) || ip.v6.version != 6)
		return 0;
	addr_from_ipv6(source, &ip.v6.saddr);
	addr_from_ipv6(&flow->inner_destination, &ip.v6.daddr);
	flow->protocol = ip.v6.nexthdr;
	return at + sizeof(ip.v6);
}

/*
 * flow_of_error reads the packet that an ICMP error quotes: at is the offset of the inner IP header, to the destination
 * of the error. An error without a readable quote is left untracked. It returns an enum drop_reason. As a global
 * function it is verified by itself, once.
 */
__noinline int flow_of_error(struct __sk_buff *ctx, __u32 at, const struct addr *to, struct flow *flow)
{
	__u8 first[8] __attribute__((aligned(4))); /* of the inner transport header */
	struct addr source;

	if (!to || !flow)
		return DROP_MALFORMED;
	at = inner_addresses(ctx, at, &source, flow);
	if (!at || bpf_skb_load_bytes(ctx, at, first, sizeof(first)))
		return DROP_NONE;
	if (!addr_equal(&source, to))
		return DROP_MALFORMED; /* an error goes to the sender of the packet that it quotes */
	switch (flow->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		flow->destination_port = *(__be16 *)&first[0];
		flow->source_port = *(__be16 *)&first[2];
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (!is_echo(flow->protocol, first[0]))
			return DROP_NONE;
		flow->destination_port = flow->source_port = *(__be16 *)&first[4];
		break;
	default:
		return DROP_NONE;
	}
	flow->flags = FLOW_TRACKED | FLOW_ERROR | FLOW_FOLLOWS;
	return DROP_NONE;
}

/*
 * flow_parse fills *flow. Later fragments are left untracked. Protocols without ports are tracked by their addresses.
 */
static __always_inline enum drop_reason flow_parse(struct __sk_buff *ctx, struct packet *pkt, struct flow *flow)
{
	__u8 buf[TCP_FLAGS_OFFSET + 1] __attribute__((aligned(4)));
	__u8 protocol = pkt->transport.protocol;
	const __be16 *ports;
	const __u8 *header;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->protocol = protocol;
	if (pkt->transport.later)
		return DROP_NONE;
	switch (protocol) {
	case IPPROTO_TCP:
		header = packet_at(ctx, pkt->transport.offset, buf, sizeof(buf));
		if (!header)
			return DROP_MALFORMED;
		flow->flags = tcp_flags(header[TCP_FLAGS_OFFSET]);
		break;
	case IPPROTO_UDP:
		header = packet_at(ctx, pkt->transport.offset, buf, 8);
		if (!header)
			return DROP_MALFORMED;
		flow->flags = FLOW_TRACKED;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		header = packet_at(ctx, pkt->transport.offset, buf, 8);
		if (!header)
			return DROP_MALFORMED;
		if (is_icmp_error(protocol, header[0]))
			return flow_of_error(ctx, pkt->transport.offset + 8, &pkt->destination, flow);
		flow->flags = FLOW_TRACKED;
		if (!is_echo(protocol, header[0]))
			return DROP_NONE;
		flow->source_port = flow->destination_port = *(const __be16 *)&header[4];
		if (header[0] == ICMP_ECHO || header[0] == ICMPV6_ECHO_REQUEST)
			flow->flags |= FLOW_OPENS;
		return DROP_NONE;
	case IPPROTO_SCTP:
		header = packet_at(ctx, pkt->transport.offset, buf, SCTP_HEADER + 1);
		if (!header)
			return DROP_MALFORMED;
		flow->flags = FLOW_TRACKED | (header[SCTP_HEADER] == SCTP_INIT ? FLOW_OPENS : FLOW_FOLLOWS);
		break;
	default:
		flow->flags = FLOW_TRACKED;
		return DROP_NONE;
	}
	ports = (const __be16 *)header;
	flow->source_port = ports[0];
	flow->destination_port = ports[1];
	return DROP_NONE;
}

/*
 * packet_read fills *pkt and *flow, and returns an enum drop_reason. It is a global function, so the verifier checks it
 * by itself, and checks what follows a call once, not once for each kind of packet.
 */
__noinline int packet_read(struct __sk_buff *ctx, struct packet *pkt, struct flow *flow)
{
	enum drop_reason reason;

	if (!pkt || !flow)
		return DROP_MALFORMED;
	reason = packet_parse(ctx, pkt);
	return reason ? reason : flow_parse(ctx, pkt, flow);
}
