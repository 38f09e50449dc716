/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Log lines for the journal: one line on stderr, with the priority prefix of sd-daemon(3) when stderr is
 * not a terminal. Only manager, serve, ctl and main log above debug; libraries return errors.
 */
#pragma once

#include "base/util.h"

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

void log_set_level(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/*
 * For what can repeat: at most one line per interval; the number of suppressed ones is added to the next.
 */
struct log_ratelimit {
	uint64_t interval_ns;
	uint64_t last_mono_ns;
	uint64_t suppressed;
};

void log_write_limited(struct log_ratelimit *rl, enum log_level level, const char *fmt, ...)
	_printf_(3, 4);
