/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names inside formats. A name may be any bytes here: a profile that came over a socket or from an old store
 * is not trusted to have been sanitised. Whatever goes in, valid UTF-8 that the format can hold comes out:
 * bytes that are not UTF-8 become U+FFFD, control characters '?'.
 */
#pragma once

#include "base/strbuf.h"

/* As XML character data or a double-quoted attribute value; valid in HTML too. */
void escape_xml(struct strbuf *out, const char *s);
/* A JSON string with its quotes. Control characters are kept, as \u escapes. */
void escape_json(struct strbuf *out, const char *s);
/* A frame of a folded stack: ';' becomes ':', as in stack_text(); nothing becomes [unknown]. */
void escape_folded(struct strbuf *out, const char *s);
/* Plain: for protobuf strings, which must be UTF-8 or the whole message is refused. */
void escape_utf8(struct strbuf *out, const char *s);

/*
 * Decodes one character of the len > 0 bytes at s: its length in bytes, and the code point in *ret. Bytes that
 * are no character count as U+FFFD of length 1.
 */
size_t utf8_next(const char *s, size_t len, uint32_t *ret);
