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

size_t debug_paths(const struct debug_hints *h, const char *binary_path,
		   char ret[static DEBUG_PATHS_MAX])
{
	static const char *const patterns[] = { "%.*s/%s", "%.*s/.debug/%s", ROOT "%.*s/%s" };
	const char *slash = strrchr(binary_path, '/');
	size_t n = 0;
	int len;

	if (is_build_id(h->build_id)) {
		len = snprintf(ret, PATH_MAX, ROOT "/.build-id/%.2s/%s.debug", h->build_id,
			       h->build_id + 2);
		ret += len + 1;
		n++;
	}
	if (binary_path[0] != '/' || !is_base_name(h->link))
		return n;
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		len = snprintf(ret, PATH_MAX, patterns[i], (int)(slash - binary_path), binary_path,
			       h->link);
		if (len >= PATH_MAX)
			continue;
		ret += len + 1;
		n++;
	}
	return n;
}
