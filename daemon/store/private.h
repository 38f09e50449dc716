/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the writer's parts share: store.c (opening, appending), files.c (the directory), retention.c,
 * repack.c, check.c. All of it belongs to the store thread but for `published`.
 */
#pragma once

#include <pthread.h>

#include "store/identity.h"
#include "store/store.h"
#include "store/view.h"

#define RESERVE_NAME "reserve"
#define RESERVE_BYTES (2ULL << 20)
/* A log that grew beyond this, because a reader was in the way, is written back and cut. */
#define WAL_MAX (1 << 20)

struct day_file {
	char name[DAY_NAME_MAX];
	uint64_t day_ns, first_seq;
	uint64_t bytes; /* with -wal and -shm */
	uint64_t main_bytes; /* without */
	bool surveyed; /* survey is true */
	bool foreign; /* of a version that this program does not know */
	bool seen; /* by the running files_refresh() */
	struct day_survey survey;
	uint64_t damaged; /* blobs, as far as the check has come */
	bool checked; /* since the start */
};

struct check {
	char name[DAY_NAME_MAX]; /* the file being checked; empty: none */
	struct view *view;
	struct rows rows;
	struct samples samples;
	struct bucket_meta *metas;
	size_t cap_metas;
	int64_t dict_row;
	uint64_t after_seq;
	uint64_t damaged; /* found so far in this file */
	uint64_t next_mono_ns; /* when the next step is due, or the next round over all files */
};

struct store {
	char *directory;
	int directory_fd;
	struct store_options options;
	struct identity identity;
	bool identity_dirty; /* the last write of store.id failed */
	uint64_t next_seq;
	uint64_t pending_base_wall_ns, pending_covered_ns; /* retention.c */

	struct day_file *files; /* ascending by first_seq; `current`, if any, is the last one */
	size_t n_files, cap_files;
	uint64_t other_bytes; /* reserve, damaged files, everything else in the directory */
	bool have_reserve;
	struct day *current;
	struct blob_reader blobs;
	struct check check;
	uint64_t buckets_since_save;

	struct store_stats stats;
	pthread_mutex_t lock;
	struct store_stats published;
};

/* ---- files.c ---- */

/* Writes store.id; a failure is remembered and mended by maintenance. */
void store_save_identity(struct store *s);

/* Sizes of everything in the directory; forgets files that are gone. `add`: takes in day files not known. */
int files_refresh(struct store *s, bool add);
uint64_t store_bytes(const struct store *s);
/* What the store may hold: its limit, or less on a small disk. */
uint64_t store_limit(const struct store *s);
/* Where a new day file begins although the day is not over. */
uint64_t store_file_limit(const struct store *s);
struct day_file *file_find(struct store *s, const char *name);
/* The file that is being appended to, or NULL. */
struct day_file *file_current(struct store *s);
int file_add(struct store *s, const char *name);
/* Unlinks the file and forgets it, closing whatever has it open. */
void file_drop(struct store *s, struct day_file *f);
/* Renames the file to *.corrupt and forgets it. */
void file_set_aside(struct store *s, struct day_file *f);
/* Fills f->survey; sets aside or removes what cannot be used. 1: f is gone. */
int file_survey(struct store *s, struct day_file *f);
bool drop_oldest_corrupt(struct store *s);

/* ---- retention.c ---- */

void retention_note_clock(struct store *s, const struct bucket_meta *m);
/* Removes what is over the limits. 1: something was removed. */
int retention_run(struct store *s);
/* After -ENOSPC: gives up the oldest data, the reserve last. false: there is nothing left to give. */
bool retention_make_room(struct store *s, unsigned attempt);
/* Puts the reserve back where there is room. 1: done now. */
int retention_keep_reserve(struct store *s);

/* ---- repack.c ---- */

/* Packs up to `buckets` of the oldest recent buckets; 1: done, 0: there are fewer than `at_least`. */
int day_repack(struct day *d, uint64_t at_least, uint64_t buckets);
/* Drops the oldest pack, or else the oldest recent buckets; the number of buckets, or -errno. */
int day_prune(struct day *d);

/* ---- check.c ---- */

/* One bounded step. 1: more to do now, 0: all files are checked. */
int check_step(struct store *s);
void check_forget(struct store *s);
