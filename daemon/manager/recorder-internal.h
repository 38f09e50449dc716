/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What recorder.c and burst.c share. */
#pragma once

#include <pthread.h>

#include "collect/load.h"
#include "manager/recorder.h"

struct burst {
	uint64_t id;
	bool privileged; /* who asked for it sees everything */
	struct collector *collector;
	struct quality *quality;
	struct window *window;
	struct burst_progress progress;
	uint64_t deadline_mono_ns; /* a burst that nobody ends, ends itself */
};

/* A call on the drain thread: the first member of an object on the heap that holds arguments and results. */
struct call {
	struct call *next;
	int (*fn)(struct recorder *r, struct call *c);
	void (*undo)(struct recorder *r,
		     struct call *c); /* of a result that nobody waits for; may be NULL */
	void (*free)(struct call *c);
	int result;
	bool needed; /* to be run although nobody waits for it any more */
	bool done, abandoned;
};

struct recorder {
	struct recorder_options options;
	char boot_id[BOOT_ID_LEN + 1];
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* guards what follows up to `state` */
	pthread_cond_t wake; /* for the drain thread */
	pthread_cond_t finished; /* for callers */
	struct call *calls, **calls_tail;
	bool stop;
	struct recorder_state state;

	/* the drain thread's own */
	struct collector *collector;
	struct process_table *processes;
	struct unwinding *unwinding; /* NULL: there are no tables */
	struct kallsyms *kallsyms;
	struct kernel_places places; /* of the start, never changed */
	struct quality *quality;
	struct window *window;
	struct burst *bursts;
	size_t n_bursts, cap_bursts;
	uint64_t next_burst_id;

	uint64_t drained_mono_ns; /* end of the last window: where the next bucket begins */
	uint64_t slice_ns; /* of the next slice */
	uint64_t slice_deadline_mono_ns;
	uint64_t bucket_start_wall_ns, bucket_deadline_mono_ns;
	int64_t wall_offset_ns; /* wall - mono when the bucket opened */
	int64_t sleep_offset_ns; /* boottime - mono, likewise */
	enum gap_reason next_gap; /* why there may be a gap before the next bucket */
	struct load load; /* when the bucket opened, */
	struct load drained_load; /* and when the last window ended */
};

/*
 * Runs c->fn on the drain thread and returns its result. -ETIME: nobody waits any more, and *c is freed by the
 * drain thread; after every other result it is the caller's again.
 */
int recorder_call(struct recorder *r, struct call *c, uint64_t timeout_ns);

/* burst.c, on the drain thread */
void bursts_drain(struct recorder *r);
void bursts_free(struct recorder *r);
