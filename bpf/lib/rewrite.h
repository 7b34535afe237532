/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a router changes in a packet: the MAC addresses, and the TTL or hop limit. */
#pragma once

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/stddef.h>
#include <bpf/bpf_helpers.h>

#include "addr.h"
#include "endpoint.h"
#include "parse.h"

#define HOP_LIMIT_OFFSET (ETH_HLEN + __builtin_offsetof(struct ipv6hdr, hop_limit))

/* rewrite_ttl takes one from the TTL and corrects the checksum for it (RFC 1624, equation 3). */
static __always_inline void rewrite_ttl(struct iphdr *ip)
{
	__u16 *word = (__u16 *)&ip->ttl; /* TTL and protocol are one word of the sum */
	__u16 before = *word;
	__u32 sum = (__u16)~ip->check + (__u16)~before;

	ip->ttl--;
	sum += *word;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
}

/*
 * rewrite gives the frame its MAC addresses, unless they are NULL, and takes one hop from a packet that has more than one
 * left. The header of IPv6 has no checksum; the helper corrects the one that a device may have computed of the whole
 * packet (CHECKSUM_COMPLETE).
 */
static __always_inline long rewrite(struct __sk_buff *ctx, const struct packet *pkt, const struct mac *to, const struct mac *from)
{
	struct ethhdr *eth = packet_head(ctx, ETH_HLEN + sizeof(struct iphdr));
	__u8 hops = pkt->hops - 1;

	if (!eth)
		return -1;
	if (to && from) {
		mac_copy(eth->h_dest, to);
		mac_copy(eth->h_source, from);
	}
	if (pkt->protocol == bpf_htons(ETH_P_IPV6))
		return bpf_skb_store_bytes(ctx, HOP_LIMIT_OFFSET, &hops, sizeof(hops), BPF_F_RECOMPUTE_CSUM);
	rewrite_ttl((void *)(eth + 1));
	return 0;
}
