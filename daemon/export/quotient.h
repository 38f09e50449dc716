/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a recording's event and the instructions beside it say together: of cycles instructions per cycle, of misses
 * those in a thousand instructions. Both are estimates from samples that know nothing of each other.
 */
#pragma once

#include "export/human.h"
#include "model/profile.h"

struct event_pair {
	uint64_t events, event_samples;
	uint64_t instructions, instruction_samples;
};
void pair_add(struct event_pair *to, const struct event_pair *p);
void pair_add_row(struct event_pair *to, const struct profile *p, size_t row);

/* "1.23"; "-" where its relative standard error, sqrt(1/n1 + 1/n2) of n1 and n2 samples, is above 20 %. */
const char *quotient_text(const struct profile *p, const struct event_pair *pair,
			  char buf[static HUMAN_MAX]);
const char *quotient_of_profile(const struct profile *p, char buf[static HUMAN_MAX]);
const char *quotient_unit(const struct profile *p); /* "instructions per cycle" */
const char *quotient_head(const struct profile *p); /* "IPC" */
