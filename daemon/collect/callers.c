// SPDX-License-Identifier: GPL-2.0-or-later
/* Who makes system calls: stacks of calls that were drawn at random, a part of the source syscalls. */
#include "collect/internal.h"

struct drain {
	struct collector *c;
	struct slice *s;
};

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct drain *d = ctx;
	struct slice *s = d->s;
	struct slice_caller *to;
	int r = ARRAY_GROW(s->callers, s->cap_callers, s->n_callers + 1);

	if (r < 0)
		return r;
	to = &s->callers[s->n_callers++];
	memcpy(&to->key, key, sizeof(to->key));
	memcpy(&to->calls, value, sizeof(to->calls));
	to->key.stack = slice_stack_id(d->c, s, SOURCE_SYSCALLS, to->key.stack, to->calls);
	return 0;
}

int callers_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, 250, 8192, 32768);
	struct sysprofd_bpf *skel = c->skel;
	int r = use_map(skel->maps.caller_draws, 0);

	if (r == 0)
		r = hooks_use_rations(c);
	if (r == 0)
		r = use_map(skel->maps.callers_a, entries);
	if (r == 0)
		r = use_map(skel->maps.callers_b, entries);
	skel->rodata->caller_period = c->o.syscall_stacks;
	return r;
}

int callers_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct drain d = { c, s };

	if (!c->skel->rodata->caller_period)
		return 0;
	return drain_map(c, set ? c->skel->maps.callers_b : c->skel->maps.callers_a, drain_one, &d);
}
