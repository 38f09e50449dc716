// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names of code that was made at run time, by address. Maps are kept from one request to the next, least recently
 * used dropped first, within MAPS_BYTES; the one in use may be larger, within its own limits.
 */
#include "helper/limits.h"
#include "parser/internal.h"
#include "symbol/perf-map.h"

#define MAPS_MAX 256
#define MAPS_BYTES (24U << 20)
/* Of a file at once: some hundredths of a second. */
#define BUDGET (2U << 20)

struct cached_map {
	uint64_t dev, ino;
	struct perf_map *map;
	size_t bytes;
	uint64_t skipped, dropped; /* that were told */
	uint64_t used; /* the request that used it last */
};

struct maps {
	struct cached_map maps[MAPS_MAX];
	size_t n;
	size_t bytes;
	uint64_t clock;
};

static void drop(struct maps *m, struct cached_map *c)
{
	m->bytes -= c->bytes;
	perf_map_free(c->map);
	*c = m->maps[--m->n];
}

static struct cached_map *oldest(struct maps *m)
{
	struct cached_map *c = &m->maps[0];

	for (size_t i = 1; i < m->n; i++)
		if (m->maps[i].used < c->used)
			c = &m->maps[i];
	return c;
}

static int get_map(struct maps *m, const struct parsed_file *file, struct cached_map **ret)
{
	struct cached_map *c;
	int r;

	for (c = m->maps; c < m->maps + m->n; c++)
		if (c->dev == file->dev && c->ino == file->ino) {
			c->used = ++m->clock;
			*ret = c;
			return 0;
		}
	if (m->n == MAPS_MAX)
		drop(m, oldest(m));
	c = &m->maps[m->n];
	*c = (struct cached_map){ .dev = file->dev, .ino = file->ino, .used = ++m->clock };
	r = perf_map_new(&c->map);
	if (r < 0)
		return r;
	m->n++;
	*ret = c;
	return 0;
}

static int read_map(struct maps *m, struct cached_map *c, int fd, struct answer *a)
{
	struct perf_map_stats s;
	int r = perf_map_read(c->map, fd, BUDGET);

	perf_map_stats(c->map, &s);
	a->parsed = s.bytes > c->bytes;
	a->response.lines_skipped = s.skipped - c->skipped;
	a->response.entries_dropped = s.dropped - c->dropped;
	c->skipped = s.skipped;
	c->dropped = s.dropped;
	m->bytes += s.bytes - c->bytes;
	c->bytes = s.bytes;
	return r;
}

int maps_answer(struct maps *m, const Sysprofd__V1__ParseRequest *q, const struct input *file,
		struct answer *a)
{
	struct cached_map *c;
	int r;

	if (q->n_offsets > HELPER_OFFSETS_MAX)
		return -EINVAL;
	r = get_map(m, &file->id, &c);
	if (r >= 0)
		r = read_map(m, c, file->fd, a);
	if (r == 0)
		r = answer_make_symbols(a, q->n_offsets);
	else if (r > 0)
		r = -EAGAIN;
	for (size_t i = 0; r >= 0 && i < a->n; i++) {
		const char *name = perf_map_find(c->map, q->offsets[i]);

		a->symbols[i].name = strdup(name ?: "");
		if (!a->symbols[i].name)
			r = -ENOMEM;
	}
	/* The one that was asked for is the youngest. */
	while (m->n > 1 && m->bytes > MAPS_BYTES)
		drop(m, oldest(m));
	return r;
}

int maps_new(struct maps **ret)
{
	struct maps *m = new0(struct maps, 1);

	if (!m)
		return -ENOMEM;
	*ret = m;
	return 0;
}

struct maps *maps_free(struct maps *m)
{
	if (!m)
		return NULL;
	while (m->n)
		drop(m, &m->maps[0]);
	free(m);
	return NULL;
}
