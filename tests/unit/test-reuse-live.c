// SPDX-License-Identifier: GPL-2.0-or-later
/* Stacks of waits that are not walked anew, against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/syscall.h>

#include <unistd.h>

#include "collect-live.h"

/* There are no tables here: these functions are walked by their frame pointers. */
#pragma GCC optimize("no-omit-frame-pointer")

#define CROWD 10000
#define CROWD_WALKS 400 /* per CPU and second */

static struct collect_options options(void)
{
	return (struct collect_options){
		.enabled = { [SOURCE_OFF_CPU] = true },
		.off_cpu_threshold_ns = NSEC_PER_MSEC,
		.off_cpu_threshold_max_ns = NSEC_PER_SEC,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

static __attribute__((noinline)) void wait_here(uint64_t ns)
{
	struct timespec t = { .tv_nsec = (long)ns };

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
	__asm__ volatile("" ::: "memory");
}

/* ---- a crowd of sleepers ---------------------------------------------------------------------------- */

static void *sleep_again(void *arg)
{
	for (;;)
		wait_here(NSEC_PER_SEC - 1);
	return NULL;
}

static void crowd(void *arg)
{
	volatile unsigned *ready = arg;
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (unsigned i = 0; i < CROWD; i++)
		if (pthread_create(&t, &attr, sleep_again, NULL))
			break;
		else
			(*ready)++;
	for (;;)
		pause();
}

static void test_crowd_keeps_to_the_budget(void **state)
{
	struct collect_options o = options();
	volatile unsigned *ready = shared_memory(sizeof(*ready));
	uint64_t reused = 0, deadline = mono_now_ns() + 60 * NSEC_PER_SEC;
	struct collector *c;
	pid_t pid;

	o.walks_per_second = CROWD_WALKS;
	c = start_or_skip(&o);
	pid = start_process(crowd, (void *)ready);
	while (*ready < CROWD && mono_now_ns() < deadline)
		run_for(c, 50);
	/* Those that fit the host's limits. */
	print_message("%u threads\n", *ready);
	slice_free(drain(c, false));
	for (int i = 0; i < 4; i++) {
		const struct account *a;
		struct slice *s;
		double limit;

		run_for(c, 1000);
		s = drain(c, i == 3);
		a = &s->source[SOURCE_OFF_CPU].sum;
		/* Rations are of 2^30 ns, and two of them may lie in a slice that is shorter. */
		limit = ((double)(s->mono_end_ns - s->mono_start_ns) / (1 << 30) + 2) *
			CROWD_WALKS * s->cpus_online;
		print_message("%lu walked, %lu reused, %lu shed, T %lu ms\n", a->walked, a->reused,
			      a->lost[LOSS_SHED], (unsigned long)(s->threshold_ns / NSEC_PER_MSEC));
		assert_true((double)a->walked <= limit);
		assert_conserved(s, SOURCE_OFF_CPU);
		reused += a->reused;
		slice_free(s);
	}
	kill_process(pid);
	/* Those that were walked in the first seconds are known in the later ones. */
	assert_true(reused > CROWD_WALKS);
	collector_free(c);
}

/* ---- the budget of CPU time -------------------------------------------------------------------------------- */

#define SLEEPERS 40

static void many_short_sleeps(void *arg)
{
	for (;;)
		sleep_ms(5);
}

/* T after some windows of short sleeps; the sums of what is kept stay what they are. */
static uint64_t threshold_within(double budget, double *ret_share)
{
	struct collect_options o = options();
	uint64_t kept = 0, all = 0, threshold = 0;
	pid_t pids[SLEEPERS];
	struct collector *c;

	o.off_cpu_threshold_ns = NSEC_PER_MSEC;
	o.cpu_budget = budget;
	c = start_or_skip(&o);
	for (int i = 0; i < SLEEPERS; i++)
		pids[i] = start_process(many_short_sleeps, NULL);
	for (int i = 0; i < 5; i++) {
		struct slice *s;

		run_for(c, 400);
		s = drain(c, true);
		threshold = s->threshold_ns;
		for (size_t k = 0; k < s->n_off_cpu; k++)
			if ((pid_t)s->off_cpu[k].key.tgid >= pids[0] &&
			    (pid_t)s->off_cpu[k].key.tgid <= pids[SLEEPERS - 1])
				kept += s->off_cpu[k].value.ns;
		for (size_t k = 0; k < s->n_threads; k++)
			if ((pid_t)s->threads[k].tgid >= pids[0] &&
			    (pid_t)s->threads[k].tgid <= pids[SLEEPERS - 1])
				all += s->threads[k].blocked_ns + s->threads[k].run_queue_ns +
				       s->threads[k].preempted_ns;
		assert_conserved(s, SOURCE_OFF_CPU);
		slice_free(s);
	}
	for (int i = 0; i < SLEEPERS; i++)
		kill_process(pids[i]);
	collector_free(c);
	*ret_share = (double)kept / (double)all;
	return threshold;
}

static void test_budget_of_time(void **state)
{
	double share;
	uint64_t t = threshold_within(0.5, &share);

	print_message("with half of all CPUs: T %.1f ms, kept stand for %.3f\n", t / 1e6, share);
	assert_int_equal(t, NSEC_PER_MSEC);
	assert_true(share > 0.9 && share < 1.1);
	t = threshold_within(1e-5, &share);
	print_message("with a hundred thousandth: T %.1f ms, kept stand for %.3f\n", t / 1e6,
		      share);
	assert_true(t >= 8 * NSEC_PER_MSEC);
	/* 80 s of waits: one deviation is 1 % at most. */
	assert_true(share > 0.9 && share < 1.1);
}

/* ---- two ways to the same place ----------------------------------------------------------------------- */

#define WAITS 400
#define DEPTH 12
#define FUNCTION_BYTES 256

struct ways {
	uint64_t first, second; /* waits on each */
};

/* Frames between the two ways and the wait: more than 2 KiB. */
static __attribute__((noinline)) void descend(unsigned depth)
{
	volatile char frame[200];

	frame[0] = (char)depth;
	if (depth)
		descend(depth - 1);
	else
		wait_here(3 * NSEC_PER_MSEC);
	frame[1] = frame[0];
}

static __attribute__((noinline, aligned(FUNCTION_BYTES))) void first_way(struct ways *w)
{
	descend(DEPTH);
	w->first++;
}

static __attribute__((noinline, aligned(FUNCTION_BYTES))) void second_way(struct ways *w)
{
	descend(DEPTH);
	w->second++;
}

static void go_both_ways(void *arg)
{
	struct ways *w = arg;

	for (unsigned i = 0; i < WAITS; i++)
		(i * i % 7 < 3 ? first_way : second_way)(w);
}

/* Samples with the function on their stack. */
static uint64_t samples_by(const struct slice *s, pid_t pid, const void *function)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s->n_off_cpu; i++) {
		const struct slice_off_cpu *c = &s->off_cpu[i];
		const struct slice_stack *k = find_stack(s, c->key.stack);

		if ((pid_t)c->key.tgid == pid && c->key.cause == OFF_BLOCKED && k &&
		    stack_has(s, k, function, FUNCTION_BYTES))
			n += c->value.samples;
	}
	return n;
}

static void test_two_ways(void **state)
{
	struct collect_options o = options();
	struct ways *w = shared_memory(sizeof(*w));
	struct collector *c = start_or_skip(&o);
	struct slice *s;
	uint64_t first, second;
	pid_t pid = start_process(go_both_ways, w);

	wait_for(pid);
	s = drain(c, true);
	first = samples_by(s, pid, (const void *)first_way);
	second = samples_by(s, pid, (const void *)second_way);
	print_message("%lu of %lu and %lu of %lu waits; %lu walked, %lu reused\n", first, w->first,
		      second, w->second, s->source[SOURCE_OFF_CPU].sum.walked,
		      s->source[SOURCE_OFF_CPU].sum.reused);
	assert_in_range(first, w->first / 2, w->first);
	assert_in_range(second, w->second / 2, w->second);
	/* Both ways are known, unless another wait of the host takes their place. */
	assert_true(s->source[SOURCE_OFF_CPU].sum.reused >= WAITS / 4);
	slice_free(s);
	collector_free(c);
	munmap(w, sizeof(*w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd_keeps_to_the_budget),
		cmocka_unit_test(test_budget_of_time),
		cmocka_unit_test(test_two_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
