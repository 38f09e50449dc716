/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacks: capture, identify, send.
 *
 * A program claims a scratch, fills it in this order, and releases it:
 *
 *	slot = scratch_claim();                     0.. or -1: count LOSS_SCRATCH_BUSY, keep the weight
 *	s = scratch_at(slot);
 *	stack_begin(s, w, SOURCE_X, tgid, start);
 *	s->rec.nr_kernel = kernel_frames(bpf_get_stack(ctx, s->ips, KERNEL_STACK_BYTES, 0));
 *	stack_user_regs_of_current(s, task), or fill s->regs and stack_user_regs(s), or neither
 *	id = stack_send(s, slot, a);
 *	scratch_release(s);
 *
 * The user side is walked by unwind tables: walk.h.
 */
#pragma once

#define SCRATCH_SLOTS 4
#define KERNEL_STACK_BYTES (MAX_KERNEL_FRAMES * 8)
#define WALK_FN __noinline
#define WALK_UNROLL _Pragma("unroll")
#define WALK_CONST \
	const /* not static: libbpf 1.1 gives static data a wrong place in the type information */

#include "walk.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_SLOTS);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch_at(u32 slot)
{
	return bpf_map_lookup_elem(&scratches, &slot);
}

/*
 * Programs nest (a tick inside a context switch), and where they are preemptible they interleave: so a slot
 * belongs to whoever raised its busy count from 0 to 1. Fetching atomics do not exist before 5.12; adding and
 * then reading gives the same guarantee, except that two who meet may both go to the next slot.
 */
__noinline int scratch_claim(void)
{
	struct scratch *s;

	for (u32 i = 0; i < SCRATCH_SLOTS; i++) {
		s = scratch_at(i);
		if (!s)
			return -1;
		__sync_fetch_and_add(&s->busy, 1);
		if (*(volatile u32 *)&s->busy == 1)
			return i;
		__sync_fetch_and_add(&s->busy, -1);
	}
	return -1;
}

static __always_inline void scratch_release(struct scratch *s)
{
	__sync_fetch_and_add(&s->busy, -1);
}

/* A subprogram of its own, so that the verifier's knowledge of the number of frames ends with it. */
__noinline int hash_kernel(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	u32 n;

	if (!s)
		return 0;
	n = s->rec.nr_kernel;
	for (u32 i = 0; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= n)
			break;
		hash_add(&s->walk, s->ips[i]);
	}
	return 0;
}

/* ---- the walk's surroundings ------------------------------------------------------------------------- */

/*
 * The tables of all collectors are the same maps, made by daemon/unwind. Of a collector without them these small ones
 * are created, in which nothing is found.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct unwind_process_key);
	__type(value, struct unwind_process);
} unwind_processes SEC(".maps");

struct unwind_nodes_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_NODES_PER_MAP);
	__uint(key_size, sizeof(u32));
	__uint(value_size, UNWIND_NODE_SIZE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct unwind_nodes_map);
} unwind_nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_control);
} unwind_controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct unwind_process_key);
	__type(value, struct unwind_young);
} unwind_young SEC(".maps");

#define MEMO_ENTRIES 1024
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MEMO_ENTRIES);
	__type(key, u32);
	__type(value, struct walk_memo);
} walk_memos SEC(".maps");

static __always_inline const void *walk_node(u32 node)
{
	u32 map = node >> UNWIND_SLOT_BITS, slot = node & ((1U << UNWIND_SLOT_BITS) - 1);
	void *inner;

	if (!node)
		return NULL;
	inner = bpf_map_lookup_elem(&unwind_nodes, &map);
	return inner ? bpf_map_lookup_elem(inner, &slot) : NULL;
}

static __always_inline int walk_rule(u32 rule, struct unwind_rule *ret)
{
	const struct unwind_rule *r = bpf_map_lookup_elem(&unwind_rules, &rule);

	if (!r)
		return -1;
	*ret = *r;
	return 0;
}

static __always_inline int walk_read(void *to, u32 size, u64 from)
{
	return bpf_probe_read_user(to, size, (const void *)from);
}

static __always_inline struct walk_memo *walk_memo(u64 hash)
{
	u32 index = hash & (MEMO_ENTRIES - 1);

	return bpf_map_lookup_elem(&walk_memos, &index);
}

/* Finds the process's mappings. */
static __always_inline void stack_space(struct scratch *s)
{
	struct unwind_process_key key = { .start = s->rec.start, .tgid = s->rec.tgid };
	const struct unwind_process *p;
	const struct unwind_control *c;
	u32 zero = 0;

	s->walk.space.node = 0;
	if (!unwinding)
		return;
	p = bpf_map_lookup_elem(&unwind_processes, &key);
	if (!p) {
		const struct unwind_young *y = bpf_map_lookup_elem(&unwind_young, &key);

		if (y && y->parent.tgid)
			p = bpf_map_lookup_elem(&unwind_processes, &y->parent);
	}
	c = bpf_map_lookup_elem(&unwind_controls, &zero);
	if (!p || !c)
		return;
	walk_of(&s->walk, p, c->epoch);
}

/* The user side begins with the registers in s->regs. */
static __always_inline void stack_user_regs(struct scratch *s)
{
	s->walk.ip = s->regs[REGS_IP];
	s->walk.sp = s->regs[REGS_SP];
	s->walk.fp = s->regs[REGS_FP];
	s->walk.known = WALK_KNOWS_ALL;
	s->walk.word = REGS_IN_COMPAT(s->regs) ? 4 : 8;
	stack_space(s);
}

/*
 * The registers that a task which is in the kernel had in user space: false for kernel threads, for tasks that
 * have given up their memory (in exit and exec), for the kernel's workers in a user's process (vhost), whose registers
 * are zero, and when they cannot be read. Leaves all of them in s->regs.
 */
static __always_inline bool stack_read_user_regs(struct scratch *s, struct task_struct *task)
{
	u32 flags = BPF_CORE_READ(task, flags);
	struct mm_struct *mm;
	void *regs;

	if (flags & (PF_KTHREAD | PF_IO_WORKER))
		return false;
	mm = BPF_CORE_READ(task, mm);
	/* In the middle of an exec the old program is gone, and the new one is not there yet. */
	if (!mm || !BPF_CORE_READ(mm, start_code))
		return false;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) /* 5.15 */
		regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	else
		regs = BPF_CORE_READ(task, stack) + thread_size -
		       bpf_core_type_size(struct pt_regs);
	return !bpf_probe_read_kernel(s->regs, sizeof(s->regs), regs) && s->regs[REGS_SP];
}

/* The call that these registers entered the kernel with. */
static __always_inline u32 call_of_regs(const u64 *regs)
{
	u32 compat = REGS_IN_COMPAT(regs), nr = REGS_CALL(regs), x32 = 0;
	u32 op = REGS_CALL_ARG1(regs) & (CALL_FUTEX_TIMED - 1);

#if defined(__TARGET_ARCH_x86)
	x32 = !compat && nr & X32_BIT;
	nr &= ~X32_BIT;
#endif
	if (nr >= SYSCALL_NR_INVALID)
		return CALL_NONE;
	if (REGS_CALL_ARG3(regs))
		op |= CALL_FUTEX_TIMED;
	return SYSCALL_KEY(compat ? SYSCALL_ABI_COMPAT
			   : x32  ? SYSCALL_ABI_X32
				  : SYSCALL_ABI_NATIVE,
			   nr, op);
}

/* Takes the user side of the current task, which is in the kernel. */
static __always_inline void stack_user_regs_of_current(struct scratch *s, struct task_struct *task)
{
	if (stack_read_user_regs(s, task))
		stack_user_regs(s);
}

/* ---- begin and send ---------------------------------------------------------------------------------- */

static __always_inline void stack_begin(struct scratch *s, u32 w, enum source source, u32 tgid,
					u64 start)
{
	s->walk.hash = hash_seed ^ start;
	s->walk.check = ~hash_seed;
	s->walk.word = 0;
	s->rec.type = RECORD_STACK;
	s->rec.window = w;
	s->rec.id = STACK_ID_NONE;
	s->rec.mono_ns = bpf_ktime_get_ns();
	s->rec.start = start;
	s->rec.tgid = tgid;
	s->rec.nr_kernel = 0;
	s->rec.nr_user = 0;
	s->rec.nr_fp = 0;
	s->rec.walk_end = WALK_NONE;
	s->rec.source = source;
	s->rec.call = CALL_NONE;
}

/* bpf_get_stack() and bpf_get_task_stack() return bytes or an error. */
static __always_inline u32 kernel_frames(long bytes)
{
	return bytes > 0 ? (u32)bytes / 8 : 0;
}

/* The kernel's side joins the stack's hash; it comes before the user's. */
static __always_inline void stack_hash_kernel(struct scratch *s, u32 slot)
{
	hash_add(&s->walk, (u64)s->rec.tgid << 32 | s->rec.nr_kernel);
	hash_kernel(slot);
}

/*
 * Walks the user side if registers were given, and sends the stack unless this window has it already. Returns
 * its id, or STACK_ID_NONE when it could not be sent, counted in `a`.
 */
static __always_inline u64 stack_walk_and_send(struct scratch *s, u32 slot, struct account *a)
{
	struct seen_entry *e;
	u32 index, check, n;
	u64 id;

	walk_user(slot);
	hash_add(&s->walk, s->rec.walk_end);
	id = hash_finish(s->walk.hash) & hash_mask;
	if (id == STACK_ID_NONE)
		id = 1;
	s->rec.id = id;
	check = s->walk.check >> 32;

	index = id & seen_mask;
	e = bpf_map_lookup_elem(&seen, &index);
	if (!e) {
		a->lost[LOSS_OTHER]++;
		return STACK_ID_NONE;
	}
	if (e->id == id && e->window == s->rec.window && e->check == check)
		return id;
	n = s->rec.nr_kernel + s->rec.nr_user;
	asm volatile("" : "+r"(n));
	if (n > MAX_FRAMES)
		n = MAX_FRAMES;
	if (bpf_ringbuf_output(&ring, &s->rec, sizeof(s->rec) + n * 8, BPF_RB_NO_WAKEUP)) {
		a->lost[LOSS_STACK_RING_FULL]++;
		return STACK_ID_NONE;
	}
	e->id = id;
	e->check = check;
	e->window = s->rec.window;
	return id;
}

static __always_inline u64 stack_send(struct scratch *s, u32 slot, struct account *a)
{
	stack_hash_kernel(s, slot);
	return stack_walk_and_send(s, slot, a);
}

/* The user stack of the current task, which is about to return from a call: its id, or STACK_ID_NONE with the reason in `a`. */
static __always_inline u64 stack_of_caller(u32 w, enum source source, struct account *a,
					   struct task_struct *task, u32 tgid, u64 start)
{
	struct scratch *s;
	int slot;
	u64 id;

	slot = scratch_claim();
	s = slot >= 0 ? scratch_at(slot) : NULL;
	if (!s) {
		a->lost[LOSS_SCRATCH_BUSY]++;
		return STACK_ID_NONE;
	}
	stack_begin(s, w, source, tgid, start);
	stack_user_regs_of_current(s, task);
	id = stack_send(s, slot, a);
	scratch_release(s);
	return id;
}
