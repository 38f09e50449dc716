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

static void binary_row(struct table *t, const Sysprofd__V1__BinaryStacks *b)
{
	_cleanup_(strbuf_done) struct strbuf why = {};
	char buf[HUMAN_MAX];

	table_cell(t, human_count(b->samples - b->complete, buf));
	table_cell(t, human_share((double)b->complete, (double)b->samples, buf));
	table_cell(t, human_count(b->samples, buf));
	table_cell(t, human_share((double)b->frame_pointer, (double)b->samples, buf));
	table_cell(t, b->binary);
	losses_text(b->partial, b->n_partial, false, &why);
	table_cell(t, why.data ?: "");
}

static int answer_text(const Sysprofd__V1__StacksResponse *m, struct strbuf *out)
{
	struct table_column columns[] = {
		{ .head = "PARTIAL", .right = true },
		{ .head = "COMPLETE", .right = true, .keep = 3 },
		{ .head = "SAMPLES", .right = true, .keep = 2 },
		{ .head = "BY FP", .right = true, .keep = 1 },
		{ .head = "ENDED IN", .middle = true, .max = 48 },
		{ .head = "WHY", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	_cleanup_(strbuf_done) struct strbuf line = {};
	char n[HUMAN_MAX], share[HUMAN_MAX], fp[HUMAN_MAX];
	struct text text;

	text_init(&text, STDOUT_FILENO);
	strbuf_printf(&line,
		      "%s of %s samples have a complete user stack; %s were walked by frame "
		      "pointers in part",
		      human_share((double)m->complete, (double)m->samples, share),
		      human_count(m->samples, n),
		      human_share((double)m->frame_pointer, (double)m->samples, fp));
	text_wrap(&text, line.data ?: "", 2, out);
	strbuf_putc(out, '\n');
	for (size_t i = 0; i < m->n_binaries; i++)
		binary_row(&t, m->binaries[i]);
	return table_print(&t, &text, out);
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
