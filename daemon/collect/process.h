/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Processes, their labels and their mappings, as they were at the time of a sample.
 *
 * Fed by perf side-band records (MMAP2, COMM, FORK, EXIT, KSYMBOL; a software dummy event per CPU,
 * CLOCK_MONOTONIC), and by one list of /proc for what was there before. A process is (tgid, start); one that has
 * exited, and an image that exec replaced, stay until process_table_expire(). Owned by the drain thread,
 * except the binary registry, which has its own lock because the symbol stage takes descriptors from it.
 */
#pragma once

#include "base/util.h"

struct process_options {
	const char *proc; /* "/proc" */
	const char *pods; /* directory of pod logs; NULL: /var/log/pods */
	uint32_t
		max_processes; /* 65,536: the oldest exited, then the least recently sampled, is dropped */
	uint32_t max_mappings; /* per process: 4,096 executable mappings */
	uint32_t max_fds; /* descriptors of binaries kept open: 512 */
	bool side_band; /* false in unit tests */
	bool opener_process; /* likewise: files of others are opened by a process of its own */
};

struct process_table;

/* Records are kept from here on; /proc is listed by the first poll, which may be long after sampling began. */
int process_table_new(const struct process_options *o, struct process_table **ret);
struct process_table *process_table_free(struct process_table *t);
DEFINE_CLEANUP(struct process_table *, process_table_free)

/* Takes in what the side-band rings hold. Called several times a second, and after each window swap. */
int process_table_poll(struct process_table *t);
/* After a window's samples are resolved: forgets exits, images and mappings from before mono_ns. */
void process_table_expire(struct process_table *t, uint64_t mono_ns);

/*
 * A binary's identity: build-id, else (dev, inode, ctime). Reference-counted and shared by all processes.
 * Holds an open descriptor when one could be had (map_files, /proc/PID/root + path, or the host's path
 * verified by build-id), within max_fds, the least recently used closed first.
 */
struct binary_ref {
	uint64_t key; /* registry-wide, never reused */
	const char *path; /* as the process saw it, "(deleted)" stripped; valid UTF-8 */
	const char *name; /* base name; "[vdso]", "[anon]" */
	const char *build_id; /* hexadecimal or "" */
	uint64_t dev, ino, generation;
	int kind; /* enum binary_kind of model/profile.h */
};

/* A new descriptor (caller closes), or -errno. May be called from any thread. */
int process_table_open_binary(struct process_table *t, uint64_t binary_key);
int process_table_open_debug_file(struct process_table *t, uint64_t binary_key, const char *paths,
				  size_t n, size_t *ret_which);

struct process_labels {
	const char *comm; /* the leader's, now */
	const char *exe;
	const char *unit, *cgroup, *container, *pod, *namespace_; /* "" when none */
	const char *build_id; /* of the executable, "" */
	uint32_t uid;
	bool kernel_thread;
	bool is_private; /* euid != ruid, or not dumpable */
};

struct process;

/*
 * A struct process and all texts that it gives stay valid until the next process_table_poll() or
 * process_table_expire().
 *
 * The process, created from /proc (or, when it is gone, from what its parent and side-band records told) if
 * it was not known. NULL only without memory. `mono_ns` is the time of the sample: it chooses the image.
 */
struct process *process_find(struct process_table *t, uint32_t tgid, uint64_t start);
void process_labels(struct process *p, struct process_labels *ret);
const char *process_thread_name(struct process *p, uint32_t tid); /* "" when unknown */

/*
 * The binary and file offset of a user address at a time. An address that no mapping covers causes one
 * resync from /proc per process and window; after that *ret is [unknown] (kind BINARY_UNKNOWN, offset = the
 * address). [anon] and [vdso] give the offset from the mapping's start. [anon] of a process that may tell names for
 * its code has that key, also as its inode.
 */
void process_resolve(struct process *p, uint64_t mono_ns, uint64_t address, struct binary_ref *ret,
		     uint64_t *ret_offset);
/* The same for data addresses (futex words): writable and shared mappings. shared: a MAP_SHARED one. */
void process_resolve_data(struct process *p, uint64_t address, struct binary_ref *ret,
			  uint64_t *ret_offset, bool *ret_shared);

/* The process if it is known; nothing is read. */
struct process *process_known(struct process_table *t, uint32_t tgid, uint64_t start);
bool process_lives(const struct process *p);
/* What it maps executable, now, in ascending order; `version` changes with it and is shared with its forks. */
struct process_region {
	uint64_t start, end, offset;
	uint64_t binary; /* registry key */
	uint64_t author; /* whose file it is: opener.h */
	int kind; /* enum binary_kind */
};
uint64_t process_version(const struct process *p);
size_t process_region_count(const struct process *p);
void process_regions(const struct process *p, struct process_region *ret);

/* BPF programs and trampolines that came or went, for the kernel's symbol table. */
typedef void (*ksymbol_fn)(void *ctx, uint64_t address, uint32_t len, const char *name, bool gone);
void process_table_on_ksymbol(struct process_table *t, ksymbol_fn fn, void *ctx);

struct process_stats {
	int opener_pid; /* 0: none runs */
	uint64_t opener_failures; /* it died, hung or talked nonsense */
	uint64_t processes, exited, mappings, binaries, fds;
	uint64_t side_band_lost; /* PERF_RECORD_LOST */
	uint64_t resyncs;
	uint64_t evicted_processes;
	uint64_t refused_mappings;
	uint64_t dropped_images; /* that exec replaced, too many within one window */
	uint64_t refused_maps, /* processes that make code beyond those that are looked after */
		hanging_maps; /* whose opening did not end */
	uint64_t
		refused_names; /* of threads beyond the limits, each time that one is told or asked for */
	uint64_t bytes;
};
void process_table_stats(const struct process_table *t, struct process_stats *ret);
