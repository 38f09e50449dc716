// SPDX-License-Identifier: GPL-2.0
/*
 * The task iterators: totals of all threads, and at a bucket's end the waits in progress that are kept. They read
 * states that offcpu.bpf.c changes meanwhile.
 */
#pragma once

#define SNAPSHOT_TRIES 4

/* Working space; the daemon runs one iterator at a time. */
struct iter_space {
	struct task_state copy;
	struct wait_record wait; /* ips follow it */
	u64 ips[MAX_KERNEL_FRAMES];
	u64 regs[REGS_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct iter_space);
} iter_spaces SEC(".maps");

/* A copy of a state that was not changing while it was made. */
static __always_inline bool state_snapshot(struct task_state *t, struct task_state *copy)
{
	for (int i = 0; i < SNAPSHOT_TRIES; i++) {
		u32 seq = *(volatile u32 *)&t->seq;

		if (seq & 1 || bpf_probe_read_kernel(copy, sizeof(*copy), t))
			continue;
		if (*(volatile u32 *)&t->seq == seq)
			return true;
	}
	return false;
}

/* Also a thread whose return the switch program did not see. */
static __always_inline bool task_runs(struct task_struct *task)
{
	return bpf_core_field_exists(task->on_cpu) && task->on_cpu;
}

/* A thread that has not been switched since we came: its wait counts from now. */
static __always_inline void state_adopt_wait(struct task_struct *task, struct task_state *t,
					     u64 now)
{
	u64 switches = task->nvcsw + task->nivcsw;
	u32 state = run_state(task);

	if (task_runs(task))
		return;
	wait_begins(task, t, state ? OFF_BLOCKED : OFF_PREEMPTED, state, task_nr(task), now);
	/* It ran meanwhile: then the tracepoint has taken over. */
	if ((task_runs(task) || task->nvcsw + task->nivcsw != switches) && t->stamp == now)
		t->stamp = 0;
}

static __always_inline bool task_has_ended(struct task_struct *task)
{
	return task->exit_state || run_state(task) & TASK_DEAD;
}

/* There is no room for a thread's state. A switch on this CPU may count meanwhile. */
static __always_inline void state_refused(void)
{
	struct account *a = account_of(window, SOURCE_OFF_CPU);

	if (!a)
		return;
	__sync_fetch_and_add(&a->seen, 1);
	__sync_fetch_and_add(&a->lost[LOSS_STATE_FULL], 1);
}

/* The kernel stack and user registers of a thread that does not run. */
static __always_inline void wait_describe(struct task_struct *task, struct iter_space *s)
{
	struct wait_record *r = &s->wait;

	r->task_state = s->copy.task_state;
	r->word = 0;
	r->call = CALL_NONE;
	r->nr_kernel = kernel_frames(bpf_get_task_stack(task, s->ips, sizeof(s->ips), 0));
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER) || !task->mm)
		return;
	r->word = 8;
	r->ip = r->sp = r->fp = 0;
	if (bpf_probe_read_kernel(s->regs, sizeof(s->regs), task_regs(task)))
		return;
	r->ip = s->regs[REGS_IP];
	r->sp = s->regs[REGS_SP];
	r->fp = s->regs[REGS_FP];
	if (REGS_IN_COMPAT(s->regs))
		r->word = 4;
	if (s->copy.in_call)
		r->call = call_of_regs(s->regs);
}

#define REVOKE_TRIES 64

/* The wait of `copy` was written. Whether it must be taken back, since the resume did not heed it. */
static __always_inline bool wait_is_told_twice(struct task_state *t, const struct task_state *copy,
					       u64 weight)
{
	volatile struct task_state *v = t;
	u32 seq = 1;

	v->reported_ns = weight;
	v->reported_stamp = copy->stamp;
	__sync_fetch_and_add(&t->fence, 1);
	for (int i = 0; i < REVOKE_TRIES && seq & 1; i++)
		seq = v->seq;
	return seq != copy->seq && !(v->heeded_stamp == copy->stamp && v->heeded_ns == weight);
}

/*
 * Writes the totals of a thread, and with `waits` also the wait that it is in, when that is kept. The kernel
 * calls again for the same thread when its buffer was full, and drops what was written for it: so nothing is
 * marked as told before all of it is written.
 */
static __always_inline int iterate(struct bpf_iter__task *ctx, bool waits)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct thread_record r = {};
	struct iter_space *s;
	struct task_state *t;
	u64 now, elapsed = 0, told = 0, weight;
	u32 zero = 0, size;
	bool ended;

	if (!task || !task->pid)
		return 0;
	s = bpf_map_lookup_elem(&iter_spaces, &zero);
	if (!s)
		return 0;
	ended = task_has_ended(task);
	t = task_state_of(task, task->pid, !ended);
	if (!t) {
		if (!ended)
			state_refused();
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (!t->thread_start) {
		state_init(task, t);
		state_adopt_wait(task, t, now);
	}
	if (t->ended || t->thread_start != task->start_boottime)
		return 0;
	if (!state_snapshot(t, &s->copy)) {
		/* Silence would be taken for its end, and its totals for those of a new thread. */
		r.state = THREAD_UNREAD;
		r.tid = task->pid;
		r.thread_start = task->start_boottime;
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	totals_of(task, &s->copy, &r);
	r.now_mono_ns = now;
	if (s->copy.stamp && !task_runs(task)) {
		r.since_mono_ns = s->copy.stamp;
		r.state = THREAD_OFF_CPU | s->copy.cause << 8;
		elapsed = now > s->copy.stamp ? now - s->copy.stamp : 0;
	}
	if (!waits || !elapsed || elapsed < s->copy.theta) {
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	wait_describe(task, s);
	/* It resumed meanwhile: the resume tells it. */
	if (*(volatile u32 *)&t->seq != s->copy.seq) {
		bpf_seq_write(seq, &r, sizeof(r));
		return 0;
	}
	r.state |= THREAD_WAIT_FOLLOWS;
	if (s->copy.reported_stamp == s->copy.stamp)
		told = s->copy.reported_ns;
	weight = wait_weight(elapsed, s->copy.threshold);
	s->wait.ns = weight > told ? weight - told : 0;
	size = s->wait.nr_kernel;
	asm volatile("" : "+r"(size));
	if (size > MAX_KERNEL_FRAMES)
		size = MAX_KERNEL_FRAMES;
	if (bpf_seq_write(seq, &r, sizeof(r)) ||
	    bpf_seq_write(seq, &s->wait, sizeof(s->wait) + size * sizeof(u64)))
		return 0;
	if (wait_is_told_twice(t, &s->copy, weight)) {
		r.state = THREAD_WAIT_REVOKED;
		/* Without room all that was written of this thread is dropped, which serves as well. */
		bpf_seq_write(seq, &r, sizeof(r));
	}
	return 0;
}

SEC("iter/task")
int offcpu_totals(struct bpf_iter__task *ctx)
{
	return iterate(ctx, false);
}

SEC("iter/task")
int offcpu_waits(struct bpf_iter__task *ctx)
{
	return iterate(ctx, true);
}
