//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The programs with which a proxy writes addresses of names into the maps of policy while no agent is there. They meet no packet: the proxy runs them
 * (BPF_PROG_TEST_RUN), and a process that is suspended is so before or after a run, never within. So
 *
 *	give_class writes only under the revision that the proxy has asked for: an agent that has given the maps another one, and has waited for programs
 *	that were running, is sure that nothing of a proxy comes later, however late that goes on.
 *	raise_revisions changes nothing of a policy but its revision, and never sets that back.
 */
#include <linux/bpf.h>
#include <asm-generic/errno.h>
#include <bpf/bpf_helpers.h>

#include "lib/policy.h"
#include "lib/types.h"

/* give_class writes one entry of the map prefixes. It returns 0, ESTALE when the maps have another revision, or the error of the update. */
SEC("tc")
int give_class(struct __sk_buff *ctx)
{
	const struct class_write *asked = (void *)(long)ctx->data;
	const __u32 *revision;
	struct prefix_key key;
	__u32 first = 0, class;

	if ((void *)(asked + 1) > (void *)(long)ctx->data_end)
		return EINVAL;
	revision = bpf_map_lookup_elem(&active_copy, &first);
	if (!revision || *(const volatile __u32 *)revision != asked->revision)
		return ESTALE;
	key = asked->key;
	class = asked->class;
	return -bpf_map_update_elem(&prefixes, &key, &class, BPF_ANY);
}

/* raise_revisions has the connections of endpoints decided anew. */
SEC("tc")
int raise_revisions(struct __sk_buff *ctx)
{
	const struct raised *raised = (void *)(long)ctx->data;
	__u32 i;

	if ((void *)(raised + 1) > (void *)(long)ctx->data_end)
		return EINVAL;
	for (i = 0; i < RAISED_IDS && i < raised->count; i++) {
		__u32 id = raised->ids[i];
		struct policy *p = bpf_map_lookup_elem(&policies, &id);

		if (p)
			__sync_fetch_and_add(&p->revision, 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
