/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Moments and durations as people type them, in the zone of the process (TZ). Everything here is a function
 * of its arguments and the zone; "now" is an argument.
 */
#pragma once

#include "base/util.h"

/*
 *   now                      this moment
 *   -30s -5min -1h30min      so long before now: ms s min h d w; a day here is 24 hours
 *   today  yesterday         the beginning of that day, by the calendar
 *   today 14:00              that time of that day
 *   23:50  23:50:10          the latest such moment that is not in the future
 *   @1700000000  @1.5        seconds since the epoch
 *   2026-11-30               ISO 8601: the beginning of that day,
 *   2026-11-30T14:00[:05[.5]][Z|+01:00]   a moment; also with a space for the T, and without - and :
 *
 * Where clocks are put forward, a time that the day lacks means the first moment after it; where they are put
 * back, a time that occurs twice means the first of both (but see 23:50). -EINVAL: not of this form;
 * -ERANGE: no such date, or before 1970 or after 2262.
 */
int time_parse(const char *s, uint64_t now_wall_ns, uint64_t *ret_wall_ns) _warn_unused_;

/* "30s", "5min", "1h30min", "1.5h"; a number alone is seconds. At least 1 ns. */
int duration_parse(const char *s, uint64_t *ret_ns) _warn_unused_;
