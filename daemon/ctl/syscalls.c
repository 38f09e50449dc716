// SPDX-License-Identifier: GPL-2.0-or-later
/* syscalls: which calls, how often, how long they take, how much they move, and what they fail with. */
#include <stdio.h>

#include "ctl/interval.h"
#include "ctl/print.h"
#include "export/human.h"

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_double(struct json *j, const char *key, double value)
{
	json_key(j, key);
	json_double(j, value);
}

static double per_second(double n, const Sysprofd__V1__Coverage *c)
{
	return c && c->covered_ns ? n * (double)NSEC_PER_SEC / (double)c->covered_ns : 0;
}

static uint64_t calls_of(const Sysprofd__V1__CallMeasure *m)
{
	uint64_t n = 0;

	for (size_t i = 0; m && i < m->n_histogram; i++)
		n += m->histogram[i]->calls;
	return n;
}

static bool is_known(const Sysprofd__V1__CallMeasure *m)
{
	return m && m->measured > 0;
}

/* null where nothing was measured. */
static void measure_json(struct json *j, const char *key, const Sysprofd__V1__CallMeasure *m)
{
	uint64_t calls = calls_of(m);

	json_key(j, key);
	if (!is_known(m)) {
		json_null(j);
		return;
	}
	json_object(j);
	json_put_unsigned(j, "measured", m->measured);
	json_put_unsigned(j, "total", m->total);
	put_double(j, "mean", calls ? (double)m->total / (double)calls : 0);
	json_put_unsigned(j, "p50", m->p50);
	json_put_unsigned(j, "p99", m->p99);
	json_put_unsigned(j, "max", m->max);
	json_key(j, "histogram");
	json_array(j);
	for (size_t i = 0; i < m->n_histogram; i++) {
		json_object(j);
		json_put_unsigned(j, "from", m->histogram[i]->from);
		json_put_unsigned(j, "below", m->histogram[i]->below);
		json_put_unsigned(j, "calls", m->histogram[i]->calls);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

static void parts_json(struct json *j, const char *key, const Sysprofd__V1__SyscallRow *row)
{
	json_key(j, key);
	json_array(j);
	for (size_t i = 0; i < row->n_parts; i++) {
		json_object(j);
		json_put_string(j, "name", row->parts[i]->name);
		json_put_unsigned(j, "calls", row->parts[i]->calls);
		json_object_end(j);
	}
	json_array_end(j);
}

static void row_json(struct json *j, const Sysprofd__V1__SyscallRow *row,
		     const Sysprofd__V1__Coverage *c, Sysprofd__V1__SyscallsBy by)
{
	json_object(j);
	json_put_string(j, calls_by_word(by), row->name);
	if (row->pid) {
		json_put_unsigned(j, "pid", row->pid);
		json_put_unsigned(j, "start", row->start_ns);
		json_put_string(j, "unit", row->unit);
	}
	json_put_unsigned(j, "calls", row->calls);
	put_double(j, "calls_per_second", per_second((double)row->calls, c));
	json_put_unsigned(j, "errors", row->errors);
	interval_json(j, row->calls_within);
	if (row->errors_within)
		interval_ends_json(j, "errors_low", "errors_high", row->errors_within);
	if (by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO) {
		parts_json(j, "syscalls", row);
	} else {
		parts_json(j, "errnos", row);
		measure_json(j, "latency", row->latency);
		measure_json(j, "bytes", row->bytes);
		if (is_known(row->bytes)) {
			put_double(j, "bytes_per_second", per_second((double)row->bytes->total, c));
			put_double(j, "tiny", row->tiny);
		}
	}
	json_object_end(j);
}

static void answer_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__SyscallsResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	json_put_unsigned(&j, "calls", m->calls);
	json_put_unsigned(&j, "errors", m->errors);
	if (m->calls_within)
		interval_ends_json(&j, "calls_low", "calls_high", m->calls_within);
	if (m->errors_within)
		interval_ends_json(&j, "errors_low", "errors_high", m->errors_within);
	json_put_unsigned(&j, "rows_omitted", m->rows_omitted);
	json_key(&j, "rows");
	json_array(&j);
	for (size_t i = 0; i < m->n_rows; i++)
		row_json(&j, m->rows[i], m->coverage, o->calls_by);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

enum column {
	CALLS,
	WITHIN,
	RATE,
	ERRORS,
	P50,
	P99,
	MAX,
	TIMED,
	BYTES,
	MEAN,
	TINY,
	PID,
	NAME,
	MOSTLY,
	N
};

/* "EAGAIN 98.0 %, EINTR": what a row's errors are, the share of the first in all of them. */
static void put_parts(struct strbuf *out, const Sysprofd__V1__SyscallRow *row, uint64_t whole)
{
	char share[HUMAN_MAX];

	for (size_t i = 0; i < MIN(row->n_parts, 3); i++) {
		const Sysprofd__V1__CallPart *p = row->parts[i];

		strbuf_printf(out, "%s%s", i ? ", " : "", p->name);
		if (p->calls < whole)
			strbuf_printf(out, " %s",
				      human_share((double)p->calls, (double)whole, share));
	}
}

static void add_measures(struct table *t, const Sysprofd__V1__SyscallRow *row,
			 const Sysprofd__V1__Coverage *c)
{
	const Sysprofd__V1__CallMeasure *l = row->latency, *b = row->bytes;
	char buf[HUMAN_MAX];
	uint64_t sized;

	table_cell(t, is_known(l) ? human_duration(l->p50, buf) : "-");
	table_cell(t, is_known(l) ? human_duration(l->p99, buf) : "-");
	table_cell(t, is_known(l) ? human_duration(l->max, buf) : "-");
	table_cell(t, is_known(l) ? human_count(l->measured, buf) : "-");
	if (!is_known(b)) {
		for (int i = 0; i < 3; i++)
			table_cell(t, "-");
		return;
	}
	sized = calls_of(b);
	table_cell(t, human_bytes((uint64_t)(per_second((double)b->total, c) + 0.5), buf));
	table_cell(t, sized ? human_bytes(b->total / sized, buf) : "-");
	table_cell(t, human_share(row->tiny, 1, buf));
}

static const char *rate_text(double rate, char buf[static HUMAN_MAX])
{
	if (rate < 9.995) {
		snprintf(buf, HUMAN_MAX, "%.2f", rate);
		return buf;
	}
	return human_count((uint64_t)(rate + 0.5), buf);
}

static void add_row(struct table *t, const Sysprofd__V1__SyscallRow *row,
		    const Sysprofd__V1__Coverage *c, Sysprofd__V1__SyscallsBy by,
		    const struct text *text)
{
	bool errnos = by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO;
	_cleanup_(strbuf_done) struct strbuf parts = {};
	char buf[HUMAN_MAX];

	table_cell(t, estimate_text(row->calls, row->calls_within, buf));
	if (row->calls_within)
		table_cell(t, interval_text(row->calls, row->calls_within, text->utf8, buf));
	table_cell(t, rate_text(per_second((double)row->calls, c), buf));
	if (!errnos) {
		table_cell(t, estimate_text(row->errors, row->errors ? row->errors_within : NULL,
					    buf));
		add_measures(t, row, c);
	}
	if (by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_PROCESS)
		table_cellf(t, "%u", row->pid);
	table_cell(t, str_empty(row->name) ? "[none]" : row->name);
	put_parts(&parts, row, errnos ? row->calls : row->errors);
	table_cell(t, parts.data ?: "");
}

static bool wanted(enum column c, Sysprofd__V1__SyscallsBy by, bool estimated)
{
	if (c == WITHIN)
		return estimated;
	if (c == PID)
		return by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_PROCESS;
	return c < ERRORS || c > TINY || by != SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO;
}

static int rows_text(const struct options *o, const Sysprofd__V1__SyscallsResponse *m,
		     const struct text *text, struct strbuf *out)
{
	static const struct table_column all[N] = {
		[CALLS] = { .head = "CALLS", .right = true, .keep = 9 },
		[WITHIN] = { .head = "WITHIN", .right = true, .keep = 10 },
		[RATE] = { .head = "PER S", .right = true },
		[ERRORS] = { .head = "ERRORS", .right = true, .keep = 10 },
		[P50] = { .head = "P50", .right = true, .keep = 7 },
		[P99] = { .head = "P99", .right = true, .keep = 8 },
		[MAX] = { .head = "MAX", .right = true, .keep = 3 },
		[TIMED] = { .head = "TIMED", .right = true, .keep = 2 },
		[BYTES] = { .head = "BYTES/S", .right = true, .keep = 5 },
		[MEAN] = { .head = "MEAN", .right = true, .keep = 4 },
		[TINY] = { .head = "TINY", .right = true, .keep = 6 },
		[PID] = { .head = "PID", .right = true, .keep = 11 },
		[NAME] = { .head = "CALL", .max = 32 },
		[MOSTLY] = { .head = "FAILED WITH", .flexible = true },
	};
	bool errnos = o->calls_by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO,
	     processes = o->calls_by == SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_PROCESS;
	struct table_column columns[N];
	_cleanup_(table_done) struct table t = { .columns = columns };

	for (size_t i = 0; i < N; i++)
		if (wanted((enum column)i, o->calls_by, m->estimated))
			columns[t.n_columns++] = all[i];
	columns[t.n_columns - 2].head = errnos ? "ERRNO" : processes ? "PROCESS" : "CALL";
	if (errnos)
		columns[t.n_columns - 1].head = "OF";
	for (size_t i = 0; i < m->n_rows; i++)
		add_row(&t, m->rows[i], m->coverage, o->calls_by, text);
	return table_print(&t, text, out);
}

static void sums_text(const Sysprofd__V1__SyscallsResponse *m, const struct text *text,
		      struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char calls[HUMAN_MAX], rate[HUMAN_MAX], errors[HUMAN_MAX], share[HUMAN_MAX];

	strbuf_printf(&line, "%s calls", estimate_text(m->calls, m->calls_within, calls));
	if (m->calls_within)
		strbuf_printf(&line, " (%s)",
			      interval_text(m->calls, m->calls_within, text->utf8, calls));
	strbuf_printf(&line, ", %s a second; %s failed (%s)",
		      rate_text(per_second((double)m->calls, m->coverage), rate),
		      estimate_text(m->errors, m->errors ? m->errors_within : NULL, errors),
		      human_share((double)m->errors, (double)m->calls, share));
	text_sentence(text, STYLE_BOLD, line.data ?: "", 2, out);
	strbuf_putc(out, '\n');
}

static int answer_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__SyscallsResponse *m = answer;
	struct text text;
	int r;

	text_begin(o, m->coverage, &text, out);
	if (m->n_rows == 0) {
		coverage_empty_text(&text, m->coverage, out);
		return 0;
	}
	sums_text(m, &text, out);
	r = rows_text(o, m, &text, out);
	if (r >= 0)
		text_omitted(&text, m->rows_omitted, "rows", out);
	return r;
}

static const struct printed printed = {
	.method = "Syscalls",
	.answer = &sysprofd__v1__syscalls_response__descriptor,
	.json = answer_json,
	.text = answer_text,
};

int command_syscalls(const struct options *o, struct client *c)
{
	Sysprofd__V1__SyscallsRequest q = SYSPROFD__V1__SYSCALLS_REQUEST__INIT;

	q.limit = o->rows;
	q.by = o->calls_by;
	return command_print(o, c, &printed, &q.base, &q.selection);
}
