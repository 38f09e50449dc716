/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The files in which processes tell the names of code that they make at run time: /tmp/perf-PID.map, as the process
 * sees it and by the pid that it has in its own namespace, or the jitdump file whose mapping marks it.
 *
 * They are opened by a thread of its own, soon after a process was found to run such code, so that names can still be
 * asked for when the process is gone. It may look for a file that does not exist yet, or never: ever more rarely. What
 * is open is looked for again too, as another file may have taken its place.
 *
 * A file is refused unless it is a regular one on a filesystem of this host's, that belongs to the process' user or to
 * root, has no other name, and was written since the process began. What is opened is read by the parser only.
 *
 * Thread-safe; the thread is started with the first process.
 */
#pragma once

#include "collect/opener.h"

/* In keys of maps; those of binaries do not have it. */
#define JIT_MAP_KEY (1ULL << 63)

struct jit_maps;

int jit_maps_new(struct opener *o, struct jit_maps **ret) _warn_unused_;
struct jit_maps *jit_maps_free(struct jit_maps *s);
DEFINE_CLEANUP(struct jit_maps *, jit_maps_free)

struct jit_process {
	int pid_fd; /* its directory in /proc: duplicated */
	uint32_t pid, uid; /* pid: in our namespace, for kernels that do not tell others */
	uint64_t dump_start, dump_end; /* the mapping of its jitdump file, or 0 */
};

/* The key of the process' map. 0: too many are looked after, or no memory. */
uint64_t jit_maps_add(struct jit_maps *s, const struct jit_process *p);

/* Whether there is a map, or nobody knows yet. -ENOENT: it is not looked after any more. */
int jit_maps_has(struct jit_maps *s, uint64_t key);
/* The process has begun another program, or mapped a jitdump file: look now. */
void jit_maps_look(struct jit_maps *s, uint64_t key, uint64_t dump_start, uint64_t dump_end);
/* The process is gone: what is open is kept for as long as names may be asked for. */
void jit_maps_release(struct jit_maps *s, uint64_t key);

/* Processes that were refused, and files whose opening did not end in time. */
void jit_maps_stats(struct jit_maps *s, uint64_t *ret_refused, uint64_t *ret_hanging);

/* A new descriptor, or -errno. */
int jit_maps_open(struct jit_maps *s, uint64_t key) _warn_unused_;
