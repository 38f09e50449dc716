/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The flame graph itself: one <svg> element that the SVG file and the HTML page share. */
#pragma once

#include "base/strbuf.h"
#include "model/profile.h"

enum view_host {
	VIEW_STANDALONE, /* a file of its own: title, buttons and script inside */
	VIEW_EMBEDDED, /* in a page that has them */
};

int view_write(const struct profile *p, const char *title, enum view_host host, struct strbuf *out);

/* What there is no picture of: "not recorded" or "idle"; NULL when there is one. */
const char *view_empty_reason(const struct profile *p);

/* daemon/export/flame.css and flame.js, which the build puts into the program. */
extern const char view_css[], view_js[];
