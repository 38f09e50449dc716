// SPDX-License-Identifier: GPL-2.0-or-later
/* Columns, buckets, profiles, accounting. */
#include "../bpf/sysprofd.h"
#include "model/hardware.h"
#include "model/profile.h"

_Static_assert(LOSS_REASONS == LOSS_N, "LOSS_REASONS follows enum loss");
_Static_assert((int)PROFILE_TYPE_N == (int)SOURCE_N, "a profile type for each source");
_Static_assert(COUNTERS == (int)COUNTER_N, "counters");
_Static_assert(COUNTERS_SPANS == (int)COUNTER_SPANS, "counters");
_Static_assert(HARDWARE_KINDS == (int)HARDWARE_COUNTERS, "hardware counters");

void columns_done(struct columns *c)
{
	free(c->series);
	free(c->stack);
	free(c->key);
	free(c->aux);
	free(c->count);
	free(c->value);
	free(c->max);
	*c = (struct columns){};
}

static int columns_reserve(struct columns *c, size_t need)
{
	size_t cap;

	if (need <= c->cap)
		return 0;
		/* Each column grows to the same capacity, or the smallest one counts. */
#define GROW(member)                                      \
	do {                                              \
		cap = c->cap;                             \
		if (ARRAY_GROW(c->member, cap, need) < 0) \
			return -ENOMEM;                   \
	} while (0)
	GROW(series);
	GROW(stack);
	GROW(key);
	GROW(aux);
	GROW(count);
	GROW(value);
	GROW(max);
#undef GROW
	c->cap = cap;
	return 0;
}

int columns_add(struct columns *c, uint32_t series, uint32_t stack, uint32_t key, uint32_t aux,
		uint64_t count, uint64_t value, uint64_t max)
{
	int r = columns_reserve(c, c->n + 1);

	if (r < 0)
		return r;
	c->series[c->n] = series;
	c->stack[c->n] = stack;
	c->key[c->n] = key;
	c->aux[c->n] = aux;
	c->count[c->n] = count;
	c->value[c->n] = value;
	c->max[c->n] = max;
	c->n++;
	return 0;
}

struct row {
	uint32_t series, stack, key, aux;
	uint64_t count, value, max;
};

static int row_compare(const void *pa, const void *pb)
{
	const struct row *a = pa, *b = pb;

	if (a->series != b->series)
		return a->series < b->series ? -1 : 1;
	if (a->stack != b->stack)
		return a->stack < b->stack ? -1 : 1;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	if (a->aux != b->aux)
		return a->aux < b->aux ? -1 : 1;
	return 0;
}

int columns_sort_merge(struct columns *c)
{
	_cleanup_free_ struct row *rows = NULL;
	size_t n = c->n;

	if (n == 0)
		return 0;
	rows = new0(struct row, n);
	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		rows[i] = (struct row){ c->series[i], c->stack[i], c->key[i], c->aux[i],
					c->count[i],  c->value[i], c->max[i] };
	qsort(rows, n, sizeof(*rows), row_compare);
	c->n = 0;
	for (size_t i = 0; i < n; i++) {
		size_t o = c->n;

		if (i > 0 && row_compare(&rows[i - 1], &rows[i]) == 0) {
			c->count[o - 1] += rows[i].count;
			c->value[o - 1] += rows[i].value;
			c->max[o - 1] = MAX(c->max[o - 1], rows[i].max);
			continue;
		}
		c->series[o] = rows[i].series;
		c->stack[o] = rows[i].stack;
		c->key[o] = rows[i].key;
		c->aux[o] = rows[i].aux;
		c->count[o] = rows[i].count;
		c->value[o] = rows[i].value;
		c->max[o] = rows[i].max;
		c->n++;
	}
	return 0;
}

static int columns_copy(struct columns *to, const struct columns *from)
{
	if (columns_reserve(to, from->n) < 0)
		return -ENOMEM;
	if (from->n == 0)
		return 0;
	memcpy(to->series, from->series, from->n * sizeof(*from->series));
	memcpy(to->stack, from->stack, from->n * sizeof(*from->stack));
	memcpy(to->key, from->key, from->n * sizeof(*from->key));
	memcpy(to->aux, from->aux, from->n * sizeof(*from->aux));
	memcpy(to->count, from->count, from->n * sizeof(*from->count));
	memcpy(to->value, from->value, from->n * sizeof(*from->value));
	memcpy(to->max, from->max, from->n * sizeof(*from->max));
	to->n = from->n;
	return 0;
}

void accounting_add(struct accounting *a, const struct accounting *b)
{
	a->seen += b->seen;
	a->stored += b->stored;
	a->idle += b->idle;
	a->stored_us += b->stored_us;
	a->idle_us += b->idle_us;
	a->lost_us += b->lost_us;
	for (size_t i = 0; i < LOSS_REASONS; i++)
		a->lost[i] += b->lost[i];
	a->rate_mhz = MAX(a->rate_mhz, b->rate_mhz);
	a->threshold_us = MAX(a->threshold_us, b->threshold_us);
	a->active |= b->active;
	a->sampled |= b->sampled;
	a->counted_us += b->counted_us;
}

uint64_t accounting_lost(const struct accounting *a)
{
	uint64_t lost = 0;

	for (size_t i = 0; i < LOSS_REASONS; i++)
		if (!loss_keeps_weight((unsigned)i))
			lost += a->lost[i];
	return lost;
}

int bucket_new(struct bucket **ret)
{
	_cleanup_(bucket_free_p) struct bucket *b = new0(struct bucket, 1);
	int r;

	if (!b)
		return -ENOMEM;
	r = dict_new(&b->dict);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(b);
	return 0;
}

struct bucket *bucket_free(struct bucket *b)
{
	if (!b)
		return NULL;
	dict_free(b->dict);
	for (size_t i = 0; i < COLUMNS_N; i++)
		columns_done(&b->columns[i]);
	free(b);
	return NULL;
}

int bucket_copy(const struct bucket *b, struct bucket **ret)
{
	_cleanup_(bucket_free_p) struct bucket *c = new0(struct bucket, 1);
	int r;

	if (!c)
		return -ENOMEM;
	c->meta = b->meta;
	r = dict_copy(b->dict, &c->dict);
	for (size_t i = 0; r >= 0 && i < COLUMNS_N; i++)
		r = columns_copy(&c->columns[i], &b->columns[i]);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(c);
	return 0;
}

int profile_new(enum profile_type type, struct profile **ret)
{
	_cleanup_(profile_free_p) struct profile *p = new0(struct profile, 1);
	int r;

	if (!p)
		return -ENOMEM;
	p->type = type;
	r = dict_new(&p->dict);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(p);
	return 0;
}

bool row_is_instructions(const struct profile *p, size_t row)
{
	return p->type == PROFILE_ON_CPU &&
	       row_aspect(PROFILE_ON_CPU, p->columns.key[row]) == ON_INSTRUCTIONS;
}

void profile_sum_instructions(struct profile *p)
{
	p->instructions.total = p->instructions.samples = 0;
	for (size_t i = 0; i < p->columns.n; i++) {
		if (!row_is_instructions(p, i))
			continue;
		p->instructions.total += p->columns.value[i];
		p->instructions.samples += p->columns.count[i];
	}
}

struct profile *profile_free(struct profile *p)
{
	if (!p)
		return NULL;
	free(p->gaps);
	dict_free(p->dict);
	columns_done(&p->columns);
	free(p);
	return NULL;
}
