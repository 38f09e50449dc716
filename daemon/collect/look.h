/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A look at the file behind a sighting, while its process lives. */
#pragma once

#include "collect/binary.h"

#define PATH_LEN_MAX 4096

/* A file while its process lives and its filesystem answers promptly. */
struct look {
	int path_fd; /* O_PATH, or -1 */
	struct stat st;
	char path[PATH_LEN_MAX + 16];
	size_t path_len;
	uint64_t slow_dev; /* of a filesystem that may not answer: it was left alone */
};

void look_done(struct look *l);

/* Whether the sighting says where the file lies. */
bool path_known(const struct sighting *s);

/*
 * Finds the file behind the sighting, if the mapping is still there. *f learns device and inode, which records
 * with a build-id do not tell, the time of its last change, and its author.
 */
void look_at_file(struct filesystems *filesystems, const struct sighting *s, int pid_fd,
		  struct file_identity *f, struct look *l);
/* Asks the kernel, which reads the file's notes. */
void ask_build_id(const struct sighting *s, int pid_fd, struct file_identity *f);
