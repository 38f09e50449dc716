/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A profile as bytes. Pure functions: no clock, no files, no locale; the same profile gives the same bytes. */
#pragma once

#include "base/strbuf.h"
#include "model/profile.h"

enum export_format {
	EXPORT_SVG,
	EXPORT_HTML,
	EXPORT_FOLDED,
	EXPORT_PPROF,
	EXPORT_SPEEDSCOPE,
	EXPORT_FORMAT_N
};
const char *export_format_name(enum export_format format);
int export_format_from_name(const char *name); /* "svg", "html", "folded", "pprof", "speedscope" */
int export_format_from_path(const char *path); /* .svg .html .folded .pb.gz .json; -EINVAL */

int export_pprof(const struct profile *p, struct strbuf *out); /* gzip-compressed profile.proto */
int export_folded(const struct profile *p, struct strbuf *out);
int export_svg(const struct profile *p, const char *title, struct strbuf *out);
int export_html(const struct profile *p, const char *title,
		struct strbuf *out); /* self-contained */
int export_speedscope(const struct profile *p, const char *title, struct strbuf *out);
int export_profile(const struct profile *p, enum export_format format, const char *title,
		   struct strbuf *out);
