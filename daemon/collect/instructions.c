// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Instructions, sampled beside the other hardware event of a burst: both profiles are estimates of how their event
 * spreads over functions, and their quotient is a function's IPC, or its misses per instruction. Counters read at each
 * sample would not do: what passed since the sample before belongs to many functions.
 *
 * Accounts are apart: what is lost of the one event is not lost of the other. Stacks are shared.
 */
#include "collect/internal.h"

int instructions_configure(struct collector *c, uint32_t entries)
{
	struct sysprofd_bpf *skel = c->skel;
	int r = use_map(skel->maps.instructions_a, entries);

	if (r == 0)
		r = use_map(skel->maps.instructions_b, entries);
	if (r == 0)
		r = use_map(skel->maps.instruction_accounts, 0);
	if (r < 0)
		return r;
	use_program(skel->progs.oncpu_instructions);
	return 0;
}

static int drain_account(struct collector *c, uint32_t set, struct account *sum)
{
	const struct bpf_map *map = c->skel->maps.instruction_accounts;
	int r = read_per_cpu(c, map, set, c->accounts);

	if (r < 0)
		return r;
	for (unsigned cpu = 0; cpu < c->cpus_possible; cpu++)
		account_add(sum, &c->accounts[cpu]);
	memset(c->accounts, 0, c->cpus_possible * sizeof(*c->accounts));
	return write_per_cpu(c, map, set, c->accounts);
}

struct instructions_drain {
	struct collector *c;
	struct slice *s;
	uint64_t samples;
};

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct instructions_drain *d = ctx;
	struct slice *s = d->s;
	struct slice_on_cpu *e;
	uint64_t id;
	int r = ARRAY_GROW(s->instructions, s->cap_instructions, s->n_instructions + 1);

	if (r < 0)
		return r;
	e = &s->instructions[s->n_instructions++];
	memcpy(&e->key, key, sizeof(e->key));
	memcpy(&e->value, value, sizeof(e->value));
	/* 0: the source's accounts are about its own samples. */
	id = slice_stack_id(d->c, s, SOURCE_ON_CPU, e->key.stack, 0);
	if (id != e->key.stack)
		s->instructions_sum.lost[LOSS_STACK_MISSING] += e->value.samples;
	e->key.stack = id;
	d->samples += e->value.samples;
	return 0;
}

int instructions_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct sysprofd_bpf *skel = c->skel;
	struct instructions_drain d = { .c = c, .s = s };
	int r, first = drain_account(c, set, &s->instructions_sum);

	r = drain_map(c, set ? skel->maps.instructions_b : skel->maps.instructions_a, drain_one,
		      &d);
	account_balance(&s->instructions_sum, d.samples);
	c->instruction_misses.program = skel->progs.oncpu_instructions;
	account_misses(&s->instructions_sum, &c->instruction_misses);
	return first < 0 ? first : r;
}
