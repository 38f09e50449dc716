// SPDX-License-Identifier: GPL-2.0-or-later
/* stacks: which binaries spoil user stacks, and why. */
#include "ctl/command.h"
#include "ctl/coverage.h"
#include "ctl/json.h"
#include "ctl/text.h"
#include "export/human.h"

static void binary_json(struct json *j, const Sysprofd__V1__BinaryStacks *b)
{
	json_object(j);
	json_key(j, "binary");
	json_string(j, b->binary);
	json_key(j, "build_id");
	json_string(j, b->build_id);
	json_key(j, "samples");
	json_unsigned(j, b->samples);
	json_key(j, "complete");
	json_unsigned(j, b->complete);
	json_key(j, "frame_pointer");
	json_unsigned(j, b->frame_pointer);
	losses_json(j, "partial", b->partial, b->n_partial, false);
	json_object_end(j);
}

static void answer_json(const Sysprofd__V1__StacksResponse *m, struct strbuf *out)
{
	struct json j = { .out = out };

	json_object(&j);
	json_key(&j, "samples");
	json_unsigned(&j, m->samples);
	json_key(&j, "complete");
	json_unsigned(&j, m->complete);
	json_key(&j, "frame_pointer");
	json_unsigned(&j, m->frame_pointer);
	json_key(&j, "rows");
	json_array(&j);
	for (size_t i = 0; i < m->n_binaries; i++)
		binary_json(&j, m->binaries[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

static int most_first(const void *a, const void *b)
{
	const Sysprofd__V1__Loss *x = *(Sysprofd__V1__Loss *const *)a;
	const Sysprofd__V1__Loss *y = *(Sysprofd__V1__Loss *const *)b;

	return x->count > y->count ? -1 : x->count < y->count;
}

static void binary_row(struct table *t, const Sysprofd__V1__BinaryStacks *b)
{
	_cleanup_(strbuf_done) struct strbuf why = {};
	char buf[HUMAN_MAX];

	/* A narrow terminal cuts the last ones. */
	if (b->n_partial)
		qsort(b->partial, b->n_partial, sizeof(b->partial[0]), most_first);

	table_cell(t, human_count(b->samples - b->complete, buf));
	table_cell(t, human_share((double)b->complete, (double)b->samples, buf));
	table_cell(t, human_count(b->samples, buf));
	table_cell(t, human_share((double)b->frame_pointer, (double)b->samples, buf));
	table_cell(t, b->binary);
	losses_text(b->partial, b->n_partial, false, &why);
	table_cell(t, why.data ?: "");
}

/* In the order of how often they are met. */
static const struct {
	const char *reason, *meaning;
} reasons[] = {
	{ "no-table",
	  "the table to walk a binary by is not built yet, finds no room in "
	  "unwind-memory, or its file cannot be read; `sysprofctl status` counts them" },
	{ "no-process", "what a new process had mapped was not known yet" },
	{ "pending", "the memory of a waiting thread could not be read, as when it ends; shown "
		     "below [user stack pending]" },
	{ "runtime-code", "code that was made at run time, and keeps no frame pointer" },
	{ "no-row", "code without call frame information, and without frame pointer" },
	{ "no-mapping", "an address where no code is known" },
	{ "read-failed", "the stack's next page was not in memory" },
	{ "unsupported", "the caller can be found only by a register that is not followed" },
	{ "not-ascending",
	  "the next frame did not lie above: no frame pointer, or a damaged stack" },
	{ "limit", "more than 512 frames; shown below [truncated]" },
	{ "no-registers", "the kernel gave no registers of the user's side" },
};

static bool has_reason(const Sysprofd__V1__StacksResponse *m, const char *reason)
{
	for (size_t i = 0; i < m->n_binaries; i++)
		for (size_t j = 0; j < m->binaries[i]->n_partial; j++)
			if (m->binaries[i]->partial[j]->count > 0 &&
			    streq(m->binaries[i]->partial[j]->reason, reason))
				return true;
	return false;
}

/* What the reasons above it mean. */
static void put_meanings(const Sysprofd__V1__StacksResponse *m, const struct text *t,
			 struct strbuf *out)
{
	const char *gap = "\n";

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		_cleanup_(strbuf_done) struct strbuf line = {};

		if (!has_reason(m, reasons[i].reason))
			continue;
		strbuf_puts(out, gap);
		gap = "";
		strbuf_printf(&line, "%s: %s", reasons[i].reason, reasons[i].meaning);
		text_wrap(t, line.data ?: "", 2, out);
	}
}

static int answer_text(const Sysprofd__V1__StacksResponse *m, struct strbuf *out)
{
	struct table_column columns[] = {
		{ .head = "PARTIAL", .right = true },
		{ .head = "COMPLETE", .right = true, .keep = 3 },
		{ .head = "SAMPLES", .right = true, .keep = 2 },
		{ .head = "BY FP", .right = true, .keep = 1 },
		{ .head = "ENDED IN", .middle = true, .max = 36 },
		{ .head = "WHY", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	_cleanup_(strbuf_done) struct strbuf line = {};
	char n[HUMAN_MAX], share[HUMAN_MAX], fp[HUMAN_MAX];
	struct text text;
	int r;

	text_init(&text, STDOUT_FILENO);
	strbuf_printf(&line,
		      "%s of %s samples since the daemon's start have a complete user stack; %s "
		      "were walked by frame pointers in part",
		      human_share((double)m->complete, (double)m->samples, share),
		      human_count(m->samples, n),
		      human_share((double)m->frame_pointer, (double)m->samples, fp));
	text_wrap(&text, line.data ?: "", 2, out);
	strbuf_putc(out, '\n');
	for (size_t i = 0; i < m->n_binaries; i++)
		binary_row(&t, m->binaries[i]);
	r = table_print(&t, &text, out);
	if (r >= 0)
		put_meanings(m, &text, out);
	return r;
}

int command_stacks(const struct options *o, struct client *c)
{
	Sysprofd__V1__StacksRequest q = SYSPROFD__V1__STACKS_REQUEST__INIT;
	_cleanup_(strbuf_done) struct strbuf out = {};
	ProtobufCMessage *answer = NULL;
	int r;

	q.limit = o->rows;
	r = client_call(c, "Stacks", &q.base, &sysprofd__v1__stacks_response__descriptor, &answer);
	if (r)
		return command_failed(c, r);
	if (o->json)
		answer_json((Sysprofd__V1__StacksResponse *)answer, &out);
	else if (answer_text((Sysprofd__V1__StacksResponse *)answer, &out) < 0)
		out.error = -ENOMEM;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}
