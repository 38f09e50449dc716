/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The thread that supplies what the unwinder wishes for: opens the binary, takes its table from the cache on disk, or
 * asks a parser of its own. A parser that dies or hangs is replaced; a binary that had two of them die is left
 * without a table.
 */
#pragma once

#include "unwind/unwinder.h"

struct supplier_options {
	struct unwinder *unwinder;
	/* The binary behind a key: a new descriptor or -errno. Called by the supplier's thread. */
	int (*open_binary)(void *ctx, uint64_t key, bool *ret_vdso);
	void *ctx;
	const char *cache; /* directory; NULL: none */
	uint64_t cache_max; /* bytes of all files in it; 0: 64 MiB */
	uint64_t reply_timeout_ns; /* 0: 5 s */
	uint64_t parser_memory; /* RLIMIT_AS; 0: 1 GiB */
};

struct supplier;
int supplier_new(const struct supplier_options *o, struct supplier **ret);
/* Stops the thread and its parser. Before the unwinder goes. */
struct supplier *supplier_free(struct supplier *b);
DEFINE_CLEANUP(struct supplier *, supplier_free)

struct supplier_stats {
	uint64_t built, cached, failed; /* tables: by the parser, from the cache, none */
	uint64_t crashes, timeouts, poisoned;
	uint64_t build_ns; /* of all that were built */
	int parser_pid; /* 0: none runs */
};
void supplier_stats(struct supplier *b, struct supplier_stats *ret);
