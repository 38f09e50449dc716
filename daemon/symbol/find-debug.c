// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "symbol/symbolizer-internal.h"

/* Then it is looked for again, whether a debug file was found or not. */
#define DEBUG_FILE_NS (600 * NSEC_PER_SEC)

int symbol_only_regular(int fd)
{
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
		return fd;
	close_fd(fd);
	return -EINVAL;
}

/* The lock is not held meanwhile. */
static int open_debug_file(struct naming *n, uint32_t binary, const char *paths, size_t n_paths,
			   size_t *ret_which)
{
	struct symbolizer *s = n->s;
	int fd;

	if (mono_now_ns() >= n->deadline)
		return -ETIMEDOUT;
	if (!n_paths || binary >= n->n_keys || !n->keys[binary] || !s->options.open_debug_file)
		return -ENOENT;
	pthread_mutex_unlock(&s->lock);
	fd = s->options.open_debug_file(s->options.open_ctx, n->keys[binary], paths, n_paths,
					ret_which);
	pthread_mutex_lock(&s->lock);
	return symbol_only_regular(fd);
}

static struct answer_key debug_file_key(const struct naming *n, const struct identity *binary)
{
	return symbol_key(n->s, binary, KIND_DEBUG_FILE, mono_now_ns() / DEBUG_FILE_NS);
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) < 0 || fstat(b, &y) < 0 ||
	       (x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Nothing better came: what was taken with reservation holds. */
static int accept(struct naming *n, const struct batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		struct answer_key key = symbol_key(n->s, &b->identity, b->items[0].kind,
						   b->offsets[i]);
		_cleanup_free_ char *name = NULL, *system_name = NULL;
		const char *known, *system;

		key.kind |= RESERVED;
		if (!answers_get(&n->s->answers, &key, &known, &system))
			continue;
		/* Adding may move what was found. */
		name = strdup(known);
		system_name = strdup(system);
		key.kind &= ~RESERVED;
		if (name && system_name)
			(void)answers_put(&n->s->answers, &key, name, system_name);
	}
	return 0;
}

/* Tries what lies where the debug file may be, and remembers which one it was, or that it was none. */
static int search_debug_file(struct naming *n, const struct batch *b)
{
	const struct binary *binary = &n->dict->binaries[b->items[0].binary];
	const struct debug_hints hints = n->s->hints;
	struct answer_key key = debug_file_key(n, &b->identity);
	char paths[DEBUG_PATHS_MAX], *p = paths;
	size_t left = debug_paths(&hints, dict_str(n->dict, binary->path), paths);

	for (;;) {
		_cleanup_close_ int fd = -1;
		size_t which = 0;
		int r;

		fd = open_debug_file(n, b->items[0].binary, p, left, &which);
		if (fd < 0)
			break;
		for (size_t i = 0; i < which; i++)
			p += strlen(p) + 1;
		r = is_same_file(fd, b->fd) ? WANTS_DEBUG_FILE : symbol_ask(n, b, fd, false);
		if (r == 0)
			(void)answers_put(&n->s->answers, &key, p, "");
		if (r != WANTS_DEBUG_FILE)
			return r;
		p += strlen(p) + 1;
		left -= which + 1;
	}
	if (mono_now_ns() >= n->deadline)
		return -ETIMEDOUT;
	(void)answers_put(&n->s->answers, &key, "", "");
	return accept(n, b);
}

int symbol_ask_best(struct naming *n, const struct batch *b)
{
	struct answer_key key = debug_file_key(n, &b->identity);
	_cleanup_close_ int fd = -1;
	const char *known, *unused;
	char path[PATH_MAX];
	size_t which;
	int r;

	if (!answers_get(&n->s->answers, &key, &known, &unused)) {
		r = symbol_ask(n, b, -1, false);
		return r == WANTS_DEBUG_FILE ? search_debug_file(n, b) : r;
	}
	/* The cache may move while the lock is not held. */
	snprintf(path, sizeof(path), "%s", known);
	if (*path)
		fd = open_debug_file(n, b->items[0].binary, path, 1, &which);
	return symbol_ask(n, b, fd, true);
}
