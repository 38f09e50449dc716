// SPDX-License-Identifier: GPL-2.0-or-later
/* watch: one line for each bucket as it closes, until interrupted. */
#include "ctl/command.h"
#include "ctl/coverage.h"
#include "ctl/request.h"
#include "export/human.h"

#define CELL 14

struct watching {
	const struct options *o;
	struct text text;
	bool headed;
};

/* ---- JSON ------------------------------------------------------------------------------------ */

static void profile_json(struct json *j, const Sysprofd__V1__Profile *p)
{
	const Sysprofd__V1__Coverage *c = p->coverage;

	if (!c)
		return;
	json_object(j);
	json_key(j, "type");
	json_string(j, profile_type_name(answer_type(c->type)));
	json_key(j, "unit");
	json_string(j, profile_type_unit(answer_type(c->type)));
	json_key(j, "rate_hz");
	json_double(j, c->rate_hz);
	json_key(j, "total");
	json_unsigned(j, c->total);
	json_key(j, "samples");
	json_unsigned(j, c->samples);
	json_key(j, "lost");
	json_unsigned(j, c->lost);
	json_object_end(j);
}

static void bucket_json(const Sysprofd__V1__WatchResponse *m, struct strbuf *out)
{
	const Sysprofd__V1__Bucket *b = m->bucket;
	struct json j = { .out = out };

	json_object(&j);
	json_key(&j, "sequence");
	json_unsigned(&j, b->sequence);
	json_key(&j, "start");
	json_time(&j, b->start_ns);
	json_key(&j, "covered_seconds");
	json_double(&j, (double)b->covered_ns / NSEC_PER_SEC);
	json_key(&j, "cpus");
	json_unsigned(&j, b->cpus);
	json_key(&j, "busy_seconds");
	json_double(&j, (double)b->busy_ns / NSEC_PER_SEC);
	json_key(&j, "gap");
	json_string(&j, b->gap);
	json_key(&j, "skipped");
	json_unsigned(&j, m->skipped);
	json_key(&j, "profiles");
	json_array(&j);
	for (size_t i = 0; i < b->n_profiles; i++)
		profile_json(&j, b->profiles[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

/* ---- text ------------------------------------------------------------------------------------ */

static const Sysprofd__V1__Profile *profile_of(const Sysprofd__V1__Bucket *b,
					       enum profile_type type)
{
	for (size_t i = 0; i < b->n_profiles; i++)
		if (b->profiles[i]->coverage && answer_type(b->profiles[i]->coverage->type) == type)
			return b->profiles[i];
	return NULL;
}

/* The name that most of the profile's leaves have; NULL: none. */
static const char *heaviest_leaf(const Sysprofd__V1__Profile *p)
{
	_cleanup_free_ uint64_t *by_name = new0(uint64_t, p->n_strings + 1);
	uint32_t best = 0;

	for (size_t i = 0; by_name && i < p->n_samples; i++) {
		uint32_t stack = p->samples[i]->stack, frame, name;

		frame = stack < p->n_stacks ? p->stacks[stack]->frame : 0;
		name = frame < p->n_frames ? p->frames[frame]->name : 0;
		if (name == 0 || name >= p->n_strings)
			continue;
		by_name[name] += p->samples[i]->value;
		if (by_name[name] > by_name[best])
			best = name;
	}
	return best ? p->strings[best] : NULL;
}

static void put_cell(struct strbuf *line, const char *s)
{
	size_t w = text_width(s);

	strbuf_printf(line, "%*s%s  ", (int)(CELL - MIN(w, (size_t)CELL)), "", s);
}

static void put_head(struct watching *w, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	strbuf_printf(&line, "%-8s  ", "TIME");
	for (int i = 0; i < PROFILE_TYPE_N; i++)
		put_cell(&line, profile_type_name((enum profile_type)i));
	put_cell(&line, "lost");
	strbuf_puts(&line, "busiest function");
	text_line(&w->text, STYLE_BOLD, line.data ?: "", out);
}

static void bucket_text(struct watching *w, const Sysprofd__V1__WatchResponse *m,
			struct strbuf *out)
{
	const Sysprofd__V1__Bucket *b = m->bucket;
	_cleanup_(strbuf_done) struct strbuf line = {};
	char buf[HUMAN_MAX], at[LOCAL_TIME_MAX];
	const char *leaf = NULL;
	uint64_t lost = 0;

	if (!w->headed)
		put_head(w, out);
	w->headed = true;
	if (!str_empty(b->gap)) {
		strbuf_printf(&line, "not recorded before this (%s)", b->gap);
		text_line(&w->text, STYLE_WARN, line.data ?: "", out);
		strbuf_reset(&line);
	}
	strbuf_printf(&line, "%s  ", local_time(b->start_ns, b->start_ns, at));
	for (int i = 0; i < PROFILE_TYPE_N; i++) {
		const Sysprofd__V1__Profile *p = profile_of(b, (enum profile_type)i);

		put_cell(&line,
			 p ? human_value((enum profile_type)i, p->coverage->total, buf) : "-");
		lost += p ? p->coverage->lost : 0;
		if (p && i == PROFILE_ON_CPU)
			leaf = heaviest_leaf(p);
	}
	put_cell(&line, human_count(lost, buf));
	strbuf_puts(&line, leaf ?: "-");
	text_line(&w->text, STYLE_PLAIN, line.data ?: "", out);
	if (m->skipped) {
		strbuf_reset(&line);
		strbuf_printf(&line, "%s buckets were skipped: this reader is too slow",
			      human_count(m->skipped, buf));
		text_line(&w->text, STYLE_WARN, line.data ?: "", out);
	}
}

static int on_message(void *ctx, const ProtobufCMessage *message)
{
	const Sysprofd__V1__WatchResponse *m = (const Sysprofd__V1__WatchResponse *)message;
	_cleanup_(strbuf_done) struct strbuf out = {};
	struct watching *w = ctx;

	if (!m->bucket)
		return 0;
	if (w->o->json)
		bucket_json(m, &out);
	else
		bucket_text(w, m, &out);
	return text_output(&out);
}

int command_watch(const struct options *o, struct client *c)
{
	Sysprofd__V1__WatchRequest q = SYSPROFD__V1__WATCH_REQUEST__INIT;
	_cleanup_(request_done) struct request selection = {};
	struct watching w = { .o = o };
	int r;

	if (request_init(&selection, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	text_init(&w.text, STDOUT_FILENO);
	if (o->type_given)
		q.type = selection.m.type;
	q.n_filters = selection.m.n_filters;
	q.filters = selection.m.filters;
	r = client_stream(c, "Watch", &q.base, &sysprofd__v1__watch_response__descriptor, 0,
			  on_message, &w);
	return r ? command_failed(c, r) : CTL_ANSWERED;
}
