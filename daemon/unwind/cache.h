/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unwind tables on disk, so that a restart builds nothing. A file is one table as table.h lays it out, with its version
 * and checksum, and named by what the binary's file is: device, inode, size and the time of its last change. So a file
 * that was replaced, and one that only claims another's build-id, have tables of their own.
 */
#pragma once

#include "unwind/table.h"

struct cache_name {
	char text[40]; /* 32 hexadecimal digits */
};

/* -errno of fstat, -EINVAL when it is no regular file, or a deleted one. */
int cache_name(int fd, struct cache_name *ret);
/* -ENOENT: not there, or not to be used: what is damaged or of another version is removed. `dir` may be NULL. */
int cache_load(const char *dir, const struct cache_name *name, struct table **ret);
/*
 * Whole or not at all. -ENOSPC: it does not fit into bytes_max, a 32nd of the file system, or what is free there, of
 * which a tenth is left to others.
 */
int cache_store(const char *dir, const struct cache_name *name, const struct table *t,
		uint64_t bytes_max);
