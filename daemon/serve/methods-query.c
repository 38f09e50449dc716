// SPDX-License-Identifier: GPL-2.0-or-later
/* Handlers that put a question to history. Worker threads. */
#include <inttypes.h>
#include <stdio.h>

#include "serve/question.h"

#define MERGE_NODES 8192
#define MERGE_NODES_MAX 1000000
#define TOP_ROWS 20
#define TOP_ROWS_MAX 10000
#define TOP_OFFSET_MAX 100000
#define VALUES 1000
#define VALUES_MAX 10000
#define SERIES 20
#define SERIES_MAX 1000
#define STEPS 60
#define STEP_MIN_NS NSEC_PER_SEC
#define STEP_DEFAULT_NS (10 * NSEC_PER_SEC) /* a bucket */
#define POINTS_MAX 200000 /* series times steps */

_Static_assert((int)SYSPROFD__V1__DIMENSION__DIMENSION_LOCK == BY_LOCK, "dimensions");

int method_merge(struct call *c, struct worker *w)
{
	const Sysprofd__V1__MergeRequest *m = (const Sysprofd__V1__MergeRequest *)c->request;
	Sysprofd__V1__MergeResponse response = SYSPROFD__V1__MERGE_RESPONSE__INIT;
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(wire_profile_free_p) Sysprofd__V1__Profile *packed = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	uint32_t max_nodes;
	int r;

	r = check_limit(c, m->max_nodes, MERGE_NODES, MERGE_NODES_MAX, "max_nodes", &max_nodes);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r >= 0 && m->wakers && sel.type != PROFILE_OFF_CPU)
		r = rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "wakers: of off-CPU alone");
	if (r >= 0)
		r = (m->wakers ? query_chains : query_merge)(&src.query, &sel, max_nodes, &p);
	if (r >= 0)
		r = wire_profile_pack(p, &packed);
	if (r < 0)
		return r;
	response.profile = packed;
	return call_reply(c, &response.base, &response.host);
}

/* ---- Top --------------------------------------------------------------------------------------- */

static int resolve_dimension(struct call *c, const struct selection *sel,
			     Sysprofd__V1__Dimension by, enum dimension *ret)
{
	const char *error = "";

	if ((int)by < 0 || (int)by >= DIMENSION_N)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "unknown dimension %d", (int)by);
	if (dimension_resolve(sel->type, (enum dimension)by, ret, &error) < 0)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "dimension: %s", error);
	return 0;
}

static void fill_top_row(Sysprofd__V1__TopRow *m, const struct top_row *row)
{
	m->name = row->name ?: (char *)"";
	m->binary = row->binary ?: (char *)"";
	m->self = row->self;
	m->total = row->total;
	m->share = row->share;
	m->pid = row->pid;
	m->tid = row->tid;
	m->start_ns = row->start;
	m->events = row->events;
	m->errors = row->errors;
	m->max = row->max;
}

static int add_intervals(const struct top *top, uint32_t offset, Sysprofd__V1__TopRow **rows,
			 size_t n, Sysprofd__V1__CallInterval ***ret)
{
	int r = table_new(&sysprofd__v1__call_interval__descriptor, n, ret);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		fill_interval((*ret)[i], &top->rows[offset + i].within);
		rows[i]->within = (*ret)[i];
	}
	return r;
}

static int reply_top(struct call *c, const struct top *top, uint32_t offset)
{
	Sysprofd__V1__TopResponse response = SYSPROFD__V1__TOP_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__TopRow **rows = NULL;
	_cleanup_table_ Sysprofd__V1__CallInterval **intervals = NULL;
	size_t n = top->n_rows > offset ? top->n_rows - offset : 0;
	char token[16];
	int r = wire_coverage_pack(top->coverage, &coverage);

	if (r >= 0)
		r = table_new(&sysprofd__v1__top_row__descriptor, n, &rows);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		fill_top_row(rows[i], &top->rows[offset + i]);
	if (top->coverage->accounting.sampled && top->has_intervals)
		r = add_intervals(top, offset, rows, n, &intervals);
	if (r < 0)
		return r;
	response.coverage = coverage;
	response.rows = rows;
	response.n_rows = n;
	response.rows_omitted = top->rows_omitted;
	if (top->rows_omitted && top->n_rows <= TOP_OFFSET_MAX) {
		snprintf(token, sizeof(token), "%zu", top->n_rows);
		response.next_page_token = token;
	}
	return call_reply(c, &response.base, &response.host);
}

int method_top(struct call *c, struct worker *w)
{
	const Sysprofd__V1__TopRequest *m = (const Sysprofd__V1__TopRequest *)c->request;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	_cleanup_(top_free_p) struct top *top = NULL;
	enum dimension by;
	uint32_t limit, offset;
	int r;

	if ((int)m->sort < 0 || m->sort > SYSPROFD__V1__SORT_ORDER__SORT_ORDER_TOTAL)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "unknown sort order %d",
				(int)m->sort);
	r = check_limit(c, m->limit, TOP_ROWS, TOP_ROWS_MAX, "limit", &limit);
	if (r >= 0)
		r = read_token(c, m->page_token, TOP_OFFSET_MAX, &offset);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r >= 0)
		r = resolve_dimension(c, &sel, m->by, &by);
	if (r >= 0)
		r = query_top(&src.query, &sel, by,
			      m->sort == SYSPROFD__V1__SORT_ORDER__SORT_ORDER_TOTAL, offset + limit,
			      &top);
	if (r < 0)
		return r;
	return reply_top(c, top, offset);
}

/* ---- Series ------------------------------------------------------------------------------------ */

static int choose_step(struct call *c, const struct selection *sel, uint64_t asked, uint32_t limit,
		       uint64_t *ret)
{
	uint64_t range = sel->until_wall_ns - sel->from_wall_ns, step = asked;

	if (step == 0) {
		/* Whole buckets, so that no step is empty between two of them. */
		step = MAX(range / STEPS, STEP_DEFAULT_NS);
		step = (step + STEP_DEFAULT_NS - 1) / STEP_DEFAULT_NS * STEP_DEFAULT_NS;
	}
	if (step < STEP_MIN_NS)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "step_ns is at least a second");
	if (range / step + 2 > POINTS_MAX / (limit + 1))
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT,
				"more than %d points: a larger step_ns, please", POINTS_MAX);
	*ret = step;
	return 0;
}

static void fill_points(Sysprofd__V1__SeriesPoint **points, const struct series_answer *a,
			const struct series_line *line)
{
	for (size_t i = 0; i < a->n_steps; i++) {
		points[i]->time_ns = a->first_wall_ns + i * a->step_ns;
		points[i]->value = line->values[i];
		points[i]->covered_ns = a->covered_ns[i];
	}
}

static int reply_series(struct call *c, const struct series_answer *a)
{
	Sysprofd__V1__SeriesResponse response = SYSPROFD__V1__SERIES_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__TimeSeries **lines = NULL;
	_cleanup_table_ Sysprofd__V1__SeriesPoint **points = NULL;
	int r = wire_coverage_pack(a->coverage, &coverage);

	if (r >= 0)
		r = table_new(&sysprofd__v1__time_series__descriptor, a->n_lines, &lines);
	if (r >= 0)
		r = table_new(&sysprofd__v1__series_point__descriptor, a->n_lines * a->n_steps,
			      &points);
	if (r < 0)
		return r;
	for (size_t i = 0; i < a->n_lines; i++) {
		lines[i]->name = a->lines[i].name ?: (char *)"";
		lines[i]->binary = a->lines[i].binary ?: (char *)"";
		lines[i]->pid = a->lines[i].pid;
		lines[i]->total = a->lines[i].total;
		lines[i]->points = points + i * a->n_steps;
		lines[i]->n_points = a->n_steps;
		fill_points(lines[i]->points, a, &a->lines[i]);
	}
	response.coverage = coverage;
	response.step_ns = a->step_ns;
	response.series = lines;
	response.n_series = a->n_lines;
	response.series_omitted = a->omitted;
	return call_reply(c, &response.base, &response.host);
}

int method_series(struct call *c, struct worker *w)
{
	const Sysprofd__V1__SeriesRequest *m = (const Sysprofd__V1__SeriesRequest *)c->request;
	_cleanup_(series_answer_free_p) struct series_answer *answer = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	enum dimension by = BY_NONE;
	uint32_t limit;
	uint64_t step;
	int r;

	r = check_limit(c, m->limit, SERIES, SERIES_MAX, "limit", &limit);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	/* Unlike in Top, no dimension means one series for all. */
	if (r >= 0 && m->by != SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED)
		r = resolve_dimension(c, &sel, m->by, &by);
	if (r >= 0)
		r = choose_step(c, &sel, m->step_ns, limit, &step);
	if (r >= 0)
		r = query_series(&src.query, &sel, by, step, limit, &answer);
	if (r < 0)
		return r;
	return reply_series(c, answer);
}

/* ---- Labels ------------------------------------------------------------------------------------ */

int method_labels(struct call *c, struct worker *w)
{
	const Sysprofd__V1__LabelsRequest *m = (const Sysprofd__V1__LabelsRequest *)c->request;
	Sysprofd__V1__LabelsResponse response = SYSPROFD__V1__LABELS_RESPONSE__INIT;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	char *names[FILTER_KEY_N];
	uint64_t keys;
	int r;

	r = question_begin(c, w, m->selection, &sel, &src);
	if (r >= 0)
		r = query_labels(&src.query, &sel, &keys);
	if (r < 0)
		return r;
	for (int i = 0; i < FILTER_KEY_N; i++)
		if (keys >> i & 1)
			names[response.n_names++] = (char *)filter_key_name((enum filter_key)i);
	response.names = names;
	return call_reply(c, &response.base, &response.host);
}

static int reply_values(struct call *c, const struct label_values *v, uint32_t offset)
{
	Sysprofd__V1__LabelValuesResponse response = SYSPROFD__V1__LABEL_VALUES_RESPONSE__INIT;
	_cleanup_table_ Sysprofd__V1__LabelValue **values = NULL;
	char token[16];
	int r = table_new(&sysprofd__v1__label_value__descriptor, v->n, &values);

	if (r < 0)
		return r;
	for (size_t i = 0; i < v->n; i++) {
		values[i]->value = v->values[i].value;
		values[i]->total = v->values[i].total;
	}
	response.values = values;
	response.n_values = v->n;
	if (v->omitted) {
		snprintf(token, sizeof(token), "%zu", offset + v->n);
		response.next_page_token = token;
	}
	return call_reply(c, &response.base, &response.host);
}

int method_label_values(struct call *c, struct worker *w)
{
	const Sysprofd__V1__LabelValuesRequest *m =
		(const Sysprofd__V1__LabelValuesRequest *)c->request;
	_cleanup_(label_values_free_p) struct label_values *values = NULL;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	uint32_t limit, offset;
	int key = filter_key_from_name(m->name), r;

	if (key < 0)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "unknown label \"%s\"", m->name);
	r = check_limit(c, m->limit, VALUES, VALUES_MAX, "limit", &limit);
	if (r >= 0)
		r = read_token(c, m->page_token, UINT32_MAX / 2, &offset);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r >= 0)
		r = query_label_values(&src.query, &sel, (enum filter_key)key, offset, limit,
				       &values);
	if (r < 0)
		return r;
	return reply_values(c, values, offset);
}
