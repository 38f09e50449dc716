// SPDX-License-Identifier: GPL-2.0-or-later
/* Random spans of time: their share, and what they cover. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

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

/* No phase of a second is kept clear of: each hundredth is met about as often as any other. */
static void test_periodic(void **state)
{
	uint64_t now = 0, seed = 3, hits[100] = {}, all = 0;
	struct spans s;

	spans_init(&s, 0.1, now, draw(&seed));
	for (int i = 0; i < 20000; i++) {
		struct span at;

		now = spans_next_ns(&s);
		at = spans_begin(&s, now, draw(&seed));
		for (uint64_t t = at.begin; t < at.end; t += 10 * NSEC_PER_MSEC, all++)
			hits[t / (10 * NSEC_PER_MSEC) % 100]++;
		spans_rest(&s, draw(&seed));
	}
	for (int i = 0; i < 100; i++)
		assert_in_range(hits[i] * 100, all * 90 / 100, all * 110 / 100);
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
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_always),
		cmocka_unit_test(test_periodic),
		cmocka_unit_test(test_put_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
