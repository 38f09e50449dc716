// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdio.h>

#include "base/utf8.h"
#include "symbol/demangle.h"

/* Last: it defines macros of ours again. */
#include <libiberty/demangle.h>

/*
 * The C++ demangler goes as deep as the name is long, some 500 bytes of stack a byte at worst, and gives up
 * above 1 KiB unless told not to: names of templates are longer.
 */
#define MANGLED_MAX 4096
/*
 * The D demangler has no form with a callback. Each back reference doubles at most what was written before: so many
 * in so short a name make no more than 4 MiB.
 */
#define D_MANGLED_MAX 1024
#define D_REFERENCES_MAX 12

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/*
 * Whether s[0..len) is one suffix that a compiler gives to a copy or a part of a function, or Go to one of its calling
 * conventions. What always has a number is none without: ".part" may be a function of Go's.
 */
static bool is_clone_suffix(const char *s, size_t len)
{
	static const struct {
		const char *word;
		bool alone, numbered;
	} suffixes[] = {
		{ "cold", true, true },		{ "localalias", true, true },
		{ "part", false, true },	{ "isra", false, true },
		{ "constprop", false, true },	{ "lto_priv", false, true },
		{ "clone", false, true },	{ "llvm", false, true },
		{ "__uniq", false, true },	{ "abi0", true, false },
		{ "abiinternal", true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i].word);

		if (len < n + 1 || memcmp(s + 1, suffixes[i].word, n))
			continue;
		if (len == n + 1)
			return suffixes[i].alone;
		/* A number follows; LLVM's are hashes and may be hexadecimal. */
		if (!suffixes[i].numbered || s[n + 1] != '.' || len == n + 2)
			continue;
		for (n += 2; n < len && is_hex(s[n]); n++)
			;
		if (n == len)
			return true;
	}
	return false;
}

/* What is not a function of that name, but belongs to it: kept, behind the readable name. */
static const char *kept_suffix(const char *name)
{
	static const char *const suffixes[] = { "@plt", ".resolver" };
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i]);

		if (len > n && streq(name + len - n, suffixes[i]))
			return name + len - n;
	}
	return "";
}

size_t symbol_base_length(const char *name)
{
	const char *kept = kept_suffix(name);
	size_t len = *kept ? (size_t)(kept - name) : strlen(name);
	const char *version = memchr(name, '@', len);

	if (version && version != name)
		len = (size_t)(version - name);
	for (;;) {
		size_t dot = len, word;

		/* ".cold" or ".part.0": the last dot, or the one before it. */
		while (dot && name[dot - 1] != '.')
			dot--;
		if (dot < 2)
			return len;
		word = dot - 1;
		if (is_clone_suffix(name + word, len - word)) {
			len = word;
			continue;
		}
		for (dot = word; dot && name[dot - 1] != '.'; dot--)
			;
		if (dot < 2 || !is_clone_suffix(name + dot - 1, len - dot + 1))
			return len;
		len = dot - 1;
	}
}

struct output {
	char text[SYMBOL_NAME_MAX];
	size_t len;
	jmp_buf full;
};

/*
 * Pieces of the readable name as they are made. A few hundred mangled bytes can stand for gigabytes of
 * output: once the buffer is full, leave; the callback forms of the demanglers own no memory meanwhile (but
 * the few bytes of a punycode identifier).
 */
static void collect(const char *s, size_t len, void *opaque)
{
	struct output *o = opaque;
	size_t room = sizeof(o->text) - 1 - o->len;

	if (!len)
		return;
	memcpy(o->text + o->len, s, MIN(len, room));
	o->len += MIN(len, room);
	if (len > room)
		longjmp(o->full, 1);
}

/* Whether the output was made, be it only in part. */
static bool demangle(const char *mangled, struct output *o)
{
	int options = DMGL_PARAMS | DMGL_ANSI;

	o->len = 0;
	if (setjmp(o->full))
		return true;
	if (strncmp(mangled, "_R", 2) == 0 || strncmp(mangled, "_ZN", 3) == 0)
		if (rust_demangle_callback(mangled, options, collect, o) && o->len)
			return true;
	o->len = 0;
	if (strncmp(mangled, "_Z", 2) == 0)
		return cplus_demangle_v3_callback(mangled, options | DMGL_NO_RECURSE_LIMIT, collect,
						  o) &&
		       o->len;
	return false;
}

static bool demangle_d(const char *mangled, struct output *o)
{
	_cleanup_free_ char *name = NULL;
	size_t references = 0;

	if (strlen(mangled) > D_MANGLED_MAX)
		return false;
	for (const char *s = mangled; *s; s++)
		references += *s == 'Q';
	if (references > D_REFERENCES_MAX)
		return false;
	name = dlang_demangle(mangled, 0);
	if (!name)
		return false;
	o->len = strnlen(name, sizeof(o->text) - 1);
	memcpy(o->text, name, o->len);
	return true;
}

static bool is_d(const char *s)
{
	return s[0] == '_' && s[1] == 'D' && (is_digit(s[2]) || streq(s, "_Dmain"));
}

static void mark_cut(char *name)
{
	size_t len = strlen(name);

	len = MIN(len, SYMBOL_NAME_MAX - 4);
	/* Not in the middle of a character. */
	while (len && ((unsigned char)name[len] & 0xc0) == 0x80)
		len--;
	memcpy(name + len, "...", 4);
}

static void present(const char *s, size_t len, char ret[static SYMBOL_NAME_MAX])
{
	utf8_sanitize(ret, SYMBOL_NAME_MAX, s, len);
	if (len >= SYMBOL_NAME_MAX - 1)
		mark_cut(ret);
}

void symbol_readable_name(const char *system_name, char ret[static SYMBOL_NAME_MAX])
{
	size_t len = symbol_base_length(system_name), n;
	struct output o;
	const char *s = system_name;

	if (len <= MANGLED_MAX &&
	    (str_skip_prefix(s, "_Z") || str_skip_prefix(s, "_R") || is_d(s))) {
		char mangled[MANGLED_MAX + 1];

		memcpy(mangled, system_name, len);
		mangled[len] = '\0';
		if (is_d(mangled) ? demangle_d(mangled, &o) : demangle(mangled, &o)) {
			s = o.text;
			len = o.len;
		}
	}
	present(s, len, ret);
	n = strlen(ret);
	snprintf(ret + n, SYMBOL_NAME_MAX - n, "%s", kept_suffix(system_name));
}

void symbol_plain_name(const char *system_name, char ret[static SYMBOL_NAME_MAX])
{
	present(system_name, strlen(system_name), ret);
}
