// SPDX-License-Identifier: GPL-2.0-or-later
#include "export/export.h"

static const struct {
	const char *name;
	const char *ending;
} formats[EXPORT_FORMAT_N] = {
	[EXPORT_SVG] = { "svg", ".svg" },
	[EXPORT_HTML] = { "html", ".html" },
	[EXPORT_FOLDED] = { "folded", ".folded" },
	[EXPORT_PPROF] = { "pprof", ".pb.gz" },
	[EXPORT_SPEEDSCOPE] = { "speedscope", ".json" },
};

const char *export_format_name(enum export_format format)
{
	return formats[format].name;
}

int export_format_from_name(const char *name)
{
	for (int i = 0; i < EXPORT_FORMAT_N; i++)
		if (streq(name, formats[i].name))
			return i;
	return -EINVAL;
}

int export_format_from_path(const char *path)
{
	size_t len = strlen(path);

	for (int i = 0; i < EXPORT_FORMAT_N; i++) {
		size_t n = strlen(formats[i].ending);

		if (len > n && streq(path + len - n, formats[i].ending))
			return i;
	}
	return -EINVAL;
}

int export_profile(const struct profile *p, enum export_format format, const char *title,
		   struct strbuf *out)
{
	switch (format) {
	case EXPORT_SVG:
		return export_svg(p, title, out);
	case EXPORT_HTML:
		return export_html(p, title, out);
	case EXPORT_FOLDED:
		return export_folded(p, out);
	case EXPORT_PPROF:
		return export_pprof(p, out);
	case EXPORT_SPEEDSCOPE:
		return export_speedscope(p, title, out);
	default:
		return -EINVAL;
	}
}
