/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Addresses as numbers. Wire headers are aligned to two bytes at least (NET_IP_ALIGN), and BPF has no byte-wise
 * compare: these read as wide as that allows. The objects are built with -fno-strict-aliasing, as the kernel is.
 */
#pragma once

#include <linux/in6.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>

#include "types.h"

/* mac_equal compares a link address on the wire with one of ours. */
static __always_inline _Bool mac_equal(const struct mac *x, const struct mac *y)
{
	const __u16 *a = (const __u16 *)x->byte, *b = (const __u16 *)y->byte;

	return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) == 0;
}

/* mac_read copies a link address from the wire. */
static __always_inline void mac_read(struct mac *mac, const __u8 *wire)
{
	const __u16 *from = (const __u16 *)wire;
	__u16 *to = (__u16 *)mac->byte;

	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
}

/* mac_copy writes one of our link addresses to the wire. */
static __always_inline void mac_copy(__u8 *wire, const struct mac *mac)
{
	__u16 *to = (__u16 *)wire;
	const __u16 *from = (const __u16 *)mac->byte;

	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
}

static __always_inline _Bool addr_equal(const struct addr *x, const struct addr *y)
{
	const __u64 *a = (const __u64 *)x->byte, *b = (const __u64 *)y->byte;

	return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

/* addr_from_ipv4 is the IPv4-mapped form. */
static __always_inline void addr_from_ipv4(struct addr *addr, __be32 ipv4)
{
	__be32 *word = (__be32 *)addr->byte;

	word[0] = 0;
	word[1] = 0;
	word[2] = bpf_htonl(0xffff);
	word[3] = ipv4;
}

static __always_inline void addr_from_ipv6(struct addr *addr, const struct in6_addr *ipv6)
{
	__be32 *word = (__be32 *)addr->byte;

	word[0] = ipv6->s6_addr32[0];
	word[1] = ipv6->s6_addr32[1];
	word[2] = ipv6->s6_addr32[2];
	word[3] = ipv6->s6_addr32[3];
}
