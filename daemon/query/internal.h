/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared by the files of query/. A query goes through these stages, each a file:
 *
 *   filter  the selection compiled once, and its verdicts for one dictionary, found when they are first needed
 *   scan    the buckets in the range, each once, and what the range covers
 *   merge   rows added up under a projection: only the ids that the question needs are kept apart
 *   scale   off-CPU: samples made to add up to the exact totals
 *   chain   who waited and who woke it, in one stack
 *   fold    max_nodes
 *   group   rows -> named groups, for top, series and label values
 */
#pragma once

#include "query/estimate.h"
#include "query/query.h"

/* A query that would pass one of these is refused with -E2BIG, if at all; nothing is cut silently. */
#define QUERY_MAX_FILTERS 64
#define QUERY_MAX_GLOB 1024 /* bytes of one pattern */
/* Distinct rows under the projection; above it processes and threads are no longer told apart: see settle.c. */
#define QUERY_MAX_ROWS (1U << 18)
#define QUERY_MAX_POINTS (1U << 20) /* of all lines */
#define QUERY_MAX_STEPS 11000 /* points of one line */

/* Spreads small numbers, wherever in the word they differ, over all bits. */
static inline uint64_t query_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ULL) *
				    (b ^ 0xc2b2ae3d27d4eb4fULL);

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* ---- filter ---------------------------------------------------------------------------------------- */

struct pattern {
	const char *glob;
	bool negate;
	bool plain; /* no character of it is special */
};

struct matcher {
	enum profile_type type;
	const struct visibility *visibility;
	struct pattern *patterns; /* those of key k are [first[k], first[k + 1]) */
	uint16_t first[FILTER_KEY_N + 1];
	uint8_t stack_wanted; /* verdict bits that a stack must have */
	bool checks_series, checks_stack, checks_row, checks_state, checks_lock;
};
/* Borrows sel, which must outlive it. */
int matcher_init(struct matcher *m, const struct selection *sel) _warn_unused_;
void matcher_done(struct matcher *m);
/* Off-CPU: the selection looks into samples, so exact totals cannot answer it. */
static inline bool matcher_needs_samples(const struct matcher *m)
{
	return m->checks_stack || m->checks_state;
}

struct lens {
	const struct matcher *m;
	const struct dict *dict;
	/* Verdicts by id; 0 is not known yet. */
	uint8_t *series, *frame, *stack, *lock;
	size_t cap_series, cap_frame, cap_stack, cap_lock;
	struct {
		uint32_t key;
		uint8_t verdict;
	} rows[256]; /* a cache by key */
};
void lens_init(struct lens *l, const struct matcher *m);
void lens_done(struct lens *l);
/* Before ids of d are asked for: switches to it, or grows with it. */
int lens_use(struct lens *l, const struct dict *d) _warn_unused_;
/* Ids must be below the dictionary's counts. */
bool lens_series(struct lens *l, uint32_t series);
/* Whether the peer may see it, whatever the filters say. */
bool lens_sees(const struct lens *l, uint32_t series);
bool lens_stack(struct lens *l, uint32_t stack);
bool lens_row(struct lens *l, uint32_t key); /* cause, syscall, errno */
bool lens_state(struct lens *l, uint32_t key); /* state, wait, idle */
bool lens_lock(struct lens *l, uint32_t lock);
/* Whether it may be waited for in a process that the filters accept. */
bool lens_lock_process(struct lens *l, uint32_t lock);

/* The name of a frame as people read it; buf is used when it must be made. */
const char *query_frame_name(const struct dict *d, uint32_t frame, char *buf, size_t size);
/* Of the C library or the dynamic linker: what every program has between its own functions and the kernel. */
bool query_in_c_library(const struct dict *d, const struct frame *f);

/* Of a row that tells who ended a wait: the part of its stack where it was waited. */
uint32_t query_waiting_stack(const struct dict *d, uint32_t stack);

/* ---- merge ----------------------------------------------------------------------------------------- */

/* Which ids keep rows apart: masks of all ones or 0; for key, any bits. */
struct projection {
	uint32_t series, stack, key, aux;
};
#define PROJECT_ALL (~0U)

struct cell {
	uint32_t series, stack, key, aux;
	uint64_t count, value, max;
};

struct merge {
	const struct selection *sel;
	unsigned aspects; /* a bit for each that is wanted */
	struct matcher matcher;
	struct lens lens; /* over the dictionary of the cells */
	struct lens answer_lens; /* over the answer's */
	struct projection projection;
	struct dict_map map; /* from the dictionary of the cells to the answer's */
	struct cell *cells; /* [0] unused */
	size_t n_cells, cap_cells;
	uint32_t *slots; /* by hash of the ids */
	size_t n_slots; /* a power of two, or 0 */
	bool direct_series,
		direct_stack; /* the projection keeps nothing else: cells are found by the id */
	uint32_t *direct;
	size_t cap_direct;
	struct profile
		*p; /* taken by merge_take(); its columns are rows that are not settled yet */
	unsigned flushes; /* into them since they were empty */
	struct columns settled; /* in the profile's units */
	size_t max_rows; /* QUERY_MAX_ROWS, or less in a test */
	bool coarse; /* rows have lost their process and thread */
	/* Counts of calls are kept apart by the block of their bucket, in aux: estimate.h. */
	bool by_block;
	uint32_t block; /* of the bucket at hand */
	struct blocks blocks;
	bool spreads; /* counts of calls over their stacks */
	bool keep_ids; /* somebody holds ids of the answer's dictionary: it may only grow */
};
/* `wanted` is what the question needs; what filters and scaling need is added. */
int merge_init(struct merge *m, const struct selection *sel,
	       struct projection wanted) _warn_unused_;
void merge_done(struct merge *m);
int merge_add(struct merge *m, const struct dict *d, const struct columns *c) _warn_unused_;
/* Cells become rows of p->columns, in the answer's ids; times are still microseconds. */
int merge_flush(struct merge *m) _warn_unused_;
/* More rows than max_rows: they are settled now and lose their process and thread. */
int merge_coarsen(struct merge *m) _warn_unused_;
/*
 * Everything added so far becomes p->columns, in the profile's units, with total and samples. More may be
 * added afterwards, when the columns have been emptied.
 */
int merge_close(struct merge *m) _warn_unused_;
/* Before another dictionary than d is met: what was added under the last one is translated, and it may go. */
int merge_leave(struct merge *m, const struct dict *d) _warn_unused_;
/* The whole range: scan, add, close. */
int merge_run(struct merge *m, const struct query_source *src) _warn_unused_;
struct profile *merge_take(struct merge *m);

/* For peers that may not see kernel addresses. No element may be added to the dictionary afterwards. */
int profile_hide_kernel(struct profile *p) _warn_unused_;
void columns_empty(struct columns *c);

/* ---- scan ------------------------------------------------------------------------------------------ */

/*
 * Calls fn for each bucket of m's selection and fills the coverage of m's profile: all its metadata but total
 * and samples. fn adds to m; it is not called for buckets that are damaged or did not record the type. What
 * it returns, unless 0, ends the scan and is returned.
 */
int query_scan(const struct query_source *src, struct merge *m, store_scan_fn fn,
	       void *ctx) _warn_unused_;

/* ---- scale ----------------------------------------------------------------------------------------- */

#define MARKER_NOT_SAMPLED "[not sampled]"
#define MARKER_OTHER "[other]"
#define MARKER_NO_STACK "[no stack]"

/*
 * In: totals and samples in us. Out: rows in ns that add up to the totals of each thread and cause; of them,
 * those that the lens accepts. The state of [not sampled] is OFF_STATE_UNKNOWN.
 */
int off_cpu_scale(struct profile *p, struct lens *l) _warn_unused_;

/* Aspects of a question for calls by their stacks. */
#define CALLS_WITH_STACKS (1U << CALL_COUNT | 1U << CALL_STACKS)
/*
 * In: counts of calls, and calls with their stack that were drawn. Out: the counts, spread over the stacks in proportion;
 * of them, those that the lens accepts.
 */
int callers_spread(struct profile *p, struct lens *l) _warn_unused_;

/* By series: the series that stands for its thread, which names that change leave several of. */
int query_threads(const struct dict *d, uint32_t *ret) _warn_unused_;
/* The stack of what was not sampled. */
int query_not_sampled_stack(struct dict *d, uint32_t *ret_stack);

/*
 * Shares `total` in proportion to weights; the shares add up to it exactly (largest remainder, ties to the
 * first). All weights 0: equal shares. scratch has room for n.
 */
struct remainder {
	uint64_t rest;
	size_t at;
};
void share_out(uint64_t total, const uint64_t *weights, size_t n, uint64_t *ret_shares,
	       struct remainder *scratch);

/* ---- fold ------------------------------------------------------------------------------------------ */

/* At most max_nodes stack nodes (0: any number); the dictionary keeps only what rows use. */
int profile_fold(struct profile *p, uint32_t max_nodes) _warn_unused_;

/* ---- group ----------------------------------------------------------------------------------------- */

enum facet_kind {
	FACET_ALL,
	FACET_FUNCTION,
	FACET_BINARY,
	FACET_STACK, /* of stacks */
	FACET_PROCESS,
	FACET_THREAD,
	FACET_LABEL,
	FACET_PID,
	FACET_TID,
	FACET_UID, /* of series */
	FACET_CAUSE,
	FACET_STATE,
	FACET_WAIT,
	FACET_IDLE,
	FACET_SYSCALL,
	FACET_ERRNO, /* of keys */
	FACET_LOCK,
};
struct facet {
	enum facet_kind kind;
	enum label label; /* FACET_LABEL */
};
struct facet facet_of_dimension(enum dimension by);
struct facet facet_of_key(enum filter_key key);
struct projection facet_projection(struct facet f);
bool facet_of_stacks(struct facet f);

struct group {
	uint64_t a; /* identity, with b and c */
	uint32_t b, c;
	uint32_t
		id; /* of the heaviest element: series, frame, stack, key or lock; it gives the name */
	uint64_t id_value;
	uint64_t self, total, events, errors, max;
};

struct group_table {
	struct group *g; /* [0] unused */
	size_t n, cap;
	struct index index;
};

struct grouping {
	struct facet facet;
	const struct profile *p;
	struct group_table groups;
	struct group_table functions; /* FACET_STACK: what paths are made of */
	/* group of each id, 0 not known yet; they grow with the dictionary */
	uint32_t *of_series, *of_frame, *of_stack;
	size_t cap_series, cap_frame, cap_stack;
};
void grouping_init(struct grouping *gr, struct facet f, const struct profile *p);
void grouping_done(struct grouping *gr);
/* Adds p->columns to the groups. Without `totals`, self alone is filled where the two differ. */
int grouping_add(struct grouping *gr, bool totals) _warn_unused_;
/* The group of a row that was added. */
int grouping_of_row(struct grouping *gr, size_t row, uint32_t *ret) _warn_unused_;
/* The name of a group, malloc'ed; `otherwise` when its elements have none. */
int grouping_name(const struct grouping *gr, const struct group *g, const char *otherwise,
		  char **ret_name, char **ret_binary) _warn_unused_;
/* pid, tid, start, where groups are processes, threads or locks. */
void grouping_identity(const struct grouping *gr, const struct group *g, uint32_t *ret_pid,
		       uint32_t *ret_tid, uint64_t *ret_start);

#define NAME_NONE "[none]" /* stands for elements without a name in tables */
