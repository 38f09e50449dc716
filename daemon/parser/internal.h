/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of parser/ share: one request and its answer. Single-threaded. */
#pragma once

#include <elfutils/libdw.h>
#include <gelf.h>

#include "base/strbuf.h"
#include "symbol/elf.h"
#include "sysprofd/v1/helper.pb-c.h"

/*
 * Which file something belongs to. The build-id will not do: a stripped copy has the same one, and its names
 * lie elsewhere.
 */
struct parsed_file {
	uint64_t dev, ino, size;
	int64_t changed_sec, changed_nsec;
};

struct input {
	int fd; /* -1: none */
	struct parsed_file id;
};

struct answer {
	Sysprofd__V1__ParseResponse response;
	Sysprofd__V1__Symbol *symbols;
	Sysprofd__V1__Symbol **pointers;
	size_t n;
	struct elf_table *unkept; /* a table that is too large to be kept */
	char build_id[2 * ELF_BUILD_ID_MAX + 1];
	int fd; /* travels with the answer, or -1 */
	bool parsed;
};

/* Notes that the answer would be better with another file. -ENOSPC: later, enough others are wanted. */
int answer_want(struct answer *a, Sysprofd__V1__WantedKind kind, uint64_t id, const char *path,
		const char *directory);
/* Room for n symbols, all "". */
int answer_make_symbols(struct answer *a, size_t n);
/* Frees the places and the wanted files of an answer. */
void answer_lines_done(struct answer *a);
/* Both forms of a symbol table's name; the second stays "" when they are the same. */
int answer_set_names(char **ret_name, char **ret_system_name, const char *system_name);

/* ---- names.c: symbols by file offset ------------------------------------------------------------ */

struct names;
int names_new(struct names **ret);
struct names *names_free(struct names *n);
/* debug: its separate debug file, perhaps. */
/* The table of a file, with its debug file's symbols when there is one: -ESTALE when that is another's. */
int names_table(struct names *n, const struct input *file, const struct input *debug,
		enum elf_want want, struct answer *a, const struct elf_table **ret);
int names_answer(struct names *n, const Sysprofd__V1__ParseRequest *q, const struct input *file,
		 const struct input *debug, struct answer *a);

/* ---- lines.c: inlined functions and source lines -------------------------------------------------- */

/* A file with a part of the DWARF, as an answer wanted it. */
struct part {
	int fd;
	uint64_t id; /* of wanted_files */
};

struct lines;
int lines_new(struct lines **ret);
struct lines *lines_free(struct lines *l);
/* Gives back the memory that the last questions took. */
void lines_forget(struct lines *l);
int lines_answer(struct lines *l, const struct elf_table *t, const Sysprofd__V1__ParseRequest *q,
		 const struct input *program, const struct input *debug, const struct part *parts,
		 size_t n_parts, struct answer *a);

/* What is unpacked from one file is limited. -EFBIG: it is more, or no ELF file. */
int debug_elf_begin(int fd, Elf **ret);

/* ---- splits.c: units whose DWARF is in files of their own --------------------------------------------- */

/* A unit of a program that has but its skeleton there, and the rest in another file. */
struct split {
	uint64_t id;
	Dwarf_Die skeleton;
	/* Addresses in there count from the unit's lowest. */
	uint64_t base;
	Elf *elf;
	Dwarf *dwarf; /* NULL: it is not here */
	Dwarf_Die unit;
};

struct splits;
int splits_new(Elf *program, struct splits **ret);
struct splits *splits_free(struct splits *s);
/* For the unit with that entry. NULL: it is no skeleton, or the rest is not there; then it is wanted, once. */
const struct split *splits_find(struct splits *s, Dwarf_Die *entry, struct answer *a);
/* A file that was wanted: of one unit, or of all. */
int splits_add(struct splits *s, const struct part *p);

/* ---- image.c: files made of debug sections -------------------------------------------------------------- */

#define IMAGE_SECTIONS_MAX 64

struct debug_image {
	int fd;
	uint64_t size;
	struct strbuf names;
	Elf64_Ehdr head;
	Elf64_Shdr sections[IMAGE_SECTIONS_MAX]; /* [0] unused */
	size_t n;
};

/* For the machine that the other file is for. */
int debug_image_begin(struct debug_image *f, Elf *like);
void debug_image_done(struct debug_image *f);
int debug_image_add(struct debug_image *f, const char *name, const void *data, size_t len,
		    uint64_t flags);
/* The debug sections of elf. */
int debug_image_add_all(struct debug_image *f, Elf *elf);
int debug_image_finish(struct debug_image *f);

bool needs_inflating(Elf *elf);
/* A memory file with the debug sections of elf. */
int inflate_debug(Elf *elf, int *ret_fd);

/* ---- table.c: unwind tables --------------------------------------------------------------------- */

int table_answer(int fd, struct answer *a);

/* ---- maps.c: names by address ---------------------------------------------------------------------- */

struct maps;
int maps_new(struct maps **ret);
struct maps *maps_free(struct maps *m);
/* -EAGAIN: there is more of the file to be read. */
int maps_answer(struct maps *m, const Sysprofd__V1__ParseRequest *q, const struct input *file,
		struct answer *a);
