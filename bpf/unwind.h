/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unwind tables as the walker searches them: shared by bpf/, by daemon/unwind, which installs them, and by the
 * helper, which compiles them from .eh_frame. Included after u8..u64 are there.
 *
 * Everything lies in nodes of one size, so that memory is one pool: index nodes, leaves, and lists of mappings. A
 * node is one map value, searched without leaving it. A node number is map << UNWIND_SLOT_BITS | slot; 0 is none.
 *
 * A table is the code of one binary. Its addresses ("table pc") count from `base`, the lowest virtual address of
 * its code rounded down to a page; they fit 32 bits. For each page of 4 KiB an index names the leaf with its rows.
 * A row says which rule holds from its pc to that of the next row.
 */
#pragma once

#define UNWIND_NODE_SIZE 1088
#define UNWIND_SLOT_BITS 10
#define UNWIND_NODES_PER_MAP 960 /* 255 pages of 4 KiB */

#define UNWIND_PAGE_BITS 12
#define UNWIND_INDEX_BITS 8 /* entries of an index node */
#define UNWIND_ROWS 256
#define UNWIND_LEAF_PAGES 16 /* at most: a row's pc has 16 bits */
#define UNWIND_RULES 16384
#define UNWIND_TABLE_BYTES \
	(1ULL << (2 * UNWIND_INDEX_BITS + UNWIND_PAGE_BITS)) /* of code: 256 MiB */

/* Where the frame's CFA is (the caller's stack pointer; DWARF 5, 6.4.1). */
enum unwind_cfa {
	UNWIND_NONE = 0, /* no row covers this code: the frame pointer is the only guess */
	UNWIND_SP, /* sp + cfa_off */
	UNWIND_FP, /* fp + cfa_off */
	UNWIND_REG, /* register cfa_add (DWARF's number) + cfa_off; known at the leaf and above a signal frame */
	UNWIND_FP_DEREF, /* *(fp + cfa_off) + cfa_add */
	UNWIND_SP_DEREF, /* *(sp + cfa_off) + cfa_add */
	UNWIND_PLT, /* sp + 8 + (ip & 15 >= cfa_off ? 8 : 0) */
	UNWIND_SP_R9, /* *(sp + r9 * 8 + cfa_off) + cfa_add: vectorised code of openssl; at the leaf */
	UNWIND_END, /* the outermost frame: its return address is undefined */
	UNWIND_SIGNAL, /* the kernel's signal frame: all registers lie in the sigcontext at sp */
	UNWIND_UNSUPPORTED, /* rules that only a DWARF interpreter could follow */
	UNWIND_CFA_N
};

/* Where a register of the caller is. */
enum unwind_where {
	UNWIND_SAME = 0, /* unchanged. Of the return address (arm64): in x30, known at the leaf */
	UNWIND_AT_CFA, /* *(CFA + off) */
	UNWIND_AT_FP, /* *(fp + off) */
	UNWIND_LOST, /* undefined, or where only an interpreter finds it */
	UNWIND_BESIDE_FP, /* of the return address: *(CFA + fp_off + off), where 16 bits do not reach from the CFA */
	UNWIND_IN_REG, /* of the return address: register off (DWARF's number), known at the leaf: libc's vfork() */
	UNWIND_WHERE_N
};

/*
 * Where the caller's base register (rbx) is: the frames of lazy binding in the dynamic linker hang on it, below
 * functions that save it. Others: words from the CFA, at least -8; compilers save it no lower.
 */
#define UNWIND_BASE_SAME 0
#define UNWIND_BASE_LOST 1
#define UNWIND_BASE_LOWEST -8

struct unwind_rule {
	s32 cfa_off;
	s32 fp_off; /* of the saved frame pointer (rbp, x29) */
	s16 ra_off; /* of the return address: x86-64 mostly -8 */
	s16 cfa_add;
	u8 cfa; /* enum unwind_cfa */
	u8 fp, ra; /* enum unwind_where */
	s8 base;
};
SHARED_ASSERT(sizeof(struct unwind_rule) == 16);

/* A cache line of rows. */
#define UNWIND_GROUP 16
struct unwind_group {
	u16 pc[UNWIND_GROUP]; /* from the leaf's base, ascending */
	u16 rule[UNWIND_GROUP]; /* 0: UNWIND_NONE */
};
SHARED_ASSERT(sizeof(struct unwind_group) == 64);

/*
 * Rows of whole pages, at most UNWIND_LEAF_PAGES and UNWIND_ROWS; its first row begins at pc 0, so that no other
 * leaf need be looked at. A page with more rows goes on in `next`: the walker follows while the address is at or
 * behind next_pc. Unused rows have pc 0xffff and the rule of the last one.
 */
struct unwind_leaf {
	u32 base; /* table pc of pc 0; of a first leaf the beginning of a page */
	u32 next; /* node, or 0 */
	u32 next_pc; /* table pc, or 0xffffffff */
	u32 rows;
	u16 separator[UNWIND_ROWS / UNWIND_GROUP]; /* pc[0] of each group */
	u32 pad[4];
	struct unwind_group group[UNWIND_ROWS / UNWIND_GROUP];
};
SHARED_ASSERT(sizeof(struct unwind_leaf) == UNWIND_NODE_SIZE);

/*
 * Of 256 pages each the leaf, or, where the code is larger than 1 MiB, of 256 index nodes each the node. 0: no rows
 * there.
 */
struct unwind_index {
	u32 pad[16];
	u32 entry[1 << UNWIND_INDEX_BITS];
};
SHARED_ASSERT(sizeof(struct unwind_index) == UNWIND_NODE_SIZE);

/* The root of a table: a node, and whether that is the index of index nodes. */
#define UNWIND_ROOT_DEEP (1U << 31)

/* Why a mapping has no table. */
enum unwind_lack {
	UNWIND_LACK_PENDING = 0, /* not built yet */
	UNWIND_LACK_CFI = 1, /* its file has none that can be used */
	UNWIND_LACK_CODE = 2, /* memory without a file: code that was made at run time */
	UNWIND_LACK_MEMORY = 3, /* beyond the budget */
	UNWIND_LACK_FILE = 4, /* the file cannot be read */
	UNWIND_LACK_N
};

/* An executable mapping. */
struct unwind_mapping {
	u64 start, end;
	u64 delta; /* address - delta = table pc */
	u32 root;
	u32 lack; /* enum unwind_lack, where root is 0 */
};
SHARED_ASSERT(sizeof(struct unwind_mapping) == 32);

/*
 * The mappings of a process, in ascending order: one list, or, with more than UNWIND_LIST of them, a list of
 * lists whose `start` is that of their first mapping.
 */
#define UNWIND_LIST 32
struct unwind_list {
	u32 n;
	u32 pad[15];
	struct unwind_mapping mapping[UNWIND_LIST];
};
SHARED_ASSERT(sizeof(struct unwind_list) == UNWIND_NODE_SIZE);

#define UNWIND_LISTS 64
struct unwind_lists {
	u32 n;
	u32 pad[15];
	struct {
		u64 start;
		u32 node;
		u32 pad;
	} list[UNWIND_LISTS];
};
SHARED_ASSERT(sizeof(struct unwind_lists) == UNWIND_NODE_SIZE);

struct unwind_process_key {
	u64 start;
	u32 tgid;
	u32 pad;
};
SHARED_ASSERT(sizeof(struct unwind_process_key) == 16);

struct unwind_process {
	u32 node; /* struct unwind_list, or with `deep` struct unwind_lists */
	u32 deep;
	u32 space; /* a number for this set of mappings, never used before: the key of caches */
	u32 pad;
};
SHARED_ASSERT(sizeof(struct unwind_process) == 16);

/*
 * A binary by its file, for mappings that the daemon has not described: of a process that just began, of a library
 * that was just loaded. The vDSO has all zeros.
 */
struct unwind_file_key {
	u64 ino;
	u64 size;
	u64 changed_ns; /* of the last change of the inode (ctime) */
	u32 dev; /* as the kernel writes it: major << 20 | minor */
	u32 pad;
};
SHARED_ASSERT(sizeof(struct unwind_file_key) == 32);

/* Where a file was met that no table was known for. */
struct unwind_stranger {
	struct unwind_process_key process;
	u64 address; /* in its mapping */
	u64 mono_ns; /* when */
	u32 owner; /* of the file */
	u32 pad;
};
SHARED_ASSERT(sizeof(struct unwind_stranger) == 40);

#define UNWIND_FILE_SEGMENTS 2
struct unwind_file {
	u32 root;
	u32 n; /* segments */
	struct {
		u64 offset, size; /* in the file */
		u64 pc; /* table pc of its first byte */
	} segment[UNWIND_FILE_SEGMENTS];
};
SHARED_ASSERT(sizeof(struct unwind_file) == 8 + UNWIND_FILE_SEGMENTS * 24);

/* Mappings of a process that the programs have noted: the daemon may not know them yet. Written by the programs alone. */
#define UNWIND_YOUNG_MAPPINGS 24
struct unwind_young_mapping {
	u64 start, end;
	u64 offset; /* in the file */
	struct unwind_file_key file;
	u32 owner;
	u32 pad;
};
SHARED_ASSERT(sizeof(struct unwind_young_mapping) == 64);

struct unwind_young {
	struct unwind_process_key
		parent; /* forked from it, and no other program yet; tgid 0: none */
	u32 n;
	u32 pad;
	struct unwind_young_mapping mapping[UNWIND_YOUNG_MAPPINGS];
};
SHARED_ASSERT(sizeof(struct unwind_young) == 24 + UNWIND_YOUNG_MAPPINGS * 64);

/* One value, written by the daemon. */
struct unwind_control {
	u32 epoch; /* raised when a rule or a node may be used anew: what was cached before is void */
	u32 pad[15];
};
SHARED_ASSERT(sizeof(struct unwind_control) == 64);
