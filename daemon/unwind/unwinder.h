/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is installed in the maps of bpf/unwind.h: the mappings of processes that were sampled, and the tables of the
 * binaries that they map.
 *
 * The drain thread tells which processes there are and what they map; a binary whose table nobody has is put on a
 * list of wishes, from which the supplier's thread (supplier.h) takes. Processes that map the same things share one set
 * of mappings ("space"). Memory is bounded: when the nodes are used up, tables that no sample has met for a while go,
 * longest unused first; what then still has no room is left without table (UNWIND_LACK_MEMORY) until there is some.
 *
 * What a walk may still read is used anew only after a grace period: unwinder_settle().
 *
 * Thread-safe: one lock, never held while a file is read or parsed.
 */
#pragma once

#include "unwind/table.h"

struct unwinder;

struct unwinder_options {
	uint64_t memory_max; /* of nodes: mappings and tables; 0: 64 MiB */
	uint32_t processes_max; /* 0: 16,384 */
};

/* -errno of bpf(2) when the maps cannot be made. */
int unwinder_new(const struct unwinder_options *o, struct unwinder **ret);
struct unwinder *unwinder_free(struct unwinder *u);
DEFINE_CLEANUP(struct unwinder *, unwinder_free)

/* The maps for collectors, valid as long as the unwinder. */
struct unwinder_maps {
	int processes, files, strangers, young, nodes, rules, controls;
};
void unwinder_maps(const struct unwinder *u, struct unwinder_maps *ret);

/* ---- processes: the drain thread -------------------------------------------------------------------- */

enum unwinder_kind {
	UNWINDER_FILE, /* an ELF file or the vDSO */
	UNWINDER_CODE, /* memory without a file */
};

/* An executable mapping. */
struct unwinder_region {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	uint64_t binary; /* registry key */
	enum unwinder_kind kind;
};

/*
 * Installs a process, or what it maps now. `version` names this list: it is shared with every process of the same
 * version, and regions are not read when it is known. -ENOSPC: no room for its mappings; -E2BIG: too many processes or
 * mappings. Then the process is as good as unknown.
 */
int unwinder_put(struct unwinder *u, uint32_t tgid, uint64_t start, uint64_t version,
		 const struct unwinder_region *regions, size_t n) _warn_unused_;
/* The version that is installed, or 0. */
uint64_t unwinder_version(struct unwinder *u, uint32_t tgid, uint64_t start);
void unwinder_remove(struct unwinder *u, uint32_t tgid, uint64_t start);
/* Calls fn for each installed process, which may not call the unwinder; the process is removed when it says so. */
typedef bool (*unwinder_keep_fn)(void *ctx, uint32_t tgid, uint64_t start, uint64_t version);
void unwinder_each(struct unwinder *u, unwinder_keep_fn keep, void *ctx);
/* A process that maps this binary came and went: the next one shall find its table. */
void unwinder_want(struct unwinder *u, uint64_t binary);
/*
 * A file in which a walk found a process that is not installed, and whose table nobody named: false when there are no
 * more. Who knows which binary that is says so, if it has a table; else the next sample asks again.
 *
 * That binary is what lies at the address now: the process may have put another one there. So it must have the file's
 * size, and its author must be root or the file's owner; else anybody could say what others' files are.
 */
bool unwinder_stranger(struct unwinder *u, struct unwind_file_key *ret_file,
		       struct unwind_stranger *ret);
void unwinder_file(struct unwinder *u, uint64_t binary, uint64_t author,
		   const struct unwind_file_key *file, uint32_t owner);
/* A sample's frame lay in this binary. */
void unwinder_used(struct unwinder *u, uint64_t binary);
/* After each grace period that all programs have passed. */
void unwinder_settle(struct unwinder *u);

/* ---- tables: the supplier ------------------------------------------------------------------------------ */

/* The next binary without a table, or 0 when nothing is wanted. It then belongs to the caller until it is answered. */
uint64_t unwinder_next(struct unwinder *u);
/* Calls fn from unwinder_put() when there is something new to be built. */
void unwinder_on_wish(struct unwinder *u, void (*fn)(void *ctx), void *ctx);
/*
 * A checked table, or (t NULL) why there is none. `forever`: it will not be asked for again in a minute. `file`: the
 * file's identity, by which it is found in processes that are not installed, or NULL.
 */
void unwinder_answer(struct unwinder *u, uint64_t binary, const struct table *t,
		     const struct unwind_file_key *file, enum unwind_lack lack, bool forever);

/* ---- walking on the host ------------------------------------------------------------------------------- */

bool unwinder_space(struct unwinder *u, uint32_t tgid, uint64_t start, struct unwind_process *ret);
bool unwinder_node(struct unwinder *u, uint32_t node, void *ret);
bool unwinder_rule(struct unwinder *u, uint32_t rule, struct unwind_rule *ret);

struct unwinder_stats {
	uint64_t processes, spaces, tables, wanted;
	uint64_t bytes, bytes_used, bytes_max; /* of nodes */
	uint64_t rules;
	uint64_t evicted; /* tables */
	uint64_t refused; /* tables and mappings that did not fit */
	uint64_t lacking[UNWIND_LACK_N]; /* binaries without a table, by reason */
};
void unwinder_stats(struct unwinder *u, struct unwinder_stats *ret);
