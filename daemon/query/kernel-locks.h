/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks of the kernel: where threads wait for them, and which processes do. */
#pragma once

#include "query/query.h"

struct kernel_waiter {
	char *comm;
	uint32_t pid; /* 0: no process, or processes are not told apart */
	uint64_t start;
	uint64_t waits, ns, max_ns;
};

struct kernel_lock_row {
	const char *kind;
	char *caller; /* the function that takes the lock; "" where that is not known */
	uint64_t waits, ns, max_ns;
	struct kernel_waiter *waiters; /* longest first */
	size_t n_waiters;
	uint64_t waiters_omitted;
	char **stack; /* functions, leaf first, of the place with the longest waits */
	size_t n_stack;
};

struct kernel_lock_answer {
	struct profile *coverage; /* total and samples are those of these waits; without columns */
	struct kernel_lock_row *rows; /* longest total first */
	size_t n_rows;
	uint64_t omitted;
};
int query_kernel_locks(const struct query_source *src, const struct selection *sel, uint32_t limit,
		       uint32_t waiters, struct kernel_lock_answer **ret);
struct kernel_lock_answer *kernel_lock_answer_free(struct kernel_lock_answer *a);
DEFINE_CLEANUP(struct kernel_lock_answer *, kernel_lock_answer_free)

/* Functions that take locks for others: who called them is who waits. */
bool kernel_function_locks(const char *function);
