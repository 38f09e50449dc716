// SPDX-License-Identifier: GPL-2.0-or-later
/* What a range covers: which buckets belong to it, what is missing and why, and what is in two places at once. */
#include "fake-reader.h"

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
	/* The last one was drained a little early: its end is rounded up, but not beyond this moment. */
	reader.buckets[2]->meta.covered_ns -= 38 * NSEC_PER_MSEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->until_wall_ns, T0 + 30 * SEC);
	profile_free(p);
	src.now_wall_ns = T0 + 30 * SEC - 38 * NSEC_PER_MSEC;
	p = merged(&src, &s, 0);
	assert_int_equal(p->until_wall_ns, src.now_wall_ns);
	profile_free(p);
	src.now_wall_ns = 0;
	/* A bucket belongs where it starts; nothing is missing at the edges. */
	s.from_wall_ns = T0 + 10 * SEC + 1;
	s.until_wall_ns = T0 + 30 * SEC + 1;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, (4 + 8) * 1000);
	assert_int_equal(p->from_wall_ns, T0 + 20 * SEC);
	assert_int_equal(p->until_wall_ns, T0 + 40 * SEC);
	assert_int_equal(p->n_gaps, 0);
	profile_free(p);
	/* Nothing was asked for, nothing is missing. */
	s.until_wall_ns = s.from_wall_ns;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 0);
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

/* A file of the store that cannot be read to its end, then the next day. */
static void test_destroyed_file(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct profile *p;
	struct bucket *b;

	s.until_wall_ns = T0 + 100 * SEC;
	stored(&reader, T0);
	b = stored(&reader, T0);
	b->meta = (struct bucket_meta){ .seq = 2, .start_wall_ns = T0, .gap = GAP_DAMAGED };
	reader.damaged[1] = true;
	p = merged(&src, &s, 0);
	assert_int_equal(p->n_gaps, 1);
	assert_gap(p, 0, T0 + 10 * SEC, T0 + 100 * SEC, GAP_DAMAGED);
	profile_free(p);
	stored(&reader, T0 + 60 * SEC);
	p = merged(&src, &s, 0);
	assert_gap(p, 0, T0 + 10 * SEC, T0 + 60 * SEC, GAP_DAMAGED);
	assert_gap(p, 1, T0 + 70 * SEC, T0 + 100 * SEC, GAP_NOT_RUNNING);
	assert_int_equal(p->covered_ns, 20 * SEC);
	profile_free(p);
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
	/* Counters are told by off-cpu: they are no samples. */
	b->meta.source[PROFILE_ON_CPU].active = false;
	add_row(b, PROFILE_ON_CPU, series_id(b->dict, app), 0, ON_ASPECT(ON_COUNTERS), 0, 1, 0, 0);
	s.type = PROFILE_ON_CPU;
	p = merged(&src, &s, 0);
	assert_int_equal(p->covered_ns, 0);
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
	_cleanup_(bucket_free_p) struct bucket *closed = NULL, *grown = NULL,
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
	/* The open bucket was closed meanwhile, with more in it: not stored yet, then stored. */
	assert_int_equal(bucket_copy(open, &grown), 0);
	on_cpu(grown, app, "main", 2, 8);
	list[1] = grown;
	src.n_closed = 2;
	p = merged(&src, &s, 0);
	assert_int_equal(p->total, 15 * 1000);
	profile_free(p);
	src.n_closed = 1;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_half_open),	cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_destroyed_file),	cmocka_unit_test(test_edges_of_gaps),
		cmocka_unit_test(test_inactive),	cmocka_unit_test(test_nothing_recorded),
		cmocka_unit_test(test_no_double_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
