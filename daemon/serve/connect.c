// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The Connect protocol, https://connectrpc.com/docs/protocol: an exchange whose body is complete becomes a
 * call of a method, or a stream. Requests are at most 64 KiB and are decoded here, on the main thread.
 */
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "serve/internal.h"
#include "serve/json.h"
#include "serve/validate.h"

#define FRAME_HEADER 5
#define FRAME_COMPRESSED 1
#define TIMEOUT_MAX_MS 9999999999ULL /* ten digits, as the protocol says */

static const struct content_type {
	const char *name;
	enum codec codec;
	bool stream;
} content_types[] = {
	{ "application/proto", CODEC_PROTO, false },
	{ "application/json", CODEC_JSON, false },
	{ "application/connect+proto", CODEC_PROTO, true },
	{ "application/connect+json", CODEC_JSON, true },
};

/* Type and subtype, without parameters. */
static const struct content_type *find_content_type(const char *header)
{
	size_t len = header ? strcspn(header, "; \t") : 0;

	for (size_t i = 0; len && i < ARRAY_SIZE(content_types); i++)
		if (strlen(content_types[i].name) == len &&
		    strncasecmp(content_types[i].name, header, len) == 0)
			return &content_types[i];
	return NULL;
}

/* Whether a list such as "br;q=1.0, gzip, *;q=0" names gzip and does not refuse it. */
bool accepts_gzip(const char *header)
{
	const char *p = header ?: "";

	while (*p) {
		size_t item, name;

		p += strspn(p, ", \t");
		item = strcspn(p, ",");
		name = strcspn(p, "; \t,");
		if (name == 4 && strncasecmp(p, "gzip", 4) == 0) {
			const char *q = memmem(p, item, "q=", 2);

			return !q || strtod(q + 2, NULL) > 0;
		}
		p += item;
	}
	return false;
}

static int read_encoding(const char *value, bool *ret_gzip, struct rpc_error *e)
{
	if (str_empty(value) || strcasecmp(value, "identity") == 0)
		*ret_gzip = false;
	else if (strcasecmp(value, "gzip") == 0)
		*ret_gzip = true;
	else
		return rpc_fail(e, RPC_UNIMPLEMENTED, "unknown compression \"%s\": use gzip",
				value);
	return 0;
}

/* Milliseconds of Connect-Timeout-Ms as a deadline; UINT64_MAX without one. */
static int read_deadline(struct exchange *x, uint64_t *ret, struct rpc_error *e)
{
	const char *value = http_header(x, "Connect-Timeout-Ms");
	uint64_t ms = 0;

	*ret = UINT64_MAX;
	if (!value)
		return 0;
	for (const char *p = value; *p; p++) {
		if (*p < '0' || *p > '9' || (ms = ms * 10 + (uint64_t)(*p - '0')) > TIMEOUT_MAX_MS)
			return rpc_fail(e, RPC_INVALID_ARGUMENT, "bad Connect-Timeout-Ms \"%s\"",
					value);
	}
	*ret = x->start_mono_ns + ms * NSEC_PER_MSEC;
	return 0;
}

static int check_version(struct exchange *x, struct rpc_error *e)
{
	const char *v = http_header(x, "Connect-Protocol-Version");

	if (v && !streq(v, "1"))
		return rpc_fail(e, RPC_INVALID_ARGUMENT,
				"Connect-Protocol-Version is 1, not \"%s\"", v);
	v = x->is_get ? http_argument(x, "connect", NULL) : NULL;
	if (v && !streq(v, "v1"))
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "connect is v1, not \"%s\"", v);
	return 0;
}

static int inflate_request(const struct exchange *x, const void *data, size_t len,
			   struct strbuf *out, struct rpc_error *e)
{
	int r = answer_decompress(data, len, x->server->o.max_request_bytes, out);

	if (r == -EFBIG)
		return rpc_fail(e, RPC_RESOURCE_EXHAUSTED, "a request has at most %u bytes",
				x->server->o.max_request_bytes);
	if (r == -EBADMSG)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "the request is not valid gzip");
	if (r < 0)
		rpc_fail_errno(e, r, "request");
	return r;
}

/* The bytes of a request, compressed or not, as the method's message. */
static int decode(const struct exchange *x, const struct method *m, enum codec codec, bool gzip,
		  const void *data, size_t len, ProtobufCMessage **ret, struct rpc_error *e)
{
	_cleanup_(strbuf_done) struct strbuf plain = {};
	char json_error[JSON_ERROR_MAX] = "";
	const char *error = json_error;
	int r;

	if (gzip && len > 0) {
		r = inflate_request(x, data, len, &plain, e);
		if (r < 0)
			return r;
		data = plain.data;
		len = plain.len;
	}
	if (codec == CODEC_JSON)
		r = json_read_message(m->request, data, len, REQUEST_MAX_VALUES, ret, json_error);
	else
		r = message_unpack(m->request, data, len, REQUEST_MAX_VALUES, ret, &error);
	if (r == -EBADMSG || r == -E2BIG)
		return rpc_fail(e, r == -E2BIG ? RPC_RESOURCE_EXHAUSTED : RPC_INVALID_ARGUMENT,
				"request: %s", error);
	if (r < 0)
		rpc_fail_errno(e, r, "request");
	return r;
}

/* ---- unary ------------------------------------------------------------------------------------- */

static void run_method(struct call *c, struct worker *w)
{
	int r = c->method->handle(c, w);

	if (r < 0)
		rpc_fail_errno(&c->error, r, c->method->name);
}

static void start_call(struct exchange *x, const struct method *m, ProtobufCMessage *request,
		       struct reply_format format, uint64_t deadline_mono_ns)
{
	struct call *c = call_new(x, run_method);
	const char *match = http_header(x, "If-None-Match");
	struct rpc_error e = {};

	if (!c) {
		protobuf_c_message_free_unpacked(request, NULL);
		rpc_fail_errno(&e, -ENOMEM, "request");
		exchange_fail(x, &e);
		return;
	}
	c->method = m;
	c->request = request;
	c->format = format;
	if (match)
		snprintf(c->if_none_match, sizeof(c->if_none_match), "%s", match);
	call_submit(c, x, MIN(deadline_mono_ns, x->start_mono_ns + x->server->o.query_timeout_ns));
}

static int post_unary(struct exchange *x, const struct method *m, enum codec codec,
		      struct rpc_error *e)
{
	struct reply_format format = { .codec = codec,
				       .gzip = accepts_gzip(http_header(x, "Accept-Encoding")) };
	ProtobufCMessage *request;
	uint64_t deadline;
	bool gzip;
	int r = check_version(x, e);

	if (r >= 0)
		r = read_deadline(x, &deadline, e);
	if (r >= 0)
		r = read_encoding(http_header(x, "Content-Encoding"), &gzip, e);
	if (r >= 0)
		r = decode(x, m, codec, gzip, x->body.data ?: "", x->body.len, &request, e);
	if (r < 0)
		return r;
	start_call(x, m, request, format, deadline);
	return 0;
}

static int get_codec(struct exchange *x, enum codec *ret, struct rpc_error *e)
{
	const char *encoding = http_argument(x, "encoding", NULL) ?: "";

	if (streq(encoding, "proto"))
		*ret = CODEC_PROTO;
	else if (streq(encoding, "json"))
		*ret = CODEC_JSON;
	else
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "encoding is proto or json, not \"%s\"",
				encoding);
	return 0;
}

static int get_message(struct exchange *x, const struct method *m, enum codec codec, bool gzip,
		       ProtobufCMessage **ret, struct rpc_error *e)
{
	const char *base64 = http_argument(x, "base64", NULL), *message;
	_cleanup_free_ uint8_t *raw = NULL;
	size_t len = 0;
	int r;

	message = http_argument(x, "message", &len);
	if (!message)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "the argument \"message\" is missing");
	if (base64 && streq(base64, "1")) {
		r = json_decode_base64(message, len, &raw, &len);
		if (r == -EBADMSG)
			return rpc_fail(e, RPC_INVALID_ARGUMENT, "the message is not base64");
		if (r < 0)
			return r;
		message = (const char *)raw;
	}
	return decode(x, m, codec, gzip, message, len, ret, e);
}

static int get_unary(struct exchange *x, const struct method *m, struct rpc_error *e)
{
	struct reply_format format = { .gzip = accepts_gzip(http_header(x, "Accept-Encoding")),
				       .etag = true };
	ProtobufCMessage *request;
	uint64_t deadline;
	bool gzip;
	int r = check_version(x, e);

	if (r >= 0)
		r = get_codec(x, &format.codec, e);
	if (r >= 0)
		r = read_deadline(x, &deadline, e);
	if (r >= 0)
		r = read_encoding(http_argument(x, "compression", NULL), &gzip, e);
	if (r >= 0)
		r = get_message(x, m, format.codec, gzip, &request, e);
	if (r < 0)
		return r;
	start_call(x, m, request, format, deadline);
	return 0;
}

/* ---- streams ----------------------------------------------------------------------------------- */

/* A stream that is over before it began: errors travel in its last frame, with status 200. */
static void end_stream(struct exchange *x, enum codec codec, const struct rpc_error *e)
{
	x->answer.status = MHD_HTTP_OK;
	x->answer.content_type = codec == CODEC_JSON ? "application/connect+json"
						     : "application/connect+proto";
	answer_end_frame(e, &x->answer.body);
	exchange_ready(x);
}

/* The one message of a request that is enveloped as well. */
static int open_envelope(const struct exchange *x, const void **ret, size_t *ret_len,
			 uint8_t *ret_flags, struct rpc_error *e)
{
	const uint8_t *p = (const uint8_t *)x->body.data;
	uint32_t len;

	if (x->body.len < FRAME_HEADER)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "the request has no envelope");
	len = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	if (len != x->body.len - FRAME_HEADER)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "the envelope says %u bytes, %zu follow",
				len, x->body.len - FRAME_HEADER);
	if (p[0] & ~FRAME_COMPRESSED)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "unknown flags %#x in the envelope", p[0]);
	*ret = p + FRAME_HEADER;
	*ret_len = len;
	*ret_flags = p[0];
	return 0;
}

static int decode_envelope(struct exchange *x, const struct method *m, enum codec codec,
			   ProtobufCMessage **ret, struct rpc_error *e)
{
	const void *data;
	uint8_t flags;
	size_t len;
	bool gzip;
	int r = read_encoding(http_header(x, "Connect-Content-Encoding"), &gzip, e);

	if (r >= 0)
		r = open_envelope(x, &data, &len, &flags, e);
	if (r < 0)
		return r;
	if ((flags & FRAME_COMPRESSED) && !gzip)
		return rpc_fail(e, RPC_INVALID_ARGUMENT,
				"a compressed envelope without Connect-Content-Encoding");
	return decode(x, m, codec, flags & FRAME_COMPRESSED, data, len, ret, e);
}

static int post_stream(struct exchange *x, const struct method *m, enum codec codec,
		       struct rpc_error *e)
{
	struct reply_format format = {
		.codec = codec, .gzip = accepts_gzip(http_header(x, "Connect-Accept-Encoding"))
	};
	ProtobufCMessage *request;
	struct stream *stream;
	uint64_t deadline;
	int r = check_version(x, e);

	if (r >= 0)
		r = read_deadline(x, &deadline, e);
	if (r >= 0)
		r = decode_envelope(x, m, codec, &request, e);
	if (r >= 0)
		r = m->open(x, request, format, &stream, e);
	if (r < 0)
		return r;
	stream_begin(stream, x, deadline);
	return 0;
}

/* ---- the way in -------------------------------------------------------------------------------- */

static void refuse_method(struct exchange *x, const char *allow)
{
	answer_text(&x->answer, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed");
	x->answer.allow = allow;
	exchange_ready(x);
}

void connect_begin(struct exchange *x, const char *name)
{
	const struct method *m = method_find(name);
	const struct content_type *type;
	struct rpc_error e = {};
	bool stream;
	int r;

	if (!m) {
		rpc_set_error(&e, RPC_UNIMPLEMENTED, "there is no method \"%s\"", name);
		answer_error(&x->answer, &e);
		/* As a router would say it; clients map it back to the same code. */
		x->answer.status = MHD_HTTP_NOT_FOUND;
		exchange_ready(x);
		return;
	}
	stream = m->server_stream;
	/* How long a stream lasts is the client's choice, and no latency. */
	x->metric = stream ? -1 : (int)(m - methods);
	if (x->is_get && m->read_only && !stream) {
		r = get_unary(x, m, &e);
		if (r < 0)
			rpc_fail_errno(&e, r, m->name);
		if (r < 0)
			exchange_fail(x, &e);
		return;
	}
	if (!x->is_post) {
		refuse_method(x, m->read_only && !stream ? "GET, POST" : "POST");
		return;
	}
	type = find_content_type(http_header(x, "Content-Type"));
	if (!type || type->stream != stream) {
		answer_text(&x->answer, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "unsupported media type");
		exchange_ready(x);
		return;
	}
	r = stream ? post_stream(x, m, type->codec, &e) : post_unary(x, m, type->codec, &e);
	if (r >= 0)
		return;
	rpc_fail_errno(&e, r, m->name);
	if (stream)
		end_stream(x, type->codec, &e);
	else
		exchange_fail(x, &e);
}
