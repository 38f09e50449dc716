/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the tests of the collector against the running kernel share. Include after cmocka.h. */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "collect/collect.h"
#include "model/profile.h"
#include "places.h"

/* Skips with the kernel's reason where BPF cannot be used; a program that the kernel refuses is a failure. */
static inline struct collector *start_or_skip(const struct collect_options *o)
{
	struct collector *c = NULL;
	char *why = NULL;
	int r = collector_new(o, &c, &why);

	if (r < 0) {
		if (strstr(why, "refused a program"))
			fail_msg("%s", why);
		print_message("SKIP: %s\n", why);
		free(why);
		skip();
	}
	for (int i = 0; i < SOURCE_N; i++) {
		struct source_state state;

		collector_source_state(c, i, &state);
		if (o->enabled[i] && !state.running)
			fail_msg("source %d: %s", i, state.text);
	}
	return c;
}

static inline void sleep_ms(unsigned ms)
{
	uint64_t until = mono_now_ns() + ms * NSEC_PER_MSEC;
	struct timespec t = { until / NSEC_PER_SEC, until % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static inline struct slice *drain(struct collector *c, bool bucket_end)
{
	struct slice *s = NULL;

	assert_int_equal(collector_drain(c, bucket_end, &s), 0);
	return s;
}

/* A fresh collector takes the place of *c. The last slice of the old one. */
static inline struct slice *hand_over(struct collector **c, const struct collect_options *o)
{
	struct collector *fresh = start_or_skip(o);
	struct slice *s = NULL;

	assert_int_equal(collector_hand_over(*c, fresh, &s), 0);
	collector_free(*c);
	*c = fresh;
	return s;
}

/* Polls for a while, as the daemon does. */
static inline void run_for(struct collector *c, unsigned ms)
{
	for (unsigned done = 0; done < ms; done += 50) {
		sleep_ms(MIN(50U, ms - done));
		assert_int_equal(collector_poll(c), 0);
	}
}

/* A process of the test: runs fn and exits; dies with the test. */
static inline pid_t start_process(void (*fn)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

static inline void wait_for(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void kill_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static inline void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* seen = stored + idle + what was lost together with its count. */
static inline void assert_conserved(const struct slice *s, enum source source)
{
	const struct account *a = &s->source[source].sum;
	uint64_t sum = a->stored + a->idle;

	for (int i = 0; i < LOSS_N; i++)
		if (!loss_keeps_weight(i))
			sum += a->lost[i];
	assert_int_equal(a->seen, sum);
}

/* The stack of a slice, or NULL. */
static inline const struct slice_stack *find_stack(const struct slice *s, uint64_t id)
{
	for (size_t i = 0; i < s->n_stacks; i++)
		if (s->stacks[i].id == id)
			return &s->stacks[i];
	return NULL;
}

/* Whether a user frame of the stack lies in the `size` bytes from `function` on. */
static inline bool stack_has(const struct slice *s, const struct slice_stack *k,
			     const void *function, size_t size)
{
	for (unsigned i = k->nr_kernel; i < (unsigned)k->nr_kernel + k->nr_user; i++)
		if (s->ips[k->first_ip + i] - (uint64_t)function < size)
			return true;
	return false;
}
