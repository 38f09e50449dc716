// SPDX-License-Identifier: GPL-2.0-or-later
/* counters: what processes and the host were short of. */
#include "ctl/hardware.h"
#include "ctl/print.h"
#include "export/human.h"

/* In the order of the table. */
static const struct {
	const char *name, *head;
	unsigned keep;
} counters[] = {
	{ "minor-faults", "FAULTS/s", 5 },	   { "major-faults", "MAJOR/s", 3 },
	{ "voluntary-switches", "SWITCHES/s", 4 }, { "involuntary-switches", "FORCED/s", 2 },
	{ "migrations", "MIGRATIONS/s", 1 },
};

static uint64_t value_of(const Sysprofd__V1__CountersRow *row, const char *name)
{
	for (size_t i = 0; i < row->n_counters; i++)
		if (streq(row->counters[i]->name, name))
			return row->counters[i]->value;
	return 0;
}

static bool is_counted(const Sysprofd__V1__CountersRow *row, const char *name)
{
	for (size_t i = 0; i < row->n_counters; i++)
		if (streq(row->counters[i]->name, name))
			return row->counters[i]->counted_ns > 0;
	return false;
}

/* Of the hardware: events of one kind by so many of another. */
static const struct {
	const char *head, *key, *of, *by;
	double per;
	const char *format;
	unsigned keep;
} rates[] = {
	{ "GHz", "ghz", "cycles", NULL, 1, "%.2f", 7 },
	{ "IPC", "ipc", "instructions", "cycles", 1, "%.2f", 9 },
	{ "CACHE-MISSES/k", "cache_misses_per_1000", "cache-misses", "instructions", 1000, "%.2f",
	  8 },
	{ "BRANCH-MISSES/k", "branch_misses_per_1000", "branch-misses", "instructions", 1000,
	  "%.2f", 7 },
};

/* False: one of the two was not counted. */
static bool rate_of(const Sysprofd__V1__CountersRow *row, size_t i, double *ret)
{
	uint64_t of = value_of(row, rates[i].of);
	uint64_t by = rates[i].by ? value_of(row, rates[i].by) : row->hardware_ns;

	*ret = by ? (double)of / (double)by * rates[i].per : 0;
	return by && is_counted(row, rates[i].of);
}

static bool has_rate(const Sysprofd__V1__CountersResponse *m, size_t i)
{
	double rate;

	for (size_t k = 0; k < m->n_rows; k++)
		if (rate_of(m->rows[k], i, &rate))
			return true;
	return false;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void saturation_json(struct json *j, const Sysprofd__V1__Saturation *s)
{
	json_key(j, "saturation");
	json_object(j);
	json_put_unsigned(j, "busy", s->busy_ns);
	json_put_unsigned(j, "capacity", s->capacity_ns);
	json_put_unsigned(j, "run_queue", s->run_queue_ns);
	json_put_unsigned(j, "preempted", s->preempted_ns);
	json_put_unsigned(j, "delays_covered", s->delays_covered_ns);
	json_put_unsigned(j, "pressure_covered", s->pressure_covered_ns);
	json_put_unsigned(j, "cpu_some", s->cpu_some_ns);
	json_put_unsigned(j, "io_some", s->io_some_ns);
	json_put_unsigned(j, "io_full", s->io_full_ns);
	json_put_unsigned(j, "memory_some", s->memory_some_ns);
	json_put_unsigned(j, "memory_full", s->memory_full_ns);
	json_object_end(j);
}

static void row_json(struct json *j, const Sysprofd__V1__CountersRow *row)
{
	json_object(j);
	json_key(j, "name");
	json_string(j, row->name);
	if (row->pid)
		json_put_unsigned(j, "pid", row->pid);
	if (row->start_ns)
		json_put_unsigned(j, "start", row->start_ns);
	json_put_unsigned(j, "cpu", row->cpu_ns);
	for (size_t i = 0; i < row->n_counters; i++)
		json_put_unsigned(j, row->counters[i]->name, row->counters[i]->value);
	if (row->hardware_spans) {
		json_put_unsigned(j, "hardware_spans", row->hardware_spans);
		json_put_unsigned(j, "hardware_time", row->hardware_ns);
	}
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		double rate;

		if (!rate_of(row, i, &rate))
			continue;
		json_key(j, rates[i].key);
		json_double(j, rate);
	}
	json_object_end(j);
}

static void answer_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__CountersResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	if (m->saturation)
		saturation_json(&j, m->saturation);
	hardware_json(&j, m->hardware, m->n_hardware, m->no_hardware);
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

static void put_share(struct strbuf *line, const char *what, uint64_t part, uint64_t whole)
{
	char buf[HUMAN_MAX];

	strbuf_printf(line, "%s%s", what, human_share((double)part, (double)whole, buf));
}

static void pressure_text(const Sysprofd__V1__Saturation *s, struct strbuf *line)
{
	uint64_t covered = s->pressure_covered_ns;

	if (!covered) {
		strbuf_puts(line,
			    "pressure   not told by this kernel (CONFIG_PSI, or boot with psi=1)");
		return;
	}
	put_share(line, "pressure   cpu ", s->cpu_some_ns, covered);
	put_share(line, "   io ", s->io_some_ns, covered);
	put_share(line, " (full ", s->io_full_ns, covered);
	put_share(line, ")   memory ", s->memory_some_ns, covered);
	put_share(line, " (full ", s->memory_full_ns, covered);
	strbuf_putc(line, ')');
}

static void waiting_text(const Sysprofd__V1__Saturation *s, struct strbuf *line)
{
	char a[HUMAN_MAX], b[HUMAN_MAX];

	if (!s->delays_covered_ns) {
		strbuf_puts(line,
			    "waiting    not known, nor are faults and switches: off-cpu was not "
			    "recorded");
		return;
	}
	strbuf_printf(line,
		      "waiting    for a CPU: %s after a wakeup, %s preempted (%.2f threads on "
		      "average)",
		      human_duration(s->run_queue_ns, a), human_duration(s->preempted_ns, b),
		      (double)(s->run_queue_ns + s->preempted_ns) / (double)s->delays_covered_ns);
}

static void saturation_text(const Sysprofd__V1__CountersResponse *m, const struct text *text,
			    struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf cpus = {}, waiting = {}, pressure = {};
	const Sysprofd__V1__Saturation *s = m->saturation;
	double covered = m->coverage ? (double)m->coverage->covered_ns : 0;

	if (!s || covered <= 0)
		return;
	put_share(&cpus, "CPUs       ", s->busy_ns, s->capacity_ns);
	strbuf_printf(&cpus, " busy: %.2f of %.0f", (double)s->busy_ns / covered,
		      (double)s->capacity_ns / covered);
	text_sentence(text, STYLE_BOLD, cpus.data ?: "", 11, out);
	waiting_text(s, &waiting);
	text_sentence(text, STYLE_PLAIN, waiting.data ?: "", 11, out);
	pressure_text(s, &pressure);
	text_sentence(text, STYLE_PLAIN, pressure.data ?: "", 11, out);
	strbuf_putc(out, '\n');
}

/* Small rates have decimals; what is not there is a dash. */
static void rate_cell(struct table *t, uint64_t n, double seconds)
{
	double rate = seconds > 0 ? (double)n / seconds : 0;
	char buf[HUMAN_MAX];

	if (!n)
		table_cell(t, "-");
	else if (rate < 10)
		table_cellf(t, rate < 0.1 ? "%.3f" : "%.1f", rate);
	else
		table_cell(t, human_count((uint64_t)(rate + 0.5), buf));
}

static void hardware_cell(struct table *t, const Sysprofd__V1__CountersRow *row, size_t i)
{
	double rate;

	if (rate_of(row, i, &rate))
		table_cellf(t, rates[i].format, rate);
	else
		table_cell(t, "-");
}

/* What the rates of the hardware rest on, which of them there are not, and why. */
static void hardware_note(const Sysprofd__V1__CountersResponse *m, const struct text *text,
			  struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char n[HUMAN_MAX], time[HUMAN_MAX];
	uint64_t spans = 0, ns = 0;

	for (size_t i = 0; i < m->n_rows; i++) {
		spans += m->rows[i]->hardware_spans;
		ns += m->rows[i]->hardware_ns;
	}
	if (spans) {
		strbuf_printf(&line,
			      "GHz, IPC and misses per 1,000 instructions are estimates from %s "
			      "spans, for %s of CPU time",
			      human_count(spans, n), human_duration(ns, time));
		text_wrap(text, line.data ?: "", 2, out);
	}
	hardware_text(text, m->hardware, m->n_hardware, m->no_hardware, "absent counters: ", out);
}

static int rows_text(const Sysprofd__V1__CountersResponse *m, const struct text *text,
		     struct strbuf *out)
{
	struct table_column columns[ARRAY_SIZE(rates) + ARRAY_SIZE(counters) + 3] = {
		{ .head = "CPUs", .right = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns, .n_columns = 1 };
	double seconds = m->coverage ? (double)m->coverage->covered_ns / NSEC_PER_SEC : 0;
	double counted = m->saturation ? (double)m->saturation->delays_covered_ns / NSEC_PER_SEC
				       : 0;

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
		if (has_rate(m, i))
			columns[t.n_columns++] = (struct table_column){ .head = rates[i].head,
									.right = true,
									.keep = rates[i].keep };
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		columns[t.n_columns++] = (struct table_column){ .head = counters[i].head,
								.right = true,
								.keep = counters[i].keep };
	columns[t.n_columns++] = (struct table_column){ .head = "PID", .right = true, .keep = 6 };
	columns[t.n_columns++] = (struct table_column){ .head = "PROCESS", .flexible = true };
	for (size_t i = 0; i < m->n_rows; i++) {
		const Sysprofd__V1__CountersRow *row = m->rows[i];

		table_cellf(&t, "%.3f",
			    seconds > 0 ? (double)row->cpu_ns / NSEC_PER_SEC / seconds : 0);
		for (size_t k = 0; k < ARRAY_SIZE(rates); k++)
			if (has_rate(m, k))
				hardware_cell(&t, row, k);
		for (size_t k = 0; k < ARRAY_SIZE(counters); k++)
			rate_cell(&t, value_of(row, counters[k].name), counted);
		if (row->pid)
			table_cellf(&t, "%u", row->pid);
		else
			table_cell(&t, "-");
		table_cell(&t, row->name);
	}
	return table_print(&t, text, out);
}

static int answer_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__CountersResponse *m = answer;
	struct text text;
	int r;

	text_begin(o, m->coverage, &text, out);
	saturation_text(m, &text, out);
	if (m->n_rows == 0) {
		coverage_empty_text(&text, m->coverage, out);
		return 0;
	}
	r = rows_text(m, &text, out);
	if (r < 0)
		return r;
	text_omitted(&text, m->rows_omitted, "processes", out);
	strbuf_putc(out, '\n');
	hardware_note(m, &text, out);
	return 0;
}

static const struct printed printed = {
	.method = "Counters",
	.answer = &sysprofd__v1__counters_response__descriptor,
	.json = answer_json,
	.text = answer_text,
};

int command_counters(const struct options *o, struct client *c)
{
	Sysprofd__V1__CountersRequest q = SYSPROFD__V1__COUNTERS_REQUEST__INIT;

	q.limit = o->rows;
	return command_print(o, c, &printed, &q.base, &q.selection);
}
