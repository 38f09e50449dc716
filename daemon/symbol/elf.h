/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The symbol table of one ELF file, by file offset. Runs in the helper: input is hostile, so everything is
 * read with pread (a file that shrinks meanwhile is an error, not a SIGBUS), bounded and checked.
 *
 * An offset becomes a virtual address through the PT_LOAD that covers it. The symbol with the highest start
 * that covers the address gives the name; sizes are respected. A symbol without a size reaches to the next
 * one within its section. Among several at one address the choice is the same in every run: functions
 * before untyped labels, global before weak before local, fewer leading underscores, shorter, then
 * by bytes. A table keeps addresses and where names lie, not the names: 16 bytes a symbol.
 */
#pragma once

#include "base/util.h"

#define ELF_BUILD_ID_MAX 64 /* bytes; GNU ld makes 20, lld 8 */
#define ELF_NAME_MAX 8192 /* longest symbol name that is read, with its NUL */

enum elf_want {
	ELF_WANT_CODE, /* functions */
	ELF_WANT_DATA, /* static objects */
};

struct elf_table;

/*
 * debug_fd: its separate debug file, or -1. That is taken when it has the same build-id or, where one of them has
 * none, the CRC that .gnu_debuglink tells; else -ESTALE. It adds names, and says nothing about addresses.
 *
 * -ENOEXEC: no ELF program. -EBADMSG: damaged. -EFBIG: too many symbols. -ENOMEM, or an error of reading.
 */
int elf_table_new(int fd, int debug_fd, enum elf_want want, struct elf_table **ret);
struct elf_table *elf_table_free(struct elf_table *t);
DEFINE_CLEANUP(struct elf_table *, elf_table_free)

/* Whether that is the file's debug file. */
bool elf_table_owns(const struct elf_table *t, int debug_fd);
/* The address of code in the file, as it was linked. */
bool elf_table_vaddr(const struct elf_table *t, uint64_t offset, uint64_t *ret);
size_t elf_table_bytes(const struct elf_table *t);
const char *elf_table_build_id(const struct elf_table *t); /* hexadecimal or "" */
/* Of a file without a table. -ENOEXEC: no ELF file. */
int elf_build_id(int fd, char ret[static 2 * ELF_BUILD_ID_MAX + 1]);
/* The base name that .gnu_debuglink tells, or "". */
const char *elf_table_link(const struct elf_table *t);
/* Whether the file has no .symtab, and a debug file would be known for its own. */
bool elf_table_wants_debug_file(const struct elf_table *t);

/*
 * 1 and the name as in the symbol table, 0 when no symbol covers the offset. The same descriptors again. An
 * IFUNC symbol covers its resolver, not what it resolves to, and is called "NAME.resolver"; an entry of a
 * procedure linkage table "NAME@plt".
 */
int elf_table_find(const struct elf_table *t, int fd, int debug_fd, uint64_t offset,
		   char ret_name[static ELF_NAME_MAX]);
/* Whether the file's memory reaches as far, to the end of its last page. */
bool elf_table_reaches(const struct elf_table *t, uint64_t offset);
