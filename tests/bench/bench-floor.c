// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel itself takes for running a program: attaches an empty one to the return of system calls, to context
 * switches and, where the kernel has that, to the resume after them; prints "ready" and waits to be killed.
 */
#include <stdio.h>
#include <unistd.h>

#include "empty.h"

int main(void)
{
	static const char *const tracepoints[] = { "sys_exit", "sched_switch", "sched_exit_tp" };

	libbpf_set_print(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(tracepoints); i++) {
		int r = empty_load(tracepoints[i]);

		if (r == -ESRCH && i == 2)
			continue;
		if (r >= 0)
			r = empty_attach(r);
		if (r < 0) {
			fprintf(stderr, "bench-floor: %s: %s\n", tracepoints[i], strerror(-r));
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
