/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What collect has to know of the kernel's symbols: where CPUs wait for work, where threads serve interrupts,
 * and how the end of a context switch is called. Whoever reads the symbols tells them; collect does not read them again for each collector.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"

struct kernel_places {
	struct idle_range idle[MAX_IDLE_RANGES]; /* in order, apart from each other */
	size_t n_idle; /* 0: addresses are hidden */
	uint64_t idle_section; /* its start, until its end was told */
	struct idle_range own[OWN_PLACES]; /* size 0: not known */
	char finish_task_switch[128]; /* its symbol, or "" */
};

/* To be told every function of the kernel proper, in the order of addresses. ctx: struct kernel_places. */
void places_tell(void *ctx, uint64_t start, uint64_t end, const char *name);
