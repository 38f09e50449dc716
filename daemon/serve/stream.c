// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Answers of many frames. Memory is bounded by the queue: a kind only makes a frame when stream_has_room()
 * says so. A client that leaves frames unread for STALL_NS is dropped.
 */
#include "base/clock.h"
#include "serve/internal.h"

#define STALL_NS (300 * NSEC_PER_SEC)
#define FLUSH_NS (10 * NSEC_PER_SEC)
#define BLOCK_SIZE 16384

int stream_init(struct stream *t, const struct stream_kind *kind, struct exchange *x,
		struct reply_format format)
{
	*t = (struct stream){ .kind = kind,
			      .n_ref = 1,
			      .server = x->server,
			      .peer = peer_ref(x->connection->peer),
			      .format = format,
			      .deadline_mono_ns = UINT64_MAX };
	t->next = t->server->streams;
	if (t->next)
		t->next->prev = t;
	t->server->streams = t;
	return 0;
}

struct stream *stream_ref(struct stream *t)
{
	t->n_ref++;
	return t;
}

static void hold(struct stream *t, size_t bytes)
{
	answer_hold(t->server, t->peer, &t->held, bytes);
}

struct stream *stream_unref(struct stream *t)
{
	if (--t->n_ref > 0)
		return NULL;
	if (t->prev)
		t->prev->next = t->next;
	else
		t->server->streams = t->next;
	if (t->next)
		t->next->prev = t->prev;
	for (size_t i = 0; i < t->n_frames; i++)
		strbuf_done(&t->frames[i]);
	hold(t, 0);
	peer_unref(t->peer);
	t->kind->free(t);
	return NULL;
}

bool stream_has_room(const struct stream *t)
{
	uint64_t held = t->server->held_bytes[t->peer->visibility.all];

	return !t->closed && t->n_frames < STREAM_FRAMES &&
	       (t->n_frames == 0 || held < answer_limit(t->server, t->peer));
}

static void update_deadline(struct stream *t)
{
	uint64_t stall = t->stalled_since_mono_ns ? t->stalled_since_mono_ns + STALL_NS
						  : UINT64_MAX;

	if (t->exchange)
		connection_set_deadline(t->exchange->connection, MIN(t->deadline_mono_ns, stall));
}

static void put_frame(struct stream *t, struct strbuf *frame)
{
	assert(t->n_frames < ARRAY_SIZE(t->frames));
	hold(t, t->held + frame->len);
	t->frames[t->n_frames++] = *frame;
	*frame = (struct strbuf){};
	if (!t->stalled_since_mono_ns) {
		t->stalled_since_mono_ns = mono_now_ns();
		update_deadline(t);
	}
	if (t->exchange)
		exchange_resume(t->exchange);
}

void stream_queue(struct stream *t, struct strbuf *frame)
{
	if (t->closed)
		strbuf_done(frame);
	else
		put_frame(t, frame);
}

void stream_end(struct stream *t, const struct rpc_error *error)
{
	struct strbuf frame = {};

	if (t->closed)
		return;
	t->closed = true;
	if (error && error->code != RPC_OK)
		atomic_fetch_add(&t->server->stats.errors, 1);
	answer_end_frame(error, &frame);
	if (strbuf_error(&frame)) {
		/* Without memory for a few bytes the stream breaks off, which clients notice too. */
		strbuf_done(&frame);
		if (t->exchange)
			exchange_hangup(t->exchange);
	} else {
		put_frame(t, &frame);
	}
	t->kind->close(t);
}

static void drop_first_frame(struct stream *t)
{
	hold(t, t->held - t->frames[0].len);
	strbuf_done(&t->frames[0]);
	memmove(t->frames, t->frames + 1, (t->n_frames - 1) * sizeof(t->frames[0]));
	t->n_frames--;
	t->offset = 0;
	t->stalled_since_mono_ns = t->n_frames ? mono_now_ns() : 0;
	update_deadline(t);
}

/* libmicrohttpd wants more bytes. */
static ssize_t on_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct stream *t = cls;
	const struct strbuf *f = &t->frames[0];
	size_t n;

	if (!t->exchange)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (t->n_frames == 0 && t->closed) {
		/* What libmicrohttpd and the socket still hold has to leave in time. */
		connection_set_deadline(t->exchange->connection, mono_now_ns() + FLUSH_NS);
		return MHD_CONTENT_READER_END_OF_STREAM;
	}
	if (t->n_frames == 0) {
		exchange_suspend(t->exchange);
		return 0;
	}
	n = MIN(max, f->len - t->offset);
	memcpy(buf, f->data + t->offset, n);
	t->offset += n;
	if (t->offset == f->len) {
		drop_first_frame(t);
		if (!t->closed)
			t->kind->kick(t);
	}
	return (ssize_t)n;
}

static void on_reader_free(void *cls)
{
	stream_unref(cls);
}

void stream_begin(struct stream *t, struct exchange *x, uint64_t deadline_mono_ns)
{
	struct MHD_Response *r;
	bool ok;

	t->exchange = x;
	t->deadline_mono_ns = deadline_mono_ns;
	x->stream = t; /* takes the first reference */
	x->state = EXCHANGE_GONE;
	r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, on_read, t,
					      on_reader_free);
	if (!r)
		return;
	stream_ref(t);
	ok = MHD_add_response_header(r, "Content-Type",
				     t->format.codec == CODEC_JSON
					     ? "application/connect+json"
					     : "application/connect+proto") == MHD_YES;
	if (t->format.gzip)
		ok &= MHD_add_response_header(r, "Connect-Content-Encoding", "gzip") == MHD_YES;
	if (ok && MHD_queue_response(x->mhd, MHD_HTTP_OK, r) == MHD_YES)
		x->state = EXCHANGE_STREAMING;
	MHD_destroy_response(r);
	update_deadline(t);
	if (x->state == EXCHANGE_STREAMING && !t->closed)
		t->kind->kick(t);
}

void stream_hangup(struct stream *t)
{
	t->exchange = NULL;
	t->closed = true;
	t->kind->close(t);
	stream_unref(t);
}

void stream_expired(struct stream *t)
{
	struct rpc_error e = {};

	if (t->deadline_mono_ns > mono_now_ns() || t->closed) {
		atomic_fetch_add(&t->server->stats.timeouts, 1);
		exchange_hangup(t->exchange);
		return;
	}
	t->deadline_mono_ns = UINT64_MAX;
	rpc_set_error(&e, RPC_DEADLINE_EXCEEDED, "the time asked for is over");
	update_deadline(t);
	stream_end(t, &e);
}

void streams_kick(struct server *s)
{
	struct stream *after;

	for (struct stream *t = s->streams; t; t = after) {
		after = t->next;
		if (!t->closed)
			t->kind->kick(t);
	}
}
