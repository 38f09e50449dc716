// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
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

/* Paths behind one another, each with its NUL; what is too long is left out. */
struct paths {
	char *at;
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct paths *p, const char *fmt, ...)
{
	va_list ap;
	int len;

	if (p->n == DEBUG_PLACES)
		return;
	va_start(ap, fmt);
	len = vsnprintf(p->at, PATH_MAX, fmt, ap);
	va_end(ap);
	if (len < 0 || len >= PATH_MAX)
		return;
	p->at += len + 1;
	p->n++;
}

static void add_by_build_id(struct paths *p, const char *build_id)
{
	if (is_build_id(build_id))
		add(p, ROOT "/.build-id/%.2s/%s.debug", build_id, build_id + 2);
}

/* The length of the directory's path, without the slash at its end. */
static int directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash - path) : 0;
}

size_t debug_paths(const struct debug_hints *h, const char *binary_path,
		   char ret[static DEBUG_PATHS_MAX])
{
	int len = directory_of(binary_path);
	struct paths p = { ret, 0 };

	add_by_build_id(&p, h->build_id);
	if (binary_path[0] != '/' || !is_base_name(h->link))
		return p.n;
	add(&p, "%.*s/%s", len, binary_path, h->link);
	add(&p, "%.*s/.debug/%s", len, binary_path, h->link);
	add(&p, ROOT "%.*s/%s", len, binary_path, h->link);
	return p.n;
}

/* What dwz moved: the link is relative to the file that has it. */
static void add_common(struct paths *p, const struct debug_part *part, const char *beside)
{
	const char *slash = strrchr(part->path, '/'), *base = slash ? slash + 1 : part->path;

	if (part->path[0] == '/')
		add(p, "%s", part->path);
	else if (beside[0] == '/')
		add(p, "%.*s/%s", directory_of(beside), beside, part->path);
	add_by_build_id(p, part->build_id);
	if (is_base_name(base))
		add(p, ROOT "/.dwz/%s", base);
}

/* Where it was built, or where the program was brought to. */
static void add_split(struct paths *p, const struct debug_part *part, const char *binary_path)
{
	const char *slash = strrchr(part->path, '/'), *base = slash ? slash + 1 : part->path;
	int len = directory_of(binary_path);

	if (part->path[0] == '/')
		add(p, "%s", part->path);
	else if (part->directory[0] == '/')
		add(p, "%s/%s", part->directory, part->path);
	if (binary_path[0] != '/')
		return;
	if (part->path[0] != '/')
		add(p, "%.*s/%s", len, binary_path, part->path);
	if (is_base_name(base) && base != part->path)
		add(p, "%.*s/%s", len, binary_path, base);
}

size_t debug_part_paths(const struct debug_part *part, const char *binary_path,
			const char *debug_path, char ret[static DEBUG_PATHS_MAX])
{
	struct paths p = { ret, 0 };

	switch (part->kind) {
	case SYSPROFD__V1__WANTED_KIND__WANTED_KIND_COMMON:
		add_common(&p, part, *debug_path ? debug_path : binary_path);
		break;
	case SYSPROFD__V1__WANTED_KIND__WANTED_KIND_SPLIT:
		add_split(&p, part, binary_path);
		break;
	case SYSPROFD__V1__WANTED_KIND__WANTED_KIND_PACKAGE:
		if (binary_path[0] == '/')
			add(&p, "%s.dwp", binary_path);
		if (debug_path[0] == '/')
			add(&p, "%s.dwp", debug_path);
		break;
	default:
		break;
	}
	return p.n;
}
