/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whole reads and writes: short counts and EINTR are handled here and nowhere else. */
#pragma once

#include <sys/stat.h>

#include "base/strbuf.h"

/* Appends the file to *b, at most limit bytes: -EFBIG beyond. Fit for /proc, whose sizes are 0. */
int read_file_at(int dir_fd, const char *path, size_t limit, struct strbuf *b) _warn_unused_;
int read_fd(int fd, size_t limit, struct strbuf *b) _warn_unused_;
/* Reads exactly len bytes at the offset: -ENODATA when the file ends earlier. */
int pread_full(int fd, void *buf, size_t len, uint64_t offset) _warn_unused_;
int write_full(int fd, const void *buf, size_t len) _warn_unused_;
/*
 * What the kernel knows of the file, as of its opening or later: type, links, owner, size, ctime, device and inode.
 * fstat() may ask the server of a filesystem, which may never answer.
 */
int fstat_known(int fd, struct stat *ret) _warn_unused_;
/*
 * Standard descriptors that the caller closed are filled, or a file or socket would get the number, and with it what
 * is meant to be printed. Writing there fails, as it should.
 */
int stdio_occupy(void) _warn_unused_;
