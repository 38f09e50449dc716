// SPDX-License-Identifier: GPL-2.0-or-later
/* Calls that were counted in spans of the time: how far the truth is from what is told, and where that is said. */
#include "query-fixture.h"

#include <math.h>

#include "query/calls.h"
#include "query/internal.h"

static double draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (double)(*state >> 11) / 9007199254740992.0;
}

static double normal(uint64_t *seed)
{
	return sqrt(-2 * log(1 - draw(seed))) * cos(6.283185307179586 * draw(seed));
}

/* About Poisson: enough of a likeness for means that are not tiny. */
static double poisson(double mean, uint64_t *seed)
{
	double limit, p = 1;
	int n = 0;

	if (mean > 30)
		return MAX(0.0, floor(mean + sqrt(mean) * normal(seed) + 0.5));
	limit = exp(-mean);
	do
		p *= draw(seed);
	while (p > limit && ++n);
	return n;
}

/*
 * `buckets` of 10 s with a span of about 1 s, of calls that come at `rate`, which changes from span to span with this
 * coefficient of variation. Whether the interval holds the number of calls that there were.
 */
static bool holds(size_t buckets, double rate, double variation, uint64_t *seed)
{
	struct block_sums sums = {};
	struct blocks blocks = {};
	struct interval i;
	double truth = 0;

	for (size_t b = 0; b < buckets; b++) {
		double span = 0.5 + draw(seed);
		double in = rate * MAX(0.0, 1 + variation * normal(seed));
		double counted = poisson(in * span, seed);
		/* The rest of the bucket goes through ten such stretches. */
		double rest = 0;

		for (int k = 0; k < 9; k++)
			rest += rate * MAX(0.0, 1 + variation * normal(seed)) * (10 - span) / 9;
		truth += counted + poisson(rest, seed);
		block_sums_add(&sums, blocks_add(&blocks, 10 * SEC, (uint64_t)(span * (double)SEC)),
			       counted * 10 / span);
	}
	i = estimate_interval(&blocks, &sums);
	assert_true(i.low <= i.high);
	return (double)i.low <= truth && truth <= (double)i.high;
}

static double held(size_t buckets, double rate, double variation)
{
	uint64_t seed = 77;
	int n = 0;

	for (int i = 0; i < 4000; i++)
		n += holds(buckets, rate, variation, &seed);
	print_message("%zu buckets, %g a second, CV %g: %.3f\n", buckets, rate, variation,
		      n / 4000.0);
	return n / 4000.0;
}

static void test_intervals_hold(void **state)
{
	static const size_t buckets[] = { 2, 6, 30, 360 };

	for (size_t i = 0; i < ARRAY_SIZE(buckets); i++) {
		assert_true(held(buckets[i], 1000, 0) > 0.94);
		assert_true(held(buckets[i], 20, 0) > 0.94);
		assert_true(held(buckets[i], 1000, 0.5) > 0.93);
	}
	/* Skewed and few: less, and not much. */
	assert_true(held(30, 1, 0) > 0.92);
	assert_true(held(30, 100, 1.5) > 0.90);
}

/* Not by being useless: with 30 spans of a steady load it is some percent. */
static void test_intervals_are_narrow(void **state)
{
	struct block_sums sums = {};
	struct blocks blocks = {};
	uint64_t seed = 3;
	struct interval i;

	for (int b = 0; b < 30; b++)
		block_sums_add(&sums, blocks_add(&blocks, 10 * SEC, SEC),
			       10 * poisson(1000, &seed));
	i = estimate_interval(&blocks, &sums);
	assert_true(i.low > 300000 * 0.97 && i.high < 300000 * 1.03);
}

static void test_edges(void **state)
{
	struct block_sums sums = {};
	struct blocks blocks = {};
	struct interval i = estimate_interval(&blocks, &sums);

	assert_true(i.low == 0 && i.high == 0);
	/* Counted in full. */
	block_sums_add(&sums, 0, 123);
	i = estimate_interval(&blocks, &sums);
	assert_true(i.low == 123 && i.high == 123);
	/* One span: nothing to compare it with. 10 were seen. */
	block_sums_add(&sums, blocks_add(&blocks, 10 * SEC, SEC), 100);
	i = estimate_interval(&blocks, &sums);
	assert_true(i.low == 133 && i.high == UINT64_MAX);
	/* Two that have nothing in common: what was seen was there. */
	block_sums_add(&sums, blocks_add(&blocks, 10 * SEC, SEC), 1000000);
	i = estimate_interval(&blocks, &sums);
	assert_int_equal(i.low, 123 + 10 + 100000);
	assert_true(i.high > 10000000);
}

/* ---- in answers ---------------------------------------------------------------------------------------------- */

#define N 6

/* The first is exact, the others had a span of a second; the last but one of them had none. */
static void make_buckets(struct bucket *b[N])
{
	for (unsigned i = 0; i < N; i++) {
		struct accounting *a;

		b[i] = make_bucket(T0 + 10 * i * SEC, i + 1);
		a = &b[i]->meta.source[PROFILE_SYSCALLS];
		calls(b[i], app, NATIVE(NR_READ, 0), 1000 + 10 * i);
		calls(b[i], app, NATIVE(NR_READ, EAGAIN), 100);
		calls(b[i], db, NATIVE(NR_GETPID, 0), i ? 0 : 50);
		a->sampled = i > 0;
		a->counted_us = i == 0 || i == N - 2 ? 0 : 1000000;
	}
}

static void free_buckets(struct bucket *b[N])
{
	for (unsigned i = 0; i < N; i++)
		bucket_free(b[i]);
}

static void test_answers(void **state)
{
	struct selection all = whole(PROFILE_SYSCALLS), first = all;
	_cleanup_(calls_answer_free_p) struct calls_answer *a = NULL, *exact = NULL;
	_cleanup_(top_free_p) struct top *t = NULL;
	struct bucket *b[N];
	struct query_source src = { .closed = (const struct bucket *const *)b, .n_closed = N };

	make_buckets(b);
	all.until_wall_ns = T0 + 10 * N * SEC;
	assert_int_equal(query_calls(&src, &all, CALLS_BY_SYSCALL, 0, &a), 0);
	assert_true(a->estimated);
	assert_int_equal(a->n_rows, 2);
	/* The bucket without a span is not there. */
	assert_int_equal(a->rows[0].calls, 1000 + 1010 + 1020 + 1030 + 1050 + 5 * 100);
	assert_int_equal(a->rows[0].errors, 500);
	assert_true(a->rows[0].calls_within.low < a->rows[0].calls &&
		    a->rows[0].calls_within.high > a->rows[0].calls);
	/* A tenth of the errors of four buckets was seen, and all of the first one's. */
	assert_true(a->rows[0].errors_within.low >= 100 + 40);
	assert_true(a->rows[0].errors_within.high > 500);
	/* Only in the bucket in which all were counted. */
	assert_string_equal(a->rows[1].name, "getpid");
	assert_true(a->rows[1].calls_within.low == 50 && a->rows[1].calls_within.high == 50);
	assert_int_equal(a->coverage->covered_ns, 50 * SEC);
	assert_int_equal(a->coverage->counted_ns, 14 * SEC);
	assert_int_equal(a->coverage->n_gaps, 1);
	assert_int_equal(a->coverage->gaps[0].reason, GAP_NOT_SAMPLED);
	assert_int_equal(a->coverage->gaps[0].from_wall_ns, T0 + 40 * SEC);
	t = top_of(&src, &all, BY_PROCESS, false, 0);
	assert_int_equal(t->rows[0].self, a->rows[0].calls);
	assert_int_equal(t->rows[0].within.low, a->rows[0].calls_within.low);
	assert_int_equal(t->rows[0].within.high, a->rows[0].calls_within.high);
	assert_true(t->coverage->accounting.sampled);
	first.until_wall_ns = T0 + 10 * SEC;
	assert_int_equal(query_calls(&src, &first, CALLS_BY_ERRNO, 0, &exact), 0);
	assert_false(exact->estimated);
	assert_int_equal(exact->calls, 1150);
	assert_true(exact->calls_within.low == 1150 && exact->calls_within.high == 1150);
	free_buckets(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_intervals_hold),
		cmocka_unit_test(test_intervals_are_narrow),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
