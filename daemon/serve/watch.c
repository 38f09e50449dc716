// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Watch: each bucket as it closes. A published bucket is copied once for all watchers; a worker filters and
 * encodes it for each. A watcher whose queue is full misses buckets and is told how many.
 */
#include "serve/internal.h"

#define PENDING_MAX 4 /* buckets that wait to be encoded, per watcher */

struct shared_bucket {
	_Atomic unsigned n_ref;
	struct bucket *bucket;
};

struct watch {
	struct stream stream; /* first */
	struct job job;
	bool encoding; /* the job is under way, and has pending[0] */
	unsigned types;
	struct selection selection;
	struct shared_bucket *pending[PENDING_MAX];
	size_t n_pending;
	uint64_t skipped; /* since the last frame */

	/* The job's. */
	struct strbuf frame;
	struct rpc_error error;
	uint64_t job_skipped;
};

static void shared_unref(struct shared_bucket *b)
{
	if (atomic_fetch_sub(&b->n_ref, 1) > 1)
		return;
	bucket_free(b->bucket);
	free(b);
}

static int encode(struct watch *w, const struct bucket *b)
{
	Sysprofd__V1__WatchResponse response = SYSPROFD__V1__WATCH_RESPONSE__INIT;
	_cleanup_(bucket_message_free_p) struct bucket_message *m = NULL;
	struct host_info info;
	int r = bucket_message_new(b, w->types, &w->selection, &m);

	if (r < 0)
		return r;
	host_info_init(&info);
	response.bucket = &m->message;
	response.skipped = w->job_skipped;
	response.host = &info.message;
	return answer_frame(&response.base, w->stream.format, &w->frame);
}

static void on_encode(struct job *j, struct worker *worker)
{
	struct watch *w = (struct watch *)((char *)j - offsetof(struct watch, job));
	int r = encode(w, w->pending[0]->bucket);

	if (r < 0)
		rpc_fail_errno(&w->error, r, "Watch");
}

static void drop_first(struct watch *w)
{
	shared_unref(w->pending[0]);
	memmove(w->pending, w->pending + 1, (w->n_pending - 1) * sizeof(w->pending[0]));
	w->n_pending--;
}

static void on_encoded(struct job *j)
{
	struct watch *w = (struct watch *)((char *)j - offsetof(struct watch, job));
	struct server *s = w->stream.server;

	w->encoding = false;
	drop_first(w);
	if (!j->ran)
		rpc_set_error(&w->error, RPC_UNAVAILABLE, "the server is shutting down");
	if (w->error.code == RPC_OK)
		stream_queue(&w->stream, &w->frame);
	else
		stream_end(&w->stream, &w->error);
	strbuf_done(&w->frame);
	stream_unref(&w->stream);
	streams_kick(s);
}

static void watch_kick(struct stream *t)
{
	struct watch *w = (struct watch *)t;

	if (w->encoding || w->n_pending == 0 || !stream_has_room(t))
		return;
	w->job = (struct job){ .privileged = t->peer->visibility.all,
			       .run = on_encode,
			       .done = on_encoded };
	w->error = (struct rpc_error){};
	w->frame = (struct strbuf){ .limit = answer_limit(t->server, t->peer) };
	w->job_skipped = w->skipped;
	/* A full queue is tried again when one of its jobs ends. */
	if (worker_pool_submit(t->server->pool, &w->job) < 0)
		return;
	w->skipped = 0;
	w->encoding = true;
	stream_ref(t);
}

static void watch_close(struct stream *t)
{
	struct watch *w = (struct watch *)t;

	/* What the job reads stays until it ends. */
	while (w->n_pending > (w->encoding ? 1 : 0))
		shared_unref(w->pending[--w->n_pending]);
}

static void watch_free(struct stream *t)
{
	struct watch *w = (struct watch *)t;

	while (w->n_pending > 0)
		shared_unref(w->pending[--w->n_pending]);
	selection_release(&w->selection);
	free(w);
}

static const struct stream_kind watch_kind = {
	.kick = watch_kick,
	.close = watch_close,
	.free = watch_free,
};

static int fill(struct watch *w, struct exchange *x, const Sysprofd__V1__WatchRequest *m,
		struct rpc_error *e)
{
	const char *error = "";
	int r = types_from_message(m->type, &w->types, e);

	if (r >= 0)
		r = filters_from_message(m->filters, m->n_filters, &w->selection, e);
	if (r < 0)
		return r;
	w->selection.visibility = x->connection->peer->visibility;
	w->selection.until_wall_ns = UINT64_MAX;
	if (selection_check(&w->selection, &error) < 0)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "filters: %s", error);
	return 0;
}

int stream_open_watch(struct exchange *x, ProtobufCMessage *request, struct reply_format format,
		      struct stream **ret, struct rpc_error *e)
{
	struct watch *w = new0(struct watch, 1);
	int r = w ? fill(w, x, (const Sysprofd__V1__WatchRequest *)request, e) : -ENOMEM;

	protobuf_c_message_free_unpacked(request, NULL);
	if (r < 0) {
		if (w)
			selection_release(&w->selection);
		free(w);
		return r;
	}
	r = stream_init(&w->stream, &watch_kind, x, format);
	*ret = &w->stream;
	return r;
}

static struct shared_bucket *share(const struct bucket *b)
{
	struct shared_bucket *shared = new0(struct shared_bucket, 1);

	if (!shared)
		return NULL;
	shared->n_ref = 1;
	if (bucket_copy(b, &shared->bucket) < 0) {
		free(shared);
		return NULL;
	}
	return shared;
}

static bool is_open_watch(const struct stream *t)
{
	return t->kind == &watch_kind && !t->closed;
}

void watch_publish(struct server *s, const struct bucket *b)
{
	struct shared_bucket *shared = NULL;
	struct stream *after;
	bool wanted = false;

	for (struct stream *t = s->streams; t; t = t->next)
		wanted |= is_open_watch(t);
	if (!wanted)
		return;
	shared = share(b);
	for (struct stream *t = s->streams; t; t = after) {
		struct watch *w = (struct watch *)t;

		after = t->next;
		if (!is_open_watch(t))
			continue;
		if (!shared || w->n_pending == PENDING_MAX) {
			w->skipped++;
			continue;
		}
		atomic_fetch_add(&shared->n_ref, 1);
		w->pending[w->n_pending++] = shared;
		watch_kick(t);
	}
	if (shared)
		shared_unref(shared);
}
