/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ProtoJSON for protobuf-c, driven by its message descriptors: 64-bit integers are strings, names are
 * lowerCamelCase, enums are names, bytes are base64, maps are objects. Defaults are left out when
 * writing; unknown fields are ignored when reading, a field given twice is an error.
 *
 * The reader takes hostile input: its depth, its elements and therefore its memory are bounded.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/strbuf.h"

#define JSON_MAX_DEPTH 32
#define JSON_MAX_MAP 1024 /* entries of one map */
#define JSON_ERROR_MAX 160

/* Appends the message as one JSON object. Errors are the buffer's. */
void json_write_message(const ProtobufCMessage *m, struct strbuf *out);

/* Appends s as a JSON string. It must be valid UTF-8. */
void json_write_string(const char *s, size_t len, struct strbuf *out);

/*
 * -EBADMSG with a sentence in `error`, -E2BIG when there are more than max_elements values, -ENOMEM. The
 * message is freed with protobuf_c_message_free_unpacked(m, NULL).
 */
int json_read_message(const ProtobufCMessageDescriptor *d, const char *s, size_t len,
		      size_t max_elements, ProtobufCMessage **ret,
		      char error[static JSON_ERROR_MAX]);

/* Standard or URL-safe alphabet, padded or not. -EBADMSG. */
int json_decode_base64(const char *s, size_t len, uint8_t **ret, size_t *ret_len);
