/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System calls with what is known of them: counts and errors are exact, unless they were counted in spans of the time; how long calls took and how much they moved is
 * measured for some and scaled to the exact number, call by call, before calls of different kinds are added up.
 */
#pragma once

#include "query/estimate.h"
#include "query/query.h"

enum calls_by { CALLS_BY_SYSCALL = 0, CALLS_BY_PROCESS, CALLS_BY_ERRNO, CALLS_BY_N };

#define CALL_BINS 64
#define CALL_PARTS 10
/* Transfers of fewer bytes are tiny: less than the least that a disk or a page cache moves. A power of two. */
#define TINY_BYTES 512

struct call_measure {
	uint64_t measured; /* calls that the rest is estimated from; 0: nothing is known */
	double total; /* ns or bytes */
	uint64_t max;
	double bins[CALL_BINS]; /* calls; bin 0 is 0, bin b from 2^(b-1) to below 2^b */
};
/* Within the bin, as if its calls were spread evenly; never more than the maximum. */
uint64_t call_quantile(const struct call_measure *m, double q);

/* An errno with which calls of the row failed; of a row of an errno, a call that failed with it. */
struct call_part {
	char *name; /* owned */
	uint64_t calls;
};

struct call_row {
	char *name; /* owned: of the call, the process, or the errno ("ok") */
	char *unit; /* owned: of a process, else "" */
	uint32_t pid; /* of a process, else 0 */
	uint64_t start; /* ns since boot */
	uint64_t calls, errors;
	struct interval calls_within, errors_within;
	struct call_measure latency, bytes;
	uint64_t tiny; /* of the calls in bytes.bins */
	struct call_part parts[CALL_PARTS]; /* most frequent first */
	size_t n_parts;
};

struct calls_answer {
	struct profile *coverage; /* its columns are not kept */
	struct call_row *rows; /* most calls first */
	size_t n_rows;
	uint64_t omitted;
	uint64_t calls, errors; /* of the whole selection */
	struct interval calls_within, errors_within;
	bool estimated; /* not all calls were counted: see the intervals */
};
/* limit 0: all rows. */
int query_calls(const struct query_source *src, const struct selection *sel, enum calls_by by,
		uint32_t limit, struct calls_answer **ret);
struct calls_answer *calls_answer_free(struct calls_answer *a);
DEFINE_CLEANUP(struct calls_answer *, calls_answer_free)
