// SPDX-License-Identifier: GPL-2.0-or-later
/* Random spans of time: their share, and what they cover. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "collect/spans.h"

static double draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (double)(*state >> 11) / 9007199254740992.0;
}

/* Runs a day and sums up what is covered by windows of 2 s. */
static uint64_t run(double share, uint64_t seconds, uint64_t *ret_true)
{
	uint64_t now = 5 * NSEC_PER_SEC, end = now + seconds * NSEC_PER_SEC, covered = 0, seed = 7;
	uint64_t window = now;
	struct spans s;

	*ret_true = 0;
	spans_init(&s, share, now, draw(&seed));
	for (;;) {
		uint64_t next = MIN(spans_next_ns(&s), window + 2 * NSEC_PER_SEC);

		if (window + 2 * NSEC_PER_SEC > end && next > end)
			break;
		now = next;
		if (spans_ended(&s, now)) {
			*ret_true += s.now.end - s.now.begin;
			spans_rest(&s, draw(&seed));
		}
		if (spans_due(&s, now))
			spans_begin(&s, now, draw(&seed));
		if (now == window + 2 * NSEC_PER_SEC) {
			covered += spans_take(&s, window, now);
			window = now;
		}
	}
	if (s.open)
		*ret_true += MIN(now, s.now.end) - s.now.begin;
	return covered;
}

static void test_share(void **state)
{
	static const double shares[] = { 0.01, 0.1, 0.5, 0.9 };

	for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
		uint64_t truth, covered = run(shares[i], 86400, &truth);
		double got = (double)covered / (86400.0 * NSEC_PER_SEC);

		assert_true(got > shares[i] * 0.95 && got < shares[i] * 1.05);
		/* To the nanosecond, but for a span that is cut by the end of the day. */
		assert_true(covered <= truth && truth - covered < 4 * NSEC_PER_SEC);
	}
}

static void test_always(void **state)
{
	struct spans s;

	spans_init(&s, 1, 100, 0.9);
	assert_true(spans_due(&s, 100));
	assert_true(spans_begin(&s, 100, 0.5).end == UINT64_MAX);
	assert_false(spans_ended(&s, UINT64_MAX - 1));
	assert_int_equal(spans_take(&s, 100, 1100), 1000);
	assert_int_equal(spans_take(&s, 1100, 1600), 500);
}

/* Whatever comes again and again, from ten times a second to once a minute, meets spans as often at any phase. */
static void test_periodic(void **state)
{
	static const uint64_t periods_ms[] = { 100, 1000, 2000, 10000, 60000 };

	for (size_t p = 0; p < ARRAY_SIZE(periods_ms); p++) {
		uint64_t step = periods_ms[p] * NSEC_PER_MSEC / 50, now = 0, seed = 3;
		uint64_t hits[50] = {}, all = 0;
		struct spans s;

		spans_init(&s, 0.1, now, draw(&seed));
		for (int i = 0; i < 50000; i++) {
			struct span at;

			now = spans_next_ns(&s);
			at = spans_begin(&s, now, draw(&seed));
			for (uint64_t t = at.begin; t < at.end; t += 2 * NSEC_PER_MSEC, all++)
				hits[t / step % 50]++;
			spans_rest(&s, draw(&seed));
		}
		for (int i = 0; i < 50; i++)
			assert_in_range(hits[i] * 50, all * 90 / 100, all * 110 / 100);
	}
}

#define MANY 20000

/* Spans and gaps, one after the other, as fast as they can be drawn. */
static void many(double share, uint64_t *spans, uint64_t *gaps)
{
	uint64_t seed = 11, now = 0;
	struct spans s;

	spans_init(&s, share, 0, draw(&seed));
	for (int i = 0; i < MANY; i++) {
		struct span at = spans_begin(&s, spans_next_ns(&s), draw(&seed));

		gaps[i] = at.begin - now;
		spans[i] = at.end - at.begin;
		now = at.end;
		assert_true(spans_ended(&s, at.end) && !spans_ended(&s, at.end - 1));
		spans_rest(&s, draw(&seed));
	}
}

static int ascending(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

static double correlation(const uint64_t *v, size_t n, size_t lag)
{
	double mean = 0, var = 0, with = 0;

	for (size_t i = 0; i < n; i++)
		mean += (double)v[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		var += ((double)v[i] - mean) * ((double)v[i] - mean);
	for (size_t i = 0; i + lag < n; i++)
		with += ((double)v[i] - mean) * ((double)v[i + lag] - mean);
	return with / var;
}

/* Evenly from lo to hi: nothing outside, and a tenth of them in each tenth. */
static void assert_uniform(uint64_t *v, size_t n, double lo, double hi)
{
	qsort(v, n, sizeof(*v), ascending);
	assert_true((double)v[0] >= lo - 1 && (double)v[n - 1] <= hi + 1);
	for (size_t i = 1; i < 10; i++) {
		double at = ((double)v[n * i / 10] - lo) / (hi - lo);

		assert_true(at > (double)i / 10 - 0.02 && at < (double)i / 10 + 0.02);
	}
}

/* Lengths of spans and of gaps are drawn evenly within their bounds, and none tells about the next ones. */
static void test_distribution(void **state)
{
	static const double shares[] = { 0.01, 0.1, 0.5 };
	static uint64_t spans[MANY], gaps[MANY];

	for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
		double mean = shares[i] * 2e9 > 50e6 ? shares[i] * 2e9 : 50e6;
		double gap = mean * (1 - shares[i]) / shares[i];

		many(shares[i], spans, gaps);
		for (size_t lag = 1; lag <= 5; lag++) {
			assert_true(fabs(correlation(spans, MANY, lag)) < 0.04);
			assert_true(fabs(correlation(gaps, MANY, lag)) < 0.04);
		}
		assert_uniform(spans, MANY, mean / 2, mean * 1.5);
		/* The first comes sooner. */
		assert_true((double)gaps[0] <= gap / 4);
		assert_uniform(gaps + 1, MANY - 1, 0, 2 * gap);
	}
}

static void test_put_off(void **state)
{
	struct spans s;

	spans_init(&s, 0.1, 0, 0);
	assert_true(spans_due(&s, 0));
	spans_put_off(&s, 0, 0);
	assert_false(spans_due(&s, 0));
	assert_true(spans_next_ns(&s) >= 50 * NSEC_PER_MSEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share),	 cmocka_unit_test(test_always),
		cmocka_unit_test(test_periodic), cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_put_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
