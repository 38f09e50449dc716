/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is remembered of a thread between its switches. It follows the task: task storage, which the kernel
 * frees with the task, where task storage allocates without going into reclaim (a switch holds the run-queue
 * lock); a preallocated hash by tid elsewhere, whose entries the thread's last switch deletes.
 */
#pragma once

/* What a thread was when somebody began to wait for a lock that it holds. */
struct held {
	u32 mark; /* stands for the lock, or 0: nothing here is meant */
	u32 stack_window; /* in which `stack` was sent */
	u64 since; /* when that was, */
	u64 off_ns, preempted_ns, queued_ns; /* and its totals then */
	u64 stack; /* of its longest wait since, */
	u64 stack_ns; /* which took so long */
};
#define HELD_LOCKS 2 /* an outer one, and what is taken inside it */

/* Who woke a thread. */
struct waker {
	u64 since; /* it ended the wait that began then; 0: none */
	u64 ns; /* which had lasted so long */
	u64 stack; /* of the waker, */
	u64 start; /* its process, */
	u32 tgid, tid; /* 0: an interrupt */
	u32 flags; /* WAKER_* */
	u32 pad;
};

/* What every switch reads and writes comes first, then what a wait for a futex does: they share cache lines. */
struct task_state {
	u64 thread_start; /* tells a reused tid; 0: this state is new */
	u32 seq; /* odd while the state changes */
	u32 cause; /* enum off_cause of the wait in progress, or the last one */
	u64 stamp; /* switched out at this time (monotonic), or 0: running */
	u64 theta; /* this wait is kept when it lasts at least so long */
	u64 threshold; /* T when theta was drawn */
	u64 ran_ns; /* se.sum_exec_runtime at the latest switch-out */
	u64 run_delay_base; /* sched_info.run_delay at the latest switch-out */
	u64 run_queue_ns; /* run-queue delay inside off_ns, up to that switch-out */
	u64 off_ns, off_n; /* ended waits that began blocked */
	u32 task_state; /* TASK_* bits of the wait */
	u8 in_call; /* the wait is inside a system call, */
	u8 in_futex; /* one for a futex */
	u8 split; /* an entry in split_waits is this thread's */
	u8 ended; /* the thread is gone, the task not yet freed */
	u64 restart_word; /* address of the futex whose wait was broken off and may go on, or 0 */
	u64 futex_ns; /* blocked so far in the futex call in progress, */
	u32 futex_n; /* so many times */
	u32 lock_slot; /* number + 1 of the slot in which it is counted as waiting, or 0 */
	u64 preempted_ns, preempted_n; /* ended waits that began runnable */
	u64 yield_ns,
		yield_n; /* the part of them that was asked for, and the wait for the first turn */
	u64 reported_ns; /* weighted, of the wait that began at reported_stamp: told already */
	u64 reported_stamp;
	u64 heeded_ns; /* what the resume from the wait that began at heeded_stamp left out as told */
	u64 heeded_stamp;
	u32 fence; /* the iterator adds to it for the barrier that this is on x86 */
	u32 pad;
	struct waker waker; /* of the latest wait whose waker was looked at */
	struct held held[HELD_LOCKS];
};

/* Set before load. Where it is false the map is not created and the branch is dead code to the verifier. */
const volatile bool use_task_storage = false;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_storage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct task_state);
} task_table SEC(".maps");

/* All zero, to create entries from: a task_state is too large for the stack beside other things. */
static const struct task_state task_state_zero;

/*
 * The state of a task, or NULL. `task` is a trusted pointer (an argument of tp_btf, or
 * bpf_get_current_task_btf()), `tid` its id. With `create` NULL means that there was no room: count
 * LOSS_STATE_FULL.
 */
static __always_inline struct task_state *task_state_of(struct task_struct *task, u32 tid,
							bool create)
{
	struct task_state *t;

	if (use_task_storage)
		return bpf_task_storage_get(&task_storage, task, 0,
					    create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	t = bpf_map_lookup_elem(&task_table, &tid);
	if (t || !create)
		return t;
	bpf_map_update_elem(&task_table, &tid, &task_state_zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&task_table, &tid);
}

/* At the end of a thread. */
static __always_inline void task_state_forget(u32 tid)
{
	if (!use_task_storage)
		bpf_map_delete_elem(&task_table, &tid);
}
