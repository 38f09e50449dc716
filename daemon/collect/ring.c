// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Records from the kernel: stacks that are new in a window, and what other sources send.
 *
 * A stack may arrive twice (the kernel's memory of what it sent is only a filter). Two different stacks with
 * one id are told apart here, where both are known in full: neither is used then, and the counts that name
 * the id lose their stack, counted. Records are checked like any foreign input.
 */
#include "collect/internal.h"

/* Per window; what exceeds them is dropped and shows as stacks that never arrived. */
#define MAX_STACKS (1U << 18)
#define MAX_IPS (1U << 21)

void stack_set_done(struct stack_set *t)
{
	free(t->stacks);
	free(t->ips);
	free(t->collided);
	index_done(&t->by_id);
	*t = (struct stack_set){};
}

static bool id_equal(const void *ctx, uint32_t number, const void *key)
{
	const struct slice_stack *stacks = ctx;

	return stacks[number - 1].id == *(const uint64_t *)key;
}

static bool same_stack(const struct stack_set *t, const struct slice_stack *a,
		       const struct stack_record *b, const uint64_t *ips)
{
	return a->tgid == b->tgid && a->start == b->start && a->nr_kernel == b->nr_kernel &&
	       a->nr_user == b->nr_user && a->walk_end == b->walk_end &&
	       !memcmp(t->ips + a->first_ip, ips,
		       ((size_t)b->nr_kernel + b->nr_user) * sizeof(*ips));
}

static int stack_set_add(struct stack_set *t, const struct stack_record *rec, const uint64_t *ips)
{
	size_t n = (size_t)rec->nr_kernel + rec->nr_user;
	uint32_t known = index_find(&t->by_id, rec->id, id_equal, t->stacks, &rec->id);
	int r;

	if (known) {
		if (!same_stack(t, &t->stacks[known - 1], rec, ips))
			t->collided[known - 1] = 1;
		return 0;
	}
	if (t->n_stacks >= MAX_STACKS || t->n_ips + n > MAX_IPS)
		return -ENOSPC;
	r = ARRAY_GROW(t->stacks, t->cap_stacks, t->n_stacks + 1);
	if (r == 0)
		r = ARRAY_GROW(t->collided, t->cap_collided, t->n_stacks + 1);
	if (r == 0)
		r = ARRAY_GROW(t->ips, t->cap_ips, t->n_ips + n);
	if (r == 0)
		r = index_add(&t->by_id, rec->id, t->n_stacks + 1);
	if (r < 0)
		return r;
	t->stacks[t->n_stacks] = (struct slice_stack){
		.id = rec->id,
		.mono_ns = rec->mono_ns,
		.start = rec->start,
		.tgid = rec->tgid,
		.nr_kernel = rec->nr_kernel,
		.nr_user = rec->nr_user,
		.nr_fp = rec->nr_fp,
		.walk_end = rec->walk_end,
		.source = rec->source,
		.first_ip = t->n_ips,
		.call = rec->call,
	};
	t->collided[t->n_stacks++] = 0;
	memcpy(t->ips + t->n_ips, ips, n * sizeof(*ips));
	t->n_ips += n;
	return 0;
}

static void stack_arrived(struct collector *c, const struct stack_record *rec, size_t size)
{
	bool ahead = (int32_t)(rec->window - c->window) > 0;
	size_t n;

	if (size < sizeof(*rec))
		return;
	n = (size_t)rec->nr_kernel + rec->nr_user;
	if (rec->nr_kernel > MAX_KERNEL_FRAMES || rec->nr_user > MAX_USER_FRAMES ||
	    size < sizeof(*rec) + n * sizeof(uint64_t) || rec->walk_end >= WALK_END_N ||
	    rec->source >= SOURCE_N || rec->id == STACK_ID_NONE)
		return;
	/* A stack that could not be kept is missed, and counted, when its counts are drained. */
	(void)stack_set_add(ahead ? &c->next : &c->open, rec, (const uint64_t *)(rec + 1));
}

void ring_record(struct collector *c, const void *data, size_t size)
{
	uint32_t type;

	if (size < sizeof(type))
		return;
	memcpy(&type, data, sizeof(type));
	if (type == RECORD_STACK) {
		stack_arrived(c, data, size);
		return;
	}
	for (int s = 0; s < SOURCE_N; s++) {
		const struct source_ops *ops = source_ops_of(s);

		if (ops && ops->record && c->sources[s].on && ops->record(c, type, data, size))
			return;
	}
}

static int on_record(void *ctx, void *data, size_t size)
{
	ring_record(ctx, data, size);
	return 0;
}

int ring_open(struct collector *c)
{
	c->ring = ring_buffer__new(bpf_map__fd(c->skel->maps.ring), on_record, c, NULL);
	return c->ring ? 0 : negative_errno();
}

void ring_close(struct collector *c)
{
	ring_buffer__free(c->ring);
	c->ring = NULL;
	stack_set_done(&c->open);
	stack_set_done(&c->next);
	stack_set_done(&c->closed);
	stack_set_done(&c->recent);
	stack_set_done(&c->older);
}

int ring_consume(struct collector *c)
{
	int r = ring_buffer__consume(c->ring);

	return r < 0 ? r : 0;
}

void ring_take(struct collector *c, struct slice *s)
{
	stack_set_done(&c->closed);
	c->closed = c->open;
	c->open = c->next;
	c->next = (struct stack_set){};
	s->stacks = TAKE_PTR(c->closed.stacks);
	s->n_stacks = c->closed.n_stacks;
	s->cap_stacks = c->closed.cap_stacks;
	s->ips = TAKE_PTR(c->closed.ips);
	s->n_ips = c->closed.n_ips;
	s->cap_ips = c->closed.cap_ips;
	c->window++;
}

/* ---- stacks of earlier windows ------------------------------------------------------------------- */

/* A stack and its addresses, from one list to another. */
static int copy_stack(const struct slice_stack *k, const uint64_t *ips, struct slice_stack **stacks,
		      size_t *n_stacks, size_t *cap_stacks, uint64_t **to, size_t *n_ips,
		      size_t *cap_ips)
{
	size_t n = (size_t)k->nr_kernel + k->nr_user;
	int r = ARRAY_GROW(*stacks, *cap_stacks, *n_stacks + 1);

	if (r == 0)
		r = ARRAY_GROW(*to, *cap_ips, *n_ips + n);
	if (r < 0)
		return r;
	(*stacks)[*n_stacks] = *k;
	(*stacks)[*n_stacks].first_ip = (uint32_t)*n_ips;
	if (n)
		memcpy(*to + *n_ips, ips + k->first_ip, n * sizeof(*ips));
	(*n_stacks)++;
	*n_ips += n;
	return 0;
}

/* Without memory a stack is missed, and counted, when it is counted again. */
static void remember(struct stack_set *t, const struct slice_stack *k, const uint64_t *ips)
{
	if (t->n_stacks >= MAX_STACKS || t->n_ips + k->nr_kernel + k->nr_user > MAX_IPS ||
	    index_find(&t->by_id, k->id, id_equal, t->stacks, &k->id))
		return;
	if (copy_stack(k, ips, &t->stacks, &t->n_stacks, &t->cap_stacks, &t->ips, &t->n_ips,
		       &t->cap_ips) == 0 &&
	    index_add(&t->by_id, k->id, (uint32_t)t->n_stacks) < 0)
		t->n_stacks--;
}

/*
 * A stack stays for REUSE_WINDOWS windows at least, and for twice that at most. Called at the end of a drain, when no
 * more stacks of this window are missed.
 */
void stacks_remember(struct collector *c, const struct slice *s, enum source source)
{
	if (c->recent_windows++ >= REUSE_WINDOWS) {
		stack_set_done(&c->older);
		c->older = c->recent;
		c->recent = (struct stack_set){};
		c->recent_windows = 1;
	}
	/* Those that came by the ring: others have ids of their own. */
	for (size_t i = 0; i < c->closed.n_stacks; i++)
		if (s->stacks[i].source == source && !c->closed.collided[i])
			remember(&c->recent, &s->stacks[i], s->ips);
}

/* The number of a stack of an earlier window, which joins the slice; 0: it is not known. */
static uint32_t recall(struct collector *c, struct slice *s, uint64_t id)
{
	const struct stack_set *const sets[] = { &c->recent, &c->older };

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		const struct stack_set *t = sets[i];
		uint32_t number = index_find(&t->by_id, id, id_equal, t->stacks, &id);

		if (!number)
			continue;
		if (ARRAY_GROW(c->closed.collided, c->closed.cap_collided, s->n_stacks + 1) < 0 ||
		    copy_stack(&t->stacks[number - 1], t->ips, &s->stacks, &s->n_stacks,
			       &s->cap_stacks, &s->ips, &s->n_ips, &s->cap_ips) < 0)
			return 0;
		c->closed.collided[s->n_stacks - 1] = 0;
		if (index_add(&c->closed.by_id, id, (uint32_t)s->n_stacks) < 0)
			return 0;
		return (uint32_t)s->n_stacks;
	}
	return 0;
}

uint64_t slice_stack_id(struct collector *c, struct slice *s, enum source source, uint64_t id,
			uint64_t n)
{
	uint32_t number;

	if (id == STACK_ID_NONE)
		return id;
	number = index_find(&c->closed.by_id, id, id_equal, s->stacks, &id) ?: recall(c, s, id);
	if (number && !c->closed.collided[number - 1])
		return id;
	s->source[source].sum.lost[number ? LOSS_STACK_COLLISION : LOSS_STACK_MISSING] += n;
	return STACK_ID_NONE;
}
