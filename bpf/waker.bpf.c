// SPDX-License-Identifier: GPL-2.0
/*
 * The program that finds who wakes a thread: see waker.bpf.h. It is attached in spans of time alone.
 *
 * What an interrupt does is not done by the thread that it interrupts. But soft interrupts are also served by a thread
 * that asked for them, when it enables them again: one that sends to its own host wakes the receiver like this. And a
 * page fault is the thread's own.
 */
#pragma once

#define OWN_DEPTH 64 /* kernel frames in which these are looked for */

/* Of size 0: it is not known where that is. */
const volatile struct idle_range own_work[OWN_PLACES] = {};

#if defined(__TARGET_ARCH_x86)

/* To see an address as a number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} waker_numbers SEC(".maps");

/*
 * Whether it may be an interrupt that wakes: 0, or 1 + the place by which it is the thread's own work all the same.
 *
 * The count of interrupts is a per-CPU variable, which not every kernel lets programs find. But interrupts have stacks
 * of their own, and the context of this program lies on the stack on which it runs. Those that come while the thread is
 * in user space begin on its stack: then it is in no call.
 */
static __always_inline u32 in_interrupt(void *ctx, struct task_struct *task)
{
	u32 zero = 0;
	volatile u64 *number = bpf_map_lookup_elem(&waker_numbers, &zero);

	if (!number)
		return 1 + OWN_SERVES;
	*number = (u64)ctx;
	if (*number - (u64)BPF_CORE_READ(task, stack) >= thread_size)
		return 1 + OWN_SERVES;
	if (BPF_CORE_READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	return (int)BPF_CORE_READ(current_regs(task), orig_ax) < 0 ? 1 + OWN_FAULTS : 0;
}

#else

#define COUNT_HARD 0xff0000U /* NMIs as well */
#define COUNT_SERVING 0x100U

static __always_inline u32 in_interrupt(void *ctx, struct task_struct *task)
{
	struct task_struct___counted *t = (void *)task;

	u32 count = BPF_CORE_READ(t, thread_info.preempt_count);

	return count & (COUNT_HARD | COUNT_SERVING) ? 1 + OWN_SERVES : 0;
}

#endif

/* A subprogram of its own, so that the verifier's knowledge of the number of frames ends with it. */
__noinline int own_frame(u32 slot, u32 place)
{
	struct scratch *s = scratch_at(slot);
	u32 n;

	if (!s || place >= OWN_PLACES)
		return 0;
	n = s->rec.nr_kernel;
	for (u32 i = 0; i < OWN_DEPTH; i++) {
		if (i >= n)
			break;
		if (s->ips[i] - own_work[place].start < own_work[place].size)
			return 1;
	}
	return 0;
}

/* Whether the current thread got into it by what it did itself. */
static __always_inline bool own_interrupt(void *ctx, u32 place)
{
	int slot = scratch_claim();
	struct scratch *s = slot >= 0 ? scratch_at(slot) : NULL;
	bool found;

	if (!s)
		return false;
	s->rec.nr_kernel = kernel_frames(bpf_get_stack(ctx, s->ips, OWN_DEPTH * 8, 0));
	found = own_frame(slot, place);
	scratch_release(s);
	return found;
}

/* The thread of `t` is being woken, after `d`. */
static __always_inline void waker_note(void *ctx, struct task_state *t, u64 d)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct off_cpu_key by = {};
	u64 id = bpf_get_current_pid_tgid();
	u32 w = window, interrupt;
	struct account *a = account_of(w, SOURCE_OFF_CPU);

	if (!a)
		return;
	t->waker.flags = 0;
	interrupt = in_interrupt(ctx, task);
	if (!(u32)id)
		t->waker.flags = WAKER_INTERRUPT; /* or the idle loop */
	else if (interrupt)
		t->waker.flags = own_interrupt(ctx, interrupt - 1) ? WAKER_SERVED : WAKER_INTERRUPT;
	if (t->waker.flags & WAKER_INTERRUPT) {
		t->waker.stack = STACK_ID_NONE;
		t->waker.start = 0;
		t->waker.tgid = t->waker.tid = 0;
	} else {
		by.tgid = id >> 32;
		by.start = BPF_CORE_READ(task, group_leader, start_boottime);
		t->waker.stack = resume_stack(ctx, w, a, task, &by, false);
		t->waker.start = by.start;
		t->waker.tgid = by.tgid;
		t->waker.tid = id;
	}
	t->waker.ns = d;
	t->waker.since = t->stamp;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(offcpu_waking, struct task_struct *task)
{
	struct task_state *t = task_state_of(task, task->pid, false);
	u64 now, stamp;

	/* Most wakings find a thread that has not gone to sleep yet, or was woken already. */
	if (!t || !t->stamp || t->cause != OFF_BLOCKED || t->waker.since == t->stamp ||
	    t->thread_start != task->start_boottime)
		return 0;
	stamp = t->stamp;
	now = bpf_ktime_get_ns();
	if (now < stamp || now - stamp < t->theta)
		return 0;
	if (now < waker_span.begin || now >= waker_span.end)
		return 0;
	waker_note(ctx, t, now - stamp);
	return 0;
}
