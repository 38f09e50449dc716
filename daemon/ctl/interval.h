/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counts of calls that may be estimates: what says so, in text and in JSON. */
#pragma once

#include "ctl/json.h"
#include "export/human.h"
#include "export/wire.h"

/*
 * Into the object at hand: "exact": true, or false with "low" and "high", the ends of the interval that holds the true
 * number in 19 cases of 20; "high": null where nothing tells how large it may be.
 */
void interval_json(struct json *j, const Sysprofd__V1__CallInterval *within);
/* The ends alone. */
void interval_ends_json(struct json *j, const char *low, const char *high,
			const Sysprofd__V1__CallInterval *within);
/* How far the farther end is from n: "±3.1 %"; "?" where that is not known, "" of what is exact. */
const char *interval_text(uint64_t n, const Sysprofd__V1__CallInterval *within, bool utf8,
			  char buf[static HUMAN_MAX]);
/* "~1,234" of an estimate. */
const char *estimate_text(uint64_t n, const Sysprofd__V1__CallInterval *within,
			  char buf[static HUMAN_MAX]);
