/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The types that C and Go share. Go has them as package abi, generated from here, and nobody writes one of them twice.
 *
 * All of it is ABI: maps and their entries outlive the programs that read them, across upgrades. Values are appended
 * and never renumbered; a struct that must change shape gets a map of a new name. No struct has hidden padding, and
 * what comes from the wire stays in the order of the wire.
 */
#pragma once

#include <linux/types.h>

/* An address of either family, in wire order: IPv4 as ::ffff:a.b.c.d (RFC 4291, section 2.5.5.2). */
struct addr {
	__u8 byte[16];
} __attribute__((aligned(8)));

struct mac {
	__u8 byte[6];
} __attribute__((aligned(2)));

/* Value of the map endpoints: where the owner of an address is, and how a frame to it is addressed. */
struct endpoint {
	__u32 ifindex; /* of the host end */
	__u16 id;
	struct mac pod_mac;
	struct mac host_mac;
	__u16 flags; /* ENDPOINT_...; always 0 before there were any */
};

/* What is special about an endpoint. Bits. */
enum endpoint_flag {
	/* 1 let an endpoint speak DHCP: entries of earlier agents have it. */
	ENDPOINT_LIMITED = 2, /* its bandwidth is limited: its packets always go through the stack */
};

/* Value of the map links: who is at the other end of a host end, and which addresses it may use. */
struct link {
	struct addr ipv4; /* all zero: it has none */
	struct addr ipv6;
	struct mac pod_mac;
	__u16 id;
};

/* Why a packet was dropped. */
enum drop_reason {
	DROP_NONE = 0,
	DROP_NO_ENDPOINT = 1,	    /* nobody is registered for this link */
	DROP_MALFORMED = 2,	    /* truncated, or its headers contradict themselves */
	DROP_PROTOCOL = 3,	    /* neither IPv4 nor IPv6: VLAN tags, MPLS, ... */
	DROP_ARP = 4,		    /* nobody needs it: neighbour entries are permanent */
	DROP_LINK_LOCAL = 5,	    /* router solicitation, duplicate detection, MLD and the like: no fault of anyone */
	DROP_SPOOFED_MAC = 6,	    /* not the pod's own link address */
	DROP_SPOOFED_ADDRESS = 7,   /* not the pod's own network address */
	DROP_WRONG_DESTINATION = 8, /* sent down the link of a pod that does not have this address */
	DROP_LOOPBACK = 9,	    /* from or to 127.0.0.0/8 or ::1, which are never valid on a link */
	DROP_MAPPED_ADDRESS = 10,   /* IPv6 from or to ::ffff:0:0/96, which would be the IPv4 address as a map key */
	DROP_SOURCE_ROUTE = 11,	    /* IPv4 source route option or IPv6 routing header: the sender says which way it goes */
	DROP_EXTENSIONS = 12,	    /* more IPv6 extension headers than are read */
	DROP_PATH_CLASH = 13,	    /* opens a connection through the stack, with the ports of one past the stack */
	DROP_POLICY_EGRESS = 14,    /* a network policy of the sender denies it */
	DROP_POLICY_INGRESS = 15,   /* a network policy of the receiver denies it */
	DROP_MULTICAST = 16,	    /* to a group beyond the link: the node routes none */
	DROP_POLICY_UNMANAGED = 17, /* a network policy denies it, and the other side is CLASS_UNMANAGED */
	DROP_PROXY = 18,	    /* only the proxy may pass it on, and it did not come from there and cannot go there */
	DROP_DENIED_OFTEN = 19,	    /* the pod has sent too much in this second that a network policy denies: see lib/denied.h */
};

/* Room for reasons, so that a new one does not change the shape of struct drops. */
#define DROP_REASONS 32

struct counter {
	__u64 packets; /* as the stack has them: one that is to be cut into segments later counts once */
	__u64 bytes;   /* link header included */
};

/* Value of the map passed, by endpoint ID, one copy for each CPU. */
struct passed {
	struct counter from_pod;
	struct counter to_pod;
};

/* Value of the map drops, by endpoint ID, one copy for each CPU. */
struct drops {
	__u64 by_reason[DROP_REASONS];
};

/* The endpoint ID under which drops are counted that belong to no endpoint. */
#define NO_ENDPOINT 0

/* How many endpoint IDs there are, NO_ENDPOINT included. */
#define ENDPOINT_IDS 65536

/*
 * Key of the map connections: a connection as one pod sees it. local is the pod, remote the other side. A connection
 * between two pods of the node has two entries, one for each pod. The ports are in wire order; both ports of an ICMP
 * echo are its identifier.
 */
struct connection_key {
	struct addr remote;
	__u32 ifindex; /* of the pod's host end */
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 family; /* 4 or 6: an IPv6 packet with IPv4-mapped addresses does not belong to the IPv4 connection */
	__u8 fragments; /* 1, and no ports: later fragments, of datagrams whose first one has passed */
	__u8 pad[5];
};

/* Which way the packets of a connection go, both ways alike. */
enum connection_path {
	PATH_STACK = 1,	   /* through the node's stack, which may translate addresses */
	PATH_SHORTCUT = 2, /* from the pod straight into another pod of the node */
	PATH_DIRECT = 3,   /* between the pod and the device by which the other node is reached, past the stack */
	PATH_PROXY = 4,	   /* to the proxy of this node, after the stack. In events only: to its pods, the path is PATH_STACK */
};

/* What has been seen of a connection. Bits. */
enum connection_state {
	STATE_OPENED_HERE = 1,	 /* the pod sent the first packet */
	STATE_REPLIED = 2,	 /* the other side has answered */
	STATE_LOCAL_CLOSED = 4,	 /* the pod has sent a FIN */
	STATE_REMOTE_CLOSED = 8, /* the other side has */
	STATE_RESET = 16,
	STATE_TRANSLATED = 32, /* the remote address is not the real one: policy is decided for each packet that arrives */
	/* 64 is set in entries of earlier agents. */
	STATE_GUESSED = 128, /* STATE_OPENED_HERE is a guess, from a segment without an entry. A SYN of either side replaces the entry */
};

/* Value of the map connections: all that the next packet needs. */
struct connection {
	struct addr local;	/* the pod's address */
	__u32 checksum;		/* of the key and of the fields that never change: see connection_copy */
	__u32 generation;	/* slot.generation of the pod when this was written: valid while they are equal */
	__u32 peer_generation;	/* PATH_SHORTCUT: of the pod at the other end; so are all peer_... */
	__u32 peer_ifindex;	/* of its host end; PATH_DIRECT: of the device */
	__u32 expires;		/* ticks since boot, CLOCK_MONOTONIC: see CONNECTION_TICK_SHIFT */
	struct mac mac;		/* the pod's */
	struct mac peer_mac;
	struct mac peer_host_mac;
	__u16 id;
	__u16 peer_id;		/* endpoint ID of the other pod, if its policy is decided with this entry; else 0 */
	__u16 charged;		/* endpoint ID in whose share of the map this entry counts */
	__u8 path;		/* enum connection_path */
	__u8 state;		/* enum connection_state */
	__u8 pad[2];
	__u32 revision;		/* policy.revision of the pod at the last decision. If they differ, policy is decided anew */
	__u32 peer_revision;	/* of the pod peer_id */
};

/* A tick is 2^30 ns, a little more than a second. */
#define CONNECTION_TICK_SHIFT 30

/* Value of the map slots, by endpoint ID: the agent writes one to invalidate all connections of an endpoint at once. */
struct slot {
	__u32 generation; /* raised when an endpoint gets this ID, and when it gives it up; of NO_ENDPOINT: when an endpoint gets an address */
	__u32 pad;
};

/* Value of the map usage, by endpoint ID; that of NO_ENDPOINT is the sum. */
struct usage {
	__u32 inserted; /* entries of the map connections that were made in its share */
	__u32 removed;	/* entries that were removed from it */
	__u32 refused;	/* packets for which no entry was made, as there was no room */
};

/* Value of the map limits: how the room in the map connections is shared. */
struct limits {
	__u32 common; /* while there are fewer entries in all, any endpoint gets another one */
	__u32 share;  /* an endpoint with fewer entries than this gets another one in any case */
};

/*
 * Network policy. The maps have room for two copies of it: the active one, and one that a starting agent writes and
 * then makes the active one. A number of a table or of a set of rows is used in one copy only.
 */
#define POLICY_COPIES 2

/*
 * Value of the map policies, by endpoint ID: what restricts the pod. A table number 0 means that nothing does in that
 * direction.
 */
struct policy {
	__u32 revision; /* raised when a verdict for the pod may have changed */
	__u32 egress[POLICY_COPIES];
	__u32 ingress[POLICY_COPIES];
	__u32 pad;
};

/*
 * Key of the map addresses. Its value is the number of the address's class, with bits CLASS_... that say more of it. No
 * policy distinguishes two addresses of the same class.
 */
struct address_key {
	struct addr addr;
	__u32 copy;
	__u32 pad;
};

/* Key of the map prefixes, for addresses that are not in the map addresses. Its value is like theirs. */
struct prefix_key {
	__u32 bits; /* length of the prefix, with the 32 bits of copy */
	__u32 copy;
	__u8 addr[16]; /* as in struct addr */
};

/* The class of an address that is in neither map. */
#define CLASS_WORLD 1

#define CLASS_HOST 0x80000000	   /* of the node itself */
#define CLASS_UNMANAGED 0x40000000 /* of a pod of another node, of which nothing else is known */
#define CLASS_BITS (CLASS_HOST | CLASS_UNMANAGED)

/* Value of the map unmanaged, one copy for each CPU: decisions about restricted pods and addresses of CLASS_UNMANAGED. */
struct unmanaged {
	__u64 passed; /* to let one open a connection to a pod */
	__u64 denied; /* in either direction */
};

/* Key of the map tables. Its value is the number of a set of rows, or ROWS_... */
struct table_key {
	__u32 table;
	__u32 class; /* 0: all classes that have no entry of their own */
};

/* Sets without rows in the map rows: one verdict for everything. */
#define ROWS_DENY 0
#define ROWS_ALLOW 1

/* Key of the map rows. Its value is ROW_DENY, ROW_ALLOW, or the number of layer 7 rules: the proxy decides. */
struct row_key {
	__u32 bits; /* length of the prefix: 32 for all protocols, 40 for all ports of one, up to 56 for a single port */
	__u32 rows;
	__u8 protocol;
	__u8 port[2]; /* of the destination, in wire order */
	__u8 pad;
};

/*
 * The protocol of rows about later fragments, which have no ports: no packet has it. The first byte of the port is the
 * protocol, or 0 if IPv6 hides it. The row allows what any row of the set allows for the protocol.
 */
#define PROTOCOL_FRAGMENT 255

#define ROW_DENY 0
#define ROW_ALLOW 1

/*
 * Key of the map redirected: a connection as the proxy sees it. The client's address is not the pod's own if the node has
 * masqueraded it.
 */
struct redirect_key {
	struct addr client;
	struct addr server;
	__be16 client_port;
	__be16 server_port;
	__u8 protocol;
	__u8 family; /* 4 or 6 */
	__u8 pad[2];
};

/* Value of the map redirected: who has opened the connection. */
struct redirect {
	struct addr source; /* the address before the node translated it; all zero if it is not to be believed */
	__u32 generation;   /* slot.generation of the pod */
	__u16 id;	    /* of the pod, if it is of this node, else 0 */
	__u8 from_node;	    /* the node has sent the packet itself */
	__u8 reserved;
	__u32 turn;	    /* redirect_turn.turn of the entry of the map redirect_turns that has the key */
	__u32 pad;
};

/* Key of the map redirect_turns, whose value is the struct redirect_key of one of the endpoint's entries in the map redirected. */
struct redirect_turn {
	__u32 id;   /* of the endpoint in whose share the entry counts */
	__u32 turn; /* below REDIRECT_SHARE */
};

/* How many entries of the map redirected an endpoint may have. */
#define REDIRECT_SHARE 512

/*
 * The sockets in the map listeners. A family has several of them for datagrams, each for some of the clients: one that sends more than
 * the proxy reads fills the queue of its own.
 */
#define UDP_LISTENERS 16 /* of a family */

enum listener {
	LISTENER_TCP4 = 0,
	LISTENER_TCP6 = 1,
	LISTENER_UDP4 = 2,			       /* the first one of IPv4 */
	LISTENER_UDP6 = LISTENER_UDP4 + UDP_LISTENERS, /* the first one of IPv6 */
};

#define LISTENERS (LISTENER_UDP6 + UDP_LISTENERS)

/*
 * The mark of the proxy's sockets, in PROXY_MARK_MASK. The node's translation and kube-proxy use other bits. A pod cannot set it:
 * marks do not leave its network namespace.
 */
#define PROXY_MARK 0x0a7
#define PROXY_MARK_MASK 0xfff

/* The proxy's own connections have ports from this one on. */
#define PROXY_FIRST_PORT 61000

/* The mark of packets that the node diverts to these sockets: connections that exist, in both directions. */
#define PROXY_DIVERT_MARK 0x0a8

/* The address of the device porin-l7: 02, "porl7". */
#define PROXY_MAC 0x02, 0x70, 0x6f, 0x72, 0x6c, 0x37

/* Where a packet was seen. */
enum event_place {
	EVENT_FROM_POD = 1,
	EVENT_TO_POD = 2, /* by to_pod, or by from_uplink, which hands packets to pods */
	EVENT_TO_UPLINK = 3,
};

/* An event for the agent: a packet opened a connection, or was dropped. */
struct flow_event {
	__u64 time; /* ns since boot, CLOCK_BOOTTIME */
	struct addr source;
	struct addr destination;
	__be16 source_port; /* both are 0 where the protocol has none; of an echo, its identifier */
	__be16 destination_port;
	__u32 length; /* of the packet, link header included */
	__u16 id;     /* of the pod that it is from, or to */
	__u8 protocol;
	__u8 flags; /* enum flow_flag */
	__u8 place; /* enum event_place */
	__u8 reason; /* enum drop_reason */
	__u8 path; /* enum connection_path, if it opened a connection. EVENT_FROM_POD, PATH_STACK: undecided yet */
	__u8 pad;
};

/* Value of the map event_budgets. */
struct event_budget {
	__u32 tick; /* since boot: see CONNECTION_TICK_SHIFT */
	__u32 used; /* events sent in this tick */
	__u64 lost; /* events that were not sent, since the map was made */
};

/* Value of the map event_shares. */
struct event_share {
	__u32 tick;
	__u32 used; /* events sent in this tick */
};

/* Value of the map denied_counts, by endpoint ID. */
struct denied_count {
	__u32 tick; /* since boot: see CONNECTION_TICK_SHIFT */
	__u32 used; /* requests that policy has denied in this tick, up to DENIED_PER_TICK */
};

/* Argument and result of the program sweep. */
struct sweep {
	__u32 wait_ms; /* in: the timer takes over when sweep is not run again within this time */
	__u32 visited;
	__u32 removed;
	__u32 corrected; /* wrong counts in the map usage, of an endpoint or in all */
};

/*
 * Value of the map recount, by endpoint ID; that of NO_ENDPOINT is the sum: what a sweep counts, beside struct usage as
 * it was when the sweep began.
 */
struct recount {
	__u32 inserted;
	__u32 removed; /* with what the sweep itself has removed */
	__u32 found;
	__s32 difference; /* entries found less entries counted; 0 if what came and went in the sweep explains it */
};

/*
 * Key of the maps owners and remote_blocks: a prefix of addresses, in which an IPv4 prefix has 96 bits more, as its
 * addresses are in struct addr.
 */
struct cidr_key {
	__u32 bits;
	__u8 addr[16];
};

/* What the node that owns a prefix is to this one. Bits. */
enum owner_flag {
	OWNER_SELF = 1, /* it is this one */
	OWNER_PODS = 2, /* the prefix is of pods; else it is the address of the node itself */
	OWNER_IPV6 = 4, /* packets to it are sent by IPv6 */
};

/* Value of the map owners: the node that has the addresses. */
struct owner {
	struct addr ipv4; /* of the node, for the outer header; all zero: it has none */
	struct addr ipv6;
	struct addr local; /* this node's, for packets that are sent to it */
	__u32 flags;
	__u32 pad;
};

/* The number of the network in the VXLAN header (VNI). */
#define TUNNEL_NETWORK 0x504f52

/* Why a packet in a tunnel, or on its way there, was dropped. */
enum tunnel_drop {
	TUNNEL_DROP_MALFORMED = 1, /* truncated, no plain IP, or with addresses that are valid on no link */
	TUNNEL_DROP_LINK = 2, /* for everybody on a link: the node's own noise */
	TUNNEL_DROP_NO_NODE = 3, /* no node that is reached by a tunnel has the destination */
	TUNNEL_DROP_NETWORK = 4, /* of another network than TUNNEL_NETWORK */
	TUNNEL_DROP_UNKNOWN_NODE = 5, /* the outer source is no node's address */
	TUNNEL_DROP_SOURCE = 6, /* the inner source is not of the node that has sent it */
	TUNNEL_DROP_DESTINATION = 7, /* the inner destination is not of this node's pods */
	TUNNEL_DROP_OUTER_DESTINATION = 8, /* the outer destination is not the node's address, but one of the tunnel device or of a Service */
};

/* Room for reasons. */
#define TUNNEL_DROPS 16

/* Value of the map tunnel_drops, one copy for each CPU. */
struct tunnel_drops {
	__u64 to_tunnel[TUNNEL_DROPS];
	__u64 from_tunnel[TUNNEL_DROPS];
};
