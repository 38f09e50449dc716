/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rounds: each has one span of random length at a random place, so that none is without. A span that would reach beyond
 * the round's end goes on at its begin: every moment of a round is as likely to be met as any other, however rounds lie
 * to the clock on the wall. Times are monotonic nanoseconds, draws are uniform in [0, 1). See rounds.c.
 */
#pragma once

#include "collect/spans.h"

struct rounds {
	struct span pieces[2]; /* of the round's span, as planned */
	unsigned n, next;
	bool open; /* pieces[next] is, since its begin */
	/* Of the time since the last rounds_take(), what pieces covered that have ended. */
	uint64_t ended_ns;
	uint64_t taken_until;
};

void rounds_init(struct rounds *r, uint64_t now);
/* A round begins, which should last `length`: what was planned of the one before is forgotten. None may be open. */
void rounds_begin(struct rounds *r, uint64_t now, uint64_t length, double share, double where,
		  double how_long);
bool rounds_due(const struct rounds *r, uint64_t now); /* a piece is to be opened */
bool rounds_ended(const struct rounds *r, uint64_t now); /* the open one is to be closed */
void rounds_open(struct rounds *r, uint64_t now);
void rounds_close(struct rounds *r, uint64_t now);
void rounds_skip(struct rounds *r); /* the one that is due cannot be opened */
/* When something is to be done; UINT64_MAX: not before the next round. */
uint64_t rounds_next_ns(const struct rounds *r);
/* Time in [from, until) that was covered. Stretches are asked for once each, in order. */
uint64_t rounds_take(struct rounds *r, uint64_t from, uint64_t until);
