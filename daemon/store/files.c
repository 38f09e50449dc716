// SPDX-License-Identifier: GPL-2.0-or-later
/* The directory: which day files there are, what they take, and taking them away. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/private.h"

/* A new file costs 30 KiB and a dictionary of its own; eight or more keep retention fine-grained. */
#define FILE_LIMIT_MIN (1ULL << 20)
#define FILE_LIMIT_MAX (512ULL << 20)
#define FILES_IN_LIMIT 8

/* Half a day of buckets. */
#define SEQ_BLOCK 4096

void store_save_identity(struct store *s)
{
	s->identity.next_seq = MAX(s->identity.next_seq, s->next_seq);
	s->identity.reserved_seq = MAX(s->identity.reserved_seq, s->next_seq + SEQ_BLOCK);
	s->identity_dirty = identity_save(s->directory_fd, &s->identity) < 0;
	s->buckets_since_save = 0;
}

uint64_t store_bytes(const struct store *s)
{
	uint64_t bytes = s->other_bytes;

	for (size_t i = 0; i < s->n_files; i++)
		bytes += s->files[i].bytes;
	return bytes;
}

uint64_t store_limit(const struct store *s)
{
	struct statvfs fs;
	uint64_t available;

	if (fstatvfs(s->directory_fd, &fs) < 0)
		return s->options.max_bytes;
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	return MIN(s->options.max_bytes, store_bytes(s) + available);
}

uint64_t store_file_limit(const struct store *s)
{
	return CLAMP(store_limit(s) / FILES_IN_LIMIT, FILE_LIMIT_MIN, FILE_LIMIT_MAX);
}

struct day_file *file_find(struct store *s, const char *name)
{
	for (size_t i = 0; i < s->n_files; i++)
		if (streq(s->files[i].name, name))
			return &s->files[i];
	return NULL;
}

struct day_file *file_current(struct store *s)
{
	char name[DAY_NAME_MAX];

	if (!s->current)
		return NULL;
	day_name(name, s->current->day_ns, s->current->first_seq);
	return file_find(s, name);
}

int file_add(struct store *s, const char *name)
{
	struct day_file f = {};
	size_t at = s->n_files;

	if (!day_name_parse(name, &f.day_ns, &f.first_seq))
		return -EINVAL;
	strcpy(f.name, name);
	if (ARRAY_GROW(s->files, s->cap_files, s->n_files + 1) < 0)
		return -ENOMEM;
	while (at > 0 && s->files[at - 1].first_seq > f.first_seq)
		at--;
	memmove(&s->files[at + 1], &s->files[at], (s->n_files - at) * sizeof(f));
	s->files[at] = f;
	s->n_files++;
	return 0;
}

/*
 * Closes whatever has the file open and takes it out of the list. The last file knows the numbers that were
 * given out: store.id takes over.
 */
static void forget(struct store *s, struct day_file *f)
{
	size_t at = (size_t)(f - s->files);

	if (at + 1 == s->n_files && s->next_seq > 0)
		store_save_identity(s);
	if (f == file_current(s))
		s->current = day_free(s->current);
	if (streq(s->check.name, f->name))
		check_forget(s);
	memmove(f, f + 1, (s->n_files - at - 1) * sizeof(*f));
	s->n_files--;
}

static char *path_of(const struct store *s, const char *name, const char *suffix)
{
	char *path;

	return asprintf(&path, "%s/%s%s", s->directory, name, suffix) < 0 ? NULL : path;
}

void file_drop(struct store *s, struct day_file *f)
{
	_cleanup_free_ char *path = path_of(s, f->name, "");

	if (!path)
		return;
	s->stats.dropped_buckets += f->survey.buckets;
	forget(s, f);
	day_unlink(path);
}

void file_set_aside(struct store *s, struct day_file *f)
{
	static const char *const suffixes[][2] = { { "-wal", "-wal.corrupt" }, { "", ".corrupt" } };
	char name[DAY_NAME_MAX];

	strcpy(name, f->name);
	forget(s, f);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		_cleanup_free_ char *from = path_of(s, name, suffixes[i][0]);
		_cleanup_free_ char *to = path_of(s, name, suffixes[i][1]);

		/* A file that cannot even be renamed must not be met again at every append. */
		if (from && to && rename(from, to) < 0 && errno != ENOENT)
			(void)unlink(from);
	}
	(void)fsync(s->directory_fd);
	s->stats.corrupt_files++;
}

int file_survey(struct store *s, struct day_file *f)
{
	_cleanup_(day_free_p) struct day *d = NULL;
	struct day_survey survey;
	int r = day_open(s->directory, f->name, s->options.max_bytes, &d);

	if (r >= 0)
		r = day_survey(d, &survey);
	switch (r) {
	case -EBADMSG:
		d = day_free(d);
		file_set_aside(s, f);
		return 1;
	case -ENODATA:
		d = day_free(d);
		file_drop(s, f);
		return 1;
	case -EPROTONOSUPPORT:
		f->foreign = f->surveyed = true;
		return 0;
	}
	if (r < 0)
		return r;
	f->survey = survey;
	f->surveyed = true;
	return 0;
}

/* ---- sizes -------------------------------------------------------------------------------------- */

/* The day file that a name belongs to: itself, its log or its shared memory. */
static struct day_file *owner_of(struct store *s, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < s->n_files; i++) {
		size_t n = strlen(s->files[i].name);

		if (len < n || memcmp(name, s->files[i].name, n) != 0)
			continue;
		if (streq(name + n, "") || streq(name + n, "-wal") || streq(name + n, "-shm") ||
		    streq(name + n, "-journal"))
			return &s->files[i];
	}
	return NULL;
}

static bool is_corrupt(const char *name)
{
	size_t n = strlen(name), k = strlen(".corrupt");

	return n > k && streq(name + n - k, ".corrupt");
}

static int visit(struct store *s, const char *name, uint64_t *other, bool add)
{
	uint64_t day_ns, first_seq;
	struct day_file *f;
	struct stat st;

	if (fstatat(s->directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (is_corrupt(name) && add)
		s->stats.corrupt_files += !strstr(name, "-wal");
	if (streq(name, RESERVE_NAME))
		s->have_reserve = true;
	f = owner_of(s, name);
	if (!f && add && day_name_parse(name, &day_ns, &first_seq)) {
		int r = file_add(s, name);

		if (r < 0)
			return r;
		f = file_find(s, name);
	}
	if (!f) {
		*other += (uint64_t)st.st_size;
		return 0;
	}
	f->bytes += (uint64_t)st.st_size;
	if (streq(f->name, name)) {
		f->seen = true;
		f->main_bytes = (uint64_t)st.st_size;
	}
	return 0;
}

static int open_directory(const struct store *s, DIR **ret)
{
	int fd = openat(s->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir;

	if (fd < 0)
		return negative_errno();
	dir = fdopendir(fd);
	if (!dir) {
		close_fd(fd);
		return -ENOMEM;
	}
	*ret = dir;
	return 0;
}

/* -wal and -shm of files that are met later count as others once; the next round has them right. */
int files_refresh(struct store *s, bool add)
{
	uint64_t other = 0;
	struct dirent *e;
	DIR *dir;
	int r = open_directory(s, &dir);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n_files; i++) {
		s->files[i].bytes = 0;
		s->files[i].seen = false;
	}
	s->have_reserve = false;
	while (r >= 0 && (e = readdir(dir)))
		r = visit(s, e->d_name, &other, add);
	closedir(dir);
	if (r < 0)
		return r;
	s->other_bytes = other;
	/* Someone else removed it: what we would still write there, nobody would find. */
	for (size_t i = s->n_files; i > 0; i--)
		if (!s->files[i - 1].seen)
			forget(s, &s->files[i - 1]);
	return 0;
}

bool drop_oldest_corrupt(struct store *s)
{
	char oldest[NAME_MAX + 1] = "";
	struct dirent *e;
	DIR *dir;

	if (open_directory(s, &dir) < 0)
		return false;
	while ((e = readdir(dir)))
		if (is_corrupt(e->d_name) && (!oldest[0] || strcmp(e->d_name, oldest) < 0))
			strcpy(oldest, e->d_name);
	closedir(dir);
	return oldest[0] && unlinkat(s->directory_fd, oldest, 0) >= 0;
}
