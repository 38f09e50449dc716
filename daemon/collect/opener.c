// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collect/opener-process.h"
#include "collect/procfs.h"

/* Threads of one lane that wait for a filesystem that does not answer; each costs a small stack. */
#define STUCK_MAX 4
/* Where notes lie: behind the program headers, or at the end when a tool moved them. */
#define NOTE_SCAN 65536

/* ---- opening --------------------------------------------------------------------------------------------- */

int open_regular(int path_fd, struct stat *ret)
{
	char link[32];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st) < 0)
		return negative_errno();
	if (!S_ISREG(st.st_mode))
		return -EMEDIUMTYPE;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return negative_errno();
	*ret = st;
	return fd;
}

int open_mapped(int pid_fd, uint64_t start, uint64_t end)
{
	char link[64];
	int fd;

	snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)start,
		 (unsigned long long)end);
	fd = openat(pid_fd, link, O_PATH | O_CLOEXEC);
	return fd < 0 ? negative_errno() : fd;
}

int open_in_root(int pid_fd, const char *path, struct stat *ret)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	_cleanup_close_ int root = openat(pid_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC),
			    path_fd = -1;

	if (root < 0)
		return negative_errno();
	path_fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return path_fd < 0 ? negative_errno() : open_regular(path_fd, ret);
}

/* ---- identity -------------------------------------------------------------------------------------------- */

/*
 * The note is looked for as bytes, not by following the file's headers: there is nothing to be led astray by,
 * and 20 bytes of a hash do not occur by chance.
 */
static bool has_build_id(int fd, uint64_t size, const struct file_identity *want)
{
	uint8_t note[16 + sizeof(want->build_id)] = {
		4, 0, 0, 0, (uint8_t)want->build_id_len, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0
	};
	uint64_t at[2] = { 0, size > NOTE_SCAN ? size - NOTE_SCAN : 0 };
	_cleanup_free_ uint8_t *buf = malloc(NOTE_SCAN);

	/* Files of procfs have no size, and reading some of them has effects. */
	if (!size || !buf)
		return false;
	memcpy(note + 16, want->build_id, want->build_id_len);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		ssize_t n = pread(fd, buf, NOTE_SCAN, (off_t)at[i]);

		if (n > 0 && memmem(buf, (size_t)n, note, 16 + want->build_id_len))
			return true;
		if (at[1] == 0)
			break;
	}
	return false;
}

uint64_t file_author(const struct stat *st)
{
	uint64_t file[2] = { st->st_dev, st->st_ino };

	if ((st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && st->st_gid != 0))
		return XXH3_64bits(file, sizeof(file)) >> 2 | AUTHOR_FILE;
	return st->st_uid;
}

bool file_is(int fd, const struct stat *st, const struct file_identity *want)
{
	uint64_t ctime_ns = (uint64_t)st->st_ctim.tv_sec * NSEC_PER_SEC +
			    (uint64_t)st->st_ctim.tv_nsec;

	if (want->build_id_len > 0)
		return ((want->author & AUTHOR_UNSEEN) || want->author == file_author(st)) &&
		       has_build_id(fd, (uint64_t)st->st_size, want);
	if (st->st_ino != want->ino)
		return false;
	/* btrfs shows another device in stat than in maps; inode and ctime together are enough. */
	return want->generation ? ctime_ns == want->generation : st->st_dev == want->dev;
}

/* ---- with a deadline --------------------------------------------------------------------------------------- */

/* Where one is full of threads that hang, the others go on. */
enum lane {
	LANE_SEEN, /* files that somebody could look at */
	LANE_UNSEEN, /* what is known of them is a path */
	LANE_SLOW, /* on filesystems that may not answer: one thread each */
	LANE_JIT_MAP,
	LANE_N,
};

/* Lives as long as the last thread that uses it. */
struct opener {
	pthread_mutex_t lock;
	unsigned refs;
	uint64_t running[LANE_N][STUCK_MAX]; /* devices of LANE_SLOW, else 1; 0: none runs */
	struct opener_process *process; /* or NULL: it is done here */
};

struct job {
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	unsigned refs; /* asker and thread */
	bool done;
	struct opener *opener;
	uint64_t *running; /* of the opener */
	struct open_request rq;
	char *path; /* of rq */
	int result;
	size_t which;
};

int opener_new(bool as_process, struct opener **ret)
{
	struct opener *o = new0(struct opener, 1);
	int r = 0;

	if (!o)
		return -ENOMEM;
	if (as_process)
		r = opener_process_new(&o->process);
	if (r < 0) {
		free(o);
		return r;
	}
	pthread_mutex_init(&o->lock, NULL);
	o->refs = 1;
	*ret = o;
	return 0;
}

struct opener *opener_ref(struct opener *o)
{
	pthread_mutex_lock(&o->lock);
	o->refs++;
	pthread_mutex_unlock(&o->lock);
	return o;
}

void opener_get_stats(const struct opener *o, struct opener_stats *ret)
{
	*ret = (struct opener_stats){};
	if (o->process)
		opener_process_stats(o->process, ret);
}

struct opener *opener_unref(struct opener *o)
{
	unsigned left;

	if (!o)
		return NULL;
	pthread_mutex_lock(&o->lock);
	left = --o->refs;
	pthread_mutex_unlock(&o->lock);
	if (left == 0) {
		opener_process_free(o->process);
		pthread_mutex_destroy(&o->lock);
		free(o);
	}
	return NULL;
}

static enum lane lane_of(const struct open_request *rq)
{
	const struct file_identity *f = &rq->identity;

	if (rq->jit_map)
		return LANE_JIT_MAP;
	if (rq->slow_dev)
		return LANE_SLOW;
	return (f->build_id_len ? (f->author & AUTHOR_UNSEEN) : !f->generation) ? LANE_UNSEEN
										: LANE_SEEN;
}

/* A place in the lane, or NULL: all are taken, or one by the same device. */
static uint64_t *enter(struct opener *o, const struct open_request *rq)
{
	uint64_t *lane = o->running[lane_of(rq)], *place = NULL;
	bool hangs = false;

	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < STUCK_MAX; i++) {
		if (!lane[i])
			place = &lane[i];
		hangs |= rq->slow_dev && lane[i] == rq->slow_dev;
	}
	if (hangs)
		place = NULL;
	if (place) {
		*place = rq->slow_dev ?: 1;
		o->refs++;
	}
	pthread_mutex_unlock(&o->lock);
	return place;
}

static void leave(struct opener *o, uint64_t *place)
{
	pthread_mutex_lock(&o->lock);
	*place = 0;
	pthread_mutex_unlock(&o->lock);
	opener_unref(o);
}

static struct job *job_unref(struct job *j)
{
	unsigned left;

	pthread_mutex_lock(&j->lock);
	left = --j->refs;
	pthread_mutex_unlock(&j->lock);
	if (left > 0)
		return NULL;
	close_fd(j->result);
	close_fd(j->rq.proc_fd);
	free(j->path);
	pthread_cond_destroy(&j->done_cond);
	pthread_mutex_destroy(&j->lock);
	free(j);
	return NULL;
}
DEFINE_CLEANUP(struct job *, job_unref)

/*
 * Who lies in a debug file may spoil no names but of his own files. Its path may be a stranger's choice, or that of a
 * parser that a stranger took over: by it neither must learn what is no ELF file, nor what others may not read, unless
 * it is the author's own, who is somebody else outside of the process' root.
 */
static bool may_debug(int fd, const struct stat *st, const struct file_identity *f, bool own_root)
{
	uint64_t author = file_author(st);
	char magic[4];

	if (author != 0 && author != f->author)
		return false;
	if (!(st->st_mode & S_IROTH) && !(own_root && author == f->author))
		return false;
	return st->st_size > 0 && pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	       memcmp(magic, "\177ELF", sizeof(magic)) == 0;
}

/*
 * Anybody may be the server of a FUSE filesystem, and whoever closes a file of it waits for that server, in a way that
 * even SIGKILL does not end: its files stay here, where a thread that hangs holds back no other.
 */
static bool is_of_fuse(int fd)
{
	struct statfs s;

	/* The server answers this as well, or does not: only the type is the kernel's. */
	return fstatfs(fd, &s) < 0 || s.f_type == FUSE_SUPER_MAGIC;
}

/* Keeps fd when it is the file that was asked for. */
static int check(int fd, const struct stat *st, const struct open_request *rq, bool own_root)
{
	if (fd < 0)
		return fd;
	if (is_of_fuse(fd)) {
		close_fd(fd);
		return -EOPNOTSUPP;
	}
	if (rq->n_debug ? may_debug(fd, st, &rq->identity, own_root)
			: file_is(fd, st, &rq->identity))
		return fd;
	close_fd(fd);
	return -ESTALE;
}

static int try_process(const struct open_request *rq, uint32_t pid, bool mapped, struct stat *ret)
{
	_cleanup_close_ int pid_fd = pid ? proc_open_pid(rq->proc_fd, pid) : -ESRCH, path_fd = -1;
	int fd = -ENOENT;

	if (pid_fd < 0)
		return pid_fd;
	if (mapped)
		path_fd = open_mapped(pid_fd, rq->start, rq->end);
	if (path_fd >= 0)
		fd = check(open_regular(path_fd, ret), ret, rq, true);
	if (fd < 0 && rq->path)
		fd = check(open_in_root(pid_fd, rq->path, ret), ret, rq, true);
	return fd;
}

static int open_anywhere(const struct open_request *rq)
{
	struct stat st = {};
	_cleanup_close_ int path_fd = -1;
	int fd = try_process(rq, rq->pids[0], !rq->n_debug, &st);

	if (fd < 0)
		fd = try_process(rq, rq->pids[1], false, &st);
	if (fd >= 0 || !rq->path)
		return fd;
	path_fd = open(rq->path, O_PATH | O_CLOEXEC);
	return path_fd < 0 ? negative_errno() : check(open_regular(path_fd, &st), &st, rq, false);
}

/* The first debug file that is there. */
static int open_first(const struct open_request *rq, size_t *ret_which)
{
	struct open_request one = *rq;
	int fd = -ENOENT;

	for (size_t i = 0; fd < 0 && i < rq->n_debug; i++) {
		fd = open_anywhere(&one);
		*ret_which = i;
		one.path += strlen(one.path) + 1;
	}
	return fd;
}

static void *job_thread(void *arg)
{
	struct job *j = arg;
	size_t which = 0;
	int fd = j->rq.jit_map	 ? open_jit_map(&j->rq)
		 : j->rq.n_debug ? open_first(&j->rq, &which)
				 : open_anywhere(&j->rq);

	/* Before anybody can ask again. */
	leave(j->opener, j->running);
	pthread_mutex_lock(&j->lock);
	j->result = fd;
	j->which = which;
	j->done = true;
	pthread_cond_signal(&j->done_cond);
	pthread_mutex_unlock(&j->lock);
	job_unref(j);
	return NULL;
}

size_t open_paths_length(const struct open_request *rq)
{
	const char *p = rq->path;

	for (size_t i = 0; p && i < MAX(rq->n_debug, (size_t)1); i++)
		p += strlen(p) + 1;
	return (size_t)(p - rq->path);
}

static int job_new(struct opener *o, const struct open_request *rq, struct job **ret)
{
	struct job *j = new0(struct job, 1);

	if (!j)
		return -ENOMEM;
	pthread_mutex_init(&j->lock, NULL);
	cond_init_mono(&j->done_cond);
	j->refs = 1;
	j->opener = o;
	j->result = -ETIMEDOUT;
	j->rq = *rq;
	j->path = rq->path ? malloc(open_paths_length(rq)) : NULL;
	if (j->path)
		memcpy(j->path, rq->path, open_paths_length(rq));
	j->rq.path = j->path;
	j->rq.proc_fd = fcntl(rq->proc_fd, F_DUPFD_CLOEXEC, 3);
	if ((rq->path && !j->rq.path) || j->rq.proc_fd < 0) {
		job_unref(j);
		return -ENOMEM;
	}
	*ret = j;
	return 0;
}

static int job_start(struct job *j)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	j->running = enter(j->opener, &j->rq);
	if (!j->running)
		return -EBUSY;
	j->refs = 2;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 128 << 10);
	r = -pthread_create(&thread, &attr, job_thread, j);
	pthread_attr_destroy(&attr);
	if (r < 0) {
		j->refs = 1;
		leave(j->opener, j->running);
	}
	return r;
}

static int run(struct opener *o, const struct open_request *rq, uint64_t timeout_ns,
	       size_t *ret_which)
{
	_cleanup_(job_unref_p) struct job *j = NULL;
	uint64_t until = mono_now_ns() + timeout_ns;
	struct timespec ts = { (time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC) };
	int r;

	if (o->process)
		return opener_process_open(o->process, rq, timeout_ns, ret_which);
	r = job_new(o, rq, &j);
	if (r >= 0)
		r = job_start(j);
	if (r < 0)
		return r;
	pthread_mutex_lock(&j->lock);
	while (!j->done && r == 0)
		r = -pthread_cond_timedwait(&j->done_cond, &j->lock, &ts);
	if (j->done) {
		r = TAKE_FD(j->result);
		*ret_which = j->which;
	}
	pthread_mutex_unlock(&j->lock);
	return r;
}

int open_with_deadline(struct opener *o, const struct open_request *rq, uint64_t timeout_ns)
{
	size_t which;

	return run(o, rq, timeout_ns, &which);
}

int open_debug_with_deadline(struct opener *o, const struct open_request *rq, uint64_t timeout_ns,
			     size_t *ret_which)
{
	return run(o, rq, timeout_ns, ret_which);
}
