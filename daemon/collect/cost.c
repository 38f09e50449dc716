// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What it costs to count a system call on this host: a cheap call timed before the program at its return is attached,
 * and after. The program cannot tell itself, since most of the cost is that it is called at all. Batches are short, so that
 * some are not interrupted; the fastest of them counts.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "collect/internal.h"

#define BATCHES 12
#define CALLS 2000

double cost_of_call(void)
{
	uint64_t best = UINT64_MAX;

	for (int b = 0; b < BATCHES; b++) {
		uint64_t begin = mono_now_ns(), ns;

		for (int i = 0; i < CALLS; i++)
			syscall(SYS_getppid);
		ns = mono_now_ns() - begin;
		best = MIN(best, ns);
	}
	return (double)best / CALLS;
}
