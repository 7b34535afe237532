/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF target is an architecture of its own, for which no distribution ships asm headers. It is bpfel here. */
#include <linux/byteorder/little_endian.h>
