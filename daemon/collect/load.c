// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * CPU time from /proc/stat, and pressure stall totals from /proc/pressure (Documentation/accounting/psi.rst). A
 * kernel may be built without them, or have them switched off (psi=0): then their files are missing, or refuse to
 * be read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/io.h"
#include "collect/load.h"

#define STAT_LIMIT (4U << 20) /* 8,192 CPUs, and the interrupt counts behind them */
#define PRESSURE_LIMIT 4096

static uint64_t read_busy_us(void)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
	long hz = sysconf(_SC_CLK_TCK);

	if (read_file_at(AT_FDCWD, "/proc/stat", STAT_LIMIT, &b) < 0 ||
	    sscanf(b.data, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system,
		   &idle, &iowait, &irq, &softirq, &steal) != 8 ||
	    hz <= 0)
		return 0;
	return (user + nice + system + irq + softirq) * 1000000 / (unsigned long)hz;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" */
static bool line_total(const char *text, const char *kind, uint64_t *ret_us)
{
	const char *line = strstr(text, kind), *total = line ? strstr(line, "total=") : NULL;
	unsigned long long v;

	if (!total || sscanf(total, "total=%llu", &v) != 1)
		return false;
	*ret_us = v;
	return true;
}

bool pressure_parse(const char *text, uint64_t *ret_some_us, uint64_t *ret_full_us)
{
	*ret_full_us = 0;
	/* The CPU's file has had no "full" line before 5.13. */
	(void)line_total(text, "full ", ret_full_us);
	return line_total(text, "some ", ret_some_us);
}

static bool read_pressure(const char *path, uint64_t *ret_some_us, uint64_t *ret_full_us)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	return read_file_at(AT_FDCWD, path, PRESSURE_LIMIT, &b) >= 0 && b.data &&
	       pressure_parse(b.data, ret_some_us, ret_full_us);
}

void load_read(struct load *ret)
{
	uint64_t *p = ret->pressure_us, all_cpus;

	*ret = (struct load){ .busy_us = read_busy_us() };
	ret->pressure_known =
		read_pressure("/proc/pressure/cpu", &p[PRESSURE_CPU_SOME], &all_cpus) &&
		read_pressure("/proc/pressure/io", &p[PRESSURE_IO_SOME], &p[PRESSURE_IO_FULL]) &&
		read_pressure("/proc/pressure/memory", &p[PRESSURE_MEMORY_SOME],
			      &p[PRESSURE_MEMORY_FULL]);
}

void load_difference(const struct load *before, const struct load *now, struct bucket_meta *m)
{
	m->busy_us = now->busy_us > before->busy_us ? now->busy_us - before->busy_us : 0;
	m->pressure_known = before->pressure_known && now->pressure_known;
	for (size_t i = 0; m->pressure_known && i < PRESSURE_N; i++)
		m->pressure_us[i] = now->pressure_us[i] > before->pressure_us[i]
					    ? now->pressure_us[i] - before->pressure_us[i]
					    : 0;
}
