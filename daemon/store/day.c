// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store/day.h"
#include "store/work.h"

/* A reader holds a snapshot for milliseconds; a checkpoint that waits this long may as well come later. */
#define BUSY_MS 100
#define SQL_LITERAL_(x) #x
#define SQL_LITERAL(x) SQL_LITERAL_(x)

/* ---- names -------------------------------------------------------------------------------------- */

/*
 * Dates by arithmetic: strftime(3) and timegm(3) may read the zone file and allocate. Days since 1970-01-01 in
 * the proleptic Gregorian calendar, the year beginning in March so that the leap day is its last.
 */
static void date_of(uint64_t days, unsigned *ret_year, unsigned *ret_month, unsigned *ret_day)
{
	uint64_t z = days + 719468, era = z / 146097, in_era = z % 146097;
	uint64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
	uint64_t in_year = in_era - (365 * year + year / 4 - year / 100);
	uint64_t month = (5 * in_year + 2) / 153;

	*ret_day = (unsigned)(in_year - (153 * month + 2) / 5 + 1);
	*ret_month = (unsigned)(month < 10 ? month + 3 : month - 9);
	*ret_year = (unsigned)(year + era * 400 + (*ret_month <= 2));
}

static uint64_t days_of(unsigned year, unsigned month, unsigned day)
{
	uint64_t y = year - (month <= 2), in_era = y % 400;
	uint64_t in_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

	return y / 400 * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

void day_name(char name[static DAY_NAME_MAX], uint64_t day_ns, uint64_t first_seq)
{
	unsigned year, month, day;

	date_of(day_ns / DAY_NS, &year, &month, &day);
	snprintf(name, DAY_NAME_MAX, "%04u-%02u-%02u.%016llx.db", year % 10000, month % 100,
		 day % 100, (unsigned long long)first_seq);
}

/* The number that n digits at *p make, which are skipped; UINT64_MAX for anything else. */
static uint64_t take_digits(const char **p, size_t n, unsigned base)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t v = 0;

	for (; n > 0; n--, (*p)++) {
		const char *d = **p ? memchr(digits, **p, base) : NULL;

		if (!d)
			return UINT64_MAX;
		v = v * base + (uint64_t)(d - digits);
	}
	return v;
}

bool day_name_parse(const char *name, uint64_t *ret_day_ns, uint64_t *ret_first_seq)
{
	uint64_t year, month, day, seq, day_ns;
	char again[DAY_NAME_MAX];
	const char *p = name;

	year = take_digits(&p, 4, 10);
	if (year < 1970 || year > 2261 || *p++ != '-')
		return false;
	month = take_digits(&p, 2, 10);
	if (month < 1 || month > 12 || *p++ != '-')
		return false;
	day = take_digits(&p, 2, 10);
	if (day < 1 || day > 31 || *p++ != '.')
		return false;
	seq = take_digits(&p, 16, 16);
	if (seq == 0 || seq > SEQ_MAX || !streq(p, ".db"))
		return false;
	day_ns = days_of((unsigned)year, (unsigned)month, (unsigned)day) * DAY_NS;
	/* The 31st of February is no day. */
	day_name(again, day_ns, seq);
	if (!streq(again, name))
		return false;
	*ret_day_ns = day_ns;
	*ret_first_seq = seq;
	return true;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static const char schema[] =
	"CREATE TABLE dict(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, first INTEGER NOT NULL,"
	" n INTEGER NOT NULL, data BLOB NOT NULL);"
	"CREATE TABLE recent(seq INTEGER PRIMARY KEY, start INTEGER NOT NULL, meta BLOB NOT NULL,"
	" on_cpu BLOB NOT NULL, off_cpu BLOB NOT NULL, syscalls BLOB NOT NULL, futex BLOB NOT "
	"NULL);"
	"CREATE TABLE pack(last INTEGER PRIMARY KEY, first INTEGER NOT NULL, n INTEGER NOT NULL,"
	" min_start INTEGER NOT NULL, max_start INTEGER NOT NULL);"
	"CREATE TABLE packed(id INTEGER PRIMARY KEY, data BLOB NOT NULL);" WORK_SCHEMA
	"PRAGMA application_id = " SQL_LITERAL(
		STORE_APPLICATION_ID) ";"
				      "PRAGMA user_version = " SQL_LITERAL(STORE_VERSION) ";";

/* synchronous FULL: with NORMAL a power loss takes what was committed since the last checkpoint. */
static const char pragmas[] = "PRAGMA synchronous = FULL;"
			      "PRAGMA wal_autocheckpoint = 128;"
			      "PRAGMA journal_size_limit = 1048576;"
			      "PRAGMA secure_delete = OFF;"
			      "PRAGMA cache_size = -1024;"
			      "PRAGMA temp_store = MEMORY;"
			      "PRAGMA trusted_schema = OFF;"
			      "PRAGMA cell_size_check = ON;";

struct day *day_free(struct day *d)
{
	if (!d)
		return NULL;
	dictionary_done(&d->dictionary);
	blob_writer_done(&d->blobs_out);
	blob_reader_done(&d->blobs_in);
	sqlite3_finalize(d->begin);
	sqlite3_finalize(d->commit);
	sqlite3_finalize(d->dict_select);
	sqlite3_finalize(d->dict_insert);
	sqlite3_finalize(d->dict_delete);
	sqlite3_finalize(d->recent_insert);
	sqlite3_finalize(d->recent_select);
	sqlite3_finalize(d->recent_delete);
	sqlite3_finalize(d->pack_insert);
	sqlite3_finalize(d->packed_insert);
	sqlite3_close(d->db);
	free(d->path);
	free(d);
	return NULL;
}

static int day_connect(const char *directory, const char *name, uint64_t max_bytes,
		       struct day **ret)
{
	_cleanup_(day_free_p) struct day *d = new0(struct day, 1);
	int r;

	if (!d || asprintf(&d->path, "%s/%s", directory, name) < 0)
		return -ENOMEM;
	if (!day_name_parse(name, &d->day_ns, &d->first_seq))
		return -EINVAL;
	d->max_bytes = max_bytes;
	r = sqlite3_open_v2(d->path, &d->db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
				    SQLITE_OPEN_EXRESCODE,
			    NULL);
	if (!d->db)
		return -ENOMEM;
	r = sql_error(d->db, r);
	if (r < 0)
		return r;
	sqlite3_busy_timeout(d->db, BUSY_MS);
	*ret = TAKE_PTR(d);
	return 0;
}

static int set_max_pages(struct day *d)
{
	char text[64];

	snprintf(text, sizeof(text), "PRAGMA max_page_count = %llu",
		 (unsigned long long)MAX(d->max_bytes / 4096, 64ULL));
	return sql_exec(d->db, text);
}

static int prepare_all(struct day *d)
{
	const struct {
		sqlite3_stmt **statement;
		const char *text;
	} all[] = {
		{ &d->begin, "BEGIN IMMEDIATE" },
		{ &d->commit, "COMMIT" },
		{ &d->dict_select, DICTIONARY_SELECT },
		{ &d->dict_insert, DICTIONARY_INSERT },
		{ &d->dict_delete, DICTIONARY_DELETE },
		{ &d->recent_insert, "INSERT INTO recent VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)" },
		{ &d->recent_select, "SELECT seq, start, meta, on_cpu, off_cpu, syscalls, futex"
				     " FROM recent ORDER BY seq LIMIT ?1" },
		{ &d->recent_delete, "DELETE FROM recent WHERE seq <= ?1" },
		{ &d->pack_insert, "INSERT INTO pack VALUES (?1, ?2, ?3, ?4, ?5)" },
		{ &d->packed_insert, "INSERT INTO packed VALUES (?1, ?2)" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int r = sql_prepare(d->db, all[i].text, all[i].statement);

		if (r < 0)
			return r;
	}
	return 0;
}

static int day_setup(struct day *d)
{
	int r = sql_exec(d->db, pragmas);

	if (r >= 0)
		r = set_max_pages(d);
	if (r >= 0)
		r = prepare_all(d);
	return r;
}

int day_create(const char *directory, uint64_t day_ns, uint64_t first_seq, uint64_t max_bytes,
	       struct day **ret)
{
	_cleanup_(day_free_p) struct day *d = NULL;
	_cleanup_free_ char *path = NULL;
	char name[DAY_NAME_MAX];
	int fd, r;

	day_name(name, day_ns, first_seq);
	if (asprintf(&path, "%s/%s", directory, name) < 0)
		return -ENOMEM;
	/* SQLite gives its other files the mode of the first, so that one is made here. */
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return negative_errno();
	close_fd(fd);
	r = day_connect(directory, name, max_bytes, &d);
	if (r >= 0)
		r = sql_exec(d->db, "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL");
	if (r >= 0)
		r = sql_exec(d->db, pragmas);
	if (r >= 0)
		r = sql_exec(d->db, "BEGIN IMMEDIATE");
	if (r >= 0)
		r = sql_exec(d->db, schema);
	/* Without a commit, closing rolls back. */
	if (r >= 0)
		r = sql_exec(d->db, "COMMIT");
	if (r >= 0)
		r = day_setup(d);
	if (r >= 0)
		r = dictionary_init(&d->dictionary, true);
	if (r < 0) {
		d = day_free(d);
		day_unlink(path);
		return r;
	}
	*ret = TAKE_PTR(d);
	return 0;
}

void day_unlink(const char *path)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		_cleanup_free_ char *file = NULL;

		if (asprintf(&file, "%s%s", path, suffixes[i]) >= 0)
			(void)unlink(file);
	}
}

int day_identify(sqlite3 *db)
{
	int64_t id, version, tables;
	int r = sql_integer(db, "PRAGMA application_id", 0, &id);

	if (r >= 0)
		r = sql_integer(db, "PRAGMA user_version", 0, &version);
	if (r >= 0)
		r = sql_integer(db, "SELECT count(*) FROM sqlite_schema", 0, &tables);
	if (r < 0)
		return r;
	if (id == 0 && version == 0 && tables == 0)
		return -ENODATA;
	if (id != STORE_APPLICATION_ID)
		return -EBADMSG;
	return version == STORE_VERSION ? 0 : -EPROTONOSUPPORT;
}

int day_open(const char *directory, const char *name, uint64_t max_bytes, struct day **ret)
{
	_cleanup_(day_free_p) struct day *d = NULL;
	int r = day_connect(directory, name, max_bytes, &d);

	if (r >= 0)
		r = day_identify(d->db);
	if (r >= 0)
		r = day_setup(d);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(d);
	return 0;
}

int day_load(struct day *d)
{
	int r;

	if (d->dictionary.dict)
		return 0;
	r = dictionary_init(&d->dictionary, true);
	if (r >= 0)
		r = dictionary_load(&d->dictionary, d->dict_select, &d->blobs_in);
	if (r < 0)
		dictionary_done(&d->dictionary);
	return r;
}

/* ---- transactions ------------------------------------------------------------------------------- */

int day_begin(struct day *d)
{
	return sql_run(d->begin);
}

int day_end(struct day *d, int r)
{
	if (r >= 0)
		r = sql_run(d->commit);
	/* A failed COMMIT may or may not have ended the transaction. */
	if (r < 0 && !sqlite3_get_autocommit(d->db))
		(void)sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

int day_checkpoint(struct day *d, bool truncate)
{
	int mode = truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART;

	return sql_error(d->db, sqlite3_wal_checkpoint_v2(d->db, NULL, mode, NULL, NULL));
}

/* ---- appending ---------------------------------------------------------------------------------- */

static int map_row(struct dict_map *m, enum profile_type type, const struct columns *c, size_t i,
		   struct columns *to)
{
	int64_t series = dict_map_series(m, c->series[i]);
	int64_t stack = dict_map_stack(m, c->stack[i]);
	int64_t aux = dict_map_aux(m, type, c->key[i], c->aux[i]);

	if (series < 0)
		return (int)series;
	if (stack < 0)
		return (int)stack;
	if (aux < 0)
		return (int)aux;
	return columns_add(to, (uint32_t)series, (uint32_t)stack, c->key[i], (uint32_t)aux,
			   c->count[i], c->value[i], c->max[i]);
}

/* The bucket's ids become the file's. */
static int map_columns(struct dict_map *m, enum profile_type type, const struct columns *c,
		       struct columns *to)
{
	for (size_t i = 0; i < c->n; i++) {
		int r = map_row(m, type, c, i, to);

		if (r < 0)
			return r;
	}
	return columns_sort_merge(to);
}

static int seal_columns(struct day *d, enum profile_type type, uint64_t seq,
			const struct columns *c, struct strbuf *blob)
{
	uint64_t key[] = { seq, type };
	int r;

	blob_begin(&d->blobs_out);
	r = samples_put(&d->blobs_out, &c, 1);
	return r < 0 ? r : blob_seal(&d->blobs_out, CONTENT_SAMPLES, key, ARRAY_SIZE(key), blob);
}

/* A bucket on its way into a row. */
struct recent_row {
	struct dict_map map;
	struct columns columns[PROFILE_TYPE_N];
	struct strbuf meta, data[PROFILE_TYPE_N];
};

static void recent_row_done(struct recent_row *row)
{
	dict_map_done(&row->map);
	strbuf_done(&row->meta);
	for (size_t i = 0; i < PROFILE_TYPE_N; i++) {
		columns_done(&row->columns[i]);
		strbuf_done(&row->data[i]);
	}
}

static int make_row(struct day *d, const struct bucket *b, struct recent_row *row)
{
	uint64_t key[] = { b->meta.seq, b->meta.start_wall_ns };
	int r = 0;

	for (unsigned t = 0; t < PROFILE_TYPE_N && r >= 0; t++) {
		r = map_columns(&row->map, (enum profile_type)t, &b->columns[t], &row->columns[t]);
		if (r >= 0)
			r = seal_columns(d, (enum profile_type)t, b->meta.seq, &row->columns[t],
					 &row->data[t]);
	}
	if (r < 0)
		return r;
	blob_begin(&d->blobs_out);
	r = meta_put(&d->blobs_out, &b->meta, 1);
	return r < 0 ? r : blob_seal(&d->blobs_out, CONTENT_META, key, ARRAY_SIZE(key), &row->meta);
}

static int insert_row(struct day *d, const struct bucket_meta *m, const struct recent_row *row)
{
	sqlite3_stmt *s = d->recent_insert;
	int r;

	sql_bind_u64(s, 1, m->seq);
	sql_bind_u64(s, 2, m->start_wall_ns);
	sql_bind_blob(s, 3, row->meta.data, row->meta.len);
	for (int t = 0; t < PROFILE_TYPE_N; t++)
		sql_bind_blob(s, 4 + t, row->data[t].data, row->data[t].len);
	r = sql_run(s);
	sqlite3_clear_bindings(s);
	return r;
}

static struct dictionary_touched touched_by(const struct dict_map *m)
{
	return (struct dictionary_touched){
		.frames = m->frame.ids,
		.n_frames = m->frame.cap,
		.locks = m->lock.ids,
		.n_locks = m->lock.cap,
	};
}

int day_append(struct day *d, const struct bucket *b)
{
	_cleanup_(recent_row_done) struct recent_row row = {};
	struct dictionary_touched touched;
	int r;

	assert(d->dictionary.dict);
	dict_map_init(&row.map, b->dict, d->dictionary.dict);
	r = make_row(d, b, &row);
	if (r < 0)
		return r == -EBADMSG ? -EINVAL : r; /* the bucket's ids are wrong, not the file */
	touched = touched_by(&row.map);
	r = day_begin(d);
	if (r < 0)
		return r;
	r = dictionary_write(&d->dictionary, d->dict_insert, &d->blobs_out, &touched);
	if (r >= 0)
		r = insert_row(d, &b->meta, &row);
	if (r >= 0)
		r = work_write(d->db, b);
	r = day_end(d, r);
	if (r >= 0)
		dictionary_stored(&d->dictionary, &touched);
	return r;
}

/* ---- survey ------------------------------------------------------------------------------------- */

static int survey_table(struct day *d, const char *text, int64_t ret[static 4])
{
	sqlite3_stmt *s = NULL;
	int r = sql_prepare(d->db, text, &s);

	if (r < 0)
		return r;
	r = sql_step(s);
	for (int i = 0; i < 4 && r > 0; i++)
		ret[i] = sqlite3_column_int64(s, i);
	sqlite3_finalize(s);
	return r < 0 ? r : 0;
}

int day_survey(struct day *d, struct day_survey *ret)
{
	int64_t recent[4] = {}, packs[4] = {};
	int r = survey_table(d, "SELECT count(*), min(start), max(start), max(seq) FROM recent",
			     recent);

	if (r >= 0)
		r = survey_table(
			d, "SELECT sum(n), min(min_start), max(max_start), max(last) FROM pack",
			packs);
	if (r < 0)
		return r;
	for (size_t i = 0; i < 4; i++)
		if (recent[i] < 0 || packs[i] < 0)
			return -EBADMSG;
	*ret = (struct day_survey){
		.recent = (uint64_t)recent[0],
		.buckets = (uint64_t)recent[0] + (uint64_t)packs[0],
		.min_start = (uint64_t)(recent[0] && packs[0] ? MIN(recent[1], packs[1])
							      : recent[1] + packs[1]),
		.max_start = (uint64_t)MAX(recent[2], packs[2]),
		.max_seq = (uint64_t)MAX(recent[3], packs[3]),
	};
	return 0;
}
