// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Time without ticks. Some hosts deliver no samples from an idle CPU, and no host does while a CPU is paused
 * from outside. The kernel's own account of idle time tells the two apart, so that a host that did nothing is
 * not taken for one that was not watched.
 */
#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "collect/internal.h"

#define STAT_LIMIT (4U << 20) /* 8,192 CPUs, and the interrupt counts behind them */

/* "cpu7 user nice system idle iowait ...", in ticks of USER_HZ. */
static void parse_cpu(const char *line, uint64_t tick_ns, uint64_t *idle_ns, unsigned n)
{
	unsigned long long idle, iowait;
	unsigned cpu;

	if (line[3] == ' ') /* the sum over all CPUs, which %u would read as CPU 1 */
		return;
	if (sscanf(line, "cpu%u %*u %*u %*u %llu %llu", &cpu, &idle, &iowait) == 3 && cpu < n)
		idle_ns[cpu] = (idle + iowait) * tick_ns;
}

int idle_times_read(const char *stat_path, uint64_t *idle_ns, unsigned n)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint64_t tick_ns = NSEC_PER_SEC / MAX(sysconf(_SC_CLK_TCK), 1);
	char *line, *next;
	int r = read_file_at(AT_FDCWD, stat_path, STAT_LIMIT, &b);

	if (r < 0)
		return r;
	memset(idle_ns, 0, n * sizeof(*idle_ns));
	for (line = b.data; line && str_skip_prefix(line, "cpu"); line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		parse_cpu(line, tick_ns, idle_ns, n);
	}
	return 0;
}

void account_explain_gaps(struct account *a, uint64_t idle_ns)
{
	uint64_t unseen = idle_ns > a->idle_ns ? idle_ns - a->idle_ns : 0;
	uint64_t ticks = a->lost[LOSS_TICK_SKIPPED], ns = MIN(unseen, a->lost_ns), moved;

	if (!ticks || !ns)
		return;
	moved = (double)ticks * ns / a->lost_ns + 0.5;
	moved = MIN(moved, ticks);
	a->lost[LOSS_TICK_SKIPPED] -= moved;
	a->lost_ns -= ns;
	a->idle += moved;
	a->idle_ns += ns;
}
