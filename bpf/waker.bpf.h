/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who ended a wait.
 *
 * sched_waking runs in the context of the waker, in spans of time that the daemon draws (see detail.bpf.c), and under
 * the lock of the thread that is woken. What it finds is remembered in that thread's state, and counted when the
 * thread resumes, whose own stack is known then.
 *
 * A wait of length d up to its waking is looked at when d >= theta, which is as likely as that the wait is kept but
 * for the time that it then waits for a CPU. It stands for max(d, T) of blocked time, so these sums are unbiased too.
 */
#pragma once

const volatile bool wakers_enabled = false;

/* Written by the daemon alone: the begin first, then the end. */
volatile struct time_span waker_span = {};

COUNT_MAP(wakes_a, struct wake_key, struct wake_value);
COUNT_MAP(wakes_b, struct wake_key, struct wake_value);

static __always_inline int waker_add(void *map, struct wake_key *key, struct wake_value *one)
{
	struct wake_value *v = bpf_map_lookup_elem(map, key);

	if (!v)
		return bpf_map_update_elem(map, key, one, BPF_ANY);
	v->waits++;
	v->events_q8 += one->events_q8;
	v->ns += one->ns;
	if (v->max_ns < one->max_ns)
		v->max_ns = one->max_ns;
	return 0;
}

/* The wait of `waits`, drawn under T = `threshold`, is over. One writer per key: the thread itself. */
static __always_inline void waker_count(u32 w, struct account *a, const struct off_cpu_key *waits,
					const struct waker *by, u64 threshold)
{
	struct wake_key key = {
		.stack = waits->stack,
		.start = waits->start,
		.tgid = waits->tgid,
		.tid = waits->tid,
		.task_state = waits->task_state,
		.flags = by->flags,
		.by_stack = by->stack,
		.by_start = by->start,
		.by_tgid = by->tgid,
		.by_tid = by->tid,
	};
	struct wake_value one = {
		.waits = 1,
		.events_q8 = wait_events_q8(by->ns, threshold),
		.ns = wait_weight(by->ns, threshold),
		.max_ns = by->ns,
	};
	int r;

	if (!wakers_enabled || !by->since)
		return;
	r = w & 1 ? waker_add(&wakes_b, &key, &one) : waker_add(&wakes_a, &key, &one);
	if (!r)
		return;
	a->seen++;
	account_refused(a, r);
}
