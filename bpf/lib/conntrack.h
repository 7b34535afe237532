/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Questions to the node's own connection tracking, nf_conntrack. A connection that it knows has been through the node's
 * stack, where Services, host ports and masquerading translate addresses. The programs ask only for a packet that has
 * no entry in the map connections, or whose policy is decided anew. They change it only for a SYN that clashes with a
 * connection past the stack, and for requests that policy denies.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "addr.h"
#include "flow.h"
#include "parse.h"

/* As in net/netfilter/nf_conntrack_bpf.c, Linux 5.18. */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

#define CURRENT_NETNS -1

union nf_inet_addr {
	__u32 all[4];
} __attribute__((preserve_access_index));

union nf_conntrack_man_proto {
	__be16 all;
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} __attribute__((preserve_access_index)) u;
	} __attribute__((preserve_access_index)) dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_conn {
	unsigned long status;
	struct nf_conntrack_tuple_hash tuplehash[2]; /* original direction, and that of replies */
} __attribute__((preserve_access_index));

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts *opts,
					 __u32 opts_size) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *conn) __ksym __weak;

/* One that is not in conntrack's table yet. The kernel gives it 10 s there. */
struct nf_conn___init {
	struct nf_conn ct;
};

/* Linux 6.0. */
extern struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple, __u32 size, struct bpf_ct_opts *opts,
					       __u32 opts_size) __ksym __weak;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *conn) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn *conn, __u32 timeout) __ksym __weak;

/*
 * Whether the kernel has these functions. The agent finds out and sets it: the verifier refuses to compare the address
 * of a function of a module.
 */
volatile const __u8 conntrack_present;

/* conntrack_supports: can the programs ask conntrack about the protocol? */
static __always_inline _Bool conntrack_supports(__u8 protocol)
{
	return conntrack_present && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP);
}

#define IPS_SEEN_REPLY 0x02
#define IPS_CONFIRMED 0x08
#define IPS_NAT 0x30 /* IPS_SRC_NAT | IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h */

/* What conntrack knows of a connection. */
enum conntrack_answer {
	CONNTRACK_UNKNOWN = 0,
	CONNTRACK_KNOWN = 1,	  /* it has been through the stack */
	CONNTRACK_TRANSLATED = 2, /* and addresses or ports of it were translated */
};

static __always_inline enum conntrack_answer conntrack_ask(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple,
							   __u32 size, __u8 protocol)
{
	struct bpf_ct_opts opts = { .netns_id = CURRENT_NETNS, .l4proto = protocol };
	struct nf_conn *conn = bpf_skb_ct_lookup(ctx, tuple, size, &opts, sizeof(opts));
	enum conntrack_answer answer = CONNTRACK_UNKNOWN;

	if (conn) {
		answer = conn->status & IPS_NAT ? CONNTRACK_TRANSLATED : CONNTRACK_KNOWN;
		bpf_ct_release(conn);
		/* conn must be compared only once: after a second comparison Linux 6.1 takes it for not released. */
		barrier_var(answer);
	}
	return answer;
}

static __always_inline void addr_to_ipv6(__be32 *to, const struct addr *addr)
{
	const __be32 *word = (const __be32 *)addr->byte;

	to[0] = word[0];
	to[1] = word[1];
	to[2] = word[2];
	to[3] = word[3];
}

static __always_inline void tuple_of(struct bpf_sock_tuple *tuple, _Bool ipv4, const struct addr *from, __be16 from_port,
				     const struct addr *to, __be16 to_port)
{
	if (ipv4) {
		tuple->ipv4.saddr = ((const __be32 *)from->byte)[3];
		tuple->ipv4.daddr = ((const __be32 *)to->byte)[3];
		tuple->ipv4.sport = from_port;
		tuple->ipv4.dport = to_port;
		return;
	}
	addr_to_ipv6(tuple->ipv6.saddr, from);
	addr_to_ipv6(tuple->ipv6.daddr, to);
	tuple->ipv6.sport = from_port;
	tuple->ipv6.dport = to_port;
}

static __always_inline enum conntrack_answer conntrack_lookup_tuple(struct __sk_buff *ctx, const struct addr *from,
								    __be16 from_port, const struct addr *to,
								    __be16 to_port, __u8 protocol)
{
	_Bool ipv4 = ctx->protocol == bpf_htons(ETH_P_IP);
	struct bpf_sock_tuple tuple = {};

	tuple_of(&tuple, ipv4, from, from_port, to, to_port);
	return conntrack_ask(ctx, &tuple, ipv4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6), protocol);
}

/* key_set_remote makes one end of a tracked connection the remote side of the key. */
static __always_inline void key_set_remote(struct connection_key *key, const union nf_inet_addr *from, __be16 port)
{
	struct addr addr = {};
	__be32 *word = (__be32 *)addr.byte;

	if (key->family == 4) {
		word[2] = bpf_htonl(0xffff);
		word[3] = from->all[0];
	} else {
		word[0] = from->all[0];
		word[1] = from->all[1];
		word[2] = from->all[2];
		word[3] = from->all[3];
	}
	key->remote = addr;
	key->remote_port = port;
}

/*
 * conntrack_opener returns who has opened the pod's connection, an enum opened, or 0 when conntrack does not know it.
 * It replaces the remote side of *key by the real one, without the node's translation. As a global function it is
 * verified by itself, once.
 */
__noinline int conntrack_opener(struct __sk_buff *ctx, struct connection_key *key, const struct addr *local)
{
	struct bpf_ct_opts opts = { .netns_id = CURRENT_NETNS };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *conn;
	int opened;

	if (!key || !local || !conntrack_supports(key->protocol))
		return 0;
	opts.l4proto = key->protocol;
	tuple_of(&tuple, key->family == 4, local, key->local_port, &key->remote, key->remote_port);
	conn = bpf_skb_ct_lookup(ctx, &tuple, key->family == 4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6), &opts, sizeof(opts));
	if (!conn)
		return 0;
	if (opts.dir) {
		opened = OPENED_BY_OTHER;
		key_set_remote(key, &conn->tuplehash[0].tuple.src.u3, conn->tuplehash[0].tuple.src.u.all);
	} else {
		opened = OPENED_BY_POD;
		key_set_remote(key, &conn->tuplehash[1].tuple.src.u3, conn->tuplehash[1].tuple.src.u.all);
	}
	bpf_ct_release(conn);
	return opened;
}

/*
 * conntrack_original replaces, in the key of a request that the node has translated, remote side and local port by those that the pod has sent it
 * with. local is the source address that it has now. As a global function it is verified by itself, once.
 */
__noinline int conntrack_original(struct __sk_buff *ctx, struct connection_key *key, const struct addr *local)
{
	struct bpf_ct_opts opts = { .netns_id = CURRENT_NETNS };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *conn;

	if (!key || !local || !conntrack_supports(key->protocol))
		return 0;
	opts.l4proto = key->protocol;
	tuple_of(&tuple, key->family == 4, &key->remote, key->remote_port, local, key->local_port);
	conn = bpf_skb_ct_lookup(ctx, &tuple, key->family == 4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6), &opts, sizeof(opts));
	if (!conn)
		return 0;
	if (opts.dir) {
		key->local_port = conn->tuplehash[0].tuple.src.u.all;
		key_set_remote(key, &conn->tuplehash[0].tuple.dst.u3, conn->tuplehash[0].tuple.dst.u.all);
	}
	bpf_ct_release(conn);
	return 1;
}

/*
 * conntrack_lookup returns an enum conntrack_answer. It tries the tuple of a packet from the pod, and then the inverse:
 * of a connection whose replies are translated, conntrack has only one of the two. As a global function it is verified
 * by itself, once.
 */
__noinline int conntrack_lookup(struct __sk_buff *ctx, const struct connection_key *key, const struct addr *local)
{
	enum conntrack_answer answer;

	if (!key || !local)
		return CONNTRACK_UNKNOWN;
	answer = conntrack_lookup_tuple(ctx, local, key->local_port, &key->remote, key->remote_port, key->protocol);
	if (answer)
		return answer;
	return conntrack_lookup_tuple(ctx, &key->remote, key->remote_port, local, key->local_port, key->protocol);
}

/*
 * conntrack_has: is the packet of a connection that has been through the stack? A SYN opens another one than conntrack knows under
 * the same addresses and ports, unless these come from a translation. To the stack it might be invalid.
 */
static __always_inline _Bool conntrack_has(struct __sk_buff *ctx, const struct connection_key *key, const struct addr *local,
					   const struct flow *flow)
{
	enum conntrack_answer answer = conntrack_lookup(ctx, key, local);

	return answer != CONNTRACK_UNKNOWN && !(answer == CONNTRACK_KNOWN && flow->flags & FLOW_OPENS);
}

/*
 * conntrack_expire removes the entry of a connection if its status has at least one bit of with, and no bit of without. It
 * returns whether it has removed the entry.
 */
static __always_inline _Bool conntrack_expire(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u8 protocol, __u32 with,
					      __u32 without)
{
	struct bpf_ct_opts opts = { .netns_id = CURRENT_NETNS, .l4proto = protocol };
	struct nf_conn *conn = bpf_skb_ct_lookup(ctx, tuple, size, &opts, sizeof(opts));
	_Bool matches;

	if (!conn)
		return 0;
	matches = conn->status & with && !(conn->status & without);
	if (matches)
		bpf_ct_change_timeout(conn, 0);
	bpf_ct_release(conn);
	if (matches)
		conntrack_ask(ctx, tuple, size, protocol); /* a lookup removes what is over */
	return matches;
}

/*
 * conntrack_remove removes the conntrack entry of a packet that went through the stack, unless its connection is answered. As a
 * global function it is verified by itself, once.
 */
__noinline int conntrack_remove(struct __sk_buff *ctx, const struct packet *pkt, const struct flow *flow)
{
	struct bpf_sock_tuple tuple = {};
	_Bool ipv4;

	if (!pkt || !flow || !conntrack_supports(flow->protocol))
		return 0;
	ipv4 = pkt->protocol == bpf_htons(ETH_P_IP);
	tuple_of(&tuple, ipv4, &pkt->destination, flow->destination_port, &pkt->source, flow->source_port);
	return conntrack_expire(ctx, &tuple, ipv4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6), flow->protocol, IPS_CONFIRMED, IPS_SEEN_REPLY);
}

/*
 * conntrack_prevent_clash handles a SYN that the node has translated to the addresses and ports of a connection past the
 * stack, of which conntrack knows nothing. Conntrack forgets the SYN, and knows the other
 * connection for 10 s. So when the SYN is sent again, the node gives it another source port. As a global function it is
 * verified by itself, once.
 */
__noinline int conntrack_prevent_clash(struct __sk_buff *ctx, const struct connection_key *key, const struct addr *local)
{
	struct bpf_ct_opts opts = { .netns_id = CURRENT_NETNS };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn___init *new;
	struct nf_conn *conn;
	_Bool ipv4;
	__u32 size;

	if (!key || !local || !conntrack_supports(key->protocol))
		return 0;
	ipv4 = key->family == 4;
	size = ipv4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6);
	tuple_of(&tuple, ipv4, local, key->local_port, &key->remote, key->remote_port);
	if (!conntrack_expire(ctx, &tuple, size, key->protocol, IPS_NAT, 0))
		return 0;
	tuple_of(&tuple, ipv4, &key->remote, key->remote_port, local, key->local_port);
	opts.l4proto = key->protocol;
	new = bpf_skb_ct_alloc(ctx, &tuple, size, &opts, sizeof(opts));
	if (!new)
		return 0;
	conn = bpf_ct_insert_entry(new);
	if (conn)
		bpf_ct_release(conn);
	return 0;
}
