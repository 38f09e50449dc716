/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * perf side-band records: what the kernel tells about forks, execs, exits, names, mappings and BPF symbols.
 *
 * One software dummy event per online CPU, each with a ring. sideband_poll() hands over the records of all
 * rings in the order of time. Used by one thread.
 */
#pragma once

#include <linux/perf_event.h>

#include "base/util.h"
#include "collect/procfs.h"

enum sideband_type {
	SIDEBAND_FORK, /* of a process or a thread: pid/tid by parent/parent_tid */
	SIDEBAND_EXIT, /* of a thread */
	SIDEBAND_COMM,
	SIDEBAND_MMAP,
	SIDEBAND_KSYMBOL,
};

/* Texts point into the ring: they are valid during the call. */
struct sideband_event {
	enum sideband_type type;
	uint64_t mono_ns;
	uint32_t pid, tid, parent, parent_tid;
	bool exec; /* COMM: a new program */
	bool gone; /* KSYMBOL */
	const char *text; /* COMM, MMAP: path, KSYMBOL: name */
	size_t text_len;
	uint64_t start, len, offset; /* MMAP, KSYMBOL: start, len */
	uint64_t dev, ino; /* MMAP without a build-id */
	uint8_t build_id[BUILD_ID_MAX];
	size_t build_id_len;
};

/*
 * Reads one record of `size` bytes: 0, 1 for one that is of no interest, 2 for LOST with the number in
 * ret->len, -EBADMSG when it is malformed. Pure.
 */
int sideband_parse(const void *record, size_t size, struct sideband_event *ret) _warn_unused_;
/* The time of a record, or 0. */
uint64_t sideband_time(const void *record, size_t size);

struct sideband;

/* -errno when not a single event can be opened (permissions, no CONFIG_PERF_EVENTS). */
int sideband_new(struct sideband **ret) _warn_unused_;
struct sideband *sideband_free(struct sideband *sb);
DEFINE_CLEANUP(struct sideband *, sideband_free)

typedef void (*sideband_fn)(void *ctx, const struct sideband_event *e);
/*
 * Gives fn all records up to now. 1 when some were lost since the last call, or may have been because a CPU
 * came online: what is known must be compared with /proc.
 */
int sideband_poll(struct sideband *sb, sideband_fn fn, void *ctx);

uint64_t sideband_lost(const struct sideband *sb);
size_t sideband_bytes(const struct sideband *sb);
