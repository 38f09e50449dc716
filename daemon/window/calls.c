// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How long calls took and how much they moved: measured in spans of the time, stored as estimates of all of it.
 *
 * A bucket's rows are scaled once, when it closes, by its time over that of its spans, both of which are exact: single
 * windows may hold no span, or the end of one. A call that ends in a bucket without any weighs what spans weigh on
 * average.
 *
 * Where calls are counted in spans only, counts are scaled in the same way; what is lost and seen is not: it tells of the
 * calls that were counted.
 */
#include "../bpf/sysprofd.h"
#include "window/internal.h"

/* A bucket that spans have hardly touched gives few calls, and they do not speak for all of it. */
#define MAX_OVERWEIGHT 4

static int add_detail(struct window *w, struct slice *s, const struct slice_detail *d)
{
	struct columns *c = &w->bucket->columns[PROFILE_SYSCALLS];
	bool timed = row_aspect(PROFILE_SYSCALLS, d->key.call) == CALL_LATENCY, folded;
	uint32_t basis = CALL_KEY(CALL_BASIS, SYSCALL_KEY_ABI(d->key.call),
				  SYSCALL_KEY_NR(d->key.call), 0);
	int64_t series = resolve_series(w, d->key.tgid, 0, d->key.start, s->mono_end_ns, &folded);
	int r;

	if (series < 0)
		return (int)series;
	r = columns_add(c, (uint32_t)series, 0, d->key.call, 0, d->value.calls, d->value.sum,
			d->value.max);
	if (r == 0)
		r = columns_add(c, (uint32_t)series, 0, basis, 0, timed ? d->value.measured : 0,
				timed ? 0 : d->value.measured, 0);
	return r;
}

/* Weighted like the counts beside them; the accounts know nothing of them but what was lost of their stacks. */
void callers_add(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_callers; i++) {
		const struct slice_caller *c = &a->s->callers[i];

		window_add_row(a, SOURCE_SYSCALLS,
			       &(struct row){
				       .stack = c->key.stack,
				       .tgid = c->key.tgid,
				       .start = c->key.start,
				       .key = CALL_STACK_KEY(c->key.call),
				       .count = c->calls,
			       });
	}
}

int calls_add(struct window *w, struct slice *s)
{
	int first = 0;

	w->spans.covered_ns += s->mono_end_ns - s->mono_start_ns;
	w->spans.span_ns += s->span_ns;
	w->spans.sampled |= s->calls_sampled;
	w->spans.counted_ns += s->counted_ns;
	if (s->span_share > 0)
		w->spans.share = s->span_share;
	for (size_t i = 0; i < s->n_details; i++) {
		int r = add_detail(w, s, &s->details[i]);

		if (r == 0)
			continue;
		s->source[SOURCE_SYSCALLS].sum.lost[LOSS_CALL_UNTIMED] += s->details[i].value.calls;
		if (first == 0)
			first = r;
	}
	return first;
}

double spans_weight(const struct call_spans *s)
{
	double average = s->share > 0 ? 1 / s->share : 1;

	if (s->span_ns == 0)
		return average;
	return MIN((double)s->covered_ns / (double)s->span_ns, MAX_OVERWEIGHT * average);
}

static void scale(uint64_t *v, double by)
{
	*v = (uint64_t)((double)*v * by + 0.5);
}

void calls_scale(struct bucket *b, const struct call_spans *spans)
{
	struct columns *c = &b->columns[PROFILE_SYSCALLS];
	struct accounting *a = &b->meta.source[PROFILE_SYSCALLS];
	double by = spans_weight(spans), counts = 1;

	if (spans->sampled) {
		a->sampled = true;
		/* Less than a microsecond would be read as none. */
		a->counted_us = (spans->counted_ns + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
		if (spans->counted_ns)
			counts = (double)spans->covered_ns / (double)spans->counted_ns;
	}
	for (size_t i = 0; i < c->n; i++) {
		unsigned aspect = row_aspect(PROFILE_SYSCALLS, c->key[i]);

		if (aspect == CALL_COUNT || aspect == CALL_STACKS)
			scale(&c->count[i], counts);
		if (aspect != CALL_LATENCY && aspect != CALL_BYTES)
			continue;
		scale(&c->count[i], by);
		scale(&c->value[i], by);
	}
}
