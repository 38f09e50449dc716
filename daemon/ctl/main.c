// SPDX-License-Identifier: GPL-2.0-or-later
/* sysprofctl: reads the command line, asks the daemon, prints its answer. */
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "ctl/command.h"
#include "ctl/text.h"

static int (*const commands[COMMAND_N])(const struct options *o, struct client *c) = {
	[COMMAND_STATUS] = command_status,     [COMMAND_TOP] = command_top,
	[COMMAND_FLAME] = command_flame,       [COMMAND_SERIES] = command_series,
	[COMMAND_STACKS] = command_stacks,     [COMMAND_TYPES] = command_types,
	[COMMAND_LABELS] = command_labels,     [COMMAND_WATCH] = command_watch,
	[COMMAND_RECORD] = command_record,     [COMMAND_LOCKS] = command_locks,
	[COMMAND_OFFCPU] = command_off_cpu,    [COMMAND_SYSCALLS] = command_syscalls,
	[COMMAND_COUNTERS] = command_counters,
};

static int run(const struct options *o)
{
	_cleanup_(client_free_p) struct client *client = NULL;

	if (o->help)
		return command_help(o->command);
	if (o->version) {
		puts("sysprofctl " SYSPROFD_VERSION);
		return fflush(stdout) ? CTL_FAILED : CTL_ANSWERED;
	}
	if (client_new(o->socket, &client) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	return commands[o->command](o, client);
}

int main(int argc, char **argv)
{
	_cleanup_(options_done) struct options options = {};
	_cleanup_(strbuf_done) struct strbuf error = {};

	if (stdio_occupy() < 0)
		return CTL_FAILED;
	if (options_parse(argc, argv, wall_now_ns(), &options, &error) < 0) {
		complain("%s", error.data ?: "out of memory");
		return CTL_USAGE;
	}
	return run(&options);
}
