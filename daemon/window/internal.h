/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of window/ share. */
#pragma once

#include "window/waits.h"
#include "window/window.h"

/* ids per slice: (tgid, tid, start) -> series, stack id -> dict stack, so that each is resolved once. */
struct memo_entry {
	uint64_t a, b; /* stack id, 0; or start, tgid << 32 | tid */
	uint32_t id;
};
struct memo {
	struct memo_entry *entries;
	size_t n, cap;
	struct index index;
};
uint32_t *memo_find(struct memo *m, uint64_t a, uint64_t b);
int memo_add(struct memo *m, uint64_t a, uint64_t b, uint32_t id);
void memo_clear(struct memo *m);
void memo_done(struct memo *m);

/* Nanoseconds of a source, rounded to microseconds once, when the bucket closes. */
struct source_ns {
	uint64_t stored, idle, lost;
};

/* Of a bucket: its time, how much of it lay in spans, and how much of it ought to. */
struct call_spans {
	uint64_t covered_ns, span_ns;
	double share;
	bool sampled; /* calls were counted in spans too, */
	uint64_t counted_ns; /* so long */
};

struct window {
	struct window_options options;
	struct process_table *processes;
	struct kallsyms *kallsyms; /* may be NULL */
	struct window_stats stats;
	uint32_t series_limit; /* of what is being added */

	struct bucket *bucket; /* columns hold nanoseconds until it closes */
	struct source_ns ns[SOURCE_N];
	struct call_spans spans, wakes; /* in which calls are looked at, and who ends waits */
	uint64_t *binary_keys; /* by binary id */
	size_t n_keys, cap_keys;
	struct memo binaries; /* registry key -> binary id, lives as long as the bucket */
	struct memo locks; /* (start, tgid and address) -> lock, likewise */
	char kernel_build_id[64];

	/* of the slice being added */
	struct memo series, stacks;
	struct memo
		waits; /* stack id, thread and state -> the key of the wait; where wakers are told */
	struct memo records; /* stack id -> index in the slice's stacks */
	uint32_t *ends; /* by that index: the quality's row of the binary in which the walk ended */
	size_t cap_ends;
	struct wait_place *
		places; /* by that index: what is waited for there; its kind is WAIT_UNKNOWN until asked */
	size_t cap_places;
};

/* resolve.c: ids in the open bucket's dict, or -errno. Limits fold into [other]; *ret_folded says so. */
int64_t resolve_series(struct window *w, uint32_t tgid, uint32_t tid, uint64_t start,
		       uint64_t mono_ns, bool *ret_folded);
int64_t resolve_stack(struct window *w, const struct slice *s, const struct slice_stack *st,
		      bool *ret_folded);
struct wait_place resolve_wait(struct window *w, const struct slice *s,
			       const struct slice_stack *st, uint32_t task_state);
/* Waits for a lock of the kernel: the innermost frames of its own part. */
int64_t resolve_kernel_stack(struct window *w, const struct kernel_lock *k);
/* Of a thread's stack in an interrupt: whether that is the thread's own work, as far as names tell. */
bool resolve_own_work(struct window *w, const struct slice *s, const struct slice_stack *st);
int64_t resolve_lock(struct window *w, uint32_t tgid, uint64_t start, uint64_t address,
		     bool shared);

/*
 * What fails here is memory, and it fails one row: that row is booked as lost, the next ones are tried. So a
 * slice is added as far as it goes, seen = stored + lost holds, and the first error is reported.
 */
struct adding {
	struct window *w;
	struct slice *s;
	int error;
};

struct row {
	uint64_t stack;
	uint32_t tgid, tid;
	uint64_t start;
	uint32_t key, aux;
	uint64_t samples; /* as the accounts count them; 0: they do not */
	uint64_t count, value, max;
};
/* Resolves and adds it; a failure is booked. */
void window_add_row(struct adding *a, enum source source, const struct row *row);
/* Of a row of n events: it was stored in the kernel's map, and is not in the bucket. */
void window_drop_row(struct adding *a, enum source source, uint64_t n, uint64_t ns, int error);

/* The key of a row of waits: of blocked ones, what they wait for. */
uint32_t window_wait_key(struct adding *a, const struct slice_off_cpu *c);

/* locks.c: waits for locks in user space, and what explains them. */
void locks_add(struct adding *a);

/* kernel-locks.c: waits for the kernel's own locks. */
void kernel_locks_add(struct adding *a);

/* hardware.c: counters of processes. */
void hardware_add(struct adding *a);

/* calls.c: what a slice knows of how long calls took; scaled when the bucket closes. */
int calls_add(struct window *w, struct slice *s);
void callers_add(struct adding *a); /* stacks of calls */
void calls_scale(struct bucket *b, const struct call_spans *spans);
/* By how much what was seen in spans is to be multiplied to stand for all. */
double spans_weight(const struct call_spans *s);

/* wakers.c: who ended waits; after the waits of the slice. Scaled when the bucket closes. */
void wakers_add(struct adding *a);
void wakers_scale(struct bucket *b, const struct call_spans *spans);
