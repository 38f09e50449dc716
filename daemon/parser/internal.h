/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of parser/ share: one request and its answer. Single-threaded. */
#pragma once

#include <gelf.h>

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

/* Room for n symbols, all "". */
int answer_make_symbols(struct answer *a, size_t n);
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

struct lines;
int lines_new(struct lines **ret);
struct lines *lines_free(struct lines *l);
/* Gives back the memory that the last questions took. */
void lines_forget(struct lines *l);
int lines_answer(struct lines *l, const struct elf_table *t, const Sysprofd__V1__ParseRequest *q,
		 const struct input *program, const struct input *debug, struct answer *a);

/* ---- inflate.c: debug sections that libelf does not unpack ------------------------------------------- */

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
