/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Removing connections that have expired, or whose pod is gone (bpf_for_each_map_elem, Linux 5.13). */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "types.h"

struct sweeping {
	__u32 now;
	struct sweep done;
};

static long sweep_one(void *map, const struct connection_key *key, struct connection *c, struct sweeping *s)
{
	__u32 charged = c->charged;

	(void)map;
	s->done.visited++;
	if (connection_is_valid(c, s->now) || bpf_map_delete_elem(&connections, key))
		return 0;
	s->done.removed++;
	usage_add(charged, -1);
	return 0;
}

/* sweep visits every connection. The agent runs it, and gets back what was done. */
SEC("syscall")
int sweep(struct sweep *out)
{
	struct sweeping s = { .now = bpf_ktime_get_ns() >> CONNECTION_TICK_SHIFT };

	bpf_for_each_map_elem(&connections, sweep_one, &s, 0);
	*out = s.done;
	return 0;
}
