// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Three functions at about 60, 30 and 10 % of this thread's CPU. shares CPU-SECONDS. Prints what they really used by
 * the thread CPU clock: {"pid", "alpha_ns", "beta_ns", "gamma_ns", "cpu_ns"}. One cycle takes about 7.3 ms, which
 * divides no sampling period in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static volatile uint64_t sink;

#define BURN(name)                                                  \
	static __attribute__((noinline)) uint64_t name(uint64_t ns) \
	{                                                           \
		uint64_t begin = thread_cpu_ns(), now;              \
		do {                                                \
			for (int i = 0; i < 20000; i++)             \
				sink = sink * 31 + (uint64_t)i;     \
			now = thread_cpu_ns();                      \
		} while (now - begin < ns);                         \
		return now - begin;                                 \
	}
BURN(alpha)
BURN(beta)
BURN(gamma_)

static uint64_t used[3];

static __attribute__((noinline)) void middle(void)
{
	used[0] += alpha(4380000);
	used[1] += beta(2190000);
	used[2] += gamma_(730000);
}

static __attribute__((noinline)) void outer(void)
{
	middle();
	sink++;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;

	while (thread_cpu_ns() < (uint64_t)(seconds * 1e9))
		outer();
	printf("{\"pid\": %d, \"alpha_ns\": %lu, \"beta_ns\": %lu, \"gamma_ns\": %lu, \"cpu_ns\": "
	       "%lu}\n",
	       getpid(), used[0], used[1], used[2], thread_cpu_ns());
	return 0;
}
