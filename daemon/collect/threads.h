/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What has been told of each thread's time off-CPU.
 *
 * The kernel's totals only grow. What a window is told of a thread is the difference to what earlier windows
 * were told, and what was told is remembered, not what was read: so sums over windows come out exact whatever
 * a single reading missed or saw too early, and no window is told a negative time, or more than passed.
 */
#pragma once

#include "collect/collect.h"
#include "collect/remote.h"

#include "base/index.h"

#define THREADS_DEFAULT (1U << 18)
/* User stacks of waits in progress, together; those beyond stay pending. */
#define THREAD_STACK_BYTES_MAX (8U << 20)

struct thread_told {
	uint64_t off_ns, queue_ns, preempted_ns, yield_ns;
	uint64_t off_n, preempted_n, yield_n;
	uint64_t counters[COUNTER_OF_THREADS];
};

struct thread {
	uint64_t thread_start; /* with tid the key */
	uint32_t tid;
	uint32_t seen; /* the reading that saw it last */
	uint64_t now_mono_ns; /* of its latest record */
	uint64_t allowance_ns; /* time that passed and was not told */
	struct thread_told told;
	/* The user stack of the wait that began at stack_since_ns: it cannot change before that ends. */
	uint64_t stack_since_ns;
	uint64_t *stack;
	uint16_t n_stack;
	uint16_t stack_fp; /* steps that went by the frame pointer */
	uint8_t stack_end; /* enum walk_end */
	bool stack_confirmed; /* the thread was in that wait after its stack was read, too */
};

struct thread_table {
	struct thread *threads; /* [0] is unused */
	size_t n, cap;
	uint32_t *free; /* numbers to use again */
	size_t n_free, cap_free;
	struct index by_key;
	uint32_t max; /* threads; 0: THREADS_DEFAULT */
	uint64_t since_boot_ns; /* what older threads counted before they were met is nobody's */
	uint32_t reading;
	size_t stack_bytes;
	uint64_t refused; /* records of threads beyond the limit, or without memory */
};

void thread_table_done(struct thread_table *t);
size_t thread_table_count(const struct thread_table *t);

/* The difference that the record makes, remembered as told. False when there is none. */
bool thread_tell(struct thread *th, const struct thread_record *rec, struct slice_thread *ret);

/* Takes over s->ips in every case. False when there is no room. */
bool thread_keep_stack(struct thread_table *t, struct thread *th, uint64_t since_ns,
		       struct remote_stack *s);
void thread_forget_stack(struct thread_table *t, struct thread *th);

/* NULL when it is not known; _get makes it then, and returns NULL without room, counted. */
struct thread *thread_find(const struct thread_table *t, uint32_t tid, uint64_t thread_start);
struct thread *thread_get(struct thread_table *t, const struct thread_record *rec);
void thread_drop(struct thread_table *t, uint32_t tid, uint64_t thread_start);

/*
 * A reading of all threads begins; at its end, threads that the last two readings did not see are dropped.
 * (The record of a thread that ended since the last reading may still be in the ring buffer.)
 */
void thread_reading_begin(struct thread_table *t);
void thread_reading_end(struct thread_table *t);
