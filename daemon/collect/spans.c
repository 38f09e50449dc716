// SPDX-License-Identifier: GPL-2.0-or-later
/* Random spans of time. */
#include "collect/spans.h"

#define CYCLE_NS (2 * NSEC_PER_SEC) /* a span and a gap, on average */
#define SPAN_MIN_NS \
	(50 * NSEC_PER_MSEC) /* on average: shorter ones cost more to begin than they tell */
#define ALWAYS 0.999

static double mean_span(const struct spans *s)
{
	return MAX(s->share * (double)CYCLE_NS, (double)SPAN_MIN_NS);
}

static uint64_t draw_gap(const struct spans *s, double draw)
{
	return (uint64_t)(2 * draw * mean_span(s) * (1 - s->share) / s->share);
}

void spans_init(struct spans *s, double share, uint64_t now, double draw)
{
	*s = (struct spans){ .share = share, .taken_until = now };
	s->now.begin = share >= ALWAYS ? now : now + draw_gap(s, draw / 8);
	if (share >= ALWAYS)
		s->share = 1;
}

bool spans_due(const struct spans *s, uint64_t now)
{
	return !s->open && now >= s->now.begin;
}

struct span spans_begin(struct spans *s, uint64_t now, double draw)
{
	s->open = true;
	s->now.begin = now;
	s->now.end = s->share == 1 ? UINT64_MAX : now + (uint64_t)((0.5 + draw) * mean_span(s));
	return s->now;
}

void spans_put_off(struct spans *s, uint64_t now, double draw)
{
	s->now.begin = now + MAX(draw_gap(s, draw), SPAN_MIN_NS);
}

bool spans_ended(const struct spans *s, uint64_t now)
{
	return s->open && now >= s->now.end;
}

static uint64_t overlap(const struct span *a, uint64_t from, uint64_t until)
{
	uint64_t begin = MAX(a->begin, from), end = MIN(a->end, until);

	return end > begin ? end - begin : 0;
}

void spans_rest(struct spans *s, double draw)
{
	s->open = false;
	s->ended_ns += overlap(&s->now, s->taken_until, UINT64_MAX);
	s->now.begin = s->now.end + draw_gap(s, draw);
}

uint64_t spans_next_ns(const struct spans *s)
{
	return s->open ? s->now.end : s->now.begin;
}

uint64_t spans_take(struct spans *s, uint64_t from, uint64_t until)
{
	uint64_t ns = s->ended_ns;

	if (s->open)
		ns += overlap(&s->now, MAX(from, s->taken_until), until);
	s->ended_ns = 0;
	s->taken_until = until;
	return MIN(ns, until - from);
}
