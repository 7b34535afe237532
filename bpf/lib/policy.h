/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of network policy, as the agent has compiled it, and their lookup: may one address open a connection to
 * another?
 *
 *	address --addresses, else prefixes--> class --.
 *	endpoint ID --policies--> table ---------------+--tables: (table, class), else (table, 0)--> set of rows --rows--> verdict
 *
 * The rows of a set never change: when a class gets new verdicts, one update of the map tables points it to another
 * set.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "parse.h"
#include "types.h"

/* By endpoint ID. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* the proxy reads it for each request */
	__type(key, __u32);
	__type(value, struct policy);
} policies SEC(".maps");

/* One entry: bit 0 says which copy is active. Earlier agents have written other bits, too. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active_copy SEC(".maps");

/* Addresses of pods and nodes that the agent knows -> class. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct address_key);
	__type(value, __u32);
} addresses SEC(".maps");

/* All other addresses -> class. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct prefix_key);
	__type(value, __u32);
} prefixes SEC(".maps");

/* Table and class -> set of rows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct table_key);
	__type(value, __u32);
} tables SEC(".maps");

/* Set of rows, protocol and port -> verdict. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct row_key);
	__type(value, __u32);
} rows SEC(".maps");

/* One entry. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unmanaged);
} unmanaged SEC(".maps");

static __always_inline const struct policy *policy_of(__u32 id)
{
	return bpf_map_lookup_elem(&policies, &id);
}

static __always_inline __u32 policy_revision(__u32 id)
{
	const struct policy *p = policy_of(id);

	return p ? p->revision : 0;
}

/* policy_copy returns the active copy, 0 or 1. */
static __always_inline __u32 policy_copy(void)
{
	__u32 first = 0;
	const __u32 *copy = bpf_map_lookup_elem(&active_copy, &first);

	return copy ? *copy & 1 : 0;
}

/* policy_restricts: does any policy apply to the pod? */
static __always_inline _Bool policy_restricts(__u32 id)
{
	const struct policy *p = policy_of(id);
	__u32 copy = policy_copy();

	return p && (copy ? p->egress[1] | p->ingress[1] : p->egress[0] | p->ingress[0]);
}

/* class_of returns the class of an address, with its CLASS_... bits. As a global function it is verified by itself, once. */
__noinline int class_of(const struct addr *addr, __u32 copy)
{
	struct prefix_key prefix = { .bits = 160, .copy = copy };
	struct address_key key = { .copy = copy };
	const __u32 *class;

	if (!addr)
		return CLASS_WORLD;
	key.addr = *addr;
	class = bpf_map_lookup_elem(&addresses, &key);
	if (class)
		return *class;
	__builtin_memcpy(prefix.addr, addr->byte, sizeof(prefix.addr));
	class = bpf_map_lookup_elem(&prefixes, &prefix);
	return class ? *class : CLASS_WORLD;
}

/*
 * table_verdict looks up ROW_DENY, ROW_ALLOW or the number of the proxy's rules. port is in wire order. A missing entry means deny: the
 * agent gives each table rows for class 0, which stands for all others. As a global function it is verified by itself, once.
 */
__noinline int table_verdict(__u32 table, __u32 class, __u32 protocol, __u32 port)
{
	struct table_key key = { .table = table, .class = class & ~CLASS_BITS };
	struct row_key row = { .bits = 56, .protocol = protocol };
	const __u32 *set, *verdict;

	set = bpf_map_lookup_elem(&tables, &key);
	if (!set) {
		key.class = 0;
		set = bpf_map_lookup_elem(&tables, &key);
	}
	if (!set || *set == ROWS_DENY)
		return ROW_DENY;
	if (*set == ROWS_ALLOW)
		return ROW_ALLOW;
	row.rows = *set;
	row.port[0] = port;
	row.port[1] = port >> 8;
	verdict = bpf_map_lookup_elem(&rows, &row);
	return verdict ? *verdict : ROW_DENY;
}

static __always_inline struct unmanaged *unmanaged_count(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&unmanaged, &first);
}

/* decided turns a verdict into DROP_NONE, DROP_PROXY, or the reason to drop what the class may not do. */
static __always_inline enum drop_reason decided(__u32 verdict, __u32 class, enum drop_reason reason)
{
	struct unmanaged *count;

	if (verdict != ROW_DENY)
		return verdict == ROW_ALLOW ? DROP_NONE : DROP_PROXY;
	if (!(class & CLASS_UNMANAGED))
		return reason;
	count = unmanaged_count();
	if (count)
		count->denied++;
	return DROP_POLICY_UNMANAGED;
}

/*
 * decide_egress returns an enum drop_reason: may the pod open a connection to the address? DROP_PROXY is that it may by
 * way of the proxy. port is in wire order. As a global function it is verified by itself, once.
 */
__noinline int decide_egress(__u32 id, const struct addr *to, __u32 protocol, __u32 port)
{
	const struct policy *p = policy_of(id);
	__u32 copy = policy_copy(), table, class;

	if (!p || !to)
		return DROP_POLICY_EGRESS;
	table = copy ? p->egress[1] : p->egress[0];
	if (!table)
		return DROP_NONE;
	class = class_of(to, copy);
	return decided(table_verdict(table, class, protocol, port), class, DROP_POLICY_EGRESS);
}

/* fragment_port is the port of a later fragment in the rows of PROTOCOL_FRAGMENT. */
static __always_inline __be16 fragment_port(__u8 protocol)
{
	return is_extension(protocol) ? 0 : protocol;
}

/*
 * decide_ingress returns an enum drop_reason: may the address open a connection to the pod? from_node says that the
 * node itself has sent the packet. If it has only forwarded it, an address of the node counts as one from outside.
 * DROP_PROXY is that it may by way of the proxy. port is in wire order. As a global function it is verified by itself,
 * once.
 */
__noinline int decide_ingress(__u32 id, const struct addr *from, __u32 from_node, __u32 protocol, __u32 port)
{
	const struct policy *p = policy_of(id);
	__u32 copy = policy_copy(), table, class;
	struct unmanaged *count;
	enum drop_reason reason;

	if (!p || !from)
		return DROP_POLICY_INGRESS;
	table = copy ? p->ingress[1] : p->ingress[0];
	if (!table)
		return DROP_NONE;
	class = class_of(from, copy);
	if (class & CLASS_HOST && !from_node)
		class = CLASS_WORLD;
	reason = decided(table_verdict(table, class, protocol, port), class, DROP_POLICY_INGRESS);
	if (!reason && class & CLASS_UNMANAGED) {
		count = unmanaged_count();
		if (count)
			count->passed++;
	}
	return reason;
}

/* both returns why one of two decisions drops the packet. That one needs the proxy matters only if the other one does not deny. */
static __always_inline enum drop_reason both(enum drop_reason one, enum drop_reason other)
{
	return one && one != DROP_PROXY ? one : other ? other : one;
}

/*
 * connection_decide returns an enum drop_reason: may the side that has opened the connection do so, by the policies of
 * the pod and of the pod c->peer_id, if there is one? DROP_PROXY is that it may by way of the proxy. The addresses and ports of the key
 * are the real ones, without the node's translation. As a global function it is verified by itself, once.
 */
__noinline int connection_decide(const struct connection_key *key, const struct connection *c, __u32 opened)
{
	enum drop_reason reason = DROP_NONE;

	if (!key || !c)
		return DROP_MALFORMED;
	if (c->id == c->peer_id)
		return DROP_NONE; /* a pod reaches itself */
	if (opened == OPENED_BY_POD) {
		reason = decide_egress(c->id, &key->remote, key->protocol, key->remote_port);
		if (c->peer_id && (!reason || reason == DROP_PROXY))
			reason = both(reason, decide_ingress(c->peer_id, &c->local, 0, key->protocol, key->remote_port));
		return reason;
	}
	if (c->peer_id)
		reason = decide_egress(c->peer_id, &c->local, key->protocol, key->local_port);
	if (reason && reason != DROP_PROXY)
		return reason;
	return both(reason, decide_ingress(c->id, &key->remote, opened == OPENED_BY_NODE, key->protocol, key->local_port));
}

/*
 * connection_guess decides policy for a segment of a connection whose opener is unknown: its entry was lost, as after two hours without
 * packets. The segment passes if policy lets one of the two sides open the connection, and none of them by way of the proxy: a wrong
 * guess would let its data bypass the proxy. sent says that the pod has sent the segment, by_other how the other side would have
 * opened the connection. It sets STATE_GUESSED and STATE_OPENED_HERE; with DROP_PROXY, STATE_OPENED_HERE if the proxy is for the pod's
 * requests.
 */
static __always_inline enum drop_reason connection_guess(const struct connection_key *key, struct connection *c, _Bool sent, enum opened by_other)
{
	const __u8 here = STATE_OPENED_HERE | STATE_GUESSED, there = STATE_GUESSED;
	enum drop_reason pod = connection_decide(key, c, OPENED_BY_POD), other = connection_decide(key, c, by_other);
	__u8 kept = c->state & STATE_TRANSLATED;

	c->state = kept | (pod == DROP_PROXY ? here : there);
	if (pod == DROP_PROXY || other == DROP_PROXY)
		return DROP_PROXY;
	if (sent) {
		c->state = kept | (pod ? there | STATE_REPLIED : here);
		return pod && other ? pod : DROP_NONE;
	}
	c->state = kept | (other ? here | STATE_REPLIED : there);
	return pod && other ? other : DROP_NONE;
}

/* connection_is_current: the policies have not changed since the decision. */
static __always_inline _Bool connection_is_current(const struct connection *c)
{
	return c->revision == policy_revision(c->id) && c->peer_revision == policy_revision(c->peer_id);
}

/*
 * connection_read_revisions must run before connection_decide: if a policy changes in between, the next packet is
 * decided anew.
 */
static __always_inline void connection_read_revisions(struct connection *c)
{
	c->revision = policy_revision(c->id);
	c->peer_revision = policy_revision(c->peer_id);
}

/*
 * connection_leave_undecided gives an entry a revision that the policy does not have, so that the first packet that
 * policy applies to, a reply, is decided.
 */
static __always_inline void connection_leave_undecided(struct connection *c)
{
	c->revision = ~c->revision;
}
