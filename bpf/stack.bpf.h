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
 *	stack_user_regs_of(s, task) or stack_user_regs(s, ip, sp, fp, compat) or neither
 *	id = stack_send(s, slot, a);
 *	scratch_release(s);
 *
 * The walker follows frame pointers. One step is a global subprogram with a scalar argument and its state in
 * the scratch: the verifier then checks it once, and the loop over 512 frames costs every kernel from 5.10 on
 * some 8,000 instructions; inlined, the same loop is refused beyond 48 frames before 6.x.
 */
#pragma once

#define SCRATCH_SLOTS 4
#define MAX_FRAMES (MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
#define KERNEL_STACK_BYTES (MAX_KERNEL_FRAMES * 8)

struct walk {
	u64 ip;
	u64 fp; /* of the next frame to read */
	u64 sp; /* frames lie at or above this */
	u64 hash;
	u64 check;
	u32 word; /* size of a saved register: 8, or 4 in a 32-bit process; 0: there is no user side */
	u32 pad;
};

struct scratch {
	u32 busy;
	u32 pad;
	struct walk walk;
	u64 regs[REGS_WORDS];
	/* Sent as it lies here: the user's frames follow the kernel's without a gap. */
	struct stack_record rec;
	u64 ips[MAX_FRAMES];
};
_Static_assert(sizeof(struct scratch) <= 32768, "per-CPU values are limited");

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

/* ---- identity --------------------------------------------------------------------------------------- */

static __always_inline void hash_add(struct walk *k, u64 v)
{
	u64 h = (k->hash ^ v) * 0x9e3779b97f4a7c15ULL;

	k->hash = h ^ h >> 32;
	h = (k->check + v) * 0xc2b2ae3d27d4eb4fULL;
	k->check = h << 31 | h >> 33;
}

static __always_inline u64 hash_finish(u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ^ h >> 33;
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

/* ---- the user's side -------------------------------------------------------------------------------- */

/* A code address that a user process can have; garbage ends the walk instead of making new stacks. */
static __always_inline bool user_ip_valid(u64 ip)
{
	return ip >= 4096 && ip < 1ULL << 56;
}

/* Appends one address to the record. 0, or -1 when it is full. */
static __always_inline int push_user_ip(struct scratch *s, u64 ip)
{
	u32 user = s->rec.nr_user;
	u32 i = s->rec.nr_kernel + user;

	if (user >= MAX_USER_FRAMES)
		return -1;
	/* The verifier must see the bound on the very register that indexes. */
	asm volatile("" : "+r"(i));
	if (i >= MAX_FRAMES)
		return -1;
	s->ips[i] = ip;
	s->rec.nr_user = user + 1;
	hash_add(&s->walk, ip);
	return 0;
}

/* Reads one frame and steps to its caller. 1 when the walk is over; rec.walk_end says why. */
__noinline int walk_step(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	u64 frame[2] = {}, fp, ip;
	u32 word, frame32[2];

	if (!s)
		return 1;
	fp = s->walk.fp;
	word = s->walk.word;
	s->rec.walk_end = WALK_COMPLETE;
	if (!fp)
		return 1;
	s->rec.walk_end = WALK_MISALIGNED;
	if (fp & (word - 1))
		return 1;
	s->rec.walk_end = WALK_NOT_ASCENDING;
	if (fp < s->walk.sp)
		return 1;
	s->rec.walk_end = WALK_READ_FAILED;
	if (word == 8) {
		if (bpf_probe_read_user(frame, sizeof(frame), (void *)fp))
			return 1;
	} else {
		if (bpf_probe_read_user(frame32, sizeof(frame32), (void *)fp))
			return 1;
		frame[0] = frame32[0];
		frame[1] = frame32[1];
	}
	ip = frame[1] & user_ip_mask;
	if (!ip) {
		s->rec.walk_end = WALK_COMPLETE;
		return 1;
	}
	if (!user_ip_valid(ip))
		return 1;
	s->rec.walk_end = WALK_LIMIT;
	if (push_user_ip(s, ip))
		return 1;
	s->walk.sp = fp + 2 * word;
	s->walk.fp = frame[0];
	return 0;
}

__noinline int walk_user(u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s || !s->walk.word)
		return 0;
	s->rec.walk_end = WALK_NO_REGS;
	if (!user_ip_valid(s->walk.ip) || push_user_ip(s, s->walk.ip))
		return 0;
	for (int i = 0; i < MAX_USER_FRAMES; i++) {
		if (walk_step(slot))
			return 0;
	}
	return 0;
}

static __always_inline void stack_user_regs(struct scratch *s, u64 ip, u64 sp, u64 fp, bool compat)
{
	s->walk.ip = ip;
	s->walk.sp = sp;
	s->walk.fp = fp;
	s->walk.word = compat ? 4 : 8;
}

/*
 * The registers that a task which is in the kernel had in user space: false for kernel threads, for tasks that
 * have given up their memory, and when they cannot be read. Leaves all of them in s->regs.
 */
static __always_inline bool stack_read_user_regs(struct scratch *s, struct task_struct *task)
{
	u32 flags = BPF_CORE_READ(task, flags);
	void *regs;

	if (flags & (PF_KTHREAD | PF_IO_WORKER) || !BPF_CORE_READ(task, mm))
		return false;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) /* 5.15 */
		regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	else
		regs = BPF_CORE_READ(task, stack) + thread_size -
		       bpf_core_type_size(struct pt_regs);
	return !bpf_probe_read_kernel(s->regs, sizeof(s->regs), regs);
}

/* Takes the user side of the current task, which is in the kernel. */
static __always_inline void stack_user_regs_of_current(struct scratch *s, struct task_struct *task)
{
	if (!stack_read_user_regs(s, task))
		return;
	stack_user_regs(s, s->regs[REGS_IP], s->regs[REGS_SP], s->regs[REGS_FP],
			REGS_IN_COMPAT(s->regs));
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
	s->rec.walk_end = WALK_NONE;
	s->rec.source = source;
}

/* bpf_get_stack() and bpf_get_task_stack() return bytes or an error. */
static __always_inline u32 kernel_frames(long bytes)
{
	return bytes > 0 ? (u32)bytes / 8 : 0;
}

/*
 * Walks the user side if registers were given, and sends the stack unless this window has it already. Returns
 * its id, or STACK_ID_NONE when it could not be sent, counted in `a`.
 */
static __always_inline u64 stack_send(struct scratch *s, u32 slot, struct account *a)
{
	struct seen_entry *e;
	u32 index, check, n;
	u64 id;

	hash_add(&s->walk, (u64)s->rec.tgid << 32 | s->rec.nr_kernel);
	hash_kernel(slot);
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
