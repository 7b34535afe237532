/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a program says about a packet. The values are those of tc's direct-action mode. */
#pragma once

#include <linux/pkt_cls.h>

enum verdict {
	VERDICT_NEXT = TC_ACT_UNSPEC,	   /* go on with the next filter of the device, and then into the stack or out */
	VERDICT_LINK = TC_ACT_OK,	   /* go on into a pod's link */
	VERDICT_DROP = TC_ACT_SHOT,	   /* only ever returned by drop() */
	VERDICT_DELIVER = TC_ACT_REDIRECT, /* straight into another pod */
};
