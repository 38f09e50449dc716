// SPDX-License-Identifier: GPL-2.0-or-later
#include "unwind/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/io.h"
#include "base/trim.h"

#define TEMPORARY "incomplete"

int cache_name(int fd, struct cache_name *ret)
{
	struct stat st;
	uint64_t what[5];
	XXH128_hash_t h;
	int r = fstat_known(fd, &st);

	if (r < 0)
		return r;
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

int cache_store(const char *dir, const struct cache_name *name, const struct table *t,
		uint64_t bytes_max)
{
	_cleanup_close_ int dir_fd = open_dir(dir), fd = -1;
	int r;

	if (dir_fd < 0)
		return dir_fd;
	if (t->bytes > trim_limit(dir_fd, bytes_max))
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
