// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rows of a profile -> groups by a facet: a function, a process, a lock. `self` adds up to the profile's total
 * over all groups. `total` differs for functions and binaries only: everything below their uppermost
 * occurrence on each path, so that recursion counts once.
 */
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "base/strbuf.h"
#include "query/internal.h"

/* ---- tables ------------------------------------------------------------------------------------------- */

struct group_key {
	uint64_t a;
	uint32_t b, c;
};

static bool group_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct group *g = &((const struct group_table *)ctx)->g[id];
	const struct group_key *k = key;

	return g->a == k->a && g->b == k->b && g->c == k->c;
}

/* The group with this identity, made when new. */
static int intern(struct group_table *t, struct group_key k, uint32_t element, uint32_t *ret)
{
	uint64_t hash = query_mix(k.a, (uint64_t)k.b << 32 | k.c);
	uint32_t id;
	int r;

	id = index_find(&t->index, hash, group_equal, t, &k);
	if (id == 0) {
		t->n = MAX(t->n, 1);
		r = ARRAY_GROW(t->g, t->cap, t->n + 1);
		if (r == 0)
			r = index_add(&t->index, hash, (uint32_t)t->n);
		if (r < 0)
			return r;
		id = (uint32_t)t->n++;
		t->g[id] = (struct group){ .a = k.a, .b = k.b, .c = k.c, .id = element };
	}
	*ret = id;
	return 0;
}

static void table_done(struct group_table *t)
{
	free(t->g);
	index_done(&t->index);
}

void grouping_init(struct grouping *gr, struct facet f, const struct profile *p)
{
	*gr = (struct grouping){ .facet = f, .p = p };
}

void grouping_done(struct grouping *gr)
{
	table_done(&gr->groups);
	table_done(&gr->functions);
	free(gr->of_series);
	free(gr->of_frame);
	free(gr->of_stack);
	*gr = (struct grouping){};
}

/* ---- what belongs together ------------------------------------------------------------------------------ */

static int group_of_series(struct grouping *gr, uint32_t id, uint32_t *ret)
{
	const struct series *s = &gr->p->dict->series[id];
	uint32_t comm = s->label[LABEL_COMM];
	struct group_key k = {};

	switch (gr->facet.kind) {
	case FACET_PROCESS:
		/* A process is (pid, start); what has no pid stands for many, and is told apart by name. */
		k = (struct group_key){ s->start, s->pid, s->pid ? 0 : comm };
		break;
	case FACET_THREAD:
		k = (struct group_key){ s->start, s->pid, s->tid };
		if (s->pid == 0)
			k = (struct group_key){ s->label[LABEL_THREAD], 0, comm };
		break;
	case FACET_LABEL:
		k.b = s->label[gr->facet.label];
		break;
	case FACET_PID:
		k.b = s->pid;
		break;
	case FACET_TID:
		k.b = s->tid;
		break;
	default:
		k.b = s->uid;
	}
	if (!gr->of_series[id]) {
		int r = intern(&gr->groups, k, id, &gr->of_series[id]);

		if (r < 0)
			return r;
	}
	*ret = gr->of_series[id];
	return 0;
}

/* Functions are told apart as people see them: by name and name of the binary. Each unnamed frame is its own. */
static int group_of_frame(struct grouping *gr, uint32_t id, uint32_t *ret)
{
	struct group_table *t = gr->facet.kind == FACET_STACK ? &gr->functions : &gr->groups;
	const struct dict *d = gr->p->dict;
	const struct frame *f = &d->frames[id];
	uint32_t binary = f->binary < d->n_binaries ? d->binaries[f->binary].name : 0;
	struct group_key k = { .a = f->name ?: (uint64_t)id << 32, .b = binary };

	if (gr->facet.kind == FACET_BINARY)
		k = (struct group_key){ .a = binary ? 0 : k.a, .b = binary };
	if (!gr->of_frame[id]) {
		int r = intern(t, k, id, &gr->of_frame[id]);

		if (r < 0)
			return r;
	}
	*ret = gr->of_frame[id];
	return 0;
}

/* Fills of_stack for every stack: the group of its leaf, or of its whole path. */
static int group_stacks(struct grouping *gr)
{
	const struct dict *d = gr->p->dict;
	bool paths = gr->facet.kind == FACET_STACK;
	int r = 0;

	/* Stack 0: the weight was kept, the stack was not. */
	if (!gr->of_stack[0])
		r = intern(&gr->groups, (struct group_key){ .a = UINT64_MAX }, 0, &gr->of_stack[0]);
	for (uint32_t i = 1; r == 0 && i < d->n_stacks; i++) {
		struct group_key k;
		uint32_t function;

		if (gr->of_stack[i])
			continue;
		r = group_of_frame(gr, d->stacks[i].frame, &function);
		if (r < 0)
			return r;
		if (!paths) {
			gr->of_stack[i] = function;
			continue;
		}
		/* The root's children must not look like children of the group of stack 0. */
		k = (struct group_key){ .a = d->stacks[i].parent ? gr->of_stack[d->stacks[i].parent]
								 : 0,
					.b = function,
					.c = 1 };
		r = intern(&gr->groups, k, i, &gr->of_stack[i]);
	}
	return r;
}

static int group_of_key(struct grouping *gr, uint32_t key, uint32_t *ret)
{
	struct group_key k = { .c = 1 };

	switch (gr->facet.kind) {
	case FACET_CAUSE:
		k.b = OFF_KEY_CAUSE(key);
		break;
	case FACET_STATE:
		k.b = (unsigned char)*off_state_name(OFF_KEY_STATE(key));
		break;
	case FACET_WAIT:
		k.b = OFF_KEY_WAIT(key);
		break;
	case FACET_IDLE:
		k.b = OFF_KEY_IDLE(key);
		break;
	case FACET_SYSCALL:
		k.b = SYSCALL_KEY(SYSCALL_KEY_ABI(key), SYSCALL_KEY_NR(key), 0);
		break;
	case FACET_ERRNO:
		k.b = SYSCALL_KEY_ERRNO(key);
		break;
	default:
		break;
	}
	return intern(&gr->groups, k, key, ret);
}

int grouping_of_row(struct grouping *gr, size_t row, uint32_t *ret)
{
	const struct columns *c = &gr->p->columns;

	switch (gr->facet.kind) {
	case FACET_FUNCTION:
	case FACET_BINARY:
	case FACET_STACK:
		*ret = gr->of_stack[c->stack[row]];
		return 0;
	case FACET_PROCESS:
	case FACET_THREAD:
	case FACET_LABEL:
	case FACET_PID:
	case FACET_TID:
	case FACET_UID:
		return group_of_series(gr, c->series[row], ret);
	case FACET_LOCK:
		return intern(&gr->groups, (struct group_key){ .b = c->aux[row] }, c->aux[row],
			      ret);
	default:
		return group_of_key(gr, c->key[row], ret);
	}
}

static uint32_t element_of_row(const struct grouping *gr, size_t row)
{
	const struct columns *c = &gr->p->columns;

	switch (gr->facet.kind) {
	case FACET_ALL:
		return 0;
	case FACET_FUNCTION:
	case FACET_BINARY:
		return gr->p->dict->stacks[c->stack[row]].frame;
	case FACET_STACK:
		return c->stack[row];
	case FACET_PROCESS:
	case FACET_THREAD:
	case FACET_LABEL:
	case FACET_PID:
	case FACET_TID:
	case FACET_UID:
		return c->series[row];
	case FACET_LOCK:
		return c->aux[row];
	default:
		return c->key[row];
	}
}

bool facet_of_stacks(struct facet f)
{
	return f.kind == FACET_FUNCTION || f.kind == FACET_BINARY || f.kind == FACET_STACK;
}

/* Functions and binaries lie on paths: what is below them is theirs too. */
static bool has_inclusive(struct facet f)
{
	return f.kind == FACET_FUNCTION || f.kind == FACET_BINARY;
}

/* ---- sums ------------------------------------------------------------------------------------------------ */

struct sum {
	uint64_t value, count, max;
};

static void add_self(struct grouping *gr, struct group *g, size_t row)
{
	const struct columns *c = &gr->p->columns;

	g->self += c->value[row];
	if (c->value[row] > g->id_value) {
		g->id_value = c->value[row];
		g->id = element_of_row(gr, row);
	}
	if (has_inclusive(gr->facet))
		return;
	g->total += c->value[row];
	g->events += c->count[row];
	g->max = MAX(g->max, c->max[row]);
	if (gr->p->type == PROFILE_SYSCALLS && SYSCALL_KEY_ERRNO(c->key[row]))
		g->errors += c->count[row];
}

static void add_sum(struct sum *to, const struct sum *from)
{
	to->value += from->value;
	to->count += from->count;
	to->max = MAX(to->max, from->max);
}

/* Sums of whole subtrees, in one pass because parents have smaller ids. */
static void sum_subtrees(const struct profile *p, struct sum *sums)
{
	const struct columns *c = &p->columns;

	for (size_t i = 0; i < c->n; i++)
		add_sum(&sums[c->stack[i]], &(struct sum){ c->value[i], c->count[i], c->max[i] });
	for (size_t i = p->dict->n_stacks - 1; i > 0; i--)
		if (p->dict->stacks[i]
			    .parent) /* 0 is not the root of all: it stands for no stack */
			add_sum(&sums[p->dict->stacks[i].parent], &sums[i]);
}

static void add_inclusive(struct group *g, const struct sum *s)
{
	g->total += s->value;
	g->events += s->count;
	g->max = MAX(g->max, s->max);
}

/* Walks the tree, counting how often each group lies on the path: only its first occurrence adds up. */
static void walk_tree(struct grouping *gr, const struct sum *sums, const uint32_t *child,
		      const uint32_t *sibling, uint32_t *on_path)
{
	const struct stack *stacks = gr->p->dict->stacks;
	const uint32_t *of = gr->of_stack;
	uint32_t i = child[0];

	while (i) {
		if (on_path[of[i]]++ == 0)
			add_inclusive(&gr->groups.g[of[i]], &sums[i]);
		if (child[i]) {
			i = child[i];
			continue;
		}
		while (i) {
			on_path[of[i]]--;
			if (sibling[i]) {
				i = sibling[i];
				break;
			}
			i = stacks[i].parent;
		}
	}
}

static int add_totals(struct grouping *gr)
{
	const struct dict *d = gr->p->dict;
	_cleanup_free_ uint32_t *child = new0(uint32_t, d->n_stacks);
	_cleanup_free_ uint32_t *sibling = new0(uint32_t, d->n_stacks);
	_cleanup_free_ uint32_t *on_path = new0(uint32_t, gr->groups.n);
	_cleanup_free_ struct sum *sums = new0(struct sum, d->n_stacks);

	if (!child || !sibling || !on_path || !sums)
		return -ENOMEM;
	sum_subtrees(gr->p, sums);
	for (uint32_t i = (uint32_t)d->n_stacks - 1; i > 0; i--) {
		sibling[i] = child[d->stacks[i].parent];
		child[d->stacks[i].parent] = i;
	}
	walk_tree(gr, sums, child, sibling, on_path);
	add_inclusive(&gr->groups.g[gr->of_stack[0]], &sums[0]);
	return 0;
}

int grouping_add(struct grouping *gr, bool totals)
{
	const struct dict *d = gr->p->dict;
	int r = 0;

	if (ARRAY_GROW(gr->of_series, gr->cap_series, d->n_series) < 0 ||
	    ARRAY_GROW(gr->of_frame, gr->cap_frame, d->n_frames) < 0 ||
	    ARRAY_GROW(gr->of_stack, gr->cap_stack, d->n_stacks) < 0)
		return -ENOMEM;
	if (facet_of_stacks(gr->facet))
		r = group_stacks(gr);
	for (size_t i = 0; r == 0 && i < gr->p->columns.n; i++) {
		uint32_t g;

		r = grouping_of_row(gr, i, &g);
		if (r == 0)
			add_self(gr, &gr->groups.g[g], i);
	}
	if (r == 0 && totals && has_inclusive(gr->facet))
		r = add_totals(gr);
	return r;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

static const char *frame_binary(const struct dict *d, uint32_t frame)
{
	uint32_t binary = d->frames[frame].binary;

	return binary < d->n_binaries ? dict_str(d, d->binaries[binary].name) : "";
}

static void lock_name(const struct dict *d, uint32_t lock, struct strbuf *name,
		      struct strbuf *binary)
{
	char buf[512];

	if (lock == 0)
		return;
	strbuf_puts(name, lock_text(d, lock, buf, sizeof(buf)));
	if (d->locks[lock].binary < d->n_binaries)
		strbuf_puts(binary, dict_str(d, d->binaries[d->locks[lock].binary].name));
}

static void frame_names(const struct grouping *gr, uint32_t frame, struct strbuf *name,
			struct strbuf *binary)
{
	const struct dict *d = gr->p->dict;
	const char *in = frame_binary(d, frame);
	char buf[512];

	if (frame == 0)
		strbuf_puts(name, MARKER_NO_STACK);
	else if (gr->facet.kind == FACET_BINARY && *in)
		strbuf_puts(name, in);
	else
		strbuf_puts(name, query_frame_name(d, frame, buf, sizeof(buf)));
	strbuf_puts(binary, in);
}

static void key_name(const struct grouping *gr, uint32_t key, struct strbuf *name)
{
	char buf[64];

	if (gr->facet.kind == FACET_CAUSE)
		strbuf_puts(name, off_cause_name(OFF_KEY_CAUSE(key)));
	else if (gr->facet.kind == FACET_STATE)
		strbuf_puts(name, off_state_name(OFF_KEY_STATE(key)));
	else if (gr->facet.kind == FACET_WAIT)
		strbuf_puts(name, wait_kind_name(OFF_KEY_WAIT(key)));
	else if (gr->facet.kind == FACET_IDLE)
		strbuf_puts(name, OFF_KEY_IDLE(key) ? "true" : "");
	else if (gr->facet.kind == FACET_SYSCALL)
		strbuf_puts(name, syscall_text(key, buf, sizeof(buf)));
	else if (gr->facet.kind == FACET_ERRNO && SYSCALL_KEY_ERRNO(key))
		strbuf_puts(name, errno_text(SYSCALL_KEY_ERRNO(key), buf, sizeof(buf)));
}

static void series_name(const struct grouping *gr, uint32_t id, struct strbuf *name)
{
	const struct dict *d = gr->p->dict;
	const struct series *s = &d->series[id];

	switch (gr->facet.kind) {
	case FACET_PROCESS:
		strbuf_puts(name, dict_str(d, s->label[LABEL_COMM]));
		return;
	case FACET_THREAD:
		strbuf_puts(name, dict_str(d, s->label[LABEL_THREAD] ?: s->label[LABEL_COMM]));
		return;
	case FACET_LABEL:
		strbuf_puts(name, dict_str(d, s->label[gr->facet.label]));
		return;
	case FACET_PID:
		strbuf_printf(name, "%u", s->pid);
		return;
	case FACET_TID:
		strbuf_printf(name, "%u", s->tid);
		return;
	default:
		strbuf_printf(name, "%u", s->uid);
	}
}

static void write_name(const struct grouping *gr, const struct group *g, struct strbuf *name,
		       struct strbuf *binary)
{
	switch (gr->facet.kind) {
	case FACET_ALL:
		strbuf_puts(name, "total");
		return;
	case FACET_FUNCTION:
	case FACET_BINARY:
		frame_names(gr, g->id, name, binary);
		return;
	case FACET_STACK:
		stack_text(gr->p->dict, g->id, name);
		return;
	case FACET_LOCK:
		lock_name(gr->p->dict, g->id, name, binary);
		return;
	case FACET_CAUSE:
	case FACET_STATE:
	case FACET_WAIT:
	case FACET_IDLE:
	case FACET_SYSCALL:
	case FACET_ERRNO:
		key_name(gr, g->id, name);
		return;
	default:
		series_name(gr, g->id, name);
	}
}

int grouping_name(const struct grouping *gr, const struct group *g, const char *otherwise,
		  char **ret_name, char **ret_binary)
{
	_cleanup_(strbuf_done) struct strbuf name = {}, binary = {};

	/* Empty names are strings too. */
	strbuf_puts(&name, "");
	strbuf_puts(&binary, "");
	write_name(gr, g, &name, &binary);
	if (name.len == 0)
		strbuf_puts(&name, otherwise);
	if (strbuf_error(&name) < 0 || strbuf_error(&binary) < 0)
		return -ENOMEM;
	*ret_name = strbuf_take(&name, NULL);
	*ret_binary = strbuf_take(&binary, NULL);
	return 0;
}

void grouping_identity(const struct grouping *gr, const struct group *g, uint32_t *ret_pid,
		       uint32_t *ret_tid, uint64_t *ret_start)
{
	const struct dict *d = gr->p->dict;

	if (gr->facet.kind == FACET_LOCK) {
		*ret_pid = d->locks[g->id].pid;
	} else if (gr->facet.kind == FACET_PROCESS || gr->facet.kind == FACET_THREAD) {
		*ret_pid = d->series[g->id].pid;
		*ret_start = d->series[g->id].start;
		if (gr->facet.kind == FACET_THREAD)
			*ret_tid = d->series[g->id].tid;
	}
}
