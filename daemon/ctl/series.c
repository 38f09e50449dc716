// SPDX-License-Identifier: GPL-2.0-or-later
/* series: values over time. One series is a table with bars; several are lines of signs, one sign a step. */
#include <math.h>

#include "ctl/print.h"
#include "export/human.h"

#define BAR_MAX 40U
#define BAR_MIN 8U
#define BESIDE_BAR 42U /* columns of the time and the numbers */
#define NAME_MAX_WIDTH 32
#define SIGNS_MIN 10
#define SIGNS_MAX 120 /* where no terminal says how many fit */
#define LEVELS 8

/* ---- JSON ------------------------------------------------------------------------------------ */

static void line_json(struct json *j, const Sysprofd__V1__TimeSeries *s)
{
	json_object(j);
	json_key(j, "name");
	json_string(j, s->name);
	json_key(j, "binary");
	json_string(j, s->binary);
	if (s->pid) {
		json_key(j, "pid");
		json_unsigned(j, s->pid);
	}
	json_key(j, "total");
	json_unsigned(j, s->total);
	json_key(j, "points");
	json_array(j);
	for (size_t i = 0; i < s->n_points; i++) {
		json_object(j);
		json_key(j, "time");
		json_time(j, s->points[i]->time_ns);
		json_key(j, "value");
		json_unsigned(j, s->points[i]->value);
		json_key(j, "covered_seconds");
		json_double(j, (double)s->points[i]->covered_ns / NSEC_PER_SEC);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

static void answer_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__SeriesResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	json_key(&j, "step_seconds");
	json_double(&j, (double)m->step_ns / NSEC_PER_SEC);
	json_key(&j, "series_omitted");
	json_unsigned(&j, m->series_omitted);
	json_key(&j, "series");
	json_array(&j);
	for (size_t i = 0; i < m->n_series; i++)
		line_json(&j, m->series[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Of a step: what is done per second of recorded time. -1: nothing was recorded. */
static double rate_of(Sysprofd__V1__SeriesPoint *const *points, size_t n)
{
	double value = 0, covered = 0;

	for (size_t i = 0; i < n; i++) {
		value += (double)points[i]->value;
		covered += (double)points[i]->covered_ns;
	}
	return covered > 0 ? value / covered * NSEC_PER_SEC : -1;
}

/* A rate as people say it: busy CPUs, waiting threads, calls a second. */
static void put_rate(enum profile_type type, double rate, struct strbuf *out)
{
	char buf[HUMAN_MAX];

	if (rate < 0)
		strbuf_puts(out, "-");
	else if (type == PROFILE_SYSCALLS)
		strbuf_printf(out, "%s/s", human_count((uint64_t)rate, buf));
	else
		strbuf_printf(out, "%.2f", rate / NSEC_PER_SEC);
}

static const char *rate_head(enum profile_type type)
{
	switch (type) {
	case PROFILE_ON_CPU:
		return "CPUS";
	case PROFILE_SYSCALLS:
		return "RATE";
	default:
		return "THREADS"; /* that waited, on average */
	}
}

/* ---- one series ------------------------------------------------------------------------------ */

static void add_bar(struct table *t, const struct text *text, double rate, double peak)
{
	size_t room = text->width
			      ? CLAMP(text->width - MIN(text->width, BESIDE_BAR), BAR_MIN, BAR_MAX)
			      : BAR_MAX;
	size_t n = rate > 0 && peak > 0 ? (size_t)ceil(rate / peak * (double)room) : 0;
	_cleanup_(strbuf_done) struct strbuf bar = {};

	for (size_t i = 0; i < n; i++)
		strbuf_puts(&bar, text->utf8 ? "\xe2\x96\x88" : "#");
	table_cell(t, bar.data ?: "");
}

/* Whether a step without data lies in a gap; else the bucket that began before it covers it. */
static bool unrecorded(const Sysprofd__V1__SeriesResponse *m, const Sysprofd__V1__SeriesPoint *p)
{
	const Sysprofd__V1__Coverage *c = m->coverage;

	if (p->covered_ns)
		return false;
	for (size_t i = 0; i < c->n_gaps; i++)
		if (p->time_ns < c->gaps[i]->until_ns &&
		    p->time_ns + m->step_ns > c->gaps[i]->from_ns)
			return true;
	return p->time_ns < c->from_ns || p->time_ns >= c->until_ns;
}

/* The rest of the row for a step without data, and for those like it that follow: returns how many these are. */
static size_t add_unrecorded(struct table *t, const Sysprofd__V1__SeriesResponse *m, size_t first)
{
	const Sysprofd__V1__TimeSeries *s = m->series[0];
	size_t n = 1;

	table_cell(t, "-");
	table_cell(t, "-");
	if (!unrecorded(m, s->points[first])) {
		table_cell(t, "in the bucket before");
		return 0;
	}
	while (first + n < s->n_points && unrecorded(m, s->points[first + n]))
		n++;
	if (n == 1)
		table_cell(t, "not recorded");
	else
		table_cellf(t, "not recorded, %zu steps", n);
	return n - 1;
}

static int one_text(const Sysprofd__V1__SeriesResponse *m, enum profile_type type,
		    const struct text *text, struct strbuf *out)
{
	const Sysprofd__V1__TimeSeries *s = m->series[0];
	struct table_column columns[] = {
		{ .head = "TIME" },
		{ .head = type == PROFILE_SYSCALLS ? "CALLS" : "TOTAL", .right = true, .keep = 1 },
		{ .head = rate_head(type), .right = true, .keep = 2 },
		{ .head = "", .flexible = true }
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	char buf[HUMAN_MAX], at[LOCAL_TIME_MAX];
	double peak = 0;

	for (size_t i = 0; i < s->n_points; i++)
		peak = MAX(peak, rate_of(s->points + i, 1));
	for (size_t i = 0; i < s->n_points; i++) {
		const Sysprofd__V1__SeriesPoint *p = s->points[i];
		_cleanup_(strbuf_done) struct strbuf rate = {};

		table_cell(&t, local_time(p->time_ns, i ? s->points[0]->time_ns : 0, at));
		if (p->covered_ns == 0) {
			i += add_unrecorded(&t, m, i);
			continue;
		}
		table_cell(&t, human_value(type, p->value, buf));
		put_rate(type, rate_of(s->points + i, 1), &rate);
		table_cell(&t, rate.data ?: "");
		add_bar(&t, text, rate_of(s->points + i, 1), peak);
	}
	return table_print(&t, text, out);
}

/* ---- several --------------------------------------------------------------------------------- */

static const char *sign_of(const struct text *text, double rate, double peak)
{
	static const char *const blocks[LEVELS] = { "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83",
						    "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86",
						    "\xe2\x96\x87", "\xe2\x96\x88" };
	static const char *const ascii[LEVELS] = { ".", ":", "-", "=", "+", "*", "#", "@" };
	size_t level;

	if (rate < 0)
		return text->utf8 ? "\xc2\xb7" : "?";
	if (rate == 0 || peak <= 0)
		return "_";
	level = MIN((size_t)(rate / peak * LEVELS), (size_t)LEVELS - 1);
	return text->utf8 ? blocks[level] : ascii[level];
}

/* How many steps one sign stands for, so that the line fits. */
static size_t steps_per_sign(const Sysprofd__V1__SeriesResponse *m, const struct text *text)
{
	size_t room = SIGNS_MAX, n = 0;

	for (size_t i = 0; i < m->n_series; i++)
		n = MAX(n, m->series[i]->n_points);
	if (text->width)
		room = text->width > NAME_MAX_WIDTH + 30 + SIGNS_MIN
			       ? text->width - NAME_MAX_WIDTH - 30
			       : SIGNS_MIN;
	return MAX((n + room - 1) / room, (size_t)1);
}

static void several_row(struct table *t, const Sysprofd__V1__SeriesResponse *m,
			const Sysprofd__V1__TimeSeries *s, enum profile_type type,
			const struct text *text, size_t per_sign)
{
	_cleanup_(strbuf_done) struct strbuf signs = {}, at_peak = {};
	double peak = -1, rate = -1;
	char buf[HUMAN_MAX];

	for (size_t i = 0; i < s->n_points; i += per_sign)
		peak = MAX(peak, rate_of(s->points + i, MIN(per_sign, s->n_points - i)));
	for (size_t i = 0; i < s->n_points; i += per_sign) {
		double here = rate_of(s->points + i, MIN(per_sign, s->n_points - i));

		/* A step within the bucket before looks as that one does. */
		if (here >= 0 || unrecorded(m, s->points[i]))
			rate = here;
		strbuf_puts(&signs, sign_of(text, rate, peak));
	}
	put_rate(type, peak, &at_peak);
	table_cell(t, human_value(type, s->total, buf));
	table_cell(t, at_peak.data ?: "");
	table_cell(t, str_empty(s->name) ? "[none]" : s->name);
	table_cell(t, signs.data ?: "");
}

static int several_text(const Sysprofd__V1__SeriesResponse *m, enum profile_type type,
			const struct text *text, struct strbuf *out)
{
	struct table_column columns[] = {
		{ .head = "TOTAL", .right = true, .keep = 2 },
		{ .head = "PEAK", .right = true, .keep = 1 },
		{ .head = "NAME", .max = NAME_MAX_WIDTH },
		{ .head = "OVER TIME", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	_cleanup_(strbuf_done) struct strbuf line = {};
	size_t per_sign = steps_per_sign(m, text);
	char step[HUMAN_MAX], n[HUMAN_MAX];
	int r;

	for (size_t i = 0; i < m->n_series; i++)
		several_row(&t, m, m->series[i], type, text, per_sign);
	r = table_print(&t, text, out);
	if (r < 0)
		return r;
	strbuf_printf(
		&line,
		"One sign is %s; each line has its own scale; _ idle, %s not recorded; peak in %s.",
		human_duration(m->step_ns * per_sign, step), text->utf8 ? "\xc2\xb7" : "?",
		type == PROFILE_ON_CPU	   ? "busy CPUs"
		: type == PROFILE_SYSCALLS ? "calls"
					   : "waiting threads");
	text_wrap(text, line.data ?: "", 0, out);
	if (m->series_omitted) {
		strbuf_reset(&line);
		strbuf_printf(&line, "%s more series are folded into [other].",
			      human_count(m->series_omitted, n));
		text_wrap(text, line.data ?: "", 0, out);
	}
	return 0;
}

static int answer_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__SeriesResponse *m = answer;
	struct text text;

	text_begin(o, m->coverage, &text, out);
	if (m->n_series == 0 || !m->coverage || m->coverage->covered_ns == 0) {
		coverage_empty_text(&text, m->coverage, out);
		return 0;
	}
	if (o->by == SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED)
		return one_text(m, o->type, &text, out);
	return several_text(m, o->type, &text, out);
}

static const struct printed printed = {
	.method = "Series",
	.answer = &sysprofd__v1__series_response__descriptor,
	.json = answer_json,
	.text = answer_text,
};

int command_series(const struct options *o, struct client *c)
{
	Sysprofd__V1__SeriesRequest q = SYSPROFD__V1__SERIES_REQUEST__INIT;

	q.by = o->by;
	q.step_ns = o->step_ns;
	q.limit = o->rows;
	return command_print(o, c, &printed, &q.base, &q.selection);
}
