/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One day file, opened for writing: schema, dictionary, commits. Errors as sql_error() gives them; a
 * transaction that failed is rolled back and leaves the file as it was.
 */
#pragma once

#include "store/columns.h"
#include "store/dictionary.h"

/* "2026-11-30.0000000000000001.db" */
#define DAY_NAME_MAX 40
#define DAY_NS (86400 * NSEC_PER_SEC)

void day_name(char name[static DAY_NAME_MAX], uint64_t day_ns, uint64_t first_seq);
/* The start of the UTC day and the first sequence; false when it is no day file's name. */
bool day_name_parse(const char *name, uint64_t *ret_day_ns, uint64_t *ret_first_seq);

struct day {
	char *path;
	uint64_t day_ns, first_seq;
	sqlite3 *db;
	sqlite3_stmt *begin, *commit;
	sqlite3_stmt *dict_select, *dict_insert, *dict_delete;
	sqlite3_stmt *recent_insert, *recent_select, *recent_delete;
	sqlite3_stmt *pack_insert, *packed_insert;
	struct dictionary dictionary; /* dict is NULL until day_load() */
	struct blob_writer blobs_out;
	struct blob_reader blobs_in;
	uint64_t max_bytes;
};

/* -EEXIST; -ENOSPC leaves nothing behind. */
int day_create(const char *directory, uint64_t day_ns, uint64_t first_seq, uint64_t max_bytes,
	       struct day **ret);
/*
 * -EBADMSG: damaged; -ENODATA: was being created when the daemon died, and holds nothing;
 * -EPROTONOSUPPORT: a version that this program does not know.
 */
int day_open(const char *directory, const char *name, uint64_t max_bytes, struct day **ret);
struct day *day_free(struct day *d);
DEFINE_CLEANUP(struct day *, day_free)

/* Removes a day file and what SQLite keeps beside it; readers that have it open go on. */
void day_unlink(const char *path);

/* Checks application id and version of an open database: the errors of day_open(). */
int day_identify(sqlite3 *db);

/* Reads the dictionary so that buckets can be appended. Once. */
int day_load(struct day *d);
/* b->meta.seq is set by the caller. */
int day_append(struct day *d, const struct bucket *b);

struct day_survey {
	uint64_t recent, buckets; /* rows not packed; all buckets */
	uint64_t min_start, max_start, max_seq; /* 0 when empty */
};
int day_survey(struct day *d, struct day_survey *ret);

int day_begin(struct day *d);
/* Commits when r >= 0, else rolls back; returns the error. */
int day_end(struct day *d, int r);
/*
 * Writes the log back. truncate: and gives up its space; otherwise the next commit writes over it from its
 * beginning, which works without any free space. -EBUSY while readers hold it.
 */
int day_checkpoint(struct day *d, bool truncate);
