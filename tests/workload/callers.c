// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * callers SECONDS [FAR]: left() and right() take turns to wait in one place, 2 ms and 6 ms, and are the same but for their
 * address: at the wait all registers are equal, and the stack but for the return address. With FAR a frame of 4 KB
 * lies between. {"pid", "left_ns", "right_ns"}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static __attribute__((noinline)) void wait_here(uint64_t ns)
{
	raw_sleep_ns(ns);
}

static __attribute__((noinline)) void wait_far(uint64_t ns)
{
	char room[4096];

	__asm__ volatile("" ::"r"(room) : "memory");
	wait_here(ns);
}

static __attribute__((noinline)) void left(void (*wait)(uint64_t ns), uint64_t ns)
{
	wait(ns);
}

static __attribute__((noinline)) void right(void (*wait)(uint64_t ns), uint64_t ns)
{
	wait(ns);
}

static struct {
	void (*fn)(void (*wait)(uint64_t ns), uint64_t ns);
	uint64_t each, ns;
} callers[] = { { .fn = left, .each = 2000000 }, { .fn = right, .each = 6000000 } };

int main(int argc, char **argv)
{
	uint64_t end = mono_ns() + (uint64_t)(argc > 1 ? atof(argv[1]) * 1e9 : 1e9);
	void (*wait)(uint64_t) = argc > 2 ? wait_far : wait_here;

	while (mono_ns() < end)
		for (int i = 0; i < 2; i++) {
			uint64_t begin = mono_ns();

			callers[i].fn(wait, callers[i].each);
			callers[i].ns += mono_ns() - begin;
		}
	printf("{\"pid\": %d, \"left_ns\": %lu, \"right_ns\": %lu}\n", getpid(), callers[0].ns,
	       callers[1].ns);
	return 0;
}
