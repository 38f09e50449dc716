// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Functions of vmlinux and modules are a sorted array read once: 16 bytes each, names in one block. What comes
 * and goes (BPF programs, trampolines) is a second, small array with names of its own, searched first.
 */
#include <stdio.h>

#include "symbol/demangle.h"
#include "symbol/kallsyms.h"

#define READ_CHUNK 65536
#define SYMBOLS_MAX (1U << 20)
#define MODULES_MAX 4096
#define DYNAMIC_MAX 65536
#define LINE_MAX_LEN 1024
/* The last function before a hole reaches no further than this: a module's end is not in kallsyms. */
#define REACH_MAX (256U << 10)

enum symbol_rank {
	RANK_GLOBAL,
	RANK_LOCAL,
	RANK_WEAK,
	RANK_BOUNDARY, /* _stext, __cpuidle_text_start: marks a place, is not what runs there */
};

struct symbol {
	uint64_t start;
	uint32_t name; /* into names */
	uint16_t module; /* into modules; 0: vmlinux */
	uint8_t rank;
};

struct module {
	char *name;
	uint64_t lowest;
};

struct dynamic_symbol {
	uint64_t start;
	uint32_t len; /* 0: not known, up to the next */
	char *name;
	char *module;
};

struct kallsyms {
	struct symbol *symbols;
	size_t n_symbols, cap_symbols;
	char *names;
	size_t n_names, cap_names;
	struct module *modules; /* [0] is vmlinux, lowest = _stext */
	size_t n_modules, cap_modules;
	struct dynamic_symbol *dynamic;
	size_t n_dynamic, cap_dynamic;
};

struct kallsyms *kallsyms_free(struct kallsyms *k)
{
	if (!k)
		return NULL;
	for (size_t i = 0; i < k->n_modules; i++)
		free(k->modules[i].name);
	for (size_t i = 0; i < k->n_dynamic; i++) {
		free(k->dynamic[i].name);
		free(k->dynamic[i].module);
	}
	free(k->modules);
	free(k->dynamic);
	free(k->symbols);
	free(k->names);
	free(k);
	return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && streq(s + n - m, suffix);
}

static bool is_boundary(const char *name)
{
	static const char *const names[] = { "_text",	   "_stext", "_etext",	     "_sinittext",
					     "_einittext", "_end",   "__init_begin", "__init_end" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(name, names[i]))
			return true;
	return name[0] == '_' && name[1] == '_' &&
	       (ends_with(name, "_start") || ends_with(name, "_end") ||
		ends_with(name, "_begin")) &&
	       strstr(name, "text");
}

static int find_module(struct kallsyms *k, const char *name, size_t len)
{
	struct module *m;
	int r;

	/* Modules come one after another, so the last one it is, nearly always. */
	for (size_t i = k->n_modules; i-- > 1;)
		if (strncmp(k->modules[i].name, name, len) == 0 && !k->modules[i].name[len])
			return (int)i;
	if (k->n_modules == MODULES_MAX)
		return -E2BIG;
	r = ARRAY_GROW(k->modules, k->cap_modules, k->n_modules + 1);
	if (r < 0)
		return r;
	m = &k->modules[k->n_modules];
	m->lowest = UINT64_MAX;
	m->name = strndup(name, len);
	if (!m->name)
		return -ENOMEM;
	return (int)k->n_modules++;
}

static int add_static(struct kallsyms *k, uint64_t address, char type, const char *name, int module)
{
	size_t len = strlen(name) + 1;
	struct symbol *s;
	int r;

	if (k->n_symbols == SYMBOLS_MAX)
		return -E2BIG;
	r = ARRAY_GROW(k->symbols, k->cap_symbols, k->n_symbols + 1);
	if (r >= 0)
		r = ARRAY_GROW(k->names, k->cap_names, k->n_names + len);
	if (r < 0)
		return r;
	s = &k->symbols[k->n_symbols++];
	s->start = address;
	s->name = (uint32_t)k->n_names;
	s->module = (uint16_t)module;
	s->rank = is_boundary(name)	       ? RANK_BOUNDARY
		  : type == 'T'		       ? RANK_GLOBAL
		  : type == 'w' || type == 'W' ? RANK_WEAK
					       : RANK_LOCAL;
	memcpy(k->names + k->n_names, name, len);
	k->n_names += len;
	if (module || streq(name, "_stext"))
		k->modules[module].lowest = MIN(k->modules[module].lowest, address);
	return 0;
}

/* "ffffffff81000000 T name[\t[module]]". 1: an address that is not 0 was seen. */
static int parse_line(struct kallsyms *k, char *line)
{
	char *end, *name, *module = NULL, type;
	uint64_t address;
	int id = 0;

	errno = 0;
	address = strtoull(line, &end, 16);
	if (errno || end == line || end[0] != ' ' || !end[1] || end[2] != ' ' || !end[3])
		return 0;
	if (!address)
		return 0;
	type = end[1];
	if (!strchr("tTwW", type))
		return 1;
	name = end + 3;
	module = strchr(name, '\t');
	if (module) {
		size_t n;

		*module++ = '\0';
		n = strlen(module);
		if (n < 3 || module[0] != '[' || module[n - 1] != ']')
			return 1;
		module[n - 1] = '\0';
		module++;
	}
	/* Padding in front of functions, never executed. */
	if (str_skip_prefix(name, "__pfx_") || str_skip_prefix(name, "__cfi_"))
		return 1;
	if (module && (streq(module, "bpf") || str_skip_prefix(module, "__builtin__"))) {
		id = kallsyms_add(k, address, 0, name, module);
	} else {
		if (module)
			id = find_module(k, module, strlen(module));
		if (id >= 0)
			id = add_static(k, address, type, name, id);
	}
	return id < 0 ? id : 1;
}

static int parse(struct kallsyms *k, int fd)
{
	_cleanup_free_ char *buf = malloc(READ_CHUNK);
	bool addresses = false;
	size_t len = 0;
	off_t at = 0;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t n = pread(fd, buf + len, READ_CHUNK - 1 - len, at);
		char *line = buf, *nl;
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return negative_errno();
		at += n;
		len += (size_t)n;
		if (!n && len)
			buf[len++] = '\n';
		while ((nl = memchr(line, '\n', len - (size_t)(line - buf)))) {
			*nl = '\0';
			r = parse_line(k, line);
			if (r < 0)
				return r;
			addresses |= r > 0;
			line = nl + 1;
		}
		len -= (size_t)(line - buf);
		memmove(buf, line, len);
		if (!n)
			break;
		if (len > LINE_MAX_LEN)
			return -EBADMSG;
	}
	return addresses ? 0 : -EPERM;
}

/* ---- order ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b, void *ctx)
{
	const struct symbol *x = a, *y = b;
	const struct kallsyms *k = ctx;
	const char *p, *q;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->rank != y->rank)
		return (int)x->rank - (int)y->rank;
	p = k->names + x->name;
	q = k->names + y->name;
	if (strspn(p, "_") != strspn(q, "_"))
		return strspn(p, "_") < strspn(q, "_") ? -1 : 1;
	if (strlen(p) != strlen(q))
		return strlen(p) < strlen(q) ? -1 : 1;
	return strcmp(p, q);
}

static void shrink(void *pp, size_t *cap, size_t n, size_t size)
{
	void **items = pp, *p = n ? realloc(*items, n * size) : NULL;

	if (p) {
		*items = p;
		*cap = n;
	}
}

int kallsyms_new(int fd, struct kallsyms **ret)
{
	_cleanup_(kallsyms_free_p) struct kallsyms *k = new0(struct kallsyms, 1);
	int r;

	if (!k)
		return -ENOMEM;
	r = ARRAY_GROW(k->modules, k->cap_modules, 1);
	if (r < 0)
		return r;
	k->modules[0].name = strdup("");
	k->modules[0].lowest = UINT64_MAX;
	if (!k->modules[0].name)
		return -ENOMEM;
	k->n_modules = 1;
	r = parse(k, fd);
	if (r < 0)
		return r;
	shrink(&k->symbols, &k->cap_symbols, k->n_symbols, sizeof(*k->symbols));
	shrink(&k->names, &k->cap_names, k->n_names, 1);
	if (k->n_symbols)
		qsort_r(k->symbols, k->n_symbols, sizeof(*k->symbols), compare, k);
	for (size_t i = 0; i < k->n_symbols && k->modules[0].lowest == UINT64_MAX; i++)
		if (!k->symbols[i].module)
			k->modules[0].lowest = k->symbols[i].start;
	*ret = TAKE_PTR(k);
	return 0;
}

/* ---- searching --------------------------------------------------------------------------------- */

/* The first of the symbols at the last start at or before the address; n_symbols: none. */
static size_t last_start(const struct kallsyms *k, uint64_t address)
{
	size_t lo = 0, hi = k->n_symbols;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->symbols[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return k->n_symbols;
	while (lo > 1 && k->symbols[lo - 2].start == k->symbols[lo - 1].start)
		lo--;
	return lo - 1;
}

static uint64_t end_of(const struct kallsyms *k, size_t i)
{
	uint64_t start = k->symbols[i].start;

	for (size_t j = i + 1; j < k->n_symbols; j++)
		if (k->symbols[j].start != start)
			return MIN(k->symbols[j].start, start + REACH_MAX);
	return start + REACH_MAX;
}

/* How many dynamic symbols start at or before the address: the last of them is the one in front. */
static size_t dynamic_up_to(const struct kallsyms *k, uint64_t address)
{
	size_t lo = 0, hi = k->n_dynamic;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->dynamic[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static uint64_t dynamic_end(const struct kallsyms *k, size_t i)
{
	const struct dynamic_symbol *d = &k->dynamic[i];

	if (d->len)
		return d->start + d->len;
	if (i + 1 < k->n_dynamic)
		return MIN(k->dynamic[i + 1].start, d->start + REACH_MAX);
	return d->start + REACH_MAX;
}

/* BPF programs share one binary: the name's hash keeps their offsets apart, and equal over reloads. */
static uint64_t dynamic_base(const char *name)
{
	uint32_t h = 2166136261U;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619U;
	return (uint64_t)h << 32;
}

bool kallsyms_find(const struct kallsyms *k, uint64_t address, struct kernel_symbol *ret)
{
	size_t d = dynamic_up_to(k, address), i = last_start(k, address);
	const struct symbol *s = i < k->n_symbols ? &k->symbols[i] : NULL;

	if (d-- && (!s || s->start <= k->dynamic[d].start)) {
		const struct dynamic_symbol *p = &k->dynamic[d];

		if (address >= dynamic_end(k, d))
			return false;
		*ret = (struct kernel_symbol){
			.name = p->name,
			.module = p->module,
			.start = p->start,
			.offset = dynamic_base(p->name) + address - p->start,
		};
		return true;
	}
	if (!s || s->rank == RANK_BOUNDARY || address >= end_of(k, i))
		return false;
	*ret = (struct kernel_symbol){
		.name = k->names + s->name,
		.module = k->modules[s->module].name,
		.start = s->start,
		.offset = address - k->modules[s->module].lowest,
	};
	return true;
}

/* The symbol's index or n_symbols: of exact matches the lowest, else of those that differ by suffixes. */
static size_t find_name(const struct kallsyms *k, const char *name)
{
	size_t suffixed = k->n_symbols, len = strlen(name);

	for (size_t i = 0; i < k->n_symbols; i++) {
		const char *s = k->names + k->symbols[i].name;

		if (strncmp(s, name, len) != 0)
			continue;
		if (!s[len])
			return i;
		/* A cold part is not where the function begins. */
		if (suffixed == k->n_symbols && s[len] == '.' && symbol_base_length(s) == len &&
		    !strstr(s + len, ".cold"))
			suffixed = i;
	}
	return suffixed;
}

uint64_t kallsyms_address(const struct kallsyms *k, const char *name)
{
	size_t i = find_name(k, name);

	if (i < k->n_symbols)
		return k->symbols[i].start;
	for (i = 0; i < k->n_dynamic; i++)
		if (streq(k->dynamic[i].name, name))
			return k->dynamic[i].start;
	return 0;
}

bool kallsyms_range(const struct kallsyms *k, const char *name, uint64_t *ret_start,
		    uint64_t *ret_end)
{
	size_t i = find_name(k, name);

	if (i == k->n_symbols)
		return false;
	*ret_start = k->symbols[i].start;
	*ret_end = end_of(k, i);
	return true;
}

void kallsyms_each(const struct kallsyms *k, kallsyms_fn fn, void *ctx)
{
	for (size_t i = 0; i < k->n_symbols; i++) {
		const struct symbol *s = &k->symbols[i];

		if (!s->module)
			fn(ctx, s->start, end_of(k, i), k->names + s->name);
	}
}

/* ---- what comes and goes ----------------------------------------------------------------------- */

static void drop_dynamic(struct kallsyms *k, size_t i)
{
	free(k->dynamic[i].name);
	free(k->dynamic[i].module);
	memmove(&k->dynamic[i], &k->dynamic[i + 1], (k->n_dynamic - i - 1) * sizeof(*k->dynamic));
	k->n_dynamic--;
}

int kallsyms_add(struct kallsyms *k, uint64_t address, uint32_t len, const char *name,
		 const char *module)
{
	_cleanup_free_ char *n = NULL, *m = NULL;
	size_t at;
	int r;

	/* The record of a program's end may have been lost: what lies where the new one lies is gone. */
	at = dynamic_up_to(k, address);
	for (; at; at--) {
		const struct dynamic_symbol *d = &k->dynamic[at - 1];

		if (d->start != address && (!d->len || d->start + d->len <= address))
			break;
		drop_dynamic(k, at - 1);
	}
	while (at < k->n_dynamic && k->dynamic[at].start - address < len)
		drop_dynamic(k, at);
	if (k->n_dynamic == DYNAMIC_MAX)
		return -E2BIG;
	n = strdup(name);
	m = strdup(module);
	if (!n || !m)
		return -ENOMEM;
	r = ARRAY_GROW(k->dynamic, k->cap_dynamic, k->n_dynamic + 1);
	if (r < 0)
		return r;
	memmove(&k->dynamic[at + 1], &k->dynamic[at], (k->n_dynamic - at) * sizeof(*k->dynamic));
	k->dynamic[at] = (struct dynamic_symbol){
		.start = address,
		.len = len,
		.name = TAKE_PTR(n),
		.module = TAKE_PTR(m),
	};
	k->n_dynamic++;
	return 0;
}

void kallsyms_remove(struct kallsyms *k, uint64_t address)
{
	size_t i = dynamic_up_to(k, address);

	if (i && k->dynamic[i - 1].start == address)
		drop_dynamic(k, i - 1);
}
