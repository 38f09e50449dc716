// SPDX-License-Identifier: GPL-2.0-or-later
/* Sets of CPU ids, as /sys/devices/system/cpu/{possible,online} list them. Ids may be sparse. */
#include <ctype.h>
#include <fcntl.h>

#include "base/io.h"
#include "collect/internal.h"

void cpu_set_done(struct cpu_set *s)
{
	free(s->bits);
	*s = (struct cpu_set){};
}

bool cpu_set_has(const struct cpu_set *s, unsigned cpu)
{
	return cpu < s->n && s->bits[cpu / 64] >> cpu % 64 & 1;
}

unsigned cpu_set_count(const struct cpu_set *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < (s->n + 63) / 64; i++)
		n += __builtin_popcountll(s->bits[i]);
	return n;
}

static int parse_id(const char **p, unsigned limit, unsigned *ret)
{
	unsigned long v;
	char *end;

	if (!isdigit((unsigned char)**p))
		return -EINVAL;
	errno = 0;
	v = strtoul(*p, &end, 10);
	if (errno || v >= limit)
		return -ERANGE;
	*p = end;
	*ret = v;
	return 0;
}

int cpu_set_parse(const char *text, unsigned limit, struct cpu_set *ret)
{
	_cleanup_(cpu_set_done) struct cpu_set s = { .bits = new0(uint64_t, (limit + 63) / 64) };
	const char *p = text;
	int r;

	if (!s.bits)
		return -ENOMEM;
	while (*p && *p != '\n') {
		unsigned first, last;

		r = parse_id(&p, limit, &first);
		if (r < 0)
			return r;
		last = first;
		if (*p == '-') {
			p++;
			r = parse_id(&p, limit, &last);
			if (r < 0)
				return r;
		}
		if (last < first)
			return -EINVAL;
		for (unsigned i = first; i <= last; i++)
			s.bits[i / 64] |= 1ULL << i % 64;
		s.n = MAX(s.n, last + 1);
		if (*p == ',' && p[1] && p[1] != '\n')
			p++;
		else if (*p && *p != '\n')
			return -EINVAL;
	}
	*ret = s;
	s.bits = NULL;
	return 0;
}

int cpu_set_read(const char *path, unsigned limit, struct cpu_set *ret)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	int r = read_file_at(AT_FDCWD, path, 1 << 16, &b);

	if (r < 0)
		return r;
	return cpu_set_parse(b.data ?: "", limit, ret);
}
