/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A day file's dictionary: a struct dict whose ids are those on disk, and how much of it is stored. The
 * writer interns into it; readers only fill it.
 */
#pragma once

#include "model/profile.h"
#include "store/blob.h"
#include "store/sql.h"

struct dictionary {
	struct dict *dict;
	size_t stored
		[DICT_ELEMENT_KINDS]; /* n_* that is on disk; what lies behind waits for a commit */
	size_t merged[DICT_ELEMENT_KINDS]; /* chunks up to here are not merged again */
	uint8_t *frame_named, *lock_named; /* whether the stored element has its name */
	size_t cap_frame_named, cap_lock_named;
	int64_t last_row; /* readers: the last row of dict that was applied */
	bool indexed; /* can intern */
	uint64_t damaged; /* chunks */
};

/* indexed: for interning, which readers do without. */
int dictionary_init(struct dictionary *d, bool indexed) _warn_unused_;
void dictionary_done(struct dictionary *d);

/* Reads the rows that are new since the last call. -EBADMSG: the file is beyond use. */
int dictionary_load(struct dictionary *d, sqlite3_stmt *select,
		    struct blob_reader *blobs) _warn_unused_;

/*
 * Writes what is not stored yet, and the names that frames and locks got meanwhile: those of `frames` and
 * `locks` are looked at, ids that may be 0. Call dictionary_stored() once the transaction is committed.
 */
struct dictionary_touched {
	const uint32_t *frames, *locks;
	size_t n_frames, n_locks;
};
int dictionary_write(const struct dictionary *d, sqlite3_stmt *insert, struct blob_writer *blobs,
		     const struct dictionary_touched *touched) _warn_unused_;
void dictionary_stored(struct dictionary *d, const struct dictionary_touched *touched);

/* Rewrites the small chunks since the last merge as one per kind. dictionary_merged() after the commit. */
int dictionary_merge(const struct dictionary *d, sqlite3 *db, sqlite3_stmt *insert,
		     sqlite3_stmt *delete, struct blob_writer *blobs) _warn_unused_;
void dictionary_merged(struct dictionary *d);

/* Whether a new file should begin, so that memory and loading times stay bounded. */
bool dictionary_is_full(const struct dictionary *d);

#define DICTIONARY_SELECT "SELECT id, kind, first, n, data FROM dict WHERE id > ?1 ORDER BY id"
#define DICTIONARY_INSERT "INSERT INTO dict(kind, first, n, data) VALUES (?1, ?2, ?3, ?4)"
/* Chunks of elements that begin at or behind a first id, in rows up to the last of before. */
#define DICTIONARY_DELETE "DELETE FROM dict WHERE kind = ?1 AND first >= ?2 AND id <= ?3"
/* Checks the blob of one row without applying it. */
int dictionary_check(struct blob_reader *blobs, sqlite3_stmt *row) _warn_unused_;
