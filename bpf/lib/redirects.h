/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The map redirects: who has opened what the proxy is about to accept. The programs write it, and the proxy reads it. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* An entry is needed for the length of a handshake only. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct redirect_key);
	__type(value, struct redirect);
} redirects SEC(".maps");
