// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libmicrohttpd, driven. Its callbacks only move an exchange from state to state; what takes longer is
 * started from them and ends in exchange_ready(), which lets the connection go on. Nothing outside runs
 * libmicrohttpd directly: http_kick() does so in the next turn of the loop.
 */
#include <stdio.h>

#include "base/clock.h"
#include "serve/internal.h"

#define CONNECTION_MEMORY 32768 /* of libmicrohttpd: bounds headers and URL */
#define CLOSING_MAX 64 /* connections that are shed but not closed yet */
#define SEND_BASE_NS (10 * NSEC_PER_SEC)
#define SEND_BYTES_PER_SEC (1 << 20) /* slower readers of large answers are dropped */
#define SMALL_ANSWER 65536 /* always fits: there are only so many connections */
#define DISCARD_FACTOR 4 /* so many times max_request_bytes are read and dropped before giving up */

/* ---- running ----------------------------------------------------------------------------------- */

void http_kick(struct server *s)
{
	if (s->mhd_defer)
		sd_event_source_set_enabled(s->mhd_defer, SD_EVENT_ONESHOT);
}

static void run(struct server *s)
{
	MHD_UNSIGNED_LONG_LONG timeout;

	MHD_run(s->mhd);
	/* It holds back work at times and says so by a timeout of 0; it has no other timeouts from us. */
	if (MHD_get_timeout(s->mhd, &timeout) == MHD_YES && timeout == 0)
		http_kick(s);
}

static int on_mhd_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	run(userdata);
	return 0;
}

static int on_mhd_defer(sd_event_source *source, void *userdata)
{
	run(userdata);
	return 0;
}

/* ---- the exchange ------------------------------------------------------------------------------ */

/* Who does not see everything gets half, and counts apart: none of them keeps answers from an administrator. */
uint64_t answer_limit(const struct server *s, const struct peer *p)
{
	return p->visibility.all ? s->o.max_answer_bytes : s->o.max_answer_bytes / 2;
}

void answer_hold(struct server *s, const struct peer *p, size_t *held, size_t bytes)
{
	s->held_bytes[p->visibility.all] += bytes - *held;
	*held = bytes;
}

static void hold(struct exchange *x, size_t bytes)
{
	answer_hold(x->server, x->connection->peer, &x->held, bytes);
}

/* Answers on their way share one budget; but one, however large, always fits. */
static bool fits(const struct exchange *x)
{
	const struct peer *p = x->connection->peer;
	uint64_t held = x->server->held_bytes[p->visibility.all];
	size_t len = x->answer.body.len;

	return held == 0 || len <= SMALL_ANSWER || held + len <= answer_limit(x->server, p);
}

static void exchange_free(struct exchange *x)
{
	if (x->call)
		call_cancel(x->call);
	if (x->stream)
		stream_hangup(x->stream);
	hold(x, 0);
	sd_event_source_disable_unref(x->delay);
	strbuf_done(&x->body);
	answer_done(&x->answer);
	free(x);
}

static struct exchange *exchange_new(struct server *s, struct MHD_Connection *mhd,
				     const char *method, const char *path)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct exchange *x = info && info->socket_context ? new0(struct exchange, 1) : NULL;

	if (!x)
		return NULL;
	x->server = s;
	x->mhd = mhd;
	x->connection = info->socket_context;
	x->connection->exchange = x;
	x->start_mono_ns = mono_now_ns();
	x->is_get = streq(method, "GET") || streq(method, "HEAD");
	x->is_post = streq(method, "POST");
	x->metric = -1;
	x->body.limit = s->o.max_request_bytes;
	snprintf(x->path, sizeof(x->path), "%s", path);
	atomic_fetch_add(&s->stats.requests, 1);
	return x;
}

const char *http_header(struct exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *http_argument(struct exchange *x, const char *name, size_t *ret_len)
{
	const char *value = NULL;
	size_t len = 0;

	if (MHD_lookup_connection_value_n(x->mhd, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value,
					  &len) != MHD_YES)
		return NULL;
	if (ret_len)
		*ret_len = len;
	return value ?: "";
}

void exchange_suspend(struct exchange *x)
{
	if (x->suspended)
		return;
	x->suspended = true;
	MHD_suspend_connection(x->mhd);
	connection_watch(x->connection, true);
}

void exchange_resume(struct exchange *x)
{
	if (!x->suspended)
		return;
	x->suspended = false;
	connection_watch(x->connection, false);
	MHD_resume_connection(x->mhd);
	http_kick(x->server);
}

void exchange_ready(struct exchange *x)
{
	if (!fits(x)) {
		struct rpc_error busy = {};

		rpc_set_error(&busy, RPC_UNAVAILABLE,
			      "busy: other clients have not read their answers");
		answer_error(&x->answer, &busy);
	}
	hold(x, x->answer.body.len);
	x->state = EXCHANGE_READY;
	connection_set_deadline(x->connection,
				mono_now_ns() + SEND_BASE_NS +
					(uint64_t)x->held * NSEC_PER_SEC / SEND_BYTES_PER_SEC);
	exchange_resume(x);
}

void exchange_fail(struct exchange *x, const struct rpc_error *e)
{
	answer_error(&x->answer, e);
	exchange_ready(x);
}

static void abandon(struct exchange *x)
{
	if (x->call)
		call_cancel(TAKE_PTR(x->call));
	if (x->stream)
		stream_hangup(TAKE_PTR(x->stream));
	x->delay = sd_event_source_disable_unref(x->delay);
	x->state = EXCHANGE_GONE;
	exchange_resume(x);
	connection_close(x->connection);
}

void exchange_hangup(struct exchange *x)
{
	atomic_fetch_add(&x->server->stats.cancelled, 1);
	abandon(x);
}

void exchange_expired(struct exchange *x)
{
	struct rpc_error e = {};

	if (x->state == EXCHANGE_STREAMING && x->stream) {
		stream_expired(x->stream);
		return;
	}
	atomic_fetch_add(&x->server->stats.timeouts, 1);
	if (x->state != EXCHANGE_RUNNING) {
		abandon(x);
		return;
	}
	if (x->call)
		call_cancel(TAKE_PTR(x->call));
	x->delay = sd_event_source_disable_unref(x->delay);
	rpc_set_error(&e, RPC_DEADLINE_EXCEEDED, "the answer took too long");
	exchange_fail(x, &e);
}

/* ---- answering --------------------------------------------------------------------------------- */

static bool add_headers(struct MHD_Response *r, const struct answer *a)
{
	bool ok = MHD_add_response_header(r, "Content-Type", a->content_type) == MHD_YES;

	if (a->gzip)
		ok &= MHD_add_response_header(r, "Content-Encoding", "gzip") == MHD_YES;
	if (a->etag[0]) {
		ok &= MHD_add_response_header(r, "ETag", a->etag) == MHD_YES;
		ok &= MHD_add_response_header(r, "Cache-Control", "private, no-cache") == MHD_YES;
		ok &= MHD_add_response_header(r, "Vary", "Accept-Encoding") == MHD_YES;
	}
	if (a->allow)
		ok &= MHD_add_response_header(r, "Allow", a->allow) == MHD_YES;
	if (a->disposition)
		ok &= MHD_add_response_header(r, "Content-Disposition", a->disposition) == MHD_YES;
	if (a->status == MHD_HTTP_UNSUPPORTED_MEDIA_TYPE)
		ok &= MHD_add_response_header(
			      r, "Accept-Post",
			      "application/proto, application/json, "
			      "application/connect+proto, application/connect+json") == MHD_YES;
	return ok;
}

static enum MHD_Result send_answer(struct exchange *x)
{
	struct answer *a = &x->answer;
	unsigned status = a->status;
	struct MHD_Response *r;
	enum MHD_Result sent;
	size_t len;
	char *body;

	if (strbuf_error(&a->body))
		return MHD_NO;
	body = strbuf_take(&a->body, &len);
	/* libmicrohttpd frees the body, also when it is empty and we have none. */
	r = body ? MHD_create_response_from_buffer(len, body, MHD_RESPMEM_MUST_FREE)
		 : MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	if (!r) {
		free(body);
		return MHD_NO;
	}
	if (status >= 400)
		atomic_fetch_add(&x->server->stats.errors, 1);
	x->state = EXCHANGE_SENT;
	sent = add_headers(r, a) ? MHD_queue_response(x->mhd, status, r) : MHD_NO;
	MHD_destroy_response(r);
	return sent;
}

static void not_found(struct exchange *x)
{
	answer_text(&x->answer, MHD_HTTP_NOT_FOUND, "not found");
	exchange_ready(x);
}

static void not_allowed(struct exchange *x, const char *allow)
{
	answer_text(&x->answer, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed");
	x->answer.allow = allow;
	exchange_ready(x);
}

static void dispatch(struct exchange *x)
{
	const char *method = str_skip_prefix(x->path, SERVICE_PATH);
	struct rpc_error e = {};

	x->connection->waiting_since_mono_ns = 0;
	connection_set_deadline(x->connection, UINT64_MAX);
	if (strbuf_error(&x->body)) {
		rpc_set_error(&e, RPC_RESOURCE_EXHAUSTED, "a request has at most %u bytes",
			      x->server->o.max_request_bytes);
		exchange_fail(x, &e);
	} else if (method) {
		connect_begin(x, method);
	} else if (streq(x->path, "/metrics")) {
		x->is_get ? metrics_begin(x) : not_allowed(x, "GET, HEAD");
	} else if (streq(x->path, "/debug/pprof/profile")) {
		x->is_get ? pprof_begin(x) : not_allowed(x, "GET, HEAD");
	} else {
		not_found(x);
	}
}

/* ---- libmicrohttpd's callbacks ------------------------------------------------------------------- */

static bool announces_too_much(struct exchange *x)
{
	const char *length = http_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return length && strtoull(length, NULL, 10) > x->server->o.max_request_bytes;
}

/* Takes a piece of the body. What is too much is dropped until the request ends, or for long enough. */
static bool receive(struct exchange *x, const char *data, size_t len)
{
	strbuf_add(&x->body, data, len);
	if (!strbuf_error(&x->body))
		return true;
	x->discarded += len;
	return x->discarded <= (size_t)x->server->o.max_request_bytes * DISCARD_FACTOR;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *data_len, void **context)
{
	struct exchange *x = *context;

	if (!x) {
		x = *context = exchange_new(cls, mhd, method, url);
		if (!x)
			return MHD_NO;
		if (!announces_too_much(x))
			return MHD_YES;
		/* Answered at once; libmicrohttpd closes the connection behind an unread body. */
		x->body.error = -EFBIG;
		dispatch(x);
		return send_answer(x);
	}
	if (*data_len > 0) {
		bool ok = receive(x, data, *data_len);

		*data_len = 0;
		return ok ? MHD_YES : MHD_NO;
	}
	if (x->state == EXCHANGE_RECEIVING) {
		x->state = EXCHANGE_RUNNING;
		dispatch(x);
	}
	switch (x->state) {
	case EXCHANGE_RUNNING:
	case EXCHANGE_STREAMING:
		return MHD_YES;
	case EXCHANGE_READY:
		return send_answer(x);
	default:
		return MHD_NO;
	}
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct exchange *x = *context;
	struct connection *c;
	uint64_t us;

	if (!x)
		return;
	*context = NULL;
	c = x->connection;
	us = (mono_now_ns() - x->start_mono_ns) / NSEC_PER_USEC;
	atomic_fetch_add(&x->server->stats.request_us_sum, us);
	if (x->metric >= 0)
		duration_add(&x->server->durations[x->metric], us);
	c->exchange = NULL;
	connection_watch(c, false);
	exchange_free(x);
	connection_wait(c);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct server *s = cls;
	const union MHD_ConnectionInfo *info;
	struct connection *c;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (*socket_context)
			connection_free(*socket_context);
		*socket_context = NULL;
		return;
	}
	info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	c = info ? connection_find(s, info->connect_fd) : NULL;
	if (c)
		c->started = true;
	*socket_context = c;
}

int http_start(struct server *s)
{
	const union MHD_DaemonInfo *info;
	int r;

	s->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
		on_request, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
		MHD_OPTION_CONNECTION_LIMIT, s->o.max_connections + CLOSING_MAX,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, s, MHD_OPTION_END);
	if (!s->mhd)
		return -ENOMEM;
	info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info || info->epoll_fd < 0)
		return -EOPNOTSUPP;
	r = sd_event_add_io(s->event, &s->mhd_io, info->epoll_fd, EPOLLIN, on_mhd_io, s);
	if (r >= 0)
		r = sd_event_add_defer(s->event, &s->mhd_defer, on_mhd_defer, s);
	if (r >= 0)
		r = sd_event_source_set_enabled(s->mhd_defer, SD_EVENT_OFF);
	return r < 0 ? r : 0;
}

void http_stop(struct server *s)
{
	/* libmicrohttpd refuses to stop with suspended connections. */
	for (struct connection *c = s->connections; c; c = c->next)
		if (c->exchange)
			abandon(c->exchange);
	s->mhd_io = sd_event_source_disable_unref(s->mhd_io);
	s->mhd_defer = sd_event_source_disable_unref(s->mhd_defer);
	if (s->mhd)
		MHD_stop_daemon(s->mhd);
	s->mhd = NULL;
}
