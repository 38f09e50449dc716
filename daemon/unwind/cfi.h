/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An interpreter of call frame information (DWARF 5, 6.4; .eh_frame: LSB Core 10.6), which runs once through all
 * functions of a file, in ascending order, and says each rule as the walker will know it. What it cannot say in such a
 * rule is UNWIND_UNSUPPORTED; a function whose bytes are damaged is left out and counted.
 */
#pragma once

#include "unwind/reader.h"
#include "unwind/table.h"

struct cfi_row {
	uint32_t pc; /* from the function's start */
	struct unwind_rule rule;
};

struct cfi_function {
	uint64_t start, end; /* virtual addresses */
	const struct cfi_row *rows; /* the first one has pc 0 */
	size_t n;
};

/* Returns 0 to go on. */
typedef int (*cfi_take_fn)(void *ctx, const struct cfi_function *f);

struct cfi_source {
	uint32_t machine; /* EM_X86_64 or EM_AARCH64 */
	struct reader *frames; /* .eh_frame or .debug_frame */
	uint64_t vaddr; /* of its first byte */
	bool debug; /* .debug_frame */
	bool unbounded; /* its end is not known: it ends with the first zero */
	struct reader *header; /* .eh_frame_hdr, or NULL */
	uint64_t header_vaddr;
};

struct cfi_counts {
	uint64_t functions, damaged;
};

#define CFI_SOURCES_MAX 2

/*
 * Functions come in ascending order of their start; they may overlap, and of several at one start those of the first
 * source come first. -EFBIG: more functions than are sorted here. Damage is no error; an error of reading the file, or
 * what take() returned, is.
 */
int cfi_read(const struct cfi_source *s, size_t n, cfi_take_fn take, void *ctx,
	     struct cfi_counts *ret);
/* Where .eh_frame begins, as .eh_frame_hdr says. */
int cfi_header_frames(struct reader *header, uint64_t vaddr, uint64_t *ret);
