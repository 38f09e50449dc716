/* SPDX-License-Identifier: GPL-2.0-or-later */
/* BPF objects that this process holds: those of its collector, whoever else runs one on the host. */
#pragma once

#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/util.h"

/* Calls `each` with descriptors of that kind, "anon_inode:bpf-map" or "anon_inode:bpf_link", until it says yes. */
static inline bool own_bpf(const char *kind, bool (*each)(int fd, void *ctx), void *ctx)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	bool found = false;

	assert_non_null(d);
	while (!found && (e = readdir(d))) {
		char link[64] = "";

		if (readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1) > 0 &&
		    strstr(link, kind))
			found = each(atoi(e->d_name), ctx);
	}
	closedir(d);
	return found;
}

struct own_map {
	const char *name;
	int fd;
	uint32_t entries;
};

static inline bool own_map_is(int fd, void *ctx)
{
	struct own_map *m = ctx;
	struct bpf_map_info info = {};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &size) < 0 || !streq(info.name, m->name))
		return false;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	m->entries = info.max_entries;
	return true;
}

/* A descriptor of its own. */
static inline struct own_map own_map(const char *name)
{
	struct own_map m = { .name = name, .fd = -1 };

	assert_true(own_bpf("bpf-map", own_map_is, &m));
	return m;
}

struct own_link {
	const char *prefix; /* of the program's name */
	uint32_t id;
};

static inline bool own_link_is(int fd, void *ctx)
{
	struct own_link *l = ctx;
	struct bpf_link_info link = {};
	struct bpf_prog_info program = {};
	uint32_t size = sizeof(link), program_size = sizeof(program);
	int program_fd, r;

	if (bpf_obj_get_info_by_fd(fd, &link, &size) < 0)
		return false;
	program_fd = bpf_prog_get_fd_by_id(link.prog_id);
	if (program_fd < 0)
		return false;
	r = bpf_obj_get_info_by_fd(program_fd, &program, &program_size);
	close(program_fd);
	if (r < 0 || strncmp(program.name, l->prefix, strlen(l->prefix)) != 0)
		return false;
	l->id = link.id;
	return true;
}

/* The number of the link of such a program: later links have higher ones. 0: there is none. */
static inline uint32_t own_link_id(const char *prefix)
{
	struct own_link l = { .prefix = prefix };

	return own_bpf("bpf_link", own_link_is, &l) ? l.id : 0;
}
