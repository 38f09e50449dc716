// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "base/io.h"

int read_fd(int fd, size_t limit, struct strbuf *b)
{
	size_t total = 0;

	for (;;) {
		/* One byte more than allowed, so that a file of exactly `limit` is told from a longer one. */
		size_t want = MIN((size_t)16384, limit - total + 1);
		char *p = strbuf_reserve(b, want);
		ssize_t n;

		if (!p)
			return strbuf_error(b);
		n = read(fd, p, want);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			p[0] = 0;
			return negative_errno();
		}
		b->len += (size_t)n;
		b->data[b->len] = 0;
		total += (size_t)n;
		if (n == 0)
			return 0;
		if (total > limit)
			return -EFBIG;
	}
}

int read_file_at(int dir_fd, const char *path, size_t limit, struct strbuf *b)
{
	_cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return negative_errno();
	return read_fd(fd, limit, b);
}

int pread_full(int fd, void *buf, size_t len, uint64_t offset)
{
	char *p = buf;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return negative_errno();
		if (n == 0)
			return -ENODATA;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int write_full(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return negative_errno();
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fstat_known(int fd, struct stat *ret)
{
	struct statx x;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &x) < 0)
		return negative_errno();
	*ret = (struct stat){
		.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
		.st_ino = x.stx_ino,
		.st_mode = x.stx_mode,
		.st_nlink = x.stx_nlink,
		.st_uid = x.stx_uid,
		.st_gid = x.stx_gid,
		.st_size = (off_t)x.stx_size,
		.st_ctim = { x.stx_ctime.tv_sec, x.stx_ctime.tv_nsec },
	};
	return 0;
}

int stdio_occupy(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return negative_errno();
	close(fd);
	return 0;
}
