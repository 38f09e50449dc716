// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "symbol/debug-file.h"

#define ROOT "/usr/lib/debug"

static bool is_build_id(const char *s)
{
	size_t len = strlen(s);

	return len > 2 && strspn(s, "0123456789abcdef") == len;
}

static bool is_base_name(const char *s)
{
	return *s && !strchr(s, '/') && !streq(s, ".") && !streq(s, "..");
}

bool debug_place(const struct debug_hints *h, const char *binary_path, unsigned place,
		 char ret[static PATH_MAX])
{
	static const char *const patterns[] = { "%.*s/%s", "%.*s/.debug/%s", ROOT "%.*s/%s" };
	const char *slash = strrchr(binary_path, '/');
	int n;

	if (place == 0) {
		if (!is_build_id(h->build_id))
			return false;
		n = snprintf(ret, PATH_MAX, ROOT "/.build-id/%.2s/%s.debug", h->build_id,
			     h->build_id + 2);
	} else {
		if (binary_path[0] != '/' || !is_base_name(h->link))
			return false;
		n = snprintf(ret, PATH_MAX, patterns[place - 1], (int)(slash - binary_path),
			     binary_path, h->link);
	}
	return n < PATH_MAX;
}
