/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How complete user stacks are, by the binary in which their walk ended: who reaches the outermost frame counts for
 * the binary of that frame, who stops early for the binary that stopped it. Samples since the start.
 *
 * Thread-safe: the drain thread counts, others read.
 */
#pragma once

#include "collect/process.h"
#include "model/profile.h"

#include "../bpf/sysprofd.h"

#define QUALITY_ROWS_MAX 1024 /* binaries; those with the fewest samples fold into [other] */

struct quality_row {
	uint64_t binary; /* registry key; 0: [other] */
	char *path;
	char *build_id; /* hexadecimal or "" */
	uint64_t samples;
	uint64_t frame_pointer; /* of them, by frame pointers in part */
	uint64_t ends[WALK_END_N]; /* WALK_COMPLETE, and why not */
};

struct quality;
int quality_new(struct quality **ret);
struct quality *quality_free(struct quality *q);
DEFINE_CLEANUP(struct quality *, quality_free)

/* The row of a binary, valid until quality_trim(). 0 is [other]. */
uint32_t quality_row(struct quality *q, const struct binary_ref *binary);
void quality_count(struct quality *q, uint32_t row, enum walk_end end, bool frame_pointer,
		   uint64_t samples);
/* Between slices: makes room when there are too many rows. */
void quality_trim(struct quality *q);

/* A copy, most incomplete samples first; free with quality_rows_free(). */
int quality_rows(struct quality *q, struct quality_row **ret, size_t *ret_n);
void quality_rows_free(struct quality_row *rows, size_t n);
