// SPDX-License-Identifier: GPL-2.0-or-later
/* offcpu: who did not run, for what, and who woke it. */
#include "ctl/print.h"
#include "export/human.h"

#define NAME_WIDTH 32

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Of a thread; an id of 0 is none. */
static void put_ids(struct json *j, uint32_t pid, uint32_t tid, uint64_t start)
{
	if (pid)
		json_put_unsigned(j, "pid", pid);
	if (tid)
		json_put_unsigned(j, "tid", tid);
	if (start)
		json_put_unsigned(j, "start", start);
}

static void waker_json(struct json *j, const Sysprofd__V1__OffCpuWaker *w)
{
	json_object(j);
	json_put_string(j, "comm", w->comm);
	json_put_string(j, "thread", w->thread);
	put_ids(j, w->pid, w->tid, w->start_ns);
	json_put_string(j, "function", w->function);
	json_put_unsigned(j, "waits", w->waits);
	json_put_unsigned(j, "time", w->time);
	json_key(j, "share");
	json_double(j, w->share);
	json_object_end(j);
}

static void row_json(struct json *j, const Sysprofd__V1__OffCpuRow *row)
{
	json_object(j);
	json_put_string(j, "comm", row->comm);
	json_put_string(j, "thread", row->thread);
	json_put_string(j, "unit", row->unit);
	put_ids(j, row->pid, row->tid, row->start_ns);
	json_put_string(j, "cause", row->cause);
	json_put_string(j, "wait", row->wait);
	json_key(j, "idle");
	json_bool(j, row->idle);
	json_put_unsigned(j, "waits", row->waits);
	json_put_unsigned(j, "total", row->total);
	json_key(j, "wakers");
	json_array(j);
	for (size_t i = 0; i < row->n_wakers; i++)
		waker_json(j, row->wakers[i]);
	json_array_end(j);
	json_object_end(j);
}

static void answer_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__OffCpuResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	json_put_unsigned(&j, "blocked", m->blocked);
	json_put_unsigned(&j, "run_queue", m->run_queue);
	json_put_unsigned(&j, "preempted", m->preempted);
	json_put_unsigned(&j, "idle", m->idle);
	json_put_unsigned(&j, "idle_threads", m->idle_threads);
	json_put_unsigned(&j, "rows_omitted", m->rows_omitted);
	json_key(&j, "rows");
	json_array(&j);
	for (size_t i = 0; i < m->n_rows; i++)
		row_json(&j, m->rows[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

enum column { TIME, SHARE, WAITS, EACH, CAUSE, PID, TID, THREAD, WAKERS, COLUMN_N };

/* "nginx", or "java/GC Thread" where the thread has a name of its own. */
static void put_name(struct strbuf *out, const char *comm, const char *thread)
{
	strbuf_puts(out, str_empty(comm) ? "[none]" : comm);
	if (!str_empty(thread) && !streq(comm, thread))
		strbuf_printf(out, "/%s", thread);
}

static void put_wakers(struct strbuf *out, const Sysprofd__V1__OffCpuRow *row)
{
	char share[HUMAN_MAX];

	for (size_t i = 0; i < row->n_wakers; i++) {
		const Sysprofd__V1__OffCpuWaker *w = row->wakers[i];

		strbuf_puts(out, i ? ", " : "");
		if (w->pid)
			put_name(out, w->comm, w->thread);
		if (!str_empty(w->function))
			strbuf_printf(out, "%s%s", w->pid ? " " : "", w->function);
		else if (!w->pid)
			strbuf_puts(out, "[unknown]");
		if (w->share < 0.995)
			strbuf_printf(out, " %s", human_share(w->share, 1, share));
	}
}

static void add_id(struct table *t, uint32_t id)
{
	if (id)
		table_cellf(t, "%u", id);
	else
		table_cell(t, "-");
}

static void add_row(struct table *t, const Sysprofd__V1__OffCpuRow *row, uint64_t whole,
		    bool wakers)
{
	_cleanup_(strbuf_done) struct strbuf cause = {}, name = {}, who = {};
	char buf[HUMAN_MAX];

	table_cell(t, human_duration(row->total, buf));
	table_cell(t, human_share((double)row->total, (double)whole, buf));
	table_cell(t, human_count(row->waits, buf));
	table_cell(t, row->waits ? human_duration(row->total / row->waits, buf) : "-");
	strbuf_printf(&cause, "%s%s", row->idle ? "idle: " : "",
		      str_empty(row->wait) ? row->cause : row->wait);
	table_cell(t, cause.data ?: "");
	add_id(t, row->pid);
	add_id(t, row->tid);
	put_name(&name, row->comm, row->thread);
	table_cell(t, name.data ?: "");
	if (!wakers)
		return;
	put_wakers(&who, row);
	table_cell(t, who.data ?: "");
}

static bool has_wakers(const Sysprofd__V1__OffCpuResponse *m)
{
	for (size_t i = 0; i < m->n_rows; i++)
		if (m->rows[i]->n_wakers)
			return true;
	return false;
}

static int rows_text(const Sysprofd__V1__OffCpuResponse *m, bool idle, const struct text *text,
		     struct strbuf *out)
{
	bool wakers = has_wakers(m);
	struct table_column columns[COLUMN_N] = {
		[TIME] = { .head = "TIME", .right = true },
		[SHARE] = { .head = "SHARE", .right = true, .keep = 3 },
		[WAITS] = { .head = "WAITS", .right = true, .keep = 4 },
		[EACH] = { .head = "EACH", .right = true, .keep = 2 },
		[CAUSE] = { .head = "CAUSE" },
		[PID] = { .head = "PID", .right = true, .keep = 6 },
		[TID] = { .head = "TID", .right = true, .keep = 5 },
		[THREAD] = { .head = "THREAD",
			     .max = wakers ? NAME_WIDTH : 0,
			     .flexible = !wakers },
		[WAKERS] = { .head = "WOKEN BY", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = wakers ? COLUMN_N : WAKERS };
	uint64_t whole = m->blocked + m->run_queue + m->preempted + (idle ? m->idle : 0);

	for (size_t i = 0; i < m->n_rows; i++)
		add_row(&t, m->rows[i], whole, wakers);
	return table_print(&t, text, out);
}

static void sums_text(const Sysprofd__V1__OffCpuResponse *m, bool idle, const struct text *text,
		      struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];

	strbuf_printf(&line, "blocked %s, waiting for a CPU %s, preempted %s",
		      human_duration(m->blocked, a), human_duration(m->run_queue, b),
		      human_duration(m->preempted, c));
	text_sentence(text, STYLE_BOLD, line.data ?: "", 2, out);
	strbuf_done(&line);
	strbuf_printf(&line, "idle %s, in %s threads%s", human_duration(m->idle, a),
		      human_count(m->idle_threads, b),
		      idle || !m->idle ? "" : "; --idle shows them");
	text_sentence(text, STYLE_DIM, line.data ?: "", 2, out);
	strbuf_putc(out, '\n');
}

static int answer_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__OffCpuResponse *m = answer;
	struct text text;
	int r;

	text_begin(o, m->coverage, &text, out);
	if (m->n_rows == 0 && m->idle == 0) {
		coverage_empty_text(&text, m->coverage, out);
		return 0;
	}
	sums_text(m, o->idle, &text, out);
	if (m->n_rows == 0)
		return 0;
	r = rows_text(m, o->idle, &text, out);
	if (r >= 0)
		text_omitted(&text, m->rows_omitted, "rows", out);
	return r;
}

static const struct printed printed = {
	.method = "OffCpu",
	.answer = &sysprofd__v1__off_cpu_response__descriptor,
	.json = answer_json,
	.text = answer_text,
};

int command_off_cpu(const struct options *o, struct client *c)
{
	Sysprofd__V1__OffCpuRequest q = SYSPROFD__V1__OFF_CPU_REQUEST__INIT;

	q.limit = o->rows;
	/* Readers of JSON tell idle rows by their label. */
	q.fold_idle = !o->json && !o->idle;
	return command_print(o, c, &printed, &q.base, &q.selection);
}
