// SPDX-License-Identifier: GPL-2.0-or-later
/* locks --kernel: where threads wait for the kernel's own locks, and whose threads they are. */
#include "ctl/kernel-locks.h"
#include "export/human.h"

#define STACK_SHOWN 3
#define WAITERS_WIDTH 24

/* ---- JSON ------------------------------------------------------------------------------------ */

static void waiter_json(struct json *j, const Sysprofd__V1__KernelLockWaiter *w)
{
	json_object(j);
	json_put_string(j, "process", w->comm);
	if (w->pid) {
		json_put_unsigned(j, "pid", w->pid);
		json_put_unsigned(j, "start", w->start_ns);
	}
	json_put_unsigned(j, "waits", w->waits);
	json_put_unsigned(j, "total", w->total_ns);
	json_put_unsigned(j, "max", w->max_ns);
	json_object_end(j);
}

static void row_json(struct json *j, const Sysprofd__V1__KernelLockRow *row)
{
	json_object(j);
	json_put_string(j, "kind", row->kind);
	json_put_string(j, "caller", row->caller);
	json_put_unsigned(j, "waits", row->waits);
	json_put_unsigned(j, "total", row->total_ns);
	json_put_unsigned(j, "max", row->max_ns);
	json_key(j, "waiters");
	json_array(j);
	for (size_t i = 0; i < row->n_waiters; i++)
		waiter_json(j, row->waiters[i]);
	json_array_end(j);
	json_put_unsigned(j, "waiters_omitted", row->waiters_omitted);
	json_key(j, "stack");
	json_array(j);
	for (size_t i = 0; i < row->n_stack; i++)
		json_string(j, row->stack[i]);
	json_array_end(j);
	json_object_end(j);
}

void kernel_locks_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__LocksResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
	if (!str_empty(m->kernel_absent))
		json_put_string(&j, "absent", m->kernel_absent);
	json_put_unsigned(&j, "rows_omitted", m->rows_omitted);
	json_key(&j, "rows");
	json_array(&j);
	for (size_t i = 0; i < m->n_kernel_rows; i++)
		row_json(&j, m->kernel_rows[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

enum column { TIME, SHARE, WAITS, MEAN, MAX_WAIT, KIND, WAITING, CALLER, COLUMN_N };

/* "postgres [812] 93%, vacuum [9]": a share where it is not all. */
static void put_waiters(const Sysprofd__V1__KernelLockRow *row, struct strbuf *out)
{
	char share[HUMAN_MAX], n[HUMAN_MAX];

	for (size_t i = 0; i < row->n_waiters; i++) {
		const Sysprofd__V1__KernelLockWaiter *w = row->waiters[i];

		strbuf_printf(out, "%s%s", i ? ", " : "", str_empty(w->comm) ? "[none]" : w->comm);
		if (w->pid)
			strbuf_printf(out, " [%u]", w->pid);
		if (row->n_waiters > 1 || row->waiters_omitted)
			strbuf_printf(out, " %s",
				      human_share((double)w->total_ns, (double)row->total_ns,
						  share));
	}
	if (row->waiters_omitted)
		strbuf_printf(out, ", %s more", human_count(row->waiters_omitted, n));
}

static void put_stack(const Sysprofd__V1__KernelLockRow *row, struct strbuf *out)
{
	if (str_empty(row->caller))
		strbuf_puts(out, "[stack not taken]");
	for (size_t i = 0; i < row->n_stack && i < STACK_SHOWN; i++)
		strbuf_printf(out, "%s%s", i ? " < " : "", row->stack[i]);
}

static void add_row(struct table *t, const Sysprofd__V1__KernelLockRow *row, uint64_t whole)
{
	_cleanup_(strbuf_done) struct strbuf waiters = {}, stack = {};
	char buf[HUMAN_MAX];

	table_cell(t, human_duration(row->total_ns, buf));
	table_cell(t, human_share((double)row->total_ns, (double)whole, buf));
	table_cell(t, human_count(row->waits, buf));
	table_cell(t, human_duration(row->waits ? row->total_ns / row->waits : 0, buf));
	table_cell(t, human_duration(row->max_ns, buf));
	table_cell(t, row->kind);
	put_waiters(row, &waiters);
	table_cell(t, waiters.data ?: "");
	put_stack(row, &stack);
	table_cell(t, stack.data ?: "");
}

static int rows_text(const Sysprofd__V1__LocksResponse *m, const struct text *text,
		     struct strbuf *out)
{
	struct table_column columns[COLUMN_N] = {
		[TIME] = { .head = "TIME", .right = true },
		[SHARE] = { .head = "SHARE", .right = true, .keep = 1 },
		[WAITS] = { .head = "WAITS", .right = true, .keep = 5 },
		[MEAN] = { .head = "MEAN", .right = true, .keep = 2 },
		[MAX_WAIT] = { .head = "MAX", .right = true, .keep = 4 },
		[KIND] = { .head = "KIND" },
		[WAITING] = { .head = "WAITING", .max = WAITERS_WIDTH, .keep = 3 },
		[CALLER] = { .head = "TAKEN BY", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns, .n_columns = COLUMN_N };
	uint64_t whole = m->coverage ? m->coverage->total : 0;

	for (size_t i = 0; i < m->n_kernel_rows; i++)
		add_row(&t, m->kernel_rows[i], whole);
	return table_print(&t, text, out);
}

int kernel_locks_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__LocksResponse *m = answer;
	struct text text;
	int r;

	text_begin(o, m->coverage, &text, out);
	if (m->n_kernel_rows == 0) {
		if (str_empty(m->kernel_absent))
			coverage_empty_text(&text, m->coverage, out);
		else
			text_wrap(&text, m->kernel_absent, 2, out);
		return 0;
	}
	r = rows_text(m, &text, out);
	if (r >= 0)
		text_omitted(&text, m->rows_omitted, "rows", out);
	return r;
}
