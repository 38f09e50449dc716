// SPDX-License-Identifier: GPL-2.0-or-later
/* Rounds with a random span each. */
#include "collect/rounds.h"

void rounds_init(struct rounds *r, uint64_t now)
{
	*r = (struct rounds){ .taken_until = now };
}

void rounds_begin(struct rounds *r, uint64_t now, uint64_t length, double share, double where,
		  double how_long)
{
	uint64_t at = (uint64_t)(where * (double)length);
	uint64_t ns = (uint64_t)((0.5 + how_long) * share * (double)length);
	uint64_t rest = length - at;

	r->next = 0;
	r->n = 1;
	r->pieces[0] = (struct span){ now + at, now + at + ns };
	if (ns <= rest)
		return;
	r->n = 2;
	r->pieces[0] = (struct span){ now, now + ns - rest };
	r->pieces[1] = (struct span){ now + at, now + length };
}

bool rounds_due(const struct rounds *r, uint64_t now)
{
	return !r->open && r->next < r->n && now >= r->pieces[r->next].begin;
}

bool rounds_ended(const struct rounds *r, uint64_t now)
{
	return r->open && now >= r->pieces[r->next].end;
}

void rounds_open(struct rounds *r, uint64_t now)
{
	r->open = true;
	r->pieces[r->next].begin = now;
}

static uint64_t overlap(uint64_t begin, uint64_t end, uint64_t from, uint64_t until)
{
	begin = MAX(begin, from);
	end = MIN(end, until);
	return end > begin ? end - begin : 0;
}

void rounds_skip(struct rounds *r)
{
	r->next++;
}

void rounds_close(struct rounds *r, uint64_t now)
{
	r->open = false;
	r->ended_ns += overlap(r->pieces[r->next].begin, now, r->taken_until, UINT64_MAX);
	r->next++;
}

uint64_t rounds_next_ns(const struct rounds *r)
{
	if (r->next >= r->n)
		return UINT64_MAX;
	return r->open ? r->pieces[r->next].end : r->pieces[r->next].begin;
}

uint64_t rounds_take(struct rounds *r, uint64_t from, uint64_t until)
{
	uint64_t ns = r->ended_ns;

	if (r->open)
		ns += overlap(r->pieces[r->next].begin, until, MAX(from, r->taken_until), until);
	r->ended_ns = 0;
	r->taken_until = until;
	return MIN(ns, until - from);
}
