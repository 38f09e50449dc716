/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by elf.c, which builds and searches a table, and the files that read symbols: elf-read.c, elf-plt.c, elf-debug.c. */
#pragma once

#include <gelf.h>
#include <limits.h>

#include "symbol/elf.h"

#define ELF_SYMBOLS_MAX \
	(1U << 22) /* the largest binaries in distributions have about 1.1 million */
#define ELF_ENTRIES_MAX \
	(16U << 20) /* of one table in the file; a sparse file may claim any number */
#define ELF_SEGMENTS_MAX 256
#define ELF_NO_SYMBOL ((1U << 24) - 1)

/* What kind of symbol, better ones first. */
enum symbol_type {
	SYMBOL_SIZED_KIND = 0, /* function or object */
	SYMBOL_LABEL = 1, /* untyped, in code */
	SYMBOL_RESOLVER = 2, /* IFUNC */
	SYMBOL_PLT = 3, /* made up from relocations */
};

/* Where a symbol's name lies. */
enum symbol_strings {
	STRINGS_SYMTAB,
	STRINGS_DYNSYM,
	STRINGS_TEXT, /* in elf_table.text */
	STRINGS_DEBUG, /* in the debug file */
	STRINGS_N,
};

struct symbol {
	uint32_t start; /* from the table's base */
	uint32_t size;
	uint32_t name; /* within its string table */
	uint32_t
		up : 24; /* the nearest sized symbol before that may cover what this one does not */
	uint32_t type : 2; /* enum symbol_type */
	uint32_t bind : 2; /* 0 global, 1 weak, 2 local */
	uint32_t strings : 2; /* enum symbol_strings */
};
static_assert(sizeof(struct symbol) == 16, "the memory of a table is counted on this");

struct segment {
	uint64_t offset, filesz, vaddr, memsz;
	uint32_t flags;
};

struct range {
	uint64_t start, end;
};

/* Go's own table of functions, in the file. */
struct go_table {
	uint64_t n; /* functions; 0: no table */
	uint64_t text; /* what addresses count from */
	uint64_t entries, records;
	struct range names;
	uint32_t entry_word; /* bytes of each of the two numbers of an entry */
	bool big_endian;
};

struct elf_table {
	enum elf_want want;
	uint64_t base; /* lowest vaddr of a PT_LOAD */
	struct segment *segments;
	size_t n_segments;
	/* Code sections, sorted: what a symbol without a size cannot cross. Without section headers: segments. */
	struct range *sections;
	size_t n_sections;
	struct symbol *symbols;
	size_t n_symbols, cap_symbols;
	struct range strings[STRINGS_N]; /* string tables in their files */
	char *text; /* the one of .gnu_debugdata, which is in no file as it is */
	struct go_table go; /* of stripped programs */
	bool stripped; /* has no .symtab of its own */
	bool has_debug_file;
	char link[NAME_MAX + 1]; /* .gnu_debuglink: the debug file's base name, or "" */
	uint32_t link_crc;
	char build_id[2 * ELF_BUILD_ID_MAX + 1];
};

/* One file while it is read. */
struct elf_reader {
	int fd, debug_fd;
	Elf *elf;
	int class;
	unsigned encoding;
	uint16_t machine;
	struct range *by_index; /* sections by their index, for symbols without a size */
	size_t n_by_index;
	struct range dynamic; /* PT_DYNAMIC in the file */
	struct elf_table *t;
};

static inline void elf_end_p(Elf **elf)
{
	elf_end(*elf);
}

/* Fills by_index. */
int elf_index_sections(struct elf_reader *r);
void elf_read_build_id(Elf *elf, char ret[static 2 * ELF_BUILD_ID_MAX + 1]);
bool elf_vaddr_to_offset(const struct elf_table *t, uint64_t vaddr, uint64_t *ret);
bool elf_offset_to_vaddr(const struct elf_table *t, uint64_t offset, uint64_t *ret);
bool elf_is_code(const struct elf_table *t, uint64_t vaddr);
bool elf_find_section(const struct elf_reader *r, const char *name, GElf_Shdr *ret);
/* Reads bytes and converts records of a type to this machine's order in place. */
int elf_read_records(const struct elf_reader *r, Elf_Type type, void *buf, size_t len,
		     uint64_t offset);
/* 0, or -EBADMSG when a part was damaged, or -ENOMEM, -EFBIG. */
int elf_read_symbols(struct elf_reader *r);
/* One table with its names. */
int elf_read_section(struct elf_reader *r, const GElf_Shdr *s, enum symbol_strings strings);
/* Adds what .gnu_debugdata holds, if it is there and right. */
int elf_read_debugdata(struct elf_reader *r);
/* Where the debug file may lie. */
void elf_read_link(struct elf_reader *r);
/* Adds what the debug file holds. -ESTALE: it is not this file's, or of no use. */
int elf_read_debug_file(struct elf_reader *r);
/* Finds Go's table of functions, if there is one. */
void elf_read_go(struct elf_reader *r);
int elf_go_find(const struct go_table *g, int fd, uint64_t vaddr, char *buf, size_t size);
/* Adds symbols for linkage tables, by .dynsym's names. Results as above. */
int elf_read_plt(struct elf_reader *r);
int elf_read_string(int fd, const struct range *strings, uint64_t at, char *buf, size_t size);
/* Reads a symbol's NUL-terminated name. -EBADMSG when it lies outside or has no end. */
int elf_read_name(const struct elf_table *t, int fd, int debug_fd, const struct symbol *s,
		  char *buf, size_t size);
int elf_add_symbol(struct elf_table *t, const struct symbol *s);
