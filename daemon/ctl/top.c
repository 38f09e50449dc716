// SPDX-License-Identifier: GPL-2.0-or-later
/* top: the heaviest rows of a selection. */
#include "ctl/command.h"
#include "ctl/coverage.h"
#include "ctl/interval.h"
#include "ctl/request.h"
#include "export/human.h"
#include "export/short-name.h"

#define BINARY_WIDTH 24

static bool of_frames(const struct options *o)
{
	return o->by == SYSPROFD__V1__DIMENSION__DIMENSION_FUNCTION ||
	       o->by == SYSPROFD__V1__DIMENSION__DIMENSION_BINARY ||
	       o->by == SYSPROFD__V1__DIMENSION__DIMENSION_STACK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* `frames`: rows are what stacks are made of, which are samples. */
static void row_json(struct json *j, enum profile_type type, bool frames,
		     const Sysprofd__V1__TopRow *row)
{
	json_object(j);
	json_key(j, "name");
	json_string(j, row->name);
	json_key(j, "binary");
	json_string(j, row->binary);
	json_key(j, "self");
	json_unsigned(j, row->self);
	json_key(j, "total");
	json_unsigned(j, row->total);
	json_key(j, "share");
	json_double(j, row->share);
	if (row->pid) {
		json_key(j, "pid");
		json_unsigned(j, row->pid);
	}
	if (row->tid) {
		json_key(j, "tid");
		json_unsigned(j, row->tid);
	}
	if (row->start_ns) {
		json_key(j, "start");
		json_unsigned(j, row->start_ns);
	}
	if (type != PROFILE_ON_CPU) {
		json_key(j, "events");
		json_unsigned(j, row->events);
	}
	if (type == PROFILE_SYSCALLS) {
		json_key(j, "errors");
		json_unsigned(j, row->errors);
		if (!frames) {
			interval_json(j, row->within);
		} else {
			json_key(j, "exact");
			json_bool(j, false);
		}
	}
	if (type == PROFILE_FUTEX) {
		json_key(j, "max");
		json_unsigned(j, row->max);
	}
	json_object_end(j);
}

static void answer_json(const struct options *o, const Sysprofd__V1__TopResponse *m,
			enum profile_type type, struct strbuf *out)
{
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	json_key(&j, "rows_omitted");
	json_unsigned(&j, m->rows_omitted);
	json_key(&j, "rows");
	json_array(&j);
	for (size_t i = 0; i < m->n_rows; i++)
		row_json(&j, type, of_frames(o), m->rows[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

enum column {
	SELF,
	WITHIN,
	SHARE,
	TOTAL,
	EVENTS,
	ERRORS,
	LONGEST,
	PID,
	TID,
	BINARY,
	NAME,
	COLUMN_N
};

/* Which columns say something, by what is shown. */
static bool wanted(const struct options *o, enum profile_type type,
		   const Sysprofd__V1__TopResponse *m, enum column column)
{
	bool frames = of_frames(o);
	bool thread = o->by == SYSPROFD__V1__DIMENSION__DIMENSION_THREAD;

	switch (column) {
	case WITHIN:
		return type == PROFILE_SYSCALLS && m->coverage && m->coverage->estimated && !frames;
	case TOTAL:
		return frames;
	case EVENTS:
		return type == PROFILE_OFF_CPU || type == PROFILE_FUTEX;
	case ERRORS:
		return type == PROFILE_SYSCALLS && !frames;
	case LONGEST:
		return type == PROFILE_FUTEX;
	case PID:
		return thread || o->by == SYSPROFD__V1__DIMENSION__DIMENSION_PROCESS ||
		       o->by == SYSPROFD__V1__DIMENSION__DIMENSION_LOCK;
	case TID:
		return thread;
	case BINARY:
		return o->by == SYSPROFD__V1__DIMENSION__DIMENSION_FUNCTION;
	default:
		return true;
	}
}

static void add_id(struct table *t, uint32_t id)
{
	if (id)
		table_cellf(t, "%u", id);
	else
		table_cell(t, "-");
}

static void add_cell(struct table *t, enum profile_type type, const Sysprofd__V1__TopRow *row,
		     enum column column, bool utf8)
{
	char buf[HUMAN_MAX];

	switch (column) {
	case SELF:
		table_cell(t, row->within ? estimate_text(row->self, row->within, buf)
					  : human_value(type, row->self, buf));
		break;
	case WITHIN:
		table_cell(t, interval_text(row->self, row->within, utf8, buf));
		break;
	case SHARE:
		table_cell(t, human_share(row->share, 1, buf));
		break;
	case TOTAL:
		table_cell(t, human_value(type, row->total, buf));
		break;
	case EVENTS:
		table_cell(t, human_count(row->events, buf));
		break;
	case ERRORS:
		table_cell(t, human_count(row->errors, buf));
		break;
	case LONGEST:
		table_cell(t, human_duration(row->max, buf));
		break;
	case PID:
		add_id(t, row->pid);
		break;
	case TID:
		add_id(t, row->tid);
		break;
	case BINARY:
		table_cell(t, row->binary);
		break;
	default:
		table_cell(t, str_empty(row->name) ? "[none]" : row->name);
		break;
	}
}

/* A column that is empty in all rows is left out. */
static bool has_binaries(const Sysprofd__V1__TopResponse *m)
{
	for (size_t i = 0; i < m->n_rows; i++)
		if (!str_empty(m->rows[i]->binary))
			return true;
	return false;
}

static int rows_text(const struct options *o, const Sysprofd__V1__TopResponse *m,
		     enum profile_type type, const struct text *text, struct strbuf *out)
{
	const struct table_column all[COLUMN_N] = {
		[SELF] = { .head = wanted(o, type, m, TOTAL)  ? "SELF"
				   : type == PROFILE_SYSCALLS ? "CALLS"
							      : "TIME",
			   .right = true },
		[WITHIN] = { .head = "WITHIN", .right = true, .keep = 6 },
		[SHARE] = { .head = "SHARE", .right = true, .keep = 5 },
		[TOTAL] = { .head = "TOTAL", .right = true, .keep = 4 },
		[EVENTS] = { .head = "WAITS", .right = true, .keep = 3 },
		[ERRORS] = { .head = "ERRORS", .right = true, .keep = 3 },
		[LONGEST] = { .head = "LONGEST", .right = true, .keep = 2 },
		[PID] = { .head = "PID", .right = true, .keep = 6 },
		[TID] = { .head = "TID", .right = true, .keep = 6 },
		[BINARY] = { .head = "BINARY", .max = BINARY_WIDTH, .middle = true, .keep = 1 },
		[NAME] = { .flexible = true,
			   .middle = o->by == SYSPROFD__V1__DIMENSION__DIMENSION_STACK },
	};
	struct table_column columns[COLUMN_N];
	enum column which[COLUMN_N];
	_cleanup_(table_done) struct table t = { .columns = columns };
	char head[32] = "";

	for (int c = 0; c < COLUMN_N; c++) {
		if (!wanted(o, type, m, (enum column)c) || (c == BINARY && !has_binaries(m)))
			continue;
		which[t.n_columns] = (enum column)c;
		columns[t.n_columns++] = all[c];
	}
	/* "--by process" is headed PROCESS. */
	for (size_t i = 0; dimension_word(o->by)[i] && i + 1 < sizeof(head); i++)
		head[i] = (char)(dimension_word(o->by)[i] - 'a' + 'A');
	columns[t.n_columns - 1].head = head;
	for (size_t i = 0; i < m->n_rows; i++)
		for (size_t c = 0; c < t.n_columns; c++)
			add_cell(&t, type, m->rows[i], which[c], text->utf8);
	return table_print(&t, text, out);
}

static int answer_text(const struct options *o, const Sysprofd__V1__TopResponse *m,
		       enum profile_type type, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	struct text text;
	char n[HUMAN_MAX];
	int r;

	text_init(&text, STDOUT_FILENO);
	coverage_text(o, &text, m->coverage, out);
	strbuf_putc(out, '\n');
	if (m->n_rows == 0) {
		coverage_empty_text(&text, m->coverage, out);
		return 0;
	}
	r = rows_text(o, m, type, &text, out);
	if (r >= 0 && m->rows_omitted) {
		strbuf_printf(&line, "and %s more rows", human_count(m->rows_omitted, n));
		text_line(&text, STYLE_DIM, line.data ?: "", out);
	}
	return r;
}

/* Function by function: of stacks they stand one behind the other. */
static int shorten_row(Sysprofd__V1__TopRow *row)
{
	_cleanup_(strbuf_done) struct strbuf name = {};
	char *rest = row->name, *function;
	int r;

	while ((function = strsep(&rest, ";"))) {
		short_name(function, &name);
		if (rest)
			strbuf_putc(&name, ';');
	}
	r = strbuf_error(&name);
	if (r < 0)
		return r;
	free(row->name);
	row->name = strbuf_take(&name, NULL);
	return row->name ? 0 : -ENOMEM;
}

static int shorten_rows(const struct options *o, Sysprofd__V1__TopResponse *m)
{
	if (!o->short_names || (o->by != SYSPROFD__V1__DIMENSION__DIMENSION_FUNCTION &&
				o->by != SYSPROFD__V1__DIMENSION__DIMENSION_STACK))
		return 0;
	for (size_t i = 0; i < m->n_rows; i++) {
		int r = str_empty(m->rows[i]->name) ? 0 : shorten_row(m->rows[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

int command_top(const struct options *o, struct client *c)
{
	Sysprofd__V1__TopRequest q = SYSPROFD__V1__TOP_REQUEST__INIT;
	_cleanup_(strbuf_done) struct strbuf out = {};
	_cleanup_(request_done) struct request selection = {};
	Sysprofd__V1__TopResponse *m;
	ProtobufCMessage *answer = NULL;
	enum profile_type type = o->type;
	int r;

	if (request_init(&selection, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	q.selection = &selection.m;
	q.by = o->by;
	q.sort = o->by_total ? SYSPROFD__V1__SORT_ORDER__SORT_ORDER_TOTAL
			     : SYSPROFD__V1__SORT_ORDER__SORT_ORDER_SELF;
	q.limit = o->rows;
	r = client_call(c, "Top", &q.base, &sysprofd__v1__top_response__descriptor, &answer);
	if (r)
		return command_failed(c, r);
	m = (Sysprofd__V1__TopResponse *)answer;
	if (shorten_rows(o, m) < 0)
		out.error = -ENOMEM;
	else if (o->json)
		answer_json(o, m, type, &out);
	else if (answer_text(o, m, type, &out) < 0)
		out.error = -ENOMEM;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}
