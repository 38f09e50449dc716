// SPDX-License-Identifier: GPL-2.0
/*
 * Waits for the kernel's own locks: contention_begin and contention_end (5.19).
 *
 * contention_end fires while the lock is held, and that may be any lock: of a hash map, of its list of free elements,
 * of a run queue. A program there that takes a lock itself can meet the one that its CPU holds already, and the host
 * stands still. So nothing here takes a lock, not even inside a helper: all maps are arrays, places in them are claimed
 * by counting, and two who meet go to different places, which the daemon adds up. For the same reason these programs
 * may run in any context, and be interrupted by themselves.
 *
 * Whatever costs time is done at the begin, where the thread has to wait anyway: the stack is walked and the identity
 * of the row is hashed. What is left for the end is a subtraction and three additions, but for a long wait without stack.
 */
#pragma once

#define LCB_F_SPIN 1U
#define LCB_F_READ 2U
#define LCB_F_WRITE 4U
#define LCB_F_RT 8U
#define LCB_F_PERCPU 16U
#define LCB_F_MUTEX 32U

/*
 * Walks at the begin, per CPU: 2,000 a second. A long wait that had none is walked at its end, when that is a small part
 * of what it took: so the time that matters has its stacks always.
 */
#define KERNEL_STRETCH_SHIFT 22 /* 4.2 ms */
#define KERNEL_WALKS_PER_STRETCH 8
#define KERNEL_LONG_NS 131072

const volatile u32 kernel_locks_mask = 0; /* entries - 1: powers of two */
const volatile u32 kernel_waits_mask = 0;

/* Read by the daemon: waits that are told nowhere. */
volatile u64 kernel_locks_short = 0; /* for want of a place in the table of sums, */
volatile u64 kernel_waits_short = 0; /* in that of waits in progress */

#define KERNEL_LOCKS_MAP(name)                     \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1024);         \
		__type(key, u32);                  \
		__type(value, struct kernel_lock); \
	} name SEC(".maps")

KERNEL_LOCKS_MAP(kernel_locks_a);
KERNEL_LOCKS_MAP(kernel_locks_b);

/* Of those who may sleep meanwhile, by tid. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct kernel_wait);
} kernel_waits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct kernel_spins);
} kernel_spins SEC(".maps");

static __always_inline struct kernel_spins *spins_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&kernel_spins, &zero);
}

static __always_inline u16 kernel_lock_kind(u32 flags)
{
	u32 side = flags & (LCB_F_READ | LCB_F_WRITE);

	if (flags & LCB_F_MUTEX)
		return KERNEL_LOCK_MUTEX;
	if (flags & LCB_F_RT)
		return KERNEL_LOCK_RT_MUTEX;
	if (flags & LCB_F_PERCPU)
		return side == LCB_F_READ ? KERNEL_LOCK_PERCPU_READ : KERNEL_LOCK_PERCPU_WRITE;
	if (flags & LCB_F_SPIN)
		return side == LCB_F_READ    ? KERNEL_LOCK_RWLOCK_READ
		       : side == LCB_F_WRITE ? KERNEL_LOCK_RWLOCK_WRITE
					     : KERNEL_LOCK_SPINLOCK;
	if (side)
		return side == LCB_F_READ ? KERNEL_LOCK_RWSEM_READ : KERNEL_LOCK_RWSEM_WRITE;
	return flags ? KERNEL_LOCK_OTHER : KERNEL_LOCK_SEMAPHORE;
}

/* ---- begin ---------------------------------------------------------------------------------------------- */

static __always_inline bool kernel_walk_granted(struct kernel_spins *s, u64 now)
{
	if (s->stretch != now >> KERNEL_STRETCH_SHIFT) {
		s->stretch = now >> KERNEL_STRETCH_SHIFT;
		s->walks = 0;
	}
	return s->walks++ < KERNEL_WALKS_PER_STRETCH;
}

static __always_inline void wait_identify(struct kernel_wait *k)
{
	u64 hash = hash_seed ^ k->start ^ (u64)k->tgid << 32 ^ k->kind, check = ~hash_seed ^ k->nr;

	for (u32 i = 0; i < KERNEL_LOCK_FRAMES; i++) {
		if (i >= k->nr)
			break;
		hash = (hash ^ k->ips[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
		check = (check + k->ips[i]) * 0xc2b2ae3d27d4eb4fULL;
	}
	k->check = check >> 32;
	k->id = hash_finish(hash) & hash_mask;
	if (!k->id)
		k->id = 1;
}

static __always_inline void wait_walk(void *ctx, struct kernel_wait *k)
{
	k->nr = kernel_frames(bpf_get_stack(ctx, k->ips, sizeof(k->ips), 0));
}

static __always_inline void wait_begin(void *ctx, struct kernel_wait *k, struct kernel_spins *s,
				       struct task_struct *task, u64 lock, u32 flags)
{
	u64 now = bpf_ktime_get_ns();

	k->lock = lock;
	k->since = now;
	k->kind = kernel_lock_kind(flags);
	k->tgid = task->tgid;
	k->start = task->group_leader->start_boottime;
	k->nr = 0;
	if (kernel_walk_granted(s, now))
		wait_walk(ctx, k);
	wait_identify(k);
}

static __always_inline struct kernel_wait *wait_at(u32 i)
{
	return bpf_map_lookup_elem(&kernel_waits, &i);
}

/* The place of this thread, or a free one that is now its. */
static __always_inline struct kernel_wait *wait_take(u32 tid)
{
	u32 first = tid & kernel_waits_mask;
	struct kernel_wait *k;

	WALK_UNROLL
	for (u32 i = 0; i < KERNEL_WAIT_WAYS; i++) {
		k = wait_at(first ^ i);
		if (k && k->tid == tid)
			return k;
	}
	WALK_UNROLL
	for (u32 i = 0; i < KERNEL_WAIT_WAYS; i++) {
		k = wait_at(first ^ i);
		if (k && !__sync_val_compare_and_swap(&k->tid, 0, tid))
			return k;
	}
	return NULL;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, u32 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct kernel_spins *s = spins_here();
	struct kernel_wait *k = NULL;
	u32 depth;

	if (!s)
		return 0;
	if (flags & LCB_F_SPIN && !(flags & LCB_F_MUTEX)) {
		/* Full: ends were missed, and what is there is over. */
		depth = s->depth < KERNEL_SPINS ? s->depth : 0;
		s->depth = depth + 1;
		k = &s->wait[depth & (KERNEL_SPINS - 1)];
	} else if (task->pid) {
		k = wait_take(task->pid);
		/* A mutex tells each time that it goes over to spinning or sleeping: one wait. */
		if (k && flags & LCB_F_MUTEX && k->lock == (u64)lock)
			return 0;
	}
	if (k)
		wait_begin(ctx, k, s, task, (u64)lock, flags);
	else
		__sync_fetch_and_add(&kernel_waits_short, 1);
	return 0;
}

/* ---- end ------------------------------------------------------------------------------------------------ */

static __always_inline struct kernel_lock *kernel_lock_at(u32 w, u32 i)
{
	return w & 1 ? bpf_map_lookup_elem(&kernel_locks_b, &i)
		     : bpf_map_lookup_elem(&kernel_locks_a, &i);
}

static __always_inline bool kernel_lock_fill(struct kernel_lock *to, const struct kernel_wait *k)
{
	bool mine;

	/* Atomics that return a value are ordered: who gets it sees what the one before wrote. */
	if (__sync_val_compare_and_swap(&to->claims, 0, 1))
		return false;
	mine = !*(volatile u64 *)&to->id;
	if (mine) {
		to->start = k->start;
		to->tgid = k->tgid;
		to->kind = k->kind;
		to->nr = k->nr;
		WALK_UNROLL
		for (u32 i = 0; i < KERNEL_LOCK_FRAMES; i++)
			to->ips[i] = k->ips[i];
		to->check = k->check;
		*(volatile u64 *)&to->id = k->id;
	}
	(void)__sync_val_compare_and_swap(&to->claims, 1, 0);
	return mine;
}

static __always_inline struct kernel_lock *kernel_lock_of(u32 w, const struct kernel_wait *k)
{
	u32 first = k->id & kernel_locks_mask & ~(KERNEL_LOCK_WAYS - 1U);
	struct kernel_lock *to;

	for (u32 i = 0; i < KERNEL_LOCK_WAYS; i++) {
		to = kernel_lock_at(w, first + i);
		if (!to)
			return NULL;
		if (to->id == k->id && to->check == k->check)
			return to;
		if (!to->id && kernel_lock_fill(to, k))
			return to;
	}
	return NULL;
}

static __always_inline void wait_end(void *ctx, struct kernel_wait *k, u64 now)
{
	u64 ns = since_mark(now, k->since);
	struct kernel_lock *to;

	if (!k->nr && ns >= KERNEL_LONG_NS) {
		wait_walk(ctx, k);
		wait_identify(k);
	}
	to = kernel_lock_of(window, k);
	if (!to) {
		__sync_fetch_and_add(&kernel_locks_short, 1);
		return;
	}
	__sync_fetch_and_add(&to->waits, 1);
	__sync_fetch_and_add(&to->ns, ns);
	if (to->max_ns < ns)
		to->max_ns = ns;
}

/* The newest wait of this CPU for the lock; what began after it is over, too. False: it is none of them. */
static __always_inline bool spin_end(void *ctx, struct kernel_spins *s, u64 lock, u64 now)
{
	u32 depth = s->depth;

	for (u32 i = KERNEL_SPINS; i > 0; i--) {
		struct kernel_wait *k = &s->wait[i - 1];

		if (i > depth || k->lock != lock)
			continue;
		wait_end(ctx, k, now);
		/* Not before: an interrupt might take its place. */
		*(volatile u32 *)&s->depth = i - 1;
		return true;
	}
	return false;
}

static __always_inline struct kernel_wait *wait_of(u32 tid, u64 lock)
{
	u32 first = tid & kernel_waits_mask;

	WALK_UNROLL
	for (u32 i = 0; i < KERNEL_WAIT_WAYS; i++) {
		struct kernel_wait *k = wait_at(first ^ i);

		if (k && k->tid == tid)
			return k->lock == lock ? k : NULL;
	}
	return NULL;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock)
{
	struct kernel_spins *s = spins_here();
	struct kernel_wait *k;
	u64 now;

	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	if (s->depth && spin_end(ctx, s, (u64)lock, now))
		return 0;
	k = wait_of(bpf_get_current_task_btf()->pid, (u64)lock);
	if (k) {
		wait_end(ctx, k, now);
		k->lock = 0;
		*(volatile u32 *)&k->tid = 0;
	}
	return 0;
}
