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
#include <elfutils/libdw.h>
#include <gelf.h>

#include "helper/limits.h"
#include "parser/internal.h"
#include "symbol/demangle.h"

#define RANGES_MAX (1U << 20)
#define SCOPES_MAX 128 /* blocks and functions within each other */
#define UNPACKED_MAX (256ULL << 20)

struct unit_range {
	uint64_t start, end;
	uint64_t unit; /* offset of its entry */
};

struct lines {
	struct parsed_file program,
		file; /* whose lines they are, and the file that has them, which may be the same */
	Elf *elf;
	Dwarf *dwarf;
	struct unit_range *ranges;
	size_t n, cap;
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
	dwarf_end(l->dwarf);
	elf_end(l->elf);
	free(l->ranges);
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

static int compare_ranges(const void *a, const void *b)
{
	const struct unit_range *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static int add_ranges(struct lines *l, Dwarf_Die *unit)
{
	Dwarf_Addr base = 0, start, end;
	ptrdiff_t at = 0;

	while ((at = dwarf_ranges(unit, at, &base, &start, &end)) > 0) {
		if (start >= end)
			continue;
		if (l->n == RANGES_MAX)
			return -EFBIG;
		if (ARRAY_GROW(l->ranges, l->cap, l->n + 1) < 0)
			return -ENOMEM;
		l->ranges[l->n++] = (struct unit_range){ start, end, dwarf_dieoffset(unit) };
	}
	return 0;
}

/* A unit that is damaged is left out; what follows one whose length is wrong cannot be found. */
static int read_units(struct lines *l)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Die entry;

	while (dwarf_get_units(l->dwarf, unit, &unit, NULL, NULL, &entry, NULL) == 0) {
		int r = add_ranges(l, &entry);

		if (r < 0)
			return r;
	}
	if (l->n)
		qsort(l->ranges, l->n, sizeof(*l->ranges), compare_ranges);
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

static int open_elf(struct lines *l, int fd)
{
	l->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	/* The descriptor goes with the request. */
	return !l->elf || elf_cntl(l->elf, ELF_C_FDREAD) < 0 || unpacks_to_too_much(l->elf) ? -EFBIG
											    : 0;
}

/* Goes on with a copy that has been unpacked. */
static int inflate(struct lines *l)
{
	_cleanup_close_ int fd = -1;
	int r = inflate_debug(l->elf, &fd);

	if (r < 0)
		return r;
	elf_end(l->elf);
	return open_elf(l, fd);
}

/* -ENODATA: there is no DWARF in the file. */
static int open_dwarf(struct lines *l, const struct input *file)
{
	int r = elf_version(EV_CURRENT) == EV_NONE ? -EOPNOTSUPP : open_elf(l, file->fd);

	if (r >= 0 && needs_inflating(l->elf))
		r = inflate(l);
	if (r < 0)
		return r;
	l->dwarf = dwarf_begin_elf(l->elf, DWARF_C_READ, NULL);
	return l->dwarf ? read_units(l) : -ENODATA;
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

/* ---- a place ----------------------------------------------------------------------------------------- */

static bool find_unit(const struct lines *l, uint64_t vaddr, Dwarf_Die *ret)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->ranges[mid].start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && vaddr < l->ranges[lo - 1].end &&
	       dwarf_offdie(l->dwarf, l->ranges[lo - 1].unit, ret) != NULL;
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

/* Such have no code of their own, and functions in them. */
static bool is_container(Dwarf_Die *die)
{
	int tag = dwarf_tag(die);

	return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
	       tag == DW_TAG_class_type;
}

/* Whether the place was found below the entry. libdw's dwarf_getscopes() loses memory where an origin is missing. */
static bool descend(struct scopes *s, Dwarf_Die *die, uint64_t vaddr, unsigned depth)
{
	Dwarf_Die child;

	if (depth == SCOPES_MAX || dwarf_child(die, &child) != 0)
		return false;
	do {
		if (dwarf_haspc(&child, vaddr) > 0) {
			if (s->n < SCOPES_MAX)
				s->die[s->n++] = child;
			(void)descend(s, &child, vaddr, depth + 1);
			return true;
		}
		if (is_container(&child) && descend(s, &child, vaddr, depth + 1))
			return true;
	} while (dwarf_siblingof(&child, &child) == 0);
	return false;
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

static int find_place(const struct lines *l, uint64_t vaddr, Sysprofd__V1__Place *p)
{
	struct scopes scopes = {};
	Sysprofd__V1__Line *line;
	Dwarf_Line *source;
	int r, number = 0;
	Dwarf_Die unit;

	if (!find_unit(l, vaddr, &unit))
		return 0;
	p->lines = new0(Sysprofd__V1__Line *, HELPER_LINES_MAX);
	line = p->lines ? add_line(p) : NULL;
	if (!line)
		return -ENOMEM;
	source = dwarf_getsrc_die(&unit, vaddr);
	if (source && dwarf_lineno(source, &number) == 0) {
		r = set_source(line, dwarf_linesrc(source, NULL, NULL), number);
		if (r < 0)
			return r;
	}
	(void)descend(&scopes, &unit, vaddr, 0);
	return add_scopes(p, &scopes, &unit);
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

int lines_answer(struct lines *l, const struct elf_table *t, const Sysprofd__V1__ParseRequest *q,
		 const struct input *program, const struct input *debug, struct answer *a)
{
	size_t bytes = 0;
	int r = make_places(a, q->n_offsets), found;

	if (r < 0)
		return r;
	found = use_file(l, t, program, debug);
	a->response.wants_debug_file = found == -ENODATA &&
				       (*elf_table_build_id(t) || *elf_table_link(t));
	/* Whatever is wrong with the DWARF: then there are no lines. */
	for (size_t i = 0; found >= 0 && i < q->n_offsets && bytes < HELPER_LINES_BYTES; i++) {
		Sysprofd__V1__Place *p = a->response.places[i];
		uint64_t vaddr;

		if (!elf_table_vaddr(t, q->offsets[i], &vaddr))
			continue;
		r = find_place(l, vaddr, p);
		if (r < 0)
			return r;
		bytes += sysprofd__v1__place__get_packed_size(p);
	}
	return 0;
}
