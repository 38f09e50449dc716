/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names come from comm, paths, cgroups, symbol tables: any bytes. They are made valid UTF-8 without
 * control characters once, at the border, and are trusted to be so behind it.
 */
#pragma once

#include "base/util.h"

/* Whether the len bytes are valid UTF-8 (RFC 3629: no surrogates, no overlong forms) without NUL. */
bool utf8_valid(const char *s, size_t len);

/*
 * Copies s into dst (size > 0), NUL-terminated, and returns the length: invalid bytes become U+FFFD,
 * control characters (below 0x20, 0x7f, U+0080..U+009F) become '?'. What does not fit is cut at a
 * character boundary.
 */
size_t utf8_sanitize(char *dst, size_t size, const char *s, size_t len);
