// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What goes, and when.
 *
 * Size: whole files go, the oldest first, damaged ones before all. Unlinking works on a full disk, where even a
 * DELETE may fail. Only when a single file is left are buckets deleted inside it.
 *
 * Age: by a clock that is believed. A host that boots with a wrong date must not lose its history, so time
 * that jumps forward counts only once CLOCK_TRIAL of recording has gone by in it; time that goes back is
 * believed at once, which never deletes anything.
 *
 * Full disk: the oldest file, then buckets within the last one, then the reserve, whose space lets SQLite
 * finish what it must (a log frame, a checkpoint). The reserve comes back when there is room again.
 */
#include <fcntl.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "store/private.h"

#define CLOCK_STEP (2 * 3600 * NSEC_PER_SEC)
#define CLOCK_TRIAL (24 * 3600 * NSEC_PER_SEC)

/* Room kept below the limit, so that one commit and its log never exceed it. */
#define HEADROOM_MAX (1ULL << 20)
#define HEADROOM_PART 16
/* Below this limit there is no reserve: it would be most of the store. */
#define RESERVE_FROM (6ULL << 20)
#define FILES_MAX 1024

/* ---- age ---------------------------------------------------------------------------------------- */

void retention_note_clock(struct store *s, const struct bucket_meta *m)
{
	uint64_t trusted = s->identity.trusted_wall_ns, now = m->start_wall_ns;

	if (trusted == 0 || now <= trusted + CLOCK_STEP) {
		s->identity.trusted_wall_ns = now;
		s->pending_covered_ns = 0;
		return;
	}
	/* A trial begins, or begins anew when time does not go on from where it was. */
	if (s->pending_covered_ns == 0 || now < s->pending_base_wall_ns ||
	    now > s->pending_base_wall_ns + CLOCK_STEP)
		s->pending_covered_ns = 0;
	s->pending_base_wall_ns = now;
	s->pending_covered_ns += MAX(m->covered_ns, 1ULL);
	if (s->pending_covered_ns >= CLOCK_TRIAL) {
		s->identity.trusted_wall_ns = now;
		s->pending_covered_ns = 0;
	}
}

static bool too_old(const struct store *s, const struct day_file *f)
{
	uint64_t end = f->day_ns + DAY_NS;

	return s->options.max_age_ns > 0 && s->identity.trusted_wall_ns > s->options.max_age_ns &&
	       end < s->identity.trusted_wall_ns - s->options.max_age_ns;
}

/* ---- size --------------------------------------------------------------------------------------- */

static uint64_t soft_limit(const struct store *s)
{
	uint64_t limit = s->options.max_bytes;

	return limit - MIN(limit / HEADROOM_PART, HEADROOM_MAX);
}

/* The oldest file that is not being written. */
static struct day_file *oldest_idle(struct store *s)
{
	if (s->n_files == 0 || &s->files[0] == file_current(s))
		return NULL;
	return &s->files[0];
}

static int prune_current(struct store *s)
{
	struct day_file *f = file_current(s);
	int n;

	if (!f)
		return 0;
	n = day_prune(s->current);
	if (n > 0) {
		s->stats.dropped_buckets += (uint64_t)n;
		f->surveyed = false;
	}
	return n;
}

int retention_run(struct store *s)
{
	struct day_file *oldest = oldest_idle(s);

	if (s->n_files > 0 && too_old(s, &s->files[0])) {
		file_drop(s, &s->files[0]);
		return 1;
	}
	if (store_bytes(s) > soft_limit(s)) {
		if (drop_oldest_corrupt(s))
			return 1;
		if (oldest) {
			file_drop(s, oldest);
			return 1;
		}
		/* A log that a reader kept from being written back. */
		if (s->current && day_checkpoint(s->current, true) >= 0 &&
		    files_refresh(s, false) >= 0 && store_bytes(s) <= soft_limit(s))
			return 1;
	}
	if (s->n_files > FILES_MAX && oldest) {
		file_drop(s, oldest);
		return 1;
	}
	return 0;
}

/* ---- full disk ---------------------------------------------------------------------------------- */

static bool release_reserve(struct store *s)
{
	if (unlinkat(s->directory_fd, RESERVE_NAME, 0) < 0)
		return false;
	s->have_reserve = false;
	return true;
}

/* The oldest buckets of the only file; the log then begins anew, in the space that it has. */
static int prune_in_place(struct store *s)
{
	int n = prune_current(s);

	if (n > 0)
		(void)!day_checkpoint(s->current, false);
	return n;
}

bool retention_make_room(struct store *s, unsigned attempt)
{
	struct day_file *oldest;
	int n;

	/* First what costs nothing. The log keeps its space: somebody else would take it. */
	if (attempt == 0 && s->current && day_checkpoint(s->current, false) >= 0)
		return true;
	if (drop_oldest_corrupt(s))
		return true;
	oldest = oldest_idle(s);
	if (oldest) {
		file_drop(s, oldest);
		return true;
	}
	n = prune_in_place(s);
	if (n > 0)
		return true;
	if (release_reserve(s)) {
		(void)prune_in_place(s);
		return true;
	}
	/* No buckets left, and still no room: it is the dictionary that fills the file. */
	if (n == 0 && s->current) {
		file_drop(s, file_current(s));
		return true;
	}
	/* What has not been tried: to make do with what a log that is cut gives back. */
	return s->current && day_checkpoint(s->current, true) >= 0;
}

static int write_reserve(struct store *s)
{
	_cleanup_close_ int fd = openat(s->directory_fd, RESERVE_NAME,
					O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	static const char zeros[65536];
	int r = 0;

	if (fd < 0)
		return negative_errno();
	/* Written, not only allocated: some filesystems take allocation for a promise. */
	for (uint64_t n = 0; n < RESERVE_BYTES && r >= 0; n += sizeof(zeros))
		r = write_full(fd, zeros, sizeof(zeros));
	if (r >= 0 && fsync(fd) < 0)
		r = negative_errno();
	if (r < 0)
		(void)unlinkat(s->directory_fd, RESERVE_NAME, 0);
	return r;
}

int retention_keep_reserve(struct store *s)
{
	struct statvfs fs;
	uint64_t available;
	int r;

	if (s->have_reserve || s->options.max_bytes < RESERVE_FROM)
		return 0;
	if (fstatvfs(s->directory_fd, &fs) < 0)
		return negative_errno();
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	/* As much again stays free, or the next commit takes the reserve away at once. */
	if (available < 2 * RESERVE_BYTES)
		return 0;
	r = write_reserve(s);
	if (r < 0)
		return r;
	s->have_reserve = true;
	s->other_bytes += RESERVE_BYTES;
	return 1;
}
