/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opening the files of others without being hurt: no device, no FIFO, no path that is followed where its
 * owner wants, no filesystem that may never answer in a thread that must go on.
 *
 * A file is reached by the kernel's own link of a mapping (/proc/PID/map_files) where possible, which no
 * rename or mount can turn elsewhere. It is opened O_PATH, found to be a regular file, and only then opened
 * for reading through that descriptor. Files on filesystems that may not answer (filesystem.h), and everything
 * that is found by path, are opened by threads of their own, which are abandoned at their deadline. A few of those
 * may hang at a time, apart by what they open: where nothing answers, others are not held back by it.
 *
 * Thread-safe.
 */
#pragma once

#include <sys/stat.h>

#include "base/util.h"

/* A descriptor for reading of the regular file behind an O_PATH descriptor, with its stat. */
int open_regular(int path_fd, struct stat *ret) _warn_unused_;
/* O_PATH descriptor of the file that is mapped at [start, end) in the process behind pid_fd. */
int open_mapped(int pid_fd, uint64_t start, uint64_t end) _warn_unused_;
/* Of a path as the process behind pid_fd sees it, no symlink of which leads out of its root. */
int open_in_root(int pid_fd, const char *path, struct stat *ret) _warn_unused_;

/* What the file must be, told by what it is. */
struct file_identity {
	uint8_t build_id[20];
	size_t build_id_len; /* 0: by the rest */
	uint64_t author; /* whose word the build-id is */
	uint64_t dev, ino, generation; /* generation 0: not known */
};
bool file_is(int fd, const struct stat *st, const struct file_identity *want);

/*
 * Anyone can write anyone's build-id into a file. What only root can write is believed (0): wherever it lies, it is
 * one binary. Other files are believed among those of their owner, and where more than the owner can write, each for
 * itself. AUTHOR_UNSEEN: nobody could look at the file; the rest of the number is its path's.
 */
#define AUTHOR_UNSEEN (1ULL << 63)
#define AUTHOR_FILE (1ULL << 62)
uint64_t file_author(const struct stat *st);

/* Where the file may be found, tried in this order. */
struct open_request {
	int proc_fd;
	uint32_t pids[2]; /* that mapped it, its parent; 0: none */
	uint64_t start, end; /* of the mapping in pids[0] */
	const char *path; /* as they saw it; may be NULL */
	struct file_identity identity;
	uint64_t
		slow_dev; /* of a filesystem that may not answer; 0: it does, or nobody could look */
	/* Names of code that the process behind proc_fd made, by open_jit_map(): of the rest only the mapping counts. */
	bool jit_map;
	/* Instead of the file, its debug file: the first that may be it, of so many paths, each behind the other's NUL. */
	size_t n_debug;
};

/*
 * Opens what the request describes and nothing else, in a thread of its own. -ETIMEDOUT when that did not
 * answer in time, -EBUSY when too many already hang.
 */
struct opener;
/* as_process: in a process of its own, besides. */
int opener_new(bool as_process, struct opener **ret) _warn_unused_;
struct opener *opener_ref(struct opener *o);
struct opener *opener_unref(struct opener *o);
DEFINE_CLEANUP(struct opener *, opener_unref)
int open_with_deadline(struct opener *o, const struct open_request *rq,
		       uint64_t timeout_ns) _warn_unused_;
/* The same; ret_which: the path that it was. */
int open_debug_with_deadline(struct opener *o, const struct open_request *rq, uint64_t timeout_ns,
			     size_t *ret_which) _warn_unused_;

/* The length of all paths, NULs included. */
size_t open_paths_length(const struct open_request *rq);

struct opener_stats {
	uint64_t failures; /* it died, hung or talked nonsense */
	int pid; /* 0: none runs */
};
void opener_get_stats(const struct opener *o, struct opener_stats *ret);

/* open-jit.c */
int open_jit_map(const struct open_request *rq);
