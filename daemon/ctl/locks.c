// SPDX-License-Identifier: GPL-2.0-or-later
/* locks: a block for each lock: what it is, who waits, who holds, what is wrong. */
#include <stdio.h>

#include "ctl/kernel-locks.h"
#include "export/human.h"

#define LOCKS_SHOWN 5 /* of some seven lines: a screen */

/* ---- JSON ------------------------------------------------------------------------------------ */

static void stacks_json(struct json *j, const char *key, Sysprofd__V1__LockStack *const *s,
			size_t n, bool holders, bool times)
{
	json_key(j, key);
	json_array(j);
	for (size_t i = 0; i < n; i++) {
		json_object(j);
		json_put_string(j, "stack", s[i]->stack);
		json_put_string(j, "place", s[i]->place);
		json_put_unsigned(j, "count", s[i]->count);
		if (times) {
			json_put_unsigned(j, "total", s[i]->ns);
			json_put_unsigned(j, "max", s[i]->max_ns);
		}
		if (holders) {
			json_put_string(j, "comm", s[i]->comm);
			json_put_string(j, "thread", s[i]->thread);
			json_put_unsigned(j, "pid", s[i]->pid);
			json_put_unsigned(j, "tid", s[i]->tid);
			json_put_string(j, "state", s[i]->state);
			json_put_string(j, "wait", s[i]->wait);
		}
		json_object_end(j);
	}
	json_array_end(j);
}

static void histogram_json(struct json *j, const Sysprofd__V1__LockRow *row)
{
	json_key(j, "histogram");
	json_array(j);
	for (size_t i = 0; i < row->n_histogram; i++) {
		json_object(j);
		json_put_unsigned(j, "from", row->histogram[i]->from_ns);
		json_key(j, "until");
		if (row->histogram[i]->until_ns)
			json_unsigned(j, row->histogram[i]->until_ns);
		else
			json_null(j);
		json_put_unsigned(j, "waits", row->histogram[i]->waits);
		json_object_end(j);
	}
	json_array_end(j);
}

static void outcomes_json(struct json *j, const Sysprofd__V1__LockRow *row)
{
	json_key(j, "outcomes");
	json_object(j);
	json_put_unsigned(j, "woken", row->woken_waits);
	json_put_unsigned(j, "timeout", row->timed_out);
	json_put_unsigned(j, "interrupted", row->interrupted);
	json_put_unsigned(j, "failed", row->failed);
	json_object_end(j);
}

static void holder_json(struct json *j, const Sysprofd__V1__LockRow *row)
{
	json_key(j, "holder");
	json_object(j);
	json_put_unsigned(j, "seen_running", row->seen_running);
	json_put_unsigned(j, "seen_runnable", row->seen_runnable);
	json_put_unsigned(j, "seen_blocked", row->seen_blocked);
	json_put_unsigned(j, "seen_unknown", row->seen_unknown);
	json_put_unsigned(j, "held_running", row->held_running_ns);
	json_put_unsigned(j, "held_runnable", row->held_runnable_ns);
	json_put_unsigned(j, "held_blocked", row->held_blocked_ns);
	json_object_end(j);
}

static void row_json(struct json *j, const Sysprofd__V1__LockRow *row)
{
	json_object(j);
	json_put_string(j, "lock", row->lock);
	json_put_string(j, "binary", row->binary);
	json_put_string(j, "class", row->class_);
	json_put_string(j, "comm", row->comm);
	if (row->pid) {
		json_put_unsigned(j, "pid", row->pid);
		json_put_unsigned(j, "start", row->start_ns);
	}
	json_key(j, "shared");
	json_bool(j, row->shared);
	json_put_unsigned(j, "waits", row->waits);
	json_put_unsigned(j, "total", row->total_ns);
	json_put_unsigned(j, "max", row->max_ns);
	json_put_unsigned(j, "p50", row->p50_ns);
	json_put_unsigned(j, "p99", row->p99_ns);
	histogram_json(j, row);
	outcomes_json(j, row);
	json_put_unsigned(j, "concurrent", row->concurrent);
	json_put_unsigned(j, "met", row->met);
	json_put_unsigned(j, "wakes", row->wakes);
	json_put_unsigned(j, "woken", row->woken);
	json_put_unsigned(j, "idle_wakes", row->idle_wakes);
	holder_json(j, row);
	stacks_json(j, "waiters", row->waiters, row->n_waiters, false, true);
	stacks_json(j, "holders", row->holders, row->n_holders, true, true);
	stacks_json(j, "unlockers", row->unlockers, row->n_unlockers, false, false);
	json_put_string(j, "verdict", row->verdict);
	json_put_string(j, "evidence", row->evidence);
	json_object_end(j);
}

static void answer_json(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__LocksResponse *m = answer;
	struct json j = { .out = out };

	json_object(&j);
	coverage_json(&j, m->coverage);
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

static void add_line(const struct text *t, enum text_style style, struct strbuf *line,
		     struct strbuf *out)
{
	text_line(t, style, line->data ?: "", out);
	strbuf_done(line);
}

#define EVIDENCE_INDENT 4
#define FACTS_INDENT 11

/* What matters is never cut. */
static void add_sentence(const struct text *t, enum text_style style, unsigned indent,
			 struct strbuf *line, struct strbuf *out)
{
	text_sentence(t, style, line->data ?: "", indent, out);
	strbuf_done(line);
}

static void head_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	struct strbuf line = {};

	strbuf_printf(&line, "%s  %s", row->lock, row->class_);
	if (!str_empty(row->comm))
		strbuf_printf(&line, " of %s", row->comm);
	if (row->pid)
		strbuf_printf(&line, " (%u)", row->pid);
	if (row->shared)
		strbuf_puts(&line, ", shared by processes");
	add_line(t, STYLE_BOLD, &line, out);
	strbuf_printf(&line, "  %s: %s", row->verdict, row->evidence);
	add_sentence(t, streq(row->verdict, "idle-pool") ? STYLE_DIM : STYLE_WARN, EVIDENCE_INDENT,
		     &line, out);
}

static void waits_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	struct strbuf line = {};
	char n[HUMAN_MAX], total[HUMAN_MAX], max[HUMAN_MAX], p50[HUMAN_MAX], p99[HUMAN_MAX],
		most[HUMAN_MAX];

	strbuf_printf(&line,
		      "  waits    %s, %s together, longest %s; half up to %s, 99 %% up to %s",
		      human_count(row->waits, n), human_duration(row->total_ns, total),
		      human_duration(row->max_ns, max), human_duration(row->p50_ns, p50),
		      human_duration(row->p99_ns, p99));
	if (row->concurrent > 1)
		strbuf_printf(&line, "; up to %s at once", human_count(row->concurrent, most));
	if (row->timed_out)
		strbuf_printf(&line, "; %s timed out", human_count(row->timed_out, most));
	add_sentence(t, STYLE_PLAIN, FACTS_INDENT, &line, out);
}

static const char *place_of(const Sysprofd__V1__LockStack *s)
{
	if (!str_empty(s->place))
		return s->place;
	return str_empty(s->stack) ? "[stack not taken]" : s->stack;
}

/* Stacks may differ in what is not shown: those that read alike are one line, that of the first of them. */
static bool reads_alike(const Sysprofd__V1__LockStack *a, const Sysprofd__V1__LockStack *b)
{
	return a->tid == b->tid && streq(a->state, b->state) && streq(a->wait, b->wait) &&
	       streq(place_of(a), place_of(b));
}

/* Adds up by the first of those that read alike; the others count nothing any more. */
static void gather(Sysprofd__V1__LockStack *const *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++) {
			if (!reads_alike(s[i], s[k]))
				continue;
			s[i]->count += s[k]->count;
			s[i]->ns += s[k]->ns;
			s[k]->count = s[k]->ns = 0;
		}
}

static void waiters_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	for (size_t i = 0; i < row->n_waiters; i++) {
		const Sysprofd__V1__LockStack *s = row->waiters[i];
		struct strbuf line = {};
		char share[HUMAN_MAX];

		if (!s->count)
			continue;
		strbuf_printf(&line, "  %-8s %5s  %s", i ? "" : "waiting",
			      human_share((double)s->ns, (double)row->total_ns, share),
			      place_of(s));
		add_line(t, STYLE_PLAIN, &line, out);
	}
}

static void holders_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	uint64_t held = row->held_running_ns + row->held_runnable_ns + row->held_blocked_ns;

	for (size_t i = 0; i < row->n_holders; i++) {
		const Sysprofd__V1__LockStack *s = row->holders[i];
		struct strbuf line = {};
		char share[HUMAN_MAX];

		/* That it was seen says nothing more where the time was measured. */
		if (held ? !s->ns : !s->count)
			continue;
		strbuf_printf(&line, "  %-8s %5s  %s", i ? "" : "held by",
			      held ? human_share((double)s->ns, (double)held, share) : "",
			      s->state);
		if (!str_empty(s->wait))
			strbuf_printf(&line, " (%s)", s->wait);
		strbuf_printf(&line, ", %s [%u] in %s", str_empty(s->thread) ? s->comm : s->thread,
			      s->tid, place_of(s));
		add_line(t, STYLE_PLAIN, &line, out);
	}
}

static void looks_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	uint64_t found = row->seen_running + row->seen_runnable + row->seen_blocked;
	struct strbuf line = {};
	char share[HUMAN_MAX], n[HUMAN_MAX];

	if (!found)
		return;
	strbuf_printf(&line, "  holder   found for %s of %s waits that were looked at",
		      human_share((double)found, (double)(found + row->seen_unknown), share),
		      human_count(found + row->seen_unknown, n));
	add_sentence(t, STYLE_PLAIN, FACTS_INDENT, &line, out);
}

static void unlockers_text(const struct text *t, const Sysprofd__V1__LockRow *row,
			   struct strbuf *out)
{
	struct strbuf line = {};
	char calls[HUMAN_MAX], woken[HUMAN_MAX], idle[HUMAN_MAX], share[HUMAN_MAX];
	uint64_t sum = 0;

	for (size_t i = 0; i < row->n_unlockers; i++)
		sum += row->unlockers[i]->count;
	for (size_t i = 0; i < row->n_unlockers; i++) {
		if (!row->unlockers[i]->count)
			continue;
		strbuf_printf(&line, "  %-8s %5s  %s", i ? "" : "woken by",
			      human_share((double)row->unlockers[i]->count, (double)sum, share),
			      place_of(row->unlockers[i]));
		add_line(t, STYLE_PLAIN, &line, out);
	}
	strbuf_printf(&line, "  wakes    %s calls woke %s threads, %s woke none",
		      human_count(row->wakes, calls), human_count(row->woken, woken),
		      human_count(row->idle_wakes, idle));
	if (row->wakes || row->idle_wakes)
		add_sentence(t, STYLE_PLAIN, FACTS_INDENT, &line, out);
	strbuf_done(&line);
}

static void row_text(const struct text *t, const Sysprofd__V1__LockRow *row, struct strbuf *out)
{
	gather(row->waiters, row->n_waiters);
	gather(row->holders, row->n_holders);
	gather(row->unlockers, row->n_unlockers);
	head_text(t, row, out);
	if (row->waits)
		waits_text(t, row, out);
	waiters_text(t, row, out);
	looks_text(t, row, out);
	holders_text(t, row, out);
	unlockers_text(t, row, out);
	strbuf_putc(out, '\n');
}

static int answer_text(const struct options *o, const void *answer, struct strbuf *out)
{
	const Sysprofd__V1__LocksResponse *m = answer;
	struct text text;

	text_begin(o, m->coverage, &text, out);
	if (m->n_rows == 0)
		coverage_empty_text(&text, m->coverage, out);
	for (size_t i = 0; i < m->n_rows; i++)
		row_text(&text, m->rows[i], out);
	text_omitted(&text, m->rows_omitted, "locks", out);
	return 0;
}

static const struct printed printed = {
	.method = "Locks",
	.answer = &sysprofd__v1__locks_response__descriptor,
	.json = answer_json,
	.text = answer_text,
};

static const struct printed printed_kernel = {
	.method = "Locks",
	.answer = &sysprofd__v1__locks_response__descriptor,
	.json = kernel_locks_json,
	.text = kernel_locks_text,
};

int command_locks(const struct options *o, struct client *c)
{
	Sysprofd__V1__LocksRequest q = SYSPROFD__V1__LOCKS_REQUEST__INIT;

	q.kernel = o->kernel;
	q.limit = o->rows_given || o->kernel ? o->rows : LOCKS_SHOWN;
	return command_print(o, c, o->kernel ? &printed_kernel : &printed, &q.base, &q.selection);
}
