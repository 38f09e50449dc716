// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into a daemon under test: its wall clock is off by the seconds that the file $CLOCK_OFFSET_FILE holds, so
 * that the clock can be set back and forth without harm to the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long offset_seconds(void)
{
	const char *path = getenv("CLOCK_OFFSET_FILE");
	FILE *f = path ? fopen(path, "re") : NULL;
	long offset = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%ld", &offset) != 1)
		offset = 0;
	fclose(f);
	return offset;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	long r = syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && id == CLOCK_REALTIME)
		ts->tv_sec += offset_seconds();
	return (int)r;
}
