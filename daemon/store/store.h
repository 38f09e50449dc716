/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The store: one SQLite file per UTC day with dictionaries of its own (several for a day that is too large for
 * one), one commit per bucket, repacked every 60 buckets into rows per type. store/format.h describes the format
 * byte by byte.
 *
 * The writer belongs to the store thread. A reader is a read-only connection of its own and belongs to one
 * query worker; it never blocks the writer for longer than a checkpoint allows.
 */
#pragma once

#include "model/profile.h"

struct store_options {
	const char *directory; /* created with mode 0700 when missing (parents must exist) */
	uint64_t max_bytes; /* all files, WAL, reserve and damaged ones included */
	uint64_t max_age_ns; /* 0: none */
	uint64_t repack_buckets; /* 60 */
	bool check_eagerly; /* the background check takes no pauses: for tests */
};

struct store;

/*
 * Never fails over the contents: a corrupt file is set aside as *.corrupt. -errno for the directory itself:
 * -EBUSY: another daemon has it, -EPERM: it belongs to, or may be changed by, someone else.
 */
int store_open(const struct store_options *o, struct store **ret);
struct store *store_close(struct store *s);
DEFINE_CLEANUP(struct store *, store_close)

/*
 * Commits the bucket and sets bucket->meta.seq. On a full disk or I/O error the oldest data go first; if the
 * bucket cannot be written all the same, -errno, and the caller keeps it for the next try. -EINVAL, -ERANGE and
 * -E2BIG are about the bucket itself, which no other try will store: ids that name nothing, a start that no
 * calendar has, millions of rows. Names of frames and locks that earlier buckets lacked are theirs too then.
 */
int store_append(struct store *s, struct bucket *b);
/*
 * One bounded step of repacking, retention, checkpointing or the background check. 1: call again, 0: nothing
 * left to do, -errno: something failed that will be tried again.
 */
int store_maintain(struct store *s);

struct store_stats {
	uint64_t bytes, limit_bytes, buckets, oldest_wall_ns, newest_wall_ns;
	uint64_t damaged_blobs, corrupt_files, dropped_buckets, append_errors;
	char state[96]; /* "ok", "full: ...", "failed: ..." */
	char uuid[33];
};
void store_get_stats(struct store *s, struct store_stats *ret); /* any thread */

/* ---- reading --------------------------------------------------------------------------------------- */

struct store_reader;

int store_reader_new(const char *directory, struct store_reader **ret);
struct store_reader *store_reader_free(struct store_reader *r);
DEFINE_CLEANUP(struct store_reader *, store_reader_free)

/*
 * The buckets whose start lies in [from, until), in order of sequence. For each, `fn` gets its metadata, the
 * dictionary that its ids belong to (one per day: the same pointer for all buckets of the day; valid until fn
 * is called with another one, and the last until the next call on this reader) and its columns of the one
 * type. Not zero from fn ends the scan with that value. A damaged blob is reported with columns == NULL. `cancelled` (may be NULL) is polled.
 */
typedef int (*store_scan_fn)(void *ctx, const struct dict *d, const struct bucket_meta *meta,
			     const struct columns *columns);
int store_reader_scan(struct store_reader *r, enum profile_type type, uint64_t from_wall_ns,
		      uint64_t until_wall_ns, const bool *cancelled, store_scan_fn fn, void *ctx);

/*
 * Whole buckets after a sequence, oldest first, at most limit; each has a dict of its own. Types whose samples
 * are damaged are empty, and meta.gap is GAP_DAMAGED.
 */
typedef int (*store_bucket_fn)(void *ctx, const struct bucket *b);
int store_reader_list(struct store_reader *r, uint64_t after_seq, uint32_t limit,
		      store_bucket_fn fn, void *ctx);
const char *store_reader_uuid(struct store_reader *r);
