/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The map redirected: who has opened what the proxy is about to accept. The programs write it, and the proxy reads it.
 *
 * An entry is needed for the length of a handshake only, and the proxy removes it then. What is never accepted, as of a flood of
 * SYNs, stays. So each endpoint has a share: a further entry takes the place of its own oldest one, and of nobody else's. Only
 * when more endpoints have used up their shares than the map has room for (32), the oldest entry of all goes.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

#define REDIRECTS 16384

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REDIRECTS);
	__type(key, struct redirect_key);
	__type(value, struct redirect);
} redirected SEC(".maps");

/* The entries of each endpoint, in the order in which they were made. One that is lost, or out of date, does no harm. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REDIRECTS);
	__type(key, struct redirect_turn);
	__type(value, struct redirect_key);
} redirect_turns SEC(".maps");

/* By endpoint ID: how many entries were made. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINT_IDS);
	__type(key, __u32);
	__type(value, __u32);
} redirect_counts SEC(".maps");

/* redirect_forget removes the entry that has the turn, unless its key has got another turn since. */
static __always_inline void redirect_forget(const struct redirect_turn *at)
{
	const struct redirect_key *key = bpf_map_lookup_elem(&redirect_turns, at);
	const struct redirect *oldest;
	struct redirect_key copy;

	if (!key)
		return;
	copy = *key;
	oldest = bpf_map_lookup_elem(&redirected, &copy);
	if (oldest && oldest->turn == at->turn)
		bpf_map_delete_elem(&redirected, &copy);
}

/* redirect_is_recent: have fewer entries than half of the share been made since this one? */
static __always_inline _Bool redirect_is_recent(const struct redirect *entry, __u32 count)
{
	return (count - 1 - entry->turn) % REDIRECT_SHARE < REDIRECT_SHARE / 2;
}

/*
 * redirect_put writes an entry, which counts in the share of the endpoint. A packet that is sent again keeps its turn, unless that would soon be
 * another one's: a socket for datagrams may use the same ports for long.
 */
static __always_inline void redirect_put(const struct redirect_key *key, struct redirect *from, __u32 id)
{
	const struct redirect *before = bpf_map_lookup_elem(&redirected, key);
	__u32 *count = bpf_map_lookup_elem(&redirect_counts, &id);
	struct redirect_turn at = { .id = id };

	if (!count)
		return;
	if (before && redirect_is_recent(before, *count)) {
		from->turn = before->turn;
	} else {
		from->turn = at.turn = __sync_fetch_and_add(count, 1) % REDIRECT_SHARE;
		redirect_forget(&at);
		bpf_map_update_elem(&redirect_turns, &at, key, BPF_ANY);
	}
	bpf_map_update_elem(&redirected, key, from, BPF_ANY);
}
