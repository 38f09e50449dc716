// SPDX-License-Identifier: GPL-2.0-or-later
#include <xxhash.h>

#include "symbol/answers.h"

/* Offsets into text are 32 bits, whatever the limit says. */
#define TEXT_MAX (1U << 30)

static void generation_done(struct answer_generation *g)
{
	free(g->entries);
	free(g->text);
	index_done(&g->by_key);
	index_done(&g->by_text);
	*g = (struct answer_generation){};
}

static uint64_t slots_bytes(const struct index *x)
{
	return x->slots ? (x->mask + 1) * sizeof(*x->slots) : 0;
}

static uint64_t generation_bytes(const struct answer_generation *g)
{
	return g->cap * sizeof(*g->entries) + g->cap_text + slots_bytes(&g->by_key) +
	       slots_bytes(&g->by_text);
}

void answers_init(struct answers *a, uint64_t limit)
{
	*a = (struct answers){ .limit = limit };
}

void answers_done(struct answers *a)
{
	generation_done(&a->young);
	generation_done(&a->old);
}

uint64_t answers_bytes(const struct answers *a)
{
	return generation_bytes(&a->young) + generation_bytes(&a->old);
}

static bool equal_key(const void *ctx, uint32_t id, const void *key)
{
	const struct answer_generation *g = ctx;

	return memcmp(&g->entries[id].key, key, sizeof(struct answer_key)) == 0;
}

static bool equal_text(const void *ctx, uint32_t id, const void *key)
{
	const struct answer_generation *g = ctx;

	return streq(g->text + id, key);
}

static const struct answer_entry *find(const struct answer_generation *g,
				       const struct answer_key *key)
{
	uint32_t id = index_find(&g->by_key, XXH3_64bits(key, sizeof(*key)), equal_key, g, key);

	return id ? &g->entries[id] : NULL;
}

/* Where the string lies in text, 0 for "". */
static int64_t put_text(struct answer_generation *g, const char *s)
{
	size_t len = strlen(s) + 1, at;
	uint64_t hash;
	uint32_t id;
	int r;

	if (len == 1)
		return 0;
	hash = XXH3_64bits(s, len);
	id = index_find(&g->by_text, hash, equal_text, g, s);
	if (id)
		return id;
	at = MAX(g->n_text, (size_t)1);
	if (at + len > TEXT_MAX)
		return -ENOSPC;
	r = ARRAY_GROW(g->text, g->cap_text, at + len);
	if (r >= 0)
		r = index_add(&g->by_text, hash, (uint32_t)at);
	if (r < 0)
		return r;
	memcpy(g->text + at, s, len);
	g->n_text = at + len;
	return (int64_t)at;
}

static int put(struct answer_generation *g, const struct answer_key *key, const char *name,
	       const char *system_name)
{
	int64_t n, s;
	size_t id;
	int r;

	if (find(g, key))
		return 0;
	n = put_text(g, name);
	if (n < 0)
		return (int)n;
	s = put_text(g, system_name);
	if (s < 0)
		return (int)s;
	id = MAX(g->n, (size_t)1);
	r = ARRAY_GROW(g->entries, g->cap, id + 1);
	if (r < 0)
		return r;
	g->entries[id] = (struct answer_entry){ *key, (uint32_t)n, (uint32_t)s };
	r = index_add(&g->by_key, XXH3_64bits(key, sizeof(*key)), (uint32_t)id);
	if (r < 0)
		return r;
	g->n = id + 1;
	return 0;
}

static void take(const struct answer_generation *g, const struct answer_entry *e,
		 const char **ret_name, const char **ret_system_name)
{
	*ret_name = e->name ? g->text + e->name : "";
	*ret_system_name = e->system_name ? g->text + e->system_name : "";
}

bool answers_get(struct answers *a, const struct answer_key *key, const char **ret_name,
		 const char **ret_system_name)
{
	const struct answer_entry *e = find(&a->young, key);

	if (e) {
		take(&a->young, e, ret_name, ret_system_name);
		return true;
	}
	e = find(&a->old, key);
	if (!e)
		return false;
	take(&a->old, e, ret_name, ret_system_name);
	/* Kept for another turn, without turning now: the strings that are returned lie in the old generation. */
	(void)put(&a->young, key, *ret_name, *ret_system_name);
	return true;
}

int answers_put(struct answers *a, const struct answer_key *key, const char *name,
		const char *system_name)
{
	if (generation_bytes(&a->young) > a->limit / 2) {
		generation_done(&a->old);
		a->old = a->young;
		a->young = (struct answer_generation){};
	}
	return put(&a->young, key, name, system_name);
}
