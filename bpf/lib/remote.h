/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which addresses pods of other nodes have. The agent writes the map.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Blocks of other nodes -> 1. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct cidr_key);
	__type(value, __u32);
} remote_blocks SEC(".maps");

/* is_remote_pod: is the address in a block of another node? */
static __always_inline _Bool is_remote_pod(const struct addr *addr)
{
	struct cidr_key key = { .bits = 128 };

	__builtin_memcpy(key.addr, addr->byte, sizeof(key.addr));
	return bpf_map_lookup_elem(&remote_blocks, &key) != NULL;
}
