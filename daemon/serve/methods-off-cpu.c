// SPDX-License-Identifier: GPL-2.0-or-later
/* OffCpu. Worker threads. */
#include "query/off-cpu.h"
#include "serve/question.h"

#define ROWS 20
#define ROWS_MAX 10000
#define WAKERS 3
#define WAKERS_MAX 100

static void fill_waker(Sysprofd__V1__OffCpuWaker *m, const struct off_cpu_waker *w)
{
	m->comm = w->comm;
	m->thread = w->thread;
	m->pid = w->pid;
	m->tid = w->tid;
	m->start_ns = w->start;
	m->function = w->function;
	m->waits = w->waits;
	m->time = w->time;
	m->share = w->share;
}

static void fill_row(Sysprofd__V1__OffCpuRow *m, const struct off_cpu_row *row,
		     Sysprofd__V1__OffCpuWaker **wakers)
{
	m->comm = row->comm;
	m->thread = row->thread;
	m->unit = row->unit;
	m->pid = row->pid;
	m->tid = row->tid;
	m->start_ns = row->start;
	m->cause = (char *)off_cause_name(row->cause);
	m->wait = (char *)wait_kind_name(row->wait);
	m->idle = row->idle;
	m->waits = row->waits;
	m->total = row->total;
	m->wakers = wakers;
	m->n_wakers = row->n_wakers;
	for (size_t i = 0; i < row->n_wakers; i++)
		fill_waker(wakers[i], &row->wakers[i]);
}

static int reply(struct call *c, const struct off_cpu_answer *a)
{
	Sysprofd__V1__OffCpuResponse response = SYSPROFD__V1__OFF_CPU_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__OffCpuWaker **wakers = NULL;
	_cleanup_table_ Sysprofd__V1__OffCpuRow **rows = NULL;
	size_t n_wakers = 0;
	int r;

	for (size_t i = 0; i < a->n_rows; i++)
		n_wakers += a->rows[i].n_wakers;
	r = wire_coverage_pack(a->coverage, &coverage);
	if (r >= 0)
		r = table_new(&sysprofd__v1__off_cpu_row__descriptor, a->n_rows, &rows);
	if (r >= 0)
		r = table_new(&sysprofd__v1__off_cpu_waker__descriptor, n_wakers, &wakers);
	if (r < 0)
		return r;
	n_wakers = 0;
	for (size_t i = 0; i < a->n_rows; i++) {
		fill_row(rows[i], &a->rows[i], wakers + n_wakers);
		n_wakers += a->rows[i].n_wakers;
	}
	response.coverage = coverage;
	response.rows = rows;
	response.n_rows = a->n_rows;
	response.rows_omitted = a->omitted;
	response.blocked = a->blocked;
	response.run_queue = a->run_queue;
	response.preempted = a->preempted;
	response.idle = a->idle;
	response.idle_threads = a->idle_threads;
	return call_reply(c, &response.base, &response.host);
}

int method_off_cpu(struct call *c, struct worker *w)
{
	const Sysprofd__V1__OffCpuRequest *m = (const Sysprofd__V1__OffCpuRequest *)c->request;
	struct off_cpu_question q = { .fold_idle = m->fold_idle };
	_cleanup_(off_cpu_answer_free_p) struct off_cpu_answer *a = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	int r;

	r = check_limit(c, m->limit, ROWS, ROWS_MAX, "limit", &q.limit);
	if (r >= 0)
		r = check_limit(c, m->wakers, WAKERS, WAKERS_MAX, "wakers", &q.wakers);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r < 0)
		return r;
	sel.type = PROFILE_OFF_CPU;
	r = query_off_cpu(&src.query, &sel, &q, &a);
	return r < 0 ? r : reply(c, a);
}
