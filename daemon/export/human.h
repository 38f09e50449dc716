/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Numbers as people read them: the same in tables, titles and legends. */
#pragma once

#include "model/profile.h"

#define HUMAN_MAX 48

/* "0", "812 ns", "4.56 us", "12.3 ms", "1.23 s", "4 min 10 s", "3 h 20 min", "2 d 4 h". */
const char *human_duration(uint64_t ns, char buf[static HUMAN_MAX]);
/* "1,234,567". */
const char *human_count(uint64_t n, char buf[static HUMAN_MAX]);
/* "12.3 MiB". */
const char *human_bytes(uint64_t n, char buf[static HUMAN_MAX]);
/* part of whole as "12.3 %"; "-" of nothing. */
const char *human_share(double part, double whole, char buf[static HUMAN_MAX]);
/* A value of the profile, and of the type: a duration, or a count of calls or events. */
const char *human_weight(const struct profile *p, uint64_t value, char buf[static HUMAN_MAX]);
const char *human_value(enum profile_type type, uint64_t value, char buf[static HUMAN_MAX]);
