/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations whose cost is measured, on one CPU. What is returned is CPU time of all who take part, so that neighbours on
 * the CPU do not count. On one CPU the other side runs only when this one waits, so what a round consists of is known.
 */
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/util.h"

enum op {
	OP_CALL, /* a read that finds nothing: it is timed and sized */
	OP_PIPE, /* there and back between two processes: two switches, four calls */
	OP_FUTEX, /* between two threads: two waits that sleep, two calls that wake */
	OP_LOCK, /* one wait for a pipe's mutex, whose holder waits for a socket */
	OP_N,
};

static const char *const op_names[OP_N] = { "call", "pipe", "futex", "lock" };

struct words {
	uint32_t ping, pong;
};

struct ops {
	int nothing;
	int to[2], from[2]; /* the echo's pipes */
	clockid_t echo; /* its CPU time */
	struct words words;
	/* Of the lock: the pipe, what its holder waits for, and what tells the holder and who asks to begin. */
	int locked[2], socket[2], hold[2], ask[2];
};

static inline void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline double clock_ns(clockid_t id)
{
	struct timespec t;

	must(clock_gettime(id, &t) == 0, "clock");
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- pipes ----------------------------------------------------------------------------------------- */

static inline void echo_run(struct ops *o)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(o->to[1]);
	while (read(o->to[0], &byte, 1) == 1 && write(o->from[1], &byte, 1) == 1)
		;
	_exit(0);
}

static inline void echo_start(struct ops *o)
{
	pid_t child;

	must(pipe2(o->to, O_CLOEXEC) == 0 && pipe2(o->from, O_CLOEXEC) == 0, "pipe");
	child = fork();
	must(child >= 0, "fork");
	if (child == 0)
		echo_run(o);
	must(clock_getcpuclockid(child, &o->echo) == 0, "clock of the echo");
}

/* ---- futexes --------------------------------------------------------------------------------------- */

static inline void post(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void take(uint32_t *word)
{
	while (!__atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static inline void *answer(void *ctx)
{
	struct words *w = ctx;

	for (;;) {
		take(&w->ping);
		post(&w->pong);
	}
	return NULL;
}

/* ---- a lock of the kernel ---------------------------------------------------------------------------- */

/* As long as it waits for the socket it holds the pipe's mutex. */
static inline void *hold_pipe(void *ctx)
{
	struct ops *o = ctx;
	char byte;

	while (read(o->hold[0], &byte, 1) == 1 &&
	       splice(o->socket[0], NULL, o->locked[1], NULL, 1, 0) == 1)
		;
	return NULL;
}

static inline void *ask_for_pipe(void *ctx)
{
	struct ops *o = ctx;
	char byte;

	while (read(o->ask[0], &byte, 1) == 1 && write(o->locked[1], &byte, 1) == 1)
		;
	return NULL;
}

/* Runs at once when it can, so that whoever lets it go on finds it asleep again. */
static inline void start_at_once(void *(*run)(void *), struct ops *o)
{
	struct sched_param p = { .sched_priority = 1 };
	pthread_t thread;

	must(pthread_create(&thread, NULL, run, o) == 0, "thread");
	errno = pthread_setschedparam(thread, SCHED_FIFO, &p);
	must(errno == 0, "real-time priority");
}

static inline void lock_start(struct ops *o)
{
	must(pipe2(o->locked, O_CLOEXEC) == 0 && pipe2(o->hold, O_CLOEXEC) == 0 &&
		     pipe2(o->ask, O_CLOEXEC) == 0 &&
		     socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, o->socket) == 0,
	     "pipes");
	start_at_once(hold_pipe, o);
	start_at_once(ask_for_pipe, o);
}

static inline void lock_once(struct ops *o)
{
	char bytes[2] = "";

	if (!o->hold[1])
		lock_start(o);
	must(write(o->hold[1], bytes, 1) == 1 && write(o->ask[1], bytes, 1) == 1 &&
		     write(o->socket[1], bytes, 1) == 1 && read(o->locked[0], bytes, 2) == 2,
	     "pipe");
}

/* ---- all --------------------------------------------------------------------------------------------- */

/* Pins the process. Those who take part live as long as it. */
static inline void ops_init(struct ops *o, int cpu)
{
	pthread_t thread;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	must(sched_setaffinity(0, sizeof(one), &one) == 0, "pin to the CPU");
	/* Where it may: the fewer neighbours come in between, the steadier the figures. */
	(void)setpriority(PRIO_PROCESS, 0, -20);
	*o = (struct ops){ .nothing = open("/dev/null", O_RDONLY | O_CLOEXEC) };
	must(o->nothing >= 0, "/dev/null");
	echo_start(o);
	must(pthread_create(&thread, NULL, answer, &o->words) == 0, "thread");
}

static inline void op_once(struct ops *o, enum op op)
{
	char byte = 0;

	switch (op) {
	case OP_CALL:
		must(read(o->nothing, &byte, 1) == 0, "read");
		break;
	case OP_PIPE:
		must(write(o->to[1], &byte, 1) == 1 && read(o->from[0], &byte, 1) == 1, "pipe");
		break;
	case OP_FUTEX:
		post(&o->words.ping);
		take(&o->words.pong);
		break;
	default:
		lock_once(o);
	}
}

/* CPU time of one, in a block of n. */
static inline double ops_block(struct ops *o, enum op op, size_t n)
{
	double before = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + clock_ns(o->echo);

	for (size_t i = 0; i < n; i++)
		op_once(o, op);
	return (clock_ns(CLOCK_PROCESS_CPUTIME_ID) + clock_ns(o->echo) - before) / (double)n;
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}
