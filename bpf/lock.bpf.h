/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Locks in user space while threads wait for them: how many wait at once, who wakes them, and what the thread that
 * holds the lock does meanwhile.
 *
 * A thread that goes to sleep in a futex call finds or takes the slot of its lock (struct lock_slot) and counts
 * itself in it; its task state remembers which slot, so that it is taken out of the same one however the call ends.
 * Some of these threads look at the holder as well: glibc's mutexes, and all that inherit priorities or are robust,
 * say in memory who that is. The holder's task is then marked with the slot, the time and its totals so far. When it
 * wakes somebody through that lock, the difference of the totals is what it did while others waited for it.
 *
 * Slots are written without locks. Two threads that take the same one at once are told apart by `claims`; that a
 * lock gets two slots for a moment is harmless: the daemon adds them up.
 */
#pragma once

#define FUTEX_CMD(op) \
	((op) & ~(128U | 256U)) /* without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME */
#define FUTEX_OP_LOCK_PI 6
#define FUTEX_OP_LOCK_PI2 13
#define FUTEX_OP_PRIVATE 128U /* FUTEX2_PRIVATE has the same value */

#define LOOKS_PER_SECOND 500 /* per CPU: waits that look who holds */
#define WAKES_PER_SECOND 250 /* per CPU: wakes whose stack is taken */

const volatile u32 lock_slots_mask = 0; /* slots - 1: a power of two */

/* Without a slot, or without a place in the map of samples. Read by the daemon. */
volatile u64 lock_slots_short = 0;
volatile u64 lock_samples_lost = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOCK_SLOTS_MIN);
	__type(key, u32);
	__type(value, struct lock_slot);
} lock_slots SEC(".maps");

static __always_inline struct lock_slot *lock_slot_at(u32 i)
{
	return bpf_map_lookup_elem(&lock_slots, &i);
}

static __always_inline bool slot_is_of(const struct lock_slot *s, u32 tgid, u64 start, u64 address)
{
	return s->address == address && s->tgid == tgid && s->start == start;
}

/* Whether the daemon has something to take out. */
static __always_inline bool slot_tells(const struct lock_window *v)
{
	return v->most > 1 || v->wakes || v->idle_wakes;
}

/* Nobody waits, and what it counted was taken out by the daemon or says nothing. */
static __always_inline bool slot_is_free(const struct lock_slot *s, u32 w)
{
	if (*(volatile u32 *)&s->waiters)
		return false;
	return !s->address || (s32)(w - s->last) >= 2 ||
	       (!slot_tells(&s->window[0]) && !slot_tells(&s->window[1]));
}

static __always_inline bool slot_take(struct lock_slot *s, u32 w, u32 tgid, u64 start, u64 address,
				      u32 flags)
{
	bool mine;

	__sync_fetch_and_add(&s->claims, 1);
	mine = *(volatile u32 *)&s->claims == 1 && slot_is_free(s, w);
	if (mine) {
		s->generation++;
		s->marks = 0;
		s->last = w;
		s->address = address;
		s->start = start;
		s->tgid = tgid;
		s->flags = flags;
	}
	__sync_fetch_and_add(&s->claims, -1);
	return mine;
}

/*
 * The number + 1 of the lock's slot, or 0. Only who waits, or woke one that did, may take a slot: else a process could
 * use up all of them by calls that do nothing.
 */
static __always_inline u32 lock_slot_of(u32 w, u32 tgid, u64 start, u64 address, u32 flags,
					bool may_take)
{
	u32 first = hash_finish(hash_seed ^ address ^ (u64)tgid << 40) & lock_slots_mask &
		    ~(LOCK_WAYS - 1U);
	struct lock_slot *s;

	WALK_UNROLL
	for (u32 i = 0; i < LOCK_WAYS; i++) {
		s = lock_slot_at(first + i);
		if (s && slot_is_of(s, tgid, start, address)) {
			s->last = w;
			return first + i + 1;
		}
	}
	if (!may_take)
		return 0;
	WALK_UNROLL
	for (u32 i = 0; i < LOCK_WAYS; i++) {
		s = lock_slot_at(first + i);
		if (s && slot_is_free(s, w) && slot_take(s, w, tgid, start, address, flags))
			return first + i + 1;
	}
	__sync_fetch_and_add(&lock_slots_short, 1);
	return 0;
}

/* ---- waiters ---------------------------------------------------------------------------------------- */

/* The thread no longer waits for what it waited for. */
static __always_inline void lock_leave(struct task_state *t)
{
	struct lock_slot *s;

	/* Without futex waits there is no table. */
	if (!futex_enabled)
		return;
	s = t->lock_slot ? lock_slot_at(t->lock_slot - 1) : NULL;
	t->lock_slot = 0;
	if (s)
		__sync_fetch_and_add(&s->waiters, -1);
}

static __always_inline struct lock_slot *lock_enter(struct task_state *t, u32 w, u32 tgid,
						    u64 start, u64 address, u32 flags)
{
	struct lock_slot *s = t->lock_slot ? lock_slot_at(t->lock_slot - 1) : NULL;
	struct lock_window *v;
	u32 n;

	if (s && slot_is_of(s, tgid, start, address))
		return s; /* it was woken for nothing, or goes on after a stop */
	lock_leave(t);
	t->lock_slot = lock_slot_of(w, tgid, start, address, flags, true);
	s = t->lock_slot ? lock_slot_at(t->lock_slot - 1) : NULL;
	if (!s)
		return NULL;
	__sync_fetch_and_add(&s->waiters, 1);
	/* It may have become another lock's before somebody was counted in it. */
	if (!slot_is_of(s, tgid, start, address)) {
		lock_leave(t);
		return NULL;
	}
	n = *(volatile u32 *)&s->waiters;
	v = &s->window[w & 1];
	if (v->most < n)
		v->most = n;
	if (n > 1)
		__sync_fetch_and_add(&v->met, 1);
	return s;
}

/* ---- samples of who wakes and who holds -------------------------------------------------------------- */

static __always_inline int lock_add(void *map, const struct lock_key *key, u64 n, u64 ns)
{
	struct lock_value first = { .n = n, .ns = ns, .max_ns = ns };
	struct lock_value *v = bpf_map_lookup_elem(map, key);
	int r;

	if (!v) {
		r = bpf_map_update_elem(map, key, &first, BPF_NOEXIST);
		if (r != -17 /* EEXIST: another CPU was faster */)
			return r;
		v = bpf_map_lookup_elem(map, key);
		if (!v)
			return -16;
	}
	/* Of a constant 0 the compiler would make an atomic "or", which 5.10 does not have. */
	asm volatile("" : "+r"(ns));
	/* Several threads may look at one holder. */
	__sync_fetch_and_add(&v->n, n);
	if (ns) /* else clang makes an atomic OR of it, which there is none of before 5.12 */
		__sync_fetch_and_add(&v->ns, ns);
	if (v->max_ns < ns)
		v->max_ns = ns;
	return 0;
}

static __always_inline void lock_count(u32 w, const struct lock_key *key, u64 n, u64 ns)
{
	if (w & 1 ? lock_add(&locks_b, key, n, ns) : lock_add(&locks_a, key, n, ns))
		__sync_fetch_and_add(&lock_samples_lost, 1);
}

static __always_inline void lock_key_of(struct lock_key *key, const struct lock_slot *s)
{
	key->address = s->address;
	key->lock_start = s->start;
	key->lock_tgid = s->tgid;
	key->flags = s->flags & FUTEX_SHARED;
}

/* ---- the holder --------------------------------------------------------------------------------------- */

/* 6.2; 6.14 for threads as their own pid namespace counts them. Trusted pointers, to be released. */
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern struct task_struct *bpf_task_from_vpid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

const volatile bool have_task_from_pid = false;
const volatile bool have_task_from_vpid = false;

#define FUTEX_TID 0x3fffffffU
#define HELD_SLOT_BITS 16 /* LOCK_SLOTS_MAX + 1 */
#define MUTEX_TYPE 3
#define MUTEX_ROBUST 16
#define MUTEX_INHERIT 32
#define MUTEX_PROTECT 64
#define MUTEX_SHARED 128
#define MUTEX_ELISION (256 | 512)

/* glibc's pthread_mutex_t where int has 32 and pointers have 64 bits. */
struct mutex_words {
	u32 lock;
	u32 count;
	u32 owner;
	u32 users;
	u32 kind;
};

/*
 * The thread that the word says holds it, as its pid namespace counts, or 0. Threads wait at a mutex's first word, and
 * at a rwlock's third or fourth.
 */
static __always_inline u32 lock_owner(u64 address, bool pi, bool *ret_any_process)
{
	const u32 kinds = MUTEX_TYPE | MUTEX_ROBUST | MUTEX_INHERIT | MUTEX_PROTECT | MUTEX_SHARED |
			  MUTEX_ELISION;
	struct mutex_words m = {};

	*ret_any_process = false;
	if (pi) {
		bpf_probe_read_user(&m.lock, sizeof(m.lock), (void *)address);
		*ret_any_process = true; /* the kernel itself goes by it */
		return m.lock & FUTEX_TID;
	}
	if (bpf_probe_read_user(&m, sizeof(m), (void *)address))
		return 0;
	/* A rwlock's third word: the writer stands behind three more. */
	if (m.kind & ~kinds)
		return !m.owner && !m.users ? m.kind : 0;
	*ret_any_process = m.kind & MUTEX_SHARED;
	if (m.kind & (MUTEX_ROBUST | MUTEX_INHERIT))
		return m.lock & FUTEX_TID;
	if ((m.lock == 1 || m.lock == 2) && m.owner)
		return m.owner;
	/* A rwlock's fourth word; 1 is a mutex on the way into somebody's hands. */
	return !m.count && !m.owner && m.kind <= 1 && m.users > 1 ? m.users : 0;
}

/* That thread's task, to be released, or NULL. `task`: who asks. */
static __always_inline struct task_struct *lock_owner_task(struct task_struct *task, u32 tid)
{
	if (have_task_from_vpid)
		return bpf_task_from_vpid(tid);
	/* Only where the namespace is the host's do both count alike. */
	if (have_task_from_pid && !task->thread_pid->level)
		return bpf_task_from_pid(tid);
	return NULL;
}

static __always_inline u32 holder_state(struct task_struct *holder, const struct task_struct *next)
{
	/* The thread that is about to run here is not yet marked as running. */
	if (holder->pid == next->pid || holder->on_cpu)
		return HOLDER_RUNNING;
	return run_state(holder) ? HOLDER_BLOCKED : HOLDER_RUNNABLE;
}

/* How long a thread that had been woken has waited for a CPU, by its sched_info.run_delay; part of off_ns. */
static __always_inline u64 run_queued(const struct task_state *t, u64 run_delay)
{
	return t->run_queue_ns + (t->cause == OFF_BLOCKED ? run_delay - t->run_delay_base : 0);
}

/*
 * A word that processes share may name any thread: who cannot be of its processes is not believed to hold the lock, and
 * is not marked.
 */
static __always_inline bool may_share(struct task_struct *task, struct task_struct *holder)
{
	u32 uid = task->real_cred->uid.val;

	return !uid || uid == holder->real_cred->uid.val;
}

/* A slot may get another lock while a thread is still marked with it. */
static __always_inline u32 held_mark(const struct lock_slot *s, u32 slot)
{
	return s->generation << HELD_SLOT_BITS | slot;
}

/* Longer ago, a mark is likely to be of a lock that was let go while nobody waited any more. */
#define HELD_MAX_NS (10ULL << 30)

/* Where to mark it: NULL if it is, by one who has waited for longer. Of two others the inner one gives way. */
static __always_inline struct held *held_place(struct task_state *t, u32 mark, u64 now)
{
	struct held *outer = &t->held[0], *inner = &t->held[1];

	if (outer->mark == mark || inner->mark == mark)
		return NULL;
	if (!outer->mark || now - outer->since > HELD_MAX_NS)
		return outer;
	return inner;
}

/*
 * Marks the holder: from now on somebody waits for it. Its state is written by the CPU that switches it; what is set
 * here is read by the thread itself when it wakes somebody, and at worst is that of another lock that it holds.
 */
static __always_inline void holder_mark(struct task_struct *holder, struct lock_slot *s, u32 mark,
					u64 now)
{
	struct task_state *t = task_state_of(holder, holder->pid, false);
	struct held *h = t ? held_place(t, mark, now) : NULL;
	u64 stamp, away;

	if (!h)
		return;
	stamp = t->stamp;
	away = stamp && now > stamp ? now - stamp : 0;
	h->off_ns = t->off_ns + (t->cause == OFF_BLOCKED ? away : 0);
	h->preempted_ns = t->preempted_ns + (t->cause == OFF_BLOCKED ? 0 : away);
	h->queued_ns = run_queued(t, holder->sched_info.run_delay);
	h->stack_ns = 0;
	h->since = now;
	h->mark = mark;
	__sync_fetch_and_add(&s->marks, 1);
}

/* A thread is about to wait for the lock that `mark` stands for: who holds it? */
static __always_inline void lock_look(u32 w, struct task_struct *task, struct task_struct *next,
				      struct lock_slot *s, u32 mark, bool pi, u64 now)
{
	struct lock_key key = { .aspect = LOCK_LOOK, .tgid = s->tgid, .start = s->start };
	struct task_struct *holder = NULL;
	bool any_process;
	u32 tid;

	lock_key_of(&key, s);
	tid = lock_owner(s->address, pi, &any_process);
	if (tid)
		holder = lock_owner_task(task, tid);
	if (holder) {
		if (holder->pid != task->pid && !(holder->flags & PF_KTHREAD) &&
		    (holder->tgid == task->tgid || (any_process && may_share(task, holder)))) {
			key.tgid = holder->tgid;
			key.tid = holder->pid;
			key.start = holder->group_leader->start_boottime;
			key.state = holder_state(holder, next);
			holder_mark(holder, s, mark, now);
		}
		bpf_task_release(holder);
	}
	lock_count(w, &key, 1, 0);
}

/* ---- where the context switch comes by ---------------------------------------------------------------- */

/* `task` leaves, and sleeps in a futex call. */
static __always_inline void lock_wait(struct task_struct *task, struct task_struct *next,
				      struct task_state *t, u64 now)
{
	bool compat = task_is_compat(task), pi = false;
	u64 address = t->restart_word;
	int nr = task_nr(task);
	u32 op = FUTEX_OP_PRIVATE, w = window;
	struct call_args args;
	struct lock_slot *s;

	if (nr == CALL_FUTEX_WAITV)
		return; /* it waits for several */
	if (!address) {
		call_args_of(task, compat, &args);
		address = args.arg[0];
		op = nr == CALL_FUTEX_WAIT ? args.arg[3] : args.arg[1];
		pi = nr != CALL_FUTEX_WAIT &&
		     (FUTEX_CMD(op) == FUTEX_OP_LOCK_PI || FUTEX_CMD(op) == FUTEX_OP_LOCK_PI2);
	}
	s = lock_enter(t, w, task->tgid, task->group_leader->start_boottime, address,
		       op & FUTEX_OP_PRIVATE ? 0 : FUTEX_SHARED);
	if (!s || compat || !(have_task_from_pid || have_task_from_vpid))
		return;
	if (ration_granted(RATION_LOOKS, LOOKS_PER_SECOND))
		lock_look(w, task, next, s, held_mark(s, t->lock_slot), pi, now);
}

/* The current thread, which somebody may wait for, ran again after d, and this was its stack. */
static __always_inline void holder_resumed(u32 w, u64 stack, u64 d)
{
	struct task_struct *task;
	struct task_state *t;

	if (!futex_enabled || !HAVE_CURRENT_BTF || !(have_task_from_pid || have_task_from_vpid))
		return;
	task = bpf_get_current_task_btf();
	t = task_state_of(task, task->pid, false);
	if (!t)
		return;
	WALK_UNROLL
	for (int i = 0; i < HELD_LOCKS; i++) {
		struct held *h = &t->held[i];

		if (!h->mark || d < h->stack_ns)
			continue;
		h->stack = stack;
		h->stack_ns = d;
		h->stack_window = w;
	}
}
