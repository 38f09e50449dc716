/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rows of `recent` and `pack`, copied out of SQLite so that no snapshot is held while they are decoded and
 * handed to a query.
 */
#pragma once

#include "store/columns.h"
#include "store/sql.h"

#define ROWS_MAX 60

struct span {
	size_t offset, len;
};

/* One bucket, or a pack of them. */
struct row {
	bool packed;
	uint64_t first, last, n, min_start, max_start;
	struct span meta, data[PROFILE_TYPE_N]; /* len 0: not asked for, or missing */
};

struct rows {
	struct row row[ROWS_MAX];
	size_t n;
	struct strbuf bytes;
};
void rows_done(struct rows *rows);
void rows_reset(struct rows *rows);

/* Bit per enum profile_type. */
#define TYPES_ALL ((1U << PROFILE_TYPE_N) - 1)

/* A row of: seq, start, meta, on_cpu, off_cpu, syscalls, futex. Only the columns of `types` are touched. */
int rows_add_recent(struct rows *rows, sqlite3_stmt *s, unsigned types) _warn_unused_;
/* A row of: last, first, n, min_start, max_start; the blobs come from `packed` (SELECT by id). */
int rows_add_pack(struct rows *rows, sqlite3_stmt *s, sqlite3_stmt *packed,
		  unsigned types) _warn_unused_;

/*
 * The metadata of row->n buckets. -EBADMSG: damaged; metas then hold the little that the row itself says.
 */
int row_metas(const struct rows *rows, const struct row *row, struct blob_reader *blobs,
	      struct bucket_meta *metas) _warn_unused_;
/* -EBADMSG: damaged, for all buckets of the row. */
int row_samples(const struct rows *rows, const struct row *row, enum profile_type type,
		struct blob_reader *blobs, struct samples *samples) _warn_unused_;
