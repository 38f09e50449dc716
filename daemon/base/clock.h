/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Time. Every value is nanoseconds in a uint64_t and says its clock in its name: mono_ (CLOCK_MONOTONIC,
 * durations, the clock of bpf_ktime_get_ns), wall_ (CLOCK_REALTIME since the epoch, where things lie in
 * history).
 */
#pragma once

#include <time.h>

#include "base/util.h"

uint64_t mono_now_ns(void);
uint64_t wall_now_ns(void);
uint64_t cpu_now_ns(void); /* CPU time of this process so far */

#define RFC3339_MAX 36
/* "2026-11-30T01:02:03.004Z" in UTC; milliseconds only when they are not 0. */
const char *format_rfc3339(uint64_t wall_ns, char buf[static RFC3339_MAX]);
