// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Geometry: the root row on top, callees below (an icicle), so that the header, the controls and the root are
 * together on the screen however deep the deepest stack is. Everything is laid out here, for a width of 1200;
 * the script only re-lays it out. A frame is
 *
 *   <g class="f u2" data-d="depth" data-v="total"><title>name\nfacts</title><rect/><text/></g>
 *
 * u user, k kernel, j jit, p process, m marker, a all; the digit is one of four shades, chosen by name, so that
 * neighbours differ and a function looks the same in two pictures.
 */
#include <inttypes.h>

#include "export/caption.h"
#include "export/escape.h"
#include "export/human.h"
#include "export/tree.h"
#include "export/view.h"

#define WIDTH 1200
#define MARGIN 10
#define ROW 17
#define CHAR_WIDTH 7.25
#define TITLE_CHAR_WIDTH 9.7
#define HEADER 96 /* title, captions, legend */
#define FOOTER 28 /* details of the frame under the pointer */
#define EMBEDDED_HEADER 4
#define NODES_MAX \
	20000 /* more frames than browsers move smoothly: the narrowest are left out, and said */

struct view {
	const struct profile *p;
	const struct flame_tree *t;
	struct strbuf *out;
	double *x; /* by node */
	uint64_t cutoff; /* totals below it are not drawn */
	size_t hidden;
	unsigned top; /* y of the first row */
	unsigned rows;
};

static const char kind_class[FLAME_KIND_N] = {
	[FLAME_ALL] = 'a',    [FLAME_PROCESS] = 'p', [FLAME_USER] = 'u',
	[FLAME_KERNEL] = 'k', [FLAME_JIT] = 'j',     [FLAME_MARKER] = 'm',
};

static const char *const kind_word[FLAME_KIND_N] = {
	[FLAME_ALL] = "all",	   [FLAME_PROCESS] = "process", [FLAME_USER] = "user",
	[FLAME_KERNEL] = "kernel", [FLAME_JIT] = "jit",		[FLAME_MARKER] = "marker",
};

const char *view_empty_reason(const struct profile *p)
{
	if (p->columns.n > 0)
		return NULL;
	return p->covered_ns ? "idle: this time was recorded, and nothing matches the selection"
			     : "not recorded: no data exists for this time";
}

/* The characters of s that fit, and "…" for the rest. */
static void put_fitting(struct strbuf *out, const char *s, size_t fits)
{
	_cleanup_(strbuf_done) struct strbuf cut = {};
	size_t len = strlen(s), chars = 0, end = 0;
	uint32_t c;

	for (size_t i = 0; i < len; chars++) {
		i += utf8_next(s + i, len - i, &c);
		if (chars + 1 < fits)
			end = i;
	}
	if (chars <= fits) {
		escape_xml(out, s);
		return;
	}
	strbuf_add(&cut, s, end);
	if (cut.error)
		out->error = cut.error;
	else
		escape_xml(out, cut.data ?: "");
	strbuf_puts(out, "\xe2\x80\xa6");
}

static void put_title(const struct view *v, uint32_t node)
{
	const struct flame_node *n = &v->t->nodes[node];
	const struct flame_label *l = flame_label(v->t, node);
	double whole = (double)v->t->nodes[0].total;
	char value[HUMAN_MAX], share[HUMAN_MAX];

	strbuf_puts(v->out, "<title>");
	escape_xml(v->out, l->text);
	strbuf_printf(v->out, "\n%s, %s", human_weight(v->p, n->total, value),
		      human_share((double)n->total, whole, share));
	if (n->self != n->total)
		strbuf_printf(v->out, "; self %s, %s", human_weight(v->p, n->self, value),
			      human_share((double)n->self, whole, share));
	strbuf_printf(v->out, "; %s", kind_word[l->kind]);
	if (!str_empty(l->binary)) {
		strbuf_puts(v->out, ", ");
		escape_xml(v->out, l->binary);
	}
	if (v->p->instructions.sampled)
		strbuf_printf(v->out, "; %s %s", quotient_text(v->p, &n->pair, value),
			      quotient_unit(v->p));
	strbuf_puts(v->out, "</title>");
}

static void put_frame(struct view *v, uint32_t node)
{
	const struct flame_node *n = &v->t->nodes[node];
	const struct flame_label *l = flame_label(v->t, node);
	uint64_t whole = v->t->nodes[0].total;
	double w = whole ? (double)n->total / (double)whole * (WIDTH - 2 * MARGIN)
			 : WIDTH - 2 * MARGIN;
	unsigned y = v->top + n->depth * ROW;
	size_t fits = w > 6 ? (size_t)((w - 6) / CHAR_WIDTH) : 0;

	strbuf_printf(v->out, "<g class=\"f %c%u\" data-d=\"%u\" data-v=\"%" PRIu64 "\">",
		      kind_class[l->kind], l->kind == FLAME_ALL ? 0 : (unsigned)(l->hash & 3),
		      n->depth, n->total);
	put_title(v, node);
	strbuf_printf(v->out, "<rect x=\"%.3f\" y=\"%u\" width=\"%.3f\" height=\"%u\"/>",
		      v->x[node], y, w, ROW - 1);
	if (fits >= 3) {
		strbuf_printf(v->out, "<text x=\"%.3f\" y=\"%u\">", v->x[node] + 3, y + 12);
		put_fitting(v->out, l->text, fits);
		strbuf_puts(v->out, "</text>");
	}
	strbuf_puts(v->out, "</g>\n");
}

/* Every node's left edge: its parent's, moved by the siblings before it. */
static void lay_out(struct view *v)
{
	const struct flame_tree *t = v->t;
	double scale = t->nodes[0].total ? (WIDTH - 2 * MARGIN) / (double)t->nodes[0].total : 0;
	uint32_t i = 0;

	v->x[0] = MARGIN;
	do {
		double x = v->x[i];

		for (uint32_t c = t->nodes[i].child; c; c = t->nodes[c].next) {
			v->x[c] = x;
			x += (double)t->nodes[c].total * scale;
		}
		i = flame_tree_next(t, i);
	} while (i);
}

static int compare_descending(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a > b ? -1 : a < b;
}

/* Chooses what is drawn: at most NODES_MAX frames. A parent is never lighter than its child. */
static int choose(struct view *v)
{
	const struct flame_tree *t = v->t;
	_cleanup_free_ uint64_t *totals = NULL;

	v->cutoff = 1;
	if (t->n_nodes > NODES_MAX) {
		totals = new0(uint64_t, t->n_nodes);
		if (!totals)
			return -ENOMEM;
		for (size_t i = 0; i < t->n_nodes; i++)
			totals[i] = t->nodes[i].total;
		qsort(totals, t->n_nodes, sizeof(*totals), compare_descending);
		v->cutoff = MAX(totals[NODES_MAX] + 1, 1);
	}
	for (size_t i = 1; i < t->n_nodes; i++) {
		if (t->nodes[i].total < v->cutoff) /* one without has instructions alone */
			v->hidden += t->nodes[i].total > 0;
		else
			v->rows = MAX(v->rows, t->nodes[i].depth + 1);
	}
	return 0;
}

/* Cut to the width; whole where the pointer rests on it. */
static void put_line(struct view *v, unsigned y, const char *class, double char_width,
		     const char *text)
{
	strbuf_printf(v->out, "<text x=\"%d\" y=\"%u\" class=\"%s\"><title>", MARGIN, y, class);
	escape_xml(v->out, text);
	strbuf_puts(v->out, "</title>");
	put_fitting(v->out, text, (size_t)((WIDTH - 2 * MARGIN) / char_width));
	strbuf_puts(v->out, "</text>\n");
}

static void put_legend(struct view *v, unsigned y)
{
	static const enum flame_kind shown[] = { FLAME_PROCESS, FLAME_USER, FLAME_KERNEL, FLAME_JIT,
						 FLAME_MARKER };
	unsigned x = MARGIN;

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
		const char *word = kind_word[shown[i]];

		strbuf_printf(v->out,
			      "<g class=\"%c0\"><rect class=\"key\" x=\"%u\" y=\"%u\" width=\"12\" "
			      "height=\"12\"/><text x=\"%u\" y=\"%u\">%s</text></g>\n",
			      kind_class[shown[i]], x, y - 10, x + 16, y, word);
		x += 34 + (unsigned)(strlen(word) * CHAR_WIDTH);
	}
	strbuf_printf(v->out,
		      "<text id=\"search\" class=\"button\" x=\"%u\" y=\"%u\">search (/)</text>\n",
		      x + 20, y);
	strbuf_printf(v->out,
		      "<text id=\"reset\" class=\"button\" x=\"%u\" y=\"%u\">reset (Esc)</text>\n",
		      x + 112, y);
	strbuf_printf(v->out, "<text id=\"matched\" x=\"%u\" y=\"%u\"></text>\n", x + 212, y);
}

static int put_header(struct view *v, const char *title)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	put_line(v, 22, "title", TITLE_CHAR_WIDTH, title);
	caption_what(v->p, &line);
	strbuf_puts(&line, "; ");
	caption_when(v->p, &line);
	if (!line.error)
		put_line(v, 42, "faint", CHAR_WIDTH, line.data);
	strbuf_reset(&line);
	caption_missing(v->p, &line);
	if (v->hidden)
		strbuf_printf(&line, "; %zu frames too narrow to draw", v->hidden);
	if (!line.error)
		put_line(v, 58, "faint", CHAR_WIDTH, line.data);
	put_legend(v, 80);
	return strbuf_error(&line);
}

static int put_svg(struct view *v, const char *title, enum view_host host)
{
	const char *empty = view_empty_reason(v->p);
	uint32_t node = 0;
	unsigned height;
	int r = 0;

	v->top = host == VIEW_STANDALONE ? HEADER : EMBEDDED_HEADER;
	height = v->top + v->rows * ROW + FOOTER;
	strbuf_printf(v->out,
		      "<svg id=\"flame\" xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" "
		      "width=\"%d\" height=\"%u\" viewBox=\"0 0 %d %u\" data-width=\"%d\" "
		      "data-height=\"%u\" data-row=\"%d\" data-margin=\"%d\">\n<style>\n",
		      WIDTH, height, WIDTH, height, WIDTH, height, ROW, MARGIN);
	strbuf_puts(v->out, view_css);
	strbuf_puts(v->out, "</style>\n");
	if (host == VIEW_STANDALONE)
		r = put_header(v, title);
	do {
		if (node == 0 || v->t->nodes[node].total >= v->cutoff)
			put_frame(v, node);
		node = flame_tree_next(v->t, node);
	} while (node);
	if (empty)
		put_line(v, v->top + ROW + 14, "faint", CHAR_WIDTH, empty);
	if (host == VIEW_STANDALONE) {
		strbuf_printf(v->out, "<text id=\"details\" x=\"%d\" y=\"%u\"></text>\n", MARGIN,
			      height - 10);
		strbuf_printf(v->out, "<script><![CDATA[\n%s]]></script>\n", view_js);
	}
	strbuf_puts(v->out, "</svg>\n");
	return r;
}

int view_write(const struct profile *p, const char *title, enum view_host host, struct strbuf *out)
{
	_cleanup_(flame_tree_free_p) struct flame_tree *t = NULL;
	_cleanup_free_ double *x = NULL;
	struct view v = { .p = p, .out = out, .rows = 1 };
	int r = flame_tree_new(p, &t);

	if (r < 0)
		return r;
	v.t = t;
	v.x = x = new0(double, t->n_nodes);
	if (!x)
		return -ENOMEM;
	r = choose(&v);
	if (r < 0)
		return r;
	lay_out(&v);
	r = put_svg(&v, title, host);
	return r < 0 ? r : strbuf_error(out);
}
