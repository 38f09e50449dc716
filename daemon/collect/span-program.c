// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs that are attached for spans of time only, since they cost where they are attached. Spans are drawn at random
 * so that nothing periodic can hide between them. What a span covered is exact: the programs compare times with its
 * limits, which are set when they are attached already.
 */
#include "base/clock.h"
#include "collect/internal.h"

/* The programs see the new begin before the new end, and no span until then: the old end has passed. */
static void tell_program(struct span_program *p, const struct span *s)
{
	__atomic_store_n(&p->limits->begin, s->begin, __ATOMIC_RELEASE);
	__atomic_store_n(&p->limits->end, s->end, __ATOMIC_RELEASE);
}

int span_program_open(struct span_program *p, const struct span *s)
{
	if (!p->link)
		p->link = bpf_program__attach(p->program);
	if (!p->link)
		return negative_errno();
	tell_program(p, s);
	return 0;
}

/* The time that it takes to attach it is not the span's. */
static int begin_span(struct collector *c, struct span_program *p)
{
	static const struct span none;
	int r = span_program_open(p, &none);
	struct span s;

	if (r < 0) {
		spans_put_off(&p->spans, mono_now_ns(), collector_random(c));
		return r;
	}
	s = spans_begin(&p->spans, mono_now_ns(), collector_random(c));
	tell_program(p, &s);
	return 0;
}

int span_program_start(struct collector *c, struct span_program *p, double share)
{
	spans_init(&p->spans, share, mono_now_ns(), collector_random(c));
	return span_program_poll(c, p, mono_now_ns());
}

int span_program_poll(struct collector *c, struct span_program *p, uint64_t mono_ns)
{
	if (spans_ended(&p->spans, mono_ns)) {
		span_program_stop(p);
		spans_rest(&p->spans, collector_random(c));
	}
	return spans_due(&p->spans, mono_ns) ? begin_span(c, p) : 0;
}

void span_program_stop(struct span_program *p)
{
	bpf_link__destroy(p->link);
	p->link = NULL;
}
