// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The client of the symbol helper. Frames and locks without a name are looked up in the cache of answers;
 * what is left is sorted by binary and asked for in batches, one request under way at a time. A request that
 * a caller's deadline leaves behind stays under way: the next caller takes its answer into the cache first,
 * and only reply_timeout_ns after it was sent the helper counts as hung.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "symbol/answers.h"
#include "symbol/debug-file.h"
#include "symbol/demangle.h"
#include "symbol/jit.h"
#include "helper/process.h"
#include "helper/limits.h"
#include "symbol/poison.h"
#include "symbol/symbolizer.h"
#include "symbol/vdso.h"
#include "sysprofd/v1/helper.pb-c.h"

#define LOCK_NAMED 2 /* in lock.flags */
#define EXTENSIONS_MAX 7 /* of a request's time, for a helper that gets no CPU */
/* Then it is looked for again, whether a debug file was found or not. */
#define DEBUG_FILE_NS (600 * NSEC_PER_SEC)
/* The answer would be better with a debug file: it was taken with reservation. */
#define WANTS_DEBUG_FILE 1
#define RESERVED (1U << 31) /* in the cache, the kind of an answer that was */
#define UNFINISHED 2 /* nothing was in the answer: the map is being read */

enum kind {
	KIND_CODE = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_CODE,
	KIND_DATA = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DATA,
	KIND_JIT = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_PERF_MAP,
	KIND_LINES = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_LINES,
	/* In the cache only: the path of a binary's debug file, "" when it has none. */
	KIND_DEBUG_FILE = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_FILE,
};

/* The request under way. */
struct pending {
	bool active;
	uint64_t id;
	uint64_t sent_mono_ns;
	unsigned extensions; /* of its time */
	struct identity binary;
	enum kind kind;
	uint32_t turn; /* of the cache key */
	bool settled; /* it is known which debug file there is, or that there is none */
	char build_id[DEBUG_BUILD_ID_MAX]; /* that the file must not contradict, or "" */
	uint64_t offsets[HELPER_OFFSETS_MAX];
	size_t n;
};

struct counters {
	atomic_uint_fast64_t requests, named, unnamed, crashes, timeouts, cache_bytes;
	atomic_uint_fast64_t map_lines_skipped, map_entries_dropped;
	atomic_int helper_pid;
};

struct symbolizer {
	struct symbolizer_options options;
	pthread_mutex_t lock;
	struct helper_process helper;
	struct answers answers;
	struct pending pending;
	struct poison poison;
	uint32_t turn; /* counts calls */
	uint64_t last_id, seed; /* of hashes: strangers choose build-ids */
	int vdso_fd;
	struct debug_hints hints; /* of the latest answer that wants a debug file */
	struct counters counters; /* readable without the lock, which may be held for seconds */
};

/* A frame or a lock that wants a name. */
struct item {
	uint32_t binary;
	enum kind kind;
	uint64_t offset;
	uint32_t id; /* of the frame, or of the lock for KIND_DATA */
};

/* Items of one binary and kind that are asked about at once. */
struct batch {
	struct identity identity;
	const struct item *items;
	size_t n_items;
	uint64_t offsets[HELPER_OFFSETS_MAX]; /* of the items, distinct */
	size_t n;
	int fd; /* of the binary */
};

/* One call of symbolizer_name(). */
struct naming {
	struct symbolizer *s;
	struct dict *dict;
	const uint64_t *keys;
	size_t n_keys;
	uint64_t deadline;
	uint64_t maps_deadline; /* 0: none was asked about yet */
	struct item *items;
	size_t n, cap;
	struct inlines *inlines; /* for KIND_LINES */
	int left;
};

int symbolizer_new(const struct symbolizer_options *o, struct symbolizer **ret)
{
	struct symbolizer *s = new0(struct symbolizer, 1);

	if (!s)
		return -ENOMEM;
	s->options = *o;
	s->options.cache_bytes = o->cache_bytes ?: 8U << 20;
	s->options.reply_timeout_ns = o->reply_timeout_ns ?: 5 * NSEC_PER_SEC;
	s->options.helper_memory = o->helper_memory ?: 1U << 30;
	s->vdso_fd = -1;
	if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != sizeof(s->seed))
		s->seed = (uintptr_t)s;
	pthread_mutex_init(&s->lock, NULL);
	helper_process_init(&s->helper, "sysprofd-symbol", "--symbol-helper",
			    s->options.helper_memory);
	answers_init(&s->answers, s->options.cache_bytes);
	*ret = s;
	return 0;
}

struct symbolizer *symbolizer_free(struct symbolizer *s)
{
	if (!s)
		return NULL;
	helper_process_done(&s->helper);
	answers_done(&s->answers);
	close_fd(s->vdso_fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}

void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret)
{
	const struct counters *c = &s->counters;

	*ret = (struct symbolizer_stats){
		.requests = atomic_load(&c->requests),
		.named = atomic_load(&c->named),
		.unnamed = atomic_load(&c->unnamed),
		.crashes = atomic_load(&c->crashes),
		.timeouts = atomic_load(&c->timeouts),
		.poisoned = atomic_load(&s->poison.poisoned),
		.map_lines_skipped = atomic_load(&c->map_lines_skipped),
		.map_entries_dropped = atomic_load(&c->map_entries_dropped),
		.cache_bytes = atomic_load(&c->cache_bytes),
		.helper_pid = atomic_load(&c->helper_pid),
	};
}

/* ---- identity --------------------------------------------------------------------------------- */

/* Of what the dictionary takes for one binary: others must not have their names from it. */
static struct identity identify(const struct naming *n, uint32_t binary, enum kind kind)
{
	const struct binary *b = &n->dict->binaries[binary];
	const char *build_id = dict_str(n->dict, b->build_id);
	/* What becomes of a file's lines is none of its names' business. */
	uint64_t fields[7] = { b->dev, b->ino, b->generation, b->kind, 0, 0, kind == KIND_LINES };
	XXH128_hash_t h;

	if (*build_id) {
		h = XXH3_128bits_withSeed(build_id, strlen(build_id), n->s->seed);
		fields[0] = h.low64;
		fields[1] = h.high64;
		fields[4] = 1;
	} else if (!b->ino && binary < n->n_keys) {
		/* Without any identity, the registry's key is one as long as this daemon runs. */
		fields[4] = 2;
		fields[5] = n->keys[binary];
	}
	h = XXH3_128bits_withSeed(fields, sizeof(fields), n->s->seed);
	return (struct identity){ { h.low64, h.high64 } };
}

/* ---- the helper -------------------------------------------------------------------------------- */

/* What a map says of an address holds for the call that asked. */
static uint32_t turn_of(const struct symbolizer *s, enum kind kind)
{
	return kind == KIND_JIT ? s->turn : 0;
}

static struct answer_key key_of(const struct identity *binary, enum kind kind, uint64_t offset,
				uint32_t turn)
{
	return (struct answer_key){
		{ binary->hash[0], binary->hash[1] }, offset, (uint32_t)kind, turn
	};
}

static void helper_failed(struct symbolizer *s)
{
	if (s->pending.active)
		poison_strike(&s->poison, &s->pending.binary);
	s->pending.active = false;
	helper_process_failed(&s->helper);
	s->counters.helper_pid = 0;
}

/* Build-ids in side-band records are cut at 20 bytes: they agree as far as both go. */
static bool contradicts(const char *expected, const char *found)
{
	return *expected && *found &&
	       strncmp(expected, found, MIN(strlen(expected), strlen(found))) != 0;
}

/* What the answer says about one offset, or "" when it says nothing. */
static void take_symbol(const struct pending *p, const Sysprofd__V1__ParseResponse *m, size_t i,
			char name[static SYMBOL_NAME_MAX], char system_name[static SYMBOL_NAME_MAX])
{
	const Sysprofd__V1__Symbol *y = i < m->n_symbols ? m->symbols[i] : NULL;

	name[0] = system_name[0] = '\0';
	if (!y || contradicts(p->build_id, m->build_id))
		return;
	/* The helper cleans names too, but a helper that was taken over might not. */
	utf8_sanitize(name, SYMBOL_NAME_MAX, y->name, strlen(y->name));
	utf8_sanitize(system_name, SYMBOL_NAME_MAX, y->system_name, strlen(y->system_name));
}

static void take_place(struct symbolizer *s, const struct pending *p,
		       const Sysprofd__V1__ParseResponse *m, size_t i, const struct answer_key *key)
{
	_cleanup_(strbuf_done) struct strbuf text = {};

	if (m->n_places && i >= m->n_places)
		return; /* not reached in time: to be asked about again */
	if (i < m->n_places && !contradicts(p->build_id, m->build_id))
		inlines_write(m->places[i], &text);
	if (strbuf_error(&text) >= 0)
		(void)answers_put(&s->answers, key, text.data ?: "", "");
}

static int take_hints(struct symbolizer *s, const Sysprofd__V1__ParseResponse *m)
{
	struct debug_hints *h = &s->hints;

	snprintf(h->build_id, sizeof(h->build_id), "%s", m->build_id);
	snprintf(h->link, sizeof(h->link), "%s", m->debug_link);
	return WANTS_DEBUG_FILE;
}

/*
 * 0: the answer is in the cache; WANTS_DEBUG_FILE: see s->hints; -EREMOTEIO: the file could not be parsed for
 * want of something.
 */
static int take_answer(struct symbolizer *s, const Sysprofd__V1__ParseResponse *m)
{
	const struct pending *p = &s->pending;
	char name[SYMBOL_NAME_MAX], system_name[SYMBOL_NAME_MAX];
	bool wants = false;

	s->counters.map_lines_skipped += m->lines_skipped;
	s->counters.map_entries_dropped += m->entries_dropped;
	switch (m->status) {
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_OK:
		if (p->kind == KIND_LINES ? m->n_places > p->n : m->n_symbols != p->n)
			return -EBADMSG;
		wants = m->wants_debug_file && !p->settled;
		break;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_UNFINISHED:
		return UNFINISHED;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_DAMAGED:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_TOO_LARGE:
		if (m->n_symbols)
			return -EBADMSG;
		break;
	default:
		return -EREMOTEIO;
	}
	for (size_t i = 0; i < p->n; i++) {
		struct answer_key key = key_of(&p->binary, p->kind, p->offsets[i], p->turn);

		key.kind |= wants ? RESERVED : 0;
		/* Without memory the frame stays unnamed and is asked for again. */
		if (p->kind == KIND_LINES) {
			take_place(s, p, m, i, &key);
			continue;
		}
		take_symbol(p, m, i, name, system_name);
		(void)answers_put(&s->answers, &key, name, system_name);
	}
	s->counters.cache_bytes = answers_bytes(&s->answers);
	return wants ? take_hints(s, m) : 0;
}

/*
 * Receives the answer. When its time is over but the helper only waited for a CPU, it gets more: on a host that
 * is short of CPU no file is to blame. -ETIMEDOUT: the caller's deadline came first; -EIO: the helper hangs.
 */
static int receive(struct symbolizer *s, uint64_t deadline, ProtobufCMessage **ret)
{
	struct pending *p = &s->pending;
	_cleanup_close_ int fd = -1;

	for (;;) {
		uint64_t hung = p->sent_mono_ns + s->options.reply_timeout_ns * (1 + p->extensions);
		int r = channel_receive(&s->helper.channel,
					&sysprofd__v1__parse_response__descriptor,
					MIN(deadline, hung), ret, &fd);

		if (r != -ETIMEDOUT || mono_now_ns() < hung)
			return r;
		if (p->extensions == EXTENSIONS_MAX ||
		    !helper_process_starves(&s->helper, s->options.reply_timeout_ns / 4)) {
			s->counters.timeouts++;
			return -EIO;
		}
		p->extensions++;
	}
}

/*
 * Waits for the answer under way and takes it into the cache. -ETIMEDOUT: the deadline came first, the
 * request stays under way. Other errors: there will be no answer. WANTS_DEBUG_FILE: ask again.
 */
static int settle(struct symbolizer *s, uint64_t deadline)
{
	ProtobufCMessage *m = NULL;
	int r;

	if (!s->pending.active)
		return 0;
	r = receive(s, deadline, &m);
	if (r == -ETIMEDOUT)
		return r;
	if (r == -EIO) {
		helper_failed(s);
		return r;
	}
	if (r >= 0 && ((Sysprofd__V1__ParseResponse *)m)->id != s->pending.id)
		r = -EBADMSG;
	if (r >= 0)
		r = take_answer(s, (Sysprofd__V1__ParseResponse *)m);
	channel_message_free(&s->helper.channel, m);
	if (r < 0 && r != -EREMOTEIO) {
		s->counters.crashes++;
		helper_failed(s);
		return -EIO;
	}
	if (r < 0)
		poison_strike(&s->poison, &s->pending.binary);
	s->pending.active = false;
	helper_process_answered(&s->helper);
	return r;
}

static int send_debug_file(struct symbolizer *s, int fd, uint64_t deadline)
{
	Sysprofd__V1__ParseRequest m = SYSPROFD__V1__PARSE_REQUEST__INIT;

	if (fd < 0)
		return 0;
	m.kind = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_FILE;
	return channel_send(&s->helper.channel, &m.base, fd, deadline);
}

/* Sends the request in s->pending. A helper that died idle is replaced once, at nobody's expense. */
static int submit(struct symbolizer *s, int fd, int debug_fd, uint64_t deadline)
{
	struct pending *p = &s->pending;
	Sysprofd__V1__ParseRequest m = SYSPROFD__V1__PARSE_REQUEST__INIT;
	int r = -EIO;

	for (int attempt = 0; attempt < 2; attempt++) {
		r = helper_process_ensure(&s->helper, deadline);
		if (r < 0)
			return r;
		s->counters.helper_pid = s->helper.pid;
		p->sent_mono_ns = mono_now_ns();
		p->extensions = 0;
		helper_process_mark(&s->helper);
		m.id = p->id = ++s->last_id;
		m.kind = (Sysprofd__V1__ParseKind)p->kind;
		m.n_offsets = p->n;
		m.offsets = p->offsets;
		r = send_debug_file(s, debug_fd, p->sent_mono_ns + s->options.reply_timeout_ns);
		if (r >= 0)
			r = channel_send(&s->helper.channel, &m.base, fd,
					 p->sent_mono_ns + s->options.reply_timeout_ns);
		if (r >= 0) {
			s->counters.requests++;
			p->active = true;
			return 0;
		}
		helper_failed(s);
	}
	return r;
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
	struct answer_key key = key_of(binary, i->kind, i->offset, turn_of(n->s, i->kind));
	const char *name, *system_name;

	return answers_get(&n->s->answers, &key, &name, &system_name) &&
	       apply(n, i, name, system_name);
}

static void consider(struct naming *n, uint32_t binary, enum kind kind, uint64_t offset,
		     uint32_t id)
{
	struct item i = { binary, kind, offset, id };
	struct identity identity;

	if (!is_wanted(n->dict, binary))
		return;
	identity = identify(n, binary, kind);
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

/* A regular file that was opened for reading, or -errno. */
static int only_regular(int fd)
{
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
		return fd;
	close_fd(fd);
	return -EINVAL;
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
	return only_regular(fd);
}

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
	return only_regular(fd);
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

static int ask(struct naming *n, const struct batch *b, int debug_fd, bool settled)
{
	struct pending *p = &n->s->pending;
	int r;

	/* Another caller may have left a request under way while the lock was not held. */
	if (settle(n->s, n->deadline) == -ETIMEDOUT)
		return -ETIMEDOUT;
	p->binary = b->identity;
	p->kind = b->items[0].kind;
	p->turn = turn_of(n->s, p->kind);
	p->settled = settled;
	snprintf(p->build_id, sizeof(p->build_id), "%s",
		 dict_str(n->dict, n->dict->binaries[b->items[0].binary].build_id));
	memcpy(p->offsets, b->offsets, b->n * sizeof(*b->offsets));
	p->n = b->n;
	r = submit(n->s, b->fd, debug_fd, n->deadline);
	return r < 0 ? r : settle(n->s, n->deadline);
}

/* ---- debug files ------------------------------------------------------------------------------- */

static struct answer_key debug_file_key(const struct identity *binary)
{
	return key_of(binary, KIND_DEBUG_FILE, mono_now_ns() / DEBUG_FILE_NS, 0);
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
		struct answer_key key = key_of(&b->identity, b->items[0].kind, b->offsets[i], 0);
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
	struct answer_key key = debug_file_key(&b->identity);
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
		r = is_same_file(fd, b->fd) ? WANTS_DEBUG_FILE : ask(n, b, fd, false);
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

/* Asks with the binary's debug file, which is looked for when nobody did so lately. */
static int ask_best(struct naming *n, const struct batch *b)
{
	struct answer_key key = debug_file_key(&b->identity);
	_cleanup_close_ int fd = -1;
	const char *known, *unused;
	char path[PATH_MAX];
	size_t which;
	int r;

	if (!answers_get(&n->s->answers, &key, &known, &unused)) {
		r = ask(n, b, -1, false);
		return r == WANTS_DEBUG_FILE ? search_debug_file(n, b) : r;
	}
	/* The cache may move while the lock is not held. */
	snprintf(path, sizeof(path), "%s", known);
	if (*path)
		fd = open_debug_file(n, b->items[0].binary, path, 1, &which);
	return ask(n, b, fd, true);
}

static int ask_map(struct naming *n, const struct batch *b)
{
	int r = UNFINISHED;

	while (r == UNFINISHED && mono_now_ns() < n->deadline)
		r = ask(n, b, -1, true);
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
		r = b->items[0].kind == KIND_JIT ? ask_map(n, b) : ask_best(n, b);
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
	struct batch b = { .identity = identify(n, items[0].binary, items[0].kind), .fd = -1 };
	uint64_t deadline = n->deadline;
	int r = 0;

	if (items[0].kind == KIND_JIT)
		n->deadline = jit_map_deadline(&n->maps_deadline, deadline);
	for (size_t i = 0; i < n_items; i += b.n_items) {
		fill(&b, items + i, n_items - i);
		if (is_poisoned(&n->s->poison, &b.identity))
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
	(void)settle(s, n->deadline);
	s->turn++;
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
