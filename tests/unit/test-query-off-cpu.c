// SPDX-License-Identifier: GPL-2.0-or-later
/* Off-CPU: exact totals and the samples that tell where they went. */
#include "fake-reader.h"
#include "query/internal.h"
#include "query/off-cpu.h"

static void test_share_out(void **state)
{
	const uint64_t weights[] = { 1, 1, 1, 0, 4 }, zeros[3] = {};
	struct remainder scratch[64];
	uint64_t out[64], sum, random[64];
	unsigned seed = 7;

	share_out(10, weights, 5, out,
		  scratch); /* 1.43 each, 5.71: the last one has most left over */
	assert_int_equal(out[0] + out[1] + out[2] + out[3] + out[4], 10);
	assert_int_equal(out[0], 2); /* 1 + the second remainder, ties to the first */
	assert_int_equal(out[1], 1);
	assert_int_equal(out[3], 0);
	assert_int_equal(out[4], 6);
	share_out(7, zeros, 3, out, scratch);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1] + out[2], 4);
	share_out(UINT64_MAX, weights, 5, out, scratch);
	assert_true(out[0] + out[1] + out[2] + out[3] + out[4] == UINT64_MAX);
	for (int round = 0; round < 1000; round++) {
		uint64_t total = ((uint64_t)rand_r(&seed) << 20) + (uint64_t)rand_r(&seed);

		for (int i = 0; i < 64; i++)
			random[i] = (uint64_t)rand_r(&seed) >> (rand_r(&seed) % 31);
		share_out(total, random, 64, out, scratch);
		sum = 0;
		for (int i = 0; i < 64; i++)
			sum += out[i];
		assert_true(sum == total);
	}
}

static struct bucket *off_cpu_host(uint64_t start)
{
	struct bucket *b = make_bucket(start, 0);

	/* 900 us blocked, of which samples say 2/3 read and 1/3 futex. */
	off_total(b, app, OFF_BLOCKED, 9, 900);
	off_sample(b, app, "main;read", OFF_BLOCKED, 1, 4, 800);
	off_sample(b, app, "main;futex", OFF_BLOCKED, 2, 2, 400);
	off_total(b, app, OFF_RUN_QUEUE, 30, 100); /* never sampled */
	off_total(b, db, OFF_PREEMPTED, 3, 50);
	off_sample(b, db, "query;sort", OFF_PREEMPTED, 0, 1, 7);
	return b;
}

static void test_off_cpu_functions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = off_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };

	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 1050 * 1000);
	assert_int_equal(t->coverage->samples, 42);
	assert_int_equal(row_named(t, "read")->self, 600 * 1000);
	assert_int_equal(row_named(t, "read")->events, 6);
	assert_int_equal(row_named(t, "futex")->self, 300 * 1000);
	assert_int_equal(row_named(t, "main")->total, 900 * 1000);
	assert_int_equal(row_named(t, "main")->self, 0);
	assert_int_equal(row_named(t, "sort")->self, 50 * 1000);
	assert_int_equal(row_named(t, "[not sampled]")->self, 100 * 1000);
	assert_int_equal(row_named(t, "[not sampled]")->events, 30);
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 1050 * 1000);
	assert_int_equal(sum_of(p), p->total);
	for (size_t i = 0; i < p->columns.n; i++)
		assert_int_equal(OFF_KEY_TOTAL(p->columns.key[i]), 0);
}

static void test_off_cpu_exact_dimensions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = off_cpu_host(T0);
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };
	struct top *t = top_of(&src, &s, BY_CAUSE, false, 0);

	assert_int_equal(t->n_rows, 3);
	assert_int_equal(row_named(t, "blocked")->self, 900 * 1000);
	assert_int_equal(row_named(t, "blocked")->events, 9);
	assert_int_equal(row_named(t, "run-queue")->self, 100 * 1000);
	assert_int_equal(row_named(t, "preempted")->self, 50 * 1000);
	top_free(t);
	t = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(row_named(t, "app")->self, 1000 * 1000);
	assert_int_equal(row_named(t, "app")->events, 39);
	assert_int_equal(row_named(t, "db")->self, 50 * 1000);
	top_free(t);
}

static uint64_t off_total_of(const struct bucket *b, enum filter_key key, const char *glob,
			     bool negate)
{
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };
	struct profile *p;
	uint64_t total;

	where(&s, key, glob, negate);
	p = merged(&src, &s, 0);
	total = p->total;
	assert_int_equal(sum_of(p), total);
	profile_free(p);
	selection_done(&s);
	return total;
}

static void test_off_cpu_filters(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = off_cpu_host(T0);

	assert_int_equal(off_total_of(b, FILTER_CAUSE, "blocked", false), 900 * 1000);
	assert_int_equal(off_total_of(b, FILTER_CAUSE, "blocked", true), 150 * 1000);
	assert_int_equal(off_total_of(b, FILTER_COMM, "db", false), 50 * 1000);
	/* Samples estimate what the totals cannot tell. */
	assert_int_equal(off_total_of(b, FILTER_FUNCTION, "read", false), 600 * 1000);
	assert_int_equal(off_total_of(b, FILTER_FUNCTION, "main", false), 900 * 1000);
	assert_int_equal(off_total_of(b, FILTER_FUNCTION, "read", true), 450 * 1000);
	assert_int_equal(off_total_of(b, FILTER_FUNCTION, "[not sampled]", false), 100 * 1000);
	assert_int_equal(off_total_of(b, FILTER_STATE, "D", false), 300 * 1000);
	assert_int_equal(off_total_of(b, FILTER_STATE, "S", false), 600 * 1000);
	assert_int_equal(off_total_of(b, FILTER_STATE, "R", false), 50 * 1000);
	assert_int_equal(off_total_of(b, FILTER_STATE, "", false), 100 * 1000);
}

/* By process and filtered by function: the scaled samples that match. */
static void test_off_cpu_filtered_top(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = off_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };

	where(&s, FILTER_FUNCTION, "read", false);
	t = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(t->n_rows, 1);
	assert_int_equal(t->rows[0].self, 600 * 1000);
	assert_int_equal(t->coverage->total, 600 * 1000);
	selection_done(&s);
}

/* Over the selection, not per bucket: a wait sampled in one bucket tells about those of the others. */
static void test_off_cpu_scaled_over_selection(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_OFF_CPU);
	_cleanup_(top_free_p) struct top *t = NULL;

	for (int i = 0; i < 10; i++)
		off_total(stored(&reader, T0 + i * 10 * SEC), app, OFF_BLOCKED, 5, 100);
	off_sample(reader.buckets[3], app, "main;poll", OFF_BLOCKED, 1, 50, 1234);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 1000 * 1000);
	assert_int_equal(row_named(t, "poll")->self, 1000 * 1000);
	assert_int_equal(row_named(t, "poll")->events, 50);
	assert_null(row_named(t, "[not sampled]"));
	reader_done(&reader);
}

/* A name that changed between totals and samples is still the same thread; lost totals lose no samples. */
static void test_off_cpu_odd_threads(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };
	struct who renamed = app, reused = app;

	renamed.thread = "renamed";
	off_total(b, renamed, OFF_BLOCKED, 2, 100);
	off_sample(b, app, "main;read", OFF_BLOCKED, 1, 1, 40);
	reused.start = 99; /* the pid again, another process */
	off_sample(b, reused, "main;write", OFF_BLOCKED, 1, 1, 25);
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 125 * 1000);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(row_named(t, "read")->self, 100 * 1000);
	assert_int_equal(row_named(t, "write")->self, 25 * 1000);
	assert_null(row_named(t, "[not sampled]"));
}

/* Each step is scaled for itself, and the lines still add up. */
static void test_series_off_cpu(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_OFF_CPU);
	struct series_answer *a = NULL;

	for (int i = 0; i < 3; i++) {
		struct bucket *b = stored(&reader, T0 + i * 10 * SEC);

		off_total(b, app, OFF_BLOCKED, 1, 100);
		if (i != 1)
			off_sample(b, app, i ? "main;read" : "main;poll", OFF_BLOCKED, 1, 1, 30);
	}
	s.until_wall_ns = T0 + 30 * SEC;
	assert_int_equal(query_series(&src, &s, BY_FUNCTION, 10 * SEC, 0, &a), 0);
	assert_int_equal(a->n_lines, 3);
	assert_int_equal(line_named(a, "poll")->values[0], 100 * 1000);
	assert_int_equal(line_named(a, "[not sampled]")->values[1], 100 * 1000);
	assert_int_equal(line_named(a, "read")->values[2], 100 * 1000);
	assert_int_equal(a->coverage->total, 300 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_CAUSE, 30 * SEC, 0, &a), 0);
	assert_int_equal(line_named(a, "blocked")->total, 300 * 1000);
	series_answer_free(a);
	reader_done(&reader);
}

static void test_label_values_of_keys(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = off_cpu_host(T0);
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };
	struct label_values *v = NULL;
	uint64_t keys = 0;

	assert_int_equal(query_label_values(&src, &s, FILTER_STATE, 0, 0, &v), 0);
	assert_int_equal(v->n, 3); /* what was not sampled has none */
	assert_string_equal(v->values[0].value, "S");
	assert_int_equal(v->values[0].total, 600 * 1000);
	assert_string_equal(v->values[1].value, "D");
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_CAUSE, 0, 0, &v), 0);
	assert_int_equal(v->n, 3);
	assert_string_equal(v->values[0].value, "blocked");
	label_values_free(v);
	assert_int_equal(query_labels(&src, &s, &keys), 0);
	assert_true(keys & 1U << FILTER_CAUSE);
	assert_true(keys & 1U << FILTER_STATE);
	assert_false(keys & 1U << FILTER_ERRNO);
	s.type = PROFILE_SYSCALLS;
	calls(b, app, NATIVE(NR_READ, EAGAIN), 2);
	calls(b, app, NATIVE(NR_READ, 0), 5);
	assert_int_equal(query_label_values(&src, &s, FILTER_ERRNO, 0, 0, &v), 0);
	assert_int_equal(v->n, 1);
	assert_string_equal(v->values[0].value, "EAGAIN");
	label_values_free(v);
}

static void wait_sample(struct bucket *b, struct who w, const char *path, enum wait_kind kind,
			bool idle, uint64_t n, uint64_t us)
{
	add_row(b, PROFILE_OFF_CPU, series_id(b->dict, w), stack_id(b->dict, path),
		OFF_KEY(OFF_BLOCKED, 1, 0) | OFF_WAIT_KEY(kind, idle), 0, n, us, 0);
}

static void wake(struct bucket *b, struct who of, struct who by, const char *path,
		 enum wait_kind kind, uint64_t n, uint64_t us)
{
	add_row(b, PROFILE_OFF_CPU, series_id(b->dict, of), stack_id(b->dict, path),
		OFF_KEY(OFF_BLOCKED, 1, 0) | OFF_WAIT_KEY(kind, 0) | OFF_ASPECT(OFF_WAKES),
		series_id(b->dict, by), n, us, us);
}

static const struct off_cpu_row *row_of(const struct off_cpu_answer *a, struct who w,
					unsigned cause, unsigned wait)
{
	for (size_t i = 0; i < a->n_rows; i++)
		if (a->rows[i].pid == w.pid && a->rows[i].cause == cause && a->rows[i].wait == wait)
			return &a->rows[i];
	return NULL;
}

/* 900 us exactly, of which samples say 2/3 pipe and 1/3 idle in poll; woken by db and by app itself. */
static struct bucket *waits_host(void)
{
	struct bucket *b = make_bucket(T0, 0);

	off_total(b, app, OFF_BLOCKED, 9, 900);
	wait_sample(b, app, "main;read", WAIT_PIPE, false, 4, 800);
	wait_sample(b, app, "main;poll", WAIT_POLL, true, 2, 400);
	off_total(b, app, OFF_RUN_QUEUE, 30, 100);
	off_total(b, db, OFF_PREEMPTED, 3, 50);
	wake(b, app, db, "main;read;[woken by];query;write", WAIT_PIPE, 3, 600);
	wake(b, app, db, "main;read;[woken by];query;close", WAIT_PIPE, 1, 100);
	wake(b, app, app, "main;read;[woken by];main;kill", WAIT_PIPE, 1, 100);
	return b;
}

static void test_rows_by_kind(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = waits_host();
	_cleanup_(off_cpu_answer_free_p) struct off_cpu_answer *a = NULL, *folded = NULL;
	struct off_cpu_question q = { .wakers = 2 };
	struct selection s = whole(PROFILE_OFF_CPU);
	struct query_source src = { .open = b };
	const struct off_cpu_row *row;

	assert_int_equal(query_off_cpu(&src, &s, &q, &a), 0);
	assert_int_equal(a->coverage->total, 1050 * 1000);
	assert_int_equal(a->n_rows, 4);
	assert_int_equal(a->blocked, 600 * 1000);
	assert_int_equal(a->idle, 300 * 1000);
	assert_int_equal(a->idle_threads, 1);
	assert_int_equal(a->run_queue, 100 * 1000);
	assert_int_equal(a->preempted, 50 * 1000);
	row = row_of(a, app, OFF_BLOCKED, WAIT_PIPE);
	assert_ptr_equal(row, &a->rows[0]);
	assert_int_equal(row->waits, 6);
	assert_false(row->idle);
	assert_int_equal(row->n_wakers, 2);
	assert_int_equal(row->wakers[0].pid, db.pid);
	assert_int_equal(row->wakers[0].waits, 4);
	assert_string_equal(row->wakers[0].function, "write");
	assert_true(row->wakers[0].share > 0.87 && row->wakers[0].share < 0.88);
	assert_string_equal(row->wakers[1].function, "kill");
	assert_true(row_of(a, app, OFF_BLOCKED, WAIT_POLL)->idle);
	assert_int_equal(row_of(a, app, OFF_BLOCKED, WAIT_POLL)->n_wakers, 0);
	q = (struct off_cpu_question){ .limit = 1, .fold_idle = true };
	assert_int_equal(query_off_cpu(&src, &s, &q, &folded), 0);
	assert_int_equal(folded->n_rows, 1);
	assert_int_equal(folded->omitted, 2);
	assert_int_equal(folded->idle, 300 * 1000);
	assert_int_equal(folded->rows[0].n_wakers, 0);
}

static void test_filters_by_kind(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = waits_host();

	assert_int_equal(off_total_of(b, FILTER_WAIT, "pipe", false), 600 * 1000);
	assert_int_equal(off_total_of(b, FILTER_WAIT, "", false), 150 * 1000);
	assert_int_equal(off_total_of(b, FILTER_IDLE, "true", false), 300 * 1000);
	assert_int_equal(off_total_of(b, FILTER_IDLE, "true", true), 750 * 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share_out),
		cmocka_unit_test(test_off_cpu_functions),
		cmocka_unit_test(test_off_cpu_exact_dimensions),
		cmocka_unit_test(test_off_cpu_filters),
		cmocka_unit_test(test_off_cpu_filtered_top),
		cmocka_unit_test(test_off_cpu_scaled_over_selection),
		cmocka_unit_test(test_off_cpu_odd_threads),
		cmocka_unit_test(test_series_off_cpu),
		cmocka_unit_test(test_label_values_of_keys),
		cmocka_unit_test(test_rows_by_kind),
		cmocka_unit_test(test_filters_by_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
