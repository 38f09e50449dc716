// SPDX-License-Identifier: GPL-2.0-or-later
#include <elf.h>

#include "unwind/go.h"
#include "unwind/reader.h"

#define PACKAGE "runtime."
#define NAME_MAX_BYTES 32
#define NAME_BLOCKS 64

static const struct unwind_rule end = { .cfa = UNWIND_END }, signal = { .cfa = UNWIND_SIGNAL },
				unsupported = { .cfa = UNWIND_UNSUPPORTED };

/* Functions of the runtime; some have ".abi0" behind their name. */
static const struct {
	const char *name;
	const struct unwind_rule *rule;
} functions[] = {
	{ "goexit", &end }, /* below the first function of a goroutine */
	{ "rt0_go", &end }, /* the first thread */
	{ "clone", &end }, /* others */
	{ "mcall", &end }, /* these three go to the stack of the scheduler */
	{ "systemstack", &end },
	{ "morestack", &end },
	{ "asmcgocall", &unsupported }, /* the caller is on the stack that was left for C's */
	{ "sigreturn", &signal },
	{ "sigreturn__sigaction", &signal },
};

static const struct unwind_rule *rule_of_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		const char *rest = str_skip_prefix(name, functions[i].name);

		if (rest && (!*rest || streq(rest, ".abi0")))
			return functions[i].rule;
	}
	return NULL;
}

/* NULL: it has another name, or none that can be read. */
static const struct unwind_rule *rule_of_symbol(struct reader *names, const Elf64_Sym *s)
{
	char name[NAME_MAX_BYTES] = "";
	const uint8_t *bytes;
	uint64_t left;

	if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_name >= names->size)
		return NULL;
	left = names->size - s->st_name;
	if (reader_get(names, s->st_name, (size_t)MIN(left, sizeof(name) - 1), &bytes) < 0)
		return NULL;
	memcpy(name, bytes, (size_t)MIN(left, sizeof(name) - 1));
	return str_skip_prefix(name, PACKAGE) ? rule_of_name(name + strlen(PACKAGE)) : NULL;
}

static void read_symbols(struct reader *symbols, struct reader *names, struct go_places *p)
{
	for (uint64_t at = 0; p->n < GO_PLACES_MAX; at += sizeof(Elf64_Sym)) {
		const struct unwind_rule *rule;
		const uint8_t *bytes;
		Elf64_Sym s;

		if (reader_get(symbols, at, sizeof(s), &bytes) < 0)
			return;
		memcpy(&s, bytes, sizeof(s));
		rule = rule_of_symbol(names, &s);
		if (!rule)
			continue;
		p->at[p->n].vaddr = s.st_value;
		p->at[p->n++].rule = rule;
	}
}

int go_read_places(const struct image *m, struct go_places *ret)
{
	_cleanup_(reader_done) struct reader symbols = {}, names = {};
	int r;

	ret->n = 0;
	if (!m->is_go || !m->symbols.size || !m->symbol_names.size)
		return 0;
	r = reader_init(&symbols, m->fd, m->symbols.offset, m->symbols.size, 2);
	if (r >= 0)
		r = reader_init(&names, m->fd, m->symbol_names.offset, m->symbol_names.size,
				NAME_BLOCKS);
	if (r >= 0)
		read_symbols(&symbols, &names, ret);
	return r;
}

const struct unwind_rule *go_rule_at(const struct go_places *p, uint64_t vaddr)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->at[i].vaddr == vaddr)
			return p->at[i].rule;
	return NULL;
}
