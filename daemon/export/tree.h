/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A profile as a tree of names: what flame graphs, folded text and speedscope show. Frames of one function at
 * different addresses are one node. The levels are
 *
 *   all ; process ; [cause] (off-cpu) ; frames, root first ; syscall, errno ; lock (futex)
 *
 * No function here recurses: a stack may be 100,000 frames deep.
 */
#pragma once

#include "base/strbuf.h"
#include "export/quotient.h"
#include "model/profile.h"

enum flame_kind {
	FLAME_ALL,
	FLAME_PROCESS,
	FLAME_USER,
	FLAME_KERNEL,
	FLAME_JIT,
	FLAME_MARKER, /* causes, calls, locks, [truncated], ... */
	FLAME_KIND_N
};

struct flame_label {
	char *text; /* owned; not empty, but any bytes */
	const char *binary; /* borrowed from the profile; "" for what has none */
	enum flame_kind kind;
	uint64_t hash;
};

struct flame_node {
	uint32_t parent; /* always less than this node's own number; 0 is the root's */
	uint32_t child, next; /* 0: none. Siblings: heaviest first, ties by name */
	uint32_t label;
	uint32_t depth; /* the root's is 0 */
	uint64_t self, total; /* nanoseconds or calls */
	uint64_t count; /* exclusive: samples, events, calls, waits */
	struct event_pair pair; /* of a recording with instructions beside it; inclusive */
};

struct flame_tree {
	struct flame_node *nodes; /* [0] is the root, "all" */
	size_t n_nodes, cap_nodes;
	struct flame_label *labels;
	size_t n_labels, cap_labels;
	uint32_t max_depth;
	struct index node_index, label_index;
};

/* The tree borrows from p. Sums saturate. */
int flame_tree_new(const struct profile *p, struct flame_tree **ret) _warn_unused_;
struct flame_tree *flame_tree_free(struct flame_tree *t);
DEFINE_CLEANUP(struct flame_tree *, flame_tree_free)

/* The next node of a walk that visits parents before children, or 0 at its end. Begins with node 0. */
uint32_t flame_tree_next(const struct flame_tree *t, uint32_t node);

static inline const struct flame_label *flame_label(const struct flame_tree *t, uint32_t node)
{
	return &t->labels[t->nodes[node].label];
}

/* What a row of the profile weighs: nanoseconds, or calls. */
uint64_t profile_weight(const struct profile *p, size_t row);
/*
 * Whether the row is to be shown: instructions are beside what is, and exact per-thread totals of off-CPU time repeat what the sampled rows hold,
 * and are shown only by profiles that have nothing else.
 */
bool profile_has_sampled_rows(const struct profile *p);
bool profile_row_shown(const struct profile *p, bool has_sampled_rows, size_t row);

/* What a person reads for a frame, uncut: a string of d, or made in buf. */
const char *frame_name(const struct dict *d, uint32_t frame, char *buf, size_t size);
/* The name of the binary of a frame, or "". */
const char *frame_binary_name(const struct dict *d, uint32_t frame);
/* The process name of a series: "nginx", "[other]", "[unknown]". */
const char *series_process_name(const struct dict *d, uint32_t series);
