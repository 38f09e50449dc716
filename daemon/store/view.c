// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store/view.h"

/* A writer that takes the file over (recovery, a truncating checkpoint) needs milliseconds. */
#define BUSY_MS 2000

struct view *view_free(struct view *v)
{
	if (!v)
		return NULL;
	sqlite3_finalize(v->begin);
	sqlite3_finalize(v->commit);
	sqlite3_finalize(v->max_seq);
	sqlite3_finalize(v->dict_select);
	sqlite3_finalize(v->pack_select);
	sqlite3_finalize(v->packed_select);
	sqlite3_finalize(v->recent_select);
	sqlite3_close(v->db);
	dictionary_done(&v->dictionary);
	free(v);
	return NULL;
}

static int prepare_all(struct view *v)
{
	const struct {
		sqlite3_stmt **statement;
		const char *text;
	} all[] = {
		{ &v->begin, "BEGIN" },
		{ &v->commit, "COMMIT" },
		{ &v->max_seq, "SELECT max(coalesce((SELECT max(last) FROM pack), 0),"
			       " coalesce((SELECT max(seq) FROM recent), 0))" },
		{ &v->dict_select, DICTIONARY_SELECT },
		{ &v->pack_select, "SELECT last, first, n, min_start, max_start FROM pack"
				   " WHERE last > ?1 AND max_start >= ?2 AND min_start < ?3"
				   " ORDER BY last LIMIT 1" },
		{ &v->packed_select, "SELECT data FROM packed WHERE id = ?1" },
		{ &v->recent_select,
		  "SELECT seq, start, meta, on_cpu, off_cpu, syscalls, futex FROM recent"
		  " WHERE seq > ?1 AND start >= ?2 AND start < ?3 ORDER BY seq "
		  "LIMIT ?4" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int r = sql_prepare(v->db, all[i].text, all[i].statement);

		if (r < 0)
			return r;
	}
	return 0;
}

static int connect_uri(struct view *v, const char *uri)
{
	int rc = sqlite3_open_v2(uri, &v->db,
				 SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI |
					 SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
				 NULL);
	int r = rc == SQLITE_OK ? 0 : v->db ? sql_error(v->db, rc) : -ENOMEM;

	if (r >= 0) {
		sqlite3_busy_timeout(v->db, BUSY_MS);
		r = sql_exec(v->db, "PRAGMA query_only = ON; PRAGMA cache_size = -512;"
				    "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;");
	}
	/* The first access to the file: only now are log and shared memory opened. */
	if (r >= 0)
		r = day_identify(v->db);
	if (r < 0) {
		sqlite3_close(v->db);
		v->db = NULL;
	}
	return r;
}

static void put_uri(struct strbuf *b, const char *path, const char *options)
{
	strbuf_puts(b, "file:");
	for (; *path; path++) {
		if (strchr("%?#", *path))
			strbuf_printf(b, "%%%02x", (unsigned char)*path);
		else
			strbuf_putc(b, *path);
	}
	strbuf_puts(b, options);
}

/* Nothing but the main file has content. */
static bool log_is_empty(const char *path)
{
	_cleanup_free_ char *log = NULL;
	struct stat st;

	if (asprintf(&log, "%s-wal", path) < 0)
		return false;
	return stat(log, &st) < 0 ? errno == ENOENT : st.st_size == 0;
}

static int connect_path(struct view *v, const char *path)
{
	_cleanup_(strbuf_done) struct strbuf plain = {}, immutable = {};
	int r;

	put_uri(&plain, path, "");
	put_uri(&immutable, path, "?immutable=1");
	if (strbuf_error(&plain) < 0 || strbuf_error(&immutable) < 0)
		return -ENOMEM;
	r = connect_uri(v, plain.data);
	/*
	 * A file that nobody writes has no log and no shared memory, and on a full disk they cannot be made;
	 * then it is read as the constant that it is.
	 */
	if ((r == -ENOSPC || r == -EIO || r == -EROFS || r == -ENOENT) && log_is_empty(path))
		r = connect_uri(v, immutable.data);
	return r;
}

int view_open(const char *directory, const char *name, struct view **ret)
{
	_cleanup_(view_free_p) struct view *v = new0(struct view, 1);
	_cleanup_free_ char *path = NULL;
	struct stat before, after;
	int r;

	if (!v || asprintf(&path, "%s/%s", directory, name) < 0)
		return -ENOMEM;
	if (!day_name_parse(name, &v->day_ns, &v->first_seq))
		return -EINVAL;
	strcpy(v->name, name);
	if (lstat(path, &before) < 0)
		return negative_errno();
	if (!S_ISREG(before.st_mode))
		return -ENOENT; /* a FIFO would keep us waiting */
	r = connect_path(v, path);
	if (r < 0)
		return r;
	if (lstat(path, &after) < 0)
		return negative_errno();
	if (before.st_ino != after.st_ino || before.st_dev != after.st_dev)
		return -ENOENT;
	v->dev = after.st_dev;
	v->ino = after.st_ino;
	r = prepare_all(v);
	if (r >= 0)
		r = dictionary_init(&v->dictionary, false);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(v);
	return 0;
}

bool view_is_current(const struct view *v, int directory_fd)
{
	struct stat st;

	return fstatat(directory_fd, v->name, &st, AT_SYMLINK_NOFOLLOW) >= 0 &&
	       st.st_ino == v->ino && st.st_dev == v->dev;
}

static int view_end(struct view *v, int r)
{
	int e = sql_run(v->commit);

	return r < 0 ? r : e < 0 ? e : r;
}

static int get_max_seq(struct view *v, uint64_t *ret)
{
	int r = sql_step(v->max_seq);

	if (r > 0)
		*ret = (uint64_t)sqlite3_column_int64(v->max_seq, 0);
	sqlite3_reset(v->max_seq);
	return r < 0 ? r : 0;
}

int view_refresh(struct view *v, struct blob_reader *blobs)
{
	uint64_t last = 0;
	int r = sql_run(v->begin);

	if (r < 0)
		return r;
	r = get_max_seq(v, &last);
	if (r >= 0)
		r = dictionary_load(&v->dictionary, v->dict_select, blobs);
	r = view_end(v, r);
	if (r >= 0)
		v->last_seq = last;
	return r;
}

static void bind_range(sqlite3_stmt *s, uint64_t after, uint64_t from, uint64_t until)
{
	sql_bind_u64(s, 1, MIN(after, (uint64_t)INT64_MAX));
	sql_bind_u64(s, 2, MIN(from, (uint64_t)INT64_MAX));
	sql_bind_u64(s, 3, MIN(until, (uint64_t)INT64_MAX));
}

static int next_pack(struct view *v, unsigned types, struct rows *rows)
{
	int r = sql_step(v->pack_select);

	if (r > 0)
		r = rows_add_pack(rows, v->pack_select, v->packed_select, types) ?: 1;
	sqlite3_reset(v->pack_select);
	return r;
}

static int next_recent(struct view *v, unsigned types, struct rows *rows)
{
	int r = 0;

	while (rows->n < ROWS_MAX && (r = sql_step(v->recent_select)) > 0) {
		r = rows_add_recent(rows, v->recent_select, types);
		if (r < 0)
			break;
	}
	sqlite3_reset(v->recent_select);
	return r < 0 ? r : rows->n > 0;
}

int view_next(struct view *v, unsigned types, uint64_t after, uint64_t from, uint64_t until,
	      struct rows *rows)
{
	int r;

	rows_reset(rows);
	if (after >= v->last_seq)
		return 0;
	bind_range(v->pack_select, after, from, until);
	bind_range(v->recent_select, after, from, until);
	sql_bind_u64(v->recent_select, 4, ROWS_MAX);
	/* One snapshot for both questions: buckets may be packed between them. */
	r = sql_run(v->begin);
	if (r < 0)
		return r;
	r = next_pack(v, types, rows);
	if (r == 0)
		r = next_recent(v, types, rows);
	r = view_end(v, r);
	/* What came after the dictionary was read waits for the next call of view_refresh(). */
	while (r > 0 && rows->n > 0 && rows->row[rows->n - 1].first > v->last_seq)
		rows->n--;
	return r > 0 ? rows->n > 0 : r;
}
