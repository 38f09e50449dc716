// SPDX-License-Identifier: GPL-2.0-or-later
/* Slices into buckets: what does not fit is folded, what fails is dropped, and both are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "window/internal.h"

static char root[] = "/tmp/sysprofd-window.XXXXXX";
static struct process_table *table;

static int setup(void **state)
{
	struct process_options o = { .proc = root, .pods = root, .max_processes = 100 };

	return mkdtemp(root) ? process_table_new(&o, &table) : -1;
}

static int teardown(void **state)
{
	table = process_table_free(table);
	return rmdir(root);
}

static struct window *make_window(uint32_t max_series, uint32_t max_stacks)
{
	const struct window_options o = {
		.max_series = max_series,
		.max_stacks = max_stacks,
		.max_bytes = 1 << 20,
	};
	struct window *w = NULL;

	assert_int_equal(window_new(&o, table, NULL, &w), 0);
	return w;
}

/* Three processes: 5 samples and 7 calls each, of a stack that did not arrive. */
static struct slice_on_cpu on_cpu[3];
static struct slice_syscall calls[3];

static struct slice make_slice(void)
{
	struct slice s = {
		.mono_start_ns = 1000,
		.mono_end_ns = 3000,
		.cpus_online = 1,
		.on_cpu = on_cpu,
		.n_on_cpu = 3,
		.syscalls = calls,
		.n_syscalls = 3,
	};

	for (uint32_t i = 0; i < 3; i++) {
		on_cpu[i] = (struct slice_on_cpu){
			.key = { .stack = 9, .tgid = 100 + i, .tid = 100 + i, .start = 1 },
			.value = { .samples = 5, .ns = 50000 },
		};
		calls[i] = (struct slice_syscall){
			.key = { .tgid = 100 + i, .start = 1, .call = SYSCALL_KEY(0, 1, 0) },
			.calls = 7,
		};
	}
	s.source[SOURCE_ON_CPU].sum = (struct account){ .seen = 15, .stored = 15, .ns = 150000 };
	s.source[SOURCE_SYSCALLS].sum = (struct account){ .seen = 21, .stored = 21 };
	return s;
}

static uint64_t sum_counts(const struct columns *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->n; i++)
		sum += c->count[i];
	return sum;
}

static void assert_balanced(const struct bucket *b, enum source source)
{
	const struct accounting *a = &b->meta.source[source];

	assert_int_equal(a->seen, a->stored + a->idle + accounting_lost(a));
	assert_int_equal(sum_counts(&b->columns[source]), a->stored);
}

static void test_folded(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(2, 1000);
	const struct bucket_meta begin = { .length_ns = 1 };
	struct slice s = make_slice();
	struct filled f = {};

	assert_int_equal(window_add(w, &s, &begin), 0);
	assert_int_equal(window_close(w, &f), 0);
	assert_balanced(f.bucket, SOURCE_ON_CPU);
	assert_balanced(f.bucket, SOURCE_SYSCALLS);
	/* Two series fit; they are the first two threads'. */
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].lost[LOSS_DICT_FULL], 5);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].lost[LOSS_STACK_MISSING], 15);
	assert_int_equal(f.bucket->meta.source[SOURCE_SYSCALLS].lost[LOSS_DICT_FULL], 21);
	/* Totals since the start are made of slices: they know as well. */
	assert_int_equal(s.source[SOURCE_ON_CPU].sum.lost[LOSS_DICT_FULL], 5);
	assert_int_equal(s.source[SOURCE_SYSCALLS].sum.lost[LOSS_DICT_FULL], 21);
	filled_done(&f);
}

/* Calls that were counted in spans stand for the whole bucket, also in what is asked of it while it is open. */
static void test_sampled_calls(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(100, 1000);
	const struct bucket_meta begin = { .length_ns = 1 };
	struct filled open = {}, closed = {};
	struct slice s = make_slice();

	s.calls_sampled = true;
	s.counted_ns = 2000;
	assert_int_equal(window_add(w, &s, &begin), 0);
	s = make_slice();
	s.mono_end_ns = 19000;
	s.calls_sampled = true;
	s.n_syscalls = 0;
	s.source[SOURCE_SYSCALLS].sum = (struct account){};
	assert_int_equal(window_add(w, &s, &begin), 0);
	assert_int_equal(window_snapshot(w, &open), 0);
	assert_int_equal(window_close(w, &closed), 0);
	/* 20 us, of which 2 were looked at. */
	assert_int_equal(sum_counts(&open.bucket->columns[PROFILE_SYSCALLS]), 210);
	assert_int_equal(sum_counts(&closed.bucket->columns[PROFILE_SYSCALLS]), 210);
	assert_true(closed.bucket->meta.source[PROFILE_SYSCALLS].sampled);
	assert_int_equal(closed.bucket->meta.source[PROFILE_SYSCALLS].counted_us, 2);
	assert_int_equal(closed.bucket->meta.source[PROFILE_SYSCALLS].stored, 21);
	filled_done(&open);
	filled_done(&closed);
}

/* A row that fails takes none of the others with it. */
static void test_failing(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(UINT32_MAX, 1000);
	const struct bucket_meta begin = { .length_ns = 1 };
	struct slice s = make_slice();
	struct filled f = {};
	size_t n;

	s.n_on_cpu = 1;
	s.n_syscalls = 0;
	s.source[SOURCE_ON_CPU].sum = (struct account){ .seen = 5, .stored = 5, .ns = 50000 };
	s.source[SOURCE_SYSCALLS].sum = (struct account){};
	assert_int_equal(window_add(w, &s, &begin), 0);
	s = make_slice();
	n = w->bucket->dict->n_series;
	w->bucket->dict->n_series = 1U << 31; /* no more fit: only the thread that is known */
	assert_int_equal(window_add(w, &s, &begin), -ENOSPC);
	w->bucket->dict->n_series = n;
	assert_int_equal(window_close(w, &f), 0);
	assert_balanced(f.bucket, SOURCE_ON_CPU);
	assert_balanced(f.bucket, SOURCE_SYSCALLS);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].stored, 10);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].lost[LOSS_OTHER], 10);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].stored_us, 100);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].lost_us, 100);
	assert_int_equal(f.bucket->meta.source[SOURCE_SYSCALLS].lost[LOSS_OTHER], 21);
	filled_done(&f);
}

/* Of more locks than a bucket holds those with the longest waits are told apart; the others keep waits and time. */
#define LOCKS 2000
#define WORDS (LOCKS + 100)

static void test_locks_folded(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(100, 1000);
	_cleanup_free_ struct slice_futex *futex = calloc(WORDS, sizeof(*futex));
	const struct bucket_meta begin = { .length_ns = 1 };
	struct slice s = { .mono_end_ns = 1000, .futex = futex, .n_futex = WORDS };
	uint64_t other = 0, other_us = 0, waits = 0, us = 0, bins = 0;
	const struct columns *c;
	struct filled f = {};

	for (uint32_t i = 0; i < WORDS; i++) {
		futex[i] = (struct slice_futex){
			.key = { .tgid = 100,
				 .tid = 100,
				 .start = 1,
				 .address = 0x1000 + 4 * i,
				 .futex_class = FUTEX_CLASS_WAIT,
				 .outcome = FUTEX_WOKEN },
			.value = { .waits = 2,
				   .ns = (i + 1) * 1000 + 4,
				   .max_ns = (i + 1) * 1000 + 4 },
		};
		futex[i].value.bins[1] = 2;
	}
	s.source[SOURCE_FUTEX].sum = (struct account){ .seen = 2 * WORDS, .stored = 2 * WORDS };
	assert_int_equal(window_add(w, &s, &begin), 0);
	assert_int_equal(w->stats.folded_locks, WORDS - LOCKS);
	assert_int_equal(window_close(w, &f), 0);
	assert_int_equal(f.bucket->dict->n_locks, 1 + LOCKS + 1);
	c = &f.bucket->columns[SOURCE_FUTEX];
	for (size_t i = 0; i < c->n; i++) {
		const struct lock *l = &f.bucket->dict->locks[c->aux[i]];
		bool is_other = streq(dict_str(f.bucket->dict, l->name), "[other]");

		if (row_aspect(PROFILE_FUTEX, c->key[i]) == FUTEX_HISTOGRAM) {
			bins += c->count[i];
			continue;
		}
		/* The shortest hundred. */
		assert_true(is_other || l->address >= 0x1000 + 4 * (WORDS - LOCKS));
		assert_true(c->max[i] <= c->value[i]);
		waits += c->count[i];
		us += c->value[i];
		other += is_other ? c->count[i] : 0;
		other_us += is_other ? c->value[i] : 0;
	}
	assert_int_equal(waits, 2 * WORDS);
	assert_int_equal(bins, 2 * WORDS);
	assert_int_equal(us, WORDS * (WORDS + 1) / 2);
	assert_int_equal(other, 2 * (WORDS - LOCKS));
	assert_int_equal(other_us, (WORDS - LOCKS) * (WORDS - LOCKS + 1) / 2);
	filled_done(&f);
}

/* A holder that was only seen is where its thread ran for the longest in that window. */
static void test_nearest(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(100, 1000);
	const struct bucket_meta begin = { .length_ns = 1 };
	struct slice_stack stacks[2] = {
		{ .id = 8, .tgid = 100, .start = 1, .walk_end = WALK_NO_REGS },
		{ .id = 9, .tgid = 100, .start = 1, .nr_kernel = 1 }
	};
	struct slice_on_cpu runs[3] = {
		{ { .stack = 8, .tgid = 100, .tid = 101, .start = 1 }, { 1, 1000 } },
		{ { .stack = 9, .tgid = 100, .tid = 101, .start = 1 }, { 5, 5000 } },
		{ { .stack = 8, .tgid = 100, .tid = 102, .start = 1 }, { 9, 9000 } },
	};
	struct slice_lock_sample look = {
		.key = { .aspect = LOCK_LOOK,
			 .state = HOLDER_RUNNING,
			 .tgid = 100,
			 .tid = 101,
			 .start = 1,
			 .lock_tgid = 100,
			 .lock_start = 1,
			 .address = 0x1000 },
		.value = { .n = 3 },
	};
	uint64_t ip = 0xffffffff81000000;
	struct slice s = { .mono_end_ns = 1000,
			   .stacks = stacks,
			   .n_stacks = 2,
			   .ips = &ip,
			   .n_ips = 1,
			   .on_cpu = runs,
			   .n_on_cpu = 3,
			   .lock_samples = &look,
			   .n_lock_samples = 1 };
	const struct columns *c, *running;
	struct filled f = {};
	uint32_t longest = 0;

	assert_int_equal(window_add(w, &s, &begin), 0);
	assert_int_equal(window_close(w, &f), 0);
	running = &f.bucket->columns[SOURCE_ON_CPU];
	for (size_t i = 0; i < running->n; i++)
		if (running->count[i] == 5)
			longest = running->stack[i];
	c = &f.bucket->columns[SOURCE_FUTEX];
	assert_int_equal(c->n, 1);
	assert_int_equal(row_aspect(PROFILE_FUTEX, c->key[0]), FUTEX_HOLDER);
	assert_int_equal(c->count[0], 3);
	assert_true(longest);
	assert_int_equal(c->stack[0], longest);
	filled_done(&f);
}

/* Counters that are estimates have a row with the time that they are of; what did not count has none. */
static void test_hardware(void **state)
{
	struct window *w = make_window(100, 100);
	struct slice_hardware h = {
		.key = { .tgid = 100, .start = 1 },
		.value = { .spans = 3,
			   .ns = 4000,
			   .counters = { [1] = { .n = 9000, .ns = 2000 } } },
	};
	struct slice s = make_slice();
	_cleanup_(filled_done) struct filled f = {};
	const struct columns *c;
	unsigned spans = 0, instructions = 0, others = 0;

	s.hardware = &h;
	s.n_hardware = 1;
	assert_int_equal(window_add(w, &s, &(struct bucket_meta){}), 0);
	assert_int_equal(window_close(w, &f), 0);
	c = &f.bucket->columns[PROFILE_ON_CPU];
	for (size_t i = 0; i < c->n; i++) {
		if (row_aspect(PROFILE_ON_CPU, c->key[i]) != ON_COUNTERS)
			continue;
		switch (ON_KEY_COUNTER(c->key[i])) {
		case COUNTER_SPANS:
			spans++;
			assert_int_equal(c->count[i], 3);
			assert_int_equal(c->value[i], 4); /* us */
			break;
		case COUNTER_INSTRUCTIONS:
			instructions++;
			assert_int_equal(c->count[i], 9000);
			assert_int_equal(c->value[i], 2);
			break;
		default:
			others++;
		}
	}
	assert_int_equal(spans, 1);
	assert_int_equal(instructions, 1);
	assert_int_equal(others, 0);
	window_free(w);
}

static uint64_t sum_instructions(const struct bucket *b)
{
	const struct columns *c = &b->columns[PROFILE_ON_CPU];
	uint64_t sum = 0;

	for (size_t i = 0; i < c->n; i++) {
		if (row_aspect(PROFILE_ON_CPU, c->key[i]) != ON_INSTRUCTIONS)
			continue;
		sum += c->count[i];
		/* Instructions, and not microseconds. */
		assert_int_equal(c->value[i], c->count[i] * 1001);
	}
	return sum;
}

/* What is lost of instructions is not lost of the samples beside them. */
static void test_instructions(void **state)
{
	_cleanup_(window_free_p) struct window *w = make_window(UINT32_MAX, 1000);
	struct slice_on_cpu instructions[2] = {
		{ .key = { .stack = 9, .tgid = 100, .tid = 100, .start = 1 },
		  .value = { .samples = 4, .ns = 4004 } },
		{ .key = { .stack = 9, .tgid = 200, .tid = 200, .start = 1 },
		  .value = { .samples = 3, .ns = 3003 } },
	};
	struct slice s = make_slice();
	_cleanup_(filled_done) struct filled f = {};
	size_t n;

	s.instructions = instructions;
	s.n_instructions = 1;
	s.instructions_sum =
		(struct account){ .seen = 6, .stored = 4, .lost = { [LOSS_COUNT_FULL] = 2 } };
	assert_int_equal(window_add(w, &s, &(struct bucket_meta){}), 0);
	s = (struct slice){ .instructions = instructions + 1, .n_instructions = 1 };
	s.instructions_sum =
		(struct account){ .seen = 4, .stored = 3, .lost = { [LOSS_SCRATCH_BUSY] = 1 } };
	n = w->bucket->dict->n_series;
	w->bucket->dict->n_series = 1U << 31; /* that process is new, and has no room */
	assert_int_equal(window_add(w, &s, &(struct bucket_meta){}), -ENOSPC);
	w->bucket->dict->n_series = n;
	assert_int_equal(s.instructions_sum.stored, 0);
	assert_int_equal(window_close(w, &f), 0);
	assert_int_equal(sum_instructions(f.bucket), 4);
	/* Two had no room in the kernel, three none here; one without a stack is there. */
	assert_int_equal(f.bucket->instructions.lost, 5);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].stored, 15);
	assert_int_equal(accounting_lost(&f.bucket->meta.source[SOURCE_ON_CPU]), 0);
	assert_int_equal(f.bucket->meta.source[SOURCE_ON_CPU].stored_us, 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_folded),	     cmocka_unit_test(test_locks_folded),
		cmocka_unit_test(test_nearest),	     cmocka_unit_test(test_sampled_calls),
		cmocka_unit_test(test_failing),	     cmocka_unit_test(test_hardware),
		cmocka_unit_test(test_instructions),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
