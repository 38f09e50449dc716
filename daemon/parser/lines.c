// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Inlined functions and source lines, out of DWARF, by elfutils. Its files are mapped: they may be larger than what the
 * parser may hold, and who shortens one kills the parser, which is what it is for. Not so compressed sections, which
 * are unpacked into memory and limited.
 *
 * Where a program's code came from is said by its compilation units, but not in an order that can be searched, and
 * clang writes no index: they are read once, into a sorted list of ranges, which is kept while questions about the same
 * file follow one another.
 */
#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <stdio.h>
#include <time.h>

#include "helper/limits.h"
#include "parser/internal.h"
#include "symbol/demangle.h"

#define CODE_MAX (1U << 20)
#define OVERLAPS_MAX 64
#define SCOPES_MAX 128 /* blocks and functions within each other */
#define REQUEST_NS (2 * NSEC_PER_SEC) /* of CPU time; what is left then may be asked about again */
#define UNPACKED_MAX (256ULL << 20)
#define COMMON (UINT64_MAX - 1) /* its id, as a part */

/* What an entry describes the code of. */
struct code {
	uint64_t start, end;
	uint64_t entry; /* its offset */
};

struct code_list {
	struct code *items; /* sorted */
	size_t n, cap;
};

struct lines {
	/* Whose lines they are, and the file that has them, which may be the same. */
	struct parsed_file program, file;
	Elf *elf;
	Dwarf *dwarf;
	/* What dwz moved out of it, and who asked for that. */
	Elf *common_elf;
	Dwarf *common;
	bool common_wanted;
	struct splits *splits;
	struct code_list units, functions;
	uint64_t unit; /* that the functions are of; 0: none, where no unit's entry lies */
};

int lines_new(struct lines **ret)
{
	struct lines *l = new0(struct lines, 1);

	if (!l)
		return -ENOMEM;
	*ret = l;
	return 0;
}

void lines_forget(struct lines *l)
{
	splits_free(l->splits);
	dwarf_end(l->dwarf);
	elf_end(l->elf);
	dwarf_end(l->common);
	elf_end(l->common_elf);
	free(l->units.items);
	free(l->functions.items);
	*l = (struct lines){};
}

struct lines *lines_free(struct lines *l)
{
	if (!l)
		return NULL;
	lines_forget(l);
	free(l);
	return NULL;
}

/* ---- a file with DWARF ----------------------------------------------------------------------------- */

static int compare_code(const void *a, const void *b)
{
	const struct code *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void sort_code(struct code_list *c)
{
	if (c->n)
		qsort(c->items, c->n, sizeof(*c->items), compare_code);
}

/* The innermost of what covers an address, or NULL. */
static const struct code *find_code(const struct code_list *c, uint64_t vaddr)
{
	size_t lo = 0, hi = c->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->items[mid].start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t steps = 0; lo > 0 && steps < OVERLAPS_MAX; lo--, steps++)
		if (vaddr < c->items[lo - 1].end)
			return &c->items[lo - 1];
	return NULL;
}

static int add_code(struct code_list *c, Dwarf_Die *die)
{
	Dwarf_Addr base = 0, start, end;
	ptrdiff_t at = 0;

	while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0) {
		if (start >= end)
			continue;
		if (c->n == CODE_MAX)
			return -EFBIG;
		if (ARRAY_GROW(c->items, c->cap, c->n + 1) < 0)
			return -ENOMEM;
		c->items[c->n++] = (struct code){ start, end, dwarf_dieoffset(die) };
	}
	return 0;
}

/* A unit that is damaged is left out; what follows one whose length is wrong cannot be found. */
static int read_units(struct lines *l)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die entry;

	while (dwarf_get_units(l->dwarf, unit, &unit, NULL, NULL, &entry, NULL) == 0) {
		int r = add_code(&l->units, &entry);

		if (r < 0)
			return r;
	}
	sort_code(&l->units);
	return 0;
}

static bool unpacks_to_too_much(Elf *elf)
{
	uint64_t left = UNPACKED_MAX;
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	GElf_Chdr c;

	while ((scn = elf_nextscn(elf, scn))) {
		if (!gelf_getshdr(scn, &s) || !(s.sh_flags & SHF_COMPRESSED) ||
		    !gelf_getchdr(scn, &c))
			continue;
		if (c.ch_size > left)
			return true;
		left -= c.ch_size;
	}
	return false;
}

static int open_elf(int fd, Elf **ret)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);

	/* The descriptor goes with the request. */
	if (!elf || elf_kind(elf) != ELF_K_ELF || elf_cntl(elf, ELF_C_FDREAD) < 0 ||
	    unpacks_to_too_much(elf)) {
		elf_end(elf);
		return -EFBIG;
	}
	*ret = elf;
	return 0;
}

int debug_elf_begin(int fd, Elf **ret)
{
	_cleanup_close_ int inflated = -1;
	Elf *elf;
	int r = elf_version(EV_CURRENT) == EV_NONE ? -EOPNOTSUPP : open_elf(fd, &elf);

	if (r < 0)
		return r;
	if (needs_inflating(elf)) {
		/* It goes on with a copy that has been unpacked. */
		r = inflate_debug(elf, &inflated);
		elf_end(elf);
		return r < 0 ? r : open_elf(inflated, ret);
	}
	*ret = elf;
	return 0;
}

/* -ENODATA: there is no DWARF in the file. */
static int open_dwarf(struct lines *l, const struct input *file)
{
	int r = debug_elf_begin(file->fd, &l->elf);

	if (r < 0)
		return r;
	l->dwarf = dwarf_begin_elf(l->elf, DWARF_C_READ, NULL);
	if (!l->dwarf)
		return -ENODATA;
	r = splits_new(l->elf, &l->splits);
	return r < 0 ? r : read_units(l);
}

static bool same_file(const struct parsed_file *a, const struct parsed_file *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static int use_file(struct lines *l, const struct elf_table *t, const struct input *program,
		    const struct input *debug)
{
	const struct input *file = debug->fd >= 0 ? debug : program;
	int r;

	if (l->dwarf && same_file(&l->program, &program->id) && same_file(&l->file, &file->id))
		return 0;
	lines_forget(l);
	if (debug->fd >= 0 && !elf_table_owns(t, debug->fd))
		return -ENODATA;
	r = open_dwarf(l, file);
	if (r < 0) {
		lines_forget(l);
		return r;
	}
	l->program = program->id;
	l->file = file->id;
	return 0;
}

/* ---- parts in other files ------------------------------------------------------------------------------ */

/* The build-id of what dwz moved out of the file, in hexadecimal, with its path; false: nothing was. */
static bool common_of(struct lines *l, const char **ret_path,
		      char ret_id[static 2 * ELF_BUILD_ID_MAX + 1])
{
	const void *id;
	ssize_t n = dwelf_dwarf_gnu_debugaltlink(l->dwarf, ret_path, &id);

	if (n <= 0 || n > ELF_BUILD_ID_MAX)
		return false;
	for (ssize_t i = 0; i < n; i++)
		sprintf(ret_id + 2 * i, "%02x", ((const uint8_t *)id)[i]);
	return true;
}

static int want_common(struct lines *l, struct answer *a)
{
	char id[2 * ELF_BUILD_ID_MAX + 1];
	const char *path;
	int r;

	if (l->common_wanted || !common_of(l, &path, id))
		return 0;
	r = answer_want(a, SYSPROFD__V1__WANTED_KIND__WANTED_KIND_COMMON, COMMON, path, "");
	if (r < 0)
		return r;
	l->common_wanted = true;
	a->response.wanted_files[a->response.n_wanted_files - 1]->build_id = strdup(id);
	return a->response.wanted_files[a->response.n_wanted_files - 1]->build_id ? 0 : -ENOMEM;
}

static int add_common(struct lines *l, int fd)
{
	char want[2 * ELF_BUILD_ID_MAX + 1], id[2 * ELF_BUILD_ID_MAX + 1];
	const char *path;
	int r;

	if (l->common || !common_of(l, &path, want))
		return -EEXIST;
	r = elf_build_id(fd, id);
	if (r >= 0 && !streq(id, want))
		r = -ESTALE;
	if (r >= 0)
		r = debug_elf_begin(fd, &l->common_elf);
	if (r < 0)
		return r;
	l->common = dwarf_begin_elf(l->common_elf, DWARF_C_READ, NULL);
	if (!l->common)
		return -ENODATA;
	dwarf_setalt(l->dwarf, l->common);
	return 0;
}

static void add_parts(struct lines *l, const struct part *parts, size_t n)
{
	/* A part that is another's, or damaged, adds nothing. */
	for (size_t i = 0; i < n; i++)
		(void)(parts[i].id == COMMON ? add_common(l, parts[i].fd)
					     : splits_add(l->splits, &parts[i]));
	/* What was found without them may have lacked something. */
	if (n)
		l->unit = 0;
}

/* ---- a place ----------------------------------------------------------------------------------------- */

/* Such have no code of their own, and functions in them. */
static bool is_container(Dwarf_Die *die)
{
	int tag = dwarf_tag(die);

	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
	       tag == DW_TAG_class_type;
}

static int add_functions(struct code_list *c, Dwarf_Die *die, unsigned depth)
{
	Dwarf_Die child;
	int r = 0;

	if (depth == SCOPES_MAX || dwarf_child(die, &child) != 0)
		return 0;
	do {
		if (dwarf_tag(&child) == DW_TAG_subprogram)
			r = add_code(c, &child);
		else if (is_container(&child))
			r = add_functions(c, &child, depth + 1);
	} while (r >= 0 && dwarf_siblingof(&child, &child) == 0);
	return r;
}

/* The unit that a place is in. */
struct unit {
	Dwarf_Die entry; /* the skeleton of one that is split */
	Dwarf *dwarf; /* that has the rest */
	uint64_t vaddr; /* of the place, as it is told there */
	bool in_function;
	Dwarf_Die function;
};

/*
 * Units may be as large as a program, so the functions of the latest are kept in a list too: places are asked about in
 * the order of their addresses.
 */
static bool find_function(struct lines *l, uint64_t vaddr, struct unit *ret, struct answer *a)
{
	const struct code *unit = find_code(&l->units, vaddr), *function;
	const struct split *split;
	Dwarf_Die entry;

	if (!unit || !dwarf_offdie(l->dwarf, unit->entry, &ret->entry))
		return false;
	split = splits_find(l->splits, &ret->entry, a);
	entry = split ? split->unit : ret->entry;
	ret->dwarf = split ? split->dwarf : l->dwarf;
	ret->vaddr = vaddr - (split ? split->base : 0);
	if (l->unit != unit->entry) {
		l->unit = unit->entry;
		l->functions.n = 0;
		if (add_functions(&l->functions, &entry, 0) < 0)
			l->functions.n = 0;
		sort_code(&l->functions);
	}
	function = find_code(&l->functions, ret->vaddr);
	ret->in_function = function && dwarf_offdie(ret->dwarf, function->entry, &ret->function);
	return true;
}

/* The name as in a symbol table, or NULL. */
static const char *name_of(Dwarf_Die *function)
{
	Dwarf_Attribute a;
	const char *name = NULL;

	if (dwarf_attr_integrate(function, DW_AT_linkage_name, &a) ||
	    dwarf_attr_integrate(function, DW_AT_MIPS_linkage_name, &a))
		name = dwarf_formstring(&a);
	return name ?: dwarf_diename(function);
}

/* Where in its source the place lies. */
static int set_source(Sysprofd__V1__Line *line, const char *file, int number)
{
	char text[SYMBOL_NAME_MAX];

	if (!file || number <= 0)
		return 0;
	symbol_plain_name(file, text);
	line->file = strdup(text);
	if (!line->file) {
		line->file = (char *)protobuf_c_empty_string;
		return -ENOMEM;
	}
	line->line = (uint32_t)number;
	return 0;
}

static Sysprofd__V1__Line *add_line(Sysprofd__V1__Place *p)
{
	Sysprofd__V1__Line *line = malloc(sizeof(*line));

	if (!line)
		return NULL;
	sysprofd__v1__line__init(line);
	p->lines[p->n_lines++] = line;
	return line;
}

static int set_call(Sysprofd__V1__Line *line, Dwarf_Die *inlined, Dwarf_Die *unit)
{
	Dwarf_Word file = 0, number = 0;
	Dwarf_Files *files;
	Dwarf_Attribute a;

	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &a), &file) != 0 ||
	    dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &a), &number) != 0 ||
	    dwarf_getsrcfiles(unit, &files, NULL) != 0 || number > INT32_MAX)
		return 0;
	return set_source(line, dwarf_filesrc(files, file, NULL, NULL), (int)number);
}

/* What the place lies in, outermost first. */
struct scopes {
	Dwarf_Die die[SCOPES_MAX];
	size_t n;
};

/* Blocks and inlined functions around the place, within its function. dwarf_getscopes() loses memory where an origin is missing. */
static void descend(struct scopes *s, const Dwarf_Die *function, uint64_t vaddr)
{
	Dwarf_Die at = *function, child;

	while (s->n < SCOPES_MAX && dwarf_child(&at, &child) == 0) {
		while (dwarf_haspc(&child, vaddr) <= 0)
			if (dwarf_siblingof(&child, &child) != 0)
				return;
		at = s->die[s->n++] = child;
	}
}

/* The inlined functions around a place, innermost first, and the line in the function that has the symbol. */
static int add_scopes(Sysprofd__V1__Place *p, struct scopes *s, Dwarf_Die *unit)
{
	for (size_t i = s->n; i-- > 0 && p->n_lines < HELPER_LINES_MAX;) {
		Sysprofd__V1__Line *inner = p->lines[p->n_lines - 1], *outer;
		const char *name;
		int r;

		if (dwarf_tag(&s->die[i]) == DW_TAG_subprogram)
			break;
		if (dwarf_tag(&s->die[i]) != DW_TAG_inlined_subroutine)
			continue;
		/* What is in another file that cannot be had (.dwo, dwz) has none: then it is not told apart. */
		name = name_of(&s->die[i]);
		if (!name)
			continue;
		r = answer_set_names(&inner->name, &inner->system_name, name);
		outer = r < 0 ? NULL : add_line(p);
		r = outer ? set_call(outer, &s->die[i], unit) : -ENOMEM;
		if (r < 0)
			return r;
	}
	return 0;
}

static int find_place(struct lines *l, uint64_t vaddr, Sysprofd__V1__Place *p, struct answer *a)
{
	struct scopes scopes = {};
	Sysprofd__V1__Line *line;
	Dwarf_Line *source;
	struct unit u;
	int r, number = 0;

	if (!find_function(l, vaddr, &u, a))
		return 0;
	p->lines = new0(Sysprofd__V1__Line *, HELPER_LINES_MAX);
	line = p->lines ? add_line(p) : NULL;
	if (!line)
		return -ENOMEM;
	source = dwarf_getsrc_die(&u.entry, vaddr);
	if (source && dwarf_lineno(source, &number) == 0) {
		r = set_source(line, dwarf_linesrc(source, NULL, NULL), number);
		if (r < 0)
			return r;
	}
	if (u.in_function)
		descend(&scopes, &u.function, u.vaddr);
	return add_scopes(p, &scopes, &u.entry);
}

/* ---- answers --------------------------------------------------------------------------------------- */

static int make_places(struct answer *a, size_t n)
{
	a->response.places = new0(Sysprofd__V1__Place *, n);
	if (!a->response.places)
		return -ENOMEM;
	for (; a->response.n_places < n; a->response.n_places++) {
		Sysprofd__V1__Place *p = malloc(sizeof(*p));

		if (!p)
			return -ENOMEM;
		sysprofd__v1__place__init(p);
		a->response.places[a->response.n_places] = p;
	}
	return 0;
}

static uint64_t cpu_ns(void)
{
	struct timespec t = {};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

int lines_answer(struct lines *l, const struct elf_table *t, const Sysprofd__V1__ParseRequest *q,
		 const struct input *program, const struct input *debug, const struct part *parts,
		 size_t n_parts, struct answer *a)
{
	uint64_t begin = cpu_ns();
	size_t bytes = 0, done = 0;
	int r = make_places(a, q->n_offsets), found;

	if (r < 0)
		return r;
	found = use_file(l, t, program, debug);
	a->response.wants_debug_file = found == -ENODATA &&
				       (*elf_table_build_id(t) || *elf_table_link(t));
	/* Whatever is wrong with the DWARF: then there are no lines. */
	if (found < 0)
		return 0;
	add_parts(l, parts, n_parts);
	r = want_common(l, a);
	if (r < 0)
		return r;
	while (done < q->n_offsets && bytes < HELPER_LINES_BYTES && cpu_ns() - begin < REQUEST_NS) {
		Sysprofd__V1__Place *p = a->response.places[done];
		uint64_t vaddr;

		if (elf_table_vaddr(t, q->offsets[done++], &vaddr))
			r = find_place(l, vaddr, p, a);
		if (r < 0)
			return r;
		bytes += sysprofd__v1__place__get_packed_size(p);
	}
	for (size_t i = done; i < q->n_offsets; i++)
		sysprofd__v1__place__free_unpacked(a->response.places[i], NULL);
	a->response.n_places = done;
	return 0;
}
