/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Removing connections while no agent runs the program sweep: a timer of the kernel (bpf_timer, Linux 5.15) does it. It
 * interrupts whatever a CPU does, so it visits a bounded number of entries at a time.
 *
 * Each sweep postpones the timer, so that it does not run beside an agent, and makes the code of its own program the
 * callback. The kernel cancels the timer, and releases that program, with the last pin or descriptor of its map.
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

struct expiry_run {
	__u32 now;
	__u32 end; /* head of the queue at the beginning: keys that are put back are not visited again */
};

static long expire_one(__u32 i, struct expiry_run *run)
{
	struct expirer *e = expirer_lookup();
	struct connection_key key;
	struct connection *c;

	(void)i;
	if (!e || e->tail == run->end || !key_queue_take(e, &key))
		return 1;
	c = bpf_map_lookup_elem(&connections, &key);
	if (!c)
		return 0;
	if (connection_is_valid(c, run->now))
		key_queue_put(&key);
	else
		connection_delete(&key, c->charged);
	return 0;
}

static int expire_some(void *map, __u32 *zero, struct expirer *e)
{
	struct expiry_run run = { .now = ticks_exact(), .end = e->head };

	(void)map, (void)zero;
	bpf_loop(EXPIRY_KEYS, expire_one, &run, 0);
	bpf_timer_start(&e->timer, EXPIRY_INTERVAL, 0);
	return 0;
}

/* expiry_postpone restarts the timer, with the callback of this program. */
static __always_inline long expiry_postpone(struct expirer *e, __u64 ns)
{
	long err = bpf_timer_init(&e->timer, &expirer, CLOCK_MONOTONIC);

	if (err && err != -EBUSY) /* -EBUSY: an earlier sweep has done it */
		return err;
	err = bpf_timer_set_callback(&e->timer, expire_some);
	return err ? err : bpf_timer_start(&e->timer, ns, 0);
}
