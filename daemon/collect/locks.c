// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the futex programs know of locks beside the waits: the table of slots, which is mapped here, and the samples of
 * who wakes and who holds. Slots stay from window to window, since threads go on waiting; what a window counted in
 * them is taken out when no program writes it any more.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "collect/internal.h"

struct locks {
	struct lock_slot *slots;
	size_t n;
	uint64_t short_before, lost_before; /* of the counters, told already */
};

static uint32_t slots_wanted(void)
{
	uint32_t threads = count_threads(), n = LOCK_SLOTS_MIN;

	while (n < LOCK_SLOTS_MAX && n < threads * LOCK_WAYS)
		n *= 2;
	return n;
}

int locks_configure(struct collector *c)
{
	uint32_t slots = slots_wanted(), samples = count_entries(c, 150, 4096, 16384);
	int r;

	c->skel->rodata->lock_slots_mask = slots - 1;
	c->skel->rodata->have_task_from_pid = c->hooks.task_from_pid;
	c->skel->rodata->have_task_from_vpid = c->hooks.task_from_vpid;
	r = use_map(c->skel->maps.lock_slots, slots);
	if (r == 0)
		r = use_map(c->skel->maps.locks_a, samples);
	if (r == 0)
		r = use_map(c->skel->maps.locks_b, samples);
	return r;
}

int locks_attach(struct collector *c)
{
	struct bpf_map *m = c->skel->maps.lock_slots;
	struct locks *l = new0(struct locks, 1);

	if (!l)
		return -ENOMEM;
	l->n = bpf_map__max_entries(m);
	l->slots = mmap(NULL, l->n * sizeof(*l->slots), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(m), 0);
	if (l->slots == MAP_FAILED) {
		free(l);
		return negative_errno();
	}
	c->sources[SOURCE_FUTEX].priv = l;
	return 0;
}

void locks_free(struct collector *c)
{
	struct locks *l = c->sources[SOURCE_FUTEX].priv;

	if (!l)
		return;
	munmap(l->slots, l->n * sizeof(*l->slots));
	free(l);
	c->sources[SOURCE_FUTEX].priv = NULL;
}

/* Several threads wait, and have done so since before this window. */
static bool crowd_stands(const struct lock_slot *slot)
{
	return slot->waiters > 1 && slot->waiters < 1U << 22;
}

static int take_slot(struct slice *s, struct lock_slot *slot)
{
	struct lock_window *v = &slot->window[s->window & 1];
	struct slice_lock *e;
	int r;

	if (v->most < 2 && !v->wakes && !v->idle_wakes && !crowd_stands(slot))
		return 0;
	r = ARRAY_GROW(s->locks, s->cap_locks, s->n_locks + 1);
	if (r < 0)
		return r;
	e = &s->locks[s->n_locks++];
	*e = (struct slice_lock){
		.address = slot->address,
		.start = slot->start,
		.tgid = slot->tgid,
		.flags = slot->flags,
		.seen = *v,
	};
	if (crowd_stands(slot))
		e->seen.most = MAX(e->seen.most, slot->waiters);
	*v = (struct lock_window){};
	return 0;
}

struct drain {
	struct collector *c;
	struct slice *s;
};

static int drain_sample(void *ctx, const void *key, const void *value)
{
	struct drain *d = ctx;
	struct slice *s = d->s;
	struct slice_lock_sample *e;
	int r = ARRAY_GROW(s->lock_samples, s->cap_lock_samples, s->n_lock_samples + 1);

	if (r < 0)
		return r;
	e = &s->lock_samples[s->n_lock_samples++];
	memcpy(&e->key, key, sizeof(e->key));
	memcpy(&e->value, value, sizeof(e->value));
	/* They explain waits, and are in no account. */
	e->key.stack = slice_stack_id(d->c, s, SOURCE_FUTEX, e->key.stack, 0);
	return 0;
}

/* What grew since the last time it was asked. */
static uint64_t since(uint64_t *before, uint64_t now)
{
	uint64_t n = now - *before;

	*before = now;
	return n;
}

int locks_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct locks *l = c->sources[SOURCE_FUTEX].priv;
	struct drain d = { .c = c, .s = s };
	int r = drain_map(c, set ? c->skel->maps.locks_b : c->skel->maps.locks_a, drain_sample, &d);

	for (size_t i = 0; l && i < l->n; i++) {
		int k = take_slot(s, &l->slots[i]);

		if (r == 0)
			r = k;
	}
	if (l) {
		s->lock_slots_short += since(&l->short_before, c->skel->bss->lock_slots_short);
		s->lock_samples_lost += since(&l->lost_before, c->skel->bss->lock_samples_lost);
	}
	return r;
}
