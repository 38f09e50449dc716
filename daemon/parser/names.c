// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of functions and static objects. Symbol tables are kept, least recently used dropped first, within
 * TABLES_BYTES; a single one beyond that is used for its request and dropped.
 */
#include "helper/limits.h"
#include "parser/internal.h"
#include "symbol/demangle.h"

#define TABLES_BYTES (24U << 20)
#define TABLES_MAX 256

struct cached_table {
	struct parsed_file file, debug; /* debug: zeroes without */
	enum elf_want want;
	struct elf_table *table;
	uint64_t used; /* the request that used it last */
};

struct names {
	struct cached_table tables[TABLES_MAX];
	size_t n_tables;
	size_t bytes;
	uint64_t clock;
};

/* ---- parsed tables ----------------------------------------------------------------------------- */

static struct cached_table *find_table(struct names *n, const struct input *file,
				       const struct input *debug, enum elf_want want)
{
	for (size_t i = 0; i < n->n_tables; i++) {
		struct cached_table *c = &n->tables[i];

		if (c->want == want && memcmp(&c->file, &file->id, sizeof(c->file)) == 0 &&
		    memcmp(&c->debug, &debug->id, sizeof(c->debug)) == 0) {
			c->used = ++n->clock;
			return c;
		}
	}
	return NULL;
}

static void drop_table(struct names *n, size_t i)
{
	n->bytes -= elf_table_bytes(n->tables[i].table);
	elf_table_free(n->tables[i].table);
	n->tables[i] = n->tables[--n->n_tables];
}

static void drop_oldest(struct names *n)
{
	size_t oldest = 0;

	for (size_t i = 1; i < n->n_tables; i++)
		if (n->tables[i].used < n->tables[oldest].used)
			oldest = i;
	drop_table(n, oldest);
}

/* Takes over the table, or leaves it to the caller when it is too large to be kept. */
static void keep_table(struct names *n, const struct input *file, const struct input *debug,
		       enum elf_want want, struct elf_table **table)
{
	size_t bytes = elf_table_bytes(*table);
	struct cached_table *c;

	if (bytes > TABLES_BYTES)
		return;
	while (n->n_tables && (n->n_tables == TABLES_MAX || n->bytes + bytes > TABLES_BYTES))
		drop_oldest(n);
	c = &n->tables[n->n_tables++];
	c->file = file->id;
	c->debug = debug->id;
	c->want = want;
	c->used = ++n->clock;
	c->table = TAKE_PTR(*table);
	n->bytes += bytes;
}

int names_table(struct names *n, const struct input *file, const struct input *debug,
		enum elf_want want, struct answer *a, const struct elf_table **ret)
{
	struct cached_table *c = find_table(n, file, debug, want);
	_cleanup_(elf_table_free_p) struct elf_table *fresh = NULL;
	int r;

	if (c) {
		*ret = c->table;
		return 0;
	}
	a->parsed = true;
	r = elf_table_new(file->fd, debug->fd, want, &fresh);
	if (r < 0)
		return r;
	*ret = fresh;
	keep_table(n, file, debug, want, &fresh);
	a->unkept = TAKE_PTR(fresh);
	return 0;
}

/* ---- answers ------------------------------------------------------------------------------------- */

static int set(char **ret, const char *s)
{
	char *copy = strdup(s);

	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

int answer_set_names(char **ret_name, char **ret_system_name, const char *system_name)
{
	char readable[SYMBOL_NAME_MAX], plain[SYMBOL_NAME_MAX];
	int r;

	symbol_readable_name(system_name, readable);
	symbol_plain_name(system_name, plain);
	r = set(ret_name, readable);
	return r < 0 || streq(readable, plain) ? r : set(ret_system_name, plain);
}

static int set_symbol(Sysprofd__V1__Symbol *s, const char *system_name)
{
	return answer_set_names(&s->name, &s->system_name, system_name);
}

static int find_symbols(const struct elf_table *t, int fd, int debug_fd, enum elf_want want,
			const Sysprofd__V1__ParseRequest *q, struct answer *a)
{
	char name[ELF_NAME_MAX];
	int r = answer_make_symbols(a, q->n_offsets);

	for (size_t i = 0; r >= 0 && i < a->n; i++) {
		if (elf_table_find(t, fd, debug_fd, q->offsets[i], name))
			r = set_symbol(&a->symbols[i], name);
		else if (want == ELF_WANT_DATA && !elf_table_reaches(t, q->offsets[i]))
			r = set_symbol(&a->symbols[i], HELPER_NOT_OF_FILE);
	}
	return r;
}

int names_answer(struct names *n, const Sysprofd__V1__ParseRequest *q, const struct input *file,
		 const struct input *debug, struct answer *a)
{
	static const struct input none = { .fd = -1 };
	enum elf_want want = q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DATA ? ELF_WANT_DATA
										  : ELF_WANT_CODE;
	const struct elf_table *t;
	int r = -ESTALE;

	if (q->n_offsets > HELPER_OFFSETS_MAX)
		return -EINVAL;
	if (debug->fd >= 0)
		r = names_table(n, file, debug, want, a, &t);
	/* A debug file may be anybody's: nothing is lost by it. */
	if (r < 0) {
		debug = &none;
		r = names_table(n, file, debug, want, a, &t);
	}
	if (r < 0)
		return r;
	a->response.build_id = (char *)elf_table_build_id(t);
	a->response.wants_debug_file = elf_table_wants_debug_file(t);
	a->response.debug_link = (char *)elf_table_link(t);
	return find_symbols(t, file->fd, debug->fd, want, q, a);
}

int names_new(struct names **ret)
{
	struct names *n = new0(struct names, 1);

	if (!n)
		return -ENOMEM;
	*ret = n;
	return 0;
}

struct names *names_free(struct names *n)
{
	if (!n)
		return NULL;
	while (n->n_tables)
		drop_table(n, 0);
	free(n);
	return NULL;
}
