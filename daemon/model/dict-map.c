// SPDX-License-Identifier: GPL-2.0-or-later
/* From one dictionary into another. Tables grow with `from`, which may grow while the map lives. */
#include "model/profile.h"

void dict_map_init(struct dict_map *m, const struct dict *from, struct dict *to)
{
	*m = (struct dict_map){ .from = from, .to = to };
	m->string.appended = m->binary.appended = m->frame.appended = 1;
	m->stack.appended = m->series.appended = m->lock.appended = 1;
}

void dict_map_done(struct dict_map *m)
{
	free(m->string.ids);
	free(m->binary.ids);
	free(m->frame.ids);
	free(m->stack.ids);
	free(m->series.ids);
	free(m->lock.ids);
	*m = (struct dict_map){};
}

/* The slot of id, or NULL with *ret_error: an id from outside that names nothing, or no memory. */
static uint32_t *slot(struct dict_map_table *t, size_t n, uint32_t id, int *ret_error)
{
	if (id >= n) {
		*ret_error = -EBADMSG;
		return NULL;
	}
	*ret_error = ARRAY_GROW(t->ids, t->cap, n);
	return *ret_error < 0 ? NULL : &t->ids[id];
}

/* Stores a new id behind id and passes it (or the error) on. */
static int64_t keep(struct dict_map_table *t, uint32_t id, int64_t mapped)
{
	if (mapped > 0)
		t->ids[id] = (uint32_t)mapped;
	return mapped;
}

/*
 * Different elements of one dictionary stay different in another. So while the target holds only what came from
 * this one, an element that comes for the first time is new there.
 */
static bool is_new(const struct dict_map *m, const struct dict_map_table *t, size_t n_to)
{
	return t->appended == n_to && !m->from->repeats;
}

#define ADD(m, func, items, ...)                                        \
	({                                                              \
		struct dict_map_table *_t = &(m)->func;                 \
		int64_t _to;                                            \
		if (is_new(m, _t, (m)->to->n_##items)) {                \
			_to = dict_append_##func((m)->to, __VA_ARGS__); \
			_t->appended = (m)->to->n_##items;              \
		} else {                                                \
			_to = dict_##func((m)->to, __VA_ARGS__);        \
		}                                                       \
		_to;                                                    \
	})

#define LOOK_UP(m, table, n, id)                        \
	do {                                            \
		int _e;                                 \
		uint32_t *_s;                           \
		if ((id) == 0)                          \
			return 0;                       \
		_s = slot(&(m)->table, (n), (id), &_e); \
		if (!_s)                                \
			return _e;                      \
		if (*_s)                                \
			return *_s;                     \
	} while (0)

/* Maps a member in place; returns from the caller on error. */
#define MAP_MEMBER(m, func, member)                      \
	do {                                             \
		int64_t _v = dict_map_##func(m, member); \
		if (_v < 0)                              \
			return _v;                       \
		(member) = (uint32_t)_v;                 \
	} while (0)

int64_t dict_map_string(struct dict_map *m, uint32_t id)
{
	LOOK_UP(m, string, m->from->n_strings, id);
	return keep(&m->string, id, ADD(m, string, strings, m->from->strings[id]));
}

int64_t dict_map_binary(struct dict_map *m, uint32_t id)
{
	struct binary b;

	LOOK_UP(m, binary, m->from->n_binaries, id);
	b = m->from->binaries[id];
	MAP_MEMBER(m, string, b.name);
	MAP_MEMBER(m, string, b.path);
	MAP_MEMBER(m, string, b.build_id);
	return keep(&m->binary, id, ADD(m, binary, binaries, &b));
}

int64_t dict_map_frame(struct dict_map *m, uint32_t id)
{
	struct frame f;

	LOOK_UP(m, frame, m->from->n_frames, id);
	f = m->from->frames[id];
	MAP_MEMBER(m, binary, f.binary);
	MAP_MEMBER(m, string, f.name);
	MAP_MEMBER(m, string, f.system_name);
	MAP_MEMBER(m, string, f.file);
	return keep(&m->frame, id, ADD(m, frame, frames, &f));
}

/*
 * Parents have smaller ids than their children, so the chain ends; it is walked without recursion because
 * it may be 600 frames long and comes from a file.
 */
int64_t dict_map_stack(struct dict_map *m, uint32_t id)
{
	uint32_t path[1024];
	size_t depth = 0;
	int64_t mapped = 0;

	LOOK_UP(m, stack, m->from->n_stacks, id);
	for (uint32_t i = id; i; i = m->from->stacks[i].parent) {
		if (i >= m->from->n_stacks || m->from->stacks[i].parent >= i)
			return -EBADMSG;
		if (m->stack.ids[i]) {
			mapped = m->stack.ids[i];
			break;
		}
		if (depth == ARRAY_SIZE(path))
			return -EBADMSG;
		path[depth++] = i;
	}
	while (depth > 0) {
		uint32_t i = path[--depth];
		int64_t frame = dict_map_frame(m, m->from->stacks[i].frame);

		if (frame < 0)
			return frame;
		mapped = keep(&m->stack, i,
			      ADD(m, stack, stacks, (uint32_t)mapped, (uint32_t)frame));
		if (mapped < 0)
			return mapped;
	}
	return mapped;
}

int64_t dict_map_series(struct dict_map *m, uint32_t id)
{
	struct series s;

	LOOK_UP(m, series, m->from->n_series, id);
	s = m->from->series[id];
	for (size_t i = 0; i < LABEL_N; i++)
		MAP_MEMBER(m, string, s.label[i]);
	return keep(&m->series, id, ADD(m, series, series, &s));
}

int64_t dict_map_lock(struct dict_map *m, uint32_t id)
{
	struct lock l;

	LOOK_UP(m, lock, m->from->n_locks, id);
	l = m->from->locks[id];
	MAP_MEMBER(m, binary, l.binary);
	MAP_MEMBER(m, string, l.name);
	return keep(&m->lock, id, ADD(m, lock, locks, &l));
}
