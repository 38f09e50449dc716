// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Symbols out of a file: .symtab and .dynsym by section headers, or, where there are none, the dynamic
 * symbol table by PT_DYNAMIC. Read in chunks, so that a table of a million symbols needs no second copy.
 */
#include "base/io.h"
#include "symbol/elf-internal.h"

#define CHUNK 49152 /* a multiple of both symbol sizes */
#define DYNAMIC_MAX 65536
#define HASH_BUCKETS_MAX (1U << 24)

int elf_read_records(const struct elf_reader *r, Elf_Type type, void *buf, size_t len,
		     uint64_t offset)
{
	Elf_Data data = { .d_buf = buf, .d_type = type, .d_size = len, .d_version = EV_CURRENT };
	int q;

	if (offset > INT64_MAX - len)
		return -EBADMSG;
	q = pread_full(r->fd, buf, len, offset);
	if (q < 0)
		return q == -ENODATA ? -EBADMSG : q;
	return gelf_xlatetom(r->elf, &data, &data, r->encoding) ? 0 : -EBADMSG;
}

/* A NUL within n bytes, or cut when they are as many as were asked for. */
static int end_string(char *buf, ssize_t n, size_t size)
{
	if (n <= 0 || !buf[0])
		return -EBADMSG;
	if (!memchr(buf, '\0', (size_t)n)) {
		/* Cut what is longer than any compiler makes; refuse what runs out of its table. */
		if ((size_t)n < size)
			return -EBADMSG;
		buf[size - 1] = '\0';
	}
	return 0;
}

int elf_read_string(int fd, const struct range *strings, uint64_t at, char *buf, size_t size)
{
	uint64_t left;
	ssize_t n;

	if (strings->end <= strings->start || at >= strings->end - strings->start)
		return -EBADMSG;
	left = strings->end - strings->start - at;
	do
		n = pread(fd, buf, MIN(left, size), (off_t)(strings->start + at));
	while (n < 0 && errno == EINTR);
	return n < 0 ? negative_errno() : end_string(buf, n, size);
}

int elf_read_name(const struct elf_table *t, int fd, int debug_fd, const struct symbol *s,
		  char *buf, size_t size)
{
	const struct range *strings = &t->strings[s->strings];
	uint64_t n;

	if (s->strings != STRINGS_TEXT)
		return elf_read_string(s->strings == STRINGS_DEBUG ? debug_fd : fd, strings,
				       s->name, buf, size);
	if (s->name >= strings->end - strings->start)
		return -EBADMSG;
	n = MIN(strings->end - strings->start - s->name, (uint64_t)size);
	memcpy(buf, t->text + s->name, n);
	return end_string(buf, (ssize_t)n, size);
}

static bool in_segment(const struct elf_table *t, uint64_t vaddr, uint32_t flags)
{
	for (size_t i = 0; i < t->n_segments; i++) {
		const struct segment *s = &t->segments[i];

		if ((s->flags & flags) == flags && vaddr >= s->vaddr && vaddr - s->vaddr < s->memsz)
			return true;
	}
	return false;
}

bool elf_is_code(const struct elf_table *t, uint64_t vaddr)
{
	return in_segment(t, vaddr, PF_X);
}

/*
 * Whether a label marks the kind of bytes that follow ("$x", "$d") instead of naming them. Such labels exist
 * on these machines only; looking at names of all labels elsewhere would cost a read each.
 */
static bool is_mapping_symbol(const struct elf_reader *r, enum symbol_strings strings,
			      const GElf_Sym *s)
{
	char c;

	if (r->machine != EM_AARCH64 && r->machine != EM_ARM && r->machine != EM_RISCV)
		return false;
	return pread(r->fd, &c, 1, (off_t)(r->t->strings[strings].start + s->st_name)) == 1 &&
	       c == '$';
}

static bool wanted(const struct elf_reader *r, enum symbol_strings strings, const GElf_Sym *s,
		   struct symbol *ret)
{
	const struct elf_table *t = r->t;
	unsigned type = GELF_ST_TYPE(s->st_info), bind = GELF_ST_BIND(s->st_info);

	if (!s->st_name || s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS ||
	    s->st_shndx == SHN_COMMON)
		return false;
	if (t->want == ELF_WANT_DATA) {
		if (type != STT_OBJECT || !s->st_size || !in_segment(t, s->st_value, 0))
			return false;
		ret->type = SYMBOL_SIZED_KIND;
	} else {
		if (type != STT_FUNC && type != STT_NOTYPE && type != STT_GNU_IFUNC)
			return false;
		if (!elf_is_code(t, s->st_value))
			return false;
		ret->type = type == STT_FUNC	 ? SYMBOL_SIZED_KIND
			    : type == STT_NOTYPE ? SYMBOL_LABEL
						 : SYMBOL_RESOLVER;
		/* "etext" and its like stand at the end of a section: they name what does not belong to it. */
		if (!s->st_size && r->n_by_index &&
		    (s->st_shndx >= r->n_by_index || s->st_value < r->by_index[s->st_shndx].start ||
		     s->st_value >= r->by_index[s->st_shndx].end))
			return false;
		if (type == STT_NOTYPE && is_mapping_symbol(r, strings, s))
			return false;
	}
	/* Code and static data further than 4 GiB from the first segment do not occur: they stay unnamed. */
	if (s->st_value - t->base > UINT32_MAX)
		return false;
	ret->start = (uint32_t)(s->st_value - t->base);
	ret->size = (uint32_t)MIN(s->st_size, (uint64_t)UINT32_MAX);
	ret->name = s->st_name;
	ret->strings = strings;
	ret->bind = bind == STB_WEAK ? 1 : bind == STB_LOCAL ? 2 : 0;
	return true;
}

static GElf_Sym symbol_at(const struct elf_reader *r, const void *chunk, size_t i)
{
	const Elf32_Sym *s;

	if (r->class == ELFCLASS64)
		return ((const Elf64_Sym *)chunk)[i];
	s = &((const Elf32_Sym *)chunk)[i];
	return (GElf_Sym){
		.st_name = s->st_name,
		.st_info = s->st_info,
		.st_other = s->st_other,
		.st_shndx = s->st_shndx,
		.st_value = s->st_value,
		.st_size = s->st_size,
	};
}

/* sh_entsize and DT_SYMENT are not believed: the class says how long a symbol is. */
static size_t symbol_size(const struct elf_reader *r)
{
	return r->class == ELFCLASS64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
}

static int read_table(struct elf_reader *r, struct range where, struct range names,
		      enum symbol_strings strings)
{
	_cleanup_free_ void *chunk = malloc(CHUNK);
	size_t each = symbol_size(r);
	int q;

	if (!chunk)
		return -ENOMEM;
	if ((where.end - where.start) / each > ELF_ENTRIES_MAX)
		return -EFBIG;
	r->t->strings[strings] = names;
	while (where.end - where.start >= each) {
		size_t n = MIN((uint64_t)CHUNK / each, (where.end - where.start) / each);

		q = elf_read_records(r, ELF_T_SYM, chunk, n * each, where.start);
		if (q < 0)
			return q;
		for (size_t i = 0; i < n; i++) {
			GElf_Sym s = symbol_at(r, chunk, i);
			struct symbol add = {};

			if (!wanted(r, strings, &s, &add))
				continue;
			q = elf_add_symbol(r->t, &add);
			if (q < 0)
				return q;
		}
		where.start += n * each;
	}
	return 0;
}

/* ---- by section headers ------------------------------------------------------------------------ */

static bool to_range(uint64_t offset, uint64_t size, struct range *ret)
{
	if (offset > INT64_MAX || size > INT64_MAX - offset)
		return false;
	*ret = (struct range){ offset, offset + size };
	return true;
}

int elf_read_section(struct elf_reader *r, const GElf_Shdr *s, enum symbol_strings strings)
{
	Elf_Scn *link = elf_getscn(r->elf, s->sh_link);
	struct range where, names;
	GElf_Shdr names_header;

	if (!link || !gelf_getshdr(link, &names_header) || names_header.sh_type != SHT_STRTAB ||
	    !to_range(s->sh_offset, s->sh_size, &where) ||
	    !to_range(names_header.sh_offset, names_header.sh_size, &names))
		return -EBADMSG;
	return read_table(r, where, names, strings);
}

/* One damaged table does not spoil the other. seen: the tables that are there. */
static int read_by_sections(struct elf_reader *r, bool seen[static STRINGS_N])
{
	bool damaged = false;
	Elf_Scn *scn = NULL;
	GElf_Shdr s;

	while ((scn = elf_nextscn(r->elf, scn))) {
		enum symbol_strings strings;
		int q;

		if (!gelf_getshdr(scn, &s) || (s.sh_type != SHT_SYMTAB && s.sh_type != SHT_DYNSYM))
			continue;
		strings = s.sh_type == SHT_DYNSYM ? STRINGS_DYNSYM : STRINGS_SYMTAB;
		if (seen[strings])
			continue;
		seen[strings] = true;
		q = elf_read_section(r, &s, strings);
		if (q < 0 && q != -EBADMSG)
			return q;
		damaged |= q < 0;
	}
	return damaged ? -EBADMSG : 0;
}

/* ---- by PT_DYNAMIC ----------------------------------------------------------------------------- */

struct dynamic {
	uint64_t symbols, strings, strings_size, hash, gnu_hash;
};

static int read_dynamic(const struct elf_reader *r, struct dynamic *ret)
{
	size_t each = r->class == ELFCLASS64 ? sizeof(Elf64_Dyn) : sizeof(Elf32_Dyn), n;
	_cleanup_free_ void *buf = NULL;
	int q;

	if (r->dynamic.end <= r->dynamic.start)
		return -ENOENT;
	n = MIN(r->dynamic.end - r->dynamic.start, (uint64_t)DYNAMIC_MAX) / each;
	buf = malloc(n * each + 1);
	if (!buf)
		return -ENOMEM;
	q = elf_read_records(r, ELF_T_DYN, buf, n * each, r->dynamic.start);
	if (q < 0)
		return q;
	for (size_t i = 0; i < n; i++) {
		bool wide = r->class == ELFCLASS64;
		int64_t tag = wide ? ((Elf64_Dyn *)buf)[i].d_tag : ((Elf32_Dyn *)buf)[i].d_tag;
		uint64_t v = wide ? ((Elf64_Dyn *)buf)[i].d_un.d_val
				  : ((Elf32_Dyn *)buf)[i].d_un.d_val;

		if (tag == DT_NULL)
			break;
		if (tag == DT_SYMTAB)
			ret->symbols = v;
		else if (tag == DT_STRTAB)
			ret->strings = v;
		else if (tag == DT_STRSZ)
			ret->strings_size = v;
		else if (tag == DT_HASH)
			ret->hash = v;
		else if (tag == DT_GNU_HASH)
			ret->gnu_hash = v;
	}
	return ret->symbols && ret->strings ? 0 : -ENOENT;
}

/* The number of symbols is not stated: it follows from the last chain of the hash table. */
static int count_by_gnu_hash(const struct elf_reader *r, uint64_t offset, uint64_t *ret)
{
	uint32_t header[4], word, last = 0, skip;
	uint64_t buckets, chains;
	int q;

	q = elf_read_records(r, ELF_T_WORD, header, sizeof(header), offset);
	if (q < 0)
		return q;
	if (header[0] > HASH_BUCKETS_MAX || header[2] > HASH_BUCKETS_MAX)
		return -EBADMSG;
	skip = header[1];
	buckets = offset + sizeof(header) + (uint64_t)header[2] * (r->class == ELFCLASS64 ? 8 : 4);
	chains = buckets + 4ULL * header[0];
	for (uint32_t i = 0; i < header[0]; i++) {
		q = elf_read_records(r, ELF_T_WORD, &word, sizeof(word), buckets + 4ULL * i);
		if (q < 0)
			return q;
		last = MAX(last, word);
	}
	if (last < skip) {
		*ret = skip;
		return 0;
	}
	for (;; last++) {
		if (last >= ELF_SYMBOLS_MAX)
			return -EBADMSG;
		q = elf_read_records(r, ELF_T_WORD, &word, sizeof(word),
				     chains + 4ULL * (last - skip));
		if (q < 0)
			return q;
		if (word & 1)
			break;
	}
	*ret = last + 1;
	return 0;
}

static int read_by_dynamic(struct elf_reader *r)
{
	struct range where, names;
	struct dynamic d = {};
	uint64_t offset, n = 0;
	uint32_t header[2];
	int q;

	q = read_dynamic(r, &d);
	if (q < 0)
		return q == -ENOENT ? 0 : q;
	if (d.gnu_hash && elf_vaddr_to_offset(r->t, d.gnu_hash, &offset)) {
		q = count_by_gnu_hash(r, offset, &n);
	} else if (d.hash && elf_vaddr_to_offset(r->t, d.hash, &offset)) {
		q = elf_read_records(r, ELF_T_WORD, header, sizeof(header), offset);
		n = q < 0 ? 0 : header[1];
	}
	if (q < 0)
		return q;
	if (!elf_vaddr_to_offset(r->t, d.symbols, &offset) ||
	    !to_range(offset, n * symbol_size(r), &where) ||
	    !elf_vaddr_to_offset(r->t, d.strings, &offset) ||
	    !to_range(offset, d.strings_size, &names))
		return -EBADMSG;
	return read_table(r, where, names, STRINGS_DYNSYM);
}

int elf_read_symbols(struct elf_reader *r)
{
	bool seen[STRINGS_N] = {};
	struct elf_table *t = r->t;
	int q;

	q = read_by_sections(r, seen);
	if (q < 0)
		return q;
	t->stripped = !seen[STRINGS_SYMTAB];
	if (r->debug_fd >= 0)
		q = t->stripped ? elf_read_debug_file(r) : -ESTALE;
	else if (t->stripped && t->want == ELF_WANT_CODE)
		q = elf_read_debugdata(r);
	if (q < 0)
		return q;
	if (t->stripped && !t->has_debug_file && t->want == ELF_WANT_CODE)
		elf_read_go(r);
	if (t->stripped && !seen[STRINGS_DYNSYM])
		return read_by_dynamic(r);
	return t->want == ELF_WANT_CODE ? elf_read_plt(r) : 0;
}
