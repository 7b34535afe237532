//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program that finds the proxy's listening socket for a packet that opens a connection. The kernel runs it when no socket is
 * connected to the packet's addresses and ports, before it looks for sockets that are bound to them (SK_LOOKUP, Linux 5.9). What
 * comes by the device porin-l7 is for the proxy, whatever its destination; all else is not touched.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "lib/types.h"

#define AF_INET 2

/* Index of the device porin-l7. */
volatile const __u32 proxy_link;

/* enum listener -> socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

SEC("sk_lookup")
int select_listener(struct bpf_sk_lookup *ctx)
{
	_Bool ipv4 = ctx->family == AF_INET;
	struct bpf_sock *socket;
	__u32 listener;
	long err;

	if (ctx->ingress_ifindex != proxy_link)
		return SK_PASS;
	if (ctx->protocol == IPPROTO_TCP)
		listener = ipv4 ? LISTENER_TCP4 : LISTENER_TCP6;
	else
		listener = ipv4 ? LISTENER_UDP4 : LISTENER_UDP6;
	socket = bpf_map_lookup_elem(&listeners, &listener);
	if (!socket)
		return SK_DROP;
	err = bpf_sk_assign(ctx, socket, 0);
	bpf_sk_release(socket);
	return err ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
