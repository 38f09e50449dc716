/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Code without call frame information, and what is known of it all the same: the program's entry point, where stacks
 * end; the return from a signal handler; stubs of linkage tables, for which bfd alone makes information, and not in
 * static programs; .init and .fini, which run at the beginning of each process, in each of its libraries.
 */
#pragma once

#include "unwind/image.h"
#include "unwind/reader.h"
#include "unwind/table.h"

struct gap {
	uint64_t start, end; /* virtual addresses */
};

struct gaps {
	const struct image *image;
	struct table_builder *builder;
	uint64_t base; /* virtual address of table pc 0 */
	struct reader code; /* of the segment with this number */
	size_t code_load;
};

int gaps_add_row(struct gaps *g, uint64_t vaddr, const struct unwind_rule *rule);
/* Rows from start to end, which lie in one segment. */
int gaps_fill(struct gaps *g, uint64_t start, uint64_t end);
