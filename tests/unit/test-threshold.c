// SPDX-License-Identifier: GPL-2.0-or-later
/* T follows what kept waits cost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "collect/threshold.h"

#define CPUS 4
#define SECONDS 2
#define LEAST (10 * NSEC_PER_MSEC)
#define MOST NSEC_PER_SEC

static const struct collect_options options = {
	.off_cpu_threshold_ns = LEAST,
	.off_cpu_threshold_max_ns = MOST,
	.walks_per_second = 1000,
	.cpu_budget = 0.01,
};
/* What waits may take of a window. */
#define MAY_NS (0.01 * WAITS_OF_BUDGET * CPUS * SECONDS * 1e9)

struct spent {
	uint64_t walked, reused;
	double each_ns;
	uint64_t timed, shed;
};

static uint64_t adapt(struct threshold *t, const struct collect_options *o, struct spent spent)
{
	struct slice s = { .mono_end_ns = SECONDS * NSEC_PER_SEC, .cpus_online = CPUS };
	struct account *a = &s.source[SOURCE_OFF_CPU].sum;

	a->walked = spent.walked;
	a->reused = spent.reused;
	a->timed = spent.timed;
	a->timed_ns = (uint64_t)(spent.each_ns * (double)spent.timed);
	a->lost[LOSS_SHED] = spent.shed;
	threshold_adapt(t, o, &s);
	return t->ns;
}

static uint64_t start(struct threshold *t, const struct collect_options *o)
{
	threshold_begin(t, o);
	return t->ns;
}

/* A load whose kept waits become fewer as T rises: at T = 10 ms they cost `times` what they may. */
static uint64_t settle(double times)
{
	struct threshold t;
	uint64_t ns = start(&t, &options);

	for (int i = 0; i < 40; i++) {
		double n = times * MAY_NS / 10000 * LEAST / (double)ns;

		ns = adapt(&t, &options, (struct spent){ 0, (uint64_t)n, 10000, 100, 0 });
	}
	return ns;
}

static void test_as_short_as_it_may_be(void **state)
{
	assert_int_equal(settle(0.9), LEAST);
	assert_int_equal(settle(1.5), 2 * LEAST);
	assert_int_equal(settle(3.5), 4 * LEAST);
	assert_int_equal(settle(30), 32 * LEAST);
	assert_int_equal(settle(1e6), MOST);
	assert_int_equal(settle(0), LEAST);
}

static void test_goes_back(void **state)
{
	struct threshold t;
	uint64_t ns;

	start(&t, &options);
	for (int i = 0; i < 5; i++)
		adapt(&t, &options, (struct spent){ 100, 0, 1e7, 10, 0 });
	assert_int_equal(t.ns, 32 * LEAST);
	/* Nothing was kept, and so nothing was timed. */
	ns = adapt(&t, &options, (struct spent){});
	assert_int_equal(ns, 16 * LEAST);
	for (int i = 0; i < 5; i++)
		ns = adapt(&t, &options, (struct spent){});
	assert_int_equal(ns, LEAST);
}

static void test_one_interrupt(void **state)
{
	struct threshold t;
	uint64_t n = (uint64_t)(0.6 * MAY_NS / 10000);

	start(&t, &options);
	for (int i = 0; i < 10; i++)
		adapt(&t, &options, (struct spent){ 0, n, 10000, 20, 0 });
	/* One of twenty took 200 us. */
	assert_int_equal(adapt(&t, &options, (struct spent){ 0, n, 19500, 20, 0 }), LEAST);
}

static void test_walks(void **state)
{
	struct collect_options o = options;
	struct threshold t;
	uint64_t most = 3 * 1000 * CPUS * SECONDS / 4;

	o.cpu_budget = 0; /* whatever they cost */
	start(&t, &o);
	assert_int_equal(adapt(&t, &o, (struct spent){ most, 0, 1e9, 100, 0 }), LEAST);
	assert_int_equal(adapt(&t, &o, (struct spent){ most + 1, 0, 10, 100, 0 }), 2 * LEAST);
	assert_int_equal(adapt(&t, &o, (struct spent){ 0, 8 * most + 8, 10, 100, 0 }), 4 * LEAST);
	assert_int_equal(adapt(&t, &o, (struct spent){ most / 2, 0, 10, 100, 0 }), 4 * LEAST);
	assert_int_equal(adapt(&t, &o, (struct spent){ most / 4, 0, 10, 100, 0 }), 2 * LEAST);
	/* Some found nothing left. */
	assert_int_equal(adapt(&t, &o, (struct spent){ 10, 0, 10, 1, 1 }), 4 * LEAST);
}

static void test_odd_options(void **state)
{
	struct collect_options o = { .off_cpu_threshold_ns = 1ULL << 40, .cpu_budget = 1 };
	struct threshold t;

	/* Within what the programs can multiply, also where the most is less than the least. */
	assert_int_equal(start(&t, &o), UINT32_MAX);
	assert_int_equal(adapt(&t, &o, (struct spent){ 1e9, 0, 1e6, 10, 0 }), UINT32_MAX);
	assert_int_equal(adapt(&t, &o, (struct spent){}), UINT32_MAX);
	o.off_cpu_threshold_ns = 0;
	assert_int_equal(start(&t, &o), LEAST);
	assert_int_equal(adapt(&t, &o, (struct spent){ 1e9, 0, 1e6, 10, 0 }), LEAST);
}

static void test_no_time(void **state)
{
	struct slice s = { .mono_start_ns = 5, .mono_end_ns = 5 };
	struct threshold t;

	start(&t, &options);
	s.source[SOURCE_OFF_CPU].sum.walked = 1000;
	threshold_adapt(&t, &options, &s);
	assert_int_equal(t.ns, LEAST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_short_as_it_may_be), cmocka_unit_test(test_goes_back),
		cmocka_unit_test(test_one_interrupt),	      cmocka_unit_test(test_walks),
		cmocka_unit_test(test_odd_options),	      cmocka_unit_test(test_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
