/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The drain thread: owns the collector, the process table, kernel symbols and the open bucket. It polls rings
 * several times a second, closes a window every slice (or at once when a query needs it), and a bucket at every
 * aligned boundary of the wall clock. Others talk to it by calls that it runs between two polls; a caller waits
 * at most the given time, and a call that nobody waits for any more cleans up after itself.
 */
#pragma once

#include "collect/collect.h"
#include "collect/process.h"
#include "manager/unwinding.h"
#include "query/query.h"
#include "window/window.h"

struct recorder_options {
	struct collect_options collect;
	struct window_options window;
	struct process_options process;
	const char *table_cache; /* directory for unwind tables */
	uint64_t table_bytes; /* memory for them; 0: no tables, user stacks go by frame pointers */
	uint64_t bucket_ns;
	uint32_t max_bursts;
	/* A bucket closed; the receiver owns it. Called on the drain thread, must not block. */
	void (*closed)(void *ctx, struct filled *f);
	void *ctx;
};

struct recorder;

/* Loads and attaches. -errno with *ret_why (to be freed) when nothing can be recorded. */
int recorder_new(const struct recorder_options *o, struct recorder **ret, char **ret_why);
struct recorder *recorder_free(struct recorder *r);
DEFINE_CLEANUP(struct recorder *, recorder_free)
int recorder_start(struct recorder *r);
/*
 * Flushes the open bucket through `closed` and ends the thread, if it was started. What recorder_open_binary()
 * needs stays until recorder_free(), so that the last bucket gets its names.
 */
void recorder_stop(struct recorder *r);

/* What a collector that is made elsewhere has to be told. */
const struct kernel_places *recorder_places(const struct recorder *r);
const struct walk_tables *recorder_tables(const struct recorder *r);
/*
 * New collect, window and bucket settings, with the collector that was made for them, which is taken over; the
 * open bucket is closed first. Does not wait: `replaced` is told how it went, on the drain thread.
 */
typedef void (*replaced_fn)(void *ctx, int result);
int recorder_replace(struct recorder *r, const struct recorder_options *o,
		     struct collector *collector, replaced_fn replaced, void *ctx);
/* Closes the window now; a copy of the open bucket. 1 when there is none, -ETIME. */
int recorder_snapshot(struct recorder *r, uint64_t timeout_ns, struct filled *ret);
/* See process_table_open_binary(). Any thread. */
int recorder_open_binary(struct recorder *r, uint64_t key);
int recorder_open_debug_file(struct recorder *r, uint64_t key, const char *paths, size_t n,
			     size_t *ret_which);

/*
 * A burst of an enum sample_event, or -1: the one that drives the history. Ids are never reused. -EBUSY: max_bursts
 * run already; -EOPNOTSUPP: there is no such event.
 */
int recorder_burst_start(struct recorder *r, double hz, int event, const uint32_t *tgids,
			 size_t n_tgids, bool privileged, uint64_t *ret_id);
struct burst_progress {
	uint64_t samples, lost;
};
int recorder_burst_read(struct recorder *r, uint64_t id, struct burst_progress *ret);
/* Ends it; with ret, its bucket. -ENOENT: no such burst. */
int recorder_burst_end(struct recorder *r, uint64_t id, struct filled *ret);

/* How user stacks ended, by binary, since the start. Any thread; free with quality_rows_free(). */
int recorder_quality(struct recorder *r, struct quality_row **ret, size_t *ret_n);

struct recorder_state {
	struct source_state source[SOURCE_N];
	struct hardware_state hardware;
	struct accounting total[SOURCE_N]; /* since the start */
	double cost
		[SOURCE_N]; /* of counting in the last window: share of the time of all CPUs; 0: not known */
	uint64_t walked, reused; /* waits whose stack was walked, and was known, since the start */
	struct process_stats process;
	struct window_stats window;
	struct unwinding_state unwinding;
	uint64_t windows;
	uint64_t progress_mono_ns; /* when the last window was drained */
	uint64_t bpf_bytes;
	uint64_t drain_errors; /* windows that could not be drained or resolved */
	int last_error;
};
/* As of the last window; never blocks. */
void recorder_get_state(struct recorder *r, struct recorder_state *ret);
