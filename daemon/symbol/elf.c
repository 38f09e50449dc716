// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "symbol/demangle.h"
#include "symbol/elf-internal.h"

/* Aliases at one address that are compared by name: C++ makes a handful, hostile files more. */
#define ALIASES_MAX 256
/* Symbols that enclose one another around an address. */
#define NESTING_MAX 1024
#define SECTIONS_MAX 65536

struct elf_table *elf_table_free(struct elf_table *t)
{
	if (!t)
		return NULL;
	free(t->segments);
	free(t->sections);
	free(t->symbols);
	free(t->text);
	free(t);
	return NULL;
}

size_t elf_table_bytes(const struct elf_table *t)
{
	const struct range *text = &t->strings[STRINGS_TEXT];

	return sizeof(*t) + t->n_segments * sizeof(*t->segments) +
	       t->n_sections * sizeof(*t->sections) + t->cap_symbols * sizeof(*t->symbols) +
	       (t->text ? text->end - text->start : 0);
}

const char *elf_table_build_id(const struct elf_table *t)
{
	return t->build_id;
}

const char *elf_table_link(const struct elf_table *t)
{
	return t->link;
}

bool elf_table_wants_debug_file(const struct elf_table *t)
{
	return t->stripped && !t->has_debug_file && (*t->build_id || *t->link);
}

/* ---- headers ----------------------------------------------------------------------------------- */

static int read_segments(struct elf_reader *r, size_t n)
{
	struct elf_table *t = r->t;

	t->base = UINT64_MAX;
	t->segments = new0(struct segment, MIN(n, (size_t)ELF_SEGMENTS_MAX));
	if (!t->segments)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(r->elf, (int)i, &p))
			return -EBADMSG;
		if (p.p_type == PT_DYNAMIC)
			r->dynamic = (struct range){ p.p_offset, p.p_offset + p.p_filesz };
		if (p.p_type != PT_LOAD)
			continue;
		if (t->n_segments == ELF_SEGMENTS_MAX)
			return -EFBIG;
		/* Sums that wrap would make every comparison below a lie. */
		if (p.p_filesz > p.p_memsz || p.p_offset + p.p_memsz < p.p_offset ||
		    p.p_vaddr + p.p_memsz < p.p_vaddr)
			return -EBADMSG;
		t->segments[t->n_segments++] = (struct segment){
			.offset = p.p_offset,
			.filesz = p.p_filesz,
			.vaddr = p.p_vaddr,
			.memsz = p.p_memsz,
			.flags = p.p_flags,
		};
		t->base = MIN(t->base, p.p_vaddr);
	}
	return t->n_segments ? 0 : -ENOEXEC;
}

static bool take_build_id(Elf *elf, uint64_t offset, uint64_t size, uint64_t align, char *ret)
{
	size_t at = 0, next, name, desc;
	GElf_Nhdr n;
	Elf_Data *d;

	if (size < 16 || size > 65536)
		return false;
	d = elf_getdata_rawchunk(elf, (int64_t)offset, size, align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	while (d && (next = gelf_getnote(d, at, &n, &name, &desc)) > 0) {
		const unsigned char *id = (const unsigned char *)d->d_buf + desc;

		at = next;
		if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != 4 ||
		    memcmp((const char *)d->d_buf + name, "GNU", 4) || !n.n_descsz ||
		    n.n_descsz > ELF_BUILD_ID_MAX)
			continue;
		for (size_t i = 0; i < n.n_descsz; i++)
			sprintf(ret + 2 * i, "%02x", id[i]);
		return true;
	}
	return false;
}

void elf_read_build_id(Elf *elf, char ret[static 2 * ELF_BUILD_ID_MAX + 1])
{
	size_t n_segments = 0;
	Elf_Scn *scn = NULL;
	GElf_Phdr p;
	GElf_Shdr s;

	ret[0] = '\0';
	if (elf_getphdrnum(elf, &n_segments) < 0)
		return;
	for (size_t i = 0; i < n_segments; i++)
		if (gelf_getphdr(elf, (int)i, &p) && p.p_type == PT_NOTE &&
		    take_build_id(elf, p.p_offset, p.p_filesz, p.p_align, ret))
			return;
	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &s) && s.sh_type == SHT_NOTE &&
		    take_build_id(elf, s.sh_offset, s.sh_size, s.sh_addralign, ret))
			return;
}

bool elf_find_section(const struct elf_reader *r, const char *name, GElf_Shdr *ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(r->elf, &names) < 0)
		return false;
	while ((scn = elf_nextscn(r->elf, scn))) {
		const char *s = gelf_getshdr(scn, ret) ? elf_strptr(r->elf, names, ret->sh_name)
						       : NULL;

		if (s && streq(s, name) && ret->sh_type == SHT_PROGBITS)
			return true;
	}
	return false;
}

int elf_build_id(int fd, char ret[static 2 * ELF_BUILD_ID_MAX + 1])
{
	Elf *elf;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -EIO;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		return -ENOEXEC;
	}
	ret[0] = '\0';
	elf_read_build_id(elf, ret);
	elf_end(elf);
	return 0;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

int elf_index_sections(struct elf_reader *r)
{
	Elf_Scn *scn = NULL;
	size_t cap = 0;
	GElf_Shdr s;

	while ((scn = elf_nextscn(r->elf, scn))) {
		size_t index = elf_ndxscn(scn);

		if (!gelf_getshdr(scn, &s) || !(s.sh_flags & SHF_EXECINSTR) ||
		    !(s.sh_flags & SHF_ALLOC) || s.sh_addr + s.sh_size <= s.sh_addr)
			continue;
		if (index >= SECTIONS_MAX || ARRAY_GROW(r->by_index, cap, index + 1) < 0)
			return -ENOMEM;
		r->n_by_index = index + 1;
		r->by_index[index] = (struct range){ s.sh_addr, s.sh_addr + s.sh_size };
	}
	return 0;
}

static bool is_code(const struct segment *s)
{
	return (s->flags & PF_X) && s->filesz;
}

/* Damaged section headers are no reason to give up: code can be named without. */
static int read_sections(struct elf_reader *r)
{
	struct elf_table *t = r->t;
	int q = elf_index_sections(r);

	if (q < 0)
		return q;
	t->sections = new0(struct range, r->n_by_index + t->n_segments);
	if (!t->sections)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_by_index; i++)
		if (r->by_index[i].end)
			t->sections[t->n_sections++] = r->by_index[i];
	for (size_t i = 0; !r->n_by_index && i < t->n_segments; i++)
		if (is_code(&t->segments[i]))
			t->sections[t->n_sections++] = (struct range){
				t->segments[i].vaddr, t->segments[i].vaddr + t->segments[i].filesz
			};
	if (t->n_sections)
		qsort(t->sections, t->n_sections, sizeof(*t->sections), compare_ranges);
	return 0;
}

/* ---- building ---------------------------------------------------------------------------------- */

int elf_add_symbol(struct elf_table *t, const struct symbol *s)
{
	int r;

	if (t->n_symbols == ELF_SYMBOLS_MAX)
		return -EFBIG;
	r = ARRAY_GROW(t->symbols, t->cap_symbols, t->n_symbols + 1);
	if (r < 0)
		return r;
	t->symbols[t->n_symbols++] = *s;
	return 0;
}

/* By start; at one start the longest first, so that what encloses comes before what is enclosed. */
static int compare_symbols(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	if (x->type != y->type)
		return (int)x->type - (int)y->type;
	if (x->strings != y->strings)
		return (int)x->strings - (int)y->strings;
	return x->name < y->name ? -1 : x->name > y->name;
}

static uint64_t end_of(const struct symbol *s)
{
	return (uint64_t)s->start + s->size;
}

/*
 * Links every symbol to the nearest earlier one that reaches further, so that a search that begins at the
 * last start before an address goes straight outwards.
 */
static int link_symbols(struct elf_table *t)
{
	_cleanup_free_ uint32_t *stack = NULL;
	size_t depth = 0, cap = 0;

	for (size_t i = 0; i < t->n_symbols; i++) {
		struct symbol *s = &t->symbols[i];

		while (depth && (end_of(&t->symbols[stack[depth - 1]]) <= s->start ||
				 (s->size && end_of(&t->symbols[stack[depth - 1]]) <= end_of(s))))
			depth--;
		s->up = depth ? stack[depth - 1] : ELF_NO_SYMBOL;
		if (!s->size)
			continue;
		if (ARRAY_GROW(stack, cap, depth + 1) < 0)
			return -ENOMEM;
		stack[depth++] = (uint32_t)i;
	}
	return 0;
}

static int build(struct elf_reader *r)
{
	struct elf_table *t = r->t;
	size_t n_segments;
	bool damaged;
	GElf_Ehdr e;
	int q;

	if (elf_kind(r->elf) != ELF_K_ELF || !gelf_getehdr(r->elf, &e) ||
	    (e.e_type != ET_EXEC && e.e_type != ET_DYN))
		return -ENOEXEC;
	r->class = gelf_getclass(r->elf);
	r->encoding = e.e_ident[EI_DATA];
	r->machine = e.e_machine;
	if (elf_getphdrnum(r->elf, &n_segments) < 0)
		return -EBADMSG;
	q = read_segments(r, n_segments);
	if (q < 0)
		return q;
	elf_read_build_id(r->elf, t->build_id);
	elf_read_link(r);
	q = read_sections(r);
	if (q < 0)
		return q;
	q = elf_read_symbols(r);
	damaged = q == -EBADMSG;
	if (q < 0 && (!damaged || !t->n_symbols))
		return q;
	if (t->n_symbols) {
		struct symbol *fit = realloc(t->symbols, t->n_symbols * sizeof(*fit));

		if (fit) {
			t->symbols = fit;
			t->cap_symbols = t->n_symbols;
		}
		qsort(t->symbols, t->n_symbols, sizeof(*t->symbols), compare_symbols);
	}
	return link_symbols(t);
}

int elf_table_new(int fd, int debug_fd, enum elf_want want, struct elf_table **ret)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = new0(struct elf_table, 1);
	_cleanup_(elf_end_p) Elf *elf = NULL;
	struct elf_reader r = { .fd = fd, .debug_fd = debug_fd, .t = t };
	int q;

	if (!t)
		return -ENOMEM;
	t->want = want;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -EOPNOTSUPP;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return -ENOEXEC;
	r.elf = elf;
	q = build(&r);
	free(r.by_index);
	if (q < 0)
		return q;
	*ret = TAKE_PTR(t);
	return 0;
}

/* ---- searching --------------------------------------------------------------------------------- */

bool elf_vaddr_to_offset(const struct elf_table *t, uint64_t vaddr, uint64_t *ret)
{
	for (size_t i = 0; i < t->n_segments; i++) {
		const struct segment *s = &t->segments[i];

		if (vaddr >= s->vaddr && vaddr - s->vaddr < s->filesz) {
			*ret = vaddr - s->vaddr + s->offset;
			return true;
		}
	}
	return false;
}

/* The vaddr of a file offset through the segments that have a flag; limit: filesz, or memsz for .bss. */
static bool through_segments(const struct elf_table *t, uint64_t offset, uint32_t flag, bool bss,
			     uint64_t *ret)
{
	for (size_t i = 0; i < t->n_segments; i++) {
		const struct segment *s = &t->segments[i];

		if ((s->flags & flag) == flag && offset >= s->offset &&
		    offset - s->offset < (bss ? s->memsz : s->filesz)) {
			*ret = offset - s->offset + s->vaddr;
			return true;
		}
	}
	return false;
}

bool elf_offset_to_vaddr(const struct elf_table *t, uint64_t offset, uint64_t *ret)
{
	return through_segments(t, offset, 0, false, ret);
}

bool elf_table_vaddr(const struct elf_table *t, uint64_t offset, uint64_t *ret)
{
	return through_segments(t, offset, PF_X, false, ret);
}

/*
 * One page of a file may be mapped by two segments, so the exact range decides. Data behind the file's part
 * of a segment (.bss) has no offset in the file; it counts on from the segment's.
 */
static bool offset_to_vaddr(const struct elf_table *t, uint64_t offset, uint64_t *ret)
{
	if (t->want == ELF_WANT_CODE)
		return elf_table_vaddr(t, offset, ret);
	return through_segments(t, offset, PF_W, false, ret) ||
	       through_segments(t, offset, PF_W, true, ret) || elf_offset_to_vaddr(t, offset, ret);
}

bool elf_table_reaches(const struct elf_table *t, uint64_t offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < t->n_segments; i++) {
		const struct segment *s = &t->segments[i];

		if (offset < s->offset + s->memsz ||
		    (offset - s->offset + s->vaddr) / page == (s->vaddr + s->memsz - 1) / page)
			return true;
	}
	return false;
}

/* The last symbol that starts at or before at, or ELF_NO_SYMBOL. */
static uint32_t last_start(const struct elf_table *t, uint32_t at)
{
	size_t lo = 0, hi = t->n_symbols;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->symbols[mid].start <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? (uint32_t)(lo - 1) : ELF_NO_SYMBOL;
}

/* The first symbol of those that start there; one of millions may be asked for, so not by walking. */
static uint32_t first_at(const struct elf_table *t, uint32_t start)
{
	uint32_t before = start ? last_start(t, start - 1) : ELF_NO_SYMBOL;

	return before == ELF_NO_SYMBOL ? 0 : before + 1;
}

static bool covers(const struct symbol *s, uint32_t at)
{
	return at >= s->start && at < end_of(s);
}

static bool same_section(const struct elf_table *t, uint32_t a, uint32_t b)
{
	for (size_t i = 0; i < t->n_sections; i++) {
		uint64_t start = t->sections[i].start - t->base, end = t->sections[i].end - t->base;

		if (a >= start && a < end)
			return b >= start && b < end;
	}
	return false;
}

/* The symbol that names an address, one of its aliases. A label reaches to the next start, sized ones do not. */
static uint32_t covering(const struct elf_table *t, uint32_t at)
{
	uint32_t last = last_start(t, at), i = last;
	const struct symbol *s;

	for (int steps = 0; i != ELF_NO_SYMBOL && steps < NESTING_MAX;
	     steps++, i = t->symbols[i].up)
		if (covers(&t->symbols[i], at))
			return i;
	if (last == ELF_NO_SYMBOL || t->want != ELF_WANT_CODE)
		return ELF_NO_SYMBOL;
	/* The longest of a start is sorted first, so a label that comes last stands beside sized ones or alone. */
	i = first_at(t, t->symbols[last].start);
	s = &t->symbols[i];
	if (s->size || s->up != ELF_NO_SYMBOL || !same_section(t, s->start, at))
		return ELF_NO_SYMBOL;
	return i;
}

struct candidate {
	const struct symbol *symbol;
	char name[ELF_NAME_MAX];
	size_t len, underscores;
};

static bool better(const struct candidate *a, const struct candidate *b)
{
	const struct symbol *x = a->symbol, *y = b->symbol;

	if (x->type != y->type)
		return x->type < y->type;
	if (x->bind != y->bind)
		return x->bind < y->bind;
	if (a->underscores != b->underscores)
		return a->underscores < b->underscores;
	if (a->len != b->len)
		return a->len < b->len;
	return strcmp(a->name, b->name) < 0;
}

static int read_candidate(const struct elf_table *t, int fd, int debug_fd, const struct symbol *s,
			  struct candidate *ret)
{
	int r = elf_read_name(t, fd, debug_fd, s, ret->name, sizeof(ret->name));

	if (r < 0)
		return r;
	ret->symbol = s;
	ret->underscores = strspn(ret->name, "_");
	ret->len = symbol_base_length(ret->name);
	return ret->len ? 0 : -EBADMSG;
}

static const char *type_suffix(const struct symbol *s)
{
	return s->type == SYMBOL_RESOLVER ? ".resolver" : s->type == SYMBOL_PLT ? "@plt" : "";
}

int elf_table_find(const struct elf_table *t, int fd, int debug_fd, uint64_t offset,
		   char ret_name[static ELF_NAME_MAX])
{
	struct candidate pair[2], *best = NULL;
	uint32_t at, first, tried = 0;
	uint64_t vaddr;

	if (!offset_to_vaddr(t, offset, &vaddr))
		return 0;
	/* First: a label of .dynsym may reach over all of its functions. */
	if (elf_go_find(&t->go, fd, vaddr, ret_name, ELF_NAME_MAX))
		return 1;
	if (vaddr - t->base > UINT32_MAX)
		return 0;
	at = (uint32_t)(vaddr - t->base);
	first = covering(t, at);
	if (first == ELF_NO_SYMBOL)
		return 0;
	first = first_at(t, t->symbols[first].start);
	for (uint32_t i = first; i < t->n_symbols && tried < ALIASES_MAX &&
				 t->symbols[i].start == t->symbols[first].start;
	     i++) {
		struct candidate *c = best == &pair[0] ? &pair[1] : &pair[0];

		/* A sized symbol is beaten only by one that covers the address as well; the longest come first. */
		if (t->symbols[i].size ? !covers(&t->symbols[i], at) : t->symbols[first].size != 0)
			break;
		tried++;
		if (read_candidate(t, fd, debug_fd, &t->symbols[i], c) == 0 &&
		    (!best || better(c, best)))
			best = c;
	}
	if (!best)
		return 0;
	/* Without the symbol version, which .symtab carries in the name. */
	snprintf(ret_name, ELF_NAME_MAX, "%.*s%s", (int)(1 + strcspn(best->name + 1, "@")),
		 best->name, type_suffix(best->symbol));
	return 1;
}
