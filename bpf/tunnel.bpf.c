//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The entry points at the node's VXLAN device, which takes its outer addresses from the metadata of each packet:
 *
 *	from_pod, or the stack --> to_uplink --> to_tunnel --> device --> the network between the nodes
 *	the network --> device --> from_tunnel --> from_uplink --> the pod, or the stack
 *
 * to_tunnel says which node a packet goes to. from_tunnel believes no node: it lets a packet pass only if it is from the
 * address of a node that is known and to an address of this node, its inner source is that node's, and its inner destination is of
 * this node's pods. It runs before conntrack and everything else of the stack.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lib/addr.h"
#include "lib/owner.h"
#include "lib/parse.h"
#include "lib/scope.h"
#include "lib/types.h"
#include "lib/verdict.h"

/* One entry. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tunnel_drops);
} tunnel_drops SEC(".maps");

#define TUNNEL_TTL 64

static __always_inline struct tunnel_drops *drops_here(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&tunnel_drops, &first);
}

/* drop_to counts a packet that to_tunnel drops. */
static __always_inline enum verdict drop_to(__u32 reason)
{
	struct tunnel_drops *d = drops_here();

	barrier_var(reason);
	if (d && reason < TUNNEL_DROPS)
		d->to_tunnel[reason]++;
	return VERDICT_DROP;
}

/* drop_from counts a packet that from_tunnel drops. */
static __always_inline enum verdict drop_from(__u32 reason)
{
	struct tunnel_drops *d = drops_here();

	barrier_var(reason);
	if (d && reason < TUNNEL_DROPS)
		d->from_tunnel[reason]++;
	return VERDICT_DROP;
}

/* tunnel_set has the device send the packet to the node. */
static __always_inline int tunnel_set(struct __sk_buff *ctx, const struct owner *to)
{
	struct bpf_tunnel_key key = { .tunnel_id = TUNNEL_NETWORK, .tunnel_ttl = TUNNEL_TTL };

	if (to->flags & OWNER_IPV6) {
		__builtin_memcpy(key.remote_ipv6, to->ipv6.byte, sizeof(key.remote_ipv6));
		__builtin_memcpy(key.local_ipv6, to->local.byte, sizeof(key.local_ipv6));
		return bpf_skb_set_tunnel_key(ctx, &key, sizeof(key), BPF_F_TUNINFO_IPV6);
	}
	key.remote_ipv4 = bpf_ntohl(addr_word(&to->ipv4, 3)); /* the helper has IPv4 in the order of the host */
	key.local_ipv4 = bpf_ntohl(addr_word(&to->local, 3));
	/* What is inside has checksums of its own, and many cards cannot segment tunnels with one outside (RFC 7348, section 5). */
	return bpf_skb_set_tunnel_key(ctx, &key, sizeof(key), BPF_F_ZERO_CSUM_TX);
}

/*
 * sender_set writes another link address than the device's, which is the same one on all nodes: the driver drops what is
 * from its own address, as a loop.
 */
static __always_inline int sender_set(struct __sk_buff *ctx)
{
	const struct mac sender = { { 0x06, 'p', 'o', 'r', 'i', 'n' } };

	return bpf_skb_store_bytes(ctx, ETH_ALEN, &sender, sizeof(sender), 0);
}

/* to_tunnel sees what the node sends by the device: egress, after to_uplink. */
SEC("tc")
int to_tunnel(struct __sk_buff *ctx)
{
	struct packet pkt = {};
	const struct owner *to;

	if (packet_parse(ctx, &pkt))
		return drop_to(TUNNEL_DROP_MALFORMED);
	if (destination_is_link_local(&pkt) || destination_is_multicast(&pkt))
		return drop_to(TUNNEL_DROP_LINK);
	to = owner_of(&pkt.destination);
	if (!to || to->flags & OWNER_SELF || !(to->flags & OWNER_PODS))
		return drop_to(TUNNEL_DROP_NO_NODE);
	if (tunnel_set(ctx, to) || sender_set(ctx))
		return drop_to(TUNNEL_DROP_MALFORMED);
	return VERDICT_NEXT;
}

/* tunnel_read finds the outer source and destination, and the number of the network. Linux has the destination since 6.0. */
static __always_inline int tunnel_read(struct __sk_buff *ctx, struct addr *sender, struct addr *receiver, __u32 *network)
{
	struct bpf_tunnel_key key = {};

	if (!bpf_skb_get_tunnel_key(ctx, &key, sizeof(key), 0)) {
		addr_from_ipv4(sender, bpf_htonl(key.remote_ipv4));
		addr_from_ipv4(receiver, bpf_htonl(key.local_ipv4));
	} else if (!bpf_skb_get_tunnel_key(ctx, &key, sizeof(key), BPF_F_TUNINFO_IPV6)) {
		__builtin_memcpy(sender->byte, key.remote_ipv6, sizeof(sender->byte));
		__builtin_memcpy(receiver->byte, key.local_ipv6, sizeof(receiver->byte));
	} else {
		return -1;
	}
	*network = key.tunnel_id;
	return 0;
}

/* is_node: is it an address of another node? */
static __always_inline _Bool is_node(const struct addr *addr)
{
	const struct owner *node = owner_of(addr);

	return node && !(node->flags & (OWNER_SELF | OWNER_PODS));
}

/* is_this_node: is it an address of this node, and not of a pod or of the tunnel device? */
static __always_inline _Bool is_this_node(const struct addr *addr)
{
	const struct owner *node = owner_of(addr);

	return node && (node->flags & (OWNER_SELF | OWNER_PODS)) == OWNER_SELF;
}

/* tunnel_verify returns why a packet must not enter the node, or 0. */
static __always_inline __u32 tunnel_verify(struct __sk_buff *ctx, const struct packet *pkt, const struct addr *sender)
{
	const struct owner *from, *to;

	if (ctx->pkt_type != PACKET_HOST || addr_verify(pkt, &pkt->source) || addr_verify(pkt, &pkt->destination))
		return TUNNEL_DROP_MALFORMED;
	from = owner_of(&pkt->source);
	if (!from || from->flags & OWNER_SELF || (!addr_equal(&from->ipv4, sender) && !addr_equal(&from->ipv6, sender)))
		return TUNNEL_DROP_SOURCE;
	to = owner_of(&pkt->destination);
	if (!to || !(to->flags & OWNER_SELF) || !(to->flags & OWNER_PODS))
		return TUNNEL_DROP_DESTINATION;
	return 0;
}

/* from_tunnel sees what comes by the device: ingress. */
SEC("tc")
int from_tunnel(struct __sk_buff *ctx)
{
	struct packet pkt = {};
	struct addr sender, receiver;
	__u32 network, reason;

	if (tunnel_read(ctx, &sender, &receiver, &network))
		return drop_from(TUNNEL_DROP_MALFORMED);
	if (network != TUNNEL_NETWORK)
		return drop_from(TUNNEL_DROP_NETWORK);
	if (!is_node(&sender))
		return drop_from(TUNNEL_DROP_UNKNOWN_NODE);
	if (!is_this_node(&receiver))
		return drop_from(TUNNEL_DROP_OUTER_DESTINATION);
	if (packet_parse(ctx, &pkt))
		return drop_from(TUNNEL_DROP_MALFORMED);
	reason = tunnel_verify(ctx, &pkt, &sender);
	return reason ? drop_from(reason) : VERDICT_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
