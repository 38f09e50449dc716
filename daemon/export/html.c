// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The same flame graph in a page with controls. Self-contained: nothing is loaded from anywhere, and the
 * policy in its head forbids it.
 */
#include "export/caption.h"
#include "export/escape.h"
#include "export/export.h"
#include "export/view.h"

static const char page_css[] =
	":root { color-scheme: light; --page: #fff; --text: #222; --soft: #666; --line: #ccc; }\n"
	":root[data-theme=dark] { color-scheme: dark; --page: #1c1d20; --text: #ddd; --soft: #999; "
	"--line: #444; }\n"
	"body { margin: 0; padding: 12px 16px; background: var(--page); color: var(--text); "
	"font: 14px system-ui, sans-serif; }\n"
	"h1 { font-size: 20px; margin: 0 0 6px; overflow-wrap: anywhere; }\n"
	"p { margin: 2px 0; color: var(--soft); }\n"
	"nav { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; margin: 10px 0; "
	"}\n"
	"input, button { font: inherit; padding: 4px 8px; border: 1px solid var(--line); "
	"border-radius: 4px; "
	"background: var(--page); color: var(--text); }\n"
	"input { min-width: 22em; }\n"
	".swatch svg { width: 12px; height: 12px; vertical-align: -1px; margin-right: 4px; }\n"
	"#details { position: sticky; bottom: 0; min-height: 1.4em; padding: 4px 0; background: "
	"var(--page); "
	"font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; }\n";

static void put_caption(const struct profile *p, struct strbuf *line, struct strbuf *out)
{
	if (line->error)
		return;
	strbuf_puts(out, "<p>");
	escape_xml(out, line->data ?: "");
	strbuf_puts(out, "</p>\n");
	strbuf_reset(line);
}

static int put_captions(const struct profile *p, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	caption_what(p, &line);
	strbuf_puts(&line, "; ");
	caption_when(p, &line);
	put_caption(p, &line, out);
	caption_missing(p, &line);
	put_caption(p, &line, out);
	return strbuf_error(&line);
}

static void put_controls(struct strbuf *out)
{
	static const struct {
		char class;
		const char *word;
	} kinds[] = { { 'p', "process" },
		      { 'u', "user" },
		      { 'k', "kernel" },
		      { 'j', "jit" },
		      { 'm', "marker" } };

	strbuf_puts(out, "<nav>\n<input id=\"filter\" type=\"search\" placeholder=\"Filter: part "
			 "of a name, or a "
			 "regular expression\" aria-label=\"Filter\" autocomplete=\"off\">\n"
			 "<button id=\"reset\" type=\"button\">Reset</button>\n"
			 "<button id=\"theme\" type=\"button\">Light / dark</button>\n"
			 "<span id=\"matched\" role=\"status\"></span>\n");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		strbuf_printf(out,
			      "<span class=\"swatch\"><svg class=\"%c0\" "
			      "aria-hidden=\"true\"><rect width=\"12\" "
			      "height=\"12\"/></svg>%s</span>\n",
			      kinds[i].class, kinds[i].word);
	strbuf_puts(out, "</nav>\n");
}

int export_html(const struct profile *p, const char *title, struct strbuf *out)
{
	int r;

	strbuf_puts(out,
		    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
		    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
	escape_xml(out, title);
	strbuf_printf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", page_css);
	escape_xml(out, title);
	strbuf_puts(out, "</h1>\n");
	r = put_captions(p, out);
	if (r < 0)
		return r;
	put_controls(out);
	strbuf_puts(out, "<main>\n");
	r = view_write(p, title, VIEW_EMBEDDED, out);
	if (r < 0)
		return r;
	strbuf_printf(
		out,
		"</main>\n<div id=\"details\"></div>\n<script>\n%s</script>\n</body>\n</html>\n",
		view_js);
	return strbuf_error(out);
}
