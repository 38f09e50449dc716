// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "base/strbuf.h"

void strbuf_done(struct strbuf *b)
{
	free(b->data);
	*b = (struct strbuf){};
}

void strbuf_reset(struct strbuf *b)
{
	b->len = 0;
	b->error = 0;
	if (b->data)
		b->data[0] = 0;
}

char *strbuf_reserve(struct strbuf *b, size_t len)
{
	int r;

	if (b->error)
		return NULL;
	if (len > SIZE_MAX - b->len - 1 || (b->limit && b->len + len > b->limit)) {
		b->error = -EFBIG;
		return NULL;
	}
	r = ARRAY_GROW(b->data, b->cap, b->len + len + 1);
	if (r < 0) {
		b->error = r;
		return NULL;
	}
	return b->data + b->len;
}

void strbuf_add(struct strbuf *b, const void *data, size_t len)
{
	char *p = strbuf_reserve(b, len);

	if (!p)
		return;
	if (len)
		memcpy(p, data, len);
	b->len += len;
	b->data[b->len] = 0;
}

void strbuf_puts(struct strbuf *b, const char *s)
{
	strbuf_add(b, s, strlen(s));
}

void strbuf_putc(struct strbuf *b, char c)
{
	strbuf_add(b, &c, 1);
}

void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap)
{
	va_list copy;
	char *p;
	int n;

	va_copy(copy, ap);
	n = vsnprintf(NULL, 0, fmt, copy);
	va_end(copy);
	if (n < 0) {
		b->error = -EINVAL;
		return;
	}
	p = strbuf_reserve(b, (size_t)n);
	if (!p)
		return;
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(b, fmt, ap);
	va_end(ap);
}

char *strbuf_take(struct strbuf *b, size_t *ret_len)
{
	char *p = b->data;

	if (ret_len)
		*ret_len = b->len;
	*b = (struct strbuf){};
	return p;
}
