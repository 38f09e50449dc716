// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading across day files. Names sort in the order of sequence and ranges do not overlap, so files are read
 * one after the other. The view of the newest file stays open from one query to the next: loading a day's
 * dictionary takes longer than an hour's query.
 */
#include <dirent.h>
#include <fcntl.h>

#include "store/identity.h"
#include "store/store.h"
#include "store/view.h"
#include "store/work.h"

/* Views kept between calls, and within one. A busy day's dictionary takes 20 MiB, and each worker has a reader. */
#define KEEP_VIEWS 1
#define HOLD_VIEWS 2

struct store_reader {
	char *directory;
	int directory_fd;
	struct view *views[HOLD_VIEWS]; /* in order of use, the latest last */
	size_t n_views;
	const struct view
		*delivered; /* of the last bucket: the caller may still use its dictionary */
	struct blob_reader blobs;
	struct rows rows;
	struct samples samples[PROFILE_TYPE_N];
	struct bucket_meta *metas;
	size_t cap_metas;
	char uuid[STORE_UUID_MAX];
};

int store_reader_new(const char *directory, struct store_reader **ret)
{
	_cleanup_(store_reader_free_p) struct store_reader *r = new0(struct store_reader, 1);

	if (!r)
		return -ENOMEM;
	r->directory_fd = -1;
	r->directory = realpath(directory, NULL);
	if (!r->directory)
		return negative_errno();
	r->directory_fd = open(r->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->directory_fd < 0)
		return negative_errno();
	*ret = TAKE_PTR(r);
	return 0;
}

struct store_reader *store_reader_free(struct store_reader *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->n_views; i++)
		view_free(r->views[i]);
	blob_reader_done(&r->blobs);
	rows_done(&r->rows);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		samples_done(&r->samples[t]);
	free(r->metas);
	close_fd(r->directory_fd);
	free(r->directory);
	free(r);
	return NULL;
}

const char *store_reader_uuid(struct store_reader *r)
{
	struct identity id;

	if (identity_load(r->directory_fd, &id) >= 0)
		memcpy(r->uuid, id.uuid, sizeof(r->uuid));
	return r->uuid;
}

/* ---- files and views ---------------------------------------------------------------------------- */

struct file_ref {
	char name[DAY_NAME_MAX];
	uint64_t day_ns, first_seq;
};

struct file_list {
	struct file_ref *files;
	size_t n, cap;
};

static void file_list_done(struct file_list *l)
{
	free(l->files);
}

static int file_compare(const void *pa, const void *pb)
{
	const struct file_ref *a = pa, *b = pb;

	return a->first_seq < b->first_seq ? -1 : a->first_seq > b->first_seq;
}

static int list_files(struct store_reader *r, struct file_list *l)
{
	int fd = openat(r->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	int e = 0;
	DIR *dir;

	if (fd < 0)
		return negative_errno();
	dir = fdopendir(fd);
	if (!dir) {
		close_fd(fd);
		return -ENOMEM;
	}
	while (e >= 0 && (entry = readdir(dir))) {
		struct file_ref f = {};

		if (!day_name_parse(entry->d_name, &f.day_ns, &f.first_seq))
			continue;
		strcpy(f.name, entry->d_name);
		e = ARRAY_GROW(l->files, l->cap, l->n + 1);
		if (e >= 0)
			l->files[l->n++] = f;
	}
	closedir(dir);
	if (l->n > 0)
		qsort(l->files, l->n, sizeof(*l->files), file_compare);
	return e;
}

static void forget_view(struct store_reader *r, size_t i)
{
	view_free(r->views[i]);
	memmove(&r->views[i], &r->views[i + 1], (r->n_views - i - 1) * sizeof(*r->views));
	r->n_views--;
}

static struct view *known_view(struct store_reader *r, const char *name)
{
	for (size_t i = 0; i < r->n_views; i++) {
		struct view *v = r->views[i];

		if (!streq(v->name, name))
			continue;
		if (!view_is_current(v, r->directory_fd)) {
			forget_view(r, i);
			return NULL;
		}
		memmove(&r->views[i], &r->views[i + 1], (r->n_views - i - 1) * sizeof(*r->views));
		r->views[r->n_views - 1] = v;
		return v;
	}
	return NULL;
}

/*
 * The file's view with its dictionary up to date. -ENOENT: gone meanwhile; -EBADMSG: damaged; -ENODATA and
 * -EPROTONOSUPPORT: not for us.
 */
static int get_view(struct store_reader *r, const char *name, struct view **ret)
{
	struct view *v = known_view(r, name);
	int e;

	if (!v) {
		e = view_open(r->directory, name, &v);
		if (e < 0)
			return e;
		/* The new one exists before an old one goes, so that no two dictionaries in a row share
		 * an address. */
		if (r->n_views == HOLD_VIEWS)
			forget_view(r, r->views[0] == r->delivered ? 1 : 0);
		r->views[r->n_views++] = v;
	}
	e = view_refresh(v, &r->blobs);
	if (e < 0) {
		forget_view(r, r->n_views - 1);
		return e;
	}
	*ret = v;
	return 0;
}

/* The newest file stays, since it is asked for most; so does, until the next call, what the caller has. */
static void release_views(struct store_reader *r, const struct file_list *l)
{
	for (size_t i = r->n_views; i > 0; i--) {
		bool keep = r->views[i - 1] == r->delivered;

		for (size_t k = l->n > KEEP_VIEWS ? l->n - KEEP_VIEWS : 0; k < l->n; k++)
			keep |= streq(l->files[k].name, r->views[i - 1]->name);
		if (!keep)
			forget_view(r, i - 1);
	}
}

/* ---- walking ------------------------------------------------------------------------------------ */

/* What a walk over files looks for, and whom it tells. */
struct walk {
	uint64_t after, from, until;
	unsigned types;
	const bool *cancelled;
	/* The types' samples are in reader->samples, NULL where damaged. Not 0 ends the walk. */
	int (*bucket)(struct walk *w, struct view *v, const struct bucket_meta *meta,
		      const struct columns *const columns[PROFILE_TYPE_N]);
};

static bool is_cancelled(const struct walk *w)
{
	return w->cancelled && __atomic_load_n(w->cancelled, __ATOMIC_RELAXED);
}

static int walk_bucket(struct store_reader *r, struct walk *w, struct view *v, size_t i,
		       const bool damaged[PROFILE_TYPE_N])
{
	const struct columns *columns[PROFILE_TYPE_N] = {};
	struct columns windows[PROFILE_TYPE_N];
	const struct bucket_meta *m = &r->metas[i];

	if (m->seq <= w->after || m->seq > v->last_seq || m->start_wall_ns < w->from ||
	    m->start_wall_ns >= w->until)
		return 0;
	if (is_cancelled(w))
		return -ECANCELED;
	r->delivered = v;
	for (unsigned t = 0; t < PROFILE_TYPE_N; t++) {
		if (!(w->types >> t & 1) || damaged[t] || r->samples[t].damaged[i])
			continue;
		windows[t] = samples_bucket(&r->samples[t], i);
		columns[t] = &windows[t];
	}
	return w->bucket(w, v, m, columns);
}

static int walk_row(struct store_reader *r, struct walk *w, struct view *v, const struct row *row)
{
	bool damaged[PROFILE_TYPE_N] = {}, no_meta;
	int e;

	e = ARRAY_GROW(r->metas, r->cap_metas, row->n);
	if (e >= 0)
		e = row_metas(&r->rows, row, &r->blobs, r->metas);
	if (e < 0 && e != -EBADMSG)
		return e;
	no_meta = e < 0;
	for (unsigned t = 0; t < PROFILE_TYPE_N; t++) {
		if (!(w->types >> t & 1))
			continue;
		/* Without metadata nobody knows which bucket the samples belong to. */
		e = no_meta ? -EBADMSG
			    : row_samples(&r->rows, row, (enum profile_type)t, &r->blobs,
					  &r->samples[t]);
		if (e < 0 && e != -EBADMSG)
			return e;
		damaged[t] = e < 0;
	}
	for (size_t i = 0; i < row->n; i++) {
		e = walk_bucket(r, w, v, i, damaged);
		if (e != 0)
			return e;
	}
	return 0;
}

/* SQLite cannot go on in this file: what may be missing is told as one damaged bucket. */
static int walk_damage(struct walk *w, struct view *v, uint64_t seq, uint64_t start)
{
	const struct columns *none[PROFILE_TYPE_N] = {};
	struct bucket_meta meta = {
		.seq = seq,
		.start_wall_ns = CLAMP(start, w->from, w->until - 1),
		.gap = GAP_DAMAGED,
	};

	return w->bucket(w, v, &meta, none);
}

static int walk_view(struct store_reader *r, struct walk *w, struct view *v)
{
	uint64_t after = MAX(w->after, v->first_seq - 1), reached = v->day_ns;

	for (;;) {
		int e;

		if (is_cancelled(w))
			return -ECANCELED;
		e = view_next(v, w->types, after, w->from, w->until, &r->rows);
		if (e == -EBADMSG)
			return walk_damage(w, v, after + 1, reached);
		if (e <= 0)
			return e;
		for (size_t i = 0; i < r->rows.n; i++) {
			const struct row *row = &r->rows.row[i];

			e = walk_row(r, w, v, row);
			if (e != 0)
				return e;
			after = MAX(after, row->last);
			reached = MAX(reached, row->max_start);
		}
	}
}

/* Whether file i may hold a bucket that the walk wants. */
static bool file_matters(const struct file_list *l, size_t i, const struct walk *w)
{
	const struct file_ref *f = &l->files[i];

	if (i + 1 < l->n && l->files[i + 1].first_seq <= w->after + 1)
		return false;
	return f->day_ns < w->until && f->day_ns + DAY_NS > w->from;
}

static int walk_files(struct store_reader *r, struct walk *w)
{
	_cleanup_(file_list_done) struct file_list l = {};
	int e;

	r->delivered = NULL;
	if (w->from >= w->until)
		return 0;
	e = list_files(r, &l);
	for (size_t i = 0; i < l.n && e == 0; i++) {
		struct view *v = NULL;

		if (!file_matters(&l, i, w))
			continue;
		e = get_view(r, l.files[i].name, &v);
		/* Retention and the writer's own repair go on meanwhile; one bad file is not the end. What it
		 * held shows as missing numbers. */
		if (e == -ENOENT || e == -EBADMSG || e == -ENODATA || e == -EPROTONOSUPPORT ||
		    e == -EIO)
			e = 0;
		else if (e == 0)
			e = walk_view(r, w, v);
	}
	release_views(r, &l);
	return e;
}

/* ---- scan --------------------------------------------------------------------------------------- */

struct scan {
	struct walk walk;
	enum profile_type type;
	store_scan_fn fn;
	void *ctx;
};

static int scan_bucket(struct walk *w, struct view *v, const struct bucket_meta *meta,
		       const struct columns *const columns[PROFILE_TYPE_N])
{
	struct scan *s = (struct scan *)w;

	return s->fn(s->ctx, v->dictionary.dict, meta, columns[s->type]);
}

int store_reader_scan(struct store_reader *r, enum profile_type type, uint64_t from_wall_ns,
		      uint64_t until_wall_ns, const bool *cancelled, store_scan_fn fn, void *ctx)
{
	struct scan s = {
		.walk = {
			.from = from_wall_ns,
			.until = until_wall_ns,
			.types = 1U << type,
			.cancelled = cancelled,
			.bucket = scan_bucket,
		},
		.type = type,
		.fn = fn,
		.ctx = ctx,
	};

	return walk_files(r, &s.walk);
}

/* ---- list --------------------------------------------------------------------------------------- */

struct list {
	struct walk walk;
	uint32_t left;
	store_bucket_fn fn;
	void *ctx;
};

/* Ends the walk without being an error of ours or a value of the caller's. */
#define LIST_FULL INT32_MIN

static int copy_row(struct dict_map *m, enum profile_type type, const struct columns *c, size_t i,
		    struct columns *to)
{
	int64_t series = dict_map_series(m, c->series[i]);
	int64_t stack = dict_map_stack(m, c->stack[i]);
	int64_t aux = dict_map_aux(m, type, c->key[i], c->aux[i]);

	if (series < 0 || stack < 0 || aux < 0)
		return (int)MIN(MIN(series, stack), aux);
	return columns_add(to, (uint32_t)series, (uint32_t)stack, c->key[i], (uint32_t)aux,
			   c->count[i], c->value[i], c->max[i]);
}

static int make_bucket(const struct dict *d, const struct bucket_meta *meta,
		       const struct columns *const columns[PROFILE_TYPE_N], struct bucket **ret)
{
	_cleanup_(dict_map_done) struct dict_map map = {};
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	int e = bucket_new(&b);

	if (e < 0)
		return e;
	b->meta = *meta;
	dict_map_init(&map, d, b->dict);
	for (unsigned t = 0; t < PROFILE_TYPE_N; t++) {
		const struct columns *c = columns[t];

		if (!c)
			b->meta.gap = GAP_DAMAGED;
		for (size_t i = 0; c && i < c->n && e >= 0; i++)
			e = copy_row(&map, (enum profile_type)t, c, i, &b->columns[t]);
		if (e < 0)
			return e;
	}
	*ret = TAKE_PTR(b);
	return 0;
}

static int list_bucket(struct walk *w, struct view *v, const struct bucket_meta *meta,
		       const struct columns *const columns[PROFILE_TYPE_N])
{
	struct list *l = (struct list *)w;
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	int e = make_bucket(v->dictionary.dict, meta, columns, &b);

	/* Damage there costs the units, not the bucket. */
	if (e >= 0 && work_read(v->db, b) == -ENOMEM)
		e = -ENOMEM;
	if (e >= 0)
		e = l->fn(l->ctx, b);
	if (e != 0)
		return e;
	return --l->left == 0 ? LIST_FULL : 0;
}

int store_reader_list(struct store_reader *r, uint64_t after_seq, uint32_t limit,
		      store_bucket_fn fn, void *ctx)
{
	struct list l = {
		.walk = {
			.after = MIN(after_seq, SEQ_MAX),
			.until = UINT64_MAX,
			.types = TYPES_ALL,
			.bucket = list_bucket,
		},
		.left = limit,
		.fn = fn,
		.ctx = ctx,
	};
	int e;

	if (limit == 0)
		return 0;
	e = walk_files(r, &l.walk);
	return e == LIST_FULL ? 0 : e;
}
