// SPDX-License-Identifier: GPL-2.0-or-later
/* Interning. Every kind of element is an array that only grows and an index from its hash to its id. */
#include <sys/random.h>
#include <xxhash.h>

#include "model/profile.h"

#define MAX_ELEMENTS (1U << 31)

static uint64_t hash_bytes(const struct dict *d, const void *p, size_t n)
{
	return XXH3_64bits_withSeed(p, n, d->seed);
}

/* Makes room for one more element behind *n, the first being the unused one with id 0. */
#define ROOM(items, n, cap)                                    \
	({                                                     \
		int _e = (n) >= MAX_ELEMENTS ? -ENOSPC : 0;    \
		_e < 0 ? _e : ARRAY_GROW(items, cap, (n) + 1); \
	})

int dict_new(struct dict **ret)
{
	_cleanup_(dict_free_p) struct dict *d = new0(struct dict, 1);
	int r;

	if (!d)
		return -ENOMEM;
	if (getrandom(&d->seed, sizeof(d->seed), GRND_NONBLOCK) != sizeof(d->seed))
		d->seed = (uintptr_t)d;
	r = ROOM(d->strings, d->n_strings, d->cap_strings);
	if (r >= 0)
		r = ROOM(d->binaries, d->n_binaries, d->cap_binaries);
	if (r >= 0)
		r = ROOM(d->frames, d->n_frames, d->cap_frames);
	if (r >= 0)
		r = ROOM(d->stacks, d->n_stacks, d->cap_stacks);
	if (r >= 0)
		r = ROOM(d->series, d->n_series, d->cap_series);
	if (r >= 0)
		r = ROOM(d->locks, d->n_locks, d->cap_locks);
	if (r < 0)
		return r;
	d->strings[0] = strdup("");
	if (!d->strings[0])
		return -ENOMEM;
	d->n_strings = d->n_binaries = d->n_frames = d->n_stacks = d->n_series = d->n_locks = 1;
	dict_forget_indices(d);
	*ret = TAKE_PTR(d);
	return 0;
}

void dict_forget_indices(struct dict *d)
{
	index_done(&d->string_index);
	index_done(&d->binary_index);
	index_done(&d->frame_index);
	index_done(&d->stack_index);
	index_done(&d->series_index);
	index_done(&d->lock_index);
	d->indexed_strings = d->indexed_binaries = d->indexed_frames = 1;
	d->indexed_stacks = d->indexed_series = d->indexed_locks = 1;
}

struct dict *dict_free(struct dict *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_strings; i++)
		free(d->strings[i]);
	free(d->strings);
	free(d->binaries);
	free(d->frames);
	free(d->stacks);
	free(d->series);
	free(d->locks);
	dict_forget_indices(d);
	free(d);
	return NULL;
}

static int copy_array(void **to, size_t *to_cap, const void *from, size_t n, size_t size)
{
	int r = array_grow(to, to_cap, n, size);

	if (r >= 0)
		memcpy(*to, from, n * size);
	return r;
}

static int copy_index(struct index *to, const struct index *from)
{
	size_t bytes = (from->mask + 1) * sizeof(*from->slots);

	if (!from->slots)
		return 0;
	to->slots = malloc(bytes);
	if (!to->slots)
		return -ENOMEM;
	memcpy(to->slots, from->slots, bytes);
	to->mask = from->mask;
	to->n = from->n;
	return 0;
}

#define COPY_KIND(c, d, items)                                                          \
	({                                                                              \
		void *_p = NULL;                                                        \
		int _e = copy_array(&_p, &(c)->cap_##items, (d)->items, (d)->n_##items, \
				    sizeof(*(d)->items));                               \
		(c)->items = _p;                                                        \
		(c)->n_##items = _e < 0 ? 0 : (d)->n_##items;                           \
		_e;                                                                     \
	})

int dict_copy(const struct dict *d, struct dict **ret)
{
	_cleanup_(dict_free_p) struct dict *c = new0(struct dict, 1);

	if (!c)
		return -ENOMEM;
	c->seed = d->seed;
	c->bytes = d->bytes;
	c->repeats = d->repeats;
	c->indexed_strings = d->indexed_strings;
	c->indexed_binaries = d->indexed_binaries;
	c->indexed_frames = d->indexed_frames;
	c->indexed_stacks = d->indexed_stacks;
	c->indexed_series = d->indexed_series;
	c->indexed_locks = d->indexed_locks;
	if (ARRAY_GROW(c->strings, c->cap_strings, d->n_strings) < 0)
		return -ENOMEM;
	for (; c->n_strings < d->n_strings; c->n_strings++) {
		c->strings[c->n_strings] = strdup(d->strings[c->n_strings]);
		if (!c->strings[c->n_strings])
			return -ENOMEM;
	}
	if (COPY_KIND(c, d, binaries) < 0 || COPY_KIND(c, d, frames) < 0 ||
	    COPY_KIND(c, d, stacks) < 0 || COPY_KIND(c, d, series) < 0 ||
	    COPY_KIND(c, d, locks) < 0)
		return -ENOMEM;
	if (copy_index(&c->string_index, &d->string_index) < 0 ||
	    copy_index(&c->binary_index, &d->binary_index) < 0 ||
	    copy_index(&c->frame_index, &d->frame_index) < 0 ||
	    copy_index(&c->stack_index, &d->stack_index) < 0 ||
	    copy_index(&c->series_index, &d->series_index) < 0 ||
	    copy_index(&c->lock_index, &d->lock_index) < 0)
		return -ENOMEM;
	*ret = TAKE_PTR(c);
	return 0;
}

/*
 * Adds to an index what was appended since it was last asked. The room is made at once: an index that grows
 * with its elements is written several times over. A full dictionary takes nothing more.
 */
#define CATCH_UP(d, items, one_index, hash_of)                                           \
	({                                                                               \
		size_t *_done = &(d)->indexed_##items;                                   \
		int _c = 0;                                                              \
		size_t _n = (d)->n_##items < MAX_ELEMENTS ? (d)->n_##items : 0;          \
		if (*_done < _n)                                                         \
			_c = index_reserve(&(d)->one_index, _n - *_done);                \
		while (_c >= 0 && *_done < _n) {                                         \
			_c = index_add(&(d)->one_index, hash_of(d, &(d)->items[*_done]), \
				       (uint32_t)*_done);                                \
			*_done += _c >= 0;                                               \
		}                                                                        \
		_c;                                                                      \
	})

/* ---- strings --------------------------------------------------------------------------------- */

struct string_key {
	const char *s;
	size_t len;
};

static bool string_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct dict *d = ctx;
	const struct string_key *k = key;

	return strncmp(d->strings[id], k->s, k->len) == 0 && d->strings[id][k->len] == 0;
}

static uint64_t string_hash(const struct dict *d, char *const *s)
{
	return hash_bytes(d, *s, strlen(*s));
}

static int64_t append_string(struct dict *d, const char *s, size_t len)
{
	_cleanup_free_ char *copy = NULL;
	int r;

	if (len == 0)
		return 0;
	copy = strndup(s, len);
	if (!copy)
		return -ENOMEM;
	r = ROOM(d->strings, d->n_strings, d->cap_strings);
	if (r < 0)
		return r;
	d->bytes += len + 1;
	d->strings[d->n_strings] = TAKE_PTR(copy);
	return (int64_t)d->n_strings++;
}

int64_t dict_append_string(struct dict *d, const char *s)
{
	return append_string(d, s, strlen(s));
}

int64_t dict_string_n(struct dict *d, const char *s, size_t len)
{
	struct string_key key = { .s = s, .len = len };
	uint64_t hash;
	int64_t id;
	int r;

	if (len == 0)
		return 0;
	r = CATCH_UP(d, strings, string_index, string_hash);
	if (r < 0)
		return r;
	hash = hash_bytes(d, s, len);
	id = index_find(&d->string_index, hash, string_equal, d, &key);
	if (id)
		return id;
	id = append_string(d, s, len);
	if (id < 0)
		return id;
	/* Without memory it is there, and will be in the index when there is some. */
	r = index_add(&d->string_index, hash, (uint32_t)id);
	if (r < 0)
		return r;
	d->indexed_strings++;
	return id;
}

int64_t dict_string(struct dict *d, const char *s)
{
	return s ? dict_string_n(d, s, strlen(s)) : 0;
}

/* ---- fixed-size elements ---------------------------------------------------------------------- */

#define APPEND(d, items, value)                                                  \
	({                                                                       \
		int64_t _a = ROOM((d)->items, (d)->n_##items, (d)->cap_##items); \
		if (_a >= 0) {                                                   \
			(d)->items[(d)->n_##items] = *(value);                   \
			_a = (int64_t)(d)->n_##items++;                          \
		}                                                                \
		_a;                                                              \
	})

/* Finds or appends *value. */
#define INTERN(d, items, one_index, hash_of, equal, value)                              \
	({                                                                              \
		int64_t _id = CATCH_UP(d, items, one_index, hash_of);                   \
		uint64_t _h = hash_of(d, value);                                        \
		if (_id >= 0)                                                           \
			_id = index_find(&(d)->one_index, _h, equal, d, value);         \
		if (_id == 0) {                                                         \
			_id = APPEND(d, items, value);                                  \
			if (_id > 0) {                                                  \
				int _i = index_add(&(d)->one_index, _h, (uint32_t)_id); \
				(d)->indexed_##items += _i >= 0;                        \
				_id = _i < 0 ? _i : _id;                                \
			}                                                               \
		}                                                                       \
		_id;                                                                    \
	})

static bool binary_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct binary *a = &((const struct dict *)ctx)->binaries[id], *b = key;

	if (a->build_id || b->build_id)
		return a->build_id == b->build_id && a->kind == b->kind &&
		       a->generation == b->generation;
	return memcmp(a, b, sizeof(*a)) == 0;
}

static uint64_t binary_hash(const struct dict *d, const struct binary *b)
{
	uint64_t claim[2] = { b->build_id, b->generation };

	return b->build_id ? hash_bytes(d, claim, sizeof(claim)) : hash_bytes(d, b, sizeof(*b));
}

int64_t dict_binary(struct dict *d, const struct binary *b)
{
	return INTERN(d, binaries, binary_index, binary_hash, binary_equal, b);
}

int64_t dict_append_binary(struct dict *d, const struct binary *b)
{
	return APPEND(d, binaries, b);
}

static bool known_by_name(const struct frame *f)
{
	return f->kind == FRAME_MARKER || f->kind == FRAME_JIT || (f->flags & FRAME_INLINE);
}

static bool frame_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct frame *a = &((const struct dict *)ctx)->frames[id], *b = key;

	return a->binary == b->binary && a->offset == b->offset && a->kind == b->kind &&
	       ((a->flags ^ b->flags) & FRAME_INLINE) == 0 &&
	       (!known_by_name(a) || a->name == b->name);
}

static uint64_t frame_hash(const struct dict *d, const struct frame *f)
{
	uint64_t key[3] = { f->offset, (uint64_t)f->binary << 32 | f->kind,
			    known_by_name(f) ? f->name : 0 };

	return hash_bytes(d, key, sizeof(key));
}

int64_t dict_frame(struct dict *d, const struct frame *f)
{
	int64_t id = INTERN(d, frames, frame_index, frame_hash, frame_equal, f);

	if (id > 0 && (f->flags & FRAME_NAMED) && !(d->frames[id].flags & FRAME_NAMED))
		d->frames[id] = *f;
	return id;
}

int64_t dict_append_frame(struct dict *d, const struct frame *f)
{
	return APPEND(d, frames, f);
}

static bool stack_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct stack *a = &((const struct dict *)ctx)->stacks[id], *b = key;

	return a->parent == b->parent && a->frame == b->frame;
}

static uint64_t stack_hash(const struct dict *d, const struct stack *s)
{
	return hash_bytes(d, s, sizeof(*s));
}

int64_t dict_stack(struct dict *d, uint32_t parent, uint32_t frame)
{
	struct stack s = { .parent = parent, .frame = frame };

	return INTERN(d, stacks, stack_index, stack_hash, stack_equal, &s);
}

int64_t dict_append_stack(struct dict *d, uint32_t parent, uint32_t frame)
{
	struct stack s = { .parent = parent, .frame = frame };

	return APPEND(d, stacks, &s);
}

static bool series_equal(const void *ctx, uint32_t id, const void *key)
{
	return memcmp(&((const struct dict *)ctx)->series[id], key, sizeof(struct series)) == 0;
}

static uint64_t series_hash(const struct dict *d, const struct series *s)
{
	return hash_bytes(d, s, sizeof(*s));
}

int64_t dict_series(struct dict *d, const struct series *s)
{
	return INTERN(d, series, series_index, series_hash, series_equal, s);
}

int64_t dict_append_series(struct dict *d, const struct series *s)
{
	return APPEND(d, series, s);
}

/* A lock is the place of its word, whatever it is called; what has no place, such as LOCK_OTHER, is its name. */
static uint32_t lock_identity_name(const struct lock *l)
{
	return l->pid || l->address || l->binary ? 0 : l->name;
}

static bool lock_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct lock *a = &((const struct dict *)ctx)->locks[id], *b = key;

	return a->pid == b->pid && a->address == b->address && a->binary == b->binary &&
	       a->offset == b->offset && (a->flags & 1) == (b->flags & 1) &&
	       lock_identity_name(a) == lock_identity_name(b);
}

static uint64_t lock_hash(const struct dict *d, const struct lock *l)
{
	uint64_t key[4] = { l->address, l->offset, (uint64_t)l->pid << 32 | l->binary,
			    (uint64_t)lock_identity_name(l) << 1 | (l->flags & 1) };

	return hash_bytes(d, key, sizeof(key));
}

int64_t dict_lock(struct dict *d, const struct lock *l)
{
	int64_t id = INTERN(d, locks, lock_index, lock_hash, lock_equal, l);

	if (id > 0 && (l->flags & 2) && !(d->locks[id].flags & 2))
		d->locks[id] = *l;
	return id;
}

int64_t dict_append_lock(struct dict *d, const struct lock *l)
{
	return APPEND(d, locks, l);
}

int64_t dict_marker(struct dict *d, const char *name)
{
	struct frame f = { .kind = FRAME_MARKER, .flags = FRAME_NAMED };
	int64_t id = dict_string(d, name);

	if (id < 0)
		return id;
	f.name = (uint32_t)id;
	return dict_frame(d, &f);
}
