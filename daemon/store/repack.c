// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Recent buckets become a pack: the same samples, by tuple instead of by bucket, a fifth smaller and several
 * times faster to read. One transaction moves them, so a bucket is never in both tables or in none.
 */
#include "store/private.h"
#include "store/work.h"

struct repack {
	struct rows rows;
	struct bucket_meta *metas;
	bool *lost; /* no metadata: nobody knows what the samples are */
	struct samples *samples; /* of one type, one for each bucket */
	size_t n;
	struct row row; /* the pack */
	struct strbuf meta, data[PROFILE_TYPE_N];
};

static void repack_done(struct repack *p)
{
	rows_done(&p->rows);
	free(p->metas);
	free(p->lost);
	for (size_t i = 0; p->samples && i < ROWS_MAX; i++)
		samples_done(&p->samples[i]);
	free(p->samples);
	strbuf_done(&p->meta);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		strbuf_done(&p->data[t]);
}

static int read_recent(struct day *d, struct rows *rows, uint64_t limit)
{
	int r;

	sql_bind_u64(d->recent_select, 1, MIN(limit, (uint64_t)ROWS_MAX));
	while ((r = sql_step(d->recent_select)) > 0) {
		r = rows_add_recent(rows, d->recent_select, TYPES_ALL);
		if (r < 0)
			break;
	}
	sqlite3_reset(d->recent_select);
	return r;
}

static int read_metas(struct day *d, struct repack *p)
{
	p->metas = new0(struct bucket_meta, p->rows.n);
	p->lost = new0(bool, p->rows.n);
	p->samples = new0(struct samples, ROWS_MAX);
	if (!p->metas || !p->lost || !p->samples)
		return -ENOMEM;
	for (size_t i = 0; i < p->rows.n; i++) {
		int r = row_metas(&p->rows, &p->rows.row[i], &d->blobs_in, &p->metas[i]);

		if (r < 0 && r != -EBADMSG)
			return r;
		p->lost[i] = r < 0;
	}
	return 0;
}

/* Decodes one type of each bucket; fewer buckets where they would exceed PACK_MAX_ROWS. */
static int read_samples(struct day *d, struct repack *p, enum profile_type type,
			const struct columns *columns[static ROWS_MAX])
{
	size_t rows = 0;

	for (size_t i = 0; i < p->n; i++) {
		int r = p->lost[i] ? -EBADMSG
				   : row_samples(&p->rows, &p->rows.row[i], type, &d->blobs_in,
						 &p->samples[i]);

		columns[i] = NULL;
		if (r == -EBADMSG)
			continue;
		if (r < 0)
			return r;
		if (!p->samples[i].damaged[0])
			columns[i] = &p->samples[i].rows;
		rows += p->samples[i].rows.n;
		if (rows > PACK_MAX_ROWS && i > 0) {
			p->n = i;
			break;
		}
	}
	return 0;
}

static void describe_pack(struct repack *p)
{
	struct row row = { .packed = true, .n = p->n, .min_start = UINT64_MAX };

	row.first = p->rows.row[0].first;
	row.last = p->rows.row[p->n - 1].last;
	for (size_t i = 0; i < p->n; i++) {
		row.min_start = MIN(row.min_start, p->rows.row[i].min_start);
		row.max_start = MAX(row.max_start, p->rows.row[i].max_start);
	}
	p->row = row;
}

static int seal(struct day *d, const struct repack *p, unsigned slot, enum blob_content content,
		struct strbuf *blob)
{
	uint64_t key[] = { p->row.last,	     p->row.first,     p->row.n,
			   p->row.min_start, p->row.max_start, slot };

	return blob_seal(&d->blobs_out, content, key, ARRAY_SIZE(key), blob);
}

static int make_pack(struct day *d, struct repack *p)
{
	const struct columns *columns[ROWS_MAX];
	int r = 0;

	/* How many buckets fit is known only after each type was seen. */
	for (unsigned t = 0; t < PROFILE_TYPE_N && r >= 0; t++)
		r = read_samples(d, p, (enum profile_type)t, columns);
	describe_pack(p);
	for (unsigned t = 0; t < PROFILE_TYPE_N && r >= 0; t++) {
		r = read_samples(d, p, (enum profile_type)t, columns);
		if (r < 0)
			return r;
		blob_begin(&d->blobs_out);
		r = samples_put(&d->blobs_out, columns, p->n);
		if (r >= 0)
			r = seal(d, p, t, CONTENT_SAMPLES, &p->data[t]);
	}
	if (r < 0)
		return r;
	blob_begin(&d->blobs_out);
	r = meta_put(&d->blobs_out, p->metas, p->n);
	return r < 0 ? r : seal(d, p, PACKED_META, CONTENT_META, &p->meta);
}

static int insert_packed(struct day *d, uint64_t last, unsigned slot, const struct strbuf *blob)
{
	int r;

	sql_bind_u64(d->packed_insert, 1, PACKED_ID(last, slot));
	sql_bind_blob(d->packed_insert, 2, blob->data, blob->len);
	r = sql_run(d->packed_insert);
	sqlite3_clear_bindings(d->packed_insert);
	return r;
}

static int write_pack(struct day *d, const struct repack *p)
{
	const uint64_t columns[] = { p->row.last, p->row.first, p->row.n, p->row.min_start,
				     p->row.max_start };
	int r;

	for (int i = 0; i < (int)ARRAY_SIZE(columns); i++)
		sql_bind_u64(d->pack_insert, i + 1, columns[i]);
	r = sql_run(d->pack_insert);
	if (r >= 0)
		r = insert_packed(d, p->row.last, PACKED_META, &p->meta);
	for (unsigned t = 0; t < PROFILE_TYPE_N && r >= 0; t++)
		r = insert_packed(d, p->row.last, t, &p->data[t]);
	if (r < 0)
		return r;
	sql_bind_u64(d->recent_delete, 1, p->row.last);
	return sql_run(d->recent_delete);
}

int day_repack(struct day *d, uint64_t at_least, uint64_t buckets)
{
	_cleanup_(repack_done) struct repack p = {};
	bool merge = d->dictionary.dict != NULL;
	int r;

	r = read_recent(d, &p.rows, buckets);
	if (r < 0)
		return r;
	if (p.rows.n == 0 || p.rows.n < MIN(at_least, buckets))
		return 0;
	p.n = p.rows.n;
	r = read_metas(d, &p);
	if (r >= 0)
		r = make_pack(d, &p);
	if (r >= 0)
		r = day_begin(d);
	if (r < 0)
		return r;
	r = write_pack(d, &p);
	if (r >= 0 && merge)
		r = dictionary_merge(&d->dictionary, d->db, d->dict_insert, d->dict_delete,
				     &d->blobs_out);
	r = day_end(d, r);
	if (r < 0)
		return r;
	if (merge)
		dictionary_merged(&d->dictionary);
	return 1;
}

/* ---- pruning ------------------------------------------------------------------------------------ */

/* The first pack's last sequence and number of buckets. 0: there is no pack. */
static int oldest_pack(struct day *d, uint64_t *ret_last, uint64_t *ret_n)
{
	sqlite3_stmt *s = NULL;
	int r = sql_prepare(d->db, "SELECT last, n FROM pack ORDER BY last LIMIT 1", &s);

	if (r < 0)
		return r;
	r = sql_step(s);
	if (r > 0) {
		*ret_last = (uint64_t)sqlite3_column_int64(s, 0);
		*ret_n = (uint64_t)sqlite3_column_int64(s, 1);
	}
	sqlite3_finalize(s);
	return r;
}

static int run_with(struct day *d, const char *text, const uint64_t *parameters, int n)
{
	sqlite3_stmt *s = NULL;
	int r = sql_prepare(d->db, text, &s);

	if (r < 0)
		return r;
	for (int i = 0; i < n; i++)
		sql_bind_u64(s, i + 1, parameters[i]);
	r = sql_run(s);
	sqlite3_finalize(s);
	return r;
}

static int delete_pack(struct day *d, uint64_t last)
{
	uint64_t ids[] = { PACKED_ID(last, 0), PACKED_ID(last + 1, 0) };
	int r = run_with(d, "DELETE FROM pack WHERE last = ?1", &last, 1);

	return r < 0 ? r : run_with(d, "DELETE FROM packed WHERE id >= ?1 AND id < ?2", ids, 2);
}

/* Recent buckets go an eighth of a pack at a time. */
static int delete_recent(struct day *d)
{
	uint64_t n = ROWS_MAX / 8 + 1;

	return run_with(
		d, "DELETE FROM recent WHERE seq IN (SELECT seq FROM recent ORDER BY seq LIMIT ?1)",
		&n, 1);
}

int day_prune(struct day *d)
{
	uint64_t last = 0, n = 0;
	int r = day_begin(d), removed = 0;

	if (r < 0)
		return r;
	r = oldest_pack(d, &last, &n);
	if (r > 0) {
		removed = (int)MIN(n, (uint64_t)SAMPLES_MAX_BUCKETS);
		r = delete_pack(d, last);
	} else if (r == 0) {
		r = delete_recent(d);
		removed = sqlite3_changes(d->db);
	}
	if (r >= 0)
		r = work_prune(d->db);
	r = day_end(d, r);
	return r < 0 ? r : removed;
}
