/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Slices become buckets: addresses are resolved to frames, keys to series, exact totals and weighted samples
 * meet, and what does not fit the limits folds into [other], counted. Owned by the drain thread.
 */
#pragma once

#include "collect/collect.h"
#include "collect/process.h"
#include "model/profile.h"
#include "symbol/kallsyms.h"
#include "window/quality.h"

struct window_options {
	uint32_t max_series; /* per bucket: 10,000 */
	uint32_t max_stacks; /* nodes per bucket: 200,000 */
	uint64_t max_bytes; /* strings per bucket: 16 MiB */
	bool events; /* of a burst whose samples weigh events, which stay what they are */
	struct quality *quality; /* lent: where user stacks are counted; NULL: nowhere */
};

struct window;

int window_new(const struct window_options *o, struct process_table *processes,
	       struct kallsyms *kallsyms, struct window **ret);
struct window *window_free(struct window *w);
DEFINE_CLEANUP(struct window *, window_free)

/*
 * Adds a slice to the open bucket. If none is open, one is opened whose metadata begin as *begin (boot id, start,
 * length, gap); otherwise begin is not read. What is folded or dropped on the way is booked in the accounts of s;
 * after an error the rest of the slice has been added all the same.
 */
int window_add(struct window *w, struct slice *s, const struct bucket_meta *begin);

/* A bucket and, beside it, the registry keys of its binaries, which name it later. */
struct filled {
	struct bucket *bucket;
	uint64_t *binary_keys; /* indexed by binary id of bucket->dict */
	size_t n_keys;
};
void filled_done(struct filled *f);

bool window_is_open(const struct window *w);
/* Hands over the open bucket and leaves none. 1 when there was none. */
int window_close(struct window *w, struct filled *ret);
/* A copy of the open bucket as it is now, for queries that reach now. 1 when there is none. */
int window_snapshot(struct window *w, struct filled *ret);

/* How user stack walks ended, by enum walk_end, and what resolving found, since the start. */
struct window_stats {
	uint64_t walks[WALK_END_N];
	uint64_t cut; /* stacks whose callers left every executable mapping, cut there */
	uint64_t folded_series, folded_stacks; /* beyond the limits of a bucket */
	uint64_t folded_locks; /* rows of locks beyond that limit */
	uint64_t lock_slots_short, lock_samples_lost; /* not counted in the kernel */
	uint64_t kernel_locks_lost; /* waits */
	uint64_t hardware_lost; /* spans in which counters were read; processes without room */
};
void window_stats(const struct window *w, struct window_stats *ret);
