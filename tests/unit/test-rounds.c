// SPDX-License-Identifier: GPL-2.0-or-later
/* Rounds with a random span each: what they cover, and that no moment is covered less than another. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "collect/rounds.h"

#define LENGTH (10 * NSEC_PER_SEC)
#define SHARE 0.1
#define ROUNDS 50000
#define PHASES 100

static double draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (double)(*state >> 11) / 9007199254740992.0;
}

/* Each hundredth of a round is covered as often as any other, its first and last one too; no round is without. */
static void test_even(void **state)
{
	uint64_t seed = 5, hits[PHASES] = {}, all = 0, two = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t ns = 0;
		struct rounds r;

		rounds_init(&r, 0);
		rounds_begin(&r, 0, LENGTH, SHARE, draw(&seed), draw(&seed));
		two += r.n == 2;
		for (unsigned p = 0; p < r.n; p++) {
			struct span s = r.pieces[p];

			assert_true(s.begin < s.end && s.end <= LENGTH);
			ns += s.end - s.begin;
			for (uint64_t t = s.begin; t < s.end; t += 10 * NSEC_PER_MSEC, all++)
				hits[t / (LENGTH / PHASES)]++;
		}
		assert_in_range(ns, LENGTH / 20 - 1, LENGTH * 3 / 20 + 1);
	}
	for (int i = 0; i < PHASES; i++)
		assert_in_range(hits[i] * PHASES, all * 93 / 100, all * 107 / 100);
	assert_true((double)all > ROUNDS * 99.0 && (double)all < ROUNDS * 103.0);
	assert_in_range(two * 100 / ROUNDS, 8, 12);
}

/* Rounds one after the other, slices of 2 s, hands that come late: what is taken is what was open. */
static void test_taken(void **state)
{
	uint64_t seed = 9, now = 1000, open = 0, taken = 0, slice = now, begin = 0;
	struct rounds r;

	rounds_init(&r, now);
	for (int i = 0; i < 2000; i++) {
		uint64_t end = now + LENGTH - (uint64_t)(draw(&seed) * 3e9);

		rounds_begin(&r, now, LENGTH, SHARE, draw(&seed), draw(&seed));
		while (now < end) {
			uint64_t late = (uint64_t)(draw(&seed) * 2e7);

			now = MIN(MIN(rounds_next_ns(&r), slice + 2 * NSEC_PER_SEC) + late, end);
			if (r.open && (rounds_ended(&r, now) || now == end)) {
				open += now - begin;
				rounds_close(&r, now);
			}
			if (now < end && rounds_due(&r, now)) {
				begin = now;
				rounds_open(&r, now);
			}
			if (now >= slice + 2 * NSEC_PER_SEC) {
				taken += rounds_take(&r, slice, now);
				slice = now;
			}
		}
	}
	taken += rounds_take(&r, slice, now);
	assert_int_equal(taken, open);
	assert_true(open > 0);
	assert_true(rounds_next_ns(&r) >= now);
}

static void test_none_planned(void **state)
{
	struct rounds r;

	rounds_init(&r, 5);
	assert_false(rounds_due(&r, UINT64_MAX));
	assert_false(rounds_ended(&r, UINT64_MAX));
	assert_true(rounds_next_ns(&r) == UINT64_MAX);
	assert_int_equal(rounds_take(&r, 5, 10), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_none_planned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
