/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which node has an address. The agent writes it of what the nodes publish: their blocks, and their own addresses. No two
 * nodes have an address in common.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct cidr_key);
	__type(value, struct owner);
} owners SEC(".maps");

/* owner_of returns the node that has the address, or NULL. */
static __always_inline const struct owner *owner_of(const struct addr *addr)
{
	struct cidr_key key = { .bits = 128 };

	__builtin_memcpy(key.addr, addr->byte, sizeof(key.addr));
	return bpf_map_lookup_elem(&owners, &key);
}
