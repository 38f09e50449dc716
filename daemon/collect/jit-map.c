// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collect/jit-map.h"

#define MAPS_MAX 256 /* a slot is the lowest byte of a key */
#define TIMEOUT_NS (500 * NSEC_PER_MSEC)
#define PAUSE_FIRST_NS (25 * NSEC_PER_MSEC)
#define PAUSE_MAX_NS (30 * NSEC_PER_SEC)
#define PAUSE_OPEN_NS (5 * NSEC_PER_SEC)
/* A bucket at its longest, some that wait for the store, and the time that naming takes. */
#define KEEP_NS (180 * NSEC_PER_SEC)
/* Users on whose filesystems an open hangs: it may be a hundred times. */
#define SUSPECTS_MAX 16
#define SUSPECT_NS (600 * NSEC_PER_SEC)
#define NEVER UINT64_MAX

struct jit_map {
	uint64_t key; /* 0: the slot is free */
	struct jit_process process; /* pid_fd is owned */
	int fd; /* -1: none */
	uint64_t dev, ino;
	bool absent; /* looked for, and not there */
	uint64_t next_mono_ns; /* when it is looked for again */
	uint64_t pause_ns;
	uint64_t gone_mono_ns; /* 0: the process lives */
	uint64_t used_mono_ns;
};

struct suspect {
	uint32_t uid;
	uint64_t until_mono_ns;
};

struct jit_maps {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool started, stop;
	struct opener *opener;
	struct jit_map maps[MAPS_MAX];
	uint64_t serial, refused, hanging;
	struct suspect suspects[SUSPECTS_MAX];
	size_t next_suspect;
};

/* ---- the maps, under the lock ---------------------------------------------------------------------------- */

static struct jit_map *find(struct jit_maps *s, uint64_t key)
{
	struct jit_map *m = &s->maps[key % MAPS_MAX];

	return key && m->key == key ? m : NULL;
}

static void drop(struct jit_map *m)
{
	close_fd(m->fd);
	close_fd(m->process.pid_fd);
	*m = (struct jit_map){ .fd = -1, .process = { .pid_fd = -1 } };
}

/* Free, or of what has no map, is gone, or has had no use for long. */
static struct jit_map *find_slot(struct jit_maps *s, uint64_t now)
{
	struct jit_map *best = NULL;

	for (struct jit_map *m = s->maps; m < s->maps + MAPS_MAX; m++) {
		if (!m->key)
			return m;
		if (!m->absent && !m->gone_mono_ns && now - m->used_mono_ns < KEEP_NS)
			continue;
		if (!best || m->used_mono_ns < best->used_mono_ns)
			best = m;
	}
	if (best)
		drop(best);
	return best;
}

static struct suspect *find_suspect(struct jit_maps *s, uint32_t uid, uint64_t now)
{
	for (size_t i = 0; i < SUSPECTS_MAX; i++)
		if (s->suspects[i].uid == uid && now < s->suspects[i].until_mono_ns)
			return &s->suspects[i];
	return NULL;
}

static void suspect(struct jit_maps *s, uint32_t uid, uint64_t now)
{
	s->suspects[s->next_suspect] = (struct suspect){ uid, now + SUSPECT_NS };
	s->next_suspect = (s->next_suspect + 1) % SUSPECTS_MAX;
}

/* The one that is due first, and what has been kept long enough is dropped. */
static struct jit_map *next_due(struct jit_maps *s, uint64_t now)
{
	struct jit_map *due = NULL;

	for (struct jit_map *m = s->maps; m < s->maps + MAPS_MAX; m++) {
		if (m->key && m->gone_mono_ns && now - m->gone_mono_ns > KEEP_NS)
			drop(m);
		if (m->key && (!due || m->next_mono_ns < due->next_mono_ns))
			due = m;
	}
	return due;
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

static void take_result(struct jit_map *m, int fd)
{
	uint64_t now = mono_now_ns();
	struct stat st = {};

	if (fd < 0) {
		m->absent = m->fd < 0;
		m->pause_ns = MIN(MAX(2 * m->pause_ns, PAUSE_FIRST_NS), PAUSE_MAX_NS);
		/* It cannot come any more. */
		m->next_mono_ns = fd == -ESRCH ? now + KEEP_NS : now + m->pause_ns;
		return;
	}
	/* It lies on a filesystem that answers. */
	(void)fstat(fd, &st);
	if (m->fd >= 0 && m->dev == st.st_dev && m->ino == st.st_ino) {
		close_fd(fd);
	} else {
		close_fd(m->fd);
		m->fd = fd;
		m->dev = st.st_dev;
		m->ino = st.st_ino;
	}
	m->absent = false;
	m->pause_ns = 0;
	m->next_mono_ns = now + PAUSE_OPEN_NS;
}

/* The lock is not held while a file is opened. */
static void look_for(struct jit_maps *s, struct jit_map *m)
{
	struct open_request rq = {
		.jit_map = true,
		.proc_fd = fcntl(m->process.pid_fd, F_DUPFD_CLOEXEC, 3),
		.pids = { m->process.pid },
		.start = m->process.dump_start,
		.end = m->process.dump_end,
	};
	uint64_t key = m->key;
	uint32_t uid = m->process.uid;
	int r = -EREMOTE;

	m->next_mono_ns = NEVER;
	if (rq.proc_fd >= 0 && !find_suspect(s, uid, mono_now_ns())) {
		pthread_mutex_unlock(&s->lock);
		r = open_with_deadline(s->opener, &rq, TIMEOUT_NS);
		pthread_mutex_lock(&s->lock);
	}
	close_fd(rq.proc_fd);
	if (r == -ETIMEDOUT) {
		suspect(s, uid, mono_now_ns());
		s->hanging++;
	}
	m = find(s, key);
	if (m)
		take_result(m, r);
	else
		close_fd(r);
}

static void *maps_thread(void *arg)
{
	struct jit_maps *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		struct jit_map *m = next_due(s, mono_now_ns());
		struct timespec until;

		if (!m) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		if (m->next_mono_ns <= mono_now_ns()) {
			look_for(s, m);
			continue;
		}
		until = (struct timespec){ (time_t)(m->next_mono_ns / NSEC_PER_SEC),
					   (long)(m->next_mono_ns % NSEC_PER_SEC) };
		pthread_cond_timedwait(&s->wake, &s->lock, &until);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start(struct jit_maps *s)
{
	int r;

	if (s->started)
		return 0;
	r = thread_start(&s->thread, maps_thread, s);
	if (r < 0)
		return r;
	pthread_setname_np(s->thread, "jit-maps");
	s->started = true;
	return 0;
}

/* ---- from other threads ---------------------------------------------------------------------------------- */

uint64_t jit_maps_add(struct jit_maps *s, const struct jit_process *p)
{
	uint64_t now = mono_now_ns(), key = 0;
	struct jit_map *m;

	pthread_mutex_lock(&s->lock);
	m = start(s) < 0 ? NULL : find_slot(s, now);
	if (m) {
		*m = (struct jit_map){ .process = *p, .fd = -1, .used_mono_ns = now };
		m->process.pid_fd = fcntl(p->pid_fd, F_DUPFD_CLOEXEC, 3);
		if (m->process.pid_fd >= 0)
			key = m->key = JIT_MAP_KEY | ++s->serial * MAPS_MAX |
				       (uint64_t)(m - s->maps);
		pthread_cond_signal(&s->wake);
	}
	s->refused += !key;
	pthread_mutex_unlock(&s->lock);
	return key;
}

int jit_maps_has(struct jit_maps *s, uint64_t key)
{
	struct jit_map *m;
	int r = -ENOENT;

	pthread_mutex_lock(&s->lock);
	m = find(s, key);
	if (m) {
		m->used_mono_ns = mono_now_ns();
		r = !m->absent;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void jit_maps_look(struct jit_maps *s, uint64_t key, uint64_t dump_start, uint64_t dump_end)
{
	struct jit_map *m;

	pthread_mutex_lock(&s->lock);
	m = find(s, key);
	if (m) {
		m->process.dump_start = dump_start;
		m->process.dump_end = dump_end;
		m->pause_ns = m->next_mono_ns = 0;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
}

void jit_maps_release(struct jit_maps *s, uint64_t key)
{
	struct jit_map *m;

	pthread_mutex_lock(&s->lock);
	m = find(s, key);
	if (m && m->fd < 0)
		drop(m);
	else if (m)
		m->gone_mono_ns = MAX(mono_now_ns(), (uint64_t)1);
	pthread_mutex_unlock(&s->lock);
}

void jit_maps_stats(struct jit_maps *s, uint64_t *ret_refused, uint64_t *ret_hanging)
{
	pthread_mutex_lock(&s->lock);
	*ret_refused = s->refused;
	*ret_hanging = s->hanging;
	pthread_mutex_unlock(&s->lock);
}

int jit_maps_open(struct jit_maps *s, uint64_t key)
{
	struct jit_map *m;
	int r = -ENOENT;

	pthread_mutex_lock(&s->lock);
	m = find(s, key);
	if (m && m->fd >= 0) {
		r = fcntl(m->fd, F_DUPFD_CLOEXEC, 3);
		r = r < 0 ? negative_errno() : r;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- life ------------------------------------------------------------------------------------------------ */

int jit_maps_new(struct opener *o, struct jit_maps **ret)
{
	struct jit_maps *s = new0(struct jit_maps, 1);

	if (!s)
		return -ENOMEM;
	s->opener = opener_ref(o);
	pthread_mutex_init(&s->lock, NULL);
	cond_init_mono(&s->wake);
	for (struct jit_map *m = s->maps; m < s->maps + MAPS_MAX; m++)
		m->fd = m->process.pid_fd = -1;
	*ret = s;
	return 0;
}

struct jit_maps *jit_maps_free(struct jit_maps *s)
{
	if (!s)
		return NULL;
	if (s->started) {
		pthread_mutex_lock(&s->lock);
		s->stop = true;
		pthread_cond_signal(&s->wake);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
	}
	for (struct jit_map *m = s->maps; m < s->maps + MAPS_MAX; m++)
		drop(m);
	opener_unref(s->opener);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}
