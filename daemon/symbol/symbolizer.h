/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names for native frames and static locks. The work is done by a helper process that parses ELF files, over
 * a socketpair that carries varint-delimited protobuf messages (proto/sysprofd/v1/helper.proto) and opened
 * descriptors. This is the client: it starts the helper, restarts it when it dies or hangs, remembers which
 * binaries kill it (two crashes poison a binary), and keeps a bounded cache of answers.
 *
 * Thread-safe: callers are serialised by a lock; each call is bounded by its deadline.
 */
#pragma once

#include "symbol/inlines.h"

struct symbolizer_options {
	/*
	 * Opens the binary behind (key): a new descriptor or -errno. Called without locks held. Here it is only handed on:
	 * its filesystem may not answer any more, and even to ask for its size would hang.
	 */
	int (*open_binary)(void *ctx, uint64_t key);
	/* Of n paths, as the binary's process sees them, the first with what may be its debug file; may be NULL. */
	int (*open_debug_file)(void *ctx, uint64_t key, const char *paths, size_t n,
			       size_t *ret_which);
	/*
	 * What debuginfod servers have for a build-id; NULL: none are asked. Does not wait: -EAGAIN is perhaps later,
	 * -ENOENT is no.
	 */
	int (*open_fetched)(void *ctx, const char *build_id);
	void *open_ctx;
	uint64_t for_now_ns; /* how long names hold for which a file is being fetched: 60 s */
	uint64_t cache_bytes; /* answers kept: 8 MiB */
	uint64_t reply_timeout_ns; /* per request before the helper is killed: 5 s */
	uint64_t helper_memory; /* RLIMIT_AS of the helper: 1 GiB */
};

struct symbolizer;

int symbolizer_new(const struct symbolizer_options *o, struct symbolizer **ret);
struct symbolizer *symbolizer_free(struct symbolizer *s);
DEFINE_CLEANUP(struct symbolizer *, symbolizer_free)

/*
 * Names all frames and locks of d that are not FRAME_NAMED and whose binary is an ELF file. `keys` holds, for
 * each binary id of d, the registry key (0: none). Frames that could not be asked about until the deadline
 * stay unnamed and may be asked again later. Returns the number of frames that stayed so.
 */
int symbolizer_name(struct symbolizer *s, struct dict *d, const uint64_t *keys, size_t n_keys,
		    uint64_t deadline_mono_ns);

/*
 * Adds what is known about inlined functions and source lines of native frames. Costs names nothing: files whose DWARF
 * kills the helper are poisoned for this alone.
 */
void symbolizer_lines(struct symbolizer *s, struct inlines *ret, const uint64_t *keys,
		      size_t n_keys, uint64_t deadline_mono_ns);

struct symbolizer_stats {
	uint64_t requests, named, unnamed, crashes, timeouts, poisoned, cache_bytes;
	uint64_t map_lines_skipped, map_entries_dropped; /* of maps of code made at run time */
	int helper_pid; /* for PSS and CPU time; 0 when it does not run */
};
void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret);
