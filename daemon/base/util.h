/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The small vocabulary of this project: scope-bound ownership, hand-over of owned values, array
 * growth. Conventions: fallible functions return 0 or a negative errno, outputs are named ret_*
 * and stay untouched on failure, destructors accept NULL and return NULL.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _unused_ __attribute__((unused))
#define _warn_unused_ __attribute__((warn_unused_result))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CLAMP(v, lo, hi) MIN(MAX((v), (lo)), (hi))

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC 1000000000ULL

#define TAKE_PTR(p)                        \
	({                                 \
		__typeof__(p) *_pp = &(p); \
		__typeof__(p) _v = *_pp;   \
		*_pp = NULL;               \
		_v;                        \
	})

#define TAKE_FD(fd)               \
	({                        \
		int *_pf = &(fd); \
		int _f = *_pf;    \
		*_pf = -1;        \
		_f;               \
	})

static inline void free_p(void *p)
{
	free(*(void **)p);
}

/* Closes and returns -1, so that `fd = close_fd(fd)` leaves no stale number behind. errno is kept. */
static inline int close_fd(int fd)
{
	if (fd >= 0) {
		int e = errno;

		close(fd);
		errno = e;
	}
	return -1;
}

static inline void close_p(int *fd)
{
	close_fd(*fd);
}

#define _cleanup_free_ _cleanup_(free_p)
#define _cleanup_close_ _cleanup_(close_p)

/* DEFINE_CLEANUP(struct foo *, foo_free) makes foo_free_p() for _cleanup_(foo_free_p). */
#define DEFINE_CLEANUP(type, func)                    \
	static inline _unused_ void func##_p(type *p) \
	{                                             \
		if (*p)                               \
			func(*p);                     \
	}

#define new0(type, n) ((type *)calloc((n), sizeof(type)))

static inline bool streq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline bool str_empty(const char *s)
{
	return !s || !*s;
}

/* The rest of s behind prefix, or NULL. */
static inline const char *str_skip_prefix(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

static inline int negative_errno(void)
{
	int r = -errno;

	return r < 0 ? r : -EIO;
}

/*
 * Makes room for at least `need` elements of `size` bytes in *items, whose capacity is *cap. Growth is
 * by half, new room is zeroed. -ENOMEM leaves both as they were.
 */
int array_grow(void **items, size_t *cap, size_t need, size_t size) _warn_unused_;

#define ARRAY_GROW(items, cap, need)                                                      \
	({                                                                                \
		void *_grow_items = (items);                                              \
		int _grow_r = array_grow(&_grow_items, &(cap), (need), sizeof(*(items))); \
		(items) = _grow_items;                                                    \
		_grow_r;                                                                  \
	})
