/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the compiler of unwind tables needs of an ELF file: its segments, and where call frame information lies. Only
 * 64-bit little-endian files of the machines that the walker knows. Sections may be missing, and are believed only
 * within the file.
 */
#pragma once

#include "base/util.h"

#define IMAGE_LOADS_MAX 256
#define IMAGE_CODE_MAX 256
#define IMAGE_LINKAGE_MAX 8
#define IMAGE_INFLATED_MAX (32U << 20) /* bytes of a compressed section */

struct image_part {
	uint64_t offset, size; /* in the file; size 0: there is none */
	uint64_t vaddr;
	bool compressed;
};

struct image_load {
	struct image_part part;
	bool executable;
};

struct image {
	int fd;
	uint64_t size;
	uint32_t machine; /* EM_* */
	uint64_t entry;
	struct image_load loads[IMAGE_LOADS_MAX]; /* as they stand in the file */
	size_t n_loads;
	/* Sections with code, in ascending order; without section headers executable segments. */
	struct image_part code[IMAGE_CODE_MAX];
	size_t n_code;
	struct image_part linkage
		[IMAGE_LINKAGE_MAX]; /* .plt and its like, .init and .fini, in ascending order */
	size_t n_linkage;
	struct image_part frame_header; /* PT_GNU_EH_FRAME */
	struct image_part eh_frame, debug_frame; /* sections */
	struct image_part symbols, symbol_names; /* .symtab, and its strings */
	bool is_go; /* Go's linker made it */
};

/* -ENOEXEC, -EBADMSG, -EFBIG, or an error of reading. The descriptor remains the caller's. */
int image_open(int fd, struct image *ret);
/* The rest of a segment from this address on. */
bool image_part_at(const struct image *m, uint64_t vaddr, struct image_part *ret);
/* The content of a compressed section; free with free(). */
int image_inflate(const struct image *m, const struct image_part *p, void **ret, size_t *ret_size);
