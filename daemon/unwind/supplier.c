// SPDX-License-Identifier: GPL-2.0-or-later
#include "unwind/supplier.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/thread.h"
#include "base/trim.h"
#include "helper/exchange.h"
#include "unwind/cache.h"

#define REPLY_TIMEOUT_NS (5 * NSEC_PER_SEC)
#define PARSER_MEMORY (1ULL << 30)
#define CACHE_MAX (64ULL << 20)
/* What is lacking is looked through for what may be tried again. */
#define IDLE_NS NSEC_PER_SEC
/* How long a stop may wait for a parser. */
#define SLICE_NS (100 * NSEC_PER_MSEC)
/* A parser that nobody needs is not kept. */
#define PARSER_IDLE_NS (10 * NSEC_PER_SEC)

struct supplier {
	struct supplier_options o;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows up to stats */
	pthread_cond_t wake;
	bool stop, wish;
	struct supplier_stats stats;

	/* the thread's own, but for the counters in it */
	struct exchange exchange;
	uint64_t used_mono_ns; /* when the parser last had something to do */
	uint64_t untrimmed; /* bytes that were stored since the cache was last looked through */
};

/* ---- between threads ------------------------------------------------------------------------------ */

static bool stopped(struct supplier *b)
{
	bool stop;

	pthread_mutex_lock(&b->lock);
	stop = b->stop;
	pthread_mutex_unlock(&b->lock);
	return stop;
}

static void on_wish(void *ctx)
{
	struct supplier *b = ctx;

	pthread_mutex_lock(&b->lock);
	b->wish = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->lock);
}

#define COUNT(b, member, by)                      \
	do {                                      \
		pthread_mutex_lock(&(b)->lock);   \
		(b)->stats.member += (by);        \
		pthread_mutex_unlock(&(b)->lock); \
	} while (0)

/* ---- the parser ---------------------------------------------------------------------------------------- */

/* What came of one request. */
struct result {
	struct table *table;
	enum unwind_lack lack;
	bool forever;
};

/* A parser that was taken over could send back a file that never answers. */
static bool is_in_memory(int fd)
{
	return fd >= 0 && fcntl(fd, F_GET_SEALS) >= 0;
}

static int take_response(const Sysprofd__V1__ParseResponse *m, int fd, struct result *res)
{
	int r;

	switch (m->status) {
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_OK:
		r = is_in_memory(fd) ? table_read(fd, m->table_bytes, &res->table) : -EBADMSG;
		if (r == -ENOMEM) {
			res->lack = UNWIND_LACK_MEMORY;
			return 0;
		}
		return r;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_TOO_LARGE:
		res->lack = UNWIND_LACK_MEMORY;
		res->forever = true;
		return 0;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NO_MEMORY:
		res->lack = UNWIND_LACK_MEMORY;
		return 0;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_DAMAGED:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NO_TABLE:
		res->lack = UNWIND_LACK_CFI;
		res->forever = true;
		return 0;
	default:
		return -EBADMSG;
	}
}

/* -ECANCELED: a stop came first. */
static int receive(struct supplier *b, struct result *res)
{
	Sysprofd__V1__ParseResponse *m;
	_cleanup_close_ int fd = -1;
	int r;

	do
		r = stopped(b) ? -ECANCELED
			       : exchange_receive(&b->exchange, mono_now_ns() + SLICE_NS, &m, &fd);
	while (r == -ETIMEDOUT);
	if (r < 0)
		return r;
	r = take_response(m, fd, res);
	exchange_end(&b->exchange, m, r);
	return r;
}

static void ask_parser(struct supplier *b, uint64_t binary, int file, struct result *res)
{
	const struct identity id = { { binary } };
	const struct exchange_files files = { .file = file, .debug = -1 };
	Sysprofd__V1__ParseRequest q = SYSPROFD__V1__PARSE_REQUEST__INIT;
	uint64_t begin = mono_now_ns();
	int r;

	res->lack = UNWIND_LACK_FILE;
	q.kind = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_UNWIND;
	r = exchange_send(&b->exchange, &id, &q, &files, begin + b->o.reply_timeout_ns);
	if (r >= 0)
		r = receive(b, res);
	b->used_mono_ns = mono_now_ns();
	if (r >= 0)
		COUNT(b, build_ns, b->used_mono_ns - begin);
	else
		res->forever = is_poisoned(&b->exchange.poison, &id);
}

/* ---- one binary ------------------------------------------------------------------------------------------ */

/* As the kernel sees the file; the vDSO is in none. */
static int file_key(int fd, bool vdso, struct unwind_file_key *ret)
{
	struct stat st;
	int r;

	*ret = (struct unwind_file_key){};
	if (vdso)
		return 0;
	r = fstat_known(fd, &st);
	if (r < 0)
		return r;
	ret->ino = st.st_ino;
	ret->size = (uint64_t)st.st_size;
	ret->changed_ns = (uint64_t)st.st_ctim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_ctim.tv_nsec;
	ret->dev = major(st.st_dev) << 20 | minor(st.st_dev);
	return 0;
}

/* The whole directory is looked through: not after each of many tables. */
static void trim(struct supplier *b)
{
	if (b->untrimmed)
		trim_directory(b->o.cache, b->o.cache_max);
	b->untrimmed = 0;
}

/* Where there is no room, what is there goes as well: others need it more. */
static void store(struct supplier *b, const struct cache_name *name, const struct table *t)
{
	bool full = cache_store(b->o.cache, name, t, b->o.cache_max) < 0;

	b->untrimmed += t->bytes;
	if (full || b->untrimmed > b->o.cache_max / 8)
		trim(b);
}

static void build(struct supplier *b, uint64_t binary)
{
	bool vdso = false;
	_cleanup_close_ int file = b->o.open_binary(b->o.ctx, binary, &vdso);
	struct unwind_file_key key;
	bool keyed = file >= 0 && file_key(file, vdso, &key) == 0;
	struct result res = { .lack = UNWIND_LACK_FILE };
	struct cache_name name;
	bool named = file >= 0 && cache_name(file, &name) == 0;

	if (named && cache_load(b->o.cache, &name, &res.table) == 0) {
		COUNT(b, cached, 1);
	} else if (file >= 0) {
		ask_parser(b, binary, file, &res);
		if (named && res.table)
			store(b, &name, res.table);
		if (res.table)
			COUNT(b, built, 1);
	}
	if (!res.table)
		COUNT(b, failed, 1);
	unwinder_answer(b->o.unwinder, binary, res.table, keyed ? &key : NULL, res.lack,
			res.forever);
	free(res.table);
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

static void wait_for_wish(struct supplier *b)
{
	uint64_t until = mono_now_ns() + IDLE_NS;
	struct timespec ts = { (time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC) };

	trim(b);
	pthread_mutex_lock(&b->lock);
	if (!b->stop && !b->wish)
		pthread_cond_timedwait(&b->wake, &b->lock, &ts);
	b->wish = false;
	pthread_mutex_unlock(&b->lock);
	if (b->exchange.pid && mono_now_ns() - b->used_mono_ns > PARSER_IDLE_NS)
		exchange_done(&b->exchange);
}

static void *supplier_main(void *arg)
{
	struct supplier *b = arg;

	while (!stopped(b)) {
		uint64_t binary = unwinder_next(b->o.unwinder);

		if (binary)
			build(b, binary);
		else
			wait_for_wish(b);
	}
	exchange_done(&b->exchange);
	return NULL;
}

int supplier_new(const struct supplier_options *o, struct supplier **ret)
{
	struct supplier *b = new0(struct supplier, 1);
	char *cache = NULL;
	int r = 0;

	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	cond_init_mono(&b->wake);
	b->o = *o;
	b->o.reply_timeout_ns = o->reply_timeout_ns ?: REPLY_TIMEOUT_NS;
	b->o.cache_max = o->cache_max ?: CACHE_MAX;
	exchange_init(&b->exchange, o->parser_memory ?: PARSER_MEMORY, b->o.reply_timeout_ns);
	if (o->cache) {
		cache = strdup(o->cache);
		r = cache ? 0 : -ENOMEM;
	}
	b->o.cache = cache;
	unwinder_on_wish(o->unwinder, on_wish, b);
	if (r >= 0)
		r = thread_start(&b->thread, supplier_main, b);
	if (r < 0) {
		unwinder_on_wish(o->unwinder, NULL, NULL);
		free(cache);
		free(b);
		return r;
	}
	pthread_setname_np(b->thread, "tables");
	*ret = b;
	return 0;
}

struct supplier *supplier_free(struct supplier *b)
{
	if (!b)
		return NULL;
	unwinder_on_wish(b->o.unwinder, NULL, NULL);
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->wake);
	free((char *)b->o.cache);
	free(b);
	return NULL;
}

void supplier_stats(struct supplier *b, struct supplier_stats *ret)
{
	pthread_mutex_lock(&b->lock);
	*ret = b->stats;
	pthread_mutex_unlock(&b->lock);
	ret->crashes = atomic_load(&b->exchange.crashes);
	ret->timeouts = atomic_load(&b->exchange.timeouts);
	ret->poisoned = atomic_load(&b->exchange.poison.poisoned);
	ret->parser_pid = atomic_load(&b->exchange.pid);
}
