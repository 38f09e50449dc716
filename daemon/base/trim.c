// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/trim.h"

#define FILES_MAX 16384 /* looked at in one trimming */
#define SHARE_OF_FILESYSTEM 32
#define FREE_SHARE 10

uint64_t trim_limit(int dir_fd, uint64_t bytes_max)
{
	struct statvfs v;
	uint64_t size;

	if (fstatvfs(dir_fd, &v) < 0 || v.f_bavail < v.f_blocks / FREE_SHARE)
		return 0;
	size = (uint64_t)v.f_blocks * v.f_frsize;
	return MIN(bytes_max, size / SHARE_OF_FILESYSTEM);
}

struct cached {
	char name[TRIM_NAME_MAX + 1];
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

void trim_directory(const char *dir, uint64_t bytes_max)
{
	_cleanup_free_ struct cached *files = NULL;
	DIR *d = dir ? opendir(dir) : NULL;
	uint64_t sum;
	size_t n = 0;

	if (!d)
		return;
	sum = list(dirfd(d), d, &files, &n);
	bytes_max = trim_limit(dirfd(d), bytes_max);
	if (sum > bytes_max || n == FILES_MAX) {
		qsort(files, n, sizeof(*files), compare_used);
		/* Some more, so that not every new file has all of them looked at and one removed. */
		for (size_t i = 0; i < n && (sum > bytes_max / 8 * 7 || n - i > FILES_MAX / 8 * 7);
		     i++)
			if (unlinkat(dirfd(d), files[i].name, 0) == 0)
				sum -= files[i].bytes;
	}
	closedir(d);
}
