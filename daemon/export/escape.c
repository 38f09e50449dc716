// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/utf8.h"
#include "export/escape.h"

#define REPLACEMENT 0xfffd

size_t utf8_next(const char *s, size_t len, uint32_t *ret)
{
	unsigned char c = (unsigned char)s[0];
	size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	uint32_t code = n == 1 ? c : c & (0x7fu >> n);

	/* utf8_valid() refuses NUL, which is a character like others here. */
	if (n > len || (c != 0 && !utf8_valid(s, n))) {
		*ret = REPLACEMENT;
		return 1;
	}
	for (size_t i = 1; i < n; i++)
		code = code << 6 | ((unsigned char)s[i] & 0x3f);
	*ret = code;
	return n;
}

static bool is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static void put_char(struct strbuf *out, const char *s, size_t n, uint32_t code)
{
	if (code == REPLACEMENT)
		strbuf_puts(out, "\xef\xbf\xbd");
	else
		strbuf_add(out, s, n);
}

void escape_xml(struct strbuf *out, const char *s)
{
	size_t len = strlen(s), n;
	uint32_t c;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_next(s + i, len - i, &c);
		if (c == '&')
			strbuf_puts(out, "&amp;");
		else if (c == '<')
			strbuf_puts(out, "&lt;");
		else if (c == '>')
			strbuf_puts(out, "&gt;");
		else if (c == '"')
			strbuf_puts(out, "&quot;");
		else if (c == '\'')
			strbuf_puts(out, "&#39;");
		else if (is_control(c))
			strbuf_putc(out, '?');
		else /* U+FFFE and U+FFFF are no XML characters */
			put_char(out, s + i, n, c == 0xfffe || c == 0xffff ? REPLACEMENT : c);
	}
}

void escape_json(struct strbuf *out, const char *s)
{
	size_t len = strlen(s), n;
	uint32_t c;

	strbuf_putc(out, '"');
	for (size_t i = 0; i < len; i += n) {
		n = utf8_next(s + i, len - i, &c);
		if (c == '"' || c == '\\')
			strbuf_printf(out, "\\%c", (char)c);
		else if (c == '\n')
			strbuf_puts(out, "\\n");
		else if (is_control(c) ||
			 c == '<') /* '<': the text may lie within a script element */
			strbuf_printf(out, "\\u%04x", c);
		else
			put_char(out, s + i, n, c);
	}
	strbuf_putc(out, '"');
}

void escape_folded(struct strbuf *out, const char *s)
{
	size_t len = strlen(s), n;
	uint32_t c;

	if (len == 0)
		strbuf_puts(out, "[unknown]");
	for (size_t i = 0; i < len; i += n) {
		n = utf8_next(s + i, len - i, &c);
		if (c == ';')
			strbuf_putc(out, ':');
		else if (is_control(c))
			strbuf_putc(out, '?');
		else
			put_char(out, s + i, n, c);
	}
}

void escape_utf8(struct strbuf *out, const char *s)
{
	size_t len = strlen(s), n;
	uint32_t c;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_next(s + i, len - i, &c);
		if (is_control(c))
			strbuf_putc(out, '?');
		else
			put_char(out, s + i, n, c);
	}
}
