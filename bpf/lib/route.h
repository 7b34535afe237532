/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the kernel routes packets to and from pods of other nodes. The routes are the kernel's alone, and are looked up for
 * each packet, so that no copy of them can be out of date.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "parse.h"
#include "types.h"

#define AF_INET 2
#define AF_INET6 10

/* Where a packet goes next. */
struct next_hop {
	struct bpf_redir_neigh neighbour;
	__u32 ifindex; /* of the device */
};

/*
 * length_on_wire returns the length of the packet without its link header, or of the longest one that it will be cut
 * into. 0 means that it is not known.
 */
static __always_inline __u32 length_on_wire(struct __sk_buff *ctx, const struct packet *pkt)
{
	__u32 headers = pkt->transport.offset - ETH_HLEN, size = ctx->gso_size;
	__u8 words;

	if (!size)
		return ctx->len - ETH_HLEN;
	if (pkt->transport.protocol != IPPROTO_TCP || bpf_skb_load_bytes(ctx, pkt->transport.offset + 12, &words, sizeof(words)))
		return 0;
	return headers + (words >> 4) * 4 + size;
}

static __always_inline void fib_addresses(struct bpf_fib_lookup *fib, _Bool ipv4, const struct addr *from, const struct addr *to)
{
	const __be32 *source = (const __be32 *)from->byte, *destination = (const __be32 *)to->byte;

	if (ipv4) {
		fib->family = AF_INET;
		fib->ipv4_src = source[3];
		fib->ipv4_dst = destination[3];
		return;
	}
	fib->family = AF_INET6;
	__builtin_memcpy(fib->ipv6_src, source, sizeof(fib->ipv6_src));
	__builtin_memcpy(fib->ipv6_dst, destination, sizeof(fib->ipv6_dst));
}

/* has_next_hop: of a neighbour that is not known yet, bpf_redirect_neigh asks. */
static __always_inline _Bool has_next_hop(long result)
{
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/*
 * route_lookup finds the next hop of a packet that a pod sends. It returns false when the packet needs the stack: to
 * tell the pod that there is no route or that it is too long, or for a route that the programs cannot follow. As a
 * global function it is verified by itself, once.
 */
__noinline int route_lookup(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, struct next_hop *next)
{
	struct bpf_fib_lookup fib = {};
	__u32 length;

	if (!pkt || !flow || !next)
		return 0;
	length = length_on_wire(ctx, pkt);
	if (!length || length > 0xffff)
		return 0;
	fib_addresses(&fib, pkt->protocol == bpf_htons(ETH_P_IP), &pkt->source, &pkt->destination);
	fib.l4_protocol = pkt->transport.protocol;
	fib.sport = flow->source_port;
	fib.dport = flow->destination_port;
	fib.tot_len = length;
	fib.ifindex = ctx->ifindex;
	if (!has_next_hop(bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)))
		return 0;
	next->ifindex = fib.ifindex;
	next->neighbour.nh_family = fib.family;
	__builtin_memcpy(next->neighbour.ipv6_nh, fib.ipv6_dst, sizeof(next->neighbour.ipv6_nh));
	return 1;
}

/*
 * comes_by_its_route: did the packet come by the device by which the answers of the pod at the host end would leave?
 * That is what the kernel's strict reverse path filter asks. As a global function it is verified by itself, once.
 */
__noinline int comes_by_its_route(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow, __u32 host_end)
{
	struct bpf_fib_lookup fib = {};

	if (!pkt || !flow)
		return 0;
	fib_addresses(&fib, pkt->protocol == bpf_htons(ETH_P_IP), &pkt->destination, &pkt->source);
	fib.l4_protocol = pkt->transport.protocol;
	fib.sport = flow->destination_port;
	fib.dport = flow->source_port;
	fib.ifindex = host_end;
	return has_next_hop(bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)) && fib.ifindex == ctx->ifindex;
}
