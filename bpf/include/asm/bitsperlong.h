/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF target is an architecture of its own, for which no distribution ships asm headers: the generic one fits. */
#include <asm-generic/bitsperlong.h>
