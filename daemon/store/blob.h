/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blobs: checksummed, compressed envelopes around streams of numbers. format.h has the bytes. Decoding
 * trusts nothing: any input yields a value or -EBADMSG.
 */
#pragma once

#include "base/strbuf.h"
#include "store/format.h"

/* ---- envelope ---- */

/* Memory that sealing reuses. */
struct blob_writer {
	struct ZSTD_CCtx_s *zstd;
	struct strbuf payload; /* filled by the caller between blob_begin() and blob_seal() */
	size_t *cuts; /* where a new compression block begins: columns differ in statistics */
	size_t n_cuts, cap_cuts;
	uint64_t *numbers; /* a column on its way into a stream */
	size_t cap_numbers;
};
void blob_writer_done(struct blob_writer *w);
void blob_begin(struct blob_writer *w);
/* Appends the blob to *out. -E2BIG when the payload exceeds BLOB_MAX_RAW. */
int blob_seal(struct blob_writer *w, enum blob_content content, const uint64_t *key, size_t n_key,
	      struct strbuf *out) _warn_unused_;

/* An opened payload; reading up to BLOB_PADDING bytes behind end is harmless. */
#define BLOB_PADDING 16
struct blob_in {
	const uint8_t *p, *end;
};
struct blob_reader {
	struct ZSTD_DCtx_s *zstd;
	uint8_t *payload;
	size_t cap_payload;
	uint64_t *numbers;
	size_t cap_numbers;
};
void blob_reader_done(struct blob_reader *r);
/* Verifies and unpacks; *ret_in points into r until the next call. -EBADMSG, -ENOMEM. */
int blob_open(struct blob_reader *r, enum blob_content content, const uint64_t *key, size_t n_key,
	      const void *data, size_t len, struct blob_in *ret_in) _warn_unused_;

/* ---- pieces ---- */

void put_varint(struct strbuf *b, uint64_t v);
int get_varint(struct blob_in *in, uint64_t max, uint64_t *ret) _warn_unused_;

void put_stream(struct blob_writer *w, const uint64_t *v, size_t n);
int get_stream64(struct blob_in *in, uint64_t *out, size_t n) _warn_unused_;
int get_stream32(struct blob_in *in, uint32_t *out, size_t n) _warn_unused_;
/* out[to[i]] = number i; the caller guarantees that every to[i] is in range. */
int get_stream64_to(struct blob_in *in, uint64_t *out, size_t n, const uint32_t *to) _warn_unused_;

/* An unsigned member of 1, 2, 4 or 8 bytes of a structure. */
struct table_field {
	uint16_t offset, size;
};
#define TABLE_FIELD(type, member)                                   \
	{                                                           \
		offsetof(type, member), sizeof(((type *)0)->member) \
	}
int put_table(struct blob_writer *w, const struct table_field *fields, size_t n_fields,
	      const void *rows, size_t stride, size_t n) _warn_unused_;
int get_table(struct blob_reader *r, struct blob_in *in, const struct table_field *fields,
	      size_t n_fields, void *rows, size_t stride, size_t n) _warn_unused_;
