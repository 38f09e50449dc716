// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Folded text: "process;root;...;leaf N" a line. N is exclusive and an integer: samples for on-CPU,
 * or what drove a recording; nanoseconds for off-CPU and futex, calls for syscalls. Lines with N = 0 are left out.
 */
#include <inttypes.h>

#include "export/escape.h"
#include "export/export.h"
#include "export/tree.h"

int export_folded(const struct profile *p, struct strbuf *out)
{
	_cleanup_(flame_tree_free_p) struct flame_tree *t = NULL;
	_cleanup_(strbuf_done) struct strbuf path = {};
	_cleanup_free_ size_t *ends = NULL; /* by depth: where the path of that depth ends */
	int r = flame_tree_new(p, &t);

	if (r < 0)
		return r;
	ends = new0(size_t, t->max_depth + 1);
	if (!ends)
		return -ENOMEM;
	for (uint32_t i = flame_tree_next(t, 0); i; i = flame_tree_next(t, i)) {
		const struct flame_node *n = &t->nodes[i];
		uint64_t weight = p->type == PROFILE_ON_CPU && !p->event ? n->count : n->self;

		path.len = ends[n->depth - 1];
		if (path.len)
			strbuf_putc(&path, ';');
		escape_folded(&path, flame_label(t, i)->text);
		ends[n->depth] = path.len;
		if (weight == 0)
			continue;
		strbuf_add(out, path.data, path.len);
		strbuf_printf(out, " %" PRIu64 "\n", weight);
	}
	r = strbuf_error(&path);
	return r < 0 ? r : strbuf_error(out);
}
