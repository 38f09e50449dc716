// SPDX-License-Identifier: GPL-2.0-or-later
#include <zlib.h>

#include "serve/answer.h"
#include "serve/json.h"

#define COMPRESS_MIN 1024 /* below, the headers outweigh the saving */
#define GZIP_WINDOW (15 + 16) /* zlib's way to say gzip */
#define FRAME_HEADER 5
#define FRAME_COMPRESSED 1
#define FRAME_END 2

void answer_done(struct answer *a)
{
	strbuf_done(&a->body);
}

int answer_compress(struct strbuf *b, size_t start)
{
	_cleanup_free_ char *out = NULL;
	size_t len = b->len - start, cap;
	z_stream z = {};
	int r;

	if (len < COMPRESS_MIN || len > UINT32_MAX / 2)
		return 0;
	/* Level 1: four fifths of the saving for a quarter of the time. */
	if (deflateInit2(&z, 1, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	/* Not worthwhile unless a tenth is saved: so there is no room for more. */
	cap = len - len / 10;
	out = malloc(cap);
	if (!out) {
		deflateEnd(&z);
		return -ENOMEM;
	}
	z.next_in = (Bytef *)b->data + start;
	z.avail_in = (uInt)len;
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)cap;
	r = deflate(&z, Z_FINISH);
	len = cap - z.avail_out;
	deflateEnd(&z);
	if (r != Z_STREAM_END)
		return 0;
	memcpy(b->data + start, out, len);
	b->len = start + len;
	b->data[b->len] = 0;
	return 1;
}

int answer_decompress(const void *data, size_t len, size_t limit, struct strbuf *out)
{
	z_stream z = { .next_in = (Bytef *)data, .avail_in = (uInt)len };
	size_t start = out->len;
	char *p = strbuf_reserve(out, limit + 1);
	int r;

	if (!p)
		return strbuf_error(out);
	if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
		return -ENOMEM;
	z.next_out = (Bytef *)p;
	z.avail_out = (uInt)(limit + 1);
	r = inflate(&z, Z_FINISH);
	out->len = start + limit + 1 - z.avail_out;
	out->data[out->len] = 0;
	inflateEnd(&z);
	if (out->len - start > limit)
		return -EFBIG;
	return r == Z_STREAM_END && z.avail_in == 0 ? 0 : -EBADMSG;
}

int answer_encode(const ProtobufCMessage *m, enum codec codec, struct strbuf *out)
{
	size_t len;
	char *p;

	if (codec == CODEC_JSON) {
		json_write_message(m, out);
		return strbuf_error(out);
	}
	len = protobuf_c_message_get_packed_size(m);
	p = strbuf_reserve(out, len);
	if (!p)
		return strbuf_error(out);
	protobuf_c_message_pack(m, (uint8_t *)p);
	out->len += len;
	out->data[out->len] = 0;
	return 0;
}

void answer_error(struct answer *a, const struct rpc_error *e)
{
	answer_done(a);
	*a = (struct answer){ .status = rpc_code_http(e->code),
			      .content_type = "application/json" };
	rpc_error_json(e, &a->body);
}

void answer_text(struct answer *a, unsigned status, const char *text)
{
	answer_done(a);
	*a = (struct answer){ .status = status, .content_type = "text/plain; charset=utf-8" };
	strbuf_puts(&a->body, text);
	strbuf_putc(&a->body, '\n');
}

/* Reserves the five bytes in front of a frame's payload. */
static size_t frame_begin(struct strbuf *out)
{
	static const char header[FRAME_HEADER];
	size_t at = out->len;

	strbuf_add(out, header, sizeof(header));
	return at;
}

static int frame_finish(struct strbuf *out, size_t at, uint8_t flags)
{
	size_t len;

	if (strbuf_error(out))
		return strbuf_error(out);
	len = out->len - at - FRAME_HEADER;
	if (len > UINT32_MAX)
		return -EFBIG;
	out->data[at] = (char)flags;
	for (int i = 0; i < 4; i++)
		out->data[at + 1 + (size_t)i] = (char)(len >> (24 - 8 * i));
	return 0;
}

int answer_frame(const ProtobufCMessage *m, struct reply_format format, struct strbuf *out)
{
	size_t at = frame_begin(out);
	uint8_t flags = 0;
	int r = answer_encode(m, format.codec, out);

	if (r < 0)
		return r;
	if (format.gzip) {
		r = answer_compress(out, at + FRAME_HEADER);
		if (r < 0)
			return r;
		flags = r ? FRAME_COMPRESSED : 0;
	}
	return frame_finish(out, at, flags);
}

void answer_end_frame(const struct rpc_error *error, struct strbuf *out)
{
	size_t at = frame_begin(out);

	if (error && error->code != RPC_OK) {
		strbuf_puts(out, "{\"error\":");
		rpc_error_json(error, out);
		strbuf_putc(out, '}');
	} else {
		strbuf_puts(out, "{}");
	}
	/* Fails only when memory ran out, and then the buffer says so. */
	(void)frame_finish(out, at, FRAME_END);
}
