// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What one system call, one round of a ping-pong over pipes and one over futexes cost now, pinned to one CPU.
 * bench-ops CPU prints "syscall NS", "pipe NS" and "futex NS".
 *
 * CPU time of all who take part, so that neighbours on the CPU do not count; the median of many short blocks,
 * so that those in which they were in the way do not count either. A round of a ping-pong is two context
 * switches and four calls: on one CPU the other side runs only when this one waits.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/util.h"

#define BLOCKS 15
#define BLOCK_NS 15e6
#define FIRST_COUNT 500

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench-ops: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double clock_ns(clockid_t id)
{
	struct timespec t;

	must(clock_gettime(id, &t) == 0, "clock");
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

struct subject {
	const char *name;
	void (*run)(void *ctx, size_t n);
	void *ctx;
	clockid_t other; /* the clock of the other process that takes part, or this one's */
};

static double cpu_ns(const struct subject *s)
{
	double own = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	return s->other == CLOCK_PROCESS_CPUTIME_ID ? own : own + clock_ns(s->other);
}

static double block(const struct subject *s, size_t n)
{
	double before = cpu_ns(s);

	s->run(s->ctx, n);
	return (cpu_ns(s) - before) / (double)n;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const struct subject *s)
{
	double once = block(s, FIRST_COUNT), ns[BLOCKS];
	size_t n = (size_t)(BLOCK_NS / once) + 1;

	for (size_t i = 0; i < BLOCKS; i++)
		ns[i] = block(s, n);
	qsort(ns, BLOCKS, sizeof(*ns), by_value);
	printf("%s %.2f\n", s->name, ns[BLOCKS / 2]);
}

/* ---- the call -------------------------------------------------------------------------------------- */

static void run_calls(void *ctx, size_t n)
{
	while (n--)
		syscall(SYS_getppid);
}

/* ---- pipes ----------------------------------------------------------------------------------------- */

struct pipes {
	int to[2], from[2];
};

static void run_pipes(void *ctx, size_t n)
{
	struct pipes *p = ctx;
	char byte = 0;

	while (n--)
		must(write(p->to[1], &byte, 1) == 1 && read(p->from[0], &byte, 1) == 1, "pipe");
}

static void echo(struct pipes *p)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(p->to[1]);
	while (read(p->to[0], &byte, 1) == 1 && write(p->from[1], &byte, 1) == 1)
		;
	_exit(0);
}

static void measure_pipes(void)
{
	struct pipes p;
	struct subject s = { .name = "pipe", .run = run_pipes, .ctx = &p };
	pid_t child;

	must(pipe2(p.to, O_CLOEXEC) == 0 && pipe2(p.from, O_CLOEXEC) == 0, "pipe");
	child = fork();
	must(child >= 0, "fork");
	if (child == 0)
		echo(&p);
	must(clock_getcpuclockid(child, &s.other) == 0, "clock of the child");
	measure(&s);
	close(p.to[1]);
	waitpid(child, NULL, 0);
}

/* ---- futexes --------------------------------------------------------------------------------------- */

struct words {
	uint32_t ping, pong;
	bool stop;
};

static void post(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void take(uint32_t *word)
{
	while (!__atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void run_futexes(void *ctx, size_t n)
{
	struct words *w = ctx;

	while (n--) {
		post(&w->ping);
		take(&w->pong);
	}
}

static void *answer(void *ctx)
{
	struct words *w = ctx;

	for (;;) {
		take(&w->ping);
		if (w->stop)
			return NULL;
		post(&w->pong);
	}
}

static void measure_futexes(void)
{
	struct words w = {};
	struct subject s = { .name = "futex", .run = run_futexes, .ctx = &w };
	pthread_t other;

	s.other = CLOCK_PROCESS_CPUTIME_ID;
	must(pthread_create(&other, NULL, answer, &w) == 0, "thread");
	measure(&s);
	w.stop = true;
	post(&w.ping);
	pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
	struct subject call = { .name = "syscall", .run = run_calls };
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &one);
	must(sched_setaffinity(0, sizeof(one), &one) == 0, "pin to the CPU");
	/* Where it may: the fewer neighbours come in between, the steadier the figures. */
	(void)setpriority(PRIO_PROCESS, 0, -20);
	call.other = CLOCK_PROCESS_CPUTIME_ID;
	measure(&call);
	measure_pipes();
	measure_futexes();
	return 0;
}
