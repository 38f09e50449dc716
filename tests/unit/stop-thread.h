/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A thread is stopped where it is and let go again; in between nothing keeps it from running, signals included. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* False when it has ended. */
static bool stop_thread(pid_t tid)
{
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 ||
	    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0)
		return false;
	for (;;) {
		if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
			return false;
		if (status >> 16 == PTRACE_EVENT_STOP)
			return true;
		/* A signal came before the stop: it is the thread's. */
		ptrace(PTRACE_CONT, tid, NULL, (void *)(long)WSTOPSIG(status));
	}
}

static bool let_go(pid_t tid)
{
	return ptrace(PTRACE_DETACH, tid, NULL, NULL) == 0;
}
