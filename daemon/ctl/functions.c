// SPDX-License-Identifier: GPL-2.0-or-later
#include "ctl/functions.h"
#include "export/caption.h"
#include "export/functions.h"
#include "export/human.h"
#include "export/view.h"

#define BINARY_WIDTH 24

static void add_line(const struct text *text, struct strbuf *line, struct strbuf *out)
{
	text_wrap(text, line->data ?: "", 2, out);
	if (line->error)
		out->error = line->error;
	strbuf_reset(line);
}

static void header_text(const struct profile *p, const char *title, const struct text *text,
			struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	text_line(text, STYLE_BOLD, title, out);
	caption_what(p, &line);
	add_line(text, &line, out);
	caption_when(p, &line);
	strbuf_puts(&line, "; ");
	caption_missing(p, &line);
	add_line(text, &line, out);
	if (*p->instructions.why_not) {
		strbuf_printf(&line, "no %s: %s", quotient_unit(p), p->instructions.why_not);
		add_line(text, &line, out);
	}
	strbuf_putc(out, '\n');
}

static int rows_text(const struct profile *p, const struct functions *f, const struct text *text,
		     struct strbuf *out)
{
	const struct table_column columns[] = {
		{ .head = "SELF", .right = true },
		{ .head = "SHARE", .right = true, .keep = 4 },
		{ .head = "TOTAL", .right = true, .keep = 3 },
		{ .head = quotient_head(p), .right = true, .keep = 2 },
		{ .head = "BINARY",
		  .max = text->terminal ? BINARY_WIDTH : 0,
		  .middle = true,
		  .keep = 1 },
		{ .head = "FUNCTION", .flexible = true },
	};
	struct table_column shown[ARRAY_SIZE(columns)];
	_cleanup_(table_done) struct table t = { .columns = shown };
	char buf[HUMAN_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (i != 3 || p->instructions.sampled)
			shown[t.n_columns++] = columns[i];
	for (size_t i = 0; i < f->n_rows; i++) {
		const struct function_row *row = &f->rows[i];

		table_cell(&t, human_weight(p, row->self, buf));
		table_cell(&t, human_share((double)row->self, (double)p->total, buf));
		table_cell(&t, human_weight(p, row->total, buf));
		if (p->instructions.sampled)
			table_cell(&t, quotient_text(p, &row->pair, buf));
		table_cell(&t, row->function->binary);
		table_cell(&t, row->function->text);
	}
	return table_print(&t, text, out);
}

int functions_text(const struct profile *p, const char *title, const struct text *text,
		   struct strbuf *out)
{
	_cleanup_(functions_done) struct functions f = {};
	int r = functions_new(p, &f);

	if (r < 0)
		return r;
	header_text(p, title, text, out);
	if (f.n_rows)
		return rows_text(p, &f, text, out);
	text_line(text, STYLE_PLAIN, view_empty_reason(p) ?: "nothing was sampled", out);
	return strbuf_error(out);
}
