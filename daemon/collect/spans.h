/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Spans: stretches of time, drawn at random, in which more is measured than always. Gaps and spans follow one another,
 * each of random length, so that nothing periodic keeps clear of them; together spans make up `share` of the time.
 * Times are monotonic nanoseconds, draws are uniform in [0, 1). See spans.c.
 */
#pragma once

#include "base/util.h"

struct span {
	uint64_t begin, end;
};

struct spans {
	double share; /* of the time; 1: one span without end */
	bool open;
	struct span now; /* the open one, or of which only the begin is planned */
	/* Of the time since the last spans_take(), what spans covered that have ended. */
	uint64_t ended_ns;
	uint64_t taken_until;
};

/* The first span comes soon. */
void spans_init(struct spans *s, double share, uint64_t now, double draw);
bool spans_due(const struct spans *s, uint64_t now); /* the next one is to begin */
struct span spans_begin(struct spans *s, uint64_t now, double draw);
/* It cannot begin now. */
void spans_put_off(struct spans *s, uint64_t now, double draw);
bool spans_ended(const struct spans *s, uint64_t now); /* the open one has */
/* After one has ended: draws the gap. */
void spans_rest(struct spans *s, double draw);
/* When something is to be done: the next begin or end. */
uint64_t spans_next_ns(const struct spans *s);
/* Time in [from, until) that spans covered. Stretches are asked for once each, in order. */
uint64_t spans_take(struct spans *s, uint64_t from, uint64_t until);
