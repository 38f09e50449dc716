/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Questions over stored buckets and the open one: select, merge, top, series, labels. Pure functions of a
 * source and a request; run on a query worker.
 */
#pragma once

#include "model/profile.h"
#include "query/estimate.h"
#include "store/store.h"

enum filter_key {
	FILTER_COMM,
	FILTER_EXE,
	FILTER_PID,
	FILTER_TID,
	FILTER_THREAD,
	FILTER_UID,
	FILTER_UNIT,
	FILTER_CGROUP,
	FILTER_CONTAINER,
	FILTER_POD,
	FILTER_NAMESPACE,
	FILTER_BUILD_ID,
	FILTER_BINARY,
	FILTER_FUNCTION,
	FILTER_CAUSE,
	FILTER_SYSCALL,
	FILTER_ERRNO,
	FILTER_LOCK,
	FILTER_STATE,
	FILTER_WAIT,
	FILTER_IDLE,
	FILTER_KEY_N
};
const char *filter_key_name(enum filter_key key);
int filter_key_from_name(const char *name); /* -EINVAL */

struct filter {
	enum filter_key key;
	char *glob;
	bool negate;
};

/* What this peer may see. Series that fail it do not exist for the query, totals included. */
struct visibility {
	bool all;
	uint32_t uid; /* else: series of this uid that are not SERIES_PRIVATE, */
	char **units; /* and series whose unit matches one of these globs; */
	size_t n_units;
	/* then kernel frames are shown without addresses: as names only */
};

struct selection {
	enum profile_type type;
	uint64_t from_wall_ns, until_wall_ns;
	/* Rows of which aspects, a bit for each; 0: those of aspect 0. Filters on stacks are about the row's own; of OFF_WAKES, where it waited. */
	unsigned aspects;
	bool filters_choose; /* filters, but for those on locks, are about rows of aspect 0 alone */
	struct filter *filters;
	size_t n_filters;
	struct visibility visibility;
};
void selection_done(struct selection *s);
/* -EINVAL with *ret_error (static) for a bad key, a bad glob, until < from: an empty range is none. */
int selection_check(const struct selection *s, const char **ret_error);

/*
 * Where the answer comes from. A bucket that is both in the store and in memory is counted once (boot id and
 * start tell).
 */
struct query_source {
	struct store_reader *reader; /* may be NULL */
	const struct bucket *const *closed; /* closed, but perhaps not stored yet; oldest first */
	size_t n_closed;
	const struct bucket *open; /* may be NULL */
	const bool *cancelled; /* may be NULL; then -ECANCELED */
	/* When `open` was taken, or later; 0: unknown. No answer ends behind it. */
	uint64_t now_wall_ns;
};

enum dimension {
	BY_NONE = 0,
	BY_FUNCTION,
	BY_PROCESS,
	BY_THREAD,
	BY_UNIT,
	BY_CONTAINER,
	BY_POD,
	BY_BINARY,
	BY_STACK,
	BY_CAUSE,
	BY_SYSCALL,
	BY_LOCK,
	DIMENSION_N
};
const char *dimension_name(enum dimension by);
int dimension_from_name(const char *name); /* -EINVAL */
/*
 * The dimension that is meant: BY_NONE is the type's default, which is BY_SYSCALL for syscalls. -EINVAL
 * with *ret_error (static) where the type has no such thing, as locks of on-cpu.
 */
int dimension_resolve(enum profile_type type, enum dimension by, enum dimension *ret_by,
		      const char **ret_error);

/*
 * All stacks of the selection added up. max_nodes bounds stack nodes: the lightest leaves fold into their
 * nearest kept ancestor's "[other]" child. For off-CPU values are scaled so that rows add up to the exact
 * total of the selection, per thread and cause where the filters allow it. An empty range is an empty profile.
 */
int query_merge(const struct query_source *src, const struct selection *sel, uint32_t max_nodes,
		struct profile **ret);

/*
 * Off-CPU: the waits whose waker was seen, as chains. On the stack of the wait lies the frame "woken by COMM", and on
 * that the waker's stack upside down: what it called last is next to the wait. Weights are estimates.
 */
int query_chains(const struct query_source *src, const struct selection *sel, uint32_t max_nodes,
		 struct profile **ret);

struct top_row {
	char *name, *binary; /* owned */
	uint64_t self, total;
	uint32_t pid, tid; /* 0 where rows are no processes or threads */
	uint64_t start; /* of the process: ns since boot */
	uint64_t events, errors, max; /* events: waits or calls; 0 for on-cpu */
	double share; /* of the selection's total: self, or total when sorted by it */
	struct interval within; /* syscalls: of self */
};

struct top {
	struct profile
		*coverage; /* metadata, total, samples, accounting; its columns are not kept */
	struct top_row *rows;
	size_t n_rows;
	uint64_t rows_omitted;
	bool has_intervals; /* row.within */
};
int query_top(const struct query_source *src, const struct selection *sel, enum dimension by,
	      bool by_total, uint32_t limit, struct top **ret);
struct top *top_free(struct top *t);
DEFINE_CLEANUP(struct top *, top_free)

/* What processes were short of, and the host. */
struct counters_row {
	char *name; /* comm */
	uint32_t pid;
	uint64_t start;
	uint64_t cpu_ns;
	/* From COUNTER_SPANS on estimates, and the CPU time that they are of: see profile.h. */
	uint64_t counters[COUNTERS], counted_ns[COUNTERS];
};
struct counters_answer {
	struct profile *coverage; /* of on-cpu; without columns */
	uint64_t busy_ns, capacity_ns; /* of the host */
	uint64_t run_queue_ns, preempted_ns; /* of the selection */
	/* In which they, and counters, were recorded: 0 where off-cpu was not. */
	uint64_t delays_covered_ns;
	uint64_t pressure_covered_ns, pressure_ns[PRESSURE_N]; /* of the host */
	struct counters_row *rows; /* by CPU time */
	size_t n_rows;
	uint64_t rows_omitted;
};
/* The selection's type and aspects are not read. */
int query_counters(const struct query_source *src, const struct selection *sel, uint32_t limit,
		   struct counters_answer **ret);
struct counters_answer *counters_answer_free(struct counters_answer *a);
DEFINE_CLEANUP(struct counters_answer *, counters_answer_free)

struct series_line {
	char *name, *binary;
	uint32_t pid;
	uint64_t total;
	uint64_t *values; /* n_steps */
};
struct series_answer {
	struct profile *coverage;
	uint64_t step_ns, first_wall_ns;
	size_t n_steps;
	uint64_t *covered_ns; /* n_steps */
	struct series_line *lines;
	size_t n_lines;
	uint64_t omitted;
};
int query_series(const struct query_source *src, const struct selection *sel, enum dimension by,
		 uint64_t step_ns, uint32_t limit, struct series_answer **ret);
struct series_answer *series_answer_free(struct series_answer *a);
DEFINE_CLEANUP(struct series_answer *, series_answer_free)

struct label_value {
	char *value;
	uint64_t total;
};
struct label_values {
	struct label_value *values; /* heaviest first, ties by name */
	size_t n;
	uint64_t omitted;
};
/* The values of a key in the selection; skip the first `offset`. */
int query_label_values(const struct query_source *src, const struct selection *sel,
		       enum filter_key key, uint32_t offset, uint32_t limit,
		       struct label_values **ret);
struct label_values *label_values_free(struct label_values *v);
DEFINE_CLEANUP(struct label_values *, label_values_free)

/* Which filter keys have any value in the selection: bit per enum filter_key. */
int query_labels(const struct query_source *src, const struct selection *sel, uint64_t *ret_keys);

/* One bucket's columns filtered by the selection, as a profile: live streams and ListBuckets. */
int query_bucket(const struct bucket *b, const struct selection *sel, struct profile **ret);
