/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The names that a compiler at run time gives to its code: a perf map, lines "start size name" in hexadecimal, or a
 * jitdump file. Both are written by the process that runs the code, grow, may be truncated and written anew, and tell
 * of addresses that are used again: the last word holds. Lines that are none are skipped and counted.
 *
 * A map is kept from one reading to the next: what was appended is all that is read then. Not thread-safe.
 */
#pragma once

#include "base/util.h"

#define PERF_MAP_NAME_MAX 1024 /* bytes of a name, NUL included; what is longer is cut */

struct perf_map;

int perf_map_new(struct perf_map **ret) _warn_unused_;
struct perf_map *perf_map_free(struct perf_map *m);
DEFINE_CLEANUP(struct perf_map *, perf_map_free)

/*
 * Takes in what the file holds by now, at most about `budget` bytes of it. 1: there is more to be read before
 * anything should be looked up. -EFBIG: no file of that size is one; -EBADMSG: a damaged jitdump.
 */
int perf_map_read(struct perf_map *m, int fd, uint64_t budget) _warn_unused_;

/* The name of the code at the address, valid until the next reading, or NULL. */
const char *perf_map_find(const struct perf_map *m, uint64_t address);

struct perf_map_stats {
	uint64_t lines, skipped; /* of which this many were none */
	uint64_t dropped; /* entries beyond the limits */
	uint64_t read_bytes; /* of files, since the beginning */
	size_t bytes; /* memory */
};
void perf_map_stats(const struct perf_map *m, struct perf_map_stats *ret);
