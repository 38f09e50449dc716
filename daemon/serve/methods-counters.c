// SPDX-License-Identifier: GPL-2.0-or-later
/* Counters of processes, and how busy the host was. Worker threads. */
#include "serve/question.h"

#define COUNTERS_ROWS 20
#define COUNTERS_ROWS_MAX 10000

static void fill_saturation(Sysprofd__V1__Saturation *m, const struct counters_answer *a)
{
	m->busy_ns = a->busy_ns;
	m->capacity_ns = a->capacity_ns;
	m->run_queue_ns = a->run_queue_ns;
	m->preempted_ns = a->preempted_ns;
	m->delays_covered_ns = a->delays_covered_ns;
	m->pressure_covered_ns = a->pressure_covered_ns;
	m->cpu_some_ns = a->pressure_ns[PRESSURE_CPU_SOME];
	m->io_some_ns = a->pressure_ns[PRESSURE_IO_SOME];
	m->io_full_ns = a->pressure_ns[PRESSURE_IO_FULL];
	m->memory_some_ns = a->pressure_ns[PRESSURE_MEMORY_SOME];
	m->memory_full_ns = a->pressure_ns[PRESSURE_MEMORY_FULL];
}

/* What came while it counted, for all of the process's time. */
static uint64_t whole(const struct counters_row *row, unsigned i)
{
	double by = (double)row->counted_ns[COUNTERS_SPANS] / (double)row->counted_ns[i];

	return (uint64_t)((double)row->counters[i] * by + 0.5);
}

static void fill_hardware(Sysprofd__V1__CountersRow *m, Sysprofd__V1__Counter **counters,
			  const struct counters_row *row)
{
	m->hardware_spans = row->counters[COUNTERS_SPANS];
	m->hardware_ns = row->counted_ns[COUNTERS_SPANS];
	for (unsigned i = COUNTERS_SPANS + 1; i < COUNTERS; i++) {
		Sysprofd__V1__Counter *c = counters[m->n_counters];

		if (!row->counted_ns[i])
			continue;
		c->name = (char *)counter_name(i);
		c->value = whole(row, i);
		c->counted_ns = row->counted_ns[i];
		m->n_counters++;
	}
}

static void fill_row(Sysprofd__V1__CountersRow *m, Sysprofd__V1__Counter **counters,
		     const struct counters_row *row)
{
	m->name = row->name;
	m->pid = row->pid;
	m->start_ns = row->start;
	m->cpu_ns = row->cpu_ns;
	m->counters = counters;
	for (unsigned i = 0; i < COUNTERS_EXACT; i++) {
		if (!row->counters[i])
			continue;
		counters[m->n_counters]->name = (char *)counter_name(i);
		counters[m->n_counters++]->value = row->counters[i];
	}
	fill_hardware(m, counters, row);
}

static int reply(struct call *c, const struct counters_answer *a)
{
	Sysprofd__V1__CountersResponse response = SYSPROFD__V1__COUNTERS_RESPONSE__INIT;
	Sysprofd__V1__Saturation saturation = SYSPROFD__V1__SATURATION__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__CountersRow **rows = NULL;
	_cleanup_table_ Sysprofd__V1__Counter **counters = NULL;
	_cleanup_table_ Sysprofd__V1__HardwareCounter **hardware = NULL;
	struct hardware_state h = {};
	int r = wire_coverage_pack(a->coverage, &coverage);

	if (r >= 0)
		r = table_new(&sysprofd__v1__counters_row__descriptor, a->n_rows, &rows);
	if (r >= 0)
		r = table_new(&sysprofd__v1__counter__descriptor, a->n_rows * COUNTERS, &counters);
	if (r >= 0)
		r = table_new(&sysprofd__v1__hardware_counter__descriptor, HARDWARE_KINDS,
			      &hardware);
	if (r < 0)
		return r;
	c->server->ops->hardware(c->server->ops_ctx, &h);
	for (unsigned i = 0; h.counted && i < HARDWARE_KINDS; i++) {
		hardware[i]->name = (char *)hardware_name(i);
		hardware[i]->absent = (char *)hardware_absent(h.error[i]);
	}
	for (size_t i = 0; i < a->n_rows; i++)
		fill_row(rows[i], counters + i * COUNTERS, &a->rows[i]);
	fill_saturation(&saturation, a);
	response.coverage = coverage;
	response.saturation = &saturation;
	response.rows = rows;
	response.n_rows = a->n_rows;
	response.rows_omitted = a->rows_omitted;
	response.hardware = hardware;
	response.n_hardware = h.counted ? HARDWARE_KINDS : 0;
	response.no_hardware = h.why;
	return call_reply(c, &response.base, &response.host);
}

int method_counters(struct call *c, struct worker *w)
{
	const Sysprofd__V1__CountersRequest *m = (const Sysprofd__V1__CountersRequest *)c->request;
	_cleanup_(counters_answer_free_p) struct counters_answer *answer = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	uint32_t limit;
	int r;

	r = check_limit(c, m->limit, COUNTERS_ROWS, COUNTERS_ROWS_MAX, "limit", &limit);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r >= 0)
		r = query_counters(&src.query, &sel, limit, &answer);
	return r < 0 ? r : reply(c, answer);
}
