/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who did not run, and why: one row for each thread, cause, and kind of wait. Times are exact per thread and cause, over
 * all of its rows; how they spread over kinds of waits is estimated from samples and scaled to them.
 */
#pragma once

#include "query/query.h"

/* Of the sampled waits of a row whose waker was seen. */
struct off_cpu_waker {
	char *comm, *thread; /* owned */
	char *function; /* owned: the innermost of its own, or what it was in the kernel; "" without a stack */
	uint32_t pid, tid;
	uint64_t start;
	uint64_t waits, time; /* weighted */
	double share; /* of the time of all of the row's wakers */
};

struct off_cpu_row {
	char *comm, *thread, *unit; /* owned */
	uint32_t pid, tid; /* 0 where processes are not told apart */
	uint64_t start; /* of the process: ns since boot */
	unsigned cause; /* enum off_cause */
	unsigned wait; /* enum wait_kind */
	bool idle;
	uint64_t waits, total;
	struct off_cpu_waker *wakers; /* heaviest first */
	size_t n_wakers;
};

struct off_cpu_answer {
	struct profile
		*coverage; /* metadata, total, samples, accounting; its columns are not kept */
	struct off_cpu_row *rows; /* heaviest first */
	size_t n_rows;
	uint64_t omitted;
	/* Of the whole selection. */
	uint64_t blocked, run_queue, preempted; /* without what is idle */
	uint64_t idle;
	uint64_t idle_threads; /* threads that have idle rows */
};

struct off_cpu_question {
	uint32_t limit; /* rows; 0: all */
	uint32_t wakers; /* for each row at most */
	bool fold_idle; /* idle rows are counted and left out */
};
int query_off_cpu(const struct query_source *src, const struct selection *sel,
		  const struct off_cpu_question *q, struct off_cpu_answer **ret);
struct off_cpu_answer *off_cpu_answer_free(struct off_cpu_answer *a);
DEFINE_CLEANUP(struct off_cpu_answer *, off_cpu_answer_free)
