// SPDX-License-Identifier: GPL-2.0-or-later
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <wchar.h>

#include "base/io.h"
#include "ctl/options.h"
#include "ctl/text.h"
#include "export/escape.h"

#define WIDTH_UNKNOWN 80 /* of a terminal that does not tell */
#define GAP 2 /* spaces between columns */
#define FLEXIBLE_MIN 16 /* columns of a name below which other columns go */

/* ---- the terminal ---------------------------------------------------------------------------- */

static unsigned terminal_width(int fd)
{
	struct winsize size = {};
	const char *columns = getenv("COLUMNS");
	unsigned long n;

	if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	n = columns ? strtoul(columns, NULL, 10) : 0;
	return n > 0 && n < 100000 ? (unsigned)n : WIDTH_UNKNOWN;
}

void text_init(struct text *t, int fd)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	*t = (struct text){ .terminal = isatty(fd) };
	setlocale(LC_CTYPE, "");
	t->utf8 = streq(nl_langinfo(CODESET), "UTF-8");
	/* Names are UTF-8 whatever the user's locale is, and their widths are needed. */
	if (!t->utf8 && !setlocale(LC_CTYPE, "C.UTF-8"))
		setlocale(LC_CTYPE, "C.utf8");
	if (!t->terminal)
		return;
	t->width = terminal_width(fd);
	t->color = str_empty(no_color) && !str_empty(term) && !streq(term, "dumb");
}

/* ---- characters ------------------------------------------------------------------------------ */

/* They make a terminal show what follows in another order: names could pass for other names. */
static bool is_direction(uint32_t c)
{
	return c == 0x200e || c == 0x200f || c == 0x061c || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

/* The next character, and how many columns it takes. What cannot be printed takes one, as a '?'. */
static size_t next_char(const char *s, size_t len, size_t *ret_columns, bool *ret_printable)
{
	uint32_t code;
	size_t n = utf8_next(s, len, &code);
	int w = wcwidth((wchar_t)code);

	/* A byte that is no UTF-8 was read as U+FFFD. */
	*ret_printable = w >= 0 && !(n == 1 && code == 0xfffd) && !is_direction(code);
	*ret_columns = *ret_printable ? (size_t)w : 1;
	return n;
}

size_t text_width(const char *s)
{
	size_t len = strlen(s), sum = 0, w;
	bool printable;

	for (size_t i = 0; i < len;) {
		i += next_char(s + i, len - i, &w, &printable);
		sum += w;
	}
	return sum;
}

/* Characters of s from the first on that fit in `room` columns; *ret_end is where they end. */
static void put_head(const char *s, size_t len, size_t room, struct strbuf *out)
{
	for (size_t i = 0, w; i < len;) {
		bool printable;
		size_t n = next_char(s + i, len - i, &w, &printable);

		if (w > room)
			break;
		room -= w;
		if (printable)
			strbuf_add(out, s + i, n);
		else
			strbuf_putc(out, '?');
		i += n;
	}
}

/* The last characters of s that fit in `room` columns. */
static void put_tail(const char *s, size_t len, size_t room, struct strbuf *out)
{
	size_t width = text_width(s), i = 0;

	while (i < len && width > room) {
		bool printable;
		size_t w;

		i += next_char(s + i, len - i, &w, &printable);
		width -= w;
	}
	put_head(s + i, len - i, room, out);
}

void text_fit(const struct text *t, const char *s, size_t width, bool middle, struct strbuf *out)
{
	const char *dots = t->utf8 ? "\xe2\x80\xa6" : "...";
	size_t len = strlen(s), dots_width = t->utf8 ? 1 : 3, head;

	if (width == 0 || text_width(s) <= width) {
		put_head(s, len, SIZE_MAX, out);
		return;
	}
	if (width <= dots_width) {
		put_head(s, len, width, out);
		return;
	}
	head = middle ? (width - dots_width) / 2 : width - dots_width;
	put_head(s, len, head, out);
	strbuf_puts(out, dots);
	if (middle)
		put_tail(s, len, width - dots_width - head, out);
}

/* The first line begins in column `first`. */
static void wrap(const struct text *t, const char *s, size_t first, unsigned indent,
		 struct strbuf *out)
{
	size_t column, blanks = 0; /* behind the word in front */

	if (t->width && t->width <= indent)
		indent = 0;
	if (t->width && t->width <= first)
		first = 0;
	column = first;
	strbuf_printf(out, "%*s", (int)first, "");
	while (*s) {
		size_t n = strcspn(s, " ");
		_cleanup_free_ char *word = strndup(s, n);
		size_t w;

		if (!word) {
			out->error = -ENOMEM;
			return;
		}
		w = text_width(word);
		if (blanks && t->width && column + blanks + w > t->width) {
			strbuf_printf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else {
			strbuf_printf(out, "%*s", (int)blanks, "");
			column += blanks;
		}
		text_fit(t, word, t->width ? t->width - MIN(column, t->width - 1) : 0, false, out);
		column += w;
		s += n;
		blanks = strspn(s, " ");
		s += blanks;
	}
	strbuf_putc(out, '\n');
}

void text_wrap(const struct text *t, const char *s, unsigned indent, struct strbuf *out)
{
	wrap(t, s, 0, indent, out);
}

static void begin_style(const struct text *t, enum text_style style, struct strbuf *out)
{
	static const char *const codes[] = {
		[STYLE_BOLD] = "\x1b[1m", [STYLE_DIM] = "\x1b[2m", [STYLE_WARN] = "\x1b[33m"
	};

	if (t->color && style != STYLE_PLAIN)
		strbuf_puts(out, codes[style]);
}

static void end_style(const struct text *t, enum text_style style, struct strbuf *out)
{
	if (t->color && style != STYLE_PLAIN)
		strbuf_puts(out, "\x1b[0m");
}

void text_line(const struct text *t, enum text_style style, const char *s, struct strbuf *out)
{
	begin_style(t, style, out);
	text_fit(t, s, t->width, false, out);
	end_style(t, style, out);
	strbuf_putc(out, '\n');
}

void text_sentence(const struct text *t, enum text_style style, const char *s, unsigned indent,
		   struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf lines = {};
	size_t first = strspn(s, " ");

	wrap(t, s + first, first, indent, &lines);
	if (strbuf_error(&lines) < 0) {
		out->error = -ENOMEM;
		return;
	}
	/* Pagers end a style with the line. */
	for (const char *line = lines.data; *line;) {
		size_t n = strcspn(line, "\n");

		begin_style(t, style, out);
		strbuf_add(out, line, n);
		end_style(t, style, out);
		strbuf_putc(out, '\n');
		line += n + 1;
	}
}

/* ---- tables ---------------------------------------------------------------------------------- */

void table_cell(struct table *t, const char *cell)
{
	int r;

	if (t->error)
		return;
	r = ARRAY_GROW(t->cells, t->cap_cells, t->n_cells + 1);
	if (r >= 0 && !(t->cells[t->n_cells] = strdup(cell)))
		r = -ENOMEM;
	if (r < 0)
		t->error = r;
	else
		t->n_cells++;
}

void table_cellf(struct table *t, const char *fmt, ...)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&b, fmt, ap);
	va_end(ap);
	if (b.error)
		t->error = b.error;
	else
		table_cell(t, b.data ?: "");
}

static void measure(struct table *t)
{
	for (size_t c = 0; c < t->n_columns; c++) {
		struct table_column *column = &t->columns[c];

		column->hidden = false;
		column->width = text_width(column->head);
		for (size_t i = c; i < t->n_cells; i += t->n_columns)
			column->width = MAX(column->width, text_width(t->cells[i]));
		if (column->max)
			column->width = MIN(column->width,
					    MAX(column->max, text_width(column->head)));
	}
}

/* The width of a line, with the flexible column counted as at most `flexible`. */
static size_t line_width(const struct table *t, size_t flexible)
{
	size_t sum = 0;

	for (size_t c = 0; c < t->n_columns; c++) {
		const struct table_column *column = &t->columns[c];

		if (column->hidden)
			continue;
		sum += (sum ? GAP : 0) +
		       (column->flexible ? MIN(column->width, flexible) : column->width);
	}
	return sum;
}

/* Hides the least needed column that is still shown. */
static bool hide_one(struct table *t)
{
	struct table_column *least = NULL;

	for (size_t c = 0; c < t->n_columns; c++) {
		struct table_column *column = &t->columns[c];

		if (!column->hidden && column->keep && (!least || column->keep < least->keep))
			least = column;
	}
	if (least)
		least->hidden = true;
	return least;
}

static void squeeze(struct table *t, unsigned width)
{
	while (line_width(t, FLEXIBLE_MIN) > width && hide_one(t))
		;
	for (size_t c = 0; c < t->n_columns; c++) {
		struct table_column *column = &t->columns[c];
		size_t others = line_width(t, 0);

		if (column->flexible)
			column->width = MIN(column->width, width > others ? width - others : 1);
	}
}

static void print_row(const struct table *t, const struct text *text, char *const *cells,
		      struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {}, cell = {};
	bool first = true;

	for (size_t c = 0; c < t->n_columns; c++) {
		const struct table_column *column = &t->columns[c];
		size_t pad;

		if (column->hidden)
			continue;
		strbuf_reset(&cell);
		text_fit(text, cells ? cells[c] : column->head, column->width, column->middle,
			 &cell);
		pad = column->width - MIN(column->width, text_width(cell.data ?: ""));
		if (!first)
			strbuf_printf(&line, "%*s", GAP, "");
		if (column->right)
			strbuf_printf(&line, "%*s", (int)pad, "");
		strbuf_add(&line, cell.data, cell.len);
		if (!column->right)
			strbuf_printf(&line, "%*s", (int)pad, "");
		first = false;
	}
	while (line.len > 0 && line.data[line.len - 1] == ' ')
		line.data[--line.len] = 0;
	if (line.error || cell.error)
		out->error = -ENOMEM;
	else /* a terminal narrower than the numbers alone */
		text_line(text, cells ? STYLE_PLAIN : STYLE_BOLD, line.data ?: "", out);
}

int table_print(struct table *t, const struct text *text, struct strbuf *out)
{
	if (t->error)
		return t->error;
	assert(t->n_cells % t->n_columns == 0);
	measure(t);
	if (text->width)
		squeeze(t, text->width);
	print_row(t, text, NULL, out);
	for (size_t i = 0; i < t->n_cells; i += t->n_columns)
		print_row(t, text, t->cells + i, out);
	return strbuf_error(out);
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){};
}

/* ---- saying things --------------------------------------------------------------------------- */

void complain(const char *fmt, ...)
{
	_cleanup_(strbuf_done) struct strbuf text = {}, line = {};
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&text, fmt, ap);
	va_end(ap);
	strbuf_puts(&line, "sysprofctl: ");
	escape_utf8(&line, text.data ?: "out of memory");
	strbuf_putc(&line, '\n');
	/* Nobody can be told that stderr is gone. */
	if (!line.error && write_full(STDERR_FILENO, line.data, line.len) < 0)
		return;
}

int text_output(const struct strbuf *b)
{
	int r = b->error;

	if (r >= 0)
		r = write_full(STDOUT_FILENO, b->data, b->len);
	if (r == -EPIPE) /* the reader has seen enough */
		return CTL_FAILED;
	if (r < 0) {
		complain("standard output: %s", strerror(-r));
		return CTL_FAILED;
	}
	return CTL_ANSWERED;
}
