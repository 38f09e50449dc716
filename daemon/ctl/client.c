// SPDX-License-Identifier: GPL-2.0-or-later
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "ctl/client.h"
#include "ctl/json.h"

#define SERVICE "http://sysprofd/sysprofd.v1.ProfileService/"
#define ENVELOPE 5 /* flags, and the length in four bytes, big-endian */
#define FLAG_COMPRESSED 1
#define FLAG_END 2
#define MESSAGE_MAX 512

struct client {
	CURL *curl;
	char *socket_path;
	char error[MESSAGE_MAX];
};

/* An answer as it comes in. */
struct transfer {
	struct client *client;
	struct strbuf body; /* a stream: what is not yet a whole message */
	bool stream;
	long timeout_ms; /* 0: none */
	bool ended; /* the stream's last frame has come */
	int result; /* of a stream: what ended it */
	const ProtobufCMessageDescriptor *descriptor;
	client_message_fn on_message;
	void *ctx;
};

int client_new(const char *socket_path, struct client **ret)
{
	_cleanup_(client_free_p) struct client *c = new0(struct client, 1);

	if (!c)
		return -ENOMEM;
	c->socket_path = strdup(socket_path);
	c->curl = curl_easy_init();
	if (!c->socket_path || !c->curl)
		return -ENOMEM;
	*ret = TAKE_PTR(c);
	return 0;
}

struct client *client_free(struct client *c)
{
	if (!c)
		return NULL;
	if (c->curl)
		curl_easy_cleanup(c->curl);
	free(c->socket_path);
	free(c);
	return NULL;
}

const char *client_error(const struct client *c)
{
	return c->error;
}

static int _printf_(3, 4) fail(struct client *c, enum ctl_exit exit, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->error, sizeof(c->error), fmt, ap);
	va_end(ap);
	return exit;
}

/* ---- what the daemon says went wrong --------------------------------------------------------- */

static int exit_of_code(const char *code)
{
	if (streq(code, "permission_denied") || streq(code, "unauthenticated"))
		return CTL_DENIED;
	/* What our own checks let through and the daemon did not understand. */
	if (streq(code, "invalid_argument") || streq(code, "out_of_range"))
		return CTL_USAGE;
	return CTL_FAILED;
}

/* A Connect error: {"code","message"}, below the key "error" in a stream. False when it is none. */
static bool connect_error(struct client *c, const char *json, size_t len, bool stream, int *ret)
{
	const char *code_path[] = { "error", "code" }, *message_path[] = { "error", "message" };
	char code[64], message[MESSAGE_MAX - 64];
	size_t skip = stream ? 0 : 1, n = 2 - skip;

	if (!json_find_string(json, len, code_path + skip, n, code, sizeof(code)))
		return false;
	if (!json_find_string(json, len, message_path + skip, n, message, sizeof(message)) ||
	    !*message)
		snprintf(message, sizeof(message), "%s", code);
	*ret = fail(c, exit_of_code(code), "%s", message);
	return true;
}

static int http_failure(struct client *c, long status, const struct strbuf *body)
{
	int r;

	if (body->len && connect_error(c, body->data, body->len, false, &r))
		return r;
	if (status == 401 || status == 403)
		return fail(c, CTL_DENIED, "%s: not permitted", c->socket_path);
	if (status == 503)
		return fail(c, CTL_FAILED, "%s: the daemon is busy, try again", c->socket_path);
	return fail(c, CTL_FAILED, "%s: unexpected answer, HTTP status %ld: is this sysprofd?",
		    c->socket_path, status);
}

static int curl_failure(struct client *c, CURLcode code)
{
	long os_error = 0;

	curl_easy_getinfo(c->curl, CURLINFO_OS_ERRNO, &os_error);
	switch (code) {
	case CURLE_COULDNT_CONNECT:
		if (os_error == EACCES || os_error == EPERM)
			return fail(c, CTL_DENIED, "%s: %s", c->socket_path,
				    strerror((int)os_error));
		return fail(c, CTL_NO_DAEMON, "no daemon at %s: %s", c->socket_path,
			    os_error ? strerror((int)os_error) : "cannot connect");
	case CURLE_OPERATION_TIMEDOUT:
		return fail(c, CTL_FAILED, "%s: no answer in time", c->socket_path);
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_PARTIAL_FILE:
		return fail(c, CTL_FAILED, "%s: the daemon went away before it had answered",
			    c->socket_path);
	case CURLE_OUT_OF_MEMORY:
		return fail(c, CTL_FAILED, "out of memory");
	default:
		return fail(c, CTL_FAILED, "%s: %s", c->socket_path, curl_easy_strerror(code));
	}
}

/* ---- frames of a stream ---------------------------------------------------------------------- */

static int take_end(struct transfer *t, const char *json, size_t len)
{
	int r;

	t->ended = true;
	return connect_error(t->client, json, len, true, &r) ? r : 0;
}

static int take_message(struct transfer *t, const char *data, size_t len)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(t->descriptor, NULL, len,
							(const uint8_t *)data);
	int r;

	if (!m)
		return fail(t->client, CTL_FAILED, "%s: a malformed message",
			    t->client->socket_path);
	r = t->on_message(t->ctx, m);
	protobuf_c_message_free_unpacked(m, NULL);
	return r;
}

/* Consumes the whole frames in the buffer. */
static int take_frames(struct transfer *t)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && !t->ended && t->body.len - at >= ENVELOPE) {
		const unsigned char *p = (const unsigned char *)t->body.data + at;
		size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

		if (len > CLIENT_ANSWER_MAX || (p[0] & ~FLAG_END))
			return fail(t->client, CTL_FAILED, "%s: a malformed stream",
				    t->client->socket_path);
		if (t->body.len - at - ENVELOPE < len)
			break;
		r = p[0] & FLAG_END ? take_end(t, (const char *)p + ENVELOPE, len)
				    : take_message(t, (const char *)p + ENVELOPE, len);
		at += ENVELOPE + len;
	}
	if (at > 0)
		memmove(t->body.data, t->body.data + at, t->body.len - at);
	t->body.len -= at;
	return r;
}

static size_t on_data(char *data, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	long status = 0;

	strbuf_add(&t->body, data, size * n);
	if (t->body.error)
		return 0;
	curl_easy_getinfo(t->client->curl, CURLINFO_RESPONSE_CODE, &status);
	if (t->stream && status == 200) {
		t->result = take_frames(t);
		if (t->result)
			return 0;
	}
	return size * n;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The request's bytes, in an envelope for streams. */
static int pack(const ProtobufCMessage *request, bool stream, struct strbuf *ret)
{
	size_t len = protobuf_c_message_get_packed_size(request);
	unsigned char head[ENVELOPE] = { 0, (unsigned char)(len >> 24), (unsigned char)(len >> 16),
					 (unsigned char)(len >> 8), (unsigned char)len };
	char *room;

	if (stream)
		strbuf_add(ret, head, sizeof(head));
	room = strbuf_reserve(ret, len);
	if (!room)
		return ret->error;
	protobuf_c_message_pack(request, (uint8_t *)room);
	ret->len += len;
	return 0;
}

static void free_headers(struct curl_slist **headers)
{
	curl_slist_free_all(*headers);
}

static struct curl_slist *make_headers(bool stream)
{
	const char *const lines[] = {
		stream ? "Content-Type: application/connect+proto"
		       : "Content-Type: application/proto",
		"Connect-Protocol-Version: 1",
		"Expect:", /* no 100-continue */
		stream ? NULL : "Connect-Timeout-Ms: 60000",
	};
	struct curl_slist *headers = NULL;

	_Static_assert(CLIENT_TIMEOUT_MS == 60000, "the header says the same");
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct curl_slist *more = lines[i] ? curl_slist_append(headers, lines[i]) : headers;

		if (!more) {
			curl_slist_free_all(headers);
			return NULL;
		}
		headers = more;
	}
	return headers;
}

static CURLcode set_options(struct transfer *t, const char *url, const struct strbuf *request,
			    struct curl_slist *headers)
{
	CURL *curl = t->client->curl;
	CURLcode r;

	curl_easy_reset(curl);
	r = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->client->socket_path);
	r = r ?: curl_easy_setopt(curl, CURLOPT_URL, url);
	r = r ?: curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
	r = r ?: curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* whatever http_proxy says */
	r = r ?: curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	r = r ?: curl_easy_setopt(curl, CURLOPT_POST, 1L);
	r = r ?: curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->len);
	r = r ?: curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->data ?: "");
	r = r ?: curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	r = r ?: curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
	r = r ?: curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CLIENT_CONNECT_TIMEOUT_MS);
	r = r ?: curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, t->timeout_ms);
	return r;
}

/* Sends and receives. 0: the HTTP status is 200. */
static int perform(struct transfer *t, const char *method, const ProtobufCMessage *request)
{
	_cleanup_(strbuf_done) struct strbuf body = {};
	_cleanup_(free_headers) struct curl_slist *headers = make_headers(t->stream);
	struct client *c = t->client;
	struct sockaddr_un address;
	char url[128];
	long status = 0;
	CURLcode code;

	if (strlen(c->socket_path) >= sizeof(address.sun_path))
		return fail(c, CTL_USAGE, "--socket %s: a socket's path has at most %zu bytes",
			    c->socket_path, sizeof(address.sun_path) - 1);
	if (!headers || pack(request, t->stream, &body) < 0)
		return fail(c, CTL_FAILED, "out of memory");
	snprintf(url, sizeof(url), SERVICE "%s", method);
	code = set_options(t, url, &body, headers);
	if (code == CURLE_OK)
		code = curl_easy_perform(c->curl);
	if (t->result)
		return t->result;
	if (t->body.error == -EFBIG)
		return fail(c, CTL_FAILED, "%s: the answer is larger than %u MiB", c->socket_path,
			    CLIENT_ANSWER_MAX >> 20);
	if (t->body.error)
		return fail(c, CTL_FAILED, "out of memory");
	if (code != CURLE_OK)
		return curl_failure(c, code);
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	return status == 200 ? 0 : http_failure(c, status, &t->body);
}

static void transfer_done(struct transfer *t)
{
	strbuf_done(&t->body);
}

int client_call(struct client *c, const char *method, const ProtobufCMessage *request,
		const ProtobufCMessageDescriptor *answer, ProtobufCMessage **ret)
{
	_cleanup_(transfer_done) struct transfer t = { .client = c,
						       .body = { .limit = CLIENT_ANSWER_MAX },
						       .timeout_ms = CLIENT_TIMEOUT_MS };
	ProtobufCMessage *m;
	int r = perform(&t, method, request);

	if (r)
		return r;
	m = protobuf_c_message_unpack(answer, NULL, t.body.len,
				      (const uint8_t *)(t.body.data ?: ""));
	if (!m)
		return fail(c, CTL_FAILED, "%s: a malformed answer", c->socket_path);
	*ret = m;
	return 0;
}

int client_stream(struct client *c, const char *method, const ProtobufCMessage *request,
		  const ProtobufCMessageDescriptor *answer, long timeout_ms,
		  client_message_fn on_message, void *ctx)
{
	_cleanup_(transfer_done) struct transfer t = {
		.client = c,
		.body = { .limit = CLIENT_ANSWER_MAX + ENVELOPE + CURL_MAX_WRITE_SIZE },
		.stream = true,
		.timeout_ms = timeout_ms,
		.descriptor = answer,
		.on_message = on_message,
		.ctx = ctx
	};
	int r = perform(&t, method, request);

	if (r)
		return r;
	if (!t.ended)
		return fail(c, CTL_FAILED, "%s: the daemon ended the stream early", c->socket_path);
	return 0;
}
