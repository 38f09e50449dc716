// SPDX-License-Identifier: GPL-2.0
/*
 * Off-CPU time: exact totals per thread, stacks sampled by duration.
 *
 * sched_switch counts for both threads of a switch with one clock reading: it stamps the one that leaves and
 * closes the wait of the one that comes. Which waits are kept, with their stacks, is drawn by length (duration.h).
 *
 * The stack of a kept wait is walked in the context of the thread that resumes, where its user memory can be
 * read. sched_switch leaves a note in this CPU's slot; the resume hook, which runs next on the same CPU
 * without a switch in between, takes it:
 *	sched_exit_tp		6.16 and later; the cheapest
 *	finish_task_switch	a kprobe before that
 *	none			neither: the kernel stack is taken at the switch from outside, the user stack at
 *				the thread's next sys_exit or switch-out (split capture)
 *
 * The state of a thread is written by the CPU that switches it, under the run-queue lock. The iterator reads
 * it meanwhile and retries while `seq` is odd or moves; on CPUs that reorder stores it may yet read a mixture,
 * which the daemon bounds by the time that passed and makes up for in the next window.
 *
 * A wait in progress is told by the iterator, and the rest of it by the resume. When both meet, the iterator has
 * stored what it told and then looks at `seq`, while the resume has moved `seq` and then looks at what was told:
 * one of them at least sees the other. The resume leaves word of what it saw, by which the iterator judges.
 */
#pragma once

#define TASK_INTERRUPTIBLE 1U
#define TASK_DEAD 0x80U
#define TASK_WAKING 0x200U
#define TASK_STATE_KEY 0x50fU /* S, D, T, t, killable, no-load: what tells kinds of waits apart */

#define NEVER_KEPT (~0ULL)

const volatile bool off_cpu_enabled = false; /* else only what futex waits need */
const volatile bool switch_has_prev_state = false; /* sched_switch has a fourth argument (5.18) */
const volatile u32 resume_hook = RESUME_SCHED_EXIT;
const volatile u64 attached_boot_ns = 0; /* threads that started later are known from their birth */

/* T. Written by the daemon alone. */
volatile u64 threshold_ns = 0;

static __always_inline u32 run_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return ((struct task_struct___state *)task)->state;
}

#include "lock.bpf.h"
#include "waker.bpf.h"

/* ---- a wait that is kept -------------------------------------------------------------------------- */

/* What the resume hook must know of the wait that just ended. */
struct resume_note {
	u32 tid; /* 0: nothing to do */
	u32 cause;
	u32 task_state;
	u32 in_call; /* the thread waited inside a system call */
	u64 d;
	u64 threshold;
	u64 reported_ns; /* weighted, told at ends of buckets */
	u64 run_delay_base;
	struct waker waker;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct resume_note);
} resume_notes SEC(".maps");

/* One writer per key: the thread itself. */
static __always_inline int wait_add(void *map, struct off_cpu_key *key, u64 events_q8, u64 ns)
{
	struct off_cpu_value first = { .samples = 1, .events_q8 = events_q8, .ns = ns };
	struct off_cpu_value *v = bpf_map_lookup_elem(map, key);

	if (!v)
		return bpf_map_update_elem(map, key, &first, BPF_ANY);
	v->samples++;
	v->events_q8 += events_q8;
	v->ns += ns;
	return 0;
}

/* A wait that finds no way into the map. */
static __always_inline void wait_lost(struct account *a)
{
	if (!a)
		return;
	a->seen++;
	a->lost[LOSS_OTHER]++;
}

static __always_inline void wait_count(u32 w, struct account *a, struct off_cpu_key *key,
				       u64 events_q8, u64 ns)
{
	int r = w & 1 ? wait_add(&off_cpu_b, key, events_q8, ns)
		      : wait_add(&off_cpu_a, key, events_q8, ns);

	a->seen++;
	if (r)
		account_refused(a, r);
	else
		a->stored++;
}

/*
 * Counts the wait under the stack in key->stack: what was not told yet of its weight, split into the time
 * until the thread was woken and the time it then waited for a CPU.
 */
static __always_inline void wait_store(u32 w, struct account *a, struct off_cpu_key *key,
				       const struct resume_note *n, u64 run_delay)
{
	u64 events = wait_events_q8(n->d, n->threshold), ns = wait_weight(n->d, n->threshold);
	u64 total = ns > n->reported_ns ? ns - n->reported_ns : 0, queued = 0;

	if (n->cause == OFF_BLOCKED) {
		queued = run_delay - n->run_delay_base;
		/* Another clock, read at other moments: it may exceed the wait by a little. */
		if (queued > n->d)
			queued = n->d;
		queued = wait_part(queued, n->d, n->threshold);
		if (queued > total)
			queued = total;
	}
	key->cause = n->cause;
	wait_count(w, a, key, events, total - queued);
	if (queued) {
		key->cause = OFF_RUN_QUEUE;
		wait_count(w, a, key, events, queued);
	}
}

/* The id of a wait's stack, known or walked. The kernel's frames and the user's registers are in the scratch. */
static __always_inline u64 wait_stack(struct scratch *s, u32 slot, struct account *a)
{
	u64 place = 0, id;

	stack_hash_kernel(s, slot);
	if (reuse_mask && s->walk.word) {
		place = reuse_place(s);
		id = reuse_find(s, slot, place);
		if (id != STACK_ID_NONE) {
			a->reused++;
			return id;
		}
	}
	if (!walk_granted(SOURCE_OFF_CPU)) {
		a->lost[LOSS_SHED]++;
		return STACK_ID_NONE;
	}
	a->walked++;
	id = stack_walk_and_send(s, slot, a);
	if (place && id != STACK_ID_NONE)
		reuse_keep(s, slot, place, id);
	return id;
}

/* The stack of the current thread, which just resumed. `ctx` is the context of a tracing program. */
static __always_inline u64 resume_stack(void *ctx, u32 w, struct account *a,
					struct task_struct *task, const struct off_cpu_key *key,
					bool in_call)
{
	struct scratch *s;
	int slot;
	u64 id;

	if (!look_granted()) {
		a->lost[LOSS_SHED]++;
		return STACK_ID_NONE;
	}
	slot = scratch_claim();
	s = slot >= 0 ? scratch_at(slot) : NULL;
	if (!s) {
		a->lost[LOSS_SCRATCH_BUSY]++;
		return STACK_ID_NONE;
	}
	stack_begin(s, w, SOURCE_OFF_CPU, key->tgid, key->start);
	s->rec.nr_kernel = kernel_frames(bpf_get_stack(ctx, s->ips, KERNEL_STACK_BYTES, 0));
	stack_user_regs_of_current(s, task);
	if (in_call && s->walk.word)
		s->rec.call = call_of_regs(s->regs);
	id = wait_stack(s, slot, a);
	scratch_release(s);
	return id;
}

/* What a kept wait costs is measured of one in so many. */
#define WAITS_PER_TIMED 16

/* When the handling of a kept wait that is timed began; 0 for the others. */
static __always_inline u64 timing_begins(const struct account *a)
{
	return a->seen % WAITS_PER_TIMED ? 0 : bpf_ktime_get_ns();
}

static __always_inline void timing_ends(struct account *a, u64 begin)
{
	if (!begin)
		return;
	a->timed++;
	a->timed_ns += bpf_ktime_get_ns() - begin;
}

/* Takes the note that sched_switch left for the thread that is now current. */
static __always_inline void resume(void *ctx, struct resume_note *n)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct off_cpu_key key = {};
	u64 id = bpf_get_current_pid_tgid(), begin;
	struct account *a;
	u32 w = window;

	a = account_of(w, SOURCE_OFF_CPU);
	if (!a)
		goto out;
	begin = timing_begins(a);
	if (n->tid != (u32)id) {
		wait_lost(a);
		goto out;
	}
	key.tgid = id >> 32;
	key.tid = id;
	key.start = BPF_CORE_READ(task, group_leader, start_boottime);
	key.task_state = n->task_state;
	key.stack = resume_stack(ctx, w, a, task, &key, n->in_call);
	if (n->cause == OFF_BLOCKED)
		holder_resumed(w, key.stack, n->d);
	wait_store(w, a, &key, n, BPF_CORE_READ(task, sched_info.run_delay));
	waker_count(w, a, &key, &n->waker, n->threshold);
	timing_ends(a, begin);
out:
	n->tid = 0;
}

SEC("tp_btf/sched_exit_tp")
int BPF_PROG(offcpu_sched_exit, bool is_switch)
{
	u32 zero = 0;
	struct resume_note *n = bpf_map_lookup_elem(&resume_notes, &zero);

	if (n && n->tid)
		resume(ctx, n);
	return 0;
}

/* Attached to finish_task_switch under the name that it has on this kernel. */
SEC("kprobe")
int offcpu_finish_task_switch(void *ctx)
{
	u32 zero = 0;
	struct resume_note *n = bpf_map_lookup_elem(&resume_notes, &zero);

	if (n && n->tid)
		resume(ctx, n);
	return 0;
}

/* ---- split capture --------------------------------------------------------------------------------- */

/* A kept wait whose user side is still to be walked. */
struct split_wait {
	struct resume_note note;
	u32 nr_kernel;
	u32 pad;
	u64 ips[MAX_KERNEL_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32); /* tid */
	__type(value, struct split_wait);
} split_waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct split_wait);
} split_scratch SEC(".maps");

/* At the switch to `next`, under the run-queue lock: its kernel stack from outside. */
static __always_inline bool split_begin(struct task_struct *next, const struct resume_note *n)
{
	u32 zero = 0, tid = n->tid;
	struct split_wait *s = bpf_map_lookup_elem(&split_scratch, &zero);
	struct account *a;

	if (!s)
		return false;
	s->note = *n;
	s->nr_kernel = kernel_frames(bpf_get_task_stack(next, s->ips, sizeof(s->ips), 0));
	if (!bpf_map_update_elem(&split_waits, &tid, s, BPF_ANY))
		return true;
	a = account_of(window, SOURCE_OFF_CPU);
	if (a) {
		a->seen++;
		a->lost[LOSS_STATE_FULL]++;
	}
	return false;
}

/* In the context of the thread, before it leaves the kernel or waits again. */
static __always_inline void split_finish(struct task_struct *task)
{
	u64 id = bpf_get_current_pid_tgid();
	struct off_cpu_key key = { .tgid = id >> 32, .tid = id };
	struct split_wait *p = bpf_map_lookup_elem(&split_waits, &key.tid);
	struct scratch *s;
	struct account *a;
	u32 w = window;
	u64 begin;
	int slot;

	a = account_of(w, SOURCE_OFF_CPU);
	if (!p || !a)
		return;
	begin = timing_begins(a);
	key.start = BPF_CORE_READ(task, group_leader, start_boottime);
	key.task_state = p->note.task_state;
	if (!look_granted()) {
		a->lost[LOSS_SHED]++;
		goto store;
	}
	slot = scratch_claim();
	s = slot >= 0 ? scratch_at(slot) : NULL;
	if (!s) {
		a->lost[LOSS_SCRATCH_BUSY]++;
		goto store;
	}
	stack_begin(s, w, SOURCE_OFF_CPU, key.tgid, key.start);
	if (!bpf_probe_read_kernel(s->ips, sizeof(p->ips), p->ips))
		s->rec.nr_kernel = p->nr_kernel;
	/* The call that it waited in is not over, so its user stack is still that of the wait. */
	if (p->note.in_call) {
		stack_user_regs_of_current(s, task);
		if (s->walk.word)
			s->rec.call = call_of_regs(s->regs);
	} else if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD)) {
		s->rec.walk_end = WALK_PENDING;
	}
	key.stack = wait_stack(s, slot, a);
	scratch_release(s);
store:
	wait_store(w, a, &key, &p->note, BPF_CORE_READ(task, sched_info.run_delay));
	waker_count(w, a, &key, &p->note.waker, p->note.threshold);
	bpf_map_delete_elem(&split_waits, &key.tid);
	timing_ends(a, begin);
}

/* ---- the state of a thread -------------------------------------------------------------------------- */

/* Brackets around changes to a state that the iterator may be reading. */
static __always_inline void state_change(struct task_state *t)
{
	barrier();
	t->seq++;
	barrier();
}

static __always_inline void state_init(struct task_struct *task, struct task_state *t)
{
	u64 delay = task->sched_info.run_delay;

	t->run_delay_base = delay;
	if (task->start_boottime >= attached_boot_ns) {
		/* Born under our eyes: so far it waited for its first turn. */
		t->preempted_ns = t->yield_ns = delay;
		t->preempted_n = t->yield_n = 1;
	}
	t->thread_start = task->start_boottime;
}

/*
 * The state of a thread, made when it has none. Tids are reused: an entry of the table by tid may be that of
 * a thread that was reaped but whose last switch is still to come.
 */
static __always_inline struct task_state *thread_state(struct task_struct *task)
{
	struct task_state *t = task_state_of(task, task->pid, true);
	struct account *a;

	if (!t) {
		a = account_of(window, SOURCE_OFF_CPU);
		if (a) {
			a->seen++;
			a->lost[LOSS_STATE_FULL]++;
		}
		return NULL;
	}
	if (t->thread_start && t->thread_start != task->start_boottime) {
		lock_leave(t);
		__builtin_memset(t, 0, sizeof(*t));
		/* An exec made it the leader of its process, with the leader's start. All so far was told. */
		if (use_task_storage) {
			t->run_delay_base = task->sched_info.run_delay;
			t->thread_start = task->start_boottime;
		}
	}
	if (!t->thread_start)
		state_init(task, t);
	return t;
}

static __always_inline void totals_of(struct task_struct *task, const struct task_state *t,
				      struct thread_record *r)
{
	r->tgid = task->tgid;
	r->tid = task->pid;
	r->start = task->group_leader->start_boottime;
	r->thread_start = t->thread_start;
	r->off_ns = t->off_ns;
	r->off_n = t->off_n;
	r->preempted_ns = t->preempted_ns;
	r->preempted_n = t->preempted_n;
	r->yield_ns = t->yield_ns;
	r->yield_n = t->yield_n;
	r->run_delay_ns = t->run_queue_ns;
	r->counters[COUNTER_MINOR_FAULTS] = task->min_flt;
	r->counters[COUNTER_MAJOR_FAULTS] = task->maj_flt;
	r->counters[COUNTER_VOLUNTARY_SWITCHES] = task->nvcsw;
	r->counters[COUNTER_INVOLUNTARY_SWITCHES] = task->nivcsw;
	r->counters[COUNTER_MIGRATIONS] = task->se.nr_migrations;
	/* The delay of the latest wait is booked at the next switch-out. */
	if (t->cause == OFF_BLOCKED)
		r->run_delay_ns += task->sched_info.run_delay - t->run_delay_base;
}

/* The wait that began at t->stamp is over, after d. */
static __always_inline void wait_ends(struct task_state *t, u64 d)
{
	if (t->cause == OFF_BLOCKED) {
		t->off_ns += d;
		t->off_n++;
		if (t->in_futex) {
			t->futex_ns += d;
			t->futex_n++;
		}
	} else {
		t->preempted_ns += d;
		t->preempted_n++;
		if (t->cause == OFF_RUN_QUEUE) {
			t->yield_ns += d;
			t->yield_n++;
		}
	}
	t->stamp = 0;
}

static __always_inline void note_fill(struct resume_note *n, struct task_struct *task,
				      struct task_state *t, u64 d)
{
	n->tid = task->pid;
	n->cause = t->cause;
	n->task_state = t->task_state;
	n->in_call = t->in_call;
	n->d = d;
	n->threshold = t->threshold;
	n->reported_ns = 0;
	if (*(volatile u64 *)&t->reported_stamp == t->stamp) {
		n->reported_ns = t->heeded_ns = t->reported_ns;
		t->heeded_stamp = t->stamp;
	}
	n->run_delay_base = t->run_delay_base;
	n->waker.since = 0;
	if (wakers_enabled && t->waker.since == t->stamp)
		n->waker = t->waker;
}

/* The futex wait that was broken off will not go on: a handler came first after all. */
static __always_inline void futex_give_up(struct task_state *t)
{
	lock_leave(t);
	t->restart_word = 0;
	t->futex_ns = 0;
	t->futex_n = 0;
	wait_lost(account_of(window, SOURCE_FUTEX));
}

/* The thread is in a futex call, or in the call that goes on with one. */
static __always_inline bool in_futex_call(struct task_struct *task, struct task_state *t, int nr)
{
	bool compat = task_is_compat(task);

	if (nr_is_futex_wait(nr, compat)) {
		if (t->restart_word)
			futex_give_up(t);
		return true;
	}
	return t->restart_word && nr_is_restart(nr, compat) &&
	       (u64)task->restart_block.futex.uaddr == t->restart_word;
}

/*
 * A thread runs that nobody saw come: the program did not run at that switch. (Why, the kernel does not say;
 * perhaps it keeps some threads from being traced.) It was away for as long as it did not run.
 */
static __always_inline u64 away_unseen(const struct task_state *t, u64 ran_ns, u64 now)
{
	u64 ran = ran_ns - t->ran_ns, since = now - t->stamp;

	return since > ran ? since - ran : 0;
}

/* Such a thread leaves. The stack of the wait is gone. */
static __always_inline void wait_unseen(struct task_struct *task, struct task_state *t, u64 now)
{
	u64 d = away_unseen(t, task->se.sum_exec_runtime, now);
	struct resume_note n = {};
	struct off_cpu_key key = {};
	struct account *a;
	u32 w = window;

	a = account_of(w, SOURCE_OFF_CPU);
	if (off_cpu_enabled && a && d >= t->theta) {
		a->lost[LOSS_SWITCH_UNSEEN]++;
		note_fill(&n, task, t, d);
		key.tgid = task->tgid;
		key.tid = task->pid;
		key.start = task->group_leader->start_boottime;
		key.task_state = t->task_state;
		wait_store(w, a, &key, &n, task->sched_info.run_delay);
	}
	/* A futex call that has returned meanwhile knew nothing of its wait. */
	if (t->in_futex && !in_futex_call(task, t, task_nr(task))) {
		t->in_futex = 0;
		wait_lost(account_of(w, SOURCE_FUTEX));
	}
	wait_ends(t, d);
}

/* The last switch of a thread, whose state ends here. */
static __always_inline void thread_end(struct task_struct *task, u64 now)
{
	struct thread_record r = { .type = RECORD_THREAD_EXIT, .now_mono_ns = now };
	struct task_state *t = task_state_of(task, task->pid, false);
	struct account *a;

	if (!t || t->thread_start != task->start_boottime)
		return;
	if (t->stamp)
		wait_unseen(task, t, now);
	totals_of(task, t, &r);
	lock_leave(t);
	t->ended = 1;
	if (resume_hook == RESUME_SPLIT && t->split) {
		bpf_map_delete_elem(&split_waits, &r.tid);
		wait_lost(account_of(window, SOURCE_OFF_CPU));
	}
	task_state_forget(r.tid);
	if (!off_cpu_enabled || !(r.off_n | r.preempted_n))
		return;
	if (!bpf_ringbuf_output(&ring, &r, sizeof(r), BPF_RB_NO_WAKEUP))
		return;
	a = account_of(window, SOURCE_OFF_CPU);
	if (a) {
		a->seen++;
		a->lost[LOSS_EXIT_RING_FULL]++;
	}
}

/* A call of the current thread returns. */
static __always_inline void split_returns(struct task_struct *task, u32 tid)
{
	struct task_state *t = task_state_of(task, tid, false);

	if (!t || !t->split)
		return;
	t->split = 0;
	split_finish(task);
}

/* ---- the switch ------------------------------------------------------------------------------------ */

static __always_inline void wait_begins(struct task_struct *task, struct task_state *t, u32 cause,
					u32 state, int nr, u64 now)
{
	u64 threshold = threshold_ns;

	t->cause = cause;
	t->task_state = state & TASK_STATE_KEY;
	t->in_call = nr >= 0;
	/*
	 * A page fault inside the call may block as well, but not interruptibly. (Of a thread that is being woken
	 * already nothing else is known where the tracepoint does not tell its state: before 5.18.)
	 */
	t->in_futex = futex_enabled && cause == OFF_BLOCKED &&
		      state & (TASK_INTERRUPTIBLE | TASK_WAKING) && in_futex_call(task, t, nr);
	t->threshold = threshold;
	t->theta = off_cpu_enabled ? draw_theta(threshold, now, task->pid) : NEVER_KEPT;
	t->stamp = now;
}

/* Returns the state of a thread that goes to sleep in a futex call; else NULL. */
static __always_inline struct task_state *switch_out(struct task_struct *task, bool preempt,
						     u32 state, u64 now)
{
	struct task_state *t;
	u32 cause = OFF_BLOCKED;
	u64 delay;
	int nr;

	if (state & TASK_DEAD) {
		thread_end(task, now);
		return NULL;
	}
	t = thread_state(task);
	if (!t)
		return NULL;
	if (resume_hook == RESUME_SPLIT && t->split) {
		t->split = 0;
		split_finish(task);
	}
	nr = task_nr(task);
	if (preempt || !state)
		cause = !preempt && nr_is_yield(nr, task_is_compat(task)) ? OFF_RUN_QUEUE
									  : OFF_PREEMPTED;
	state_change(t);
	if (t->stamp)
		wait_unseen(task, t, now);
	t->ran_ns = task->se.sum_exec_runtime;
	delay = task->sched_info.run_delay;
	if (t->cause == OFF_BLOCKED)
		t->run_queue_ns += delay - t->run_delay_base;
	t->run_delay_base = delay;
	wait_begins(task, t, cause, state, nr, now);
	state_change(t);
	return futex_enabled && t->in_futex ? t : NULL;
}

/* Where the resume hook looks for the wait that is over, or NULL. */
static __always_inline struct resume_note *note_slot(void)
{
	u32 zero = 0;
	struct resume_note *n = bpf_map_lookup_elem(&resume_notes, &zero);

	/* The hook did not run for the last one. */
	if (n && n->tid)
		wait_lost(account_of(window, SOURCE_OFF_CPU));
	return n;
}

static __always_inline void switch_in(struct task_struct *task, u64 now)
{
	struct task_state *t = task_state_of(task, task->pid, false);
	struct resume_note split = {}, *n = NULL;
	u64 d;

	if (!t || !t->stamp)
		return;
	d = now > t->stamp ? now - t->stamp : 0;
	if (d >= t->theta)
		n = resume_hook == RESUME_SPLIT ? &split : note_slot();
	if (n) {
		__sync_fetch_and_add(&t->seq, 1); /* state_change(), and a barrier on x86 */
		note_fill(n, task, t, d);
	} else {
		state_change(t);
	}
	wait_ends(t, d);
	state_change(t);
	if (resume_hook == RESUME_SPLIT && n)
		t->split = split_begin(task, n);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(offcpu_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();
	struct task_state *waits;
	u32 state;

	if (hardware_on)
		hardware_switch(prev, next, now);
	if (prev->pid) {
		state = run_state(prev);
		/* A waker on another CPU may be ahead of this tracepoint. */
		if (state == TASK_WAKING && switch_has_prev_state)
			state = ctx[3];
		waits = switch_out(prev, preempt, state, now);
		if (waits)
			lock_wait(prev, next, waits, now);
	}
	if (next->pid)
		switch_in(next, now);
	return 0;
}
