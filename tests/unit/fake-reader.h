/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store reader that hands out buckets made by hand. Its function is defined here, so that the archive's is not
 * linked: the tests that include this need no disk. Each bucket has a dictionary of its own, as if it were a day.
 */
#pragma once

#include "query-fixture.h"

#define FAKE_MAX 64

struct store_reader {
	struct bucket *buckets[FAKE_MAX];
	bool damaged[FAKE_MAX];
	size_t n;
	int calls;
};

int store_reader_scan(struct store_reader *r, enum profile_type type, uint64_t from, uint64_t until,
		      const bool *cancelled, store_scan_fn fn, void *ctx)
{
	r->calls++;
	for (size_t i = 0; i < r->n; i++) {
		const struct bucket *b = r->buckets[i];
		int e;

		if (cancelled && *cancelled)
			return -ECANCELED;
		if (b->meta.start_wall_ns < from || b->meta.start_wall_ns >= until)
			continue;
		e = fn(ctx, b->dict, &b->meta, r->damaged[i] ? NULL : &b->columns[type]);
		if (e)
			return e;
	}
	return 0;
}

static inline struct bucket *stored(struct store_reader *r, uint64_t start)
{
	assert_true(r->n < FAKE_MAX);
	r->buckets[r->n] = make_bucket(start, r->n + 1);
	return r->buckets[r->n++];
}

static inline void reader_done(struct store_reader *r)
{
	for (size_t i = 0; i < r->n; i++)
		bucket_free(r->buckets[i]);
}
