/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether a filesystem answers at once, known before anything touches it: FUSE and network filesystems wait for
 * somebody else, perhaps for ever, and even the stat of one of their files may.
 *
 * Known by device number, from mountinfo. An overlay is as prompt as its layers, which lazily pulled container
 * images have on FUSE. Belongs to one thread.
 */
#pragma once

#include "base/strbuf.h"

#define FILESYSTEMS_MAX 256

struct filesystem {
	uint64_t dev;
	uint64_t until_mono_ns; /* device numbers are used again */
	bool prompt;
};

/* A text of mountinfo and what its lines say. */
struct mounts {
	struct strbuf text;
	struct mount *items; /* fields point into the text */
	size_t n, cap;
};
int mounts_read(int dir_fd, const char *path, struct mounts *ret) _warn_unused_;
void mounts_done(struct mounts *m);
/*
 * Whether the filesystem with that device number is prompt: 1, 0, or -ENOENT when none of `theirs` has it. The
 * layers of an overlay are looked up in `ours`.
 */
int mounts_is_prompt(const struct mounts *theirs, uint64_t dev, const struct mounts *ours);

struct filesystems {
	struct filesystem items[FILESYSTEMS_MAX];
	size_t n;
	uint64_t
		memory_dev; /* of memfd and shared memory: a mount of the kernel's own, in no mountinfo */
	struct mounts ours;
	int watch_fd; /* tells when ours are no longer true */
};
void filesystems_init(struct filesystems *fs);
void filesystems_done(struct filesystems *fs);

/*
 * Whether a file on `dev`, mapped by the process behind pid_fd, may be touched at once. False too when its
 * mount is not to be found: a mount that was detached may be one that hangs.
 */
bool filesystem_is_prompt(struct filesystems *fs, int pid_fd, uint64_t dev, uint64_t mono_ns);
