// SPDX-License-Identifier: GPL-2.0-or-later
#include "window/quality.h"

#include <pthread.h>

#include "base/index.h"

struct quality {
	pthread_mutex_t lock;
	struct quality_row *rows; /* [0] is [other] */
	size_t n, cap;
	struct index by_binary;
};

int quality_new(struct quality **ret)
{
	struct quality *q = new0(struct quality, 1);

	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->lock, NULL);
	if (ARRAY_GROW(q->rows, q->cap, 1) < 0) {
		quality_free(q);
		return -ENOMEM;
	}
	q->n = 1;
	*ret = q;
	return 0;
}

static void row_done(struct quality_row *r)
{
	free(r->path);
	free(r->build_id);
}

struct quality *quality_free(struct quality *q)
{
	if (!q)
		return NULL;
	quality_rows_free(q->rows, q->n);
	index_done(&q->by_binary);
	pthread_mutex_destroy(&q->lock);
	free(q);
	return NULL;
}

/* ---- counting -------------------------------------------------------------------------------------- */

static uint64_t hash_binary(uint64_t key)
{
	return key * 0x9e3779b97f4a7c15ULL;
}

static bool binary_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct quality *q = ctx;

	return q->rows[id].binary == *(const uint64_t *)key;
}

static uint32_t add_row(struct quality *q, const struct binary_ref *binary)
{
	struct quality_row r = { .binary = binary->key };
	uint32_t id = (uint32_t)q->n;

	if (q->n > QUALITY_ROWS_MAX || ARRAY_GROW(q->rows, q->cap, q->n + 1) < 0)
		return 0;
	r.path = strdup(binary->path);
	r.build_id = strdup(binary->build_id);
	if (!r.path || !r.build_id || index_add(&q->by_binary, hash_binary(binary->key), id) < 0) {
		row_done(&r);
		return 0;
	}
	q->rows[q->n++] = r;
	return id;
}

uint32_t quality_row(struct quality *q, const struct binary_ref *binary)
{
	uint32_t id;

	if (!binary->key)
		return 0;
	pthread_mutex_lock(&q->lock);
	id = index_find(&q->by_binary, hash_binary(binary->key), binary_equal, q, &binary->key);
	if (!id)
		id = add_row(q, binary);
	pthread_mutex_unlock(&q->lock);
	return id;
}

void quality_count(struct quality *q, uint32_t row, enum walk_end end, bool frame_pointer,
		   uint64_t samples)
{
	struct quality_row *r;

	pthread_mutex_lock(&q->lock);
	r = &q->rows[row];
	r->samples += samples;
	r->ends[end] += samples;
	if (frame_pointer)
		r->frame_pointer += samples;
	pthread_mutex_unlock(&q->lock);
}

/* ---- too many -------------------------------------------------------------------------------------- */

static int most_samples_first(const void *a, const void *b)
{
	const struct quality_row *x = a, *y = b;

	return x->samples > y->samples ? -1 : x->samples < y->samples;
}

static void fold(struct quality_row *into, struct quality_row *r)
{
	into->samples += r->samples;
	into->frame_pointer += r->frame_pointer;
	for (size_t i = 0; i < WALK_END_N; i++)
		into->ends[i] += r->ends[i];
	row_done(r);
}

void quality_trim(struct quality *q)
{
	size_t keep = QUALITY_ROWS_MAX / 2;

	pthread_mutex_lock(&q->lock);
	if (q->n > QUALITY_ROWS_MAX) {
		qsort(q->rows + 1, q->n - 1, sizeof(*q->rows), most_samples_first);
		while (q->n > keep)
			fold(&q->rows[0], &q->rows[--q->n]);
		index_clear(&q->by_binary);
		/* There was room for twice as many. */
		for (uint32_t i = 1; i < q->n; i++)
			if (index_add(&q->by_binary, hash_binary(q->rows[i].binary), i) < 0)
				assert(false);
	}
	pthread_mutex_unlock(&q->lock);
}

/* ---- reading --------------------------------------------------------------------------------------- */

static int most_incomplete_first(const void *a, const void *b)
{
	const struct quality_row *x = a, *y = b;
	uint64_t m = x->samples - x->ends[WALK_COMPLETE], n = y->samples - y->ends[WALK_COMPLETE];

	if (m != n)
		return m > n ? -1 : 1;
	return most_samples_first(a, b);
}

void quality_rows_free(struct quality_row *rows, size_t n)
{
	for (size_t i = 0; rows && i < n; i++)
		row_done(&rows[i]);
	free(rows);
}

int quality_rows(struct quality *q, struct quality_row **ret, size_t *ret_n)
{
	struct quality_row *copy;
	size_t n = 0;
	int r = 0;

	pthread_mutex_lock(&q->lock);
	copy = new0(struct quality_row, q->n);
	for (size_t i = 0; copy && i < q->n && r == 0; i++) {
		const struct quality_row *from = &q->rows[i];

		if (!from->samples)
			continue;
		copy[n] = *from;
		copy[n].path = strdup(from->path ?: "[other]");
		copy[n].build_id = strdup(from->build_id ?: "");
		r = copy[n].path && copy[n].build_id ? 0 : -ENOMEM;
		n++;
	}
	pthread_mutex_unlock(&q->lock);
	if (!copy || r < 0) {
		quality_rows_free(copy, n);
		return -ENOMEM;
	}
	qsort(copy, n, sizeof(*copy), most_incomplete_first);
	*ret = copy;
	*ret_n = n;
	return 0;
}
