// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Function names of stripped Go programs. The runtime needs a table of all functions for its own tracebacks
 * (pclntab), and strip leaves it alone. It is sorted by address and searched where it lies, in the file: nothing of
 * it is kept but where its parts are. Numbers are the header's words, addresses come first in each entry:
 *
 *	1.2	functions; then the entries {pc, function}, words; all else counts from the table
 *	1.16	functions, files, names, ..., ..., ..., entries; entries are as before, functions count from them
 *	1.18	functions, files, text, names, ..., ..., ..., entries {pc - text, function}, 32 bits each
 *
 * and in the function's record the offset of its name follows the pc. Linkers that put the table where relocations
 * are done at load time leave 0 for the word "text"; the relocation has it.
 */
#include "base/io.h"
#include "symbol/elf-internal.h"

#define SCAN_MAX (1ULL << 30) /* bytes of a program that are searched for the table */
#define SCAN_CHUNK 65536
#define HEADER_MAX (8 + 8 * 8)
#define FUNCTIONS_MAX (1U << 24)

enum {
	MAGIC_1_2 = 0xfffffffb,
	MAGIC_1_16 = 0xfffffffa,
	MAGIC_1_18 = 0xfffffff0,
	MAGIC_1_20 = 0xfffffff1, /* as 1.18 */
};

static uint64_t number(const uint8_t *p, size_t size, bool big_endian)
{
	uint64_t v = 0;

	for (size_t i = 0; i < size; i++)
		v = v << 8 | p[big_endian ? i : size - 1 - i];
	return v;
}

static int read_number(const struct go_table *g, int fd, uint64_t offset, size_t size,
		       uint64_t *ret)
{
	uint8_t buf[8];
	int q = offset > INT64_MAX ? -EBADMSG : pread_full(fd, buf, size, offset);

	if (q >= 0)
		*ret = number(buf, size, g->big_endian);
	return q;
}

/* ---- searching the table ------------------------------------------------------------------------------- */

static int read_pc(const struct go_table *g, int fd, uint64_t i, uint64_t *ret)
{
	uint64_t v = 0;
	int q = read_number(g, fd, g->entries + i * 2 * g->entry_word, g->entry_word, &v);

	if (q >= 0)
		*ret = g->text + v;
	return q;
}

int elf_go_find(const struct go_table *g, int fd, uint64_t vaddr, char *buf, size_t size)
{
	uint64_t lo = 0, hi = g->n, pc = 0, record = 0, name = 0;

	if (!g->n || read_pc(g, fd, 0, &pc) < 0 || vaddr < pc || read_pc(g, fd, g->n, &pc) < 0 ||
	    vaddr >= pc)
		return 0;
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (read_pc(g, fd, mid, &pc) < 0)
			return 0;
		if (pc <= vaddr)
			lo = mid;
		else
			hi = mid;
	}
	if (read_number(g, fd, g->entries + (2 * lo + 1) * g->entry_word, g->entry_word, &record) <
		    0 ||
	    read_number(g, fd, g->records + record + g->entry_word, sizeof(uint32_t), &name) < 0)
		return 0;
	return elf_read_string(fd, &g->names, name, buf, size) == 0;
}

/* ---- finding it ---------------------------------------------------------------------------------------- */

/* What the word at vaddr will hold once the program is loaded, or 0. */
static uint64_t relocated(const struct elf_reader *r, uint64_t vaddr)
{
	enum { CHUNK_N = 1024 };
	_cleanup_free_ Elf64_Rela *chunk = new0(Elf64_Rela, CHUNK_N);
	Elf_Scn *scn = NULL;
	GElf_Shdr s;

	while (chunk && (scn = elf_nextscn(r->elf, scn))) {
		if (!gelf_getshdr(scn, &s) || s.sh_type != SHT_RELA || !(s.sh_flags & SHF_ALLOC) ||
		    s.sh_size / sizeof(*chunk) > ELF_ENTRIES_MAX)
			continue;
		for (uint64_t i = 0, n = s.sh_size / sizeof(*chunk); i < n; i += CHUNK_N) {
			size_t now = MIN(n - i, (uint64_t)CHUNK_N);

			if (elf_read_records(r, ELF_T_RELA, chunk, now * sizeof(*chunk),
					     s.sh_offset + i * sizeof(*chunk)) < 0)
				return 0;
			for (size_t k = 0; k < now; k++)
				if (chunk[k].r_offset == vaddr)
					return (uint64_t)chunk[k].r_addend;
		}
	}
	return 0;
}

static uint64_t text_start(const struct elf_reader *r, uint64_t word, uint64_t offset)
{
	uint64_t vaddr = 0;

	if (word)
		return word;
	if (r->class == ELFCLASS64 && elf_offset_to_vaddr(r->t, offset, &vaddr))
		word = relocated(r, vaddr);
	/* Nobody else puts code into its first section. */
	return word ?: r->t->n_sections ? r->t->sections[0].start : 0;
}

/* A table is one when its first functions lie in code, one after the other. */
static bool is_right(const struct elf_reader *r, const struct go_table *g)
{
	uint64_t a, b, end;

	return g->n && g->n < FUNCTIONS_MAX && g->names.start < g->names.end &&
	       read_pc(g, r->fd, 0, &a) == 0 && read_pc(g, r->fd, 1, &b) == 0 &&
	       read_pc(g, r->fd, g->n, &end) == 0 && a < b && b <= end && elf_is_code(r->t, a) &&
	       elf_is_code(r->t, end - 1);
}

/* Whether a table begins there; limit: where it ends at the latest. */
static bool take_table(struct elf_reader *r, const uint8_t *header, uint64_t at, uint64_t limit)
{
	struct go_table g = { .big_endian = r->encoding == ELFDATA2MSB };
	size_t word = header[7];
	uint64_t w[8];

	if (header[4] || header[5] || (header[6] != 1 && header[6] != 2 && header[6] != 4) ||
	    word != (r->class == ELFCLASS64 ? 8 : 4))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		w[i] = number(header + 8 + i * word, word, g.big_endian);
	g.n = w[0];
	g.entry_word = (uint32_t)word;
	switch (number(header, 4, g.big_endian)) {
	case MAGIC_1_2:
		g.records = at;
		g.entries = at + 8 + word;
		g.names = (struct range){ at, limit };
		break;
	case MAGIC_1_16:
		g.records = g.entries = at + w[6];
		g.names = (struct range){ at + w[2], at + w[3] };
		break;
	case MAGIC_1_18:
	case MAGIC_1_20:
		g.records = g.entries = at + w[7];
		g.names = (struct range){ at + w[3], at + w[4] };
		g.entry_word = 4;
		g.text = text_start(r, w[2], at + 8 + 2 * word);
		break;
	default:
		return false;
	}
	if (g.names.end > limit || g.entries > limit || !is_right(r, &g))
		return false;
	r->t->go = g;
	return true;
}

static bool is_magic(const struct elf_reader *r, const uint8_t *p)
{
	switch (number(p, 4, r->encoding == ELFDATA2MSB)) {
	case MAGIC_1_2:
	case MAGIC_1_16:
	case MAGIC_1_18:
	case MAGIC_1_20:
		return true;
	default:
		return false;
	}
}

/* Looks for the table, which is aligned to a word at least, in a part of the file. */
static bool scan(struct elf_reader *r, struct range where, uint64_t limit)
{
	_cleanup_free_ uint8_t *buf = malloc(SCAN_CHUNK + HEADER_MAX);

	where.start = (where.start + 7) & ~7ULL;
	for (; buf && where.start < where.end; where.start += SCAN_CHUNK) {
		ssize_t n = pread(r->fd, buf, SCAN_CHUNK + HEADER_MAX, (off_t)where.start);

		for (ssize_t i = 0; i < SCAN_CHUNK && i + HEADER_MAX <= n; i += 8)
			if (where.start + (uint64_t)i < where.end && is_magic(r, buf + i) &&
			    take_table(r, buf + i, where.start + (uint64_t)i, limit))
				return true;
	}
	return false;
}

static bool has_note(const struct elf_reader *r)
{
	size_t n = 0, at, next, name, desc;
	GElf_Nhdr note;
	GElf_Phdr p;

	if (elf_getphdrnum(r->elf, &n) < 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		Elf_Data *d;

		if (!gelf_getphdr(r->elf, (int)i, &p) || p.p_type != PT_NOTE ||
		    p.p_filesz > SCAN_CHUNK)
			continue;
		d = elf_getdata_rawchunk(r->elf, (int64_t)p.p_offset, p.p_filesz, ELF_T_NHDR);
		for (at = 0; d && (next = gelf_getnote(d, at, &note, &name, &desc)) > 0; at = next)
			if (note.n_namesz == 4 && !memcmp((char *)d->d_buf + name, "Go\0", 4))
				return true;
	}
	return false;
}

void elf_read_go(struct elf_reader *r)
{
	const struct elf_table *t = r->t;
	uint64_t left = SCAN_MAX;
	GElf_Shdr s;

	/* The first at its head; the second goes by position-independent programs, whose table may be anywhere. */
	if (elf_find_section(r, ".gopclntab", &s) ||
	    elf_find_section(r, ".data.rel.ro.gopclntab", &s)) {
		scan(r, (struct range){ s.sh_offset, s.sh_offset + 8 }, s.sh_offset + s.sh_size);
		return;
	}
	if (!elf_find_section(r, ".go.buildinfo", &s) && !has_note(r))
		return;
	for (size_t i = 0; i < t->n_segments; i++) {
		const struct segment *p = &t->segments[i];
		struct range where = { p->offset, p->offset + MIN(p->filesz, left) };

		if ((p->flags & PF_X) && t->n_segments > 1)
			continue;
		left -= where.end - where.start;
		if (scan(r, where, p->offset + p->filesz))
			return;
	}
}
