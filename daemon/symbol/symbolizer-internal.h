/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared by symbolizer.c, which knows what is to be named, request.c, which asks for it, and find-debug.c, which asks
 * with a debug file. All of it is done under the symbolizer's lock.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "helper/exchange.h"
#include "helper/limits.h"
#include "symbol/answers.h"
#include "symbol/debug-file.h"
#include "symbol/symbolizer.h"

#define RESERVED (1U << 31) /* in the cache, the kind of an answer that was */
#define FOR_NOW (1U << 30) /* likewise, of one that holds while a debug file is being fetched */

enum kind {
	KIND_CODE = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_CODE,
	KIND_DATA = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DATA,
	KIND_JIT = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_PERF_MAP,
	KIND_LINES = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_LINES,
	/* In the cache only: the path of a binary's debug file, "" when it has none. */
	KIND_DEBUG_FILE = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_FILE,
};

/* What the request under way asks about. */
struct pending {
	struct identity binary;
	enum kind kind;
	uint32_t turn; /* of the cache key */
	bool settled; /* it is known which debug file there is, or that there is none */
	uint32_t reserved; /* tells answers taken with reservation from those of other requests */
	char build_id[DEBUG_BUILD_ID_MAX]; /* that the file must not contradict, or "" */
	uint64_t offsets[HELPER_OFFSETS_MAX];
	size_t n;
};

struct counters {
	atomic_uint_fast64_t named, unnamed, cache_bytes;
	atomic_uint_fast64_t map_lines_skipped, map_entries_dropped;
};

struct symbolizer {
	struct symbolizer_options options;
	pthread_mutex_t lock;
	struct exchange exchange;
	struct answers answers;
	struct pending pending;
	uint32_t turn; /* counts calls */
	uint64_t seed; /* of hashes: strangers choose build-ids */
	int vdso_fd;
	struct debug_hints hints; /* of the latest answer that wants a debug file */
	/* Of the latest answer that wants such. */
	struct debug_part parts[HELPER_PARTS_MAX];
	size_t n_parts;
	struct counters counters; /* readable without the lock, which may be held for seconds */
};

/* A frame or a lock that wants a name. */
struct item {
	uint32_t binary;
	enum kind kind;
	uint64_t offset;
	uint32_t id; /* of the frame, or of the lock for KIND_DATA */
};

/* Items of one binary and kind that are asked about at once. */
struct batch {
	struct identity identity;
	const struct item *items;
	size_t n_items;
	uint64_t offsets[HELPER_OFFSETS_MAX]; /* of the items, distinct */
	size_t n;
	int fd; /* of the binary */
};

/* One call of symbolizer_name() or symbolizer_lines(). */
struct naming {
	struct symbolizer *s;
	struct dict *dict;
	const uint64_t *keys;
	size_t n_keys;
	uint64_t deadline;
	uint64_t maps_deadline; /* 0: none was asked about yet */
	struct item *items;
	size_t n, cap;
	struct inlines *inlines; /* for KIND_LINES */
	uint32_t reserved; /* of the latest request */
	uint32_t now; /* the turn of answers that hold for now */
	int left;
};

/* ---- request.c: questions and answers ---------------------------------------------------------------- */

/* Of what the dictionary takes for one binary: others must not have their names from it. */
struct identity symbol_identity(const struct naming *n, uint32_t binary, enum kind kind);
struct answer_key symbol_key(const struct symbolizer *s, const struct identity *binary,
			     enum kind kind, uint64_t offset);

#define WANTS_DEBUG_FILE 1 /* see hints; the answer was taken with reservation */
#define WANTS_PARTS 2 /* the same, of files with parts of the DWARF */
#define UNFINISHED 3 /* nothing was in the answer: the map is being read */
/*
 * Waits for the answer under way, if there is one, and takes it into the cache. -ETIMEDOUT: the deadline came first.
 * Other errors: there will be no answer. -EREMOTEIO: the file could not be parsed for want of something.
 */
int symbol_settle(struct symbolizer *s, uint64_t deadline_mono_ns);
/* Asks about the batch, and settles. settled: there is no better debug file. */
int symbol_ask(struct naming *n, const struct batch *b, const struct exchange_files *files,
	       bool settled);
/* Nothing better came: what was taken with reservation holds, for now or for good. */
int symbol_accept(struct naming *n, const struct batch *b, bool for_now);
struct answer_key symbol_key_for_now(const struct naming *n, const struct identity *binary,
				     enum kind kind, uint64_t offset);
void symbol_forget_parts(struct symbolizer *s);

/* ---- find-debug.c: debug files ------------------------------------------------------------------------- */

/* Asks with the binary's debug file, which is looked for when nobody did so lately. */
int symbol_ask_best(struct naming *n, const struct batch *b);
