// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "base/clock.h"
#include "collect/look.h"

void look_done(struct look *l)
{
	close_fd(l->path_fd);
}

/* The text of the link of an open file is its path as its mount namespace shows it. */
static int read_path(int fd, struct look *l)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, l->path, sizeof(l->path));
	if (n < 0)
		return negative_errno();
	l->path_len = (size_t)n;
	proc_strip_deleted(l->path, &l->path_len);
	return 0;
}

bool path_known(const struct sighting *s)
{
	return s->path[0] == '/' && !(s->path_len > 1 && s->path[1] == '/');
}

static int match_vma(void *ctx, const struct proc_map *m)
{
	struct proc_vma *v = ctx;

	if (m->end <= v->start)
		return 0;
	if (m->start > v->start)
		return -ENOENT;
	*v = (struct proc_vma){ m->start, m->end, m->offset, m->dev, m->ino };
	return 1;
}

/* Before 6.11 there is only the text. */
static int find_vma(int pid_fd, uint64_t address, struct proc_vma *ret)
{
	int r = proc_query_vma(pid_fd, address, false, ret);

	if (r != -EOPNOTSUPP)
		return r;
	*ret = (struct proc_vma){ .start = address };
	r = proc_each_map(pid_fd, match_vma, ret);
	return r < 0 ? r : r == 1 && ret->end ? 0 : -ENOENT;
}

/*
 * Whether the file is that of the sighting, and no other that lies there by now. A record tells the path as its
 * process saw it, from its own root; and root's word is not taken by the path alone.
 */
static bool is_sighted(const struct sighting *s, const struct file_identity *f,
		       const struct look *l, int path_fd)
{
	bool same_path = !path_known(s) ||
			 (l->path_len == s->path_len && memcmp(l->path, s->path, s->path_len) == 0);
	_cleanup_close_ int fd = -1;
	struct file_identity want = *f;
	struct stat st;

	if (f->build_id_len == 0 || (same_path && file_author(&l->st) != 0))
		return same_path;
	fd = open_regular(path_fd, &st);
	want.author = file_author(&l->st);
	return fd >= 0 && file_is(fd, &st, &want);
}

void look_at_file(struct filesystems *filesystems, const struct sighting *s, int pid_fd,
		  struct file_identity *f, struct look *l)
{
	struct proc_vma v = { .start = s->start, .end = s->end, .dev = f->dev, .ino = f->ino };
	_cleanup_close_ int fd = -1;

	if (f->ino == 0 && (find_vma(pid_fd, s->start, &v) < 0 || v.ino == 0))
		return;
	if (!filesystem_is_prompt(filesystems, pid_fd, v.dev, s->mono_ns)) {
		l->slow_dev = v.dev;
		return;
	}
	fd = open_mapped(pid_fd, v.start, v.end);
	if (fd < 0 || fstat(fd, &l->st) < 0 || read_path(fd, l) < 0 || !is_sighted(s, f, l, fd))
		return;
	f->dev = v.dev;
	f->ino = v.ino;
	f->generation = (uint64_t)l->st.st_ctim.tv_sec * NSEC_PER_SEC +
			(uint64_t)l->st.st_ctim.tv_nsec;
	f->author = file_author(&l->st);
	l->path_fd = TAKE_FD(fd);
}

void ask_build_id(const struct sighting *s, int pid_fd, struct file_identity *f)
{
	struct proc_vma v;

	if (proc_query_vma(pid_fd, s->start, true, &v) < 0 || v.ino != f->ino || v.dev != f->dev)
		return;
	memcpy(f->build_id, v.build_id, v.build_id_len);
	f->build_id_len = v.build_id_len;
}
