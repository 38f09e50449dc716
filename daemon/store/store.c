// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The writer: opening a directory in whatever state it is, and appending buckets to the right file of it.
 *
 * Sequence numbers have no gaps as long as files keep well, and are reserved in store.id, a block at a time, so
 * that none is given twice even when the files that knew them are gone. Buckets go to the last file if it is of their day, else a new file begins: ranges
 * of sequence never overlap between files.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "store/private.h"

/* Buckets between two writes of store.id: an hour's. */
#define SAVE_EVERY 360
/* Surveying files at the start; the rest follows in store_maintain(). */
#define OPEN_BUDGET_NS (5 * NSEC_PER_MSEC)
#define APPEND_ATTEMPTS 6
#define LOCK_ATTEMPTS 20
/* What may lie beside a file that is not written: shared memory, and an empty log. */
#define LEFT_OVER_MAX 65536
#define LIMIT_MIN (1ULL << 20)
/* The end of 2261: what a signed 64-bit number of nanoseconds, and the name of a day, can say. */
#define WALL_MAX (9214646400ULL * NSEC_PER_SEC - 1)

/* ---- statistics --------------------------------------------------------------------------------- */

static void sum_files(struct store *s)
{
	struct store_stats *st = &s->stats;

	st->bytes = store_bytes(s);
	st->limit_bytes = s->options.max_bytes;
	st->buckets = st->oldest_wall_ns = st->newest_wall_ns = st->damaged_blobs = 0;
	for (size_t i = 0; i < s->n_files; i++) {
		const struct day_file *f = &s->files[i];

		st->damaged_blobs += f->damaged;
		if (f->survey.buckets == 0)
			continue;
		st->buckets += f->survey.buckets;
		if (!st->oldest_wall_ns || f->survey.min_start < st->oldest_wall_ns)
			st->oldest_wall_ns = f->survey.min_start;
		st->newest_wall_ns = MAX(st->newest_wall_ns, f->survey.max_start);
	}
}

static void publish(struct store *s)
{
	sum_files(s);
	pthread_mutex_lock(&s->lock);
	s->published = s->stats;
	pthread_mutex_unlock(&s->lock);
}

static void set_state(struct store *s, int error)
{
	if (error >= 0)
		snprintf(s->stats.state, sizeof(s->stats.state), "ok");
	else if (error == -ENOSPC)
		snprintf(s->stats.state, sizeof(s->stats.state), "full: no space left on the disk");
	else
		snprintf(s->stats.state, sizeof(s->stats.state), "failed: %s",
			 strerrordesc_np(-error));
}

void store_get_stats(struct store *s, struct store_stats *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = s->published;
	pthread_mutex_unlock(&s->lock);
}

/* ---- opening ------------------------------------------------------------------------------------ */

/*
 * A daemon that is killed while it starts its helper leaves a child that holds the lock until exec closes it: on a
 * busy host that takes a while.
 */
static int lock_directory(int fd)
{
	const struct timespec pause = { .tv_nsec = 50 * NSEC_PER_MSEC };

	for (int attempt = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; attempt++) {
		if (errno != EWOULDBLOCK)
			return negative_errno();
		if (attempt == LOCK_ATTEMPTS)
			return -EBUSY;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Ours alone to change, and nobody else's store. */
static int check_directory(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return negative_errno();
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return lock_directory(fd);
}

static int open_directory(struct store *s, const char *directory)
{
	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return negative_errno();
	s->directory = realpath(directory, NULL);
	if (!s->directory)
		return negative_errno();
	s->directory_fd = open(s->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->directory_fd < 0)
		return negative_errno();
	return check_directory(s->directory_fd);
}

/* Surveys the newest files first, the last one in any case; those that the time does not suffice for wait. */
static void survey_files(struct store *s, uint64_t until_mono_ns)
{
	for (size_t i = s->n_files; i > 0; i--) {
		int r = file_survey(s, &s->files[i - 1]);

		if (r <= 0 && mono_now_ns() > until_mono_ns)
			break;
	}
}

/*
 * The next number is beyond all that were given. The last file knows which that were; where it cannot tell, it
 * is beyond all that may have been.
 */
static void reserve_sequence(struct store *s, bool lost)
{
	const struct day_file *last = s->n_files > 0 ? &s->files[s->n_files - 1] : NULL;
	bool certain = last && last->surveyed && !last->foreign && !lost;

	if (last)
		s->next_seq = MAX(last->first_seq + !certain, last->survey.max_seq + 1);
	s->next_seq = MAX(s->next_seq, certain ? s->identity.next_seq : s->identity.reserved_seq);
}

static int load_identity(struct store *s)
{
	int r = identity_load(s->directory_fd, &s->identity);

	if (r < 0)
		r = identity_new(&s->identity);
	if (r < 0)
		return r;
	memcpy(s->stats.uuid, s->identity.uuid, sizeof(s->stats.uuid));
	return 0;
}

int store_open(const struct store_options *o, struct store **ret)
{
	_cleanup_(store_close_p) struct store *s = new0(struct store, 1);
	uint64_t start = mono_now_ns(), corrupt;
	int r;

	if (!s)
		return -ENOMEM;
	s->directory_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->options = *o;
	s->options.directory = NULL;
	s->options.max_bytes = MAX(o->max_bytes, LIMIT_MIN);
	s->options.repack_buckets = CLAMP(o->repack_buckets, 1ULL, (uint64_t)ROWS_MAX);
	r = open_directory(s, o->directory);
	if (r >= 0)
		r = load_identity(s);
	if (r >= 0)
		r = files_refresh(s, true);
	if (r < 0)
		return r;
	corrupt = s->stats.corrupt_files;
	survey_files(s, start + OPEN_BUDGET_NS);
	reserve_sequence(s, s->stats.corrupt_files > corrupt);
	store_save_identity(s);
	(void)!retention_keep_reserve(s);
	(void)files_refresh(s, false);
	set_state(s, 0);
	publish(s);
	*ret = TAKE_PTR(s);
	return 0;
}

struct store *store_close(struct store *s)
{
	if (!s)
		return NULL;
	if (s->next_seq > 0)
		store_save_identity(s);
	check_forget(s);
	day_free(s->current);
	free(s->files);
	close_fd(s->directory_fd);
	free(s->directory);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}

/* ---- the file to append to ---------------------------------------------------------------------- */

static bool current_fits(struct store *s, uint64_t day_ns)
{
	const struct day_file *f = file_current(s);

	return f && f->day_ns == day_ns && f->main_bytes < store_file_limit(s) &&
	       !dictionary_is_full(&s->current->dictionary);
}

/* Packs what is left, as far as that works now, and closes: maintenance comes back for the rest. */
static void seal_current(struct store *s)
{
	struct day_file *f = file_current(s);

	if (!s->current)
		return;
	while (day_repack(s->current, 1, s->options.repack_buckets) > 0)
		;
	s->current = day_free(s->current);
	if (f)
		f->surveyed = false;
}

/* Opens the last file when it is of this day and has room. 1: there is none. */
static int reopen_last(struct store *s, uint64_t day_ns)
{
	_cleanup_(day_free_p) struct day *d = NULL;
	struct day_file *f = s->n_files > 0 ? &s->files[s->n_files - 1] : NULL;
	int r;

	if (!f || f->foreign || f->day_ns != day_ns || f->main_bytes >= store_file_limit(s))
		return 1;
	r = day_open(s->directory, f->name, s->options.max_bytes, &d);
	if (r >= 0)
		r = day_load(d);
	if (r == -EBADMSG || r == -ENODATA) {
		d = day_free(d);
		if (r == -EBADMSG)
			file_set_aside(s, f);
		else
			file_drop(s, f);
		return 1;
	}
	if (r == -EPROTONOSUPPORT)
		return 1;
	if (r < 0)
		return r;
	if (dictionary_is_full(&d->dictionary))
		return 1;
	s->current = TAKE_PTR(d);
	return 0;
}

/* A file that never got its first bucket would share its number with the one that does. */
static void drop_empty_last(struct store *s)
{
	struct day_file *f = s->n_files > 0 ? &s->files[s->n_files - 1] : NULL;

	if (f && f->first_seq == s->next_seq)
		file_drop(s, f);
}

static int create_file(struct store *s, uint64_t day_ns)
{
	char name[DAY_NAME_MAX];
	int r;

	drop_empty_last(s);
	r = day_create(s->directory, day_ns, s->next_seq, s->options.max_bytes, &s->current);
	if (r < 0)
		return r;
	day_name(name, day_ns, s->next_seq);
	r = file_add(s, name);
	if (r < 0) {
		s->current = day_free(s->current);
		return r;
	}
	file_find(s, name)->surveyed = true;
	return 0;
}

static int need_current(struct store *s, uint64_t day_ns)
{
	bool had = s->current != NULL;
	int r;

	if (current_fits(s, day_ns))
		return 0;
	seal_current(s);
	/* What was just closed did not fit; only after a start is there a file to go on with. */
	r = had ? 1 : reopen_last(s, day_ns);
	return r <= 0 ? r : create_file(s, day_ns);
}

/* ---- appending ---------------------------------------------------------------------------------- */

static void note_append(struct store *s, const struct bucket_meta *m)
{
	struct day_file *f = file_current(s);

	s->next_seq = m->seq + 1;
	if (f) {
		struct day_survey *v = &f->survey;

		v->recent++;
		v->min_start = v->buckets == 0 ? m->start_wall_ns
					       : MIN(v->min_start, m->start_wall_ns);
		v->max_start = MAX(v->max_start, m->start_wall_ns);
		v->max_seq = m->seq;
		v->buckets++;
	}
	retention_note_clock(s, m);
	s->buckets_since_save++;
	if (s->next_seq >= s->identity.reserved_seq || s->buckets_since_save >= SAVE_EVERY ||
	    s->identity_dirty)
		store_save_identity(s);
}

/* Whether another attempt makes sense after this error. */
static bool recover(struct store *s, int error, unsigned attempt)
{
	struct day_file *f = file_current(s);

	switch (error) {
	case -EBADMSG:
		if (!f)
			return false;
		file_set_aside(s, f);
		return true;
	case -EEXIST:
		/* A name that someone else put there. */
		s->next_seq++;
		return true;
	case -ENOSPC:
	case -EDQUOT:
		return retention_make_room(s, attempt);
	case -EIO:
		/* One file may lie on bad sectors: another may not. */
		if (!s->current || attempt > 0)
			return false;
		s->current = day_free(s->current);
		return true;
	default:
		return false;
	}
}

int store_append(struct store *s, struct bucket *b)
{
	uint64_t day_ns = b->meta.start_wall_ns - b->meta.start_wall_ns % DAY_NS;
	int r = -EIO;

	if (b->meta.start_wall_ns > WALL_MAX || s->next_seq > SEQ_MAX)
		return -ERANGE;
	for (unsigned attempt = 0; attempt < APPEND_ATTEMPTS; attempt++) {
		r = need_current(s, day_ns);
		if (r >= 0) {
			b->meta.seq = s->next_seq;
			r = day_append(s->current, b);
		}
		if (r >= 0 || !recover(s, r, attempt))
			break;
		(void)files_refresh(s, false);
	}
	if (r >= 0)
		note_append(s, &b->meta);
	else
		s->stats.append_errors++;
	(void)files_refresh(s, false);
	while (retention_run(s) > 0)
		;
	set_state(s, r);
	publish(s);
	return r < 0 ? r : 0;
}

/* ---- maintenance -------------------------------------------------------------------------------- */

static int repack_step(struct store *s)
{
	struct day_file *f = file_current(s);
	int r;

	if (!f || f->survey.recent < s->options.repack_buckets)
		return 0;
	r = day_repack(s->current, s->options.repack_buckets, s->options.repack_buckets);
	if (r == -EBADMSG) {
		file_set_aside(s, f);
		return 1;
	}
	if (r > 0)
		f->surveyed = false;
	return r;
}

/*
 * A file that nobody writes any more but that still has recent buckets, from before a crash or a full disk; or
 * a log, because a reader was there when it was closed.
 */
static bool unfinished(const struct day_file *f)
{
	return f->surveyed && !f->foreign &&
	       (f->survey.recent > 0 || f->bytes - f->main_bytes > LEFT_OVER_MAX);
}

static int finish_file(struct store *s, struct day_file *f)
{
	_cleanup_(day_free_p) struct day *d = NULL;
	bool recent = f->survey.recent > 0;
	int r = day_open(s->directory, f->name, s->options.max_bytes, &d);

	if (r >= 0 && recent)
		r = day_repack(d, 1, s->options.repack_buckets);
	if (r >= 0) {
		int e = day_checkpoint(d, true);

		r = recent ? r : e < 0 ? e : 1;
	}
	if (r == -EBADMSG) {
		d = day_free(d);
		file_set_aside(s, f);
		return 1;
	}
	f->surveyed = false;
	return r;
}

static int finish_step(struct store *s)
{
	for (size_t i = 0; i < s->n_files; i++) {
		struct day_file *f = &s->files[i];

		/* The last one may be gone on with. */
		if (f == file_current(s) || (!s->current && i + 1 == s->n_files))
			continue;
		if (unfinished(f))
			return finish_file(s, f);
	}
	return 0;
}

static int survey_step(struct store *s)
{
	for (size_t i = 0; i < s->n_files; i++) {
		int r;

		if (s->files[i].surveyed)
			continue;
		r = file_survey(s, &s->files[i]);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int checkpoint_step(struct store *s)
{
	_cleanup_free_ char *log = NULL;
	struct stat st;

	if (!s->current)
		return 0;
	if (asprintf(&log, "%s-wal", s->current->path) < 0)
		return -ENOMEM;
	if (stat(log, &st) < 0 || st.st_size <= WAL_MAX)
		return 0;
	return day_checkpoint(s->current, true);
}

int store_maintain(struct store *s)
{
	static int (*const steps[])(struct store *) = {
		retention_run,		survey_step, repack_step, finish_step, checkpoint_step,
		retention_keep_reserve, check_step,
	};
	int r = files_refresh(s, false), error = r;

	if (r >= 0 && s->identity_dirty)
		store_save_identity(s);
	/* A step that fails does not keep the others from being taken. */
	for (size_t i = 0; i < ARRAY_SIZE(steps) && r <= 0; i++) {
		r = steps[i](s);
		if (r < 0 && error == 0)
			error = r;
	}
	publish(s);
	if (r > 0)
		return 1;
	/* Readers in the way: there is nothing to do but to come back later. */
	return error == -EBUSY ? 0 : error;
}
