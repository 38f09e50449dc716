// SPDX-License-Identifier: GPL-2.0-or-later
/* Latency and sizes of system calls against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <bpf/bpf.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "collect-live.h"
#include "own-bpf.h"

static struct collect_options options(double share)
{
	return (struct collect_options){
		.enabled = { [SOURCE_SYSCALLS] = true },
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
		.syscall_details = share,
	};
}

struct sum {
	uint64_t calls, measured, sum, max;
	unsigned heaviest; /* bin */
};

static struct sum sum_of(const struct slice *s, pid_t tgid, unsigned aspect, int nr)
{
	uint64_t bins[DETAIL_BINS] = {};
	struct sum sum = {};

	for (size_t i = 0; i < s->n_details; i++) {
		const struct slice_detail *d = &s->details[i];
		unsigned bin = CALL_KEY_BIN(d->key.call);

		if ((pid_t)d->key.tgid != tgid || (int)SYSCALL_KEY_NR(d->key.call) != nr ||
		    row_aspect(PROFILE_SYSCALLS, d->key.call) != aspect)
			continue;
		assert_true(bin < DETAIL_BINS);
		bins[bin] += d->value.calls;
		sum.calls += d->value.calls;
		sum.measured += d->value.measured;
		sum.sum += d->value.sum;
		sum.max = MAX(sum.max, d->value.max);
	}
	for (unsigned i = 0; i < DETAIL_BINS; i++)
		if (bins[i] > bins[sum.heaviest])
			sum.heaviest = i;
	return sum;
}

static void sleeps(void *arg)
{
	for (int i = 0; i < 20; i++)
		sleep_ms(20);
}

#define SLEEPERS 8

static void test_latency(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pids[SLEEPERS];
	uint64_t calls = 0;

	for (int i = 0; i < SLEEPERS; i++)
		pids[i] = start_process(sleeps, NULL);
	for (int i = 0; i < SLEEPERS; i++)
		wait_for(pids[i]);
	s = drain(c, false);
	for (int i = 0; i < SLEEPERS; i++) {
		struct sum t = sum_of(s, pids[i], CALL_LATENCY, SYS_clock_nanosleep);

		calls += t.calls;
		assert_true(t.sum >= t.calls * 19 * NSEC_PER_MSEC);
		/* From 16.8 ms on; the host may be busy. */
		assert_true(!t.calls || t.heaviest >= 25);
	}
	print_message("%lu of %d sleeps\n", calls, SLEEPERS * 20);
	/* Of calls that others make on the CPU one may be measured in the place of ours. */
	assert_in_range(calls, SLEEPERS, SLEEPERS * 60);
	assert_int_equal(s->span_ns, s->mono_end_ns - s->mono_start_ns);
	assert_conserved(s, SOURCE_SYSCALLS);
}

#define WRITES 100000

static void writes(void *arg)
{
	int fds[2];
	char buf[1024];

	if (pipe(fds))
		_exit(1);
	for (int i = 0; i < WRITES; i++)
		if (write(fds[1], "x", 1) != 1 || read(fds[0], buf, sizeof(buf)) != 1)
			_exit(1);
	/* What fails has no size. */
	for (int i = 0; i < 100; i++)
		if (write(-1, buf, sizeof(buf)) != -1)
			_exit(1);
}

/* Calls come fast: some are measured, and stand for all. */
static void test_sizes(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(writes, NULL);
	struct sum out, in, time;

	wait_for(pid);
	s = drain(c, false);
	out = sum_of(s, pid, CALL_BYTES, SYS_write);
	in = sum_of(s, pid, CALL_BYTES, SYS_read);
	time = sum_of(s, pid, CALL_LATENCY, SYS_write);
	print_message("write: %lu calls, %lu measured; read: %lu calls; longest %lu\n", out.calls,
		      out.measured, in.calls, out.max);
	assert_in_range(out.calls, WRITES * 85 / 100, WRITES * 115 / 100);
	assert_in_range(in.calls, WRITES * 85 / 100, WRITES * 115 / 100);
	assert_true(out.measured > 1000 && out.measured <= out.calls);
	assert_int_equal(out.sum, out.calls);
	assert_int_equal(out.max, 1);
	assert_int_equal(out.heaviest, 1);
	assert_true(time.calls >= out.calls);
	assert_int_equal(sum_of(s, pid, CALL_BYTES, SYS_pipe2).calls, 0);
	assert_conserved(s, SOURCE_SYSCALLS);
}

static void long_read(void *arg)
{
	char b;

	/* So that no burst of calls precedes it, of which only some are measured. */
	sleep_ms(20);
	if (read(*(int *)arg, &b, 1) != 1)
		_exit(1);
}

/* A call that begins in a span and ends when it is long over. */
static void test_outlasts_its_window(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *first = NULL, *s = NULL;
	pid_t pids[20];
	uint64_t measured = 0, longest = 0;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = start_process(long_read, fds);
	run_for(c, 300);
	first = drain(c, false);
	run_for(c, 300);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		assert_int_equal(write(fds[1], "x", 1), 1);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		wait_for(pids[i]);
	s = drain(c, false);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		struct sum t = sum_of(s, pids[i], CALL_LATENCY, SYS_read);

		measured += t.measured;
		longest = MAX(longest, t.max);
		assert_int_equal(sum_of(first, pids[i], CALL_LATENCY, SYS_read).calls, 0);
	}
	print_message("%lu of %zu measured, longest %lu ns\n", measured, ARRAY_SIZE(pids), longest);
	assert_true(measured >= 1);
	assert_true(longest >= 300 * NSEC_PER_MSEC);
	close(fds[0]);
	close(fds[1]);
}

/* ---- what is left behind ------------------------------------------------------------------------------- */

static unsigned count_stamps(int fd, uint32_t entries)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < entries; i++) {
		uint64_t stamp = 0;

		assert_int_equal(bpf_map_lookup_elem(fd, &i, &stamp), 0);
		n += stamp != 0;
	}
	return n;
}

static void *exec_true(void *arg)
{
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

static void exec_from_a_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, exec_true, NULL))
		_exit(1);
	for (;;)
		pause();
}

static pid_t vforked(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	return pid;
}

/* Each way of ending a process, and of ending a call in a way of its own. */
static void many_processes(void *arg)
{
	int fds[2], n = *(int *)arg;
	char b;

	if (pipe(fds))
		_exit(1);
	for (int i = 0; i < n; i++) {
		int kind = i % 4;
		pid_t pid = kind == 3 ? vforked() : fork();

		if (pid == 0) {
			if (kind == 0 && read(fds[0], &b, 1))
				_exit(1);
			if (kind == 1 && i % 40 == 1)
				exec_from_a_thread();
			_exit(0);
		}
		if (pid < 0)
			_exit(1);
		if (kind == 0)
			kill(pid, SIGKILL);
		if (waitpid(pid, NULL, 0) != pid)
			_exit(1);
	}
}

/* As many as do not hold up the other tests; PROCESSES=100000 asks for more. */
static int count_processes(void)
{
	const char *asked = getenv("PROCESSES");

	return asked ? atoi(asked) : 4000;
}

static void test_nothing_is_left_behind(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct own_map stamps = own_map("call_stamps");
	unsigned before, after;
	int n = count_processes();
	pid_t pid;

	run_for(c, 200);
	before = count_stamps(stamps.fd, stamps.entries);
	pid = start_process(many_processes, &n);
	wait_for(pid);
	after = count_stamps(stamps.fd, stamps.entries);
	s = drain(c, false);
	print_message("stamps: %u before %d processes, %u after, of %u\n", before, n, after,
		      stamps.entries);
	/* Threads of this host that wait in a call hold one each; ours would be hundreds. */
	assert_true(after < before + 150);
	assert_conserved(s, SOURCE_SYSCALLS);
	close(stamps.fd);
}

static void execs(void *arg)
{
	exec_from_a_thread();
}

/* The call returns under another thread's id. */
static void test_exec_of_a_thread(void **state)
{
	struct collect_options o = options(1);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	uint64_t measured = 0, exits = 0;
	pid_t pids[60];

	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = start_process(execs, NULL);
		wait_for(pids[i]);
	}
	s = drain(c, false);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		measured += sum_of(s, pids[i], CALL_LATENCY, SYS_execve).measured;
		exits += sum_of(s, pids[i], CALL_LATENCY, SYS_exit_group).calls;
	}
	print_message("%lu of %zu measured\n", measured, ARRAY_SIZE(pids));
	/* Where calls come fast, not each is. */
	assert_true(measured >= 1);
	assert_int_equal(exits, 0);
}

/* ---- spans ----------------------------------------------------------------------------------------------- */

static void call_for_three_seconds(void *arg)
{
	uint64_t end = mono_now_ns() + 3 * NSEC_PER_SEC;

	while (mono_now_ns() < end)
		syscall(SYS_getppid);
}

/* Of calls that come evenly, details see the share that spans covered, and counts see all. */
static void test_spans(void **state)
{
	struct collect_options o = options(0.3);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	pid_t pid = start_process(call_for_three_seconds, NULL);
	uint64_t seen = 0, counted = 0, span = 0, all = 0, last_span = 0;
	uint64_t end = mono_now_ns() + 3200 * NSEC_PER_MSEC;

	while (mono_now_ns() < end) {
		uint64_t wake = MIN(collector_wake_ns(c), mono_now_ns() + 50 * NSEC_PER_MSEC);
		_cleanup_(slice_free_p) struct slice *s = NULL;
		uint64_t seen_here;

		while (mono_now_ns() < wake)
			sleep_ms(1);
		assert_int_equal(collector_poll(c), 0);
		s = drain(c, false);
		seen_here = sum_of(s, pid, CALL_LATENCY, SYS_getppid).calls;
		/* Nothing is measured but what began in a span, and these calls are short. */
		if (!s->span_ns && !last_span)
			assert_int_equal(seen_here, 0);
		last_span = s->span_ns;
		seen += seen_here;
		for (size_t i = 0; i < s->n_syscalls; i++)
			if ((pid_t)s->syscalls[i].key.tgid == pid &&
			    SYSCALL_KEY_NR(s->syscalls[i].key.call) == SYS_getppid)
				counted += s->syscalls[i].calls;
		span += s->span_ns;
		all += s->mono_end_ns - s->mono_start_ns;
		assert_conserved(s, SOURCE_SYSCALLS);
	}
	wait_for(pid);
	print_message("spans covered %.2f, details stand for %.2f of %lu calls\n",
		      (double)span / (double)all, (double)seen / (double)counted, counted);
	assert_true(span > 0 && span < all);
	assert_true(seen > 0 && seen < counted);
}

static void test_off(void **state)
{
	struct collect_options o = options(0);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;

	run_for(c, 100);
	s = drain(c, false);
	assert_true(s->n_syscalls > 0);
	assert_int_equal(s->n_details, 0);
	assert_int_equal(s->span_ns, 0);
	assert_true(collector_wake_ns(c) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_outlasts_its_window),
		cmocka_unit_test(test_nothing_is_left_behind),
		cmocka_unit_test(test_exec_of_a_thread),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
