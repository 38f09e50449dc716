// SPDX-License-Identifier: GPL-2.0
/*
 * Futex waits that really slept.
 *
 * The context switch adds up how long a thread was blocked inside a futex call (task_state.futex_ns); when the
 * call returns, that is one wait, with the outcome that the caller was told. A call that returned without
 * sleeping (EAGAIN: the word had changed) left nothing there and is not a wait. The stack is that of the
 * caller: in the kernel there is only the return path.
 *
 * A wait with a timeout that is broken off by a stop, or anything else that runs no handler, goes on in
 * restart_syscall with the registers of the first call, and is one wait.
 */
#pragma once

#define FUTEX_CMD(op) \
	((op) & ~(128U | 256U)) /* without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME */
#define FUTEX_OP_LOCK_PI 6
#define FUTEX_OP_WAIT_REQUEUE_PI 11
#define FUTEX_OP_LOCK_PI2 13
#define FUTEX_OP_PRIVATE 128U /* FUTEX2_PRIVATE has the same value */

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

/* One writer per key: the thread itself. */
static __always_inline int futex_add(void *map, struct futex_key *key, u64 ns)
{
	struct futex_value first = { .waits = 1, .ns = ns, .max_ns = ns };
	struct futex_value *v = bpf_map_lookup_elem(map, key);

	if (!v)
		return bpf_map_update_elem(map, key, &first, BPF_ANY);
	v->waits++;
	v->ns += ns;
	if (v->max_ns < ns)
		v->max_ns = ns;
	return 0;
}

static __always_inline u64 futex_stack(u32 w, struct account *a, struct task_struct *task,
				       const struct futex_key *key, u64 ns)
{
	struct scratch *s;
	int slot;
	u64 id;

	if (!walk_granted_by_length(SOURCE_FUTEX, bpf_ktime_get_ns(), ns, key->tid)) {
		a->lost[LOSS_SHED]++;
		return STACK_ID_NONE;
	}
	slot = scratch_claim();
	s = slot >= 0 ? scratch_at(slot) : NULL;
	if (!s) {
		a->lost[LOSS_SCRATCH_BUSY]++;
		return STACK_ID_NONE;
	}
	stack_begin(s, w, SOURCE_FUTEX, key->tgid, key->start);
	stack_user_regs_of_current(s, task);
	id = stack_send(s, slot, a);
	scratch_release(s);
	return id;
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

/* A futex call of the current thread returns, or restart_syscall does. */
static __always_inline void futex_returns(u32 w, struct task_struct *task, const struct caller *who,
					  int nr, long ret)
{
	struct task_state *t = task_state_of(task, who->tid, false);
	struct futex_key key = {
		.start = who->start,
		.tgid = who->tgid,
		.tid = who->tid,
		.outcome = futex_outcome_of(ret),
	};
	bool restart = nr_is_restart(nr, who->compat), goes_on;
	struct call_args args;
	struct account *a;
	u64 ns;
	int r;

	if (!t)
		return;
	goes_on = restart && t->restart_word && futex_word_of_restart(task) == t->restart_word;
	if (t->restart_word && !goes_on)
		futex_give_up(t);
	if (!t->futex_n || (restart && !goes_on))
		return;
	if (ret == -ERR_RESTART_BLOCK && !signal_is_handled(task)) {
		t->restart_word = futex_word_of_restart(task);
		return;
	}
	ns = t->futex_ns;
	t->restart_word = 0;
	t->futex_ns = 0;
	t->futex_n = 0;
	a = account_of(w, SOURCE_FUTEX);
	if (!a)
		return;
	a->seen++;
	call_args_of(task, who->compat, &args);
	futex_describe(&key, &args, nr);
	key.stack = futex_stack(w, a, task, &key, ns);
	r = w & 1 ? futex_add(&futex_b, &key, ns) : futex_add(&futex_a, &key, ns);
	if (r)
		account_refused(a, r);
	else
		a->stored++;
}
