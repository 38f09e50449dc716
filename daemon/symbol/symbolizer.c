// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frames and locks without a name are looked up in the cache of answers; what is left is sorted by binary and asked
 * for in batches, one request under way at a time. A request that a caller's deadline leaves behind stays under way:
 * the next caller takes its answer into the cache first.
 */
#include <fcntl.h>
#include <sys/random.h>

#include "base/clock.h"
#include "symbol/jit.h"
#include "symbol/symbolizer-internal.h"
#include "symbol/vdso.h"

#define LOCK_NAMED 2 /* in lock.flags */

int symbolizer_new(const struct symbolizer_options *o, struct symbolizer **ret)
{
	struct symbolizer *s = new0(struct symbolizer, 1);

	if (!s)
		return -ENOMEM;
	s->options = *o;
	s->options.cache_bytes = o->cache_bytes ?: 8U << 20;
	s->options.for_now_ns = o->for_now_ns ?: 60 * NSEC_PER_SEC;
	s->options.reply_timeout_ns = o->reply_timeout_ns ?: 5 * NSEC_PER_SEC;
	s->options.helper_memory = o->helper_memory ?: 1U << 30;
	s->vdso_fd = -1;
	if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != sizeof(s->seed))
		s->seed = (uintptr_t)s;
	pthread_mutex_init(&s->lock, NULL);
	exchange_init(&s->exchange, s->options.helper_memory, s->options.reply_timeout_ns);
	answers_init(&s->answers, s->options.cache_bytes);
	*ret = s;
	return 0;
}

struct symbolizer *symbolizer_free(struct symbolizer *s)
{
	if (!s)
		return NULL;
	exchange_done(&s->exchange);
	symbol_forget_parts(s);
	answers_done(&s->answers);
	close_fd(s->vdso_fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}

void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret)
{
	const struct exchange *e = &s->exchange;
	const struct counters *c = &s->counters;

	*ret = (struct symbolizer_stats){
		.requests = atomic_load(&e->requests),
		.named = atomic_load(&c->named),
		.unnamed = atomic_load(&c->unnamed),
		.crashes = atomic_load(&e->crashes),
		.timeouts = atomic_load(&e->timeouts),
		.poisoned = atomic_load(&e->poison.poisoned),
		.map_lines_skipped = atomic_load(&c->map_lines_skipped),
		.map_entries_dropped = atomic_load(&c->map_entries_dropped),
		.cache_bytes = atomic_load(&c->cache_bytes),
		.helper_pid = atomic_load(&e->pid),
	};
}

/* ---- naming ------------------------------------------------------------------------------------ */

static bool is_wanted(const struct dict *d, uint32_t binary)
{
	const struct binary *b;

	if (!binary || binary >= d->n_binaries)
		return false;
	b = &d->binaries[binary];
	/* "[vdso32]" is none that we could read. */
	return b->kind == BINARY_ELF || jit_has_map(b) ||
	       (b->kind == BINARY_VDSO && streq(dict_str(d, b->name), "[vdso]"));
}

static bool apply(struct naming *n, const struct item *i, const char *name, const char *system_name)
{
	struct lock *lock = i->kind == KIND_DATA ? &n->dict->locks[i->id] : NULL;
	int64_t id, system_id = 0;

	if (i->kind == KIND_LINES)
		return inlines_add(n->inlines, i->id, name) >= 0;
	/* In memory that only adjoins the file's: known by its address, like any other without a file. */
	if (lock && streq(name, HELPER_NOT_OF_FILE)) {
		lock->binary = 0;
		lock->offset = 0;
		name = "";
	}
	id = dict_string(n->dict, name);
	if (i->kind == KIND_CODE)
		system_id = dict_string(n->dict, system_name);
	if (id < 0 || system_id < 0)
		return false;
	if (!lock) {
		n->dict->frames[i->id].name = (uint32_t)id;
		n->dict->frames[i->id].system_name = (uint32_t)system_id;
		n->dict->frames[i->id].flags |= FRAME_NAMED;
	} else {
		lock->name = (uint32_t)id;
		lock->flags |= LOCK_NAMED;
	}
	if (*name)
		n->s->counters.named++;
	else
		n->s->counters.unnamed++;
	return true;
}

static bool apply_cached(struct naming *n, const struct item *i, const struct identity *binary)
{
	struct answer_key key = symbol_key(n->s, binary, i->kind, i->offset);
	const char *name, *system_name;
	bool known = answers_get(&n->s->answers, &key, &name, &system_name);

	if (known || !n->s->options.open_fetched)
		return known && apply(n, i, name, system_name);
	key = symbol_key_for_now(n, binary, i->kind, i->offset);
	if (!answers_get(&n->s->answers, &key, &name, &system_name))
		return false;
	/* That there is no name is not the final word. */
	return !*name || apply(n, i, name, system_name);
}

static void consider(struct naming *n, uint32_t binary, enum kind kind, uint64_t offset,
		     uint32_t id)
{
	struct item i = { binary, kind, offset, id };
	struct identity identity;

	if (!is_wanted(n->dict, binary))
		return;
	identity = symbol_identity(n, binary, kind);
	if (apply_cached(n, &i, &identity))
		return;
	if (ARRAY_GROW(n->items, n->cap, n->n + 1) < 0)
		n->left++;
	else
		n->items[n->n++] = i;
}

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->binary != y->binary)
		return x->binary < y->binary ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void collect_lines(struct naming *n)
{
	/* Inlined functions that are found are added behind. */
	for (size_t i = 1, n_frames = n->dict->n_frames; i < n_frames; i++) {
		const struct frame *f = &n->dict->frames[i];

		if (f->kind == FRAME_NATIVE && !(f->flags & FRAME_INLINE))
			consider(n, f->binary, KIND_LINES, f->offset, (uint32_t)i);
	}
}

static void collect_names(struct naming *n)
{
	struct dict *d = n->dict;

	for (size_t i = 1; i < d->n_frames; i++) {
		const struct frame *f = &d->frames[i];
		bool jit = f->kind == FRAME_JIT;

		if (!(f->flags & FRAME_NAMED) && (jit || f->kind == FRAME_NATIVE))
			consider(n, f->binary, jit ? KIND_JIT : KIND_CODE, f->offset, (uint32_t)i);
	}
	for (size_t i = 1; i < d->n_locks; i++)
		if (!(d->locks[i].flags & LOCK_NAMED))
			consider(n, d->locks[i].binary, KIND_DATA, d->locks[i].offset, (uint32_t)i);
}

/* The lock is not held meanwhile. */
static int open_binary(struct naming *n, uint32_t binary)
{
	struct symbolizer *s = n->s;
	int fd;

	if (n->dict->binaries[binary].kind == BINARY_VDSO) {
		if (s->vdso_fd < 0)
			s->vdso_fd = vdso_open();
		return s->vdso_fd < 0 ? s->vdso_fd : fcntl(s->vdso_fd, F_DUPFD_CLOEXEC, 3);
	}
	if (binary >= n->n_keys || !n->keys[binary] || !s->options.open_binary)
		return -ENOENT;
	pthread_mutex_unlock(&s->lock);
	fd = s->options.open_binary(s->options.open_ctx, n->keys[binary]);
	pthread_mutex_lock(&s->lock);
	return fd;
}

/* The first of items[0..n_items), with as many distinct offsets as go into a request. */
static void fill(struct batch *b, const struct item *items, size_t n_items)
{
	size_t i;

	b->n = 0;
	for (i = 0; i < n_items; i++) {
		if (b->n && b->offsets[b->n - 1] == items[i].offset)
			continue;
		if (b->n == HELPER_OFFSETS_MAX)
			break;
		b->offsets[b->n++] = items[i].offset;
	}
	b->items = items;
	b->n_items = i;
}

static int ask_map(struct naming *n, const struct batch *b)
{
	const struct exchange_files files = { .file = b->fd, .debug = -1 };
	int r = UNFINISHED;

	while (r == UNFINISHED && mono_now_ns() < n->deadline)
		r = symbol_ask(n, b, &files, true);
	return r == UNFINISHED ? -ETIMEDOUT : r;
}

/* ---- batches ----------------------------------------------------------------------------------- */

static int name_as_nothing(struct naming *n, const struct batch *b)
{
	for (size_t i = 0; i < b->n_items; i++)
		n->left += !apply(n, &b->items[i], "", "");
	return 0;
}

static int name_batch(struct naming *n, struct batch *b)
{
	int r;

	b->fd = r = mono_now_ns() < n->deadline ? open_binary(n, b->items[0].binary) : -ETIMEDOUT;
	if (r >= 0)
		r = b->items[0].kind == KIND_JIT ? ask_map(n, b) : symbol_ask_best(n, b);
	b->fd = close_fd(b->fd);
	/* There was none after all, or not yet. */
	if (r == -ENOENT && b->items[0].kind == KIND_JIT)
		return name_as_nothing(n, b);
	for (size_t i = 0; i < b->n_items; i++)
		n->left += !(r >= 0 && apply_cached(n, &b->items[i], &b->identity));
	return r;
}

/* All items of one binary and kind. */
static void name_group(struct naming *n, const struct item *items, size_t n_items)
{
	struct batch b = { .identity = symbol_identity(n, items[0].binary, items[0].kind),
			   .fd = -1 };
	uint64_t deadline = n->deadline;
	int r = 0;

	if (items[0].kind == KIND_JIT)
		n->deadline = jit_map_deadline(&n->maps_deadline, deadline);
	for (size_t i = 0; i < n_items; i += b.n_items) {
		fill(&b, items + i, n_items - i);
		if (is_poisoned(&n->s->exchange.poison, &b.identity))
			r = name_as_nothing(n, &b);
		else if (r < 0)
			/* Not again in this call: it may be what kills the helper. */
			n->left += (int)b.n_items;
		else
			r = name_batch(n, &b);
	}
	n->deadline = deadline;
}

static void name_all(struct naming *n)
{
	struct symbolizer *s = n->s;

	pthread_mutex_lock(&s->lock);
	(void)symbol_settle(s, n->deadline);
	s->turn++;
	n->now = (uint32_t)(mono_now_ns() / s->options.for_now_ns);
	if (n->inlines)
		collect_lines(n);
	else
		collect_names(n);
	if (n->n)
		qsort(n->items, n->n, sizeof(*n->items), compare_items);
	for (size_t i = 0, j; i < n->n; i = j) {
		for (j = i + 1; j < n->n && n->items[j].binary == n->items[i].binary &&
				n->items[j].kind == n->items[i].kind;
		     j++)
			;
		name_group(n, n->items + i, j - i);
	}
	pthread_mutex_unlock(&s->lock);
	free(n->items);
}

int symbolizer_name(struct symbolizer *s, struct dict *d, const uint64_t *keys, size_t n_keys,
		    uint64_t deadline_mono_ns)
{
	struct naming n = {
		.s = s, .dict = d, .keys = keys, .n_keys = n_keys, .deadline = deadline_mono_ns
	};

	name_all(&n);
	/* Without memory for a name they are nothing, and still no addresses. */
	(void)jit_settle(d);
	return n.left;
}

void symbolizer_lines(struct symbolizer *s, struct inlines *ret, const uint64_t *keys,
		      size_t n_keys, uint64_t deadline_mono_ns)
{
	struct naming n = { .s = s,
			    .dict = ret->dict,
			    .keys = keys,
			    .n_keys = n_keys,
			    .deadline = deadline_mono_ns,
			    .inlines = ret };

	name_all(&n);
}
