// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "serve/internal.h"

struct call *call_new(struct exchange *x, void (*run)(struct call *, struct worker *))
{
	struct call *c = new0(struct call, 1);

	if (!c)
		return NULL;
	c->server = x->server;
	c->peer = peer_ref(x->connection->peer);
	c->job.privileged = c->peer->visibility.all;
	c->run = run;
	c->answer.body.limit = answer_limit(c->server, c->peer);
	return c;
}

void call_free(struct call *c)
{
	if (c->request)
		protobuf_c_message_free_unpacked(c->request, NULL);
	answer_done(&c->answer);
	free(c->durations);
	peer_unref(c->peer);
	free(c);
}

/* The worker polls the flag; whatever it makes of the call after that, nobody sees. */
void call_cancel(struct call *c)
{
	__atomic_store_n(&c->cancelled, true, __ATOMIC_RELAXED);
	c->exchange = NULL;
}

static void on_run(struct job *j, struct worker *w)
{
	struct call *c = (struct call *)j;

	if (__atomic_load_n(&c->cancelled, __ATOMIC_RELAXED))
		return;
	c->run(c, w);
	if (c->error.code != RPC_OK)
		answer_error(&c->answer, &c->error);
}

static void on_done(struct job *j)
{
	struct call *c = (struct call *)j;
	struct server *s = c->server;
	struct exchange *x = c->exchange;

	if (c->error.code == RPC_INTERNAL)
		log_write_limited(&s->log_query, LOG_LEVEL_WARNING, "query: %s", c->error.message);
	if (x && !j->ran) {
		rpc_set_error(&c->error, RPC_UNAVAILABLE, "the server is shutting down");
		answer_error(&c->answer, &c->error);
	}
	if (x) {
		x->call = NULL;
		answer_done(&x->answer);
		x->answer = c->answer;
		c->answer = (struct answer){};
		exchange_ready(x);
	}
	call_free(c);
	streams_kick(s);
}

void call_submit(struct call *c, struct exchange *x, uint64_t deadline_mono_ns)
{
	struct rpc_error busy = {};

	c->job.run = on_run;
	c->job.done = on_done;
	if (worker_pool_submit(c->server->pool, &c->job) < 0) {
		call_free(c);
		rpc_set_error(&busy, RPC_UNAVAILABLE, "busy: too many queries are waiting");
		exchange_fail(x, &busy);
		return;
	}
	c->exchange = x;
	x->call = c;
	x->state = EXCHANGE_RUNNING;
	connection_set_deadline(x->connection, deadline_mono_ns);
	exchange_suspend(x);
}

/* The response is the client's already: 1, and the answer is "not modified". */
static int match_etag(struct call *c, const ProtobufCMessage *response)
{
	_cleanup_(strbuf_done) struct strbuf bytes = { .limit = c->answer.body.limit };
	int r = answer_encode(response, CODEC_PROTO, &bytes);
	uint64_t variant = (uint64_t)c->format.codec << 1 | c->format.gzip;

	if (r < 0)
		return r;
	snprintf(c->answer.etag, sizeof(c->answer.etag), "\"%016" PRIx64 "\"",
		 XXH3_64bits_withSeed(bytes.data ?: "", bytes.len, variant));
	return strstr(c->if_none_match, c->answer.etag) ? 1 : 0;
}

int call_too_large(struct call *c)
{
	return rpc_fail(&c->error, RPC_RESOURCE_EXHAUSTED,
			"the answer has more than %zu bytes: narrow the selection, or ask for less",
			c->answer.body.limit);
}

int call_reply(struct call *c, ProtobufCMessage *response, Sysprofd__V1__Host **host)
{
	struct answer *a = &c->answer;
	struct host_info info;
	int r = 0;

	a->content_type = c->format.codec == CODEC_JSON ? "application/json" : "application/proto";
	a->status = MHD_HTTP_OK;
	if (c->format.etag)
		r = match_etag(c, response);
	if (r == 1) {
		a->status = MHD_HTTP_NOT_MODIFIED;
		return 0;
	}
	if (r == 0) {
		host_info_init(&info);
		*host = &info.message;
		r = answer_encode(response, c->format.codec, &a->body);
		*host = NULL;
	}
	if (r == 0 && c->format.gzip) {
		r = answer_compress(&a->body, 0);
		a->gzip = r == 1;
	}
	if (r == -EFBIG)
		return call_too_large(c);
	return r < 0 ? r : 0;
}
