// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mix SECONDS [SLEEPERS]: an ordinary load. On each CPU, by four processes of two threads in turn: half busy,
 * 2,000 context switches, 15,000 system calls, 500 futex waits and 20 new processes a second. Beside them
 * SLEEPERS processes (200) that wake every ten seconds.
 *
 * One period of a process: its first thread wakes (a switch from idle), computes at the end of one of many
 * call paths, calls the kernel, wakes the second thread by a futex and reads its answer from an eventfd (two
 * switches), and sleeps again (the fourth).
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

#define SEC 1000000000ULL
#define WORKERS 4 /* per CPU */
#define PERIOD_NS (WORKERS * 2000000ULL)
#define BUSY_NS \
	950000ULL /* of each period; the rest of half a CPU goes into calls and new processes */
#define CALLS 23 /* beside the five that wake, wait and answer, and those of new processes */
#define PERIODS_PER_PROCESS 25
#define PATHS 61 /* call paths of each process */

struct worker {
	uint32_t word;
	int answer;
};

/* ---- call paths -------------------------------------------------------------------------------------- */

typedef void step_fn(uint32_t path, int depth, uint64_t until);
static step_fn *const steps[4];

static void go_on(uint32_t path, int depth, uint64_t until)
{
	if (depth > 0) {
		steps[path & 3](path >> 2 | path << 30, depth - 1, until);
		return;
	}
	while (mono_ns() < until)
		for (volatile int i = 0; i < 500; i++)
			;
}

#define STEP(name)                                                 \
	static void name(uint32_t path, int depth, uint64_t until) \
	{                                                          \
		go_on(path, depth, until);                         \
	}
STEP(parse)
STEP(evaluate)
STEP(look_up)
STEP(encode)
static step_fn *const steps[4] = { parse, evaluate, look_up, encode };

/* ---- one period --------------------------------------------------------------------------------------- */

static void call_kernel(int n)
{
	struct stat st;
	char byte;

	for (int i = 0; i < n; i++)
		switch (i % 5) {
		case 0:
			raw_syscall(SYS_getppid, 0, 0, 0, 0);
			break;
		case 1:
			raw_syscall(SYS_fstat, 0, (long)&st, 0, 0);
			break;
		case 2:
			raw_syscall(SYS_read, 0, (long)&byte, 1, 0);
			break;
		case 3:
			raw_syscall(SYS_lseek, 0, 0, SEEK_SET, 0);
			break;
		case 4:
			raw_syscall(SYS_fcntl, -1, 0, 0, 0); /* an error, EBADF */
			break;
		}
}

/* Its whole life is that of a short command: exec, the dynamic linker, exit. */
static void start_process(void)
{
	char *const argv[] = { (char *)"mix", (char *)"child", NULL };

	if (vfork() == 0) {
		execv("/proc/self/exe", argv);
		_exit(1);
	}
}

static void *second(void *arg)
{
	struct worker *w = arg;
	uint64_t one = 1;

	for (;;) {
		while (!__atomic_exchange_n(&w->word, 0, __ATOMIC_ACQUIRE))
			raw_syscall(SYS_futex, (long)&w->word, FUTEX_WAIT_PRIVATE, 0, 0);
		raw_syscall(SYS_write, w->answer, (long)&one, sizeof(one), 0);
	}
	return NULL;
}

static void sleep_until(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC) };

	raw_syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&ts, 0);
}

static void work(struct worker *w, uint32_t seed, uint64_t start, uint64_t end)
{
	uint64_t value;

	for (uint64_t n = 0, at = start; at < end; n++, at += PERIOD_NS) {
		uint32_t path = (uint32_t)(n % PATHS * 2654435761U + seed);

		sleep_until(at);
		go_on(path, 6 + path % 16, mono_ns() + BUSY_NS);
		call_kernel(CALLS);
		__atomic_store_n(&w->word, 1, __ATOMIC_RELEASE);
		raw_syscall(SYS_futex, (long)&w->word, FUTEX_WAKE_PRIVATE, 1, 0);
		raw_syscall(SYS_read, w->answer, (long)&value, sizeof(value), 0);
		if (n % PERIODS_PER_PROCESS == 0)
			start_process();
	}
}

/* ---- processes ------------------------------------------------------------------------------------------ */

static pid_t start(void)
{
	pid_t parent = getpid(), child = fork();

	if (child != 0)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 0;
}

static void worker(int cpu, uint32_t k, uint64_t begin, uint64_t end)
{
	static struct worker w;
	pthread_t thread;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	signal(SIGCHLD, SIG_IGN);
	w.answer = eventfd(0, EFD_CLOEXEC);
	if (w.answer < 0 || pthread_create(&thread, NULL, second, &w))
		_exit(1);
	work(&w, (uint32_t)cpu * 977 + k * 131, begin + k * PERIOD_NS / WORKERS, end);
	_exit(0);
}

static void sleeper(uint32_t k, uint64_t begin, uint64_t end)
{
	for (uint64_t at = begin + k * 10 * SEC / 200; at < end; at += 10 * SEC)
		sleep_until(at);
	sleep_until(end);
	_exit(0);
}

int main(int argc, char **argv)
{
	uint64_t begin = mono_ns() + SEC / 10, end;
	int sleepers = argc > 2 ? atoi(argv[2]) : 200, status, bad = 0;
	cpu_set_t all;

	if (argc < 2) {
		fprintf(stderr, "Usage: mix SECONDS [SLEEPERS]\n");
		return 2;
	}
	if (strcmp(argv[1], "child") == 0)
		return 0;
	end = begin + (uint64_t)(atof(argv[1]) * SEC);
	sched_getaffinity(0, sizeof(all), &all);
	for (int i = 0; i < sleepers; i++)
		if (start() == 0)
			sleeper((uint32_t)i, begin, end);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		for (uint32_t k = 0; CPU_ISSET(cpu, &all) && k < WORKERS; k++)
			if (start() == 0)
				worker(cpu, k, begin, end);
	while (wait(&status) > 0)
		bad |= status != 0;
	return bad;
}
