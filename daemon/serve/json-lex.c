// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "base/utf8.h"
#include "serve/json-lex.h"

int json_fail(struct json_lexer *x, const char *what)
{
	snprintf(x->error, JSON_ERROR_MAX, "JSON, byte %zu: %s", (size_t)(x->p - x->begin), what);
	return -EBADMSG;
}

void json_skip_space(struct json_lexer *x)
{
	while (x->p < x->end && (*x->p == ' ' || *x->p == '\t' || *x->p == '\n' || *x->p == '\r'))
		x->p++;
}

char json_peek(struct json_lexer *x)
{
	json_skip_space(x);
	return x->p < x->end ? *x->p : 0;
}

bool json_take(struct json_lexer *x, char c)
{
	if (x->p >= x->end || json_peek(x) != c)
		return false;
	x->p++;
	return true;
}

bool json_take_word(struct json_lexer *x, const char *word)
{
	size_t n = strlen(word);

	json_skip_space(x);
	if ((size_t)(x->end - x->p) < n || memcmp(x->p, word, n) != 0)
		return false;
	x->p += n;
	return true;
}

int json_count_element(struct json_lexer *x)
{
	if (x->elements == 0) {
		json_fail(x, "too many values");
		return -E2BIG;
	}
	x->elements--;
	return 0;
}

int json_enter(struct json_lexer *x)
{
	if (x->depth >= JSON_MAX_DEPTH)
		return json_fail(x, "nested too deeply");
	x->depth++;
	return 0;
}

void json_leave(struct json_lexer *x)
{
	x->depth--;
}

/* Four hexadecimal digits behind "\u". */
static int lex_hex4(struct json_lexer *x, uint32_t *ret)
{
	uint32_t v = 0;

	if (x->end - x->p < 4)
		return json_fail(x, "incomplete \\u escape");
	for (int i = 0; i < 4; i++) {
		char c = x->p[i];

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v |= (uint32_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v |= (uint32_t)(c - 'A' + 10);
		else
			return json_fail(x, "bad \\u escape");
	}
	x->p += 4;
	*ret = v;
	return 0;
}

static void put_utf8(struct strbuf *out, uint32_t c)
{
	char b[4];
	size_t n;

	if (c < 0x80) {
		b[0] = (char)c;
		n = 1;
	} else if (c < 0x800) {
		b[0] = (char)(0xc0 | c >> 6);
		b[1] = (char)(0x80 | (c & 63));
		n = 2;
	} else if (c < 0x10000) {
		b[0] = (char)(0xe0 | c >> 12);
		b[1] = (char)(0x80 | (c >> 6 & 63));
		b[2] = (char)(0x80 | (c & 63));
		n = 3;
	} else {
		b[0] = (char)(0xf0 | c >> 18);
		b[1] = (char)(0x80 | (c >> 12 & 63));
		b[2] = (char)(0x80 | (c >> 6 & 63));
		b[3] = (char)(0x80 | (c & 63));
		n = 4;
	}
	strbuf_add(out, b, n);
}

static int lex_unicode_escape(struct json_lexer *x, struct strbuf *out)
{
	uint32_t c, low;
	int r = lex_hex4(x, &c);

	if (r < 0)
		return r;
	if (c >= 0xdc00 && c <= 0xdfff)
		return json_fail(x, "lone surrogate");
	if (c >= 0xd800 && c <= 0xdbff) {
		if (x->end - x->p < 2 || x->p[0] != '\\' || x->p[1] != 'u')
			return json_fail(x, "lone surrogate");
		x->p += 2;
		r = lex_hex4(x, &low);
		if (r < 0)
			return r;
		if (low < 0xdc00 || low > 0xdfff)
			return json_fail(x, "lone surrogate");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	if (c == 0)
		return json_fail(x, "NUL in a string");
	put_utf8(out, c);
	return 0;
}

static int lex_escape(struct json_lexer *x, struct strbuf *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	char c;

	if (x->p >= x->end)
		return json_fail(x, "incomplete escape");
	c = *x->p++;
	if (c == 'u')
		return lex_unicode_escape(x, out);
	at = c ? strchr(from, c) : NULL;
	if (!at)
		return json_fail(x, "unknown escape");
	strbuf_putc(out, to[at - from]);
	return 0;
}

int json_lex_string(struct json_lexer *x, struct strbuf *out)
{
	int r;

	if (!json_take(x, '"'))
		return json_fail(x, "a string is expected");
	for (;;) {
		const char *start = x->p;

		while (x->p < x->end && *x->p != '"' && *x->p != '\\' &&
		       (unsigned char)*x->p >= 0x20)
			x->p++;
		if (!utf8_valid(start, (size_t)(x->p - start)))
			return json_fail(x, "not valid UTF-8");
		strbuf_add(out, start, (size_t)(x->p - start));
		if (x->p >= x->end)
			return json_fail(x, "the string does not end");
		if (*x->p == '"') {
			x->p++;
			return strbuf_error(out);
		}
		if (*x->p != '\\')
			return json_fail(x, "control character in a string");
		x->p++;
		r = lex_escape(x, out);
		if (r < 0)
			return r;
	}
}

static size_t take_digits(struct json_lexer *x)
{
	const char *start = x->p;

	while (x->p < x->end && *x->p >= '0' && *x->p <= '9')
		x->p++;
	return (size_t)(x->p - start);
}

int json_lex_number(struct json_lexer *x, struct strbuf *out)
{
	const char *start;
	size_t n;

	json_skip_space(x);
	start = x->p;
	if (x->p < x->end && *x->p == '-')
		x->p++;
	n = take_digits(x);
	if (n == 0)
		return json_fail(x, "a number is expected");
	if (n > 1 && x->p[-(ptrdiff_t)n] == '0')
		return json_fail(x, "a number with a leading zero");
	if (x->p < x->end && *x->p == '.') {
		x->p++;
		if (take_digits(x) == 0)
			return json_fail(x, "digits are missing behind the point");
	}
	if (x->p < x->end && (*x->p == 'e' || *x->p == 'E')) {
		x->p++;
		if (x->p < x->end && (*x->p == '+' || *x->p == '-'))
			x->p++;
		if (take_digits(x) == 0)
			return json_fail(x, "digits are missing in the exponent");
	}
	strbuf_add(out, start, (size_t)(x->p - start));
	return strbuf_error(out);
}

static int skip_members(struct json_lexer *x, bool object, struct strbuf *scratch)
{
	char close = object ? '}' : ']';
	int r;

	x->p++;
	if (json_take(x, close))
		return 0;
	for (;;) {
		r = json_count_element(x);
		if (r < 0)
			return r;
		if (object) {
			strbuf_reset(scratch);
			r = json_lex_string(x, scratch);
			if (r < 0)
				return r;
			if (!json_take(x, ':'))
				return json_fail(x, "':' is expected");
		}
		r = json_skip_value(x);
		if (r < 0)
			return r;
		if (json_take(x, close))
			return 0;
		if (!json_take(x, ','))
			return json_fail(x, "',' is expected");
	}
}

int json_skip_value(struct json_lexer *x)
{
	_cleanup_(strbuf_done) struct strbuf scratch = {};
	char c = json_peek(x);
	int r;

	if (c == '"')
		return json_lex_string(x, &scratch);
	if (c == '{' || c == '[') {
		r = json_enter(x);
		if (r < 0)
			return r;
		r = skip_members(x, c == '{', &scratch);
		json_leave(x);
		return r;
	}
	if (json_take_word(x, "true") || json_take_word(x, "false") || json_take_word(x, "null"))
		return 0;
	return json_lex_number(x, &scratch);
}
