/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DHCP on a pod's own link (RFC 2131). When the IPAM plugin dhcp gives a pod its addresses, its daemon renews the lease
 * by broadcasts from inside the pod's namespace, and takes the interface down when nobody answers. The broadcasts end
 * at the node, as the stack forwards none. All other pods' DHCP is dropped as noise.
 *
 * These functions are called only for packets that are refused otherwise, so an ordinary packet pays nothing.
 */
#pragma once

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "endpoint.h"
#include "parse.h"
#include "scope.h"
#include "source.h"
#include "types.h"

#define DHCP_SERVER bpf_htons(67)
#define DHCP_CLIENT bpf_htons(68)

/* link_speaks_dhcp: did the pod at the end of the link lease its address? */
static __always_inline _Bool link_speaks_dhcp(const struct link *link)
{
	const struct endpoint *own = endpoint_lookup(&link->ipv4);

	return own && own->flags & ENDPOINT_DHCP;
}

/* is_broadcast_udp may invalidate pointers into the packet. */
static __always_inline _Bool is_broadcast_udp(struct __sk_buff *ctx, const struct packet *pkt, __be16 from, __be16 to)
{
	struct ethhdr *eth;
	struct udphdr *udp;

	if (pkt->protocol != bpf_htons(ETH_P_IP) || pkt->for_routers ||
	    addr_word(&pkt->destination, 3) != bpf_htonl(0xffffffff))
		return 0;
	eth = packet_head(ctx, ETH_HLEN + sizeof(struct iphdr) + sizeof(*udp));
	if (!eth)
		return 0;
	udp = (void *)(eth + 1) + sizeof(struct iphdr);
	return pkt->transport.protocol == IPPROTO_UDP && !pkt->transport.fragment && udp->source == from && udp->dest == to;
}

/* dhcp_from_pod: a request, from the pod's own MAC (see source_verify), and from its address or from none yet. */
static __always_inline _Bool dhcp_from_pod(struct __sk_buff *ctx, const struct packet *pkt, const struct link *link)
{
	return is_broadcast_udp(ctx, pkt, DHCP_CLIENT, DHCP_SERVER) &&
	       (!addr_word(&pkt->source, 3) || link_owns(link, pkt, &pkt->source)) && link_speaks_dhcp(link);
}

/* dhcp_to_pod: an answer. */
static __always_inline _Bool dhcp_to_pod(struct __sk_buff *ctx, const struct packet *pkt, const struct link *link)
{
	return is_broadcast_udp(ctx, pkt, DHCP_SERVER, DHCP_CLIENT) && link_speaks_dhcp(link);
}
