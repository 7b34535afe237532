/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Removing connections while no agent runs the program sweep: a timer of the kernel (bpf_timer, Linux 5.15) does it. It interrupts whatever a CPU
 * does, so it visits a bounded number at a time.
 *
 * Each sweep puts the timer off, so that it does nothing beside an agent, and makes it run the agent's own program. The kernel ends it, and lets go of
 * that program, with the last pin or descriptor of its map.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/time.h>
#include <bpf/bpf_helpers.h>

#include "connection.h"
#include "keyqueue.h"
#include "types.h"

/* 6,400 connections a second. Among a million, a run takes some 60 us, or 100 when it removes all that it visits. */
#define EXPIRY_KEYS 128
#define EXPIRY_INTERVAL 20000000ull /* ns */

/* ticks_exact is ticks_now for a program that cannot call bpf_ktime_get_coarse_ns: one without a packet. */
static __always_inline __u32 ticks_exact(void)
{
	return bpf_ktime_get_ns() >> CONNECTION_TICK_SHIFT;
}

#define EBUSY 16

struct expiring {
	__u32 now;
	__u32 end; /* of the queue when this began: what was put back is not visited again */
};

static long expire_one(__u32 i, struct expiring *x)
{
	struct expirer *e = expirer_lookup();
	struct connection_key key;
	struct connection *c;

	(void)i;
	if (!e || e->tail == x->end || !key_queue_take(e, &key))
		return 1;
	c = bpf_map_lookup_elem(&connections, &key);
	if (!c)
		return 0;
	if (connection_is_valid(c, x->now))
		key_queue_put(&key);
	else
		connection_delete(&key, c->charged);
	return 0;
}

static int expire_some(void *map, __u32 *zero, struct expirer *e)
{
	struct expiring x = { .now = ticks_exact(), .end = e->head };

	(void)map, (void)zero;
	bpf_loop(EXPIRY_KEYS, expire_one, &x, 0);
	bpf_timer_start(&e->timer, EXPIRY_INTERVAL, 0);
	return 0;
}

/* expiry_put_off makes the timer wait, and run this program. */
static __always_inline long expiry_put_off(struct expirer *e, __u64 ns)
{
	long err = bpf_timer_init(&e->timer, &expirer, CLOCK_MONOTONIC);

	if (err && err != -EBUSY) /* another sweep has done it */
		return err;
	err = bpf_timer_set_callback(&e->timer, expire_some);
	return err ? err : bpf_timer_start(&e->timer, ns, 0);
}
