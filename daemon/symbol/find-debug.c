// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "base/clock.h"
#include "symbol/symbolizer-internal.h"

/* Then it is looked for again, whether a debug file was found or not. */
#define DEBUG_FILE_NS (600 * NSEC_PER_SEC)
/* Of questions that are asked again with further files: 64 files. */
#define ROUNDS_MAX 8
/* Of a debug file from a server, instead of a path: before its build-id. */
#define FETCHED "debuginfod:"

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
	return fd;
}

static struct answer_key debug_file_key(const struct naming *n, const struct identity *binary)
{
	return symbol_key(n->s, binary, KIND_DEBUG_FILE, mono_now_ns() / DEBUG_FILE_NS);
}

/* ---- parts of the DWARF in other files ------------------------------------------------------------------ */

/* Takes over what the latest answer wants. */
static size_t open_parts(struct naming *n, const struct batch *b, const char *debug_path,
			 struct exchange_files *files)
{
	struct symbolizer *s = n->s;
	struct debug_part parts[HELPER_PARTS_MAX];
	size_t n_parts = s->n_parts;
	uint32_t binary = b->items[0].binary;

	/* Opening leaves the lock to others. */
	memcpy(parts, s->parts, sizeof(parts));
	s->n_parts = 0;
	for (size_t i = 0; i < n_parts; i++) {
		char paths[DEBUG_PATHS_MAX];
		size_t which, n_paths = debug_part_paths(
				      &parts[i], dict_str(n->dict, n->dict->binaries[binary].path),
				      debug_path, paths);
		int fd = open_debug_file(n, binary, paths, n_paths, &which);

		if (fd >= 0)
			files->parts[files->n_parts++] = (struct exchange_part){ fd, parts[i].id };
		free(parts[i].path);
		free(parts[i].directory);
	}
	return files->n_parts;
}

/* Asks, and again with what the answer wanted. */
static int ask(struct naming *n, const struct batch *b, const char *debug_path, int debug_fd,
	       bool settled)
{
	struct exchange_files files = { .file = b->fd, .debug = debug_fd };

	for (unsigned round = 0;; round++) {
		int r = symbol_ask(n, b, &files, settled);

		while (files.n_parts)
			close_fd(files.parts[--files.n_parts].fd);
		if (r != WANTS_PARTS)
			return r;
		if (round == ROUNDS_MAX || !open_parts(n, b, debug_path, &files))
			return mono_now_ns() < n->deadline ? symbol_accept(n, b, false)
							   : -ETIMEDOUT;
	}
}

/* ---- debug files --------------------------------------------------------------------------------------- */

/* The lock is not held meanwhile. */
static int open_fetched(struct naming *n, const char *build_id)
{
	struct symbolizer *s = n->s;
	int fd;

	if (!s->options.open_fetched)
		return -ENOENT;
	pthread_mutex_unlock(&s->lock);
	fd = s->options.open_fetched(s->options.open_ctx, build_id);
	pthread_mutex_lock(&s->lock);
	return fd == -EAGAIN || fd >= 0 ? fd : -ENOENT;
}

/* With what a server has. -EAGAIN: perhaps later; -ENOENT: nothing. */
static int ask_fetched(struct naming *n, const struct batch *b, const char *build_id)
{
	struct answer_key key = debug_file_key(n, &b->identity);
	_cleanup_close_ int fd = open_fetched(n, build_id);
	char known[sizeof(FETCHED) + DEBUG_BUILD_ID_MAX];
	int r = fd < 0 ? fd : ask(n, b, "", fd, false);

	snprintf(known, sizeof(known), FETCHED "%s", build_id);
	if (r == 0)
		(void)answers_put(&n->s->answers, &key, known, "");
	return r == WANTS_DEBUG_FILE ? -ENOENT : r;
}

/* Tries what lies where the debug file may be, and remembers which one it was, or that it was none. */
static int search_debug_file(struct naming *n, const struct batch *b)
{
	const struct binary *binary = &n->dict->binaries[b->items[0].binary];
	const struct debug_hints hints = n->s->hints;
	struct answer_key key = debug_file_key(n, &b->identity);
	char paths[DEBUG_PATHS_MAX], *p = paths;
	size_t left = debug_paths(&hints, dict_str(n->dict, binary->path), paths);
	int r;

	for (;;) {
		_cleanup_close_ int fd = -1;
		size_t which = 0;

		fd = open_debug_file(n, b->items[0].binary, p, left, &which);
		if (fd < 0)
			break;
		for (size_t i = 0; i < which; i++)
			p += strlen(p) + 1;
		r = ask(n, b, p, fd, false);
		if (r == 0)
			(void)answers_put(&n->s->answers, &key, p, "");
		if (r != WANTS_DEBUG_FILE)
			return r;
		p += strlen(p) + 1;
		left -= which + 1;
	}
	if (mono_now_ns() >= n->deadline)
		return -ETIMEDOUT;
	r = ask_fetched(n, b, hints.build_id);
	if (r == -EAGAIN)
		return symbol_accept(n, b, true);
	if (r != -ENOENT)
		return r;
	(void)answers_put(&n->s->answers, &key, "", "");
	return symbol_accept(n, b, false);
}

int symbol_ask_best(struct naming *n, const struct batch *b)
{
	struct answer_key key = debug_file_key(n, &b->identity);
	_cleanup_close_ int fd = -1;
	const char *known, *unused, *fetched;
	char path[PATH_MAX];
	size_t which;
	int r;

	if (!answers_get(&n->s->answers, &key, &known, &unused)) {
		r = ask(n, b, "", -1, false);
		return r == WANTS_DEBUG_FILE ? search_debug_file(n, b) : r;
	}
	/* The cache may move while the lock is not held. */
	snprintf(path, sizeof(path), "%s", known);
	fetched = str_skip_prefix(path, FETCHED);
	if (fetched)
		fd = open_fetched(n, fetched);
	else if (*path)
		fd = open_debug_file(n, b->items[0].binary, path, 1, &which);
	if (!fetched || fd >= 0)
		return ask(n, b, fd >= 0 && !fetched ? path : "", fd, true);
	/* It had to give way to others, and comes again. */
	r = ask(n, b, "", -1, false);
	return r == WANTS_DEBUG_FILE ? symbol_accept(n, b, true) : r;
}
