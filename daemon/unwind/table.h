/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The unwind table of one binary: how it travels from the parser, how it lies in the cache on disk, and what is
 * installed into the maps of bpf/unwind.h. One piece of memory without pointers:
 *
 *	struct table                    this header
 *	node[]                          UNWIND_NODE_SIZE bytes each, 64-byte aligned: leaves first, then index nodes
 *	struct table_segment[]          the executable segments
 *	struct unwind_rule[]            rule 0 is never used; rows name rules by their place here
 *
 * Within a table, nodes are numbered from 1 in this order (leaf.next, index.entry, root). Installing replaces node
 * and rule numbers by those of the maps. It comes from a process that read a stranger's file: table_check() before
 * anything else is believed.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"

#define TABLE_MAGIC 0x31656c6261746e75ULL /* "untable1" */
#define TABLE_VERSION 7 /* of this layout and of the rules that the compiler makes */
#define TABLE_SEGMENTS_MAX 16
#define TABLE_BYTES_MAX (64ULL << 20)
#define TABLE_REGISTERS 32 /* DWARF's numbers of registers that a rule may name lie below */

/* A part of the file that is mapped executable. */
struct table_segment {
	uint64_t offset, size; /* in the file */
	uint64_t pc; /* table pc of its first byte */
};

struct table {
	uint64_t magic;
	uint32_t version;
	uint32_t machine; /* EM_* */
	uint64_t bytes; /* of all, this header included */
	uint64_t checksum; /* XXH3 of all bytes behind this header */
	uint64_t base; /* virtual address of table pc 0 */
	uint32_t n_segments;
	uint32_t n_rules; /* with rule 0 */
	uint32_t n_leaves, n_index;
	uint32_t root; /* node, perhaps with UNWIND_ROOT_DEEP */
	uint32_t rows; /* for people: what was compiled */
	uint64_t functions, damaged; /* that have rows, and that could not be read */
	uint64_t pad[6];
};
static_assert(sizeof(struct table) == 128, "written to disk");

const struct table_segment *table_segments(const struct table *t);
const struct unwind_rule *table_rules(const struct table *t);
const void *table_node(const struct table *t, uint32_t number);
/* How many bytes a table has. */
uint64_t table_size(uint64_t n_segments, uint64_t n_rules, uint64_t n_nodes);
uint64_t table_sum(const struct table *t);

/*
 * Whether these bytes are a table in which no number leads out of it. -EBADMSG otherwise, -EPROTONOSUPPORT when it is
 * one of another version. `size` bytes are readable.
 */
int table_check(const void *data, size_t size);
/* Reads and checks a table of so many bytes at the beginning of a regular file. Results as above, -ENOMEM, or why not. */
int table_read(int fd, uint64_t bytes, struct table **ret);

/* The rule in force there, as the walker finds it; rule 0 where there is none. */
const struct unwind_rule *table_find(const struct table *t, uint32_t pc);

/* ---- building: rows in ascending order of pc become a table ---------------------------------------- */

struct table_builder;
int table_builder_new(uint32_t machine, uint64_t base, struct table_builder **ret);
struct table_builder *table_builder_free(struct table_builder *b);
DEFINE_CLEANUP(struct table_builder *, table_builder_free)
/* In ascending order of pc; -EINVAL otherwise. */
int table_add_segment(struct table_builder *b, const struct table_segment *s);
/*
 * From pc on this rule holds (cfa UNWIND_NONE: none). -EINVAL when pc is not above the last one. Equal ones merge; a
 * gap of less than 16 bytes keeps the rule before it, unless that is UNWIND_END or UNWIND_SIGNAL.
 */
int table_add_row(struct table_builder *b, uint32_t pc, const struct unwind_rule *rule);
/* Uses the builder up. -ENODATA without rows, -EFBIG beyond TABLE_BYTES_MAX or UNWIND_RULES. Free with free(). */
int table_finish(struct table_builder *b, struct table **ret);
