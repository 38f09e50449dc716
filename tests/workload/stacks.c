// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stacks CPU-SECONDS [THREADS]: random walks of 15 functions, depth 20, until each thread has had so much CPU time:
 * nearly every sample has a stack of its own. {"pid", "cpu_ns"}
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static volatile uint64_t sink;
static __thread uint64_t state;
static uint64_t limit_ns, used_ns;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

typedef void (*step_fn)(int depth);
static step_fn steps[15];

static inline __attribute__((always_inline)) void go_on(int depth)
{
	if (depth == 0)
		for (int i = 0; i < 20000; i++)
			sink = sink * 31 + (uint64_t)i;
	else
		steps[next_random() % 15](depth - 1);
}

#define STEP(name)                                            \
	static __attribute__((noinline)) void name(int depth) \
	{                                                     \
		go_on(depth);                                 \
		sink++;                                       \
	}
STEP(s0);
STEP(s1);
STEP(s2);
STEP(s3);
STEP(s4);
STEP(s5);
STEP(s6);
STEP(s7);
STEP(s8);
STEP(s9);
STEP(s10);
STEP(s11);
STEP(s12);
STEP(s13);
STEP(s14);

static step_fn steps[15] = { s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14 };

static void *walk(void *seed)
{
	state = 88172645463325252ULL * (uintptr_t)seed;
	while (thread_cpu_ns() < limit_ns)
		steps[0](20);
	__atomic_fetch_add(&used_ns, thread_cpu_ns(), __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	uintptr_t threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	pthread_t t[64];

	limit_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 5) * 1e9);
	if (threads < 1 || threads > 64)
		return 2;
	for (uintptr_t i = 1; i < threads; i++)
		if (pthread_create(&t[i], NULL, walk, (void *)(2 * i + 1)))
			return 1;
	walk((void *)1);
	for (uintptr_t i = 1; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("{\"pid\": %d, \"cpu_ns\": %lu}\n", getpid(), used_ns);
	return 0;
}
