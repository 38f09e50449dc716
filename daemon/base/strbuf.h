/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A growing byte buffer. The first failed append makes it sticky-failed: later appends do nothing,
 * and strbuf_error() says so once at the end, so that writers need no check per line.
 * data is NUL-terminated behind len whenever it is not NULL.
 */
#pragma once

#include <stdarg.h>

#include "base/util.h"

struct strbuf {
	char *data;
	size_t len;
	size_t cap;
	size_t limit; /* 0: none; an append beyond it fails with -EFBIG */
	int error;
};

void strbuf_done(struct strbuf *b);
void strbuf_reset(struct strbuf *b); /* empties, keeps the memory, clears the error */
void strbuf_add(struct strbuf *b, const void *data, size_t len);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *fmt, ...) _printf_(2, 3);
void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap) _printf_(2, 0);

/* Room for len more bytes at the end, to be filled by the caller, who then adds to len. NULL on error. */
char *strbuf_reserve(struct strbuf *b, size_t len);

static inline int strbuf_error(const struct strbuf *b)
{
	return b->error;
}

/* Hands the buffer over; the caller frees it. */
char *strbuf_take(struct strbuf *b, size_t *ret_len);
