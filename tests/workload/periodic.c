// SPDX-License-Identifier: GPL-2.0-or-later
/* periodic SECONDS [PERIOD-MS]: burns a fifth of every 10 ms, in step with the clock. {"pid", "cpu_ns"} */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static volatile uint64_t sink;

int main(int argc, char **argv)
{
	uint64_t end = mono_ns() + (uint64_t)((argc > 1 ? atof(argv[1]) : 5) * 1e9);

	uint64_t period = (argc > 2 ? strtoul(argv[2], NULL, 10) : 10) * 1000000;

	while (mono_ns() < end) {
		uint64_t next = mono_ns() / period * period + period,
			 until = thread_cpu_ns() + period / 5;

		while (thread_cpu_ns() < until)
			sink++;
		if (mono_ns() < next)
			raw_sleep_ns(next - mono_ns());
	}
	printf("{\"pid\": %d, \"cpu_ns\": %lu}\n", getpid(), thread_cpu_ns());
	return 0;
}
