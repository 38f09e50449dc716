// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "manager/archive.h"

/* The one in the archive thread's hands is `current`. */
#define QUEUE_MAX (RECENT_CLOSED_MAX - 1)
#define RETRY_NS NSEC_PER_SEC
#define IDLE_NS (5 * NSEC_PER_SEC)

struct archive {
	struct archive_options options;
	struct store *store;
	pthread_t thread;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	struct filled current; /* its bucket is replaced as a whole, never changed in place */
	struct filled queue[QUEUE_MAX]; /* oldest first */
	size_t n;
	bool stop;
	bool reopen;
	struct store_options next_store;
	uint64_t dropped, unnamed;
	uint64_t lost[PROFILE_TYPE_N]; /* stored events of dropped buckets */
};

/* ---- the queue ---------------------------------------------------------------------------------- */

/* Under the lock: the bucket is lost, which the next one tells, if there is one. */
static void drop(struct archive *a, struct filled *f, struct filled *next)
{
	for (size_t i = 0; i < PROFILE_TYPE_N; i++) {
		const struct accounting *from = &f->bucket->meta.source[i];

		a->lost[i] += from->stored;
		if (next) {
			struct accounting *to = &next->bucket->meta.source[i];
			uint64_t n = from->stored + from->lost[LOSS_QUEUE_FULL];

			to->seen += n;
			to->lost[LOSS_QUEUE_FULL] += n;
		}
	}
	if (next)
		next->bucket->meta.gap = GAP_STORE;
	a->dropped++;
	filled_done(f);
}

void archive_push(struct archive *a, struct filled *f)
{
	pthread_mutex_lock(&a->lock);
	if (a->n == QUEUE_MAX) {
		drop(a, &a->queue[0], &a->queue[1]);
		memmove(a->queue, a->queue + 1, --a->n * sizeof(a->queue[0]));
	}
	a->queue[a->n++] = *f;
	*f = (struct filled){};
	pthread_cond_signal(&a->wake);
	pthread_mutex_unlock(&a->lock);
}

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

int archive_recent(struct archive *a, uint64_t deadline_mono_ns, struct recent *ret)
{
	struct filled copies[RECENT_CLOSED_MAX] = {};
	size_t n = 0;
	int r = 0;

	pthread_mutex_lock(&a->lock);
	if (a->current.bucket)
		r = copy_filled(&a->current, &copies[n++]);
	for (size_t i = 0; r >= 0 && i < a->n; i++)
		r = copy_filled(&a->queue[i], &copies[n++]);
	pthread_mutex_unlock(&a->lock);
	for (size_t i = 0; i < n; i++) {
		if (r >= 0) {
			/* Frames that get no name in time show as module+offset. */
			symbolizer_name(a->options.symbolizer, copies[i].bucket->dict,
					copies[i].binary_keys, copies[i].n_keys, deadline_mono_ns);
			ret->closed[ret->n_closed++] = TAKE_PTR(copies[i].bucket);
		}
		filled_done(&copies[i]);
	}
	return r;
}

/* ---- the thread --------------------------------------------------------------------------------- */

static void name_current(struct archive *a)
{
	struct bucket *named = NULL, *old;
	int left;

	if (bucket_copy(a->current.bucket, &named) < 0)
		return; /* stored without names: better than not at all */
	left = symbolizer_name(a->options.symbolizer, named->dict, a->current.binary_keys,
			       a->current.n_keys, mono_now_ns() + a->options.name_timeout_ns);
	pthread_mutex_lock(&a->lock);
	old = a->current.bucket;
	a->current.bucket = named;
	a->unnamed += (uint64_t)MAX(left, 0);
	pthread_mutex_unlock(&a->lock);
	bucket_free(old);
}

static int store_current(struct archive *a)
{
	/* The store writes the sequence number into the metadata: into a copy, since queries read these. */
	struct bucket shallow = *a->current.bucket;
	struct bucket *done;
	int r = store_append(a->store, &shallow);

	if (r < 0)
		return r;
	pthread_mutex_lock(&a->lock);
	done = TAKE_PTR(a->current.bucket);
	filled_done(&a->current);
	pthread_mutex_unlock(&a->lock);
	done->meta.seq = shallow.meta.seq;
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
	more = !a->stop || a->current.bucket;
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

/* The next bucket carries the count of what this one loses. */
static void drop_current(struct archive *a)
{
	pthread_mutex_lock(&a->lock);
	drop(a, &a->current, a->n > 0 ? &a->queue[0] : NULL);
	pthread_mutex_unlock(&a->lock);
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
	uint64_t idle = IDLE_NS;

	while (next(a, idle)) {
		reopen_if_asked(a);
		if (a->current.bucket)
			archive_current(a);
		/* One bounded step at a time, so that the next bucket never waits long. */
		idle = a->store && store_maintain(a->store) > 0 ? 0 : IDLE_NS;
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
	ret->queued = a->n + (a->current.bucket != NULL);
	pthread_mutex_unlock(&a->lock);
}

int archive_start(const struct archive_options *o, struct archive **ret)
{
	struct archive *a = new0(struct archive, 1);
	pthread_condattr_t attr;
	sigset_t all, old;
	int r;

	if (!a)
		return -ENOMEM;
	a->options = *o;
	r = store_open(&o->store, &a->store);
	if (r < 0) {
		free(a);
		return r;
	}
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->wake, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&a->thread, NULL, archive_thread, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
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
