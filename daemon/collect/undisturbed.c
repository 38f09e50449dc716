// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * While a thread is inside bpf(2) on a map, the kernel runs no program of a classic tracepoint on its CPU
 * (bpf_prog_active). Where kernel code is preemptible that lasts, for a thread whose time is up, until it runs
 * again, and the calls that others make there meanwhile go uncounted. A real-time thread is not preempted by
 * them: the drain thread is one for the length of a call, below a millisecond, on kernels where system calls
 * are counted at the classic tracepoint. Where that is not allowed the calls are lost, and counted as lost.
 */
#include <sched.h>

#include "collect/internal.h"

void undisturbed_begin(struct collector *c)
{
	struct sched_param lowest = { .sched_priority = 1 };

	c->policy = -1;
	if (!c->skel->links.syscall_exit_classic)
		return;
	c->policy = sched_getscheduler(0);
	if (c->policy != SCHED_OTHER && c->policy != SCHED_BATCH && c->policy != SCHED_IDLE)
		c->policy = -1;
	else if (sched_setscheduler(0, SCHED_FIFO, &lowest) < 0)
		c->policy = -1;
}

void undisturbed_end(struct collector *c)
{
	struct sched_param none = {};
	int e = errno;

	if (c->policy >= 0)
		sched_setscheduler(0, c->policy, &none);
	errno = e;
}
