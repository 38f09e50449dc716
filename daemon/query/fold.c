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
	uint32_t *rank, *spare; /* used nodes, heaviest first */
	size_t n_rank;
	uint32_t *anchor; /* the nearest kept node on the way up, itself included */
	bool *counted; /* stacks of rows */
};

static void folding_done(struct folding *f)
{
	free(f->weight);
	free(f->used);
	free(f->rank);
	free(f->anchor);
	free(f->spare);
	free(f->counted);
}

static int weigh(struct folding *f, const struct profile *p)
{
	const struct columns *c = &p->columns;

	f->weight = new0(uint64_t, f->n);
	f->used = new0(bool, f->n);
	f->rank = new0(uint32_t, f->n);
	f->anchor = new0(uint32_t, f->n);
	f->spare = new0(uint32_t, f->n);
	f->counted = new0(bool, f->n);
	if (!f->weight || !f->used || !f->rank || !f->anchor || !f->spare || !f->counted)
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

/*
 * Heaviest first, parents before children of the same weight: a stable sort by the bytes of the weight, over ids
 * in ascending order.
 */
static void rank(struct folding *f)
{
	uint64_t all = 0;
	size_t n = 0;

	for (uint32_t i = 1; i < f->n; i++)
		if (f->used[i]) {
			f->rank[n++] = i;
			all |= f->weight[i];
		}
	for (unsigned shift = 0; shift < 64 && all >> shift; shift += 8) {
		size_t starts[257] = {};
		uint32_t *from = f->rank;

		for (size_t i = 0; i < n; i++)
			starts[255 - (f->weight[from[i]] >> shift & 255) + 1]++;
		for (size_t i = 1; i < 257; i++)
			starts[i] += starts[i - 1];
		for (size_t i = 0; i < n; i++)
			f->spare[starts[255 - (f->weight[from[i]] >> shift & 255)]++] = from[i];
		f->rank = f->spare;
		f->spare = from;
	}
}

/*
 * The longest head of the ranking that fits, "[other]" nodes included. One more kept node never makes fewer
 * nodes: it adds itself, and can take away no more than its parent's "[other]".
 */
static size_t choose(struct folding *f, uint32_t max_nodes)
{
	uint32_t *folded = f->anchor; /* children of a node that are not kept, until settle() */
	size_t others = 1, keep;

	for (uint32_t i = 1; i < f->n; i++)
		if (f->used[i])
			folded[f->from->stacks[i].parent]++;
	for (keep = 0; keep < f->n_rank; keep++) {
		uint32_t i = f->rank[keep], parent = f->from->stacks[i].parent;
		size_t after = others + (folded[i] > 0) - (folded[parent] == 1);

		if (keep + 1 + after > max_nodes)
			break;
		folded[parent]--;
		others = after;
	}
	return keep;
}

/* Keeps the first `keep` of the ranking; the others are anchored where they are cut off. */
static void settle(struct folding *f, size_t keep)
{
	memset(f->anchor, 0, f->n * sizeof(*f->anchor));
	for (size_t i = 0; i < keep; i++)
		f->anchor[f->rank[i]] = f->rank[i];
	for (uint32_t i = 1; i < f->n; i++)
		if (f->used[i] && f->anchor[i] != i)
			f->anchor[i] = f->anchor[f->from->stacks[i].parent];
}

/* The "[other]" child of a kept stack; `known` has those that were asked for already. */
static int64_t other_of(struct dict *d, uint32_t kept, uint32_t marker, uint32_t *known)
{
	if (!known[kept]) {
		int64_t other = dict_stack(d, kept, marker);

		if (other < 0)
			return other;
		known[kept] = (uint32_t)other;
	}
	return known[kept];
}

/* The table of what a row's aux names, or NULL. */
static uint32_t *aux_table(const struct dict_shrink *s, enum profile_type type, uint32_t key)
{
	switch (row_aux(type, key)) {
	case AUX_LOCK:
		return s->lock;
	case AUX_SERIES:
		return s->series;
	case AUX_NONE:
		break;
	}
	return NULL;
}

/* Rows follow into the smaller dictionary. */
static int move_rows(struct folding *f, struct profile *p, const struct dict_shrink *to)
{
	int64_t marker = p->omitted ? dict_marker(p->dict, MARKER_OTHER) : 0;
	struct columns *c = &p->columns;
	const uint32_t *aux;

	if (marker < 0)
		return (int)marker;
	memset(f->spare, 0, f->n * sizeof(*f->spare));
	for (size_t i = 0; i < c->n; i++) {
		uint32_t anchor = f->anchor[c->stack[i]];
		int64_t stack = to->stack[anchor];

		if (anchor != c->stack[i])
			stack = other_of(p->dict, (uint32_t)stack, (uint32_t)marker, f->spare);
		if (stack < 0)
			return (int)stack;
		c->stack[i] = (uint32_t)stack;
		c->series[i] = to->series[c->series[i]];
		aux = aux_table(to, p->type, c->key[i]);
		if (aux)
			c->aux[i] = aux[c->aux[i]];
	}
	return 0;
}

static int shrink(struct folding *f, struct profile *p)
{
	_cleanup_(dict_shrink_done) struct dict_shrink to = {};
	const struct columns *c = &p->columns;
	int r = dict_shrink_init(&to, p->dict);
	uint32_t *aux;

	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++) {
		to.stack[f->anchor[c->stack[i]]] = 1;
		to.series[c->series[i]] = 1;
		aux = aux_table(&to, p->type, c->key[i]);
		if (aux)
			aux[c->aux[i]] = 1;
	}
	dict_shrink(p->dict, &to);
	return move_rows(f, p, &to);
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
	int r = weigh(&f, p);

	if (r < 0)
		return r;
	if (max_nodes && f.n_rank > max_nodes) {
		rank(&f);
		settle(&f, choose(&f, max_nodes));
	} else {
		for (uint32_t i = 1; i < f.n; i++)
			f.anchor[i] = i;
	}
	p->omitted = count_folded(&f, &p->columns);
	p->truncated = p->omitted > 0;
	r = shrink(&f, p);
	return r < 0 ? r : columns_sort_merge(&p->columns);
}
