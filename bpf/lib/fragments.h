/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Later fragments have no ports, so the first fragment decides for the following ones. That matters only where the node's
 * conntrack does not reassemble datagrams. The map connections has one entry for all fragments between a pod and an address.
 */
#pragma once

#include "connection.h"
#include "parse.h"
#include "policy.h"
#include "types.h"
#include "usage.h"

static __always_inline void fragments_key(struct connection_key *all, const struct connection_key *key)
{
	*all = *key;
	all->local_port = all->remote_port = 0;
	all->fragments = 1;
}

/* fragments_pass: has the first fragment of a datagram with these addresses passed? As a global function it is verified by itself, once. */
__noinline int fragments_pass(const struct connection_key *key, __u32 now)
{
	const struct connection *own;
	struct connection_key all;
	struct connection c;

	if (!key)
		return 0;
	fragments_key(&all, key);
	own = bpf_map_lookup_elem(&connections, &all);
	return own && connection_copy(&c, own, &all) && connection_is_valid(&c, now) && connection_is_current(&c);
}

/*
 * fragments_note makes later fragments pass: policy has let the first one pass, and *c is its connection. As a
 * global function it is verified by itself, once.
 */
__noinline int fragments_note(const struct connection_key *key, const struct connection *c, __u32 now)
{
	struct connection_key all;
	struct connection entry, *own;

	if (!key || !c || !policy_restricts(c->id))
		return 0;
	fragments_key(&all, key);
	own = bpf_map_lookup_elem(&connections, &all);
	if (own && connection_is_valid(own, now) && connection_is_current(own)) {
		connection_touch(own, all.protocol, 0, now);
		return 0;
	}
	if (own)
		connection_delete(&all, own->charged);
	entry = *c;
	entry.path = PATH_STACK;
	entry.peer_ifindex = 0;
	if (usage_allows(entry.charged, 1))
		connection_insert(&all, &entry, now);
	return 0;
}

static __always_inline _Bool is_first_fragment(const struct packet *pkt)
{
	return pkt->transport.fragment && !pkt->transport.later;
}
