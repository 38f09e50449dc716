// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/utf8.h"

/* The length of the valid character at s (1..4), or 0. Table 3-7 of the Unicode standard. */
static size_t char_len(const unsigned char *s, size_t len)
{
	unsigned char lo = 0x80, hi = 0xbf;
	size_t n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf) {
		n = 2;
	} else if (s[0] >= 0xe0 && s[0] <= 0xef) {
		n = 3;
		if (s[0] == 0xe0)
			lo = 0xa0;
		if (s[0] == 0xed)
			hi = 0x9f;
	} else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
		n = 4;
		if (s[0] == 0xf0)
			lo = 0x90;
		if (s[0] == 0xf4)
			hi = 0x8f;
	} else {
		return 0;
	}
	if (len < n || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

bool utf8_valid(const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t n = char_len((const unsigned char *)s + i, len - i);

		if (n == 0 || s[i] == 0)
			return false;
		i += n;
	}
	return true;
}

size_t utf8_sanitize(char *dst, size_t size, const char *s, size_t len)
{
	size_t o = 0;

	assert(size > 0);
	for (size_t i = 0; i < len;) {
		const unsigned char *c = (const unsigned char *)s + i;
		const char *from = s + i;
		size_t n = char_len(c, len - i), out = n;

		if (n == 0) {
			from = "\xef\xbf\xbd";
			n = 1;
			out = 3;
		} else if (c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0)) {
			from = "?";
			out = 1;
		}
		if (o + out >= size)
			break;
		memcpy(dst + o, from, out);
		o += out;
		i += n;
	}
	dst[o] = 0;
	return o;
}
