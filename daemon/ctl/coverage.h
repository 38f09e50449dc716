/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an answer covers: the header above its rows, and the same in JSON. */
#pragma once

#include "ctl/json.h"
#include "ctl/options.h"
#include "ctl/text.h"

/*
 * The command as it was understood, the range that was used, what was recorded in it, gaps and losses. A
 * missing coverage (a daemon from another time) is said, not guessed.
 */
void coverage_text(const struct options *o, const struct text *t, const Sysprofd__V1__Coverage *c,
		   struct strbuf *out);
/* Why there are no rows: "not recorded", or "idle". */
void coverage_empty_text(const struct text *t, const Sysprofd__V1__Coverage *c, struct strbuf *out);

/* "tick-skipped 12, count-full 3": the losses that are folded, or those that are not. Returns their sum. */
uint64_t losses_text(Sysprofd__V1__Loss *const *losses, size_t n, bool folded, struct strbuf *out);

/* {"reason": count, ...} under a key. */
void losses_json(struct json *j, const char *key, Sysprofd__V1__Loss *const *losses, size_t n,
		 bool folded);

/* "type" to "lost", in the order of the contract, into the object at hand. */
void coverage_json(struct json *j, const Sysprofd__V1__Coverage *c);

/* "2026-11-30 14:00:00" in the client's zone; the time alone where it lies on the day of `beside`. */
#define LOCAL_TIME_MAX 32
const char *local_time(uint64_t wall_ns, uint64_t beside_wall_ns, char buf[static LOCAL_TIME_MAX]);
/* "CET". */
const char *local_zone(uint64_t wall_ns, char buf[static LOCAL_TIME_MAX]);
