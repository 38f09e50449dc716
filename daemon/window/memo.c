// SPDX-License-Identifier: GPL-2.0-or-later
/* A map from a 128-bit key to an id. */
#include "window/internal.h"

static bool entry_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct memo *m = ctx;
	const struct memo_entry *k = key, *e = &m->entries[id - 1];

	return e->a == k->a && e->b == k->b;
}

/* splitmix64's finalizer: keys are small numbers. */
static uint64_t memo_hash(uint64_t a, uint64_t b)
{
	uint64_t h = a ^ (b * 0x9e3779b97f4a7c15ULL);

	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
	return h ^ (h >> 31);
}

uint32_t *memo_find(struct memo *m, uint64_t a, uint64_t b)
{
	struct memo_entry key = { .a = a, .b = b };
	uint32_t i = index_find(&m->index, memo_hash(a, b), entry_equal, m, &key);

	return i ? &m->entries[i - 1].id : NULL;
}

int memo_add(struct memo *m, uint64_t a, uint64_t b, uint32_t id)
{
	int r = ARRAY_GROW(m->entries, m->cap, m->n + 1);

	if (r < 0)
		return r;
	r = index_add(&m->index, memo_hash(a, b), (uint32_t)m->n + 1);
	if (r < 0)
		return r;
	m->entries[m->n++] = (struct memo_entry){ .a = a, .b = b, .id = id };
	return 0;
}

void memo_clear(struct memo *m)
{
	m->n = 0;
	index_clear(&m->index);
}

void memo_done(struct memo *m)
{
	free(m->entries);
	index_done(&m->index);
	*m = (struct memo){};
}
