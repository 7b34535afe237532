/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who is where: the pods of this node by address and by link. The agent writes both maps and removes what it wrote;
 * programs only read, and a pod without its entries gets and sends nothing. Nothing is ever evicted.
 *
 * Plain hash maps, as an update of one takes 1 us, while a map in a map or a TCX link waits for RCU. They are not
 * preallocated, so a node pays for the pods it has and not for those it might have.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Address -> struct endpoint. Two entries for a pod that has both families. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct addr);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* Index of the host end -> struct link. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

/* endpoint_lookup returns the local owner of an address, or NULL: the address is not of a pod of this node. */
static __always_inline const struct endpoint *endpoint_lookup(const struct addr *addr)
{
	return bpf_map_lookup_elem(&endpoints, addr);
}

/* is_limited: is the bandwidth of the address's owner limited? NULL is nobody. */
static __always_inline _Bool is_limited(const struct endpoint *owner)
{
	return owner && owner->flags & ENDPOINT_LIMITED;
}

/* link_lookup returns the pod at the other end of the device that the program runs on, or NULL. */
static __always_inline const struct link *link_lookup(const struct __sk_buff *ctx)
{
	__u32 ifindex = ctx->ifindex;

	return bpf_map_lookup_elem(&links, &ifindex);
}

/* link_id returns the ID of that pod, or NO_ENDPOINT. */
static __always_inline __u32 link_id(const struct __sk_buff *ctx)
{
	const struct link *link = link_lookup(ctx);

	return link ? link->id : NO_ENDPOINT;
}
