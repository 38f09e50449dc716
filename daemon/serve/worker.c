// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "serve/worker.h"

/* A reader keeps a day's dictionary, some MiB, from one query to the next for so long. */
#define KEEP_READER_NS (30 * NSEC_PER_SEC)

enum rank { PRIVILEGED = 0, PLAIN = 1, RANK_N };

struct worker {
	struct worker_pool *pool;
	pthread_t thread;
	struct store_reader *reader;
};

struct queue {
	struct job *head, **tail;
	size_t n;
};

struct worker_pool {
	sd_event_source *source;
	int event_fd; /* readable while `finished` holds something */
	char *store_directory;
	size_t max_queue; /* of each rank */

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t wake;
	struct queue waiting[RANK_N];
	struct queue finished;
	unsigned plain_running, plain_max;
	bool stopping;

	unsigned n_threads; /* started */
	struct worker workers[];
};

static void queue_init(struct queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
	q->n = 0;
}

static void queue_put(struct queue *q, struct job *j)
{
	j->next = NULL;
	*q->tail = j;
	q->tail = &j->next;
	q->n++;
}

static struct job *queue_take(struct queue *q)
{
	struct job *j = q->head;

	if (!j)
		return NULL;
	q->head = j->next;
	if (!q->head)
		q->tail = &q->head;
	q->n--;
	return j;
}

struct store_reader *worker_reader(struct worker *w)
{
	struct store_reader *r;

	if (!w->reader && w->pool->store_directory &&
	    store_reader_new(w->pool->store_directory, &r) == 0)
		w->reader = r;
	return w->reader;
}

static void drop_reader(struct worker *w)
{
	w->reader = store_reader_free(w->reader);
}

/* With the lock held: until there may be something to do. Nobody asks for long: the reader goes. */
static void wait_for_job(struct worker *w)
{
	struct worker_pool *p = w->pool;
	struct timespec until;

	if (!w->reader) {
		pthread_cond_wait(&p->wake, &p->lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += KEEP_READER_NS / NSEC_PER_SEC;
	if (pthread_cond_timedwait(&p->wake, &p->lock, &until) != ETIMEDOUT)
		return;
	pthread_mutex_unlock(&p->lock);
	drop_reader(w);
	pthread_mutex_lock(&p->lock);
}

/* With the lock held. NULL: stop. */
static struct job *next_job(struct worker *w)
{
	struct worker_pool *p = w->pool;

	for (;;) {
		struct job *j;

		if (p->stopping)
			return NULL;
		j = queue_take(&p->waiting[PRIVILEGED]);
		if (!j && p->plain_running < p->plain_max) {
			j = queue_take(&p->waiting[PLAIN]);
			if (j)
				p->plain_running++;
		}
		if (j)
			return j;
		wait_for_job(w);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct worker_pool *p = w->pool;
	const uint64_t one = 1;
	struct job *j;

	pthread_setname_np(pthread_self(), "query");
	pthread_mutex_lock(&p->lock);
	while ((j = next_job(w))) {
		bool plain = !j->privileged;

		pthread_mutex_unlock(&p->lock);
		j->run(j, w);
		pthread_mutex_lock(&p->lock);
		j->ran = true;
		queue_put(&p->finished, j);
		if (plain) {
			p->plain_running--;
			pthread_cond_signal(&p->wake);
		}
		/* Fails only when the counter is full, and then the descriptor is readable anyway. */
		if (write(p->event_fd, &one, sizeof(one)) < 0)
			continue;
	}
	pthread_mutex_unlock(&p->lock);
	drop_reader(w);
	return NULL;
}

static void finish_jobs(struct worker_pool *p)
{
	for (;;) {
		struct job *j;

		pthread_mutex_lock(&p->lock);
		j = queue_take(&p->finished);
		pthread_mutex_unlock(&p->lock);
		if (!j)
			return;
		j->done(j);
	}
}

static int on_finished(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	uint64_t n;

	if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN && errno != EINTR)
		return negative_errno();
	finish_jobs(userdata);
	return 0;
}

static int start_threads(struct worker_pool *p, unsigned n)
{
	int r = 0;

	while (p->n_threads < n && r == 0) {
		struct worker *w = &p->workers[p->n_threads];

		w->pool = p;
		r = thread_start(&w->thread, worker_main, w);
		if (r == 0)
			p->n_threads++;
	}
	return r;
}

int worker_pool_new(sd_event *event, unsigned n_threads, size_t max_queue,
		    const char *store_directory, struct worker_pool **ret)
{
	_cleanup_(worker_pool_free_p) struct worker_pool *p = NULL;
	int r;

	assert(n_threads > 0);
	p = calloc(1, sizeof(*p) + n_threads * sizeof(p->workers[0]));
	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	cond_init_mono(&p->wake);
	queue_init(&p->waiting[PRIVILEGED]);
	queue_init(&p->waiting[PLAIN]);
	queue_init(&p->finished);
	p->max_queue = max_queue;
	p->plain_max = MAX(n_threads, 2U) - 1;
	p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->event_fd < 0)
		return negative_errno();
	if (store_directory) {
		p->store_directory = strdup(store_directory);
		if (!p->store_directory)
			return -ENOMEM;
	}
	r = sd_event_add_io(event, &p->source, p->event_fd, EPOLLIN, on_finished, p);
	if (r < 0)
		return r;
	r = start_threads(p, n_threads);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(p);
	return 0;
}

struct worker_pool *worker_pool_free(struct worker_pool *p)
{
	struct job *j;

	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->workers[i].thread, NULL);
	finish_jobs(p);
	/* Finishing one job may submit another, which does not run either. */
	while ((j = queue_take(&p->waiting[PRIVILEGED]) ?: queue_take(&p->waiting[PLAIN])))
		j->done(j);
	sd_event_source_disable_unref(p->source);
	close_fd(p->event_fd);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p->store_directory);
	free(p);
	return NULL;
}

static int submit(struct worker_pool *p, struct job *j, size_t max)
{
	struct queue *q = &p->waiting[j->privileged ? PRIVILEGED : PLAIN];
	int r = 0;

	j->ran = false;
	pthread_mutex_lock(&p->lock);
	if (q->n >= max || (p->stopping && max != SIZE_MAX))
		r = -EBUSY;
	else
		queue_put(q, j);
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	return r;
}

int worker_pool_submit(struct worker_pool *p, struct job *j)
{
	return submit(p, j, p->max_queue);
}

void worker_pool_submit_always(struct worker_pool *p, struct job *j)
{
	(void)submit(p, j, SIZE_MAX);
}
