/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What goes back: built on any thread, sent by the main thread. Bodies are bounded by max_answer_bytes. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/strbuf.h"
#include "serve/rpc.h"

struct answer {
	unsigned status; /* of HTTP; 0: none yet */
	const char *content_type; /* static */
	const char *disposition; /* static; may be NULL */
	const char *allow; /* static: the methods, with 405 */
	bool gzip;
	char etag[20]; /* with its quotes, or empty */
	struct strbuf body;
};
void answer_done(struct answer *a);

enum codec {
	CODEC_PROTO,
	CODEC_JSON,
};

struct reply_format {
	enum codec codec;
	bool gzip; /* the client accepts it */
	bool etag; /* wanted */
};

/* Replaces the bytes from `start` on by their gzip form where that is worthwhile. 1 when it did. */
int answer_compress(struct strbuf *b, size_t start);
/* Undoes gzip; -EFBIG when the result is longer than limit, -EBADMSG when it is none. */
int answer_decompress(const void *data, size_t len, size_t limit, struct strbuf *out);

/* Appends the message in the codec; -EFBIG beyond the buffer's limit. */
int answer_encode(const ProtobufCMessage *m, enum codec codec, struct strbuf *out);

void answer_error(struct answer *a, const struct rpc_error *e);
void answer_text(struct answer *a, unsigned status, const char *text);

/* Appends an enveloped message: flags, length, then the message, compressed if asked and worthwhile. */
int answer_frame(const ProtobufCMessage *m, struct reply_format format, struct strbuf *out);
/* Appends the last frame of a stream. error may be NULL. */
void answer_end_frame(const struct rpc_error *error, struct strbuf *out);
