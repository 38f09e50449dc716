/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The text of /proc/PID/{stat,status,maps,cmdline} as pure functions, and the readers around them.
 *
 * A process is read through a descriptor of its /proc/PID directory: the kernel binds it to that one process,
 * so that files read through it can never belong to a later owner of the number (they fail with ESRCH). A
 * thread id serves in place of a process id: /proc/TID exists for every thread, and is the way to the memory
 * of a process whose main thread has gone.
 */
#pragma once

#include <sys/types.h>

#include "base/strbuf.h"
#include "base/util.h"

#define PROC_COMM_MAX 64 /* 15 for tasks, but workqueue names are longer */

struct proc_stat {
	uint32_t pid;
	char comm[PROC_COMM_MAX + 1]; /* raw bytes */
	size_t comm_len;
	char state;
	bool kernel_thread;
	bool exiting; /* its cgroup is not told truthfully any more */
	uint32_t threads;
	uint64_t start_ticks; /* since boot, in the reader's time namespace; USER_HZ */
};

/* -EBADMSG when it is not a stat line. comm may hold spaces, parentheses and newlines. */
int proc_parse_stat(const char *text, size_t len, struct proc_stat *ret) _warn_unused_;

struct proc_status {
	uint32_t uid, euid;
	uint32_t ns_pid; /* in its own pid namespace; 0: not told */
};
int proc_parse_status(const char *text, struct proc_status *ret) _warn_unused_;

struct proc_map {
	uint64_t start, end, offset;
	uint64_t dev, ino; /* makedev() form; 0 for anonymous memory */
	bool write, exec, shared;
	bool deleted; /* " (deleted)" stripped from path */
	const char *path; /* not terminated; "" for anonymous memory */
	size_t path_len;
};

/* One line without its newline; newlines in the path stay \012. -EBADMSG when it is not a mapping. */
int proc_parse_map(const char *line, size_t len, struct proc_map *ret) _warn_unused_;

/* Strips " (deleted)", which the kernel appends to the path of an unlinked file. */
bool proc_strip_deleted(const char *path, size_t *len);

/* The seconds and nanoseconds that /proc/self/timens_offsets adds to boottime, in ns. */
int64_t proc_parse_boottime_offset(const char *text);

/* ---- readers ----------------------------------------------------------------------------------- */

int proc_open(const char *root); /* "/proc": descriptor or -errno */
int proc_open_pid(int proc_fd, uint32_t pid); /* directory of one process or thread */

int proc_read_stat(int pid_fd, struct proc_stat *ret) _warn_unused_;
/* is_private: its files belong to someone else than euid, which says that it is not dumpable. */
int proc_read_status(int pid_fd, struct proc_status *ret, bool *ret_is_private) _warn_unused_;
int proc_read_link(int pid_fd, const char *name, char *buf, size_t size,
		   size_t *ret_len) _warn_unused_;

/* Calls fn for every number in /proc or /proc/PID/task; fn stops it by a value that is not 0. */
typedef int (*proc_pid_fn)(void *ctx, uint32_t pid);
int proc_each_pid(int dir_fd, const char *path, proc_pid_fn fn, void *ctx);

/*
 * Calls fn for each mapping. Lines that do not parse are skipped. Returns the number of mappings, 0 for a
 * process without memory (kernel thread, zombie).
 */
typedef int (*proc_map_fn)(void *ctx, const struct proc_map *m);
int proc_each_map(int pid_fd, proc_map_fn fn, void *ctx);

#define BUILD_ID_MAX 20

struct proc_vma {
	uint64_t start, end, offset;
	uint64_t dev, ino;
	uint8_t build_id[BUILD_ID_MAX];
	size_t build_id_len; /* 0: none, or not asked for */
};
/*
 * The mapping that covers an address, by PROCMAP_QUERY (6.11). with_build_id has the kernel read the file's
 * notes, which may wait for its filesystem. -EOPNOTSUPP on older kernels, -ENOENT when nothing covers it.
 */
int proc_query_vma(int pid_fd, uint64_t address, bool with_build_id,
		   struct proc_vma *ret) _warn_unused_;
