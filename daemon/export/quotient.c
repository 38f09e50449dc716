// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "export/quotient.h"

#define ERROR_MAX 0.2

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void pair_add(struct event_pair *to, const struct event_pair *p)
{
	to->events = add_saturating(to->events, p->events);
	to->event_samples = add_saturating(to->event_samples, p->event_samples);
	to->instructions = add_saturating(to->instructions, p->instructions);
	to->instruction_samples = add_saturating(to->instruction_samples, p->instruction_samples);
}

void pair_add_row(struct event_pair *to, const struct profile *p, size_t row)
{
	uint64_t value = p->columns.value[row], samples = p->columns.count[row];

	if (row_is_instructions(p, row))
		pair_add(to, &(struct event_pair){ .instructions = value,
						   .instruction_samples = samples });
	else
		pair_add(to, &(struct event_pair){ .events = value, .event_samples = samples });
}

static bool is_known(const struct event_pair *pair)
{
	return pair->events && pair->instructions && pair->event_samples &&
	       pair->instruction_samples &&
	       1.0 / (double)pair->event_samples + 1.0 / (double)pair->instruction_samples <=
		       ERROR_MAX * ERROR_MAX;
}

const char *quotient_text(const struct profile *p, const struct event_pair *pair,
			  char buf[static HUMAN_MAX])
{
	double events = (double)pair->events, instructions = (double)pair->instructions;

	if (!is_known(pair))
		return "-";
	snprintf(buf, HUMAN_MAX, "%.2f",
		 p->event == EVENT_CYCLES ? instructions / events : events / instructions * 1000);
	return buf;
}

const char *quotient_of_profile(const struct profile *p, char buf[static HUMAN_MAX])
{
	const struct event_pair all = {
		.events = p->total,
		.event_samples = p->samples,
		.instructions = p->instructions.total,
		.instruction_samples = p->instructions.samples,
	};

	return quotient_text(p, &all, buf);
}

const char *quotient_unit(const struct profile *p)
{
	switch (p->event) {
	case EVENT_CYCLES:
		return "instructions per cycle";
	case EVENT_CACHE_MISSES:
		return "cache misses per 1,000 instructions";
	default:
		return "branch misses per 1,000 instructions";
	}
}

const char *quotient_head(const struct profile *p)
{
	return p->event == EVENT_CYCLES ? "IPC" : "MISSES/1000 INSTR";
}
