// SPDX-License-Identifier: GPL-2.0-or-later
#include "query/estimate.h"

#include <math.h>

/* Of Student's distribution: 97.5 % lie below, by degrees of freedom. */
static double t_quantile(size_t freedom)
{
	static const double t[ESTIMATE_BLOCKS] = {
		[1] = 12.706, [2] = 4.303,  [3] = 3.182,  [4] = 2.776,	[5] = 2.571,
		[6] = 2.447,  [7] = 2.365,  [8] = 2.306,  [9] = 2.262,	[10] = 2.228,
		[11] = 2.201, [12] = 2.179, [13] = 2.160, [14] = 2.145, [15] = 2.131,
	};

	return t[freedom];
}

uint32_t blocks_add(struct blocks *b, uint64_t covered_ns, uint64_t counted_ns)
{
	size_t i = b->buckets++ % ESTIMATE_BLOCKS;

	b->covered_ns[i] += covered_ns;
	b->counted_ns[i] += counted_ns;
	return (uint32_t)i + 1;
}

struct totals {
	double scaled, covered, counted; /* of all blocks */
	double certain; /* calls that were seen */
};

static struct totals totals_of(const struct blocks *b, const struct block_sums *s, size_t n)
{
	struct totals t = { .certain = s->of[0] };

	for (size_t i = 0; i < n; i++) {
		t.scaled += s->of[i + 1];
		t.covered += (double)b->covered_ns[i];
		t.counted += (double)b->counted_ns[i];
		if (b->covered_ns[i])
			t.certain += s->of[i + 1] * (double)b->counted_ns[i] /
				     (double)b->covered_ns[i];
	}
	return t;
}

static double variance(const struct blocks *b, const struct block_sums *s, size_t n,
		       const struct totals *t)
{
	double between = 0, thinned = 0;

	for (size_t i = 0; i < n; i++) {
		double x = s->of[i + 1];
		double apart = x - t->scaled * (double)b->covered_ns[i] / t->covered;

		between += apart * apart;
		if (b->counted_ns[i])
			thinned += x * ((double)b->covered_ns[i] / (double)b->counted_ns[i] - 1);
	}
	between *= (double)n / (double)(n - 1) * (1 - t->counted / t->covered);
	return MAX(MAX(between, thinned), 0.0);
}

static uint64_t to_count(double v)
{
	if (v <= 0)
		return 0;
	return v < 9e18 ? (uint64_t)v : UINT64_MAX - 1;
}

struct interval estimate_interval(const struct blocks *b, const struct block_sums *s)
{
	size_t n = MIN(b->buckets, (size_t)ESTIMATE_BLOCKS);
	struct totals t = totals_of(b, s, n);
	double whole = s->of[0] + t.scaled, half;
	uint64_t certain = to_count(t.certain + 0.5);

	if (t.scaled <= 0)
		return (struct interval){ to_count(whole + 0.5), to_count(whole + 0.5) };
	if (n < 2)
		return (struct interval){ certain, UINT64_MAX };
	half = t_quantile(n - 1) * sqrt(variance(b, s, n, &t));
	return (struct interval){
		.low = MAX(to_count(ceil(whole - half)), certain),
		.high = to_count(whole + half),
	};
}
