// SPDX-License-Identifier: GPL-2.0-or-later
/* Merges, tops, coverage, folding, labels: on buckets made by hand, from a store and from memory. */
#include "fake-reader.h"
#include "query/internal.h"

static const struct who app = {
	.comm = "app", .thread = "app", .unit = "app.service", .pid = 10, .tid = 10, .start = 5
};
static const struct who app_io = {
	.comm = "app", .thread = "io", .unit = "app.service", .pid = 10, .tid = 11, .start = 5
};
static const struct who db = {
	.comm = "db", .thread = "db", .unit = "db.service", .pid = 20, .tid = 20, .start = 6
};

static struct top *top_of(const struct query_source *src, const struct selection *s,
			  enum dimension by, bool by_total, uint32_t limit)
{
	struct top *t = NULL;

	assert_int_equal(query_top(src, s, by, by_total, limit, &t), 0);
	return t;
}

static struct profile *merged(const struct query_source *src, const struct selection *s,
			      uint32_t max_nodes)
{
	struct profile *p = NULL;

	assert_int_equal(query_merge(src, s, max_nodes, &p), 0);
	return p;
}

static uint64_t sum_of(const struct profile *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->columns.n; i++)
		sum += p->columns.value[i];
	return sum;
}

/* ---- on-CPU ---------------------------------------------------------------------------------------------- */

static struct bucket *on_cpu_host(uint64_t start)
{
	struct bucket *b = make_bucket(start, 0);

	on_cpu(b, app, "main;a;b", 3, 300);
	on_cpu(b, app, "main;a;b;a;b", 1, 100); /* recursion */
	on_cpu(b, app_io, "main;a", 2, 200);
	on_cpu(b, db, "main;c@libc.so.6", 4, 400);
	return b;
}

static void test_functions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	const struct top_row *r;

	t = top_of(&src, &s, BY_NONE, false, 0);
	assert_int_equal(t->coverage->total, 1000 * 1000);
	assert_int_equal(t->coverage->samples, 10);
	assert_int_equal(t->coverage->rate_mhz, 19000);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(t->rows_omitted, 0);
	r = row_named(t, "a");
	assert_int_equal(r->self, 200 * 1000);
	assert_int_equal(r->total, 600 * 1000); /* once for the recursive path */
	assert_true(r->share == 0.2);
	assert_int_equal(r->events, 0);
	r = row_named(t, "b");
	assert_int_equal(r->self, 400 * 1000);
	assert_int_equal(r->total, 400 * 1000);
	r = row_named(t, "main");
	assert_int_equal(r->self, 0);
	assert_int_equal(r->total, 1000 * 1000);
	assert_string_equal(r->binary, "app");
	/* Equal self: the larger total first, then the name. */
	assert_string_equal(t->rows[0].name, "b");
	assert_string_equal(t->rows[1].name, "c");
	assert_string_equal(t->rows[1].binary, "libc.so.6");
	assert_string_equal(t->rows[3].name, "main");
}

static void test_limit_and_sort(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };

	t = top_of(&src, &s, BY_FUNCTION, true, 2);
	assert_int_equal(t->n_rows, 2);
	assert_int_equal(t->rows_omitted, 2);
	assert_string_equal(t->rows[0].name, "main");
	assert_true(t->rows[0].share == 1.0);
	assert_string_equal(t->rows[1].name, "a");
}

static void test_dimensions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct top *t = top_of(&src, &s, BY_PROCESS, false, 0);
	const struct top_row *r = row_named(t, "app");

	assert_int_equal(t->n_rows, 2);
	assert_int_equal(r->self, 600 * 1000);
	assert_int_equal(r->total, 600 * 1000);
	assert_int_equal(r->pid, 10);
	assert_int_equal(r->start, 5);
	top_free(t);
	t = top_of(&src, &s, BY_THREAD, false, 0);
	assert_int_equal(t->n_rows, 3);
	assert_int_equal(row_named(t, "io")->self, 200 * 1000);
	assert_int_equal(row_named(t, "io")->tid, 11);
	top_free(t);
	t = top_of(&src, &s, BY_UNIT, false, 0);
	assert_int_equal(row_named(t, "db.service")->self, 400 * 1000);
	assert_int_equal(row_named(t, "db.service")->pid, 0);
	top_free(t);
	t = top_of(&src, &s, BY_POD, false, 0);
	assert_int_equal(t->n_rows, 1);
	assert_string_equal(t->rows[0].name, "[none]");
	top_free(t);
	t = top_of(&src, &s, BY_BINARY, false, 0);
	assert_int_equal(row_named(t, "app")->self, 600 * 1000);
	assert_int_equal(row_named(t, "app")->total, 1000 * 1000);
	assert_int_equal(row_named(t, "libc.so.6")->total, 400 * 1000);
	top_free(t);
	t = top_of(&src, &s, BY_STACK, false, 0);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(row_named(t, "main;a;b;a;b")->self, 100 * 1000);
	assert_int_equal(row_named(t, "main;a")->total, 200 * 1000);
	top_free(t);
}

static void test_wrong_dimensions(void **state)
{
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = {};
	enum dimension by = BY_NONE;
	struct top *t = NULL;
	const char *error = NULL;

	assert_int_equal(query_top(&src, &s, BY_CAUSE, false, 0, &t), -EINVAL);
	assert_int_equal(query_top(&src, &s, BY_LOCK, false, 0, &t), -EINVAL);
	assert_int_equal(dimension_resolve(PROFILE_FUTEX, BY_CAUSE, &by, &error), -EINVAL);
	assert_non_null(error);
	assert_int_equal(dimension_resolve(PROFILE_SYSCALLS, BY_FUNCTION, &by, &error), 0);
	assert_int_equal(by, BY_SYSCALL);
	assert_int_equal(dimension_from_name("total"), -EINVAL);
	for (int i = BY_FUNCTION; i < DIMENSION_N; i++)
		assert_int_equal(dimension_from_name(dimension_name((enum dimension)i)), i);
}

/* Names in the answer, unnamed frames and two frames of one function: by what people see. */
static void test_frames_of_one_function(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	_cleanup_(top_free_p) struct top *t = NULL, *stacks = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct dict *d = b->dict;
	uint32_t f = frame_id(d, "spin"), other, series = series_id(d, app);
	struct frame twin = d->frames[f];

	twin.offset += 4;
	other = ok_id(dict_frame(d, &twin));
	assert_int_not_equal(f, other);
	add_row(b, PROFILE_ON_CPU, series, ok_id(dict_stack(d, 0, f)), 0, 0, 1, 10, 0);
	add_row(b, PROFILE_ON_CPU, series, ok_id(dict_stack(d, 0, other)), 0, 0, 1, 20, 0);
	on_cpu(b, app, "+0x10@lib.so", 1, 1);
	on_cpu(b, app, "+0x20@lib.so", 1, 2);
	add_row(b, PROFILE_ON_CPU, series, 0, 0, 0, 1, 7, 0);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(row_named(t, "spin")->self, 30 * 1000);
	assert_int_equal(row_named(t, "lib.so+0x20")->self, 2 * 1000);
	assert_int_equal(row_named(t, "[no stack]")->self, 7 * 1000);
	assert_int_equal(row_named(t, "[no stack]")->total, 7 * 1000);
	stacks = top_of(&src, &s, BY_STACK, false, 0);
	assert_int_equal(stacks->n_rows, 4);
	assert_int_equal(row_named(stacks, "spin")->self, 30 * 1000);
}

/* The same process, stack and name in two days' dictionaries are one in the answer. */
static void test_two_days(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct bucket *a = stored(&reader, T0), *b = stored(&reader, T0 + 10 * SEC);

	str_id(b->dict, "shifts all ids");
	on_cpu(b, db, "x;y", 1, 1);
	on_cpu(a, app, "main;a;b", 3, 300);
	on_cpu(b, app, "main;a;b", 5, 500);
	p = merged(&src, &s, 0);
	assert_int_equal(p->columns.n, 2);
	assert_int_equal(p->total, 801 * 1000);
	assert_int_equal(sum_of(p), p->total);
	assert_int_equal(p->samples, 9);
	assert_int_equal(p->covered_ns, 20 * SEC);
	assert_int_equal(p->dict->n_series, 3);
	assert_int_equal(p->dict->n_stacks, 6);
	reader_done(&reader);
}

/* ---- what a range covers ----------------------------------------------------------------------------------- */

static void test_half_open(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct profile *p;

	for (int i = 0; i < 6; i++)
		on_cpu(stored(&reader, T0 + i * 10 * SEC), app, "main", 1, 1ULL << i);
	s.from_wall_ns = T0 + 10 * SEC;
	s.until_wall_ns = T0 + 30 * SEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, (2 + 4) * 1000);
	assert_int_equal(p->from_wall_ns, T0 + 10 * SEC);
	assert_int_equal(p->until_wall_ns, T0 + 30 * SEC);
	assert_int_equal(p->covered_ns, 20 * SEC);
	assert_int_equal(p->n_gaps, 0);
	profile_free(p);
	/* A bucket belongs where it starts; nothing is missing at the edges. */
	s.from_wall_ns = T0 + 10 * SEC + 1;
	s.until_wall_ns = T0 + 30 * SEC + 1;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, (4 + 8) * 1000);
	assert_int_equal(p->from_wall_ns, T0 + 20 * SEC);
	assert_int_equal(p->until_wall_ns, T0 + 40 * SEC);
	assert_int_equal(p->n_gaps, 0);
	profile_free(p);
	/* Within one bucket: no bucket, and no gap either. */
	s.from_wall_ns = T0 + 11 * SEC;
	s.until_wall_ns = T0 + 19 * SEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 0);
	assert_int_equal(p->n_gaps, 0);
	assert_int_equal(p->columns.n, 0);
	profile_free(p);
	reader_done(&reader);
}

static void assert_gap(const struct profile *p, size_t i, uint64_t from, uint64_t until,
		       enum gap_reason reason)
{
	assert_true(i < p->n_gaps);
	assert_int_equal(p->gaps[i].from_wall_ns, from);
	assert_int_equal(p->gaps[i].until_wall_ns, until);
	assert_int_equal(p->gaps[i].reason, reason);
}

static void test_gaps(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct bucket *b;

	s.until_wall_ns = T0 + 200 * SEC;
	b = stored(&reader, T0 + 20 * SEC); /* the first one ever */
	b = stored(&reader, T0 + 50 * SEC);
	b->meta.gap = GAP_CLOCK_STEP;
	b = stored(&reader, T0 + 60 * SEC); /* 4 s are missing inside */
	b->meta.covered_ns = 6 * SEC;
	b = stored(&reader, T0 + 70 * SEC);
	b->meta.gap = GAP_STOPPED;
	b = stored(&reader, T0 + 80 * SEC);
	reader.damaged[reader.n - 1] = true;
	b = stored(&reader, T0 + 90 * SEC); /* late by a little: no gap */
	b->meta.covered_ns = 10 * SEC - 100 * NSEC_PER_MSEC;
	b = stored(&reader, T0 + 100 * SEC);
	b = stored(&reader, T0 + 130 * SEC);
	b->meta.seq += 2; /* two buckets were recorded and are gone */
	b = stored(&reader, T0 + 150 * SEC);
	b->meta.boot_id[0] = 'f';
	b->meta.seq += 2;
	p = merged(&src, &s, 0);
	assert_gap(p, 0, T0, T0 + 20 * SEC, GAP_NOT_RUNNING);
	assert_gap(p, 1, T0 + 30 * SEC, T0 + 50 * SEC, GAP_CLOCK_STEP);
	assert_gap(p, 2, T0 + 66 * SEC, T0 + 70 * SEC, GAP_STOPPED);
	assert_gap(p, 3, T0 + 80 * SEC, T0 + 90 * SEC, GAP_DAMAGED);
	assert_gap(p, 4, T0 + 110 * SEC, T0 + 130 * SEC, GAP_STORE);
	assert_gap(p, 5, T0 + 140 * SEC, T0 + 150 * SEC, GAP_NOT_RUNNING);
	assert_gap(p, 6, T0 + 160 * SEC, T0 + 200 * SEC, GAP_NOT_RUNNING);
	assert_int_equal(p->n_gaps, 7);
	assert_int_equal(p->covered_ns, (7 * 10 + 6) * SEC - 100 * NSEC_PER_MSEC);
	reader_done(&reader);
}

/* A range inside a gap knows its reason from the bucket behind it. */
static void test_edges_of_gaps(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct profile *p;

	stored(&reader, T0);
	stored(&reader, T0 + 40 * SEC)->meta.gap = GAP_STOPPED;
	s.from_wall_ns = T0 + 5 * SEC;
	s.until_wall_ns = T0 + 25 * SEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->n_gaps, 1);
	assert_gap(p, 0, T0 + 10 * SEC, T0 + 25 * SEC, GAP_STOPPED);
	assert_int_equal(p->covered_ns, 0);
	assert_int_equal(p->from_wall_ns, s.from_wall_ns);
	assert_int_equal(p->until_wall_ns, s.until_wall_ns);
	profile_free(p);
	/* The store forgot what was before its first bucket. */
	reader.buckets[1]->meta.seq = 7;
	reader.buckets[1]->meta.gap = GAP_NONE;
	bucket_free(reader.buckets[0]);
	reader.buckets[0] = reader.buckets[1];
	reader.n = 1;
	s.until_wall_ns = T0 + 50 * SEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->n_gaps, 1);
	assert_gap(p, 0, T0 + 5 * SEC, T0 + 40 * SEC, GAP_STORE);
	profile_free(p);
	reader_done(&reader);
}

/* Idle is not the same as not recorded. */
static void test_inactive(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_FUTEX);
	struct query_source src = { .open = b };
	struct profile *p;

	s.until_wall_ns = T0 + 10 * SEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->covered_ns, 10 * SEC);
	assert_int_equal(p->n_gaps, 0);
	profile_free(p);
	b->meta.source[PROFILE_FUTEX].active = false;
	p = merged(&src, &s, 0);
	assert_int_equal(p->covered_ns, 0);
	assert_int_equal(p->n_gaps, 1);
	profile_free(p);
}

static void test_nothing_recorded(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader }, none = {};
	struct selection s = whole(PROFILE_ON_CPU);
	_cleanup_(top_free_p) struct top *t = NULL;
	_cleanup_(profile_free_p) struct profile *p = NULL;

	t = top_of(&none, &s, BY_FUNCTION, false, 20);
	assert_int_equal(t->n_rows, 0);
	p = merged(&src, &s, 100);
	assert_int_equal(p->total, 0);
	assert_int_equal(p->columns.n, 0);
	assert_int_equal(p->n_gaps, 1);
	assert_gap(p, 0, s.from_wall_ns, s.until_wall_ns, GAP_NOT_RUNNING);
	assert_false(p->truncated);
}

/* In the store and in memory at once: counted once, wherever it was met. */
static void test_no_double_count(void **state)
{
	struct store_reader reader = {};
	struct selection s = whole(PROFILE_ON_CPU);
	_cleanup_(bucket_free_p) struct bucket *closed = NULL,
					       *open = make_bucket(T0 + 20 * SEC, 0);
	const struct bucket *list[2];
	struct query_source src = { .reader = &reader, .open = open };
	struct profile *p;

	on_cpu(stored(&reader, T0), app, "main", 1, 1);
	on_cpu(stored(&reader, T0 + 10 * SEC), app, "main", 1, 2);
	on_cpu(open, app, "main", 1, 4);
	open->meta.covered_ns = 3 * SEC;
	assert_int_equal(bucket_copy(reader.buckets[1], &closed), 0);
	list[0] = closed;
	src.closed = list;
	src.n_closed = 1;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 7 * 1000);
	assert_int_equal(p->until_wall_ns, T0 + 23 * SEC);
	assert_int_equal(p->n_gaps, 0); /* the time after the open bucket is still to come */
	assert_int_equal(p->covered_ns, 23 * SEC);
	profile_free(p);
	/* Not stored yet. */
	reader.n = 1;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 7 * 1000);
	profile_free(p);
	/* The open bucket was closed and stored meanwhile, with more in it. */
	reader.n = 2;
	on_cpu(stored(&reader, T0 + 20 * SEC), app, "main", 2, 8);
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 11 * 1000);
	profile_free(p);
	/* Another boot that began at the same wall time is another bucket. */
	open->meta.boot_id[0] = 'e';
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 15 * 1000);
	profile_free(p);
	reader_done(&reader);
}

static void test_cancel(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	bool cancelled = true;
	struct query_source src = { .open = b, .cancelled = &cancelled };
	struct profile *p = NULL;

	assert_int_equal(query_merge(&src, &s, 0, &p), -ECANCELED);
	assert_null(p);
}

/* ---- off-CPU ---------------------------------------------------------------------------------------------- */

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

/* ---- system calls and futexes ------------------------------------------------------------------------------ */

#define NATIVE(nr, err) SYSCALL_KEY(SYSCALL_ABI_NATIVE, nr, err)
#define NR_READ 0
#define NR_GETPID 39

static void test_syscalls(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	struct top *t;

	calls(b, app, NATIVE(NR_READ, 0), 100);
	calls(b, app, NATIVE(NR_READ, EAGAIN), 20);
	calls(b, app, NATIVE(NR_READ, EINTR), 3);
	calls(b, db, NATIVE(NR_GETPID, 0), 1000000);
	calls(b, db, SYSCALL_KEY(SYSCALL_ABI_COMPAT, 20, 0), 7);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 1000130);
	assert_int_equal(t->coverage->samples, 1000130);
	assert_int_equal(t->n_rows, 3);
	assert_string_equal(t->rows[0].name, "getpid");
	assert_int_equal(t->rows[0].self, 1000000);
	assert_int_equal(t->rows[0].total, 1000000);
	assert_int_equal(t->rows[0].events, 1000000);
	assert_int_equal(row_named(t, "read")->events, 123);
	assert_int_equal(row_named(t, "read")->errors, 23);
	assert_int_equal(row_named(t, "compat:getpid")->self, 7);
	top_free(t);
	t = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(row_named(t, "app")->self, 123);
	assert_int_equal(row_named(t, "app")->errors, 23);
	top_free(t);
	where(&s, FILTER_ERRNO, "EAGAIN", false);
	where(&s, FILTER_ERRNO, "4", false); /* EINTR */
	t = top_of(&src, &s, BY_SYSCALL, false, 0);
	assert_int_equal(t->coverage->total, 23);
	top_free(t);
	where(&s, FILTER_SYSCALL, "getpid", false);
	t = top_of(&src, &s, BY_SYSCALL, false, 0);
	assert_int_equal(t->n_rows, 0);
	top_free(t);
	selection_done(&s);
}

static void test_futex(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_FUTEX);
	struct query_source src = { .open = b };
	struct lock lock = { .pid = 10, .address = 0x7f00, .flags = 2 },
		    plain = { .pid = 20, .address = 0x1000 };
	uint32_t woken = FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), a, p, named, unnamed;
	uint32_t timed_out = FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT);
	struct top *t;

	lock.name = str_id(b->dict, "big_lock");
	named = ok_id(dict_lock(b->dict, &lock));
	unnamed = ok_id(dict_lock(b->dict, &plain));
	a = series_id(b->dict, app);
	p = stack_id(b->dict, "main;lock");
	add_row(b, PROFILE_FUTEX, a, p, woken, named, 5, 500, 200);
	add_row(b, PROFILE_FUTEX, a, p, timed_out, named, 1, 900, 900);
	add_row(b, PROFILE_FUTEX, series_id(b->dict, db), p, woken, unnamed, 2, 10, 6);
	t = top_of(&src, &s, BY_LOCK, false, 0);
	assert_int_equal(t->n_rows, 2);
	assert_string_equal(t->rows[0].name, "big_lock");
	assert_int_equal(t->rows[0].self, 1400 * 1000);
	assert_int_equal(t->rows[0].events, 6);
	assert_int_equal(t->rows[0].max, 900 * 1000);
	assert_int_equal(t->rows[0].pid, 10);
	assert_string_equal(t->rows[1].name, "0x1000");
	assert_int_equal(t->coverage->samples, 8);
	top_free(t);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_string_equal(t->rows[0].name, "lock");
	assert_int_equal(t->rows[0].events, 8);
	assert_int_equal(t->rows[0].max, 900 * 1000);
	assert_int_equal(row_named(t, "main")->events, 8);
	assert_int_equal(row_named(t, "main")->max, 900 * 1000);
	top_free(t);
	where(&s, FILTER_LOCK, "big*", true);
	t = top_of(&src, &s, BY_LOCK, false, 0);
	assert_int_equal(t->coverage->total, 10 * 1000);
	top_free(t);
	selection_done(&s);
}

/* ---- folding ------------------------------------------------------------------------------------------------ */

static void test_fold(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	unsigned seed = 3;
	size_t all;
	struct profile *p;

	for (int i = 0; i < 2000; i++) {
		char path[128] = "main";

		for (unsigned n = (unsigned)rand_r(&seed) % 6; n > 0; n--)
			snprintf(path + strlen(path), sizeof(path) - strlen(path), ";f%u",
				 (unsigned)rand_r(&seed) % 7);
		on_cpu(b, i % 3 ? app : db, path, 1, (uint64_t)rand_r(&seed) % 1000);
	}
	p = merged(&src, &s, 0);
	all = p->dict->n_stacks - 1;
	assert_false(p->truncated);
	assert_int_equal(p->omitted, 0);
	profile_free(p);
	for (uint32_t max = 1; max < all + 2; max = max * 3 / 2 + 1) {
		struct profile *folded = merged(&src, &s, max);

		assert_true(folded->dict->n_stacks - 1 <= max);
		assert_int_equal(sum_of(folded), folded->total);
		assert_int_equal(folded->samples, 2000);
		assert_int_equal(folded->truncated, max < all);
		assert_int_equal(folded->omitted > 0, max < all);
		profile_free(folded);
	}
}

/* What is kept is the heaviest; the rest hangs where it was cut off. */
static void test_fold_place(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(strbuf_done) struct strbuf text = {};

	on_cpu(b, app, "main;heavy", 1, 100);
	on_cpu(b, app, "main;x;y", 1, 3);
	on_cpu(b, app, "main;z", 1, 2);
	on_cpu(b, db, "other_root", 1, 1);
	p = merged(&src, &s, 4);
	assert_true(p->truncated);
	assert_int_equal(p->omitted, 3);
	assert_int_equal(p->columns.n, 3);
	for (size_t i = 0; i < p->columns.n; i++) {
		stack_text(p->dict, p->columns.stack[i], &text);
		strbuf_printf(&text, " %d\n", (int)p->columns.value[i]);
	}
	assert_string_equal(text.data, "main;heavy 100000\nmain;[other] 5000\n[other] 1000\n");
}

/* ---- over time ----------------------------------------------------------------------------------------------- */

static const struct series_line *line_named(const struct series_answer *a, const char *name)
{
	for (size_t i = 0; i < a->n_lines; i++)
		if (streq(a->lines[i].name, name))
			return &a->lines[i];
	return NULL;
}

static void test_series(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct series_answer *a = NULL;

	for (int i = 0; i < 6; i++) {
		struct bucket *b = stored(&reader, T0 + i * 10 * SEC);

		on_cpu(b, app, "main;a", 1, 10);
		on_cpu(b, db, "main;c", 1, i == 2 ? 100 : 1);
	}
	s.from_wall_ns = T0 + 5 * SEC; /* the first bucket starts before it */
	s.until_wall_ns = T0 + 80 * SEC;
	assert_int_equal(query_series(&src, &s, BY_PROCESS, 20 * SEC, 0, &a), 0);
	assert_int_equal(a->first_wall_ns, T0);
	assert_int_equal(a->n_steps, 4);
	assert_int_equal(a->n_lines, 2);
	assert_int_equal(a->omitted, 0);
	assert_string_equal(a->lines[0].name, "db");
	assert_int_equal(a->lines[0].pid, 20);
	assert_int_equal(a->lines[0].values[0], 1 * 1000);
	assert_int_equal(a->lines[0].values[1], 101 * 1000);
	assert_int_equal(a->lines[0].values[3], 0);
	assert_int_equal(a->lines[1].total, 50 * 1000);
	assert_int_equal(a->covered_ns[0], 10 * SEC);
	assert_int_equal(a->covered_ns[1], 20 * SEC);
	assert_int_equal(a->covered_ns[3], 0);
	assert_int_equal(a->coverage->total, 154 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_FUNCTION, 20 * SEC, 1, &a), 0);
	assert_int_equal(a->n_lines, 2);
	assert_int_equal(a->omitted, 1);
	assert_int_equal(line_named(a, "c")->total, 104 * 1000);
	assert_int_equal(line_named(a, "[other]")->total, 50 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_NONE, 0, 0, &a), 0);
	assert_int_equal(a->step_ns, 10 * SEC);
	assert_int_equal(a->n_lines, 1);
	assert_string_equal(a->lines[0].name, "total");
	assert_int_equal(a->lines[0].total, 154 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_NONE, 1000, 0, &a), -E2BIG);
	reader_done(&reader);
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

/* ---- labels --------------------------------------------------------------------------------------------------- */

static void test_label_values(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct label_values *v = NULL;
	uint64_t keys = 0;

	assert_int_equal(query_label_values(&src, &s, FILTER_UNIT, 0, 0, &v), 0);
	assert_int_equal(v->n, 2);
	assert_string_equal(v->values[0].value, "app.service");
	assert_int_equal(v->values[0].total, 600 * 1000);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_FUNCTION, 1, 2, &v), 0);
	assert_int_equal(v->n, 2);
	assert_string_equal(v->values[0].value, "a"); /* main, a, b and c at 400 each */
	assert_string_equal(v->values[1].value, "b");
	assert_int_equal(v->omitted, 1);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_TID, 0, 0, &v), 0);
	assert_int_equal(v->n, 3);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_LOCK, 0, 10, &v), 0);
	assert_int_equal(v->n, 0);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_COMM, 5, 10, &v), 0);
	assert_int_equal(v->n, 0);
	assert_int_equal(v->omitted, 0);
	label_values_free(v);
	assert_int_equal(query_labels(&src, &s, &keys), 0);
	assert_int_equal(keys, 1U << FILTER_COMM | 1U << FILTER_PID | 1U << FILTER_TID |
				       1U << FILTER_THREAD | 1U << FILTER_UID | 1U << FILTER_UNIT |
				       1U << FILTER_BINARY | 1U << FILTER_FUNCTION);
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

/* ---- against a model ------------------------------------------------------------------------------------------ */

/* Random buckets over two dictionaries: every projection gives the same total, and rows add up to it. */
static void test_consistent(void **state)
{
	static const enum dimension all[] = { BY_FUNCTION, BY_PROCESS, BY_THREAD,
					      BY_UNIT,	   BY_BINARY,  BY_STACK };
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	unsigned seed = 11;
	uint64_t want[2] = {};

	for (int i = 0; i < 40; i++) {
		struct bucket *b = stored(&reader, T0 + i * 10 * SEC);

		for (int n = 0; n < 50; n++) {
			struct who w = { .comm = "w",
					 .thread = "t",
					 .pid = 1 + (uint32_t)rand_r(&seed) % 9 };
			char path[64];
			uint64_t us = (uint64_t)rand_r(&seed) % 5000;
			unsigned cause = 1 + (unsigned)rand_r(&seed) % 3;

			w.tid = w.pid + (uint32_t)rand_r(&seed) % 3;
			snprintf(path, sizeof(path), "main;f%u;g%u@lib.so",
				 (unsigned)rand_r(&seed) % 5, (unsigned)rand_r(&seed) % 5);
			on_cpu(b, w, path, 1, us);
			off_total(b, w, cause, 1, us);
			if (rand_r(&seed) % 4 == 0)
				off_sample(b, w, path, cause, 1, 4, 2 * us + 1);
			want[0] += us * 1000;
			want[1] += us * 1000;
		}
	}
	for (int type = PROFILE_ON_CPU; type <= PROFILE_OFF_CPU; type++) {
		struct selection s = whole((enum profile_type)type);

		for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
			_cleanup_(top_free_p) struct top *t = top_of(&src, &s, all[k], false, 0);
			uint64_t self = 0;

			for (size_t i = 0; i < t->n_rows; i++) {
				self += t->rows[i].self;
				assert_true(t->rows[i].self <= t->rows[i].total);
				assert_true(t->rows[i].total <= t->coverage->total);
			}
			assert_true(t->coverage->total == want[type]);
			assert_true(self == want[type]);
			assert_int_equal(t->coverage->samples, 40 * 50);
		}
	}
	reader_done(&reader);
}

/* Ids that name nothing, as from a store that was written over: counted, unnamed, no crash. */
static void test_bad_ids(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	_cleanup_(top_free_p) struct top *t = NULL, *filtered = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };

	on_cpu(b, app, "main;a", 1, 1);
	add_row(b, PROFILE_ON_CPU, 999, 999, 999, 999, 1, 2, 0);
	b->dict->stacks[2].parent = 7777;
	b->dict->stacks[1].frame = 4444;
	b->dict->series[1].label[LABEL_UNIT] = 5555;
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 3000);
	where(&s, FILTER_FUNCTION, "a", false);
	where(&s, FILTER_UNIT, "", false);
	filtered = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(filtered->coverage->total, 1000);
	selection_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_limit_and_sort),
		cmocka_unit_test(test_dimensions),
		cmocka_unit_test(test_wrong_dimensions),
		cmocka_unit_test(test_frames_of_one_function),
		cmocka_unit_test(test_two_days),
		cmocka_unit_test(test_half_open),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_edges_of_gaps),
		cmocka_unit_test(test_inactive),
		cmocka_unit_test(test_nothing_recorded),
		cmocka_unit_test(test_no_double_count),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_share_out),
		cmocka_unit_test(test_off_cpu_functions),
		cmocka_unit_test(test_off_cpu_exact_dimensions),
		cmocka_unit_test(test_off_cpu_filters),
		cmocka_unit_test(test_off_cpu_filtered_top),
		cmocka_unit_test(test_off_cpu_scaled_over_selection),
		cmocka_unit_test(test_off_cpu_odd_threads),
		cmocka_unit_test(test_syscalls),
		cmocka_unit_test(test_futex),
		cmocka_unit_test(test_fold),
		cmocka_unit_test(test_fold_place),
		cmocka_unit_test(test_series),
		cmocka_unit_test(test_series_off_cpu),
		cmocka_unit_test(test_label_values),
		cmocka_unit_test(test_label_values_of_keys),
		cmocka_unit_test(test_consistent),
		cmocka_unit_test(test_bad_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
