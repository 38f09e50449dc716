// SPDX-License-Identifier: GPL-2.0-or-later
/* What windows are told of threads: differences, their sums and their bounds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "collect/threads.h"

#define MS NSEC_PER_MSEC

static struct thread_record record(uint32_t tid, uint64_t now_ms)
{
	return (struct thread_record){
		.tgid = 100,
		.tid = tid,
		.start = 7,
		.thread_start = 1000 + tid,
		.now_mono_ns = now_ms * MS,
	};
}

static void waiting(struct thread_record *r, enum off_cause cause, uint64_t since_ms)
{
	r->state = THREAD_OFF_CPU | cause << 8;
	r->since_mono_ns = since_ms * MS;
}

static void test_ended_waits(void **state)
{
	struct thread th = { .allowance_ns = UINT64_MAX };
	struct thread_record r = record(1, 1000);
	struct slice_thread d;

	r.off_ns = 50 * MS;
	r.off_n = 5;
	r.run_delay_ns = 10 * MS;
	r.preempted_ns = 7 * MS;
	r.preempted_n = 4;
	r.yield_ns = 2 * MS;
	r.yield_n = 1;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns, 40 * MS);
	assert_int_equal(d.run_queue_ns, 12 * MS);
	assert_int_equal(d.preempted_ns, 5 * MS);
	assert_int_equal(d.blocked_n, 5);
	assert_int_equal(d.run_queue_n, 6);
	assert_int_equal(d.preempted_n, 3);
	assert_int_equal(d.tid, 1);
	assert_int_equal(d.start, 7);
	/* Nothing new, nothing told. */
	r.now_mono_ns += 500 * MS;
	assert_false(thread_tell(&th, &r, &d));
}

/* One wait over three windows: each gets its part, the event counts where it ends. */
static void test_wait_over_windows(void **state)
{
	struct thread th = { .allowance_ns = UINT64_MAX };
	struct thread_record r = record(1, 1000);
	struct slice_thread d;

	waiting(&r, OFF_BLOCKED, 900);
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns, 100 * MS);
	assert_int_equal(d.blocked_n, 0);
	r = record(1, 2000);
	waiting(&r, OFF_BLOCKED, 900);
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns, 1000 * MS);
	r = record(1, 3000);
	r.off_ns = 1600 * MS;
	r.off_n = 1;
	r.run_delay_ns = 200 * MS;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns + d.run_queue_ns, 500 * MS);
	assert_int_equal(d.run_queue_ns, 200 * MS);
	assert_int_equal(d.blocked_n, 1);
}

/* The delay comes all at once, at most as much as this window has; what is left comes later, or never. */
static void test_late_delay(void **state)
{
	struct thread th = { .allowance_ns = UINT64_MAX };
	struct thread_record r = record(1, 1000);
	struct slice_thread d;

	waiting(&r, OFF_BLOCKED, 0);
	assert_true(thread_tell(&th, &r, &d));
	r = record(1, 1100);
	r.off_ns = 1010 * MS;
	r.off_n = 1;
	r.run_delay_ns = 400 * MS;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns, 0);
	assert_int_equal(d.run_queue_ns, 10 * MS);
	r = record(1, 1200);
	r.off_ns = 1050 * MS;
	r.off_n = 2;
	r.run_delay_ns = 400 * MS;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.run_queue_ns, 40 * MS);
}

/* A reading that saw the wait in the total and in progress: the next window makes up for it. */
static void test_torn_reading(void **state)
{
	struct thread th = { .allowance_ns = UINT64_MAX };
	struct thread_record r = record(1, 1000);
	struct slice_thread d;
	uint64_t sum;

	assert_false(thread_tell(&th, &r, &d));
	r = record(1, 2000);
	r.off_ns = 800 * MS;
	r.off_n = 1;
	waiting(&r, OFF_BLOCKED, 1200);
	assert_true(thread_tell(&th, &r, &d));
	/* Not more than passed. */
	assert_int_equal(d.blocked_ns, 1000 * MS);
	sum = d.blocked_ns;
	r = record(1, 3000);
	r.off_ns = 1500 * MS;
	r.off_n = 2;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(sum + d.blocked_ns, 1500 * MS);
}

/* A total that falls back is told as nothing. */
static void test_never_negative(void **state)
{
	struct thread th = { .allowance_ns = UINT64_MAX };
	struct thread_record r = record(1, 1000);
	struct slice_thread d;

	r.off_ns = 500 * MS;
	r.off_n = 5;
	assert_true(thread_tell(&th, &r, &d));
	r.now_mono_ns = 900 * MS;
	r.off_ns = 400 * MS;
	r.off_n = 4;
	assert_false(thread_tell(&th, &r, &d));
	r.now_mono_ns = 2000 * MS;
	r.off_ns = 510 * MS;
	r.off_n = 6;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.blocked_ns, 10 * MS);
	assert_int_equal(d.blocked_n, 1);
	/* The part is not larger than the whole, whatever a record says. */
	r.preempted_ns = 5 * MS;
	r.yield_ns = 50 * MS;
	r.yield_n = 3;
	r.now_mono_ns = 3000 * MS;
	assert_true(thread_tell(&th, &r, &d));
	assert_int_equal(d.preempted_ns, 0);
	assert_int_equal(d.run_queue_ns, 5 * MS);
}

static void test_causes_in_progress(void **state)
{
	struct thread a = { .allowance_ns = UINT64_MAX }, b = a;
	struct thread_record r = record(1, 1000);
	struct slice_thread d;

	waiting(&r, OFF_PREEMPTED, 990);
	assert_true(thread_tell(&a, &r, &d));
	assert_int_equal(d.preempted_ns, 10 * MS);
	waiting(&r, OFF_RUN_QUEUE, 980);
	assert_true(thread_tell(&b, &r, &d));
	assert_int_equal(d.run_queue_ns, 20 * MS);
}

static void test_table(void **state)
{
	struct thread_table t = {};

	for (uint32_t i = 1; i <= 1000; i++) {
		struct thread_record r = record(i, 1);

		assert_non_null(thread_get(&t, &r));
		assert_ptr_equal(thread_get(&t, &r), thread_find(&t, i, r.thread_start));
	}
	assert_int_equal(thread_table_count(&t), 1000);
	/* A tid that is used again is another thread. */
	assert_null(thread_find(&t, 5, 99));
	for (uint32_t i = 1; i <= 1000; i += 2)
		thread_drop(&t, i, 1000 + i);
	thread_drop(&t, 4711, 1);
	assert_int_equal(thread_table_count(&t), 500);
	assert_null(thread_find(&t, 1, 1001));
	for (uint32_t i = 2; i <= 1000; i += 2) {
		struct thread *th = thread_find(&t, i, 1000 + i);

		assert_non_null(th);
		assert_int_equal(th->tid, i);
	}
	for (uint32_t i = 1001; i <= 1500; i++) {
		struct thread_record r = record(i, 1);

		assert_non_null(thread_get(&t, &r));
	}
	/* Numbers are used again. */
	assert_true(t.n <= 1001);
	thread_table_done(&t);
}

static bool keep_stack(struct thread_table *t, struct thread *th, uint64_t since_ns)
{
	struct remote_stack s = { .ips = calloc(512, 8), .n = 512, .end = WALK_COMPLETE };

	return thread_keep_stack(t, th, since_ns, &s);
}

static void test_limits(void **state)
{
	struct thread_table t = { .max = 100 };
	struct thread *th;
	size_t kept = 0;

	for (uint32_t i = 1; i <= 150; i++) {
		struct thread_record r = record(i, 1);

		assert_int_equal(thread_get(&t, &r) != NULL, i <= 100);
	}
	assert_int_equal(t.refused, 50);
	/* Stacks of 512 frames: as many as their limit holds, and again when some are given up. */
	t.stack_bytes = THREAD_STACK_BYTES_MAX - 10 * 4096;
	for (uint32_t i = 1; i <= 100; i++) {
		th = thread_find(&t, i, 1000 + i);
		kept += keep_stack(&t, th, 1);
	}
	assert_int_equal(kept, 10);
	thread_drop(&t, 1, 1001);
	th = thread_find(&t, 2, 1002);
	assert_true(keep_stack(&t, th, 2));
	th = thread_find(&t, 99, 1099);
	assert_true(keep_stack(&t, th, 2));
	assert_false(keep_stack(&t, thread_find(&t, 98, 1098), 2));
	assert_int_equal(t.stack_bytes, THREAD_STACK_BYTES_MAX);
	thread_table_done(&t);
}

/* Who is not seen twice is gone: once may be because its last record is on its way. */
static void test_readings(void **state)
{
	struct thread_table t = {};
	struct thread_record stays = record(1, 1), leaves = record(2, 1);

	thread_reading_begin(&t);
	thread_get(&t, &stays)->seen = t.reading;
	thread_get(&t, &leaves)->seen = t.reading;
	thread_reading_end(&t);
	thread_reading_begin(&t);
	thread_get(&t, &stays)->seen = t.reading;
	thread_reading_end(&t);
	assert_int_equal(thread_table_count(&t), 2);
	thread_reading_begin(&t);
	thread_get(&t, &stays)->seen = t.reading;
	thread_reading_end(&t);
	assert_int_equal(thread_table_count(&t), 1);
	assert_non_null(thread_find(&t, 1, 1001));
	thread_table_done(&t);
}

/* Of a thread that was there before us counts only what is new; of one that was born since, all. */
static void test_counters(void **state)
{
	struct thread_table t = { .since_boot_ns = 1002 };
	struct thread_record old = record(1, 1000), young = record(2, 1000);
	struct slice_thread d;

	old.counters[COUNTER_MINOR_FAULTS] = young.counters[COUNTER_MINOR_FAULTS] = 70;
	assert_false(thread_tell(thread_get(&t, &old), &old, &d));
	assert_true(thread_tell(thread_get(&t, &young), &young, &d));
	assert_int_equal(d.counters[COUNTER_MINOR_FAULTS], 70);
	old.counters[COUNTER_MINOR_FAULTS] = 75;
	old.counters[COUNTER_MIGRATIONS] = 1;
	assert_true(thread_tell(thread_get(&t, &old), &old, &d));
	assert_int_equal(d.counters[COUNTER_MINOR_FAULTS], 5);
	assert_int_equal(d.counters[COUNTER_MIGRATIONS], 1);
	/* A reading that is older than the last one takes nothing back. */
	old.counters[COUNTER_MINOR_FAULTS] = 72;
	assert_false(thread_tell(thread_get(&t, &old), &old, &d));
	thread_table_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ended_waits),    cmocka_unit_test(test_wait_over_windows),
		cmocka_unit_test(test_late_delay),     cmocka_unit_test(test_torn_reading),
		cmocka_unit_test(test_never_negative), cmocka_unit_test(test_causes_in_progress),
		cmocka_unit_test(test_table),	       cmocka_unit_test(test_limits),
		cmocka_unit_test(test_readings),       cmocka_unit_test(test_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
