// SPDX-License-Identifier: GPL-2.0-or-later
/* Chains: who waited, and who woke it. Stored stacks hold both, each from its root: see window/wakers.c. */
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "query/internal.h"

#define NAME_MAX_BYTES 128

static bool is_marker(const struct dict *d, uint32_t stack, const char *name)
{
	const struct frame *f = &d->frames[d->stacks[stack].frame];

	return f->kind == FRAME_MARKER && streq(dict_str(d, f->name), name);
}

/* Dictionaries come from the store: a parent that is no smaller than its child ends the stack. */
static uint32_t parent_of(const struct dict *d, uint32_t stack)
{
	uint32_t parent = d->stacks[stack].parent;

	return parent < stack ? parent : 0;
}

uint32_t query_waiting_stack(const struct dict *d, uint32_t stack)
{
	for (uint32_t i = stack; i; i = parent_of(d, i))
		if (is_marker(d, i, MARKER_WOKEN))
			return parent_of(d, i);
	/* That part is all that may be seen, or the dictionary was full. */
	return stack;
}

static int64_t push(struct dict *d, int64_t stack, int64_t frame)
{
	return stack < 0   ? stack
	       : frame < 0 ? frame
			   : dict_stack(d, (uint32_t)stack, (uint32_t)frame);
}

/* "woken by nginx"; of an interrupt, that takes the place of its own frame. */
static int64_t push_waker(struct dict *d, uint32_t wait, uint32_t waker, const char *otherwise)
{
	const char *comm = waker ? dict_str(d, d->series[waker].label[LABEL_COMM]) : otherwise;
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "woken by %s", *comm ? comm : "[none]");
	return push(d, wait, dict_marker(d, name));
}

static int64_t chain(struct dict *d, uint32_t stack, uint32_t waker)
{
	uint32_t wait = query_waiting_stack(d, stack);
	bool interrupt = !waker && stack != wait && is_marker(d, stack, "[interrupt]");
	int64_t id = push_waker(d, wait, waker, interrupt ? "[interrupt]" : "[unknown]");

	if (interrupt || stack == wait)
		return id;
	for (uint32_t i = stack; i && !is_marker(d, i, MARKER_WOKEN); i = parent_of(d, i))
		id = push(d, id, d->stacks[i].frame);
	return id;
}

static int make_chains(struct profile *p)
{
	struct columns *c = &p->columns;

	for (size_t i = 0; i < c->n; i++) {
		int64_t stack = chain(p->dict, c->stack[i], c->aux[i]);

		if (stack < 0)
			return (int)stack;
		c->stack[i] = (uint32_t)stack;
		c->key[i] &= ~aspect_mask(PROFILE_OFF_CPU);
		c->aux[i] = 0;
		p->total += c->value[i];
		p->samples += c->count[i];
	}
	return columns_sort_merge(c);
}

int query_chains(const struct query_source *src, const struct selection *sel, uint32_t max_nodes,
		 struct profile **ret)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	struct selection wakes = *sel;
	int r;

	wakes.type = PROFILE_OFF_CPU;
	wakes.aspects = 1U << OFF_WAKES;
	r = merge_init(&m, &wakes, all);
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0)
		r = make_chains(m.p);
	if (r == 0)
		r = profile_fold(m.p, max_nodes);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	if (r < 0)
		return r;
	*ret = merge_take(&m);
	return 0;
}
