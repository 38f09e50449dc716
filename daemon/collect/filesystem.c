// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/util.h"
#include "collect/filesystem.h"

#define MOUNTINFO_LIMIT (4 << 20)
#define FILESYSTEM_TTL_NS (10 * NSEC_PER_SEC)

struct span {
	const char *p;
	size_t len;
};

struct mount {
	uint64_t dev;
	struct span point, type, options;
	bool prompt; /* by its type alone */
};

/* ---- mountinfo ------------------------------------------------------------------------------------------ */

static struct span next_field(const char **p)
{
	struct span s;

	*p += strspn(*p, " ");
	s = (struct span){ *p, strcspn(*p, " \n") };
	*p += s.len;
	return s;
}

static bool span_is(struct span s, const char *text)
{
	return strlen(text) == s.len && memcmp(s.p, text, s.len) == 0;
}

/* The part before the separator; *s keeps what is behind it. */
static struct span take_part(struct span *s, char separator)
{
	const char *end = memchr(s->p, separator, s->len);
	struct span part = { s->p, end ? (size_t)(end - s->p) : s->len };
	size_t used = MIN(part.len + 1, s->len);

	s->p += used;
	s->len -= used;
	return part;
}

/* Answered by another machine or another process. autofs: its mount point waits for a mount. */
static bool type_is_prompt(struct span type)
{
	static const char *const slow[] = { "fuse",	"fuseblk", "nfs",      "nfs4",	 "cifs",
					    "smb3",	"smbfs",   "9p",       "ceph",	 "afs",
					    "coda",	"lustre",  "virtiofs", "beegfs", "gpfs",
					    "orangefs", "pvfs2",   "ocfs2",    "gfs2",	 "autofs",
					    "ncpfs",	"vboxsf",  "prl_fs" };

	if (type.len > 5 && memcmp(type.p, "fuse.", 5) == 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
		if (span_is(type, slow[i]))
			return false;
	return true;
}

/*
 * "36 35 98:0 /root /mount options [optional fields] - type source options". Blanks within a field are escaped,
 * so that fields can be compared as they are.
 */
static bool parse_mount(const char *line, struct mount *ret)
{
	struct mount m = {};
	unsigned maj, min;
	const char *p = line;

	if (sscanf(line, "%*u %*u %u:%u", &maj, &min) != 2)
		return false;
	m.dev = makedev(maj, min);
	for (int i = 0; i < 4; i++)
		next_field(&p);
	m.point = next_field(&p);
	do {
		m.type = next_field(&p);
		if (m.type.len == 0)
			return false;
	} while (!span_is(m.type, "-"));
	m.type = next_field(&p);
	next_field(&p);
	m.options = next_field(&p);
	m.prompt = type_is_prompt(m.type);
	*ret = m;
	return m.point.len > 0;
}

int mounts_read(int dir_fd, const char *path, struct mounts *ret)
{
	_cleanup_(mounts_done) struct mounts m = {};
	int r = read_file_at(dir_fd, path, MOUNTINFO_LIMIT, &m.text);

	if (r < 0)
		return r;
	for (const char *p = m.text.data; p && *p; p += strcspn(p, "\n"), p += *p == '\n') {
		r = ARRAY_GROW(m.items, m.cap, m.n + 1);
		if (r < 0)
			return r;
		m.n += parse_mount(p, &m.items[m.n]);
	}
	*ret = m;
	m = (struct mounts){};
	return 0;
}

void mounts_done(struct mounts *m)
{
	free(m->items);
	strbuf_done(&m->text);
	*m = (struct mounts){};
}

/* ---- overlays ------------------------------------------------------------------------------------------- */

static bool lies_below(struct span path, struct span point)
{
	if (point.len == 1)
		return true; /* the root */
	return path.len >= point.len && memcmp(path.p, point.p, point.len) == 0 &&
	       (path.len == point.len || path.p[point.len] == '/');
}

/* By the innermost mount above the path; of several at one place the last is on top. */
static bool path_is_prompt(const struct mounts *ours, struct span path)
{
	const struct mount *best = NULL;

	for (size_t i = 0; i < ours->n; i++) {
		const struct mount *m = &ours->items[i];

		if (lies_below(path, m->point) && (!best || m->point.len >= best->point.len))
			best = m;
	}
	return !best || best->prompt;
}

/* Relative to where its maker was. A layer that may hang is a mount of its own. */
static bool name_is_prompt(const struct mounts *ours, struct span name)
{
	for (size_t i = 0; i < ours->n; i++) {
		const struct mount *m = &ours->items[i];
		const char *end = m->point.p + m->point.len;

		if (!m->prompt && m->point.len > name.len && end[-(ptrdiff_t)name.len - 1] == '/' &&
		    memcmp(end - name.len, name.p, name.len) == 0)
			return false;
	}
	return true;
}

static bool layers_are_prompt(const struct mounts *ours, struct span list)
{
	while (list.len > 0) {
		struct span layer = take_part(&list, ':');

		if (layer.len > 0 && !(layer.p[0] == '/' ? path_is_prompt(ours, layer)
							 : name_is_prompt(ours, layer)))
			return false;
	}
	return true;
}

static bool overlay_is_prompt(const struct mounts *ours, struct span options)
{
	static const char *const keys[] = { "lowerdir=", "lowerdir+=", "datadir+=", "upperdir=" };

	while (options.len > 0) {
		struct span o = take_part(&options, ',');

		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			size_t n = strlen(keys[i]);

			if (o.len > n && memcmp(o.p, keys[i], n) == 0 &&
			    !layers_are_prompt(ours, (struct span){ o.p + n, o.len - n }))
				return false;
		}
	}
	return true;
}

int mounts_is_prompt(const struct mounts *theirs, uint64_t dev, const struct mounts *ours)
{
	for (size_t i = 0; i < theirs->n; i++) {
		const struct mount *m = &theirs->items[i];

		if (m->dev == dev)
			return span_is(m->type, "overlay") ? overlay_is_prompt(ours, m->options)
							   : m->prompt;
	}
	return -ENOENT;
}

/* ---- the cache ------------------------------------------------------------------------------------------- */

void filesystems_init(struct filesystems *fs)
{
	_cleanup_close_ int fd = memfd_create("sysprofd", MFD_CLOEXEC);
	struct stat st;

	*fs = (struct filesystems){};
	fs->watch_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0)
		fs->memory_dev = st.st_dev;
}

void filesystems_done(struct filesystems *fs)
{
	fs->watch_fd = close_fd(fs->watch_fd);
	mounts_done(&fs->ours);
}

/* The kernel says when a mount has come or gone: hosts of many containers have thousands. */
static int follow_ours(struct filesystems *fs)
{
	struct pollfd p = { .fd = fs->watch_fd, .events = POLLPRI };

	if (fs->ours.n > 0 && fs->watch_fd >= 0 && poll(&p, 1, 0) == 0)
		return 0;
	mounts_done(&fs->ours);
	return mounts_read(AT_FDCWD, "/proc/self/mountinfo", &fs->ours);
}

/*
 * 1 prompt, 0 not or nowhere to be found. A process in a chroot shows only mounts below it; another mount of the
 * device may be among ours.
 */
static int look_up_device(struct filesystems *fs, int pid_fd, uint64_t dev)
{
	_cleanup_(mounts_done) struct mounts theirs = {};
	int r = follow_ours(fs);

	if (r >= 0)
		r = mounts_read(pid_fd, "mountinfo", &theirs);
	if (r < 0)
		return r;
	r = mounts_is_prompt(&theirs, dev, &fs->ours);
	if (r == -ENOENT)
		r = mounts_is_prompt(&fs->ours, dev, &fs->ours);
	return MAX(r, 0);
}

bool filesystem_is_prompt(struct filesystems *fs, int pid_fd, uint64_t dev, uint64_t mono_ns)
{
	struct filesystem *f = NULL;
	int r;

	for (size_t i = 0; i < fs->n; i++) {
		if (fs->items[i].dev == dev && mono_ns < fs->items[i].until_mono_ns)
			return fs->items[i].prompt;
		if (fs->items[i].dev == dev || mono_ns >= fs->items[i].until_mono_ns)
			f = &fs->items[i];
	}
	r = dev == fs->memory_dev ? 1 : look_up_device(fs, pid_fd, dev);
	/* The process has gone, or the text could not be read: nothing to remember. */
	if (r < 0)
		return false;
	if (!f)
		f = &fs->items[fs->n < FILESYSTEMS_MAX ? fs->n++ : dev % FILESYSTEMS_MAX];
	*f = (struct filesystem){ .dev = dev,
				  .until_mono_ns = mono_ns + FILESYSTEM_TTL_NS,
				  .prompt = r == 1 };
	return f->prompt;
}
