// SPDX-License-Identifier: GPL-2.0-or-later
/* All of its CPU time in a function that is inlined into another. inlined CPU-SECONDS. */
#include <stdlib.h>

#include "truth.h"

static volatile uint64_t sink;

static inline __attribute__((always_inline)) void inlined_spin(void)
{
	for (int i = 0; i < 2000000; i++)
		sink = sink * 31 + (uint64_t)i;
}

static __attribute__((noinline)) void host(void)
{
	inlined_spin();
	sink++;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;

	while (thread_cpu_ns() < (uint64_t)(seconds * 1e9))
		host();
	return 0;
}
