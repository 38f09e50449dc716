// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * speedscope's file format, one "sampled" profile: each path of the tree that has a weight of its own is one
 * sample. The samples are ordered by the tree, so its left-heavy and time views look alike: a merge has no time
 * order within.
 */
#include <inttypes.h>

#include "export/caption.h"
#include "export/escape.h"
#include "export/export.h"
#include "export/tree.h"

/* Frame numbers of the file: labels but 0 (unused) and 1 ("all"). */
#define FIRST_LABEL 2

static void add_frames(const struct flame_tree *t, struct strbuf *out)
{
	strbuf_puts(out, "\"shared\":{\"frames\":[");
	for (size_t i = FIRST_LABEL; i < t->n_labels; i++) {
		strbuf_puts(out, i > FIRST_LABEL ? ",\n{\"name\":" : "\n{\"name\":");
		escape_json(out, t->labels[i].text);
		if (!str_empty(t->labels[i].binary)) {
			strbuf_puts(out, ",\"file\":");
			escape_json(out, t->labels[i].binary);
		}
		strbuf_putc(out, '}');
	}
	strbuf_puts(out, "]},\n");
}

static int add_samples(const struct flame_tree *t, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf weights = {};
	_cleanup_free_ uint32_t *path = new0(uint32_t, t->max_depth + 1);
	bool first = true;

	if (!path)
		return -ENOMEM;
	strbuf_puts(out, "\"samples\":[");
	for (uint32_t i = flame_tree_next(t, 0); i; i = flame_tree_next(t, i)) {
		const struct flame_node *n = &t->nodes[i];

		path[n->depth] = n->label;
		if (n->self == 0)
			continue;
		strbuf_puts(out, first ? "\n[" : ",\n[");
		for (uint32_t d = 1; d <= n->depth; d++)
			strbuf_printf(out, "%s%u", d > 1 ? "," : "", path[d] - FIRST_LABEL);
		strbuf_putc(out, ']');
		strbuf_printf(&weights, "%s%" PRIu64, first ? "" : ",", n->self);
		first = false;
	}
	strbuf_puts(out, "],\n\"weights\":[");
	strbuf_add(out, weights.data, weights.len);
	strbuf_putc(out, ']');
	return strbuf_error(&weights);
}

int export_speedscope(const struct profile *p, const char *title, struct strbuf *out)
{
	_cleanup_(flame_tree_free_p) struct flame_tree *t = NULL;
	_cleanup_(strbuf_done) struct strbuf name = {};
	int r = flame_tree_new(p, &t);

	if (r < 0)
		return r;
	strbuf_printf(&name, "%s (", title);
	caption_what(p, &name);
	strbuf_puts(&name, "; ");
	caption_when(p, &name);
	strbuf_puts(&name, "; ");
	caption_missing(p, &name);
	strbuf_putc(&name, ')');
	r = strbuf_error(&name);
	if (r < 0)
		return r;

	strbuf_puts(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
			 "\"exporter\":\"sysprofd " SYSPROFD_VERSION "\",\n\"name\":");
	escape_json(out, title);
	strbuf_puts(out, ",\n\"activeProfileIndex\":0,\n");
	add_frames(t, out);
	strbuf_puts(out, "\"profiles\":[{\"type\":\"sampled\",\"name\":");
	escape_json(out, name.data);
	strbuf_printf(out, ",\n\"unit\":\"%s\",\"startValue\":0,\"endValue\":%" PRIu64 ",\n",
		      p->type == PROFILE_SYSCALLS || p->event ? "none" : "nanoseconds",
		      t->nodes[0].total);
	r = add_samples(t, out);
	strbuf_puts(out, "}]}\n");
	return r < 0 ? r : strbuf_error(out);
}
