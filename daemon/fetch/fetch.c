// SPDX-License-Identifier: GPL-2.0-or-later
#include "fetch/fetch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "base/trim.h"
#include "helper/process.h"
#include "sysprofd/v1/fetcher.pb-c.h"

#define MEMORY (512ULL << 20) /* of addresses: threads that look up names of hosts, certificates */
#define TIMEOUT_NS (120 * NSEC_PER_SEC)
#define RETRY_NS (600 * NSEC_PER_SEC)
#define MISSING_NS (24 * 3600 * NSEC_PER_SEC)
/* The fetcher answers by itself when the time is over; when it does not do that, it hangs. */
#define GRACE_NS (5 * NSEC_PER_SEC)
/* How long a stop may wait. */
#define SLICE_NS (100 * NSEC_PER_MSEC)
#define FILES_MAX 4096 /* remembered; a new one takes the place of any that is not waiting */
#define WAITING_MAX 64
/* Anyone can make up build-ids: so many are asked for at once, and one more each time that passes. */
#define BURST 256
#define INTERVAL_NS (15 * NSEC_PER_SEC)
#define USED_S 3600 /* how exactly the time of the last use is known */
#define CHUNK (1U << 20)
#define TEMPORARY "incomplete"

enum state {
	STATE_NONE,
	STATE_WAITING,
	STATE_THERE,
	STATE_MISSING,
	STATE_FAILED,
};

struct file {
	char build_id[FETCH_ID_MAX + 1];
	enum state state;
	uint64_t until_mono_ns; /* of STATE_MISSING, STATE_FAILED */
	uint64_t turn; /* of STATE_WAITING */
};

struct fetch {
	struct fetch_options o; /* with texts of its own */
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows up to stats */
	pthread_cond_t wake;
	bool stop;
	struct file files[FILES_MAX];
	size_t n_files, next; /* next: to give way */
	size_t n_waiting;
	uint64_t turns;
	uint64_t spent_mono_ns; /* until when what was asked for lasts */
	struct fetch_stats stats;

	/* the thread's own */
	struct helper_process process;
	uint64_t last_id;
};

/* ---- what is known of files ---------------------------------------------------------------------------- */

static bool is_build_id(const char *s)
{
	size_t len = strlen(s);

	return len > 2 && len % 2 == 0 && len <= FETCH_ID_MAX &&
	       strspn(s, "0123456789abcdef") == len;
}

static struct file *find(struct fetch *f, const char *build_id)
{
	for (size_t i = 0; i < f->n_files; i++)
		if (streq(f->files[i].build_id, build_id))
			return &f->files[i];
	return NULL;
}

static struct file *find_or_add(struct fetch *f, const char *build_id)
{
	struct file *x = find(f, build_id);

	if (x)
		return x;
	if (f->n_files < FILES_MAX) {
		x = &f->files[f->n_files++];
	} else {
		do
			x = &f->files[f->next++ % FILES_MAX];
		while (x->state == STATE_WAITING);
	}
	*x = (struct file){};
	strcpy(x->build_id, build_id);
	return x;
}

static bool may_ask(struct fetch *f)
{
	uint64_t now = mono_now_ns(), spent = MAX(f->spent_mono_ns, now) + INTERVAL_NS;

	if (f->n_waiting == WAITING_MAX || spent - now > f->o.burst * INTERVAL_NS)
		return false;
	f->spent_mono_ns = spent;
	return true;
}

/* Under the lock. -EAGAIN: it waits, or will be tried again. */
static int wish(struct fetch *f, const char *build_id)
{
	struct file *x = find(f, build_id);

	if (x && x->state == STATE_WAITING)
		return -EAGAIN;
	if (x && (x->state == STATE_MISSING || x->state == STATE_FAILED) &&
	    mono_now_ns() < x->until_mono_ns)
		return x->state == STATE_MISSING ? -ENOENT : -EAGAIN;
	if (!may_ask(f)) {
		f->stats.refused++;
		return -EAGAIN;
	}
	x = find_or_add(f, build_id);
	x->state = STATE_WAITING;
	x->turn = ++f->turns;
	f->n_waiting++;
	pthread_cond_signal(&f->wake);
	return -EAGAIN;
}

static int open_file(const struct fetch *f, const char *name, int flags)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", f->o.directory, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? negative_errno() : fd;
}

static void remove_file(const struct fetch *f, const char *name)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", f->o.directory, name) < (int)sizeof(path))
		(void)unlink(path);
}

/*
 * The time of its last use, by which the directory is trimmed. Whoever keeps what he read of the file knows it by the
 * time of its last change, which this is.
 */
static void note_use(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 &&
	    (uint64_t)st.st_mtim.tv_sec + USED_S < wall_now_ns() / NSEC_PER_SEC)
		(void)futimens(fd, NULL);
}

int fetch_open(struct fetch *f, const char *build_id)
{
	int fd;

	if (!is_build_id(build_id))
		return -EINVAL;
	fd = open_file(f, build_id, O_RDONLY);
	if (fd >= 0) {
		note_use(fd);
		return fd;
	}
	pthread_mutex_lock(&f->lock);
	fd = wish(f, build_id);
	pthread_mutex_unlock(&f->lock);
	return fd;
}

static void set_state(struct fetch *f, const char *build_id, enum state state, uint64_t for_ns)
{
	struct file *x = find_or_add(f, build_id);

	if (x->state == STATE_WAITING)
		f->n_waiting--;
	x->state = state;
	x->until_mono_ns = mono_now_ns() + for_ns;
}

void fetch_get_stats(struct fetch *f, struct fetch_stats *ret)
{
	pthread_mutex_lock(&f->lock);
	*ret = f->stats;
	pthread_mutex_unlock(&f->lock);
}

/* ---- the process ------------------------------------------------------------------------------------------ */

static bool stopped(struct fetch *f)
{
	bool stop;

	pthread_mutex_lock(&f->lock);
	stop = f->stop;
	pthread_mutex_unlock(&f->lock);
	return stop;
}

/* After failures it is started ever later. */
static int start_process(struct fetch *f, uint64_t deadline)
{
	for (;;) {
		int r = stopped(f) ? -ECANCELED
				   : helper_process_ensure(&f->process, mono_now_ns() + SLICE_NS);

		if (r != -EAGAIN || mono_now_ns() >= deadline)
			return r;
		usleep(SLICE_NS / 1000);
	}
}

static void show_process(struct fetch *f)
{
	pthread_mutex_lock(&f->lock);
	f->stats.pid = f->process.pid;
	pthread_mutex_unlock(&f->lock);
}

static int receive(struct fetch *f, uint64_t deadline, Sysprofd__V1__FetchStatus *ret)
{
	const Sysprofd__V1__FetchResponse *a;
	ProtobufCMessage *m = NULL;
	_cleanup_close_ int fd = -1;
	int r;

	do
		r = stopped(f) ? -ECANCELED
			       : channel_receive(&f->process.channel,
						 &sysprofd__v1__fetch_response__descriptor,
						 MIN(deadline, mono_now_ns() + SLICE_NS), &m, &fd);
	while (r == -ETIMEDOUT && mono_now_ns() < deadline);
	if (r < 0)
		return r;
	a = (const Sysprofd__V1__FetchResponse *)m;
	*ret = a->status;
	r = a->id == f->last_id ? 0 : -EBADMSG;
	channel_message_free(&f->process.channel, m);
	return r;
}

static int ask(struct fetch *f, const char *build_id, uint64_t bytes_max, int fd,
	       Sysprofd__V1__FetchStatus *ret)
{
	Sysprofd__V1__FetchRequest q = SYSPROFD__V1__FETCH_REQUEST__INIT;
	uint64_t deadline = mono_now_ns() + f->o.timeout_ns + GRACE_NS;
	int r = start_process(f, deadline);

	show_process(f);
	if (r < 0)
		return r;
	q.id = ++f->last_id;
	q.urls = (char *)f->o.urls;
	q.build_id = (char *)build_id;
	q.bytes_max = bytes_max;
	q.timeout_ns = f->o.timeout_ns;
	r = channel_send(&f->process.channel, &q.base, fd, deadline);
	if (r >= 0)
		r = receive(f, deadline, ret);
	if (r >= 0)
		helper_process_answered(&f->process);
	else
		helper_process_failed(&f->process);
	/* One that has spoken to a server could go on writing to the file, and hold it when it is removed. */
	helper_process_done(&f->process);
	show_process(f);
	return r;
}

/* ---- one file ------------------------------------------------------------------------------------------------ */

/* 20 bytes of a hash do not occur by chance. */
static bool has_build_id(int fd, const char *build_id)
{
	uint8_t note[16 + FETCH_ID_MAX / 2] = { 4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U' };
	size_t len = 16;
	_cleanup_free_ uint8_t *buf = malloc(CHUNK);
	ssize_t n = CHUNK;

	for (const char *p = build_id; *p; p += 2)
		sscanf(p, "%2hhx", &note[len++]);
	note[4] = (uint8_t)(len - 16);
	for (off_t at = 0; buf && n == CHUNK; at += CHUNK - (off_t)len) {
		n = pread(fd, buf, CHUNK, at);
		if (n > 0 && memmem(buf, (size_t)n, note, len))
			return true;
	}
	return false;
}

/* Servers may be mistaken, and a page of a proxy be taken for a file. */
static int check(int fd, const char *build_id, uint64_t bytes_max)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return negative_errno();
	if ((uint64_t)st.st_size > bytes_max)
		return -EFBIG;
	return has_build_id(fd, build_id) ? 0 : -ENOEXEC;
}

static int download(struct fetch *f, const char *build_id, Sysprofd__V1__FetchStatus *ret)
{
	_cleanup_close_ int dir = -1, fd = -1;
	uint64_t limit;
	int r;

	if (mkdir(f->o.directory, 0700) < 0 && errno != EEXIST)
		return negative_errno();
	dir = open_file(f, ".", O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return dir;
	trim_directory(f->o.directory, f->o.bytes_max);
	limit = trim_limit(dir, f->o.bytes_max) / 2;
	if (!limit)
		return -ENOSPC;
	remove_file(f, TEMPORARY);
	fd = open_file(f, TEMPORARY, O_RDWR | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	r = ask(f, build_id, limit, fd, ret);
	if (r >= 0 && *ret == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FETCHED)
		r = check(fd, build_id, limit);
	if (r >= 0 && *ret == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FETCHED &&
	    renameat(dir, TEMPORARY, dir, build_id) < 0)
		r = negative_errno();
	/* Of what remains nothing is kept. */
	remove_file(f, TEMPORARY);
	trim_directory(f->o.directory, f->o.bytes_max);
	return r;
}

static void fetch_one(struct fetch *f, const char *build_id)
{
	Sysprofd__V1__FetchStatus status = SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FAILED;
	int r = download(f, build_id, &status);

	pthread_mutex_lock(&f->lock);
	if (r >= 0 && status == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FETCHED) {
		f->stats.fetched++;
		set_state(f, build_id, STATE_THERE, 0);
	} else if (r >= 0 && status == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_MISSING) {
		f->stats.missing++;
		set_state(f, build_id, STATE_MISSING, MISSING_NS);
	} else {
		f->stats.failed++;
		set_state(f, build_id, r == -ENOEXEC ? STATE_MISSING : STATE_FAILED,
			  r == -ENOEXEC ? MISSING_NS : f->o.retry_ns);
	}
	pthread_mutex_unlock(&f->lock);
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

/* The one that has waited longest. False: it is to stop. */
static bool next_wish(struct fetch *f, char ret[static FETCH_ID_MAX + 1])
{
	const struct file *next = NULL;
	bool stop;

	pthread_mutex_lock(&f->lock);
	while (!f->stop && !f->n_waiting)
		pthread_cond_wait(&f->wake, &f->lock);
	for (size_t i = 0; i < f->n_files; i++)
		if (f->files[i].state == STATE_WAITING && (!next || f->files[i].turn < next->turn))
			next = &f->files[i];
	if (next)
		strcpy(ret, next->build_id);
	stop = f->stop;
	pthread_mutex_unlock(&f->lock);
	return !stop;
}

static void *fetch_main(void *arg)
{
	struct fetch *f = arg;
	char build_id[FETCH_ID_MAX + 1];

	while (next_wish(f, build_id))
		fetch_one(f, build_id);
	return NULL;
}

static void forget(struct fetch *f)
{
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->wake);
	free((char *)f->o.urls);
	free((char *)f->o.directory);
	free(f);
}

int fetch_new(const struct fetch_options *o, struct fetch **ret)
{
	struct fetch *f = new0(struct fetch, 1);
	int r = 0;

	if (!f)
		return -ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	cond_init_mono(&f->wake);
	f->o = *o;
	f->o.timeout_ns = o->timeout_ns ?: TIMEOUT_NS;
	f->o.retry_ns = o->retry_ns ?: RETRY_NS;
	f->o.burst = o->burst ?: BURST;
	f->o.urls = strdup(o->urls);
	f->o.directory = strdup(o->directory);
	helper_process_init(&f->process, "sysprofd-fetch", "--fetcher", MEMORY);
	if (!f->o.urls || !f->o.directory)
		r = -ENOMEM;
	if (r >= 0)
		r = thread_start(&f->thread, fetch_main, f);
	if (r < 0) {
		forget(f);
		return r;
	}
	pthread_setname_np(f->thread, "debuginfod");
	*ret = f;
	return 0;
}

struct fetch *fetch_free(struct fetch *f)
{
	if (!f)
		return NULL;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	forget(f);
	return NULL;
}
