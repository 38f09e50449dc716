/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The helper seen from the daemon: started, restarted with growing pauses, killed. A helper that does not die
 * when it is killed (it sleeps in the kernel on a file that never answers) is abandoned, not waited for; there
 * are never more than a few of those. Not thread-safe.
 */
#pragma once

#include <sys/types.h>

#include "helper/channel.h"

#define HELPERS_ABANDONED_MAX 4

struct helper_process {
	struct channel channel; /* fd -1: none runs */
	pid_t pid; /* 0: none runs */
	pid_t abandoned[HELPERS_ABANDONED_MAX];
	size_t n_abandoned;
	unsigned failures; /* since the last answer */
	uint64_t restart_mono_ns;
	const char *name, *option; /* of the command: sysprofd-symbol, --symbol-helper */
	uint64_t memory; /* RLIMIT_AS */
	uint64_t marked_cpu_ns;
};

void helper_process_init(struct helper_process *h, const char *name, const char *option,
			 uint64_t memory);
void helper_process_done(struct helper_process *h);

/*
 * Makes sure that one runs: waits for the pause after a failure within the deadline, else -EAGAIN. Also
 * -EAGAIN while too many are abandoned.
 */
int helper_process_ensure(struct helper_process *h, uint64_t deadline_mono_ns);
/* It died, hung or answered nonsense: kills it; the next start waits. */
void helper_process_failed(struct helper_process *h);
/* It answered: pauses begin anew. */
void helper_process_answered(struct helper_process *h);
/* Remembers its CPU time. */
void helper_process_mark(struct helper_process *h);
/* Whether it has used less CPU time than that since the mark, and wants more: it is neither stopped nor asleep. */
bool helper_process_starves(const struct helper_process *h, uint64_t cpu_ns);
