// SPDX-License-Identifier: GPL-2.0-or-later
/* churn N: N processes that live some milliseconds and burn a tenth of one, eight at a time. {"processes"} */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

static volatile uint64_t sink;

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 100, running = 0;

	for (int i = 0; i < n; i++) {
		if (running == 8) {
			wait(NULL);
			running--;
		}
		if (fork() == 0) {
			uint64_t end = thread_cpu_ns() + 100000;

			while (thread_cpu_ns() < end)
				sink++;
			usleep(4000);
			_exit(0);
		}
		running++;
	}
	while (wait(NULL) > 0)
		;
	printf("{\"processes\": %d}\n", n);
	return 0;
}
