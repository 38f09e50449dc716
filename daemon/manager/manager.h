/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one object that wires the stages together: configuration, recorder, symbolizer, archive, server, and the
 * main event loop with signals, watchdog and the status line. Runs on the main thread.
 */
#pragma once

#include "base/util.h"

struct manager_options {
	const char *config_path;
	bool config_required; /* it was named on the command line */
	const char *state_directory; /* overrides the configuration, or NULL */
	const char *socket; /* likewise */
};

struct manager;

/* Errors are logged: -errno only says that there is nothing to run. */
int manager_new(const struct manager_options *o, struct manager **ret);
/* Until SIGTERM or SIGINT. */
int manager_run(struct manager *m);
/* Flushes the open bucket. */
struct manager *manager_free(struct manager *m);
DEFINE_CLEANUP(struct manager *, manager_free)

/* --check-config: prints problems, returns their number or -errno. */
int manager_check_config(const struct manager_options *o);
