// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who ends waits: a part of the source off-cpu, seen in spans of time. Rows are scaled where the bucket's whole coverage
 * is known: see window/calls.c.
 */
#include <stdio.h>

#include "collect/internal.h"

bool wakers_wanted(const struct collector *c)
{
	return c->o.off_cpu_wakers > 0;
}

int wakers_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, (c->o.walks_per_second ?: WALKS_PER_SECOND) / 8.0, 2048,
					 16384);
	struct sysprofd_bpf *skel = c->skel;
	int r = use_map(skel->maps.wakes_a, entries);

	if (r == 0)
		r = use_map(skel->maps.wakes_b, entries);
	if (r < 0)
		return r;
#if defined(__x86_64__)
	r = use_map(skel->maps.waker_numbers, 0);
	if (r < 0)
		return r;
#endif
	skel->rodata->wakers_enabled = true;
	if (c->o.places)
		memcpy((void *)skel->rodata->own_work, c->o.places->own, sizeof(c->o.places->own));
	use_program(skel->progs.offcpu_waking);
	return 0;
}

int wakers_attach(struct collector *c)
{
	struct source_state *state = &c->sources[SOURCE_OFF_CPU].state;
	struct span_program *p;

	if (wakers_wanted(c) && !c->skel->rodata->wakers_enabled)
		snprintf(state->text, sizeof(state->text),
			 "running (who ends waits is not seen: this kernel refuses the program)");
	if (!c->skel->rodata->wakers_enabled)
		return 0;
	p = new0(struct span_program, 1);
	if (!p)
		return -ENOMEM;
	c->wakers = p;
	p->program = c->skel->progs.offcpu_waking;
	p->limits = &c->skel->bss->waker_span;
	return span_program_start(c, p, c->o.off_cpu_wakers);
}

void wakers_name(struct collector *c)
{
	char *hook = c->sources[SOURCE_OFF_CPU].state.hook;
	size_t n = strlen(hook), size = sizeof(c->sources[SOURCE_OFF_CPU].state.hook);

	if (c->wakers)
		snprintf(hook + n, size - n, ", sched_waking %g%%", c->wakers->spans.share * 100);
}

int wakers_poll(struct collector *c, uint64_t mono_ns)
{
	return c->wakers ? span_program_poll(c, c->wakers, mono_ns) : 0;
}

uint64_t wakers_wake_ns(const struct collector *c)
{
	return c->wakers ? spans_next_ns(&c->wakers->spans) : UINT64_MAX;
}

void wakers_free(struct collector *c)
{
	if (c->wakers)
		span_program_stop(c->wakers);
	free(c->wakers);
	c->wakers = NULL;
}

struct drain {
	struct collector *c;
	struct slice *s;
};

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct drain *d = ctx;
	struct slice *s = d->s;
	struct slice_wake w;
	int r;

	memcpy(&w.key, key, sizeof(w.key));
	memcpy(&w.value, value, sizeof(w.value));
	/* The row of the wait itself has booked its stack if it is missing. */
	w.key.stack = slice_stack_id(d->c, s, SOURCE_OFF_CPU, w.key.stack, 0);
	w.key.by_stack = slice_stack_id(d->c, s, SOURCE_OFF_CPU, w.key.by_stack, w.value.waits);
	r = ARRAY_GROW(s->wakes, s->cap_wakes, s->n_wakes + 1);
	if (r == 0)
		s->wakes[s->n_wakes++] = w;
	return r;
}

/* Waits whose waking lay in a span are counted when the thread resumes, which may be later. */
int wakers_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct drain d = { .c = c, .s = s };

	if (!c->wakers)
		return 0;
	s->wake_span_ns = spans_take(&c->wakers->spans, s->mono_start_ns, s->mono_end_ns);
	s->wake_span_share = c->wakers->spans.share;
	return drain_map(c, set ? c->skel->maps.wakes_b : c->skel->maps.wakes_a, drain_one, &d);
}
