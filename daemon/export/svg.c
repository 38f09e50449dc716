// SPDX-License-Identifier: GPL-2.0-or-later
/* A flame graph as a file of its own: valid XML whatever the names hold, interactive where scripts run. */
#include "export/export.h"
#include "export/view.h"

int export_svg(const struct profile *p, const char *title, struct strbuf *out)
{
	strbuf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	return view_write(p, title, VIEW_STANDALONE, out);
}
