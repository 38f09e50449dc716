/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * T, the length from which on every wait's stack is kept: as short as the budget allows. A shorter T keeps more waits, and
 * what is kept of shorter ones tells more. What the waits of a window cost decides about T in the next one.
 */
#pragma once

#include "collect/collect.h"

struct threshold {
	uint64_t ns; /* T */
	double kept_ns; /* what a kept wait costs: a mean of some windows; 0: not known */
};

void threshold_begin(struct threshold *t, const struct collect_options *o);
/* T doubles while kept waits cost too much, and goes back when they do not. */
void threshold_adapt(struct threshold *t, const struct collect_options *o, const struct slice *s);
