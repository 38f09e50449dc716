/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The registry of binaries: every mapped file once, whichever processes map it.
 *
 * Identity is the build-id with its author (opener.h), else (device, inode, ctime), else, when the process has
 * gone before anybody could look, (device, inode). Build-ids come from the kernel (MMAP2 records, PROCMAP_QUERY):
 * no ELF file is parsed here.
 *
 * A mapping that claims the build-id of a file of root's is taken for that file without a look: who lies spoils his
 * own frames. But only files of the same author ever give an object its path and its descriptor.
 *
 * Threads: the drain thread adds, references and trims; the symbol thread asks for descriptors by key. The
 * lock covers descriptors, sources and the key index; all else belongs to the drain thread.
 */
#pragma once

#include <sys/queue.h>

#include "collect/filesystem.h"
#include "collect/opener.h"
#include "collect/procfs.h"
#include "model/profile.h"

struct object {
	uint64_t key;
	int kind; /* enum binary_kind */
	char *path; /* valid UTF-8 */
	const char *name; /* into path, or a constant */
	char build_id[2 * BUILD_ID_MAX + 1];
	struct file_identity identity;
	bool privileged; /* set-uid, set-gid or with file capabilities */

	/* the rest is private to binary.c */
	uint32_t id, refs;
	int fd;
	char *raw_path; /* when path is not what the kernel said */
	uint32_t pids[2]; /* that mapped it last, its parent */
	uint64_t start, end;
	uint64_t slow_dev; /* its filesystem, when that may not answer */
	uint64_t failed_mono_ns; /* of the last attempt to open it */
	TAILQ_ENTRY(object) open_link; /* has a descriptor: least recently used first */
	TAILQ_ENTRY(object) idle_link; /* without references: longest first */
};

struct binaries;

struct binaries_options {
	int proc_fd;
	struct opener *opener; /* a reference is taken */
	uint32_t max_fds;
};
int binaries_new(const struct binaries_options *o, struct binaries **ret) _warn_unused_;
struct binaries *binaries_free(struct binaries *b);
DEFINE_CLEANUP(struct binaries *, binaries_free)

/* A mapping, as told by a record or by /proc. */
struct sighting {
	uint32_t pid, parent;
	int pid_fd; /* directory of the process, or negative: opened when it is needed */
	bool gone; /* the process does not exist any more */
	bool shared; /* data that processes may share */
	uint64_t start, end;
	const char
		*path; /* "//anon", "[vdso]", "" and so on; not terminated, "(deleted)" stripped */
	size_t path_len;
	uint64_t dev, ino; /* 0: not told */
	const uint8_t *build_id;
	size_t build_id_len; /* 0: not told */
	uint64_t mono_ns;
};

/* The object behind a mapping, with a reference; NULL without memory or above the limits. */
struct object *binaries_see(struct binaries *b, const struct sighting *s);
/* The object of memory without a file. */
struct object *binaries_anonymous(struct binaries *b);

struct object *object_ref(struct object *o);
struct object *object_unref(struct binaries *b, struct object *o);

/* A number that was not given before: names a list of mappings. */
uint64_t binaries_new_version(struct binaries *b);

/* Drops what nothing refers to and nobody asked about lately. */
void binaries_trim(struct binaries *b);

/* A new descriptor, or -errno: -ENOENT for an unknown key. Any thread. */
int binaries_open(struct binaries *b, uint64_t key);
/*
 * The first file at n paths (each behind the other's NUL), as its processes see them, whose author may speak for the
 * binary. Whether it is the binary's debug file at all the caller finds out.
 */
int binaries_open_debug_file(struct binaries *b, uint64_t key, const char *paths, size_t n,
			     size_t *ret_which);

struct binaries_stats {
	uint64_t objects, fds, bytes, refused;
};
void binaries_stats(struct binaries *b, struct binaries_stats *ret);
