/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * JSON, written: commas are this writer's business. And a look into JSON that was received: Connect's errors
 * are JSON whatever the codec is.
 */
#pragma once

#include "base/strbuf.h"

#define JSON_DEPTH 32

struct json {
	struct strbuf *out;
	unsigned depth;
	bool more[JSON_DEPTH]; /* something precedes at this depth */
	bool after_key;
};

void json_object(struct json *j);
void json_object_end(struct json *j);
void json_array(struct json *j);
void json_array_end(struct json *j);
void json_key(struct json *j, const char *key);
void json_string(struct json *j, const char *s);
void json_unsigned(struct json *j, uint64_t v);
void json_double(struct json *j, double v); /* what is not finite is null */
void json_bool(struct json *j, bool v);
void json_null(struct json *j);
/* A member of the object at hand. */
void json_put_string(struct json *j, const char *key, const char *s);
void json_put_unsigned(struct json *j, const char *key, uint64_t v);
/* Nanoseconds since the epoch as RFC 3339 in UTC. */
void json_time(struct json *j, uint64_t wall_ns);

/*
 * The string at the path of keys in a JSON text, decoded into buf and cut at its end. False when there is
 * none, also where the text is no JSON up to there. Does not recurse.
 */
bool json_find_string(const char *text, size_t len, const char *const *path, size_t n_path,
		      char *buf, size_t size);
