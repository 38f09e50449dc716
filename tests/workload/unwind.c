// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * unwind SECONDS KIND: spins below main;first;second;realigned;KIND, where KIND is one of plain, variable (a frame of
 * variable size), signal (in a handler, on a stack of its own), deep (64 calls of recursion), tall (480 of them), plt
 * (calls into libc all the time). Built by tests with every compiler, linker and optimisation: no function may be merged with its
 * caller or leave its frame before it calls.
 */
#include <alloca.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#ifdef __clang__
#undef KEEP
#define KEEP __attribute__((noinline))
#endif
/* Behind a call: it is no tail call, and its result is not known. */
#define STAY() __asm__ volatile("" ::: "memory")

static volatile uint64_t sink;
static uint64_t until_ns;
static const char *kind;

static int over(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec > until_ns;
}

KEEP void spin(void)
{
	for (int i = 0; i < 2000000; i++)
		sink = sink * 31 + (uint64_t)i;
	STAY();
}

KEEP void plain(void)
{
	while (!over())
		spin();
	STAY();
}

KEEP void fill(char *p, size_t n)
{
	memset(p, 1, n);
	spin();
	STAY();
}

KEEP void variable(size_t n)
{
	while (!over()) {
		char *p = alloca(n);

		fill(p, n);
		/* Not without end. */
		if (n++ > 64)
			n = 1;
	}
	STAY();
}

static timer_t timer;

/* Once, so that what is interrupted gets on between two handlers on however slow a machine. */
static void arm(void)
{
	struct itimerspec soon = { .it_value.tv_nsec = 1000000 };

	timer_settime(timer, 0, &soon, NULL);
}

static void handler(int signo)
{
	spin();
	arm();
	STAY();
}

/* Interrupted at its very first instruction, again and again. */
KEEP void waiting(void)
{
	while (!over())
		;
	STAY();
}

KEEP void in_signals(void)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART };
	stack_t other = { .ss_size = 65536 };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };

	other.ss_sp = malloc(other.ss_size);
	sigaltstack(&other, NULL);
	sigaction(SIGALRM, &sa, NULL);
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0)
		arm();
	waiting();
	STAY();
}

KEEP void deep(int n)
{
	if (n > 0)
		deep(n - 1);
	else
		plain();
	STAY();
}

KEEP void plt(void)
{
	while (!over())
		for (int i = 0; i < 100000; i++)
			sink += (uint64_t)abs((int)sink) + (uint64_t)labs((long)sink) +
				(uint64_t)getpagesize();
	STAY();
}

/* Its frame is aligned to more than the ABI gives: the CFA is found through a saved pointer. */
KEEP void realigned(size_t n)
{
	volatile char a[256] __attribute__((aligned(128)));

	memset((char *)a, (int)n, sizeof(a));
	sink += (uint64_t)(uintptr_t)a % 128;
	switch (*kind) {
	case 'v':
		variable(1);
		break;
	case 's':
		in_signals();
		break;
	case 'd':
		deep(64);
		break;
	case 't':
		deep(480);
		break;
	case 'p':
		if (kind[1] == 'l' && kind[2] == 't')
			plt();
		else
			plain();
		break;
	default:
		abort();
	}
	STAY();
	sink += (uint64_t)a[n % 256];
}

KEEP void second(size_t n)
{
	realigned(n + 1);
	STAY();
}

KEEP void first(size_t n)
{
	second(n + 1);
	STAY();
}

int main(int argc, char **argv)
{
	struct timespec t;

	if (argc != 3)
		return 2;
	kind = argv[2];
	clock_gettime(CLOCK_MONOTONIC, &t);
	until_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec +
		   (uint64_t)(atof(argv[1]) * 1e9);
	first((size_t)argc);
	STAY();
	return 0;
}
