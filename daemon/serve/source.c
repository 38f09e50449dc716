// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a query reads: the worker's connection to the store, and a snapshot of what is not stored yet. Taking
 * one closes the kernel's window, so queries that come close together share it, until a bucket closes. Worker
 * threads, except snapshot_drop().
 */
#include "base/clock.h"
#include "serve/internal.h"

/*
 * Ranges that end longer ago need no snapshot. Buckets last 10 s and wait for their names; eight of them
 * may be on their way to a store that is slow.
 */
#define RECENT_NS (180 * NSEC_PER_SEC)

struct snapshot {
	_Atomic unsigned n_ref;
	uint64_t taken_mono_ns;
	struct recent recent;
};

void snapshot_unref(struct snapshot *n)
{
	if (!n || atomic_fetch_sub(&n->n_ref, 1) > 1)
		return;
	recent_done(&n->recent);
	free(n);
}

static struct snapshot *snapshot_ref(struct snapshot *n)
{
	atomic_fetch_add(&n->n_ref, 1);
	return n;
}

/* With the lock held, so that those who wait for it find the snapshot taken. */
static int refresh(struct server *s)
{
	struct snapshot *n;
	int r;

	if (s->snapshot && mono_now_ns() - s->snapshot->taken_mono_ns < SNAPSHOT_MAX_AGE_NS)
		return 0;
	n = new0(struct snapshot, 1);
	if (!n)
		return -ENOMEM;
	n->n_ref = 1;
	n->taken_mono_ns = mono_now_ns();
	r = s->ops->snapshot(s->ops_ctx, &n->recent);
	if (r < 0) {
		free(n);
		return r;
	}
	snapshot_unref(s->snapshot);
	s->snapshot = n;
	return 0;
}

void snapshot_drop(struct server *s)
{
	/* Who holds the lock is taking a new one already, and may be at it for a second. */
	if (pthread_mutex_trylock(&s->snapshot_lock) != 0)
		return;
	snapshot_unref(s->snapshot);
	s->snapshot = NULL;
	pthread_mutex_unlock(&s->snapshot_lock);
}

int source_open(struct source *src, struct call *c, struct worker *w, uint64_t until_wall_ns)
{
	struct server *s = c->server;
	int r;

	*src = (struct source){ .query.reader = worker_reader(w),
				.query.cancelled = &c->cancelled };
	if (until_wall_ns < wall_now_ns() - RECENT_NS)
		return 0;
	pthread_mutex_lock(&s->snapshot_lock);
	r = refresh(s);
	if (r >= 0)
		src->snapshot = snapshot_ref(s->snapshot);
	pthread_mutex_unlock(&s->snapshot_lock);
	if (r < 0)
		return rpc_fail(&c->error, RPC_UNAVAILABLE,
				"the recorder did not hand over its newest samples: %s",
				strerrordesc_np(-r) ?: "unknown error");
	src->query.closed = (const struct bucket *const *)src->snapshot->recent.closed;
	src->query.n_closed = src->snapshot->recent.n_closed;
	src->query.open = src->snapshot->recent.open;
	src->query.now_wall_ns = wall_now_ns();
	return 0;
}

void source_close(struct source *src)
{
	snapshot_unref(src->snapshot);
	src->snapshot = NULL;
}
