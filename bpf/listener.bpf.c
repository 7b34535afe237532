//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program that finds the proxy's listening socket for a packet that opens a connection. The kernel runs it when no socket is
 * connected to the packet's addresses and ports, before it looks for sockets that are bound to them (SK_LOOKUP, Linux 5.9). So does
 * the table inet porin-proxy of nftables, which asks for the packet's socket, and has packets of the proxy's delivered. The proxy gets
 *
 *	what comes by the device porin-l7, whatever its destination: to_pod or to_uplink has decided that
 *	what a pod sends to an address of the node itself, if the pod's egress policy says so. No other program sees such a
 *	packet after the node's translation.
 *
 * All else is not touched. Without a socket of the proxy the packet is dropped.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lib/addr.h"
#include "lib/connection.h"
#include "lib/endpoint.h"
#include "lib/policy.h"
#include "lib/redirects.h"
#include "lib/types.h"

#define AF_INET 2

/* Index of the device porin-l7. */
volatile const __u32 device;

/* enum listener -> socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

/* key_read fills in who is connected to whom. */
static __always_inline void key_read(struct redirect_key *key, struct bpf_sk_lookup *ctx)
{
	__be32 *client = (__be32 *)key->client.byte, *server = (__be32 *)key->server.byte;

	key->client_port = ctx->remote_port;
	key->server_port = bpf_htons(ctx->local_port);
	key->protocol = ctx->protocol;
	if (ctx->family == AF_INET) {
		key->family = 4;
		client[2] = server[2] = bpf_htonl(0xffff);
		client[3] = ctx->remote_ip4;
		server[3] = ctx->local_ip4;
		asm volatile("" ::: "memory"); /* the verifier wants each field of ctx in an instruction of its own */
		return;
	}
	key->family = 6;
	client[0] = ctx->remote_ip6[0];
	client[1] = ctx->remote_ip6[1];
	client[2] = ctx->remote_ip6[2];
	client[3] = ctx->remote_ip6[3];
	server[0] = ctx->local_ip6[0];
	server[1] = ctx->local_ip6[1];
	server[2] = ctx->local_ip6[2];
	server[3] = ctx->local_ip6[3];
}

/* is_limited_by_rules: does the proxy decide about the packet, which a pod sends to the node itself? Then it is told of the pod. */
static __always_inline _Bool is_limited_by_rules(struct bpf_sk_lookup *ctx)
{
	struct redirect from = {};
	__u32 ifindex = ctx->ingress_ifindex;
	struct redirect_key key = {};
	const struct link *sender;

	sender = bpf_map_lookup_elem(&links, &ifindex);
	if (!sender)
		return 0;
	key_read(&key, ctx);
	if (!(class_of(&key.server, policy_copy()) & CLASS_HOST))
		return 0; /* the node forwards it */
	if (decide_egress(sender->id, &key.server, key.protocol, key.server_port) != DROP_PROXY)
		return 0;
	from.source = key.family == 4 ? sender->ipv4 : sender->ipv6;
	from.id = sender->id;
	from.generation = slot_generation(from.id);
	redirect_put(&key, &from, from.id);
	return 1;
}

SEC("sk_lookup")
int select_listener(struct bpf_sk_lookup *ctx)
{
	_Bool ipv4 = ctx->family == AF_INET;
	struct bpf_sock *socket;
	__u32 listener;
	long err;

	if (ctx->ingress_ifindex != device && !is_limited_by_rules(ctx))
		return SK_PASS;
	if (ctx->protocol == IPPROTO_TCP)
		listener = ipv4 ? LISTENER_TCP4 : LISTENER_TCP6;
	else if (ipv4) /* the last bits of addresses of pods differ */
		listener = LISTENER_UDP4 + bpf_ntohl(ctx->remote_ip4) % UDP_LISTENERS;
	else
		listener = LISTENER_UDP6 + bpf_ntohl(ctx->remote_ip6[3]) % UDP_LISTENERS;
	socket = bpf_map_lookup_elem(&listeners, &listener);
	if (!socket)
		return SK_DROP;
	err = bpf_sk_assign(ctx, socket, 0);
	bpf_sk_release(socket);
	return err ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
