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

/* What an endpoint may do that others may not. Bits. */
enum endpoint_flag {
	ENDPOINT_DHCP = 1, /* speak DHCP with its node, by broadcast */
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
};

/* Room for reasons, so that a new one does not change the shape of struct traffic. */
#define DROP_REASONS 16

struct counter {
	__u64 packets; /* as the stack has them: one that is to be cut into segments later counts once */
	__u64 bytes;   /* link header included */
};

/* Value of the map traffic: what passed and what did not, one copy for each CPU. */
struct traffic {
	struct counter from_pod;
	struct counter to_pod;
	__u64 drops[DROP_REASONS];
};

/* The endpoint ID under which drops are counted that belong to no endpoint. */
#define NO_ENDPOINT 0
