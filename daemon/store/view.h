/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A read-only connection to one day file, with its dictionary. No transaction outlives a call, so that
 * checkpoints are never held up; the file may be unlinked meanwhile.
 */
#pragma once

#include <sys/types.h>

#include "store/day.h"
#include "store/rows.h"

struct view {
	char name[DAY_NAME_MAX];
	uint64_t day_ns, first_seq;
	dev_t dev;
	ino_t ino;
	sqlite3 *db;
	sqlite3_stmt *begin, *commit, *max_seq, *dict_select, *pack_select, *packed_select;
	sqlite3_stmt *recent_select;
	struct dictionary dictionary;
	uint64_t last_seq; /* as of view_refresh(): the dictionary covers buckets up to it */
};

/* Errors as day_open(); -ENOENT when the file is gone. */
int view_open(const char *directory, const char *name, struct view **ret);
struct view *view_free(struct view *v);
DEFINE_CLEANUP(struct view *, view_free)

/* Whether the name still leads to the file that this view reads. */
bool view_is_current(const struct view *v, int directory_fd);
/* Reads what was added to the dictionary. It does not change between two calls of this. */
int view_refresh(struct view *v, struct blob_reader *blobs);
/*
 * The next pack, or the next recent buckets, with sequence numbers in (after, v->last_seq] and starts that
 * may lie in [from, until). 1: found, 0: none. A pack may hold buckets outside all three bounds.
 */
int view_next(struct view *v, unsigned types, uint64_t after, uint64_t from, uint64_t until,
	      struct rows *rows);
