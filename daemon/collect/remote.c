// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The walk is that of bpf/stack.bpf.h: same frames, same reasons to stop.
 *
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

static bool memory_word(struct memory *m, uint64_t at, unsigned word, uint64_t *ret)
{
	uint64_t base = at & ~(PAGE - 1), v = 0;

	if (base != m->at) {
		m->at = UINT64_MAX;
		if (base > INT64_MAX || !page_is_resident(m, base) ||
		    pread(m->mem, m->page, PAGE, base) != PAGE)
			return false;
		m->at = base;
	}
	/* Aligned, so it does not cross the page's end. */
	memcpy(&v, m->page + (at - base), word);
	*ret = v;
	return true;
}

/* ---- one stack ----------------------------------------------------------------------------------- */

static bool ip_valid(uint64_t ip)
{
	return ip >= 4096 && ip < 1ULL << 56;
}

static enum walk_end walk(struct memory *m, const struct remote_stack *s, uint64_t ip_mask,
			  uint64_t *ips, uint16_t *n)
{
	uint64_t fp = s->fp, sp = s->sp, next, ip;

	while (fp) {
		if (fp & (s->word - 1))
			return WALK_MISALIGNED;
		if (fp < sp)
			return WALK_NOT_ASCENDING;
		if (!memory_word(m, fp, s->word, &next) ||
		    !memory_word(m, fp + s->word, s->word, &ip))
			return WALK_READ_FAILED;
		ip &= ip_mask;
		if (!ip)
			return WALK_COMPLETE;
		if (!ip_valid(ip))
			return WALK_READ_FAILED;
		if (*n >= MAX_USER_FRAMES)
			return WALK_LIMIT;
		ips[(*n)++] = ip;
		sp = fp + 2 * s->word;
		fp = next;
	}
	return WALK_COMPLETE;
}

static void read_one(struct memory *m, uint64_t ip_mask, struct remote_stack *s)
{
	uint64_t ips[MAX_USER_FRAMES];

	s->n = 0;
	s->end = WALK_NO_REGS;
	if ((s->word == 8 || s->word == 4) && ip_valid(s->ip)) {
		ips[s->n++] = s->ip;
		s->end = WALK_PENDING;
		/* The last stack's page may have changed since. */
		m->at = UINT64_MAX;
		if (memory_open(m, s))
			s->end = walk(m, s, ip_mask, ips, &s->n);
	}
	s->ips = s->n ? malloc(s->n * sizeof(*ips)) : NULL;
	if (!s->ips) {
		s->n = 0;
		return;
	}
	memcpy(s->ips, ips, s->n * sizeof(*ips));
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

void remote_stacks_read(const char *proc, uint64_t ip_mask, struct remote_stack *stacks, size_t n)
{
	struct memory m;

	memory_init(&m, proc);
	for (size_t i = 0; i < n; i++)
		read_one(&m, ip_mask, &stacks[i]);
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
	char *proc;
	uint64_t ip_mask;
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
	free(r->proc);
	free(r);
}

static void batch_read(struct remote_reader *r, struct batch *b)
{
	struct memory m;

	memory_init(&m, r->proc);
	for (size_t i = 0; i < b->n && !__atomic_load_n(&b->abandoned, __ATOMIC_RELAXED); i++) {
		read_one(&m, r->ip_mask, &b->stacks[i]);
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

int remote_reader_new(const char *proc, uint64_t ip_mask, struct remote_reader **ret)
{
	struct remote_reader *r = new0(struct remote_reader, 1);
	int k;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	cond_init_mono(&r->changed);
	r->ip_mask = ip_mask;
	r->proc = strdup(proc);
	k = r->proc ? thread_start(&r->thread, reader_main, r) : -ENOMEM;
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
