// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A batch belongs to the caller and the reader thread together; the one who leaves last frees it. So the
 * caller can leave a batch, and even the whole reader, to a thread that hangs.
 */
#include "collect/remote.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

#define PAGE 4096UL /* what is read at once; pages may be larger */
#define PAGEMAP_PRESENT (1ULL << 63)

/* ---- memory of a process ------------------------------------------------------------------------ */

struct memory {
	const char *proc;
	uint32_t tgid; /* whose the descriptors are; 0: none */
	int mem, pagemap;
	long page_size;
	uint64_t at; /* address of what page[] holds, or UINT64_MAX */
	uint8_t page[PAGE];
};

static int open_file(const struct memory *m, const struct remote_stack *s, const char *name)
{
	char path[256];

	/* Through the thread: the leader may be gone. */
	snprintf(path, sizeof(path), "%s/%u/task/%u/%s", m->proc, s->tgid, s->tid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void memory_close(struct memory *m)
{
	m->mem = close_fd(m->mem);
	m->pagemap = close_fd(m->pagemap);
	m->tgid = 0;
	m->at = UINT64_MAX;
}

/* Threads of one process come one after the other, and share its memory. */
static bool memory_open(struct memory *m, const struct remote_stack *s)
{
	if (m->tgid == s->tgid)
		return m->mem >= 0;
	memory_close(m);
	m->tgid = s->tgid;
	m->mem = open_file(m, s, "mem");
	m->pagemap = open_file(m, s, "pagemap");
	return m->mem >= 0;
}

static bool page_is_resident(const struct memory *m, uint64_t at)
{
	uint64_t entry;

	/* Without pagemap (CONFIG_PROC_PAGE_MONITOR) nobody can tell. */
	if (m->pagemap < 0)
		return true;
	if (pread(m->pagemap, &entry, sizeof(entry), at / m->page_size * sizeof(entry)) !=
	    sizeof(entry))
		return false;
	return entry & PAGEMAP_PRESENT;
}

static bool memory_page(struct memory *m, uint64_t base)
{
	if (base == m->at)
		return true;
	m->at = UINT64_MAX;
	if (base > INT64_MAX || !page_is_resident(m, base) ||
	    pread(m->mem, m->page, PAGE, base) != PAGE)
		return false;
	m->at = base;
	return true;
}

static int memory_read(void *ctx, void *to, uint32_t size, uint64_t from)
{
	struct memory *m = ctx;
	char *p = to;

	while (size > 0) {
		uint64_t base = from & ~(PAGE - 1);
		uint32_t n = MIN(size, (uint32_t)(base + PAGE - from));

		if (!memory_page(m, base))
			return -EFAULT;
		memcpy(p, m->page + (from - base), n);
		p += n;
		from += n;
		size -= n;
	}
	return 0;
}

/* ---- one stack ----------------------------------------------------------------------------------- */

static void keep(struct remote_stack *s, const struct walk_result *r)
{
	s->ips = r->n ? malloc(r->n * sizeof(*s->ips)) : NULL;
	if (!s->ips)
		return;
	memcpy(s->ips, r->ips, r->n * sizeof(*s->ips));
	s->n = r->n;
	s->n_fp = r->n_fp;
}

static void read_one(struct memory *m, const struct remote_options *o, struct remote_stack *s)
{
	struct walk_begin w = {
		.ip = s->ip,
		.sp = s->sp,
		.fp = s->fp,
		.word = s->word,
		.ip_mask = o->ip_mask,
		.tables = o->tables,
		.read = memory_read,
		.read_ctx = m,
	};
	struct walk_result r = { .end = WALK_NO_REGS };

	s->ips = NULL;
	s->n = s->n_fp = 0;
	/* The last stack's page may have changed since. */
	m->at = UINT64_MAX;
	if ((s->word != 8 && s->word != 4) || !s->ip) {
		s->end = WALK_NO_REGS;
		return;
	}
	if (o->tables && !o->tables->space(o->tables->ctx, s->tgid, s->start, &w.space))
		w.space.node = 0;
	if (memory_open(m, s)) {
		walk_stack(&w, &r);
		s->end = r.end;
	} else {
		r.n = 1;
		r.ips[0] = s->ip;
		s->end = WALK_PENDING;
	}
	keep(s, &r);
}

static void memory_init(struct memory *m, const char *proc)
{
	*m = (struct memory){
		.proc = proc,
		.mem = -1,
		.pagemap = -1,
		.page_size = sysconf(_SC_PAGESIZE),
		.at = UINT64_MAX,
	};
}

void remote_stacks_read(const struct remote_options *o, struct remote_stack *stacks, size_t n)
{
	struct memory m;

	memory_init(&m, o->proc);
	for (size_t i = 0; i < n; i++)
		read_one(&m, o, &stacks[i]);
	memory_close(&m);
}

/* ---- the thread ------------------------------------------------------------------------------------ */

struct batch {
	struct remote_stack *stacks;
	size_t n;
	size_t done; /* stored with release order: results before it are final */
	bool finished; /* under the reader's lock, as is the next */
	bool abandoned; /* the caller has left: the thread frees it */
};

struct remote_reader {
	struct remote_options o; /* proc is owned */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct batch *batch;
	bool stop;
	bool orphan; /* the owner has left while the thread hung: the thread frees everything */
};

static void batch_free(struct batch *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->n; i++)
		free(b->stacks[i].ips);
	free(b->stacks);
	free(b);
}

static void reader_destroy(struct remote_reader *r)
{
	batch_free(r->batch);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free((char *)r->o.proc);
	free(r);
}

static void batch_read(struct remote_reader *r, struct batch *b)
{
	struct memory m;

	memory_init(&m, r->o.proc);
	for (size_t i = 0; i < b->n && !__atomic_load_n(&b->abandoned, __ATOMIC_RELAXED); i++) {
		read_one(&m, &r->o, &b->stacks[i]);
		__atomic_store_n(&b->done, i + 1, __ATOMIC_RELEASE);
	}
	memory_close(&m);
}

static void *reader_main(void *arg)
{
	struct remote_reader *r = arg;
	bool orphan;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		struct batch *b = r->batch;

		if (!b || b->finished) {
			pthread_cond_wait(&r->changed, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		batch_read(r, b);
		pthread_mutex_lock(&r->lock);
		b->finished = true;
		if (b->abandoned) {
			r->batch = NULL;
			batch_free(b);
		}
		pthread_cond_broadcast(&r->changed);
	}
	orphan = r->orphan;
	pthread_mutex_unlock(&r->lock);
	if (orphan)
		reader_destroy(r);
	return NULL;
}

int remote_reader_new(const struct remote_options *o, struct remote_reader **ret)
{
	struct remote_reader *r = new0(struct remote_reader, 1);
	int k;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	cond_init_mono(&r->changed);
	r->o = *o;
	r->o.proc = strdup(o->proc);
	k = r->o.proc ? thread_start(&r->thread, reader_main, r) : -ENOMEM;
	if (k < 0) {
		reader_destroy(r);
		return k;
	}
	*ret = r;
	return 0;
}

struct remote_reader *remote_reader_free(struct remote_reader *r)
{
	pthread_t thread;
	bool hangs;

	if (!r)
		return NULL;
	pthread_mutex_lock(&r->lock);
	thread = r->thread;
	hangs = r->orphan = r->batch != NULL;
	r->stop = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	if (hangs) {
		pthread_detach(thread);
		return NULL;
	}
	pthread_join(thread, NULL);
	reader_destroy(r);
	return NULL;
}

static struct batch *batch_new(const struct remote_stack *stacks, size_t n)
{
	struct batch *b = new0(struct batch, 1);

	if (!b)
		return NULL;
	b->stacks = new0(struct remote_stack, n);
	if (!b->stacks) {
		free(b);
		return NULL;
	}
	memcpy(b->stacks, stacks, n * sizeof(*stacks));
	for (size_t i = 0; i < n; i++)
		b->stacks[i].ips = NULL;
	b->n = n;
	return b;
}

static void wait_until(struct remote_reader *r, const struct batch *b, uint64_t mono_ns)
{
	const struct timespec until = { mono_ns / NSEC_PER_SEC, mono_ns % NSEC_PER_SEC };

	while (!b->finished)
		if (pthread_cond_timedwait(&r->changed, &r->lock, &until) == ETIMEDOUT)
			return;
}

int remote_reader_run(struct remote_reader *r, struct remote_stack *stacks, size_t n,
		      uint64_t timeout_ns, size_t *ret_done)
{
	struct batch *b;
	size_t done;

	pthread_mutex_lock(&r->lock);
	if (r->batch) {
		pthread_mutex_unlock(&r->lock);
		return -EBUSY;
	}
	b = r->batch = batch_new(stacks, n);
	if (!b) {
		pthread_mutex_unlock(&r->lock);
		return -ENOMEM;
	}
	pthread_cond_broadcast(&r->changed);
	wait_until(r, b, mono_now_ns() + timeout_ns);
	done = __atomic_load_n(&b->done, __ATOMIC_ACQUIRE);
	for (size_t i = 0; i < done; i++) {
		stacks[i] = b->stacks[i];
		b->stacks[i].ips = NULL;
	}
	if (b->finished) {
		r->batch = NULL;
		batch_free(b);
	} else {
		__atomic_store_n(&b->abandoned, true, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&r->lock);
	*ret_done = done;
	return 0;
}
