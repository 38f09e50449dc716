// SPDX-License-Identifier: GPL-2.0-or-later
#include "unwind/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <xxhash.h>

#include "base/io.h"

#define FILES_MAX 16384 /* looked at in one trimming */
#define TEMPORARY "incomplete"
/* It shares the file system with what cannot be made again: it keeps to a part of it, and out of what is left. */
#define SHARE_OF_FILESYSTEM 32
#define FREE_SHARE 10

int cache_name(int fd, struct cache_name *ret)
{
	struct stat st;
	uint64_t what[5];
	XXH128_hash_t h;

	if (fstat(fd, &st) < 0)
		return negative_errno();
	/* What has no name any more will not be met after a restart. */
	if (!S_ISREG(st.st_mode) || st.st_nlink == 0)
		return -EINVAL;
	what[0] = st.st_dev;
	what[1] = st.st_ino;
	what[2] = (uint64_t)st.st_size;
	what[3] = (uint64_t)st.st_ctim.tv_sec;
	what[4] = (uint64_t)st.st_ctim.tv_nsec;
	h = XXH3_128bits(what, sizeof(what));
	snprintf(ret->text, sizeof(ret->text), "%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
	return 0;
}

static int open_dir(const char *dir)
{
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd < 0 ? (dir ? negative_errno() : -ENOENT) : fd;
}

int cache_load(const char *dir, const struct cache_name *name, struct table **ret)
{
	_cleanup_close_ int dir_fd = open_dir(dir), fd = -1;
	struct stat st;
	int r;

	if (dir_fd < 0)
		return -ENOENT;
	fd = openat(dir_fd, name->text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -ENOENT;
	r = fstat(fd, &st) < 0 ? negative_errno() : table_read(fd, (uint64_t)st.st_size, ret);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		unlinkat(dir_fd, name->text, 0);
		return -ENOENT;
	}
	/* The time of its last use, by which it is trimmed. */
	(void)futimens(fd, NULL);
	return 0;
}

/* How many bytes the cache may hold, or 0 when there is no room for any. */
static uint64_t limit_of(int dir_fd, uint64_t bytes_max)
{
	struct statvfs v;
	uint64_t size;

	if (fstatvfs(dir_fd, &v) < 0 || v.f_bavail < v.f_blocks / FREE_SHARE)
		return 0;
	size = (uint64_t)v.f_blocks * v.f_frsize;
	return MIN(bytes_max, size / SHARE_OF_FILESYSTEM);
}

int cache_store(const char *dir, const struct cache_name *name, const struct table *t,
		uint64_t bytes_max)
{
	_cleanup_close_ int dir_fd = open_dir(dir), fd = -1;
	int r;

	if (dir_fd < 0)
		return dir_fd;
	if (t->bytes > limit_of(dir_fd, bytes_max))
		return -ENOSPC;
	fd = openat(dir_fd, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return negative_errno();
	/* Not synced: a torn file has a wrong checksum, and is built anew. */
	r = write_full(fd, t, t->bytes);
	if (r >= 0 && renameat(dir_fd, TEMPORARY, dir_fd, name->text) < 0)
		r = negative_errno();
	if (r < 0)
		unlinkat(dir_fd, TEMPORARY, 0);
	return r;
}

/* ---- trimming ------------------------------------------------------------------------------------- */

struct cached {
	char name[40];
	uint64_t bytes;
	int64_t used_s;
};

static int compare_used(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

static uint64_t list(int dir_fd, DIR *d, struct cached **files, size_t *n)
{
	uint64_t sum = 0;
	size_t cap = 0;
	struct dirent *e;
	struct stat st;

	while (*n < FILES_MAX && (e = readdir(d))) {
		if (strlen(e->d_name) >= sizeof((*files)->name) ||
		    fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) || ARRAY_GROW(*files, cap, *n + 1) < 0)
			continue;
		strcpy((*files)[*n].name, e->d_name);
		(*files)[*n].bytes = (uint64_t)st.st_size;
		(*files)[*n].used_s = st.st_mtim.tv_sec;
		sum += (uint64_t)st.st_size;
		(*n)++;
	}
	return sum;
}

void cache_trim(const char *dir, uint64_t bytes_max)
{
	_cleanup_free_ struct cached *files = NULL;
	DIR *d = dir ? opendir(dir) : NULL;
	uint64_t sum;
	size_t n = 0;

	if (!d)
		return;
	sum = list(dirfd(d), d, &files, &n);
	bytes_max = limit_of(dirfd(d), bytes_max);
	if (sum > bytes_max || n == FILES_MAX) {
		qsort(files, n, sizeof(*files), compare_used);
		/* Some more, so that not every new table has all of them looked at and one removed. */
		for (size_t i = 0; i < n && (sum > bytes_max / 8 * 7 || n - i > FILES_MAX / 8 * 7);
		     i++)
			if (unlinkat(dirfd(d), files[i].name, 0) == 0)
				sum -= files[i].bytes;
	}
	closedir(d);
}
