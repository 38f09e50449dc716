/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How exact counts are that were made in spans of the time and scaled (syscall-counts=sampled): an interval that holds
 * the true number 19 times in 20.
 *
 * Each bucket has a span of its own at a random place. Buckets are dealt to ESTIMATE_BLOCKS blocks in turn, and the
 * difference between what blocks tell, each for its share of the time, is what chance makes of a row: with B blocks of
 * estimate x[b] and time C[b], x = sum x[b] and C = sum C[b],
 *
 *	between = B / (B - 1) * sum (x[b] - x * C[b] / C)^2 * (1 - share counted)
 *	thinned = sum x[b] * (w[b] - 1),	w[b] = C[b] / time counted in b
 *
 * The second is what remains where calls come as independently as can be: that each was counted with probability 1/w
 * (Poisson). The variance is the larger one of them, and the interval +- t(0.975, B - 1) standard deviations; it never
 * ends below what was counted. Changes of the load from block to block widen it: it errs to that side. What comes in
 * bursts so rare that no span met one is not known to it. With a single bucket there is no difference to judge by: the
 * lower end is what was counted, and there is no upper one.
 */
#pragma once

#include "base/util.h"

#define ESTIMATE_BLOCKS 16

struct blocks {
	size_t buckets; /* that were counted in spans, of those so far */
	uint64_t covered_ns[ESTIMATE_BLOCKS], counted_ns[ESTIMATE_BLOCKS];
};
/* The next bucket: the block it falls to, from 1 on. */
uint32_t blocks_add(struct blocks *b, uint64_t covered_ns, uint64_t counted_ns);

/* A number by where it comes from: [0] was counted in full, [b] is the scaled part of block b. */
struct block_sums {
	double of[ESTIMATE_BLOCKS + 1];
};
static inline void block_sums_add(struct block_sums *s, uint32_t block, double n)
{
	s->of[block <= ESTIMATE_BLOCKS ? block : 0] += n;
}

struct interval {
	uint64_t low, high; /* high UINT64_MAX: nothing is known */
};
/* Where nothing was scaled, both ends are the number itself. */
struct interval estimate_interval(const struct blocks *b, const struct block_sums *s);
