// SPDX-License-Identifier: GPL-2.0-or-later
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "ctl/json.h"
#include "export/escape.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void before_value(struct json *j)
{
	if (j->after_key) {
		j->after_key = false;
		return;
	}
	if (j->depth > 0 && j->more[j->depth - 1])
		strbuf_putc(j->out, ',');
	if (j->depth > 0)
		j->more[j->depth - 1] = true;
}

static void begin(struct json *j, char c)
{
	before_value(j);
	assert(j->depth < JSON_DEPTH);
	j->more[j->depth++] = false;
	strbuf_putc(j->out, c);
}

static void end(struct json *j, char c)
{
	assert(j->depth > 0 && !j->after_key);
	j->depth--;
	strbuf_putc(j->out, c);
}

void json_object(struct json *j)
{
	begin(j, '{');
}

void json_object_end(struct json *j)
{
	end(j, '}');
}

void json_array(struct json *j)
{
	begin(j, '[');
}

void json_array_end(struct json *j)
{
	end(j, ']');
}

void json_key(struct json *j, const char *key)
{
	before_value(j);
	escape_json(j->out, key);
	strbuf_putc(j->out, ':');
	j->after_key = true;
}

void json_string(struct json *j, const char *s)
{
	before_value(j);
	escape_json(j->out, s);
}

void json_unsigned(struct json *j, uint64_t v)
{
	before_value(j);
	strbuf_printf(j->out, "%" PRIu64, v);
}

void json_double(struct json *j, double v)
{
	char buf[32];

	before_value(j);
	if (!isfinite(v)) {
		strbuf_puts(j->out, "null");
		return;
	}
	/* The shorter form where it is the same number. */
	snprintf(buf, sizeof(buf), "%.15g", v);
	if (strtod(buf, NULL) != v)
		snprintf(buf, sizeof(buf), "%.17g", v);
	strbuf_puts(j->out, buf);
}

void json_bool(struct json *j, bool v)
{
	before_value(j);
	strbuf_puts(j->out, v ? "true" : "false");
}

void json_null(struct json *j)
{
	before_value(j);
	strbuf_puts(j->out, "null");
}

void json_put_string(struct json *j, const char *key, const char *s)
{
	json_key(j, key);
	json_string(j, s);
}

void json_put_unsigned(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_unsigned(j, v);
}

void json_time(struct json *j, uint64_t wall_ns)
{
	char buf[RFC3339_MAX];

	json_string(j, format_rfc3339(wall_ns, buf));
}

/* ---- looking into ---------------------------------------------------------------------------- */

struct cursor {
	const char *at, *end;
};

static void skip_space(struct cursor *c)
{
	while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at)
		c->at++;
}

static bool take(struct cursor *c, char wanted)
{
	skip_space(c);
	if (c->at == c->end || *c->at != wanted)
		return false;
	c->at++;
	return true;
}

static size_t put_utf8(char out[4], uint32_t code)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	/* Halves of surrogate pairs each become one sign for "unknown": this is text for a terminal. */
	if (code >= 0xd800 && code < 0xe000)
		code = 0xfffd;
	out[0] = (char)(0xe0 | code >> 12);
	out[1] = (char)(0x80 | (code >> 6 & 0x3f));
	out[2] = (char)(0x80 | (code & 0x3f));
	return 3;
}

/* The character behind a backslash; 0 bytes on error. */
static size_t take_escape(struct cursor *c, char out[4])
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *p;
	uint32_t code = 0;

	if (c->at == c->end)
		return 0;
	p = *c->at ? strchr(from, *c->at) : NULL;
	if (p) {
		c->at++;
		out[0] = to[p - from];
		return 1;
	}
	if (*c->at++ != 'u' || c->end - c->at < 4)
		return 0;
	for (int i = 0; i < 4; i++, c->at++) {
		unsigned char h = (unsigned char)*c->at;

		if (!isxdigit(h))
			return 0;
		code = code << 4 | (uint32_t)(isdigit(h) ? h - '0' : tolower(h) - 'a' + 10);
	}
	return put_utf8(out, code);
}

/* A string, decoded into buf (may be NULL to skip it); what does not fit is dropped. */
static bool take_string(struct cursor *c, char *buf, size_t size)
{
	size_t o = 0;

	if (!take(c, '"'))
		return false;
	while (c->at < c->end && *c->at != '"') {
		char bytes[4] = { *c->at++ };
		size_t n = bytes[0] == '\\' ? take_escape(c, bytes) : 1;

		if (n == 0)
			return false;
		if (buf && o + n < size) {
			memcpy(buf + o, bytes, n);
			o += n;
		}
	}
	if (c->at == c->end)
		return false;
	c->at++;
	if (buf)
		buf[o] = 0;
	return true;
}

/* Any value: strings are respected, brackets are counted. */
static bool skip_value(struct cursor *c)
{
	size_t depth = 0;

	do {
		skip_space(c);
		if (c->at == c->end)
			return false;
		if (*c->at == '"') {
			if (!take_string(c, NULL, 0))
				return false;
		} else if (*c->at == '{' || *c->at == '[') {
			depth++;
			c->at++;
		} else if (*c->at == '}' || *c->at == ']') {
			if (depth == 0)
				return false;
			depth--;
			c->at++;
		} else if (depth > 0 && (*c->at == ',' || *c->at == ':')) {
			c->at++;
		} else { /* a number or a word */
			const char *start = c->at;

			while (c->at < c->end && (isalnum((unsigned char)*c->at) || *c->at == '-' ||
						  *c->at == '+' || *c->at == '.'))
				c->at++;
			if (c->at == start)
				return false;
		}
	} while (depth > 0);
	return true;
}

/* Enters the object at the cursor and stops before the value of key. */
static bool find_member(struct cursor *c, const char *key)
{
	char name[64];

	if (!take(c, '{'))
		return false;
	for (;;) {
		if (!take_string(c, name, sizeof(name)) || !take(c, ':'))
			return false;
		if (streq(name, key))
			return true;
		if (!skip_value(c) || !take(c, ','))
			return false;
	}
}

bool json_find_string(const char *text, size_t len, const char *const *path, size_t n_path,
		      char *buf, size_t size)
{
	struct cursor c = { text, text + len };

	for (size_t i = 0; i < n_path; i++)
		if (!find_member(&c, path[i]))
			return false;
	return take_string(&c, buf, size);
}
