/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which packets belong to one link and end there. A pod's link has nobody on it but the pod and a gateway that answers
 * nothing, yet every stack solicits routers, announces itself and looks for duplicates: that is noise, not an attack,
 * and has a drop reason of its own.
 *
 * 169.254.0.0/16 as a destination is not noise, the gateway excepted: metadata services and node-local DNS live there.
 */
#pragma once

#include <bpf/bpf_endian.h>

#include "parse.h"
#include "types.h"

/* The next hop of every pod's default route; on no interface. */
volatile const __be32 gateway_ipv4;

static __always_inline __be32 addr_word(const struct addr *addr, int i)
{
	return ((const __be32 *)addr->byte)[i];
}

/* prefix_is compares the leading bits of one word of an address. */
static __always_inline _Bool prefix_is(__be32 word, __u32 prefix, __u32 mask)
{
	return (word & bpf_htonl(mask)) == bpf_htonl(prefix);
}

/* source_is_link_local: unspecified, or link-local unicast (RFC 3927, RFC 4291). */
static __always_inline _Bool source_is_link_local(const struct packet *pkt)
{
	const struct addr *a = &pkt->source;

	if (pkt->protocol == bpf_htons(ETH_P_IP))
		return addr_word(a, 3) == 0 || prefix_is(addr_word(a, 3), 0xa9fe0000, 0xffff0000);
	return prefix_is(addr_word(a, 0), 0xfe800000, 0xffc00000) ||
	       !(addr_word(a, 0) | addr_word(a, 1) | addr_word(a, 2) | addr_word(a, 3));
}

/* destination_is_link_local: this link's gateway, everybody on it, or a group on it (RFC 5771, RFC 4291). */
static __always_inline _Bool destination_is_link_local(const struct packet *pkt)
{
	const struct addr *a = &pkt->destination;

	if (pkt->protocol == bpf_htons(ETH_P_IP))
		return addr_word(a, 3) == gateway_ipv4 || addr_word(a, 3) == bpf_htonl(0xffffffff) ||
		       prefix_is(addr_word(a, 3), 0xe0000000, 0xffffff00);
	return prefix_is(addr_word(a, 0), 0xfe800000, 0xffc00000) ||
	       prefix_is(addr_word(a, 0), 0xff010000, 0xff0f0000) || prefix_is(addr_word(a, 0), 0xff020000, 0xff0f0000);
}

/* destination_is_multicast: a group, on this link or beyond (RFC 1112, RFC 4291). */
static __always_inline _Bool destination_is_multicast(const struct packet *pkt)
{
	const struct addr *a = &pkt->destination;

	if (pkt->protocol == bpf_htons(ETH_P_IP))
		return prefix_is(addr_word(a, 3), 0xe0000000, 0xf0000000);
	return prefix_is(addr_word(a, 0), 0xff000000, 0xff000000);
}

/*
 * addr_verify refuses the addresses that are valid on no link (RFC 1122, RFC 4291, RFC 4942 section 2.2). The stack
 * cannot be relied on: with route_localnet it delivers 127.0.0.0/8 to the node's own services, and the maps have IPv4
 * addresses as IPv4-mapped ones, so that an IPv6 packet to ::ffff:a.b.c.d would find the pod with a.b.c.d.
 */
static __always_inline enum drop_reason addr_verify(const struct packet *pkt, const struct addr *a)
{
	if (pkt->protocol == bpf_htons(ETH_P_IP))
		return prefix_is(addr_word(a, 3), 0x7f000000, 0xff000000) ? DROP_LOOPBACK : DROP_NONE;
	if (addr_word(a, 0) | addr_word(a, 1))
		return DROP_NONE;
	if (addr_word(a, 2) == bpf_htonl(0xffff))
		return DROP_MAPPED_ADDRESS;
	return !addr_word(a, 2) && addr_word(a, 3) == bpf_htonl(1) ? DROP_LOOPBACK : DROP_NONE;
}
