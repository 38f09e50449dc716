// SPDX-License-Identifier: GPL-2.0-or-later
/* Syscalls. Worker threads. */
#include "query/calls.h"
#include "serve/question.h"

#define ROWS 20
#define ROWS_MAX 10000

_Static_assert((int)SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO == CALLS_BY_ERRNO + 1, "by");

/* Messages of the answer, each kind in one block. */
struct tables {
	Sysprofd__V1__SyscallRow **rows;
	Sysprofd__V1__CallMeasure **measures; /* two of each row */
	Sysprofd__V1__CallBin **bins;
	Sysprofd__V1__CallPart **parts;
	Sysprofd__V1__CallInterval **intervals; /* two of each row, where it is an estimate */
	size_t n_measures, n_bins, n_parts, n_intervals;
};

static void tables_done(struct tables *t)
{
	free_table(&t->rows);
	free_table(&t->measures);
	free_table(&t->bins);
	free_table(&t->parts);
	free_table(&t->intervals);
}

static size_t count_bins(const struct call_measure *m)
{
	size_t n = 0;

	for (unsigned i = 0; i < CALL_BINS; i++)
		n += m->bins[i] >= 0.5;
	return n;
}

static int tables_new(const struct calls_answer *a, struct tables *t)
{
	size_t bins = 0, parts = 0;
	int r;

	for (size_t i = 0; i < a->n_rows; i++) {
		bins += count_bins(&a->rows[i].latency) + count_bins(&a->rows[i].bytes);
		parts += a->rows[i].n_parts;
	}
	r = table_new(&sysprofd__v1__syscall_row__descriptor, a->n_rows, &t->rows);
	if (r >= 0)
		r = table_new(&sysprofd__v1__call_measure__descriptor, 2 * a->n_rows, &t->measures);
	if (r >= 0)
		r = table_new(&sysprofd__v1__call_bin__descriptor, bins, &t->bins);
	if (r >= 0)
		r = table_new(&sysprofd__v1__call_part__descriptor, parts, &t->parts);
	if (r >= 0 && a->estimated)
		r = table_new(&sysprofd__v1__call_interval__descriptor, 2 * a->n_rows,
			      &t->intervals);
	return r;
}

static Sysprofd__V1__CallInterval *add_interval(struct tables *t, const struct interval *from)
{
	Sysprofd__V1__CallInterval *m = t->intervals[t->n_intervals++];

	fill_interval(m, from);
	return m;
}

static Sysprofd__V1__CallMeasure *add_measure(struct tables *t, const struct call_measure *from)
{
	Sysprofd__V1__CallMeasure *m = t->measures[t->n_measures++];

	m->measured = from->measured;
	m->total = (uint64_t)(from->total + 0.5);
	m->p50 = call_quantile(from, 0.5);
	m->p99 = call_quantile(from, 0.99);
	m->max = from->max;
	m->histogram = t->bins + t->n_bins;
	for (unsigned i = 0; i < CALL_BINS; i++) {
		if (from->bins[i] < 0.5)
			continue;
		m->histogram[m->n_histogram]->from = i ? 1ULL << (i - 1) : 0;
		m->histogram[m->n_histogram]->below = 1ULL << i;
		m->histogram[m->n_histogram++]->calls = (uint64_t)(from->bins[i] + 0.5);
	}
	t->n_bins += m->n_histogram;
	return m;
}

static void fill_row(struct tables *t, Sysprofd__V1__SyscallRow *m, const struct call_row *row,
		     bool estimated)
{
	double sized = 0;

	for (unsigned i = 0; i < CALL_BINS; i++)
		sized += row->bytes.bins[i];
	m->name = row->name;
	m->unit = row->unit;
	m->pid = row->pid;
	m->start_ns = row->start;
	m->calls = row->calls;
	m->errors = row->errors;
	m->estimated = estimated;
	if (estimated) {
		m->calls_within = add_interval(t, &row->calls_within);
		m->errors_within = add_interval(t, &row->errors_within);
	}
	m->latency = add_measure(t, &row->latency);
	m->bytes = add_measure(t, &row->bytes);
	m->tiny = sized > 0 ? MIN((double)row->tiny / sized, 1) : 0;
	m->parts = t->parts + t->n_parts;
	m->n_parts = row->n_parts;
	for (size_t i = 0; i < row->n_parts; i++) {
		m->parts[i]->name = row->parts[i].name;
		m->parts[i]->calls = row->parts[i].calls;
	}
	t->n_parts += row->n_parts;
}

static int reply(struct call *c, const struct calls_answer *a)
{
	Sysprofd__V1__SyscallsResponse response = SYSPROFD__V1__SYSCALLS_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	Sysprofd__V1__CallInterval calls = SYSPROFD__V1__CALL_INTERVAL__INIT, errors = calls;
	_cleanup_(tables_done) struct tables t = {};
	int r = wire_coverage_pack(a->coverage, &coverage);

	if (r >= 0)
		r = tables_new(a, &t);
	if (r < 0)
		return r;
	for (size_t i = 0; i < a->n_rows; i++)
		fill_row(&t, t.rows[i], &a->rows[i], a->estimated);
	response.coverage = coverage;
	response.rows = t.rows;
	response.n_rows = a->n_rows;
	response.rows_omitted = a->omitted;
	response.calls = a->calls;
	response.errors = a->errors;
	response.estimated = a->estimated;
	if (a->estimated) {
		fill_interval(&calls, &a->calls_within);
		fill_interval(&errors, &a->errors_within);
		response.calls_within = &calls;
		response.errors_within = &errors;
	}
	return call_reply(c, &response.base, &response.host);
}

int method_syscalls(struct call *c, struct worker *w)
{
	const Sysprofd__V1__SyscallsRequest *m = (const Sysprofd__V1__SyscallsRequest *)c->request;
	_cleanup_(calls_answer_free_p) struct calls_answer *a = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	uint32_t limit;
	int r;

	if ((int)m->by < 0 || (int)m->by > CALLS_BY_N)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "unknown SyscallsBy %d",
				(int)m->by);
	r = check_limit(c, m->limit, ROWS, ROWS_MAX, "limit", &limit);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r < 0)
		return r;
	sel.type = PROFILE_SYSCALLS;
	r = query_calls(&src.query, &sel, m->by ? (enum calls_by)(m->by - 1) : CALLS_BY_SYSCALL,
			limit, &a);
	return r < 0 ? r : reply(c, a);
}
