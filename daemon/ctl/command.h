/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The commands. Each asks, prints, and returns what sysprofctl exits with (enum ctl_exit). */
#pragma once

#include "ctl/client.h"
#include "ctl/options.h"

int command_status(const struct options *o, struct client *c);
int command_stacks(const struct options *o, struct client *c);
int command_top(const struct options *o, struct client *c);
int command_off_cpu(const struct options *o, struct client *c);
int command_syscalls(const struct options *o, struct client *c);
int command_flame(const struct options *o, struct client *c);
int command_locks(const struct options *o, struct client *c);
int command_series(const struct options *o, struct client *c);
int command_types(const struct options *o, struct client *c);
int command_labels(const struct options *o, struct client *c);
int command_watch(const struct options *o, struct client *c);
int command_counters(const struct options *o, struct client *c);
int command_record(const struct options *o, struct client *c);

/* The help of a command, or of the program (COMMAND_NONE), on standard output. */
int command_help(enum command_id id);

/* Says why a call failed, and returns `exit`. */
int command_failed(const struct client *c, int exit);
