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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd_keeps_to_the_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
