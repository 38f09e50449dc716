/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lexical half of the JSON reader: RFC 8259, strictly, over a byte range that need not end in NUL. */
#pragma once

#include "serve/json.h"

struct json_lexer {
	const char *p, *end, *begin;
	unsigned depth;
	size_t elements; /* still allowed */
	char *error; /* JSON_ERROR_MAX */
};

/* Says what was wrong and where; returns -EBADMSG. */
int json_fail(struct json_lexer *x, const char *what);

void json_skip_space(struct json_lexer *x);
/* The next byte behind white space, or 0 at the end (a NUL in the text is an error for everyone). */
char json_peek(struct json_lexer *x);
/* Takes the byte c behind white space, if it is there. */
bool json_take(struct json_lexer *x, char c);
/* Takes the word, if it is there. */
bool json_take_word(struct json_lexer *x, const char *word);
/* -E2BIG when the elements are used up. */
int json_count_element(struct json_lexer *x);
int json_enter(struct json_lexer *x);
void json_leave(struct json_lexer *x);

/* A string, unescaped and appended to *out: valid UTF-8 without NUL. */
int json_lex_string(struct json_lexer *x, struct strbuf *out);
/* A number's text, appended to *out. */
int json_lex_number(struct json_lexer *x, struct strbuf *out);
/* Any value, checked and dropped. */
int json_skip_value(struct json_lexer *x);
