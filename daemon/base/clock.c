// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "base/clock.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t mono_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t wall_now_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

uint64_t cpu_now_ns(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

const char *format_rfc3339(uint64_t wall_ns, char buf[static RFC3339_MAX])
{
	time_t t = (time_t)(wall_ns / NSEC_PER_SEC);
	unsigned ms = (unsigned)(wall_ns % NSEC_PER_SEC / NSEC_PER_MSEC);
	struct tm tm;
	size_t n;

	if (!gmtime_r(&t, &tm) || !(n = strftime(buf, RFC3339_MAX, "%Y-%m-%dT%H:%M:%S", &tm))) {
		snprintf(buf, RFC3339_MAX, "1970-01-01T00:00:00Z");
		return buf;
	}
	if (ms)
		snprintf(buf + n, RFC3339_MAX - n, ".%03uZ", ms);
	else
		snprintf(buf + n, RFC3339_MAX - n, "Z");
	return buf;
}
