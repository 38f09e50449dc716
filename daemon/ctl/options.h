/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command line, parsed: one table of commands, one of options. Options may stand anywhere, before or
 * after the command; "--name value", "--name=value", "-n 5" and "-n5" are the same. A word of the form
 * "-5min" (a minus and a digit) is never an option. "--" ends the options.
 */
#pragma once

#include "base/strbuf.h"
#include "export/export.h"
#include "model/profile.h"
#include "sysprofd/v1/profile.pb-c.h"

#define DEFAULT_SOCKET "/run/sysprofd/api.sock"
#define DEFAULT_ROWS 20
#define DEFAULT_RANGE_NS (300 * NSEC_PER_SEC)

/* What sysprofctl exits with. */
enum ctl_exit {
	CTL_ANSWERED = 0, /* an empty range is an answer */
	CTL_FAILED = 1, /* the daemon or the query failed, or the output could not be written */
	CTL_USAGE = 2,
	CTL_NO_DAEMON = 3,
	CTL_DENIED = 4,
};

enum command_id {
	COMMAND_NONE,
	COMMAND_STATUS,
	COMMAND_TOP,
	COMMAND_OFFCPU,
	COMMAND_SYSCALLS,
	COMMAND_FLAME,
	COMMAND_LOCKS,
	COMMAND_SERIES,
	COMMAND_STACKS,
	COMMAND_TYPES,
	COMMAND_LABELS,
	COMMAND_WATCH,
	COMMAND_RECORD,
	COMMAND_COUNTERS,
	COMMAND_N
};
const char *command_name(enum command_id id);

struct ctl_filter {
	char *key, *glob; /* owned */
	bool negate;
};

struct options {
	enum command_id command;
	bool help, version;
	const char *socket;

	/* selection */
	enum profile_type type;
	bool type_given;
	bool counters; /* --type counters, which is a command of its own */
	const char *since, *until; /* as given or by default, for the header */
	uint64_t since_wall_ns, until_wall_ns;
	bool until_now; /* the daemon's now, which is later than ours */
	struct ctl_filter *filters;
	size_t n_filters, cap_filters;

	Sysprofd__V1__Dimension by; /* UNSPECIFIED: not given (series: one for all) */
	Sysprofd__V1__SyscallsBy calls_by;
	bool by_total; /* --sort total */
	uint32_t rows;
	bool rows_given;
	uint64_t step_ns; /* 0: the daemon's choice */
	const char *step; /* as given */
	bool json;
	enum export_format format;
	bool format_given;
	bool table; /* record: a table by function, in the place of a format */
	bool short_names;
	bool wakers; /* --wakers: chains of who waits and who wakes */
	bool idle; /* --idle: idle waits are shown as well */
	bool kernel; /* --kernel: locks of the kernel */
	const char *output;
	const char *event; /* NULL: the daemon's choice */
	double rate_hz; /* 0: the daemon's choice */
	double seconds;
	const char *operand; /* labels: the KEY whose values are wanted */
};

/*
 * Borrows from argv. -EINVAL with one sentence in *error; -ENOMEM. `now` is what relative times mean.
 */
int options_parse(int argc, char **argv, uint64_t now_wall_ns, struct options *ret,
		  struct strbuf *error) _warn_unused_;
void options_done(struct options *o);

const char *dimension_word(Sysprofd__V1__Dimension by); /* "function", ...; "all" for UNSPECIFIED */
const char *calls_by_word(Sysprofd__V1__SyscallsBy by); /* "syscall", "process", "errno" */
/* The keys of --filter, as a list for people. */
void options_list_keys(struct strbuf *out);
/* The selection and what else shapes the answer, as options: "--type on-cpu --since -5min ...". */
void options_describe(const struct options *o, struct strbuf *out);
