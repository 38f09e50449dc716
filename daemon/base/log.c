// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define LINE_MAX_BYTES 1024

static _Atomic int max_level = LOG_LEVEL_INFO; /* the one mutable global: a log level */

void log_set_level(enum log_level level)
{
	atomic_store(&max_level, (int)level);
}

static void write_line(enum log_level level, const char *text, uint64_t suppressed)
{
	char line[LINE_MAX_BYTES];
	int n = 0;

	if (!isatty(STDERR_FILENO))
		n = snprintf(line, sizeof(line), "<%d>", level);
	n += snprintf(line + n, sizeof(line) - (size_t)n, "%s", text);
	n = MIN(n, (int)sizeof(line) - 64);
	if (suppressed)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " (%llu more not shown)",
			      (unsigned long long)suppressed);
	/* One line, whatever the text holds: names come from hostile processes. */
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	/* One write per line keeps the lines of several threads apart. A dead stderr is nobody's fault. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static bool enabled(enum log_level level)
{
	return (int)level <= atomic_load(&max_level);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	va_list ap;

	if (!enabled(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	write_line(level, text, 0);
}

void log_write_limited(struct log_ratelimit *rl, enum log_level level, const char *fmt, ...)
{
	uint64_t now = mono_now_ns();
	char text[LINE_MAX_BYTES];
	va_list ap;

	if (!enabled(level))
		return;
	if (rl->last_mono_ns && now - rl->last_mono_ns < rl->interval_ns) {
		rl->suppressed++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	write_line(level, text, rl->suppressed);
	rl->last_mono_ns = now;
	rl->suppressed = 0;
}
