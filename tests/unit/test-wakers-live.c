// SPDX-License-Identifier: GPL-2.0-or-later
/* Who ends waits, against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/syscall.h>

#include "collect-live.h"

#define FUNCTION_BYTES 4096
#define ROUNDS 20
#define ROUND_MS 20

static struct collect_options options(double share)
{
	return (struct collect_options){
		.enabled = { [SOURCE_OFF_CPU] = true },
		.off_cpu_threshold_ns = NSEC_PER_MSEC,
		.off_cpu_threshold_max_ns = NSEC_PER_SEC,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
		.off_cpu_wakers = share,
	};
}

struct sum {
	uint64_t waits, ns, max_ns;
	uint64_t by_process, by_thread, by_interrupt, with_function; /* waits */
};

/* The wakes of one thread; `by` is a process or a thread, and `function` what it may have done it in. */
static struct sum sum_of(const struct slice *s, pid_t tid, pid_t by, const void *function)
{
	struct sum sum = {};

	for (size_t i = 0; i < s->n_wakes; i++) {
		const struct wake_key *k = &s->wakes[i].key;
		const struct wake_value *v = &s->wakes[i].value;
		const struct slice_stack *st = find_stack(s, k->by_stack);

		assert_true(k->tid != 0 && v->waits > 0 && v->ns >= v->max_ns);
		if ((pid_t)k->tid != tid)
			continue;
		sum.waits += v->waits;
		sum.ns += v->ns;
		sum.max_ns = MAX(sum.max_ns, v->max_ns);
		sum.by_process += (pid_t)k->by_tgid == by ? v->waits : 0;
		sum.by_thread += (pid_t)k->by_tid == by ? v->waits : 0;
		if (k->flags & WAKER_INTERRUPT) {
			assert_true(k->by_tid == 0 && k->by_tgid == 0 && k->by_stack == 0);
			sum.by_interrupt += v->waits;
		}
		if (st && function && stack_has(s, st, function, FUNCTION_BYTES))
			sum.with_function += v->waits;
	}
	return sum;
}

struct pipes {
	int fd[2];
	uint64_t waited_ns;
};

/* Without libc's wrapper, which has no frame pointer. */
__attribute__((noinline, aligned(FUNCTION_BYTES))) static void write_to_pipe(int fd)
{
#ifdef __x86_64__
	register long r __asm__("rax") = SYS_write;

	__asm__ volatile("syscall"
			 : "+r"(r)
			 : "D"((long)fd), "S"("x"), "d"(1L)
			 : "rcx", "r11", "memory");
	assert_int_equal(r, 1);
#else
	assert_int_equal(write(fd, "x", 1), 1);
	__asm__ volatile("" ::: "memory");
#endif
}

__attribute__((noinline, aligned(FUNCTION_BYTES))) static void writes(void *arg)
{
	struct pipes *p = arg;

	for (int i = 0; i < ROUNDS; i++) {
		sleep_ms(ROUND_MS);
		write_to_pipe(p->fd[1]);
	}
}

static void reads(void *arg)
{
	struct pipes *p = arg;
	char c;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t begin = mono_now_ns();

		assert_int_equal(read(p->fd[0], &c, 1), 1);
		p->waited_ns += mono_now_ns() - begin;
	}
}

static void test_pipe(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct pipes *p = shared_memory(sizeof(*p));
	pid_t reader, writer;
	struct sum t;

	assert_int_equal(pipe(p->fd), 0);
	reader = start_process(reads, p);
	writer = start_process(writes, p);
	wait_for(writer);
	wait_for(reader);
	s = drain(c, false);
	t = sum_of(s, reader, writer, write_to_pipe);
	print_message("%lu of %lu waits by the writer, %lu in its function, %llu ms of %llu\n",
		      t.by_process, t.waits, t.with_function, t.ns / NSEC_PER_MSEC,
		      p->waited_ns / NSEC_PER_MSEC);
	/* The reader may also be late, and find a byte. */
	assert_true(t.by_process > ROUNDS / 4);
	assert_true(t.with_function > t.by_process / 2);
	/* Waits of a millisecond or more are all kept, and end before the thread has the CPU again. */
	assert_true(t.ns <= p->waited_ns + ROUNDS * NSEC_PER_MSEC);
	assert_true(t.by_process * 5 * NSEC_PER_MSEC < t.ns);
	assert_true(t.max_ns < p->waited_ns);
	assert_true(s->wake_span_ns > 0 && s->wake_span_share == 1);
	assert_conserved(s, SOURCE_OFF_CPU);
	munmap(p, sizeof(*p));
}

static void sleeps(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		sleep_ms(ROUND_MS);
}

static void test_interrupt(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(sleeps, NULL);
	struct sum t;

	wait_for(pid);
	s = drain(c, false);
	t = sum_of(s, pid, 0, NULL);
	assert_true(t.by_interrupt > ROUNDS / 2);
	/* Whomever the timer interrupts has not done it. */
	assert_true(t.by_interrupt * 10 >= t.waits * 9);
}

static struct {
	pthread_mutex_t mutex;
	pid_t holder, waiter;
	pthread_barrier_t barrier;
} handed;

static void *holds(void *arg)
{
	handed.holder = (pid_t)syscall(SYS_gettid);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&handed.mutex);
		pthread_barrier_wait(&handed.barrier);
		sleep_ms(ROUND_MS);
		pthread_mutex_unlock(&handed.mutex);
		pthread_barrier_wait(&handed.barrier);
	}
	return NULL;
}

static void *wants(void *arg)
{
	handed.waiter = (pid_t)syscall(SYS_gettid);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&handed.barrier);
		pthread_mutex_lock(&handed.mutex);
		pthread_mutex_unlock(&handed.mutex);
		pthread_barrier_wait(&handed.barrier);
	}
	return NULL;
}

static void test_mutex(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pthread_t a, b;
	struct sum t;

	pthread_mutex_init(&handed.mutex, NULL);
	pthread_barrier_init(&handed.barrier, NULL, 2);
	assert_int_equal(pthread_create(&a, NULL, holds, NULL), 0);
	assert_int_equal(pthread_create(&b, NULL, wants, NULL), 0);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	s = drain(c, false);
	t = sum_of(s, handed.waiter, handed.holder, NULL);
	assert_true(t.by_thread > ROUNDS / 2);
	assert_int_equal(t.by_interrupt, 0);
}

static void sleep_shortly(void *arg)
{
	uint64_t end = mono_now_ns() + 4 * NSEC_PER_SEC;

	while (mono_now_ns() < end)
		usleep(500);
}

/* Scaled by what spans covered, wakers account for about the time that was waited. */
static void test_spans(void **state)
{
	struct collect_options o = options(0.5);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	pid_t pid = start_process(sleep_shortly, NULL);
	uint64_t ns = 0, waited = 0, span = 0, all = 0;
	uint64_t end = mono_now_ns() + 4200 * NSEC_PER_MSEC;
	double share;

	while (mono_now_ns() < end) {
		uint64_t wake = MIN(collector_wake_ns(c), mono_now_ns() + 50 * NSEC_PER_MSEC);
		_cleanup_(slice_free_p) struct slice *s = NULL;

		while (mono_now_ns() < wake)
			sleep_ms(1);
		assert_int_equal(collector_poll(c), 0);
		s = drain(c, false);
		ns += sum_of(s, pid, 0, NULL).ns;
		for (size_t i = 0; i < s->n_threads; i++)
			if ((pid_t)s->threads[i].tgid == pid)
				waited += s->threads[i].blocked_ns;
		span += s->wake_span_ns;
		all += s->mono_end_ns - s->mono_start_ns;
		assert_conserved(s, SOURCE_OFF_CPU);
	}
	wait_for(pid);
	share = (double)span / (double)all;
	print_message("spans covered %.2f, wakers stand for %.2f of %llu ms\n", share,
		      (double)ns / (double)waited, waited / NSEC_PER_MSEC);
	assert_true(span > 0 && span < all);
	assert_true(ns > 0 && (double)ns / (double)waited > share / 2 &&
		    (double)ns / (double)waited < share * 2);
}

static void test_off(void **state)
{
	struct collect_options o = options(0);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;

	sleep_ms(100);
	s = drain(c, false);
	assert_true(s->n_threads > 0);
	assert_int_equal(s->n_wakes, 0);
	assert_int_equal(s->wake_span_ns, 0);
	assert_true(collector_wake_ns(c) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe),  cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_mutex), cmocka_unit_test(test_spans),
		cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
