// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The background check: every blob of every file is read and its checksum verified, a few rows a step, once
 * after the start and once a day, taking a hundredth of one CPU at most. SQLite's own integrity check does not see a flipped byte inside a blob, and
 * takes many seconds; reading every row also walks every page that a query would.
 */
#include "base/clock.h"
#include "store/private.h"

#define CHECK_INTERVAL_NS (24 * 3600 * NSEC_PER_SEC)
#define CHECK_DICT_ROWS 16
/* A step goes on for this long, and is followed by a pause of a hundred times what it took. */
#define STEP_NS (4 * NSEC_PER_MSEC)
#define PAUSE_FACTOR 100

void check_forget(struct store *s)
{
	struct check *c = &s->check;

	c->view = view_free(c->view);
	c->name[0] = 0;
	rows_done(&c->rows);
	samples_done(&c->samples);
	free(c->metas);
	c->metas = NULL;
	c->cap_metas = 0;
	blob_reader_done(&s->blobs);
}

/* 1: a view on the next file that was not checked; 0: all were. */
static int begin_file(struct store *s)
{
	struct check *c = &s->check;
	int r;

	for (size_t i = 0; i < s->n_files; i++) {
		struct day_file *f = &s->files[i];

		if (f->checked || f->foreign)
			continue;
		f->checked = true;
		strcpy(c->name, f->name);
		c->dict_row = 0;
		c->after_seq = 0;
		c->damaged = 0;
		r = view_open(s->directory, f->name, &c->view);
		if (r == -EBADMSG) {
			file_set_aside(s, f);
			return 1;
		}
		if (r < 0) {
			/* No memory, no descriptors, no space: the next round. */
			check_forget(s);
			return 1;
		}
		c->view->last_seq = UINT64_MAX;
		return 1;
	}
	return 0;
}

/* Some rows of the dictionary. 0: all were checked. */
static int check_dictionary(struct store *s)
{
	struct check *c = &s->check;
	sqlite3_stmt *row = c->view->dict_select;
	int r = 0;

	sql_bind_u64(row, 1, (uint64_t)c->dict_row);
	for (unsigned i = 0; i < CHECK_DICT_ROWS; i++) {
		r = sql_step(row);
		if (r <= 0)
			break;
		c->dict_row = sqlite3_column_int64(row, 0);
		r = dictionary_check(&s->blobs, row);
		if (r == -EBADMSG)
			c->damaged++;
		else if (r < 0)
			break;
		r = 1;
	}
	sqlite3_reset(row);
	return r;
}

static int check_row(struct store *s, const struct row *row)
{
	struct check *c = &s->check;
	int r = ARRAY_GROW(c->metas, c->cap_metas, row->n);

	if (r < 0)
		return r;
	r = row_metas(&c->rows, row, &s->blobs, c->metas);
	if (r == -EBADMSG)
		c->damaged++;
	else if (r < 0)
		return r;
	for (unsigned t = 0; t < PROFILE_TYPE_N; t++) {
		r = row_samples(&c->rows, row, (enum profile_type)t, &s->blobs, &c->samples);
		if (r == -EBADMSG)
			c->damaged++;
		else if (r < 0)
			return r;
		/* Damage from before they were packed still is damage. */
		for (size_t i = 0; r >= 0 && i < row->n; i++)
			c->damaged += c->samples.damaged[i];
	}
	return 0;
}

/* A pack, or some recent buckets. 0: all were checked. */
static int check_rows(struct store *s)
{
	struct check *c = &s->check;
	int r = view_next(c->view, TYPES_ALL, c->after_seq, 0, INT64_MAX, &c->rows);

	if (r <= 0)
		return r;
	for (size_t i = 0; i < c->rows.n; i++) {
		r = check_row(s, &c->rows.row[i]);
		if (r < 0)
			return r;
		c->after_seq = c->rows.row[i].last;
	}
	return 1;
}

static void end_file(struct store *s)
{
	struct day_file *f = file_find(s, s->check.name);

	if (f)
		f->damaged = s->check.damaged;
	check_forget(s);
}

/* One step within a file. */
static int check_file(struct store *s)
{
	struct check *c = &s->check;
	int r = c->dict_row >= 0 ? check_dictionary(s) : 0;

	if (r == 0) {
		c->dict_row = -1;
		r = check_rows(s);
	}
	if (r > 0)
		return 1;
	if (r == -EBADMSG) {
		struct day_file *f = file_find(s, c->name);

		if (f)
			file_set_aside(s, f);
		return 1;
	}
	end_file(s);
	return 1;
}

/* The next piece. 0: all files are checked. */
static int check_piece(struct store *s)
{
	int r;

	if (s->check.view)
		return check_file(s);
	r = begin_file(s);
	if (r != 0)
		return r;
	s->check.next_mono_ns = mono_now_ns() + CHECK_INTERVAL_NS;
	for (size_t i = 0; i < s->n_files; i++)
		s->files[i].checked = false;
	return 0;
}

int check_step(struct store *s)
{
	uint64_t start = mono_now_ns();
	int r;

	if (start < s->check.next_mono_ns)
		return 0;
	do
		r = check_piece(s);
	while (r > 0 && mono_now_ns() - start < STEP_NS);
	if (r > 0 && !s->options.check_eagerly)
		s->check.next_mono_ns = start + (mono_now_ns() - start) * (1 + PAUSE_FACTOR);
	return r;
}
