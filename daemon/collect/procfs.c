// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "collect/procfs.h"

#define STAT_LIMIT 4096
#define STATUS_LIMIT 8192 /* what is wanted stands near its beginning */
/* A path of PATH_MAX, each byte of which may be escaped as four, and the numbers before it. */
#define MAP_LINE_MAX (4 * 4096 + 256)
#define MAPS_BUFFER (2 * MAP_LINE_MAX)
#define KERNEL_THREAD_FLAG 0x00200000 /* PF_KTHREAD */
#define EXITING_FLAG 0x00000004 /* PF_EXITING */

/* ---- numbers in text of known length -------------------------------------------------------------- */

struct cursor {
	const char *p, *end;
};

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

static bool take_number(struct cursor *c, unsigned base, uint64_t *ret)
{
	const char *from = c->p;
	uint64_t v = 0;

	for (; c->p < c->end; c->p++) {
		unsigned d = (unsigned)digit_of(*c->p);

		if (d >= base)
			break;
		if (v > (UINT64_MAX - d) / base)
			return false;
		v = v * base + d;
	}
	if (c->p == from)
		return false;
	*ret = v;
	return true;
}

static bool take_char(struct cursor *c, char want)
{
	if (c->p >= c->end || *c->p != want)
		return false;
	c->p++;
	return true;
}

static void skip_spaces(struct cursor *c)
{
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\t'))
		c->p++;
}

/* Skips n fields that are separated by single spaces. */
static bool skip_fields(struct cursor *c, unsigned n)
{
	for (; n > 0; n--) {
		while (c->p < c->end && *c->p != ' ')
			c->p++;
		if (!take_char(c, ' '))
			return false;
	}
	return true;
}

/* ---- stat, status ---------------------------------------------------------------------------------- */

static const char *last_paren(const char *text, size_t len)
{
	return memrchr(text, ')', len);
}

int proc_parse_stat(const char *text, size_t len, struct proc_stat *ret)
{
	struct cursor c = { text, text + len };
	struct proc_stat s = {};
	uint64_t pid, flags, threads;
	const char *close = last_paren(text, len);

	if (!take_number(&c, 10, &pid) || pid > UINT32_MAX || !take_char(&c, ' ') ||
	    !take_char(&c, '('))
		return -EBADMSG;
	/* The name may hold any byte, parentheses included: it ends at the last one. */
	if (!close || close < c.p)
		return -EBADMSG;
	s.pid = (uint32_t)pid;
	s.comm_len = MIN((size_t)(close - c.p), sizeof(s.comm) - 1);
	memcpy(s.comm, c.p, s.comm_len);
	c.p = close + 1;
	if (!take_char(&c, ' ') || c.p >= c.end)
		return -EBADMSG;
	s.state = *c.p; /* field 3 */
	if (!skip_fields(&c, 6) || !take_number(&c, 10, &flags) || !take_char(&c, ' '))
		return -EBADMSG;
	if (!skip_fields(&c, 10) || !take_number(&c, 10, &threads) || !take_char(&c, ' '))
		return -EBADMSG;
	if (!skip_fields(&c, 1) || !take_number(&c, 10, &s.start_ticks))
		return -EBADMSG;
	s.kernel_thread = flags & KERNEL_THREAD_FLAG;
	s.exiting = flags & EXITING_FLAG;
	s.threads = (uint32_t)MIN(threads, (uint64_t)UINT32_MAX);
	*ret = s;
	return 0;
}

/* What follows "key:" at the beginning of a line; the name line is escaped and cannot fake one. */
static const char *find_line(const char *text, const char *key)
{
	for (const char *p = text; p; p = strchr(p, '\n')) {
		const char *rest;

		if (*p == '\n')
			p++;
		rest = str_skip_prefix(p, key);
		if (rest)
			return rest;
	}
	return NULL;
}

/* The last of the numbers behind "NSpid:", which names all namespaces from ours inwards. */
static uint32_t innermost_pid(const char *pids)
{
	struct cursor c = { pids, pids + strcspn(pids, "\n") };
	uint64_t pid = 0;

	for (skip_spaces(&c); c.p < c.end; skip_spaces(&c))
		if (!take_number(&c, 10, &pid) || pid > INT32_MAX)
			return 0;
	return (uint32_t)pid;
}

int proc_parse_status(const char *text, struct proc_status *ret)
{
	const char *uids = find_line(text, "Uid:"), *pids = find_line(text, "NSpid:");
	struct proc_status s = {};
	struct cursor c;
	uint64_t uid, euid;

	if (!uids)
		return -EBADMSG;
	c = (struct cursor){ uids, uids + strcspn(uids, "\n") };
	skip_spaces(&c);
	if (!take_number(&c, 10, &uid))
		return -EBADMSG;
	skip_spaces(&c);
	if (!take_number(&c, 10, &euid) || uid > UINT32_MAX || euid > UINT32_MAX)
		return -EBADMSG;
	s.uid = (uint32_t)uid;
	s.euid = (uint32_t)euid;
	s.ns_pid = pids ? innermost_pid(pids) : 0;
	*ret = s;
	return 0;
}

int64_t proc_parse_boottime_offset(const char *text)
{
	long long sec, nsec;
	const char *p = find_line(text, "boottime");

	if (!p || sscanf(p, "%lld %lld", &sec, &nsec) != 2)
		return 0;
	return sec * (int64_t)NSEC_PER_SEC + nsec;
}

/* ---- maps ------------------------------------------------------------------------------------------- */

bool proc_strip_deleted(const char *path, size_t *len)
{
	static const char suffix[] = " (deleted)";
	size_t n = sizeof(suffix) - 1;

	if (*len <= n || memcmp(path + *len - n, suffix, n) != 0)
		return false;
	*len -= n;
	return true;
}

int proc_parse_map(const char *line, size_t len, struct proc_map *ret)
{
	struct cursor c = { line, line + len };
	struct proc_map m = {};
	uint64_t maj, min;
	const char *perms;

	if (!take_number(&c, 16, &m.start) || !take_char(&c, '-') || !take_number(&c, 16, &m.end) ||
	    !take_char(&c, ' ') || m.end <= m.start || c.end - c.p < 5)
		return -EBADMSG;
	perms = c.p;
	c.p += 4;
	if (!take_char(&c, ' ') || !take_number(&c, 16, &m.offset) || !take_char(&c, ' ') ||
	    !take_number(&c, 16, &maj) || !take_char(&c, ':') || !take_number(&c, 16, &min) ||
	    !take_char(&c, ' ') || !take_number(&c, 10, &m.ino))
		return -EBADMSG;
	if (maj > UINT32_MAX || min > UINT32_MAX)
		return -EBADMSG;
	skip_spaces(&c);
	m.write = perms[1] == 'w';
	m.exec = perms[2] == 'x';
	m.shared = perms[3] == 's';
	m.dev = makedev((unsigned)maj, (unsigned)min);
	m.path = c.p;
	m.path_len = (size_t)(c.end - c.p);
	if (m.path_len > 0 && m.path[0] == '/')
		m.deleted = proc_strip_deleted(m.path, &m.path_len);
	*ret = m;
	return 0;
}

/* ---- readers ------------------------------------------------------------------------------------------ */

int proc_open(const char *root)
{
	int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? negative_errno() : fd;
}

int proc_open_pid(int proc_fd, uint32_t pid)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u", pid);
	fd = openat(proc_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? negative_errno() : fd;
}

static ssize_t read_small(int dir_fd, const char *name, char *buf, size_t size, struct stat *ret_st)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0 || (ret_st && fstat(fd, ret_st) < 0))
		return negative_errno();
	while (len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return negative_errno();
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = 0;
	return (ssize_t)len;
}

int proc_read_stat(int pid_fd, struct proc_stat *ret)
{
	char buf[STAT_LIMIT];
	ssize_t n = read_small(pid_fd, "stat", buf, sizeof(buf), NULL);

	return n < 0 ? (int)n : proc_parse_stat(buf, (size_t)n, ret);
}

int proc_read_status(int pid_fd, struct proc_status *ret, bool *ret_is_private)
{
	char buf[STATUS_LIMIT];
	struct proc_status s;
	struct stat st;
	ssize_t n = read_small(pid_fd, "status", buf, sizeof(buf), &st);
	int r;

	if (n < 0)
		return (int)n;
	r = proc_parse_status(buf, &s);
	if (r < 0)
		return r;
	*ret_is_private = s.uid != s.euid || st.st_uid != s.euid;
	*ret = s;
	return 0;
}

int proc_read_link(int pid_fd, const char *name, char *buf, size_t size, size_t *ret_len)
{
	ssize_t n = readlinkat(pid_fd, name, buf, size);

	if (n < 0)
		return negative_errno();
	if ((size_t)n == size)
		return -ENAMETOOLONG;
	buf[n] = 0;
	*ret_len = (size_t)n;
	return 0;
}

static void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

int proc_each_pid(int dir_fd, const char *path, proc_pid_fn fn, void *ctx)
{
	_cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedir_p) DIR *d = NULL;
	const struct dirent *e;

	if (fd < 0)
		return negative_errno();
	d = fdopendir(fd);
	if (!d)
		return negative_errno();
	TAKE_FD(fd);
	while ((e = readdir(d))) {
		struct cursor c = { e->d_name, e->d_name + strlen(e->d_name) };
		uint64_t pid;
		int r;

		if (!take_number(&c, 10, &pid) || c.p != c.end || pid == 0 || pid > INT32_MAX)
			continue;
		r = fn(ctx, (uint32_t)pid);
		if (r != 0)
			return r;
	}
	return 0;
}

/* Newlines in paths are shown as \\012, and nothing else is escaped. */
static size_t unescape(char *path, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len; out++) {
		if (len - i >= 4 && memcmp(path + i, "\\012", 4) == 0) {
			path[out] = '\n';
			i += 4;
		} else {
			path[out] = path[i++];
		}
	}
	return out;
}

/* Gives fn every whole line in buf and moves the rest to its front. */
static int take_lines(char *buf, size_t *len, proc_map_fn fn, void *ctx, int *n_maps)
{
	char *p = buf, *end = buf + *len, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		struct proc_map m;
		int r;

		if (proc_parse_map(p, (size_t)(nl - p), &m) == 0) {
			(*n_maps)++;
			m.path_len = unescape((char *)m.path, m.path_len);
			r = fn(ctx, &m);
			if (r != 0)
				return r;
		}
		p = nl + 1;
	}
	*len = (size_t)(end - p);
	memmove(buf, p, *len);
	return 0;
}

int proc_each_map(int pid_fd, proc_map_fn fn, void *ctx)
{
	_cleanup_close_ int fd = openat(pid_fd, "maps", O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *buf = NULL;
	size_t len = 0;
	int n_maps = 0;

	if (fd < 0)
		return negative_errno();
	buf = malloc(MAPS_BUFFER);
	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, buf + len, MAPS_BUFFER - len);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return negative_errno();
		if (n == 0)
			return n_maps;
		len += (size_t)n;
		r = take_lines(buf, &len, fn, ctx, &n_maps);
		if (r != 0)
			return r;
		if (len == MAPS_BUFFER)
			return -EBADMSG; /* no kernel writes such a line */
	}
}

/* <linux/fs.h> of 6.11; 5.10's headers must do. May go when the oldest build host has it. */
struct procmap_query_v1 {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY_V1 _IOWR('f', 17, struct procmap_query_v1)

int proc_query_vma(int pid_fd, uint64_t address, bool with_build_id, struct proc_vma *ret)
{
	_cleanup_close_ int fd = openat(pid_fd, "maps", O_RDONLY | O_CLOEXEC);
	struct proc_vma v = {};
	struct procmap_query_v1 q = { .size = sizeof(q), .query_addr = address };

	if (fd < 0)
		return negative_errno();
	if (with_build_id) {
		q.build_id_size = sizeof(v.build_id);
		q.build_id_addr = (uint64_t)(uintptr_t)v.build_id;
	}
	if (ioctl(fd, PROCMAP_QUERY_V1, &q) < 0)
		return errno == ENOTTY ? -EOPNOTSUPP : negative_errno();
	v.start = q.vma_start;
	v.end = q.vma_end;
	v.offset = q.vma_offset;
	v.dev = makedev(q.dev_major, q.dev_minor);
	v.ino = q.inode;
	v.build_id_len = with_build_id ? MIN((size_t)q.build_id_size, sizeof(v.build_id)) : 0;
	*ret = v;
	return 0;
}
