// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/rows.h"

void rows_done(struct rows *rows)
{
	strbuf_done(&rows->bytes);
	*rows = (struct rows){};
}

void rows_reset(struct rows *rows)
{
	rows->n = 0;
	strbuf_reset(&rows->bytes);
}

static void copy_blob(struct rows *rows, sqlite3_stmt *s, int column, struct span *ret)
{
	const void *data = sqlite3_column_blob(s, column);
	size_t len = (size_t)sqlite3_column_bytes(s, column);

	*ret = (struct span){ .offset = rows->bytes.len, .len = data ? len : 0 };
	strbuf_add(&rows->bytes, data, ret->len);
}

static uint64_t column_u64(sqlite3_stmt *s, int column)
{
	return (uint64_t)sqlite3_column_int64(s, column);
}

/* Where the file is damaged, reading a column may fail without the step having failed. */
static int rows_end(struct rows *rows, sqlite3_stmt *s)
{
	int rc = sqlite3_errcode(sqlite3_db_handle(s)) & 0xff;
	int r = strbuf_error(&rows->bytes);

	if (r < 0)
		return r;
	if (rc == SQLITE_NOMEM)
		return -ENOMEM;
	rows->n++;
	return 0;
}

int rows_add_recent(struct rows *rows, sqlite3_stmt *s, unsigned types)
{
	struct row *row = &rows->row[rows->n];

	assert(rows->n < ROWS_MAX);
	*row = (struct row){ .n = 1 };
	row->first = row->last = column_u64(s, 0);
	row->min_start = row->max_start = column_u64(s, 1);
	copy_blob(rows, s, 2, &row->meta);
	for (int t = 0; t < PROFILE_TYPE_N; t++)
		if (types >> t & 1)
			copy_blob(rows, s, 3 + t, &row->data[t]);
	return rows_end(rows, s);
}

static int get_packed(struct rows *rows, sqlite3_stmt *packed, uint64_t last, uint64_t slot,
		      struct span *ret)
{
	int r;

	sql_bind_u64(packed, 1, PACKED_ID(last, slot));
	r = sql_step(packed);
	if (r > 0)
		copy_blob(rows, packed, 0, ret);
	sqlite3_reset(packed);
	/* A blob whose pages are damaged is missing; the other blobs may be well. */
	return r == -EBADMSG ? 0 : r < 0 ? r : 0;
}

int rows_add_pack(struct rows *rows, sqlite3_stmt *s, sqlite3_stmt *packed, unsigned types)
{
	struct row *row = &rows->row[rows->n];
	int r;

	assert(rows->n < ROWS_MAX);
	*row = (struct row){
		.packed = true,
		.last = column_u64(s, 0),
		.first = column_u64(s, 1),
		.n = column_u64(s, 2),
		.min_start = column_u64(s, 3),
		.max_start = column_u64(s, 4),
	};
	/* Numbers outside the checksums that make no sense: one bucket stands for what is lost. */
	if (row->n == 0 || row->n > SAMPLES_MAX_BUCKETS || row->first > row->last ||
	    row->min_start > row->max_start) {
		row->n = 1;
		row->first = row->last;
		row->max_start = row->min_start;
		return rows_end(rows, s);
	}
	r = get_packed(rows, packed, row->last, PACKED_META, &row->meta);
	for (unsigned t = 0; t < PROFILE_TYPE_N && r >= 0; t++)
		if (types >> t & 1)
			r = get_packed(rows, packed, row->last, t, &row->data[t]);
	return r < 0 ? r : rows_end(rows, s);
}

static int open_span(const struct rows *rows, const struct row *row, struct span span,
		     unsigned slot, enum blob_content content, struct blob_reader *blobs,
		     struct blob_in *ret)
{
	uint64_t packed[] = { row->last, row->first, row->n, row->min_start, row->max_start, slot };
	uint64_t recent[] = { row->last, slot == PACKED_META ? row->min_start : slot };
	const uint64_t *key = row->packed ? packed : recent;
	size_t n_key = row->packed ? ARRAY_SIZE(packed) : ARRAY_SIZE(recent);

	if (span.len == 0)
		return -EBADMSG;
	return blob_open(blobs, content, key, n_key, rows->bytes.data + span.offset, span.len, ret);
}

#define USUAL_NS (10 * NSEC_PER_SEC)

/* Evenly spread over the time that the row covers: good enough to say where something is missing. */
static void guess_metas(const struct row *row, struct bucket_meta *metas)
{
	uint64_t step = row->n > 1 ? (row->max_start - row->min_start) / (row->n - 1) : USUAL_NS;

	memset(metas, 0, row->n * sizeof(*metas));
	for (uint64_t i = 0; i < row->n; i++) {
		metas[i].seq = i + 1 == row->n ? row->last : MIN(row->first + i, row->last);
		metas[i].start_wall_ns = row->min_start + i * step;
		metas[i].length_ns = step;
		metas[i].gap = GAP_DAMAGED;
	}
}

/* What the samples are found by must agree with what the blob says. */
static bool metas_fit(const struct row *row, const struct bucket_meta *metas)
{
	for (uint64_t i = 0; i < row->n; i++)
		if (metas[i].seq < row->first || metas[i].seq > row->last ||
		    (i > 0 && metas[i].seq <= metas[i - 1].seq) ||
		    metas[i].start_wall_ns < row->min_start ||
		    metas[i].start_wall_ns > row->max_start)
			return false;
	return true;
}

int row_metas(const struct rows *rows, const struct row *row, struct blob_reader *blobs,
	      struct bucket_meta *metas)
{
	struct blob_in in;
	int r = open_span(rows, row, row->meta, PACKED_META, CONTENT_META, blobs, &in);

	if (r >= 0)
		r = meta_get(blobs, &in, metas, row->n);
	if (r >= 0 && !metas_fit(row, metas))
		r = -EBADMSG;
	if (r == -EBADMSG)
		guess_metas(row, metas);
	return r;
}

int row_samples(const struct rows *rows, const struct row *row, enum profile_type type,
		struct blob_reader *blobs, struct samples *samples)
{
	struct blob_in in;
	int r = open_span(rows, row, row->data[type], type, CONTENT_SAMPLES, blobs, &in);

	if (r >= 0)
		r = samples_get(&in, samples);
	return r < 0 ? r : samples->n_buckets == row->n ? 0 : -EBADMSG;
}
