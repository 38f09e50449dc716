// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * System calls by who makes them: how many calls there were is known exactly, or estimated for itself; where they come
 * from is known from calls that were drawn. For each process, call and errno the drawn ones are scaled to that number, in
 * integers. Calls of which none was drawn are under the marker [not sampled]; where no stack was taken at all, calls
 * have none.
 */
#include "../bpf/sysprofd.h"
#include "query/internal.h"

struct item {
	uint64_t group; /* series, and call with errno */
	uint32_t row;
	bool drawn;
};

struct spreading {
	const struct columns *in;
	struct columns out;
	struct lens *lens;
	uint32_t not_sampled; /* stack; 0 where there are none */
	struct item *items;
	uint64_t *weights, *shares;
	struct remainder *scratch;
};

static void spreading_done(struct spreading *s)
{
	columns_done(&s->out);
	free(s->items);
	free(s->weights);
	free(s->shares);
	free(s->scratch);
}

static int item_compare(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->drawn != b->drawn)
		return a->drawn ? 1 : -1;
	return a->row < b->row ? -1 : a->row > b->row;
}

/* Whether any call was drawn. */
static bool list_items(struct spreading *s)
{
	const struct columns *c = s->in;
	bool any = false;

	for (size_t i = 0; i < c->n; i++) {
		bool drawn = row_aspect(PROFILE_SYSCALLS, c->key[i]) == CALL_STACKS;
		uint32_t call = drawn ? CALL_OF_STACK_KEY(c->key[i]) : c->key[i];

		s->items[i] = (struct item){
			.group = (uint64_t)c->series[i] << 32 | call,
			.row = (uint32_t)i,
			.drawn = drawn,
		};
		any |= drawn;
	}
	qsort(s->items, c->n, sizeof(*s->items), item_compare);
	return any;
}

static int emit(struct spreading *s, const struct item *i, uint32_t stack, uint64_t calls)
{
	if (!calls || (s->lens->m->checks_stack && !lens_stack(s->lens, stack)))
		return 0;
	return columns_add(&s->out, s->in->series[i->row], stack, (uint32_t)i->group, 0, calls, 0,
			   0);
}

/* Items [from, until) are those of one group; from `drawn` on they are calls with a stack. */
static int spread_group(struct spreading *s, size_t from, size_t drawn, size_t until)
{
	uint64_t calls = 0, weight = 0;
	size_t n = until - drawn;
	int r = 0;

	for (size_t i = from; i < drawn; i++)
		calls += s->in->count[s->items[i].row];
	for (size_t i = 0; i < n; i++)
		weight += s->weights[i] = s->in->count[s->items[drawn + i].row];
	if (weight == 0)
		return emit(s, &s->items[from], s->not_sampled, calls);
	share_out(calls, s->weights, n, s->shares, s->scratch);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = emit(s, &s->items[drawn + i], s->in->stack[s->items[drawn + i].row],
			 s->shares[i]);
	return r;
}

static int spread_all(struct spreading *s)
{
	size_t until, n = s->in->n;
	int r = 0;

	for (size_t from = 0; r == 0 && from < n; from = until) {
		size_t drawn = from;

		for (until = from; until < n && s->items[until].group == s->items[from].group;
		     until++)
			drawn += !s->items[until].drawn;
		r = spread_group(s, from, drawn, until);
	}
	return r;
}

int callers_spread(struct profile *p, struct lens *l)
{
	_cleanup_(spreading_done) struct spreading s = { .in = &p->columns, .lens = l };
	size_t n = p->columns.n;
	int r = 0;

	if (n == 0)
		return 0;
	s.items = new0(struct item, n);
	s.weights = new0(uint64_t, n);
	s.shares = new0(uint64_t, n);
	s.scratch = new0(struct remainder, n);
	if (!s.items || !s.weights || !s.shares || !s.scratch)
		return -ENOMEM;
	if (list_items(&s))
		r = query_not_sampled_stack(p->dict, &s.not_sampled);
	if (r == 0)
		r = lens_use(l, p->dict);
	if (r == 0)
		r = spread_all(&s);
	if (r < 0)
		return r;
	columns_done(&p->columns);
	p->columns = s.out;
	s.out = (struct columns){};
	return columns_sort_merge(&p->columns);
}
