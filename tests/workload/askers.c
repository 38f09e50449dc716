// SPDX-License-Identifier: GPL-2.0-or-later
/* askers N: asks_often() makes three calls of getppid for each one that asks_seldom() makes. {"pid", "getppid"}. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static __attribute__((noinline)) void asks_often(void)
{
	for (int i = 0; i < 3; i++)
		raw_syscall(SYS_getppid, 0, 0, 0, 0);
}

static __attribute__((noinline)) void asks_seldom(void)
{
	raw_syscall(SYS_getppid, 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 1;

	for (long i = 0; i < n; i++) {
		asks_often();
		asks_seldom();
	}
	printf("{\"pid\": %d, \"getppid\": %ld}\n", getpid(), 4 * n);
	return 0;
}
