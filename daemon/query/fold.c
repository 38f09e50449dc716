// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * At most max_nodes stack nodes: the heaviest are kept, the rest becomes an "[other]" child of the nearest kept
 * ancestor. A node weighs at least as much as any child of it, so keeping the heaviest keeps a tree, and what
 * is folded loses its place but not its value.
 */
#include "query/internal.h"

struct folding {
	const struct dict *from;
	size_t n; /* stacks, 0 included */
	uint64_t *weight; /* of the subtree */
	bool *used; /* on the path of a row */
	uint32_t *rank; /* used nodes, heaviest first */
	size_t n_rank;
	uint32_t *anchor; /* the nearest kept node on the way up, itself included */
	bool *has_other; /* by node: something below it is folded */
	bool *counted;
};

static void folding_done(struct folding *f)
{
	free(f->weight);
	free(f->used);
	free(f->rank);
	free(f->anchor);
	free(f->has_other);
	free(f->counted);
}

static int rank_compare(const void *pa, const void *pb, void *ctx)
{
	const uint64_t *weight = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (weight[a] != weight[b])
		return weight[a] > weight[b] ? -1 : 1;
	return a < b ? -1 : 1; /* parents before children */
}

static int weigh(struct folding *f, const struct profile *p)
{
	const struct columns *c = &p->columns;

	f->weight = new0(uint64_t, f->n);
	f->used = new0(bool, f->n);
	f->rank = new0(uint32_t, f->n);
	f->anchor = new0(uint32_t, f->n);
	f->has_other = new0(bool, f->n);
	f->counted = new0(bool, f->n);
	if (!f->weight || !f->used || !f->rank || !f->anchor || !f->has_other || !f->counted)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		f->weight[c->stack[i]] += c->value[i];
		f->used[c->stack[i]] = true;
	}
	for (size_t i = f->n - 1; i > 0; i--) {
		uint32_t parent = f->from->stacks[i].parent;

		if (!f->used[i])
			continue;
		f->weight[parent] += f->weight[i];
		f->used[parent] = true;
		f->n_rank++;
	}
	return 0;
}

static void rank(struct folding *f)
{
	size_t n = 0;

	for (uint32_t i = 1; i < f->n; i++)
		if (f->used[i])
			f->rank[n++] = i;
	qsort_r(f->rank, n, sizeof(*f->rank), rank_compare, f->weight);
}

/* Keeps the first `keep` of the ranking: the nodes that there are then, "[other]" ones included. */
static size_t count_nodes(struct folding *f, size_t keep)
{
	size_t others = 0;

	memset(f->anchor, 0, f->n * sizeof(*f->anchor));
	memset(f->has_other, 0, f->n * sizeof(*f->has_other));
	for (size_t i = 0; i < keep; i++)
		f->anchor[f->rank[i]] = f->rank[i];
	for (uint32_t i = 1; i < f->n; i++) {
		if (!f->used[i] || f->anchor[i] == i)
			continue;
		f->anchor[i] = f->anchor[f->from->stacks[i].parent];
		others += !f->has_other[f->anchor[i]];
		f->has_other[f->anchor[i]] = true;
	}
	return keep + others;
}

/*
 * The longest head of the ranking that fits. One more kept node never makes fewer nodes: it adds itself, and
 * can take away no more than its parent's "[other]".
 */
static void choose(struct folding *f, uint32_t max_nodes)
{
	size_t low = 0, high = max_nodes;

	while (low < high) {
		size_t middle = low + (high - low + 1) / 2;

		if (count_nodes(f, middle) <= max_nodes)
			low = middle;
		else
			high = middle - 1;
	}
	count_nodes(f, low);
}

/* The stack in the new dictionary that stands for an old one. */
static int64_t place(const struct folding *f, struct dict_map *map, uint32_t stack)
{
	int64_t kept = dict_map_stack(map, f->anchor[stack]), other;

	if (kept < 0 || f->anchor[stack] == stack)
		return kept;
	other = dict_marker(map->to, MARKER_OTHER);
	return other < 0 ? other : dict_stack(map->to, (uint32_t)kept, (uint32_t)other);
}

static int rebuild(struct folding *f, struct profile *p, struct dict_map *map)
{
	struct columns *c = &p->columns;

	for (size_t i = 0; i < c->n; i++) {
		int64_t series = dict_map_series(map, c->series[i]), stack, lock;

		stack = place(f, map, c->stack[i]);
		lock = dict_map_lock(map, c->aux[i]);
		if (series < 0 || stack < 0 || lock < 0)
			return (int)MIN(series, MIN(stack, lock));
		c->series[i] = (uint32_t)series;
		c->stack[i] = (uint32_t)stack;
		c->aux[i] = (uint32_t)lock;
	}
	return 0;
}

/* Distinct stacks of rows that lose their place. */
static uint64_t count_folded(struct folding *f, const struct columns *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		uint32_t stack = c->stack[i];

		n += f->anchor[stack] != stack && !f->counted[stack];
		f->counted[stack] = true;
	}
	return n;
}

int profile_fold(struct profile *p, uint32_t max_nodes)
{
	_cleanup_(folding_done) struct folding f = { .from = p->dict, .n = p->dict->n_stacks };
	_cleanup_(dict_free_p) struct dict *to = NULL;
	struct dict_map map;
	int r = weigh(&f, p);

	if (r < 0)
		return r;
	rank(&f);
	if (max_nodes && f.n_rank > max_nodes)
		choose(&f, max_nodes);
	else
		count_nodes(&f, f.n_rank);
	p->omitted = count_folded(&f, &p->columns);
	p->truncated = p->omitted > 0;
	r = dict_new(&to);
	if (r < 0)
		return r;
	dict_map_init(&map, p->dict, to);
	r = rebuild(&f, p, &map);
	dict_map_done(&map);
	if (r == 0)
		r = columns_sort_merge(&p->columns);
	if (r < 0)
		return r;
	dict_free(p->dict);
	p->dict = TAKE_PTR(to);
	return 0;
}
