// SPDX-License-Identifier: GPL-2.0-or-later
#include "export/functions.h"

struct summing {
	const struct flame_tree *t;
	struct function_row *by_label;
	uint32_t *path; /* labels of the node at hand and of those above it, by depth */
	uint32_t *open; /* by label: how often it is on the path */
	struct event_pair *own; /* by node: without its children's */
};

static void summing_done(struct summing *s)
{
	free(s->by_label);
	free(s->path);
	free(s->open);
	free(s->own);
}

static void take_away(struct event_pair *from, const struct event_pair *p)
{
	from->events -= MIN(p->events, from->events);
	from->event_samples -= MIN(p->event_samples, from->event_samples);
	from->instructions -= MIN(p->instructions, from->instructions);
	from->instruction_samples -= MIN(p->instruction_samples, from->instruction_samples);
}

static bool is_function(enum flame_kind kind)
{
	return kind != FLAME_ALL && kind != FLAME_PROCESS;
}

static int sum(struct summing *s)
{
	const struct flame_tree *t = s->t;
	uint32_t depth = 0;

	s->by_label = new0(struct function_row, t->n_labels);
	s->path = new0(uint32_t, t->max_depth + 1);
	s->open = new0(uint32_t, t->n_labels);
	s->own = new0(struct event_pair, t->n_nodes);
	if (!s->by_label || !s->path || !s->open || !s->own)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_nodes; i++)
		s->own[i] = t->nodes[i].pair;
	for (size_t i = 1; i < t->n_nodes; i++)
		take_away(&s->own[t->nodes[i].parent], &t->nodes[i].pair);
	for (uint32_t i = flame_tree_next(t, 0); i; i = flame_tree_next(t, i)) {
		const struct flame_node *n = &t->nodes[i];
		struct function_row *row = &s->by_label[n->label];

		for (; depth >= n->depth; depth--)
			s->open[s->path[depth]]--;
		depth = n->depth;
		s->path[depth] = n->label;
		row->function = &t->labels[n->label];
		row->self += n->self;
		row->total += s->open[n->label]++ ? 0 : n->total;
		pair_add(&row->pair, &s->own[i]);
	}
	return 0;
}

static int compare(const void *pa, const void *pb)
{
	const struct function_row *a = pa, *b = pb;
	int r;

	if (a->self != b->self)
		return a->self > b->self ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	r = strcmp(a->function->text, b->function->text);
	if (r == 0)
		r = strcmp(a->function->binary, b->function->binary);
	return r ? r : (int)a->function->kind - (int)b->function->kind;
}

int functions_new(const struct profile *p, struct functions *ret)
{
	_cleanup_(flame_tree_free_p) struct flame_tree *t = NULL;
	_cleanup_(summing_done) struct summing s = {};
	size_t n = 0;
	int r = flame_tree_new(p, &t);

	if (r < 0)
		return r;
	s.t = t;
	r = sum(&s);
	if (r < 0)
		return r;
	for (size_t i = 0; i < t->n_labels; i++)
		if (s.by_label[i].total && is_function(s.by_label[i].function->kind))
			s.by_label[n++] = s.by_label[i];
	qsort(s.by_label, n, sizeof(*s.by_label), compare);
	*ret = (struct functions){ .rows = TAKE_PTR(s.by_label), .n_rows = n };
	ret->tree = TAKE_PTR(t);
	return 0;
}

void functions_done(struct functions *f)
{
	free(f->rows);
	flame_tree_free(f->tree);
}
