// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names for entries of procedure linkage tables, which have no symbols: each jumps through a slot of the
 * global offset table, and the dynamic relocation of that slot says which symbol it is for. The slot is read
 * out of the entry's instructions, so that it does not matter in which of its tables a linker put what.
 */
#include "base/io.h"
#include "symbol/elf-internal.h"

#define PLT_BYTES_MAX (16U << 20)
#define RELOCATIONS_MAX (1U << 20)
#define ENTRY 16 /* the longest; .plt.got has entries of 8 on x86-64 */

struct slot {
	uint64_t vaddr;
	uint32_t symbol; /* in .dynsym */
};

struct plt {
	struct elf_reader *r;
	GElf_Shdr dynsym;
	struct slot *slots;
	size_t n, cap;
};

/* ---- relocations: slot -> symbol ----------------------------------------------------------------- */

static bool is_slot(uint16_t machine, uint32_t type)
{
	if (machine == EM_X86_64)
		return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
	return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
}

static int read_relocations(struct plt *p, const GElf_Shdr *s)
{
	enum { CHUNK_N = 1024 };
	_cleanup_free_ Elf64_Rela *chunk = new0(Elf64_Rela, CHUNK_N);
	uint64_t at = s->sh_offset, n = s->sh_size / sizeof(*chunk);

	if (!chunk)
		return -ENOMEM;
	if (n > ELF_ENTRIES_MAX)
		return -EFBIG;
	while (n) {
		size_t now = MIN(n, (uint64_t)CHUNK_N);
		int q = elf_read_records(p->r, ELF_T_RELA, chunk, now * sizeof(*chunk), at);

		if (q < 0)
			return q;
		for (size_t i = 0; i < now; i++) {
			if (!is_slot(p->r->machine, ELF64_R_TYPE(chunk[i].r_info)))
				continue;
			if (p->n == RELOCATIONS_MAX)
				return -EFBIG;
			q = ARRAY_GROW(p->slots, p->cap, p->n + 1);
			if (q < 0)
				return q;
			p->slots[p->n++] = (struct slot){ chunk[i].r_offset,
							  ELF64_R_SYM(chunk[i].r_info) };
		}
		at += now * sizeof(*chunk);
		n -= now;
	}
	return 0;
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

/* ---- entries: instructions -> slot ------------------------------------------------------------------- */

static uint32_t word_at(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The address of the slot that the entry at vaddr jumps through, or 0. */
static uint64_t slot_of_x86_64(const unsigned char *entry, size_t len, uint64_t vaddr)
{
	/* jmp *disp(%rip), behind an endbr64, with a bnd prefix, or alone. */
	for (size_t i = 0; i + 6 <= len; i++)
		if (entry[i] == 0xff && entry[i + 1] == 0x25)
			return vaddr + i + 6 + (uint64_t)(int64_t)(int32_t)word_at(entry + i + 2);
	return 0;
}

static uint64_t slot_of_aarch64(const unsigned char *entry, size_t len, uint64_t vaddr)
{
	for (size_t i = 0; i + 8 <= len; i += 4) {
		uint32_t adrp = word_at(entry + i), ldr = word_at(entry + i + 4);
		int64_t page;

		/* adrp x16, page; ldr x17, [x16, offset] */
		if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
			continue;
		page = (int64_t)((uint64_t)((adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3)) << 43) >>
		       31;
		return ((vaddr + i) & ~0xfffULL) + (uint64_t)page + ((ldr >> 10 & 0xfff) << 3);
	}
	return 0;
}

static uint64_t slot_of(uint16_t machine, const unsigned char *entry, size_t len, uint64_t vaddr)
{
	return machine == EM_X86_64 ? slot_of_x86_64(entry, len, vaddr)
				    : slot_of_aarch64(entry, len, vaddr);
}

static int add_entry(struct plt *p, uint64_t vaddr, size_t len, uint64_t slot)
{
	struct slot key = { .vaddr = slot };
	const struct slot *found = p->n ? bsearch(&key, p->slots, p->n, sizeof(key), compare_slots)
					: NULL;
	const struct elf_table *t = p->r->t;
	struct symbol add = { .size = (uint32_t)len,
			      .type = SYMBOL_PLT,
			      .strings = STRINGS_DYNSYM };
	Elf64_Sym s;
	int q;

	if (!found || vaddr - t->base > UINT32_MAX ||
	    found->symbol >= p->dynsym.sh_size / sizeof(s))
		return 0;
	q = elf_read_records(p->r, ELF_T_SYM, &s, sizeof(s),
			     p->dynsym.sh_offset + (uint64_t)found->symbol * sizeof(s));
	if (q < 0 || !s.st_name)
		return q;
	add.start = (uint32_t)(vaddr - t->base);
	add.name = s.st_name;
	return elf_add_symbol(p->r->t, &add);
}

static int read_entries(struct plt *p, const GElf_Shdr *s)
{
	size_t step = s->sh_entsize == 8 ? 8 : ENTRY;
	_cleanup_free_ unsigned char *code = NULL;
	int q;

	if (s->sh_size > PLT_BYTES_MAX || s->sh_offset > INT64_MAX)
		return -EBADMSG;
	code = malloc(s->sh_size + 1);
	if (!code)
		return -ENOMEM;
	q = pread_full(p->r->fd, code, s->sh_size, s->sh_offset);
	if (q < 0)
		return q == -ENODATA ? -EBADMSG : q;
	for (uint64_t i = 0; i + step <= s->sh_size; i += step) {
		uint64_t slot = slot_of(p->r->machine, code + i, step, s->sh_addr + i);

		q = slot ? add_entry(p, s->sh_addr + i, step, slot) : 0;
		if (q < 0)
			return q;
	}
	return 0;
}

/* ---- both ---------------------------------------------------------------------------------------- */

static bool is_plt(const struct elf_reader *r, const GElf_Shdr *s, size_t names)
{
	const char *name;

	if (s->sh_type != SHT_PROGBITS || !(s->sh_flags & SHF_EXECINSTR))
		return false;
	name = elf_strptr(r->elf, names, s->sh_name);
	return name && strncmp(name, ".plt", 4) == 0;
}

static int read_all(struct plt *p)
{
	Elf_Scn *scn = NULL;
	size_t names;
	GElf_Shdr s;
	int q;

	if (elf_getshdrstrndx(p->r->elf, &names) < 0)
		return 0;
	while ((scn = elf_nextscn(p->r->elf, scn)))
		if (gelf_getshdr(scn, &s) && s.sh_type == SHT_DYNSYM)
			p->dynsym = s;
	if (!p->dynsym.sh_size || p->dynsym.sh_offset > INT64_MAX)
		return 0;
	while ((scn = elf_nextscn(p->r->elf, scn))) {
		if (!gelf_getshdr(scn, &s) || s.sh_type != SHT_RELA || !(s.sh_flags & SHF_ALLOC))
			continue;
		q = read_relocations(p, &s);
		if (q < 0)
			return q;
	}
	if (p->n)
		qsort(p->slots, p->n, sizeof(*p->slots), compare_slots);
	while (p->n && (scn = elf_nextscn(p->r->elf, scn))) {
		if (!gelf_getshdr(scn, &s) || !is_plt(p->r, &s, names))
			continue;
		q = read_entries(p, &s);
		if (q < 0)
			return q;
	}
	return 0;
}

int elf_read_plt(struct elf_reader *r)
{
	struct plt p = { .r = r };
	int q = 0;

	if (r->class == ELFCLASS64 && r->encoding == ELFDATA2LSB &&
	    (r->machine == EM_X86_64 || r->machine == EM_AARCH64))
		q = read_all(&p);
	free(p.slots);
	return q;
}
