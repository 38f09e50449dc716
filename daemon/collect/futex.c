// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Futex waits that really slept. They need the context switch, which knows how long a thread slept, and the
 * return of the call, which knows what became of it.
 */
#include <stdio.h>

#include "collect/internal.h"

struct drain {
	struct collector *c;
	struct slice *s;
	uint64_t waits;
};

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct drain *d = ctx;
	struct slice *s = d->s;
	struct slice_futex *e;
	int r = ARRAY_GROW(s->futex, s->cap_futex, s->n_futex + 1);

	if (r < 0)
		return r;
	e = &s->futex[s->n_futex++];
	memcpy(&e->key, key, sizeof(e->key));
	memcpy(&e->value, value, sizeof(e->value));
	e->key.stack = slice_stack_id(d->c, s, SOURCE_FUTEX, e->key.stack, e->value.waits);
	d->waits += e->value.waits;
	return 0;
}

static int futex_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct drain d = { .c = c, .s = s };
	int r = drain_map(c, set ? c->skel->maps.futex_b : c->skel->maps.futex_a, drain_one, &d);
	int k = drain_map(c, set ? c->skel->maps.futex_rest_b : c->skel->maps.futex_rest_a,
			  drain_one, &d);

	r = r < 0 ? r : k;
	slice_balance(s, SOURCE_FUTEX, d.waits);
	k = locks_drain(c, set, s);
	r = r < 0 ? r : k;
	k = kernel_locks_drain(c, set, s);
	return r < 0 ? r : k;
}

static int futex_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, 250, 8192, 32768), rest = MAX(entries / 8, 1U);
	int r;

	if (c->sources[SOURCE_FUTEX].attempt) {
		source_off(c, SOURCE_FUTEX, "%s", c->sources[SOURCE_FUTEX].state.text);
		return 0;
	}
	c->skel->rodata->futex_enabled = true;
	r = hooks_use_switch(c);
	if (r == 0)
		r = hooks_use_sys_exit(c);
	if (r == 0)
		r = use_map(c->skel->maps.futex_a, entries);
	if (r == 0)
		r = use_map(c->skel->maps.futex_b, entries);
	if (r == 0)
		r = use_map(c->skel->maps.futex_rest_a, rest);
	if (r == 0)
		r = use_map(c->skel->maps.futex_rest_b, rest);
	if (r == 0)
		r = locks_configure(c);
	if (r == 0)
		r = kernel_locks_configure(c);
	return r;
}

static int futex_attach(struct collector *c)
{
	struct source_state *state = &c->sources[SOURCE_FUTEX].state;
	int r = hooks_attach_switch(c);

	if (r == 0)
		r = hooks_attach_sys_exit(c);
	if (r == 0)
		r = locks_attach(c);
	if (r < 0)
		return r;
	kernel_locks_attach(c);
	snprintf(state->hook, sizeof(state->hook), "sched_switch, %s",
		 hooks_sys_exit_is_classic(c) ? "sys_exit tracepoint" : "sys_exit");
	return 0;
}

static void futex_free(struct collector *c)
{
	locks_free(c);
	kernel_locks_free(c);
}

const struct source_ops futex_ops = {
	.prefix = "futex_",
	.configure = futex_configure,
	.attach = futex_attach,
	.drain = futex_drain,
	.free = futex_free,
};
