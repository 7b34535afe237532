//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names the types of lib/types.h, so that they are in the BTF from which package abi is generated. */
#include "../lib/types.h"

struct abi {
	struct addr addr;
	struct mac mac;
	struct endpoint endpoint;
	struct link link;
	struct passed passed;
	struct drops drops;
	enum drop_reason drop_reason;
	enum endpoint_flag endpoint_flag;
	struct connection_key connection_key;
	struct connection connection;
	enum connection_path connection_path;
	enum connection_state connection_state;
	struct slot slot;
	struct usage usage;
	struct limits limits;
	struct sweep sweep;
	struct policy policy;
	struct flow_event flow_event;
	enum event_place event_place;
	struct event_budget event_budget;
	struct address_key address_key;
	struct prefix_key prefix_key;
	struct table_key table_key;
	struct row_key row_key;
	struct cidr_key cidr_key;
	struct owner owner;
	enum owner_flag owner_flag;
	struct tunnel_drops tunnel_drops;
	enum tunnel_drop tunnel_drop;
	struct unmanaged unmanaged;
	struct redirect_key redirect_key;
	struct redirect redirect;
	struct redirect_turn redirect_turn;
	enum listener listener;
} abi;
