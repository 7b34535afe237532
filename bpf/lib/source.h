/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether the addresses of a packet are those of the pod at the link that it comes from or goes to. */
#pragma once

#include "addr.h"
#include "endpoint.h"
#include "parse.h"
#include "scope.h"
#include "types.h"

/* link_owns returns whether the pod at the end of the link has the address. */
static __always_inline _Bool link_owns(const struct link *link, const struct packet *pkt, const struct addr *addr)
{
	if (pkt->protocol == bpf_htons(ETH_P_IP))
		return addr_equal(addr, &link->ipv4);
	return addr_equal(addr, &link->ipv6);
}

/*
 * source_verify refuses what a pod sends under a link or network address that is not its own. The order gives noise
 * its own reason, and a pod that hides behind a foreign link address the worse one.
 */
static __always_inline enum drop_reason source_verify(const struct packet *pkt, const struct link *link)
{
	enum drop_reason reason;

	if (!mac_equal(&pkt->sender, &link->pod_mac))
		return DROP_SPOOFED_MAC;
	if (source_is_link_local(pkt) || destination_is_link_local(pkt))
		return DROP_LINK_LOCAL;
	reason = addr_verify(pkt, &pkt->destination);
	if (reason)
		return reason;
	if (link_owns(link, pkt, &pkt->source))
		return destination_is_multicast(pkt) ? DROP_MULTICAST : DROP_NONE;
	reason = addr_verify(pkt, &pkt->source); /* no pod owns such an address */
	return reason ? reason : DROP_SPOOFED_ADDRESS;
}

/* destination_verify refuses what the node would send down the link of a pod that does not have the address. */
static __always_inline enum drop_reason destination_verify(const struct packet *pkt, const struct link *link)
{
	enum drop_reason reason = addr_verify(pkt, &pkt->source);

	if (reason || link_owns(link, pkt, &pkt->destination))
		return reason;
	if (destination_is_link_local(pkt))
		return DROP_LINK_LOCAL;
	if (destination_is_multicast(pkt))
		return DROP_MULTICAST;
	reason = addr_verify(pkt, &pkt->destination);
	return reason ? reason : DROP_WRONG_DESTINATION;
}
