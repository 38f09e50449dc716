/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text for people: widths in terminal columns, tables, wrapped paragraphs. On a terminal no line is wider than
 * it; elsewhere nothing is cut. Names come from strangers: control characters never reach the terminal.
 *
 * Widths come from wcwidth(3) and need an LC_CTYPE of UTF-8, which text_init() sets for the process.
 */
#pragma once

#include "base/strbuf.h"

struct text {
	bool terminal;
	bool color;
	bool utf8; /* the user's locale: whether "…" and bars may be used */
	unsigned width; /* in columns; 0: unlimited */
};

/* Looks at a descriptor, the environment (COLUMNS, NO_COLOR, TERM) and the locale. */
void text_init(struct text *t, int fd);

/* Columns that s takes, made printable. */
size_t text_width(const char *s);
/* s made printable, and cut at its end, or in its middle, to at most width columns (0: not cut). */
void text_fit(const struct text *t, const char *s, size_t width, bool middle, struct strbuf *out);
/* Words of s, as lines of at most the terminal's width, the second and later ones indented. */
void text_wrap(const struct text *t, const char *s, unsigned indent, struct strbuf *out);

enum text_style {
	STYLE_PLAIN,
	STYLE_BOLD,
	STYLE_DIM,
	STYLE_WARN,
};
/* One line in a style; cut to the terminal. */
void text_line(const struct text *t, enum text_style style, const char *s, struct strbuf *out);
/* text_wrap() in a style; blanks that s begins with indent the first line. */
void text_sentence(const struct text *t, enum text_style style, const char *s, unsigned indent,
		   struct strbuf *out);

/* ---- tables ---------------------------------------------------------------------------------- */

struct table_column {
	const char *head;
	bool right; /* numbers */
	bool flexible; /* gives way when the terminal is narrow; not more than one, the last */
	bool middle; /* is cut in the middle */
	unsigned max; /* columns at most; 0: any */
	unsigned
		keep; /* the columns with the lowest go first when nothing else helps; 0: never goes */
	/* computed */
	size_t width;
	bool hidden;
};

struct table {
	struct table_column *columns; /* the caller's */
	size_t n_columns;
	char **cells; /* rows by columns, owned */
	size_t n_cells, cap_cells;
	int error;
};

void table_cell(struct table *t, const char *cell); /* the next cell, row by row */
void table_cellf(struct table *t, const char *fmt, ...) _printf_(2, 3);
int table_print(struct table *t, const struct text *text, struct strbuf *out);
void table_done(struct table *t);

/* ---- saying things --------------------------------------------------------------------------- */

/* "sysprofctl: ..." on stderr, one line whatever the text holds. */
void complain(const char *fmt, ...) _printf_(1, 2);
/* Writes it all to standard output; an enum ctl_exit. */
int text_output(const struct strbuf *b);
