/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The archive thread: closed buckets wait here in a bounded queue, get their names from the symbol stage, and are
 * committed to the store; between buckets it maintains the store. When the store cannot take them, they stay
 * queued and visible to queries; the oldest is dropped, and counted, when the queue is full.
 */
#pragma once

#include "serve/serve.h"
#include "store/store.h"
#include "symbol/symbolizer.h"
#include "window/window.h"

struct archive_options {
	struct store_options store;
	struct symbolizer *symbolizer; /* the caller's, outlives the archive */
	uint64_t name_timeout_ns; /* for all names of one bucket */
	/* A bucket was stored; the receiver owns it. NULL: no memory for it. On the archive thread, must not block. */
	void (*stored)(void *ctx, struct bucket *b);
	void *ctx;
};

struct archive;

int archive_start(const struct archive_options *o, struct archive **ret);
/* Stores what is queued (each bucket is tried once more), ends the thread, closes the store. */
struct archive *archive_stop(struct archive *a);

/* Takes f over. Any thread, never waits for the store, for names or for a copy. */
void archive_push(struct archive *a, struct filled *f);
/* Named copies of what is queued. */
int archive_recent(struct archive *a, uint64_t deadline_mono_ns, struct recent *ret);
/* Reopens the store with other limits. */
int archive_reconfigure(struct archive *a, const struct store_options *o);

struct archive_stats {
	struct store_stats store;
	uint64_t dropped; /* buckets that never reached the store */
	uint64_t lost[PROFILE_TYPE_N]; /* stored events in those */
	uint64_t unnamed; /* frames stored without having been asked about in time */
	size_t queued;
};
void archive_get_stats(struct archive *a, struct archive_stats *ret);
