// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sampling by length is unbiased: waits that really happened, replayed REPLAYS times through bpf/duration.h as if they
 * had happened at other times, and some in step, against their sums.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

typedef uint64_t u64;
typedef uint32_t u32;
#include "../bpf/duration.h"

#define REPLAYS 200
#define THREADS 4
#define PER_THREAD 1500
#define WAITS (THREADS * PER_THREAD)
#define T (10 * NSEC_PER_MSEC)
/* Of a normal distribution, one of 15,000 lies outside. */
#define SIGMAS 4.0

struct wait {
	uint64_t stamp, ns;
	uint32_t tid;
};

static struct wait waits[WAITS];

/* ---- recorded -------------------------------------------------------------------------------------------- */

/* Ends are told through a pipe, by a partner with another habit each. */
struct pair {
	struct wait *waits;
	int to[2], from[2];
	unsigned usec;
};

static void *partner(void *arg)
{
	struct pair *p = arg;
	char c;

	while (read(p->to[0], &c, 1) == 1) {
		if (p->usec)
			usleep(p->usec);
		if (write(p->from[1], &c, 1) != 1)
			break;
	}
	return NULL;
}

static void *waiter(void *arg)
{
	struct pair *p = arg;
	char c = 0;

	for (int i = 0; i < PER_THREAD; i++) {
		uint64_t begin;

		if (write(p->to[1], &c, 1) != 1)
			break;
		begin = mono_now_ns();
		if (read(p->from[0], &c, 1) != 1)
			break;
		p->waits[i].stamp = begin;
		p->waits[i].ns = mono_now_ns() - begin;
		p->waits[i].tid = (uint32_t)gettid();
	}
	close(p->to[1]);
	return NULL;
}

static void record(void)
{
	static const unsigned usecs[THREADS] = { 0, 50, 300, 1000 };
	struct pair pairs[THREADS];
	pthread_t threads[2 * THREADS];

	for (int i = 0; i < THREADS; i++) {
		pairs[i] = (struct pair){ .waits = &waits[i * PER_THREAD], .usec = usecs[i] };
		assert_int_equal(pipe(pairs[i].to), 0);
		assert_int_equal(pipe(pairs[i].from), 0);
		assert_int_equal(pthread_create(&threads[2 * i], NULL, partner, &pairs[i]), 0);
		assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, waiter, &pairs[i]), 0);
	}
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		close(pairs[i].to[0]);
		close(pairs[i].from[0]);
		close(pairs[i].from[1]);
	}
}

/* ---- replayed -------------------------------------------------------------------------------------------- */

struct sums {
	double ns, half_ns, waits;
};

static struct sums replay(uint64_t later_ns)
{
	struct sums s = {};

	for (size_t i = 0; i < WAITS; i++) {
		uint64_t d = waits[i].ns;

		if (d < draw_theta(T, waits[i].stamp + later_ns, waits[i].tid))
			continue;
		s.ns += (double)wait_weight(d, T);
		s.half_ns += (double)wait_part(d / 2, d, T);
		s.waits += (double)wait_events_q8(d, T) / 256;
	}
	return s;
}

/* The exact sums, and how far that of one replay strays from them: (T / p) with probability p each, and 0 else. */
static void expect(struct sums *ret_sum, struct sums *ret_variance)
{
	*ret_sum = *ret_variance = (struct sums){};
	for (size_t i = 0; i < WAITS; i++) {
		double d = (double)waits[i].ns, t = (double)T;

		ret_sum->ns += d;
		ret_sum->half_ns += d / 2;
		ret_sum->waits++;
		if (d >= t)
			continue;
		ret_variance->ns += d * (t - d);
		ret_variance->half_ns += d * (t - d) / 4;
		ret_variance->waits += t / d - 1;
	}
}

static void check(const char *what, double sum, double variance, double mean, double spread)
{
	double error = sqrt(variance / REPLAYS), ratio = spread / variance;

	print_message("%-10s %.6g, mean of the replays %+.3f %%, of which chance explains %.3f %%; "
		      "variance "
		      "%.3f of what is expected\n",
		      what, sum, (mean / sum - 1) * 100, error / sum * 100, ratio);
	assert_true(fabs(mean - sum) <= SIGMAS * error);
	/* Draws that hang together show here: 2 / REPLAYS is the variance of such a ratio. */
	assert_true(fabs(ratio - 1) <= SIGMAS * sqrt(2.0 / REPLAYS) * 1.5);
}

static void check_replays(uint64_t apart_ns)
{
	struct sums sum, variance, mean = {}, square = {};

	expect(&sum, &variance);
	for (uint64_t k = 0; k < REPLAYS; k++) {
		struct sums s = replay(k * apart_ns);

		mean.ns += s.ns / REPLAYS;
		mean.half_ns += s.half_ns / REPLAYS;
		mean.waits += s.waits / REPLAYS;
		square.ns += (s.ns - sum.ns) * (s.ns - sum.ns) / REPLAYS;
		square.half_ns += (s.half_ns - sum.half_ns) * (s.half_ns - sum.half_ns) / REPLAYS;
		square.waits += (s.waits - sum.waits) * (s.waits - sum.waits) / REPLAYS;
	}
	check("time", sum.ns, variance.ns, mean.ns, square.ns);
	check("half of it", sum.half_ns, variance.half_ns, mean.half_ns, square.half_ns);
	check("waits", sum.waits, variance.waits, mean.waits, square.waits);
}

static void test_recorded(void **state)
{
	record();
	check_replays(1000003 * NSEC_PER_USEC);
}

/* All threads at once, each 10 ms to the nanosecond, replayed a whole second apart: no noise in the stamps. */
static void test_in_step(void **state)
{
	for (size_t i = 0; i < WAITS; i++)
		waits[i] = (struct wait){
			.stamp = (1 + i / 60) * 10 * NSEC_PER_MSEC,
			.ns = 20 * NSEC_PER_USEC << i % 8,
			.tid = 1000 + i % 60,
		};
	check_replays(NSEC_PER_SEC);
}

/* What lasts longer than T is told as it was. */
static void test_long(void **state)
{
	assert_true(draw_theta(T, 12345, 1) <= T);
	for (uint64_t d = T; d < 100 * T; d += T / 3) {
		assert_int_equal(wait_weight(d, T), d);
		assert_int_equal(wait_part(d / 3, d, T), d / 3);
		assert_int_equal(wait_events_q8(d, T), 256);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recorded),
		cmocka_unit_test(test_in_step),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
