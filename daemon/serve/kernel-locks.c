// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks of the kernel, for the method Locks. Worker thread. */
#include <stdio.h>

#include "query/kernel-locks.h"
#include "serve/question.h"

#define RECORDED "contention tracepoints"

static void fill_waiters(Sysprofd__V1__KernelLockWaiter **to, const struct kernel_lock_row *row)
{
	for (size_t i = 0; i < row->n_waiters; i++) {
		const struct kernel_waiter *w = &row->waiters[i];

		to[i]->comm = w->comm;
		to[i]->pid = w->pid;
		to[i]->start_ns = w->start;
		to[i]->waits = w->waits;
		to[i]->total_ns = w->ns;
		to[i]->max_ns = w->max_ns;
	}
}

static void fill_row(Sysprofd__V1__KernelLockRow *m, const struct kernel_lock_row *row,
		     Sysprofd__V1__KernelLockWaiter **waiters)
{
	m->kind = (char *)row->kind;
	m->caller = row->caller;
	m->waits = row->waits;
	m->total_ns = row->ns;
	m->max_ns = row->max_ns;
	m->waiters = waiters;
	m->n_waiters = row->n_waiters;
	m->waiters_omitted = row->waiters_omitted;
	m->stack = row->stack;
	m->n_stack = row->n_stack;
	fill_waiters(waiters, row);
}

static int sentence(const Sysprofd__V1__CollectorStatus *futex, char **ret)
{
	const char *why = streq(futex->state, "off")	    ? "futex waits are off (futex=no)"
			  : !str_empty(futex->kernel_locks) ? futex->kernel_locks
							    : futex->state;
	int r;

	if (streq(why, RECORDED))
		return 0;
	r = asprintf(ret, "Waits for the kernel's own locks are not recorded: %s.", why);
	return r < 0 ? -ENOMEM : 0;
}

/* Why there may be nothing in the answer; NULL: they are recorded. */
static int why_absent(struct call *c, char **ret)
{
	Sysprofd__V1__StatusResponse *m = malloc(sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	sysprofd__v1__status_response__init(m);
	r = c->server->ops->status(c->server->ops_ctx, m);
	for (size_t i = 0; r >= 0 && i < m->n_collectors; i++)
		if (streq(m->collectors[i]->name, profile_type_name(PROFILE_FUTEX)))
			r = sentence(m->collectors[i], ret);
	sysprofd__v1__status_response__free_unpacked(m, NULL);
	return r;
}

static int reply(struct call *c, const struct kernel_lock_answer *a)
{
	Sysprofd__V1__LocksResponse response = SYSPROFD__V1__LOCKS_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__KernelLockRow **rows = NULL;
	_cleanup_table_ Sysprofd__V1__KernelLockWaiter **waiters = NULL;
	_cleanup_free_ char *absent = NULL;
	size_t n = 0;
	int r = wire_coverage_pack(a->coverage, &coverage);

	for (size_t i = 0; i < a->n_rows; i++)
		n += a->rows[i].n_waiters;
	if (r >= 0)
		r = table_new(&sysprofd__v1__kernel_lock_row__descriptor, a->n_rows, &rows);
	if (r >= 0)
		r = table_new(&sysprofd__v1__kernel_lock_waiter__descriptor, n, &waiters);
	if (r >= 0 && a->n_rows == 0)
		r = why_absent(c, &absent);
	if (r < 0)
		return r;
	n = 0;
	for (size_t i = 0; i < a->n_rows; i++) {
		fill_row(rows[i], &a->rows[i], waiters + n);
		n += a->rows[i].n_waiters;
	}
	response.coverage = coverage;
	response.kernel_rows = rows;
	response.n_kernel_rows = a->n_rows;
	response.rows_omitted = a->omitted;
	if (absent)
		response.kernel_absent = absent;
	return call_reply(c, &response.base, &response.host);
}

int answer_kernel_locks(struct call *c, const struct source *src, const struct selection *sel,
			uint32_t limit, uint32_t waiters)
{
	_cleanup_(kernel_lock_answer_free_p) struct kernel_lock_answer *a = NULL;
	int r = query_kernel_locks(&src->query, sel, limit, waiters, &a);

	return r < 0 ? r : reply(c, a);
}
