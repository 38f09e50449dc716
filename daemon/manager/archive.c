// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/thread.h"
#include "manager/archive.h"

/* The one in the archive thread's hands is `current`. */
#define QUEUE_MAX (RECENT_CLOSED_MAX - 1)
#define RETRY_NS NSEC_PER_SEC
#define IDLE_NS (5 * NSEC_PER_SEC)
#define TRIM_NS (60 * NSEC_PER_SEC)

/* Stored events of buckets that were dropped before this one. */
struct missing {
	bool any;
	uint64_t n[PROFILE_TYPE_N];
};

/* A closed bucket, which does not change any more: who looks at it counts itself in, and needs no lock then. */
struct closed {
	unsigned n_ref; /* guarded by the lock, as is the next */
	struct missing before;
	struct filled filled;
};

struct archive {
	struct archive_options options;
	struct store *store;
	pthread_t thread;

	pthread_mutex_t
		lock; /* guards what follows; held for moments only: the drain thread takes it */
	pthread_cond_t wake;
	struct closed *current;
	struct closed *queue[QUEUE_MAX]; /* oldest first */
	size_t n;
	struct missing before_next; /* of the bucket that comes next */
	bool stop;
	bool reopen;
	struct store_options next_store;
	uint64_t dropped, unnamed;
	uint64_t lost[PROFILE_TYPE_N]; /* stored events of dropped buckets */
};

/* ---- closed buckets ------------------------------------------------------------------------------ */

static void closed_free(struct closed *c)
{
	filled_done(&c->filled);
	free(c);
}

static void closed_unref(struct archive *a, struct closed *c)
{
	bool last;

	pthread_mutex_lock(&a->lock);
	last = --c->n_ref == 0;
	pthread_mutex_unlock(&a->lock);
	if (last)
		closed_free(c);
}

static struct closed *closed_new(struct filled *f)
{
	struct closed *c = new0(struct closed, 1);

	if (!c)
		return NULL;
	c->n_ref = 1;
	c->filled = *f;
	*f = (struct filled){};
	return c;
}

/* What was lost before a bucket is told in its metadata, of which everyone has a copy. */
static void tell_loss(struct bucket_meta *m, const struct missing *before)
{
	for (size_t i = 0; i < PROFILE_TYPE_N; i++) {
		m->source[i].seen += before->n[i];
		m->source[i].lost[LOSS_QUEUE_FULL] += before->n[i];
	}
	if (before->any)
		m->gap = GAP_STORE;
}

/* ---- the queue ---------------------------------------------------------------------------------- */

/* Under the lock: the bucket is lost, which the one behind it tells. */
static void count_drop(struct archive *a, const struct bucket *b, const struct missing *before,
		       struct missing *behind)
{
	for (size_t i = 0; i < PROFILE_TYPE_N; i++) {
		a->lost[i] += b->meta.source[i].stored;
		behind->n[i] += b->meta.source[i].stored + before->n[i];
	}
	behind->any = true;
	a->dropped++;
}

static struct missing *behind(struct archive *a, size_t i)
{
	return i < a->n ? &a->queue[i]->before : &a->before_next;
}

void archive_push(struct archive *a, struct filled *f)
{
	struct closed *c = closed_new(f), *oldest = NULL;

	pthread_mutex_lock(&a->lock);
	if (!c) {
		count_drop(a, f->bucket, &(struct missing){}, &a->before_next);
	} else {
		if (a->n == QUEUE_MAX) {
			oldest = a->queue[0];
			count_drop(a, oldest->filled.bucket, &oldest->before, behind(a, 1));
			memmove(a->queue, a->queue + 1, --a->n * sizeof(a->queue[0]));
		}
		c->before = a->before_next;
		a->before_next = (struct missing){};
		a->queue[a->n++] = c;
	}
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
	filled_done(f);
	if (oldest)
		closed_unref(a, oldest);
}

/* Counts itself in on all that are there; what was lost before each comes with it. */
static size_t hold_all(struct archive *a, struct closed **held, struct missing *before)
{
	size_t n = 0;

	pthread_mutex_lock(&a->lock);
	if (a->current)
		held[n++] = a->current;
	for (size_t i = 0; i < a->n; i++)
		held[n++] = a->queue[i];
	for (size_t i = 0; i < n; i++) {
		held[i]->n_ref++;
		before[i] = held[i]->before;
	}
	pthread_mutex_unlock(&a->lock);
	return n;
}

int archive_recent(struct archive *a, uint64_t deadline_mono_ns, struct recent *ret)
{
	struct closed *held[RECENT_CLOSED_MAX];
	struct missing before[RECENT_CLOSED_MAX];
	size_t n = hold_all(a, held, before);
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		const struct filled *f = &held[i]->filled;
		struct bucket *b = NULL;

		if (r >= 0)
			r = bucket_copy(f->bucket, &b);
		if (r >= 0) {
			tell_loss(&b->meta, &before[i]);
			/* Frames that get no name in time show as module+offset. */
			symbolizer_name(a->options.symbolizer, b->dict, f->binary_keys, f->n_keys,
					deadline_mono_ns);
			ret->closed[ret->n_closed++] = b;
		}
		closed_unref(a, held[i]);
	}
	return r;
}

/* ---- the thread --------------------------------------------------------------------------------- */

static int copy_filled(const struct filled *f, struct filled *ret)
{
	_cleanup_free_ uint64_t *keys = NULL;
	struct bucket *b = NULL;
	int r;

	if (f->n_keys > 0) {
		keys = new0(uint64_t, f->n_keys);
		if (!keys)
			return -ENOMEM;
		memcpy(keys, f->binary_keys, f->n_keys * sizeof(*keys));
	}
	r = bucket_copy(f->bucket, &b);
	if (r < 0)
		return r;
	*ret = (struct filled){ .bucket = b, .n_keys = f->n_keys };
	ret->binary_keys = TAKE_PTR(keys);
	return 0;
}

static void name_current(struct archive *a)
{
	struct closed *old = a->current, *named;
	struct filled f = {};
	int left;

	/* Stored without names: better than not at all. */
	if (copy_filled(&old->filled, &f) < 0)
		return;
	left = symbolizer_name(a->options.symbolizer, f.bucket->dict, f.binary_keys, f.n_keys,
			       mono_now_ns() + a->options.name_timeout_ns);
	named = closed_new(&f);
	if (!named) {
		filled_done(&f);
		return;
	}
	pthread_mutex_lock(&a->lock);
	named->before = old->before;
	a->current = named;
	a->unnamed += (uint64_t)MAX(left, 0);
	pthread_mutex_unlock(&a->lock);
	closed_unref(a, old);
}

/* The bucket of one that is stored, for those who follow the live stream: itself, when nobody else looks at it. */
static struct bucket *take_bucket(struct archive *a, struct closed *c)
{
	struct bucket *b = NULL;
	bool alone;

	pthread_mutex_lock(&a->lock);
	alone = c->n_ref == 1;
	pthread_mutex_unlock(&a->lock);
	if (alone)
		b = TAKE_PTR(c->filled.bucket);
	else
		(void)bucket_copy(c->filled.bucket, &b);
	closed_unref(a, c);
	return b;
}

static int store_current(struct archive *a)
{
	struct closed *c = a->current;
	/* The store writes the sequence number into the metadata. */
	struct bucket shallow = *c->filled.bucket;
	struct bucket *done;
	int r;

	/* What comes before the one in our hands is settled. */
	tell_loss(&shallow.meta, &c->before);
	r = store_append(a->store, &shallow);
	if (r < 0)
		return r;
	pthread_mutex_lock(&a->lock);
	a->current = NULL;
	pthread_mutex_unlock(&a->lock);
	done = take_bucket(a, c);
	if (done)
		done->meta = shallow.meta;
	a->options.stored(a->options.ctx, done);
	return 0;
}

/* Waits until there is something to do, at most `ns`. false: stopped and nothing left. */
static bool next(struct archive *a, uint64_t ns)
{
	uint64_t at = mono_now_ns() + ns;
	struct timespec until = { .tv_sec = (time_t)(at / NSEC_PER_SEC),
				  .tv_nsec = (long)(at % NSEC_PER_SEC) };
	bool more;

	pthread_mutex_lock(&a->lock);
	while (!a->stop && !a->reopen && a->n == 0)
		if (pthread_cond_timedwait(&a->wake, &a->lock, &until) == ETIMEDOUT)
			break;
	if (a->n > 0) {
		a->current = a->queue[0];
		memmove(a->queue, a->queue + 1, --a->n * sizeof(a->queue[0]));
	}
	more = !a->stop || a->current;
	pthread_mutex_unlock(&a->lock);
	return more;
}

static bool wait_retry(struct archive *a)
{
	uint64_t at = mono_now_ns() + RETRY_NS;
	struct timespec until = { .tv_sec = (time_t)(at / NSEC_PER_SEC),
				  .tv_nsec = (long)(at % NSEC_PER_SEC) };
	bool stop;

	pthread_mutex_lock(&a->lock);
	while (!a->stop && !a->reopen &&
	       pthread_cond_timedwait(&a->wake, &a->lock, &until) != ETIMEDOUT)
		;
	stop = a->stop;
	pthread_mutex_unlock(&a->lock);
	return !stop;
}

/* Opening may take long: statistics and the drain thread do not wait for it. */
static int open_store(struct archive *a, const struct store_options *o)
{
	struct store *fresh = NULL;
	int r = store_open(o, &fresh);

	pthread_mutex_lock(&a->lock);
	a->store = fresh;
	pthread_mutex_unlock(&a->lock);
	return r;
}

static void reopen_if_asked(struct archive *a)
{
	struct store_options o;
	struct store *store;
	bool asked;
	int r;

	pthread_mutex_lock(&a->lock);
	asked = a->reopen;
	a->reopen = false;
	o = a->next_store;
	store = asked ? TAKE_PTR(a->store) : NULL;
	pthread_mutex_unlock(&a->lock);
	if (!asked)
		return;
	store_close(store);
	r = open_store(a, &o);
	if (r == 0) {
		a->options.store = o;
		return;
	}
	log_error("Cannot open the store with the new limits: %s", strerror(-r));
	r = open_store(a, &a->options.store);
	if (r < 0)
		log_error("Cannot open the store again: %s", strerror(-r));
}

/* A store that could not be opened again is tried with each bucket. */
static int store_or_reopen(struct archive *a)
{
	int r = 0;

	reopen_if_asked(a);
	if (!a->store)
		r = open_store(a, &a->options.store);
	return r < 0 ? r : store_current(a);
}

static void drop_current(struct archive *a)
{
	struct closed *c = a->current;

	pthread_mutex_lock(&a->lock);
	a->current = NULL;
	count_drop(a, c->filled.bucket, &c->before, behind(a, 0));
	pthread_mutex_unlock(&a->lock);
	closed_unref(a, c);
}

/* The store's word on the bucket itself: it will be the same at every try. */
static bool is_refusal(int r)
{
	return r == -EINVAL || r == -ERANGE || r == -E2BIG;
}

static void archive_current(struct archive *a)
{
	bool failing = false;
	int r;

	name_current(a);
	while ((r = store_or_reopen(a)) < 0) {
		if (is_refusal(r)) {
			log_warning("A bucket was refused by the store and is dropped: %s",
				    strerror(-r));
			drop_current(a);
			return;
		}
		if (!failing)
			log_warning("Cannot store a bucket: %s; trying again each second",
				    strerror(-r));
		failing = true;
		if (!wait_retry(a)) {
			drop_current(a);
			return;
		}
	}
	if (failing)
		log_info("The store takes buckets again");
}

static void *archive_thread(void *arg)
{
	struct archive *a = arg;
	uint64_t idle = IDLE_NS, trimmed = mono_now_ns();

	while (next(a, idle)) {
		reopen_if_asked(a);
		if (a->current)
			archive_current(a);
		/* One bounded step at a time, so that the next bucket never waits long. */
		idle = a->store && store_maintain(a->store) > 0 ? 0 : IDLE_NS;
		/* Repacking, and queries, take in a moment what is not wanted again for minutes. */
		if (idle && mono_now_ns() - trimmed >= TRIM_NS) {
			heap_give_back();
			trimmed = mono_now_ns();
		}
	}
	return NULL;
}

/* ---- life --------------------------------------------------------------------------------------- */

int archive_reconfigure(struct archive *a, const struct store_options *o)
{
	pthread_mutex_lock(&a->lock);
	a->next_store = *o;
	a->reopen = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

void archive_get_stats(struct archive *a, struct archive_stats *ret)
{
	*ret = (struct archive_stats){};
	pthread_mutex_lock(&a->lock);
	if (a->store)
		store_get_stats(a->store, &ret->store);
	ret->dropped = a->dropped;
	memcpy(ret->lost, a->lost, sizeof(ret->lost));
	ret->unnamed = a->unnamed;
	ret->queued = a->n + (a->current != NULL);
	pthread_mutex_unlock(&a->lock);
}

int archive_start(const struct archive_options *o, struct archive **ret)
{
	struct archive *a = new0(struct archive, 1);
	struct store_stats stats;
	int r;

	if (!a)
		return -ENOMEM;
	a->options = *o;
	r = store_open(&o->store, &a->store);
	if (r < 0) {
		free(a);
		return r;
	}
	store_get_stats(a->store, &stats);
	if (stats.corrupt_files)
		log_warning("Damaged files of the store, set aside as *.corrupt: %" PRIu64
			    "; what they held is not shown",
			    stats.corrupt_files);
	pthread_mutex_init(&a->lock, NULL);
	cond_init_mono(&a->wake);
	r = thread_start(&a->thread, archive_thread, a);
	if (r < 0) {
		store_close(a->store);
		free(a);
		return r;
	}
	pthread_setname_np(a->thread, "archive");
	*ret = a;
	return 0;
}

struct archive *archive_stop(struct archive *a)
{
	if (!a)
		return NULL;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	store_close(a->store);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->wake);
	free(a);
	return NULL;
}
