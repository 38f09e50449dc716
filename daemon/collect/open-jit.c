// SPDX-License-Identifier: GPL-2.0-or-later
/* Opening the file in which a process tells the names of code that it makes: jit-map.h says which are refused. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "collect/opener.h"
#include "collect/procfs.h"

/* Those that wait for nobody else. */
static bool is_local(int fd)
{
	static const uint32_t types[] = {
		0x01021994, /* tmpfs */
		0x858458f6, /* ramfs */
		0x794c7630, /* overlay */
		0x0000ef53, /* ext2, ext3, ext4 */
		0x58465342, /* xfs */
		0x9123683e, /* btrfs */
		0xf2f52010, /* f2fs */
		0xca451a4e, /* bcachefs */
		0x2fc12fc1, /* zfs */
		0x3153464a, /* jfs */
		0x52654973, /* reiserfs */
	};
	struct statfs s;

	if (fstatfs(fd, &s) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((uint32_t)s.f_type == types[i])
			return true;
	return false;
}

static int open_beneath(int dir_fd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = flags | O_PATH | O_CLOEXEC,
		.resolve = resolve | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

	return fd < 0 ? negative_errno() : fd;
}

/* /tmp may be a link, which stays within the root of the process; the map may be none, nor a mount. */
static int open_in_tmp(int pid_fd, uint32_t pid)
{
	_cleanup_close_ int root = openat(pid_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC),
			    tmp = -1;
	char name[32];

	if (root < 0)
		return negative_errno();
	tmp = open_beneath(root, "tmp", O_DIRECTORY, RESOLVE_IN_ROOT);
	if (tmp < 0)
		return tmp;
	snprintf(name, sizeof(name), "perf-%u.map", pid);
	return open_beneath(tmp, name, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

static uint64_t started_wall_ns(const struct proc_stat *st)
{
	uint64_t tick_ns = NSEC_PER_SEC / (uint64_t)MAX(sysconf(_SC_CLK_TCK), 1L);
	struct timespec boot;
	uint64_t age;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	age = (uint64_t)boot.tv_sec * NSEC_PER_SEC + (uint64_t)boot.tv_nsec -
	      st->start_ticks * tick_ns;
	return wall_now_ns() - age;
}

/* Of a process before, which had the same number, names would be wrong. Clocks of files are coarse. */
static bool is_of(const struct stat *file, const struct proc_status *status,
		  const struct proc_stat *stat)
{
	uint64_t written = (uint64_t)file->st_mtim.tv_sec * NSEC_PER_SEC +
			   (uint64_t)file->st_mtim.tv_nsec;

	if (file->st_uid != status->uid && file->st_uid != status->euid && file->st_uid != 0)
		return false;
	return file->st_nlink == 1 && written + NSEC_PER_SEC >= started_wall_ns(stat);
}

int open_jit_map(const struct open_request *rq)
{
	_cleanup_close_ int path_fd = -1, fd = -1;
	struct proc_status status;
	struct proc_stat stat;
	struct stat file;
	bool is_private;
	int r;

	r = proc_read_stat(rq->proc_fd, &stat);
	if (r >= 0)
		r = proc_read_status(rq->proc_fd, &status, &is_private);
	if (r < 0)
		return r;
	if (stat.exiting)
		return -ESRCH;
	if (rq->start)
		path_fd = open_mapped(rq->proc_fd, rq->start, rq->end);
	if (path_fd < 0)
		path_fd = open_in_tmp(rq->proc_fd, status.ns_pid ?: rq->pids[0]);
	if (path_fd < 0)
		return path_fd;
	if (!is_local(path_fd))
		return -EREMOTE;
	fd = open_regular(path_fd, &file);
	if (fd < 0)
		return fd;
	return is_of(&file, &status, &stat) ? TAKE_FD(fd) : -EPERM;
}
