// SPDX-License-Identifier: GPL-2.0
/*
 * Futex waits that really slept.
 *
 * The context switch adds up how long a thread was blocked inside a futex call (task_state.futex_ns); when the
 * call returns, that is one wait, with the outcome that the caller was told. A call that returned without
 * sleeping (EAGAIN: the word had changed) left nothing there and is not a wait. The stack is that of the
 * caller: in the kernel there is only the return path.
 *
 * Calls that wake count in the slot of the lock (lock.bpf.h), and some of those that woke somebody with their stack.
 *
 * A wait with a timeout that is broken off by a stop, or anything else that runs no handler, goes on in
 * restart_syscall with the registers of the first call, and is one wait.
 */
#pragma once

#define FUTEX_OP_WAKE 1
#define FUTEX_OP_REQUEUE 3
#define FUTEX_OP_CMP_REQUEUE 4
#define FUTEX_OP_WAKE_OP 5
#define FUTEX_OP_UNLOCK_PI 7
#define FUTEX_OP_WAKE_BITSET 10
#define FUTEX_OP_WAIT_REQUEUE_PI 11
#define FUTEX_OP_CMP_REQUEUE_PI 12

#define ERR_INTR 4
#define ERR_AGAIN 11
#define ERR_TIMEDOUT 110
/* What the kernel returns to itself when a signal is to be handled first: ERESTARTSYS .. ERESTART_RESTARTBLOCK. */
#define ERR_RESTART_FIRST 512
#define ERR_RESTART_LAST 516
#define ERR_RESTART_BLOCK 516
#define SIGNALS 64

static __always_inline u16 futex_outcome_of(long ret)
{
	if (ret >= 0)
		return FUTEX_WOKEN;
	if (ret == -ERR_TIMEDOUT)
		return FUTEX_TIMED_OUT;
	if (ret == -ERR_INTR || (ret <= -ERR_RESTART_FIRST && ret >= -ERR_RESTART_LAST))
		return FUTEX_INTERRUPTED;
	if (ret == -ERR_AGAIN)
		return FUTEX_AGAIN;
	return FUTEX_FAILED;
}

/* struct futex_waitv of linux/futex.h */
struct futex_waiter {
	u64 val;
	u64 uaddr;
	u32 flags;
	u32 reserved;
};

/* What the call waited for, from its arguments. */
static __always_inline void futex_describe(struct futex_key *key, const struct call_args *args,
					   int nr)
{
	struct futex_waiter first = {};
	u32 op = args->arg[1], cmd = FUTEX_CMD(op);

	key->address = args->arg[0];
	key->futex_class = FUTEX_CLASS_WAIT;
	if (nr == CALL_FUTEX_WAITV) {
		key->futex_class = FUTEX_CLASS_WAITV;
		bpf_probe_read_user(&first, sizeof(first), (void *)args->arg[0]);
		key->address = first.uaddr;
		op = first.flags;
	} else if (nr == CALL_FUTEX_WAIT) {
		op = args->arg[3];
	} else if (cmd == FUTEX_OP_LOCK_PI || cmd == FUTEX_OP_LOCK_PI2) {
		key->futex_class = FUTEX_CLASS_LOCK_PI;
	} else if (cmd == FUTEX_OP_WAIT_REQUEUE_PI) {
		key->futex_class = FUTEX_CLASS_REQUEUE_PI;
	}
	key->flags = op & FUTEX_OP_PRIVATE ? 0 : FUTEX_SHARED;
}

static __always_inline u32 futex_bin(u64 ns)
{
	u32 bits = significant_bits(ns), first = FUTEX_BIN_LOG2(0) + 1;
	u32 bin = bits > first ? bits - first : 0;

	return bin < FUTEX_BINS ? bin : FUTEX_BINS - 1;
}

/* All zero, to create entries from. */
static const struct futex_value futex_value_zero;

/* One writer per key: the thread itself. */
static __always_inline int futex_add(void *map, struct futex_key *key, u64 ns)
{
	struct futex_value *v = bpf_map_lookup_elem(map, key);
	int r;

	if (!v) {
		r = bpf_map_update_elem(map, key, &futex_value_zero, BPF_ANY);
		if (r)
			return r;
		v = bpf_map_lookup_elem(map, key);
		if (!v)
			return -1;
	}
	v->waits++;
	v->ns += ns;
	if (v->max_ns < ns)
		v->max_ns = ns;
	v->bins[futex_bin(ns)]++;
	return 0;
}

/*
 * Where there is no place for another key, as when threads wait at ever new addresses, the wait is one for some other
 * lock, address 0, without its stack.
 */
static __always_inline int futex_count(u32 w, struct account *a, struct futex_key *key, u64 ns)
{
	int r = w & 1 ? futex_add(&futex_b, key, ns) : futex_add(&futex_a, key, ns);

	if (r != -7 /* E2BIG */)
		return r;
	if (key->stack != STACK_ID_NONE)
		a->lost[LOSS_SHED]++;
	key->stack = STACK_ID_NONE;
	key->address = 0;
	key->flags = 0;
	return w & 1 ? futex_add(&futex_rest_b, key, ns) : futex_add(&futex_rest_a, key, ns);
}

/* The stack of the current thread, which has made a futex call; that it was allowed is the caller's business. */
static __always_inline u64 futex_walk(u32 w, struct account *a, struct task_struct *task, u32 tgid,
				      u64 start)
{
	return stack_of_caller(w, SOURCE_FUTEX, a, task, tgid, start);
}

/* Whether a signal that is there ends the call: its handler runs before the call could go on. */
static __always_inline bool signal_is_handled(struct task_struct *task)
{
	const char *actions = (const char *)BPF_CORE_READ(task, sighand) +
			      bpf_core_field_offset(struct sighand_struct, action);
	u64 pending = (BPF_CORE_READ(task, pending.signal.sig[0]) |
		       BPF_CORE_READ(task, signal, shared_pending.signal.sig[0])) &
		      ~BPF_CORE_READ(task, blocked.sig[0]);

	for (int i = 0; i < SIGNALS; i++) {
		u64 handler = 0;

		if (!(pending >> i & 1))
			continue;
		bpf_probe_read_kernel(&handler, sizeof(handler),
				      actions + i * bpf_core_type_size(struct k_sigaction));
		if (handler > 1 /* SIG_DFL, SIG_IGN */)
			return true;
	}
	return false;
}

/* What a call that goes on later left behind; another kind of call leaves no address there. */
static __always_inline u64 futex_word_of_restart(struct task_struct *task)
{
	return (u64)BPF_CORE_READ(task, restart_block.futex.uaddr);
}

/* A futex call of the current thread that waits returns, or restart_syscall does. */
static __always_inline void futex_wait_returns(u32 w, struct task_struct *task,
					       const struct caller *who,
					       const struct call_args *args, int nr, long ret)
{
	struct task_state *t = task_state_of(task, who->tid, false);
	struct futex_key key = {
		.start = who->start,
		.tgid = who->tgid,
		.tid = who->tid,
		.outcome = futex_outcome_of(ret),
	};
	bool restart = nr_is_restart(nr, who->compat), goes_on;
	struct account *a;
	u64 ns;
	int r;

	if (!t)
		return;
	/* The rest of what is known of the wait is told when the thread leaves (wait_unseen). */
	if (t->stamp && t->in_futex) {
		t->in_futex = 0;
		t->futex_ns += away_unseen(t, BPF_CORE_READ(task, se.sum_exec_runtime),
					   bpf_ktime_get_ns());
		t->futex_n++;
	}
	goes_on = restart && t->restart_word && futex_word_of_restart(task) == t->restart_word;
	if (t->restart_word && !goes_on)
		futex_give_up(t);
	if (!t->futex_n || (restart && !goes_on))
		return;
	if (ret == -ERR_RESTART_BLOCK && !signal_is_handled(task)) {
		t->restart_word = futex_word_of_restart(task);
		return;
	}
	lock_leave(t);
	ns = t->futex_ns;
	t->restart_word = 0;
	t->futex_ns = 0;
	t->futex_n = 0;
	a = account_of(w, SOURCE_FUTEX);
	if (!a)
		return;
	a->seen++;
	futex_describe(&key, args, nr);
	key.stack = STACK_ID_NONE;
	if (walk_granted_by_length(SOURCE_FUTEX, ns, key.tid))
		key.stack = futex_walk(w, a, task, key.tgid, key.start);
	else
		a->lost[LOSS_SHED]++;
	r = futex_count(w, a, &key, ns);
	if (r)
		account_refused(a, r);
	else
		a->stored++;
}

/* ---- calls that wake --------------------------------------------------------------------------------- */

/* The class of a call that wakes, or 0. */
static __always_inline u32 futex_wake_class(const struct call_args *args, int nr)
{
	if (nr == CALL_FUTEX_WAKE)
		return FUTEX_CLASS_WAKE;
	if (nr == CALL_FUTEX_REQUEUE)
		return FUTEX_CLASS_REQUEUE;
	if (nr == CALL_FUTEX_WAIT || nr == CALL_FUTEX_WAITV)
		return 0;
	switch (FUTEX_CMD((u32)args->arg[1])) {
	case FUTEX_OP_WAKE:
	case FUTEX_OP_WAKE_BITSET:
		return FUTEX_CLASS_WAKE;
	case FUTEX_OP_REQUEUE:
	case FUTEX_OP_CMP_REQUEUE:
		return FUTEX_CLASS_REQUEUE;
	case FUTEX_OP_WAKE_OP:
		return FUTEX_CLASS_WAKE_OP;
	case FUTEX_OP_UNLOCK_PI:
		return FUTEX_CLASS_UNLOCK_PI;
	case FUTEX_OP_CMP_REQUEUE_PI:
		return FUTEX_CLASS_CMP_REQUEUE_PI;
	}
	return 0;
}

struct wake {
	u64 address;
	u32 class;
	u32 flags;
	u32 woken;
};

/* What the call did. futex_requeue has its words and flags in memory. */
static __always_inline void futex_wake_describe(struct wake *k, const struct call_args *args,
						int nr, long ret)
{
	u32 op = args->arg[1], most = args->arg[2];
	struct futex_waiter first = {};

	k->address = args->arg[0];
	if (nr == CALL_FUTEX_WAKE)
		op = args->arg[3];
	if (nr == CALL_FUTEX_REQUEUE) {
		bpf_probe_read_user(&first, sizeof(first), (void *)args->arg[0]);
		k->address = first.uaddr;
		op = first.flags;
	}
	k->flags = op & FUTEX_OP_PRIVATE ? 0 : FUTEX_SHARED;
	k->woken = ret;
	/* These tell of those that they moved as well. */
	if ((k->class == FUTEX_CLASS_REQUEUE || k->class == FUTEX_CLASS_CMP_REQUEUE_PI) &&
	    k->woken > most)
		k->woken = most;
}

static __always_inline void wake_count(struct lock_window *v, const struct wake *k)
{
	v->wake_class = k->class;
	if (!k->woken) {
		__sync_fetch_and_add(&v->idle_wakes, 1);
		return;
	}
	__sync_fetch_and_add(&v->wakes, 1);
	__sync_fetch_and_add(&v->woken, k->woken);
}

static __always_inline u64 since_mark(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

/* What the thread did from the moment when somebody saw it hold the lock until now, when it lets somebody in. */
static __always_inline void holder_lets_go(u32 w, struct task_struct *task, struct task_state *t,
					   const struct held *h, struct lock_key *key, u64 now)
{
	/* The mark was set while the thread may have been in a switch. */
	u64 blocked = since_mark(t->off_ns, h->off_ns);
	u64 preempted = since_mark(t->preempted_ns, h->preempted_ns);
	u64 queued = since_mark(run_queued(t, BPF_CORE_READ(task, sched_info.run_delay)),
				h->queued_ns);
	u64 all = since_mark(now, h->since);

	/* Woken and without a CPU. */
	if (queued > blocked)
		queued = blocked;
	blocked -= queued;
	preempted += queued;
	if (blocked > all)
		blocked = all;
	if (preempted > all - blocked)
		preempted = all - blocked;
	key->aspect = LOCK_HELD;
	key->state = HOLDER_RUNNING;
	lock_count(w, key, 1, all - blocked - preempted);
	if (preempted) {
		key->state = HOLDER_RUNNABLE;
		lock_count(w, key, 1, preempted);
	}
	if (!blocked)
		return;
	key->state = HOLDER_BLOCKED;
	if (h->stack_ns && h->stack && h->stack_window == w)
		key->stack = h->stack;
	lock_count(w, key, 1, blocked);
}

/* The slot of the lock that the mark stands for, or NULL. */
static __always_inline struct lock_slot *marked_slot(const struct held *h)
{
	u32 slot = h->mark & ((1U << HELD_SLOT_BITS) - 1);
	struct lock_slot *s = slot ? lock_slot_at(slot - 1) : NULL;

	return s && held_mark(s, slot) == h->mark ? s : NULL;
}

/* Whether the mark is of the lock that the thread wakes somebody of now. */
static __always_inline bool held_lock(const struct held *h, const struct wake *k,
				      const struct caller *who)
{
	struct lock_slot *s = marked_slot(h);

	if (!s)
		return false;
	if (s->address == k->address && s->tgid == who->tgid)
		return true;
	/* Each process may have it elsewhere, but not elsewhere in its page. */
	return s->tgid != who->tgid && s->flags & k->flags & FUTEX_SHARED &&
	       !((s->address ^ k->address) & 0xfff);
}

/* The number + 1 of the thread's mark of this lock, or 0. */
static __always_inline u32 held_of(const struct task_state *t, const struct wake *k,
				   const struct caller *who)
{
	if (held_lock(&t->held[0], k, who))
		return 1;
	return held_lock(&t->held[1], k, who) ? 2 : 0;
}

static __always_inline struct held *held_at(struct task_state *t, u32 held)
{
	return held == 1 ? &t->held[0] : &t->held[1];
}

static __always_inline void held_clear(struct held *h)
{
	struct lock_slot *s = marked_slot(h);

	h->mark = 0;
	if (s)
		__sync_fetch_and_add(&s->marks, -1);
}

/* What the current thread did with the lock in its mark, of which it wakes somebody. */
static __always_inline void holder_wakes(u32 w, struct task_struct *task, struct held *h,
					 struct task_state *t, struct lock_key *key)
{
	struct lock_slot *s = marked_slot(h);

	if (!s)
		return;
	lock_key_of(key, s);
	holder_lets_go(w, task, t, h, key, bpf_ktime_get_ns());
	held_clear(h);
}

#define WAKE_CLASS_BITS 8

/*
 * The current thread woke somebody of the lock in `slot` with this stack. `how`: the class of its call, and above it the
 * number + 1 of its mark. A subprogram: what it needs of the stack would be missing where the caller walks.
 */
__noinline int wake_tell(u32 w, u32 how, u32 slot, u64 stack, u32 woken)
{
	struct lock_key key = {
		.stack = stack,
		.futex_class = how & ((1U << WAKE_CLASS_BITS) - 1),
		.aspect = LOCK_WAKE,
	};
	u32 held = how >> WAKE_CLASS_BITS;
	struct task_struct *task;
	struct task_state *t;
	struct lock_slot *s;
	struct caller who;

	/* Verified for itself, where nobody calls it too. */
	if (!futex_enabled)
		return 0;
	task = caller_current(&who);
	s = lock_slot_at(slot - 1);
	if (!s)
		return 0;
	key.tgid = who.tgid;
	key.tid = who.tid;
	key.start = who.start;
	lock_key_of(&key, s);
	lock_count(w, &key, 1, woken);
	t = held ? task_state_of(task, who.tid, false) : NULL;
	if (t)
		holder_wakes(w, task, held_at(t, held), t, &key);
	return 0;
}

static __always_inline void futex_wake_returns(u32 w, struct task_struct *task,
					       const struct caller *who,
					       const struct call_args *args, u32 class, int nr,
					       long ret)
{
	struct wake k = { .class = class };
	struct task_state *t = NULL;
	struct lock_slot *s;
	struct account *a;
	u64 stack;
	u32 slot, held;

	if (who->compat)
		ret = (s32)ret;
	if (ret < 0)
		return;
	futex_wake_describe(&k, args, nr, ret);
	slot = lock_slot_of(w, who->tgid, who->start, k.address, k.flags,
			    k.woken && class != FUTEX_CLASS_UNLOCK_PI);
	s = slot ? lock_slot_at(slot - 1) : NULL;
	if (!s)
		return;
	/* It does not tell, and is called for nothing after a lock was handed over. */
	if (class == FUTEX_CLASS_UNLOCK_PI)
		k.woken = *(volatile u32 *)&s->waiters ? 1 : 0;
	wake_count(&s->window[w & 1], &k);
	a = account_of(w, SOURCE_FUTEX);
	/* The mark may be of the slot that another process has for a lock that they share. */
	if (*(volatile u32 *)&s->marks || k.flags & FUTEX_SHARED)
		t = task_state_of(task, who->tid, false);
	held = t ? held_of(t, &k, who) : 0;
	if (!k.woken || !a) {
		/* It let go, and nobody was there any more: who waited gave up. */
		if (held)
			held_clear(held_at(t, held));
		return;
	}
	if (!held && !ration_granted(RATION_WAKES, WAKES_PER_SECOND))
		return;
	stack = futex_walk(w, a, task, who->tgid, who->start);
	wake_tell(w, held << WAKE_CLASS_BITS | class, slot, stack, k.woken);
}

static __always_inline void futex_returns(u32 w, struct task_struct *task, const struct caller *who,
					  int nr, long ret)
{
	struct call_args args;
	u32 class = 0;

	call_args_of(task, who->compat, &args);
	if (!nr_is_restart(nr, who->compat))
		class = futex_wake_class(&args, nr);
	if (class)
		futex_wake_returns(w, task, who, &args, class, nr, ret);
	else
		futex_wait_returns(w, task, who, &args, nr, ret);
}
