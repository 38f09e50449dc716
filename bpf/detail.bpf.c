// SPDX-License-Identifier: GPL-2.0
/*
 * System calls: how long they take and how many bytes they move, of the calls that begin in a span.
 *
 * The daemon draws spans at random, or one that never ends. A call counts when it begins in a span, whenever it ends:
 * long calls are as likely to be seen as short ones. The begin is compared with the span's own limits, so that it does
 * not matter when the program that stamps it is attached and detached.
 *
 * Where a CPU makes so many calls that reading the clock twice for each would be felt, each is measured with
 * probability 1/N and stands for N. N follows the calls before, never the one that is drawn for, so sums stay unbiased;
 * it is 1 when the last measured call is a tick of the clock ago.
 *
 * Stamps lie in an array, one word each: the begin, and which of the threads that share the slot it is. A thread that
 * finds its slot taken goes without, whatever its call will take; the stamp that is there stays. Stamps leave with the
 * call, with the thread, and follow it when an execve gives it the id of its leader.
 */
#pragma once

const volatile bool details_enabled = false;
const volatile u32 stamp_tag_bits = TID_BITS; /* less those by which a slot is chosen */
const volatile u64 stamp_base = 0; /* monotonic time of the load: keeps stamps short */
const volatile u64 sized_calls[SIZED_ABIS][SIZED_WORDS] = {};

/* Written by the daemon alone: the begin first, then the end. */
volatile struct time_span call_span = {};

COUNT_MAP(details_a, struct syscall_key, struct call_detail);
COUNT_MAP(details_b, struct syscall_key, struct call_detail);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} call_stamps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* one per window set */
	__type(key, u32);
	__type(value, struct detail_cache);
} detail_caches SEC(".maps");

/* Measured calls are this far apart at least, on average, on one CPU. */
#define PACE_NS 16384

struct call_pace {
	u64 last; /* when a call was measured */
	u64 tick; /* in jiffies */
	u64 random;
	u32 passed; /* calls since then */
	u32 shift; /* log2 of N */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct call_pace);
} call_paces SEC(".maps");

/* ---- stamps ---------------------------------------------------------------------------------------- */

/* Multiplied by an odd number, different tids stay different; neighbours do not share a cache line. */
static __always_inline volatile u64 *stamp_slot(u32 tid, u32 *ret_tag)
{
	u32 spread = (tid * 0x9e3779b1U) & ((1U << TID_BITS) - 1), slot = spread >> stamp_tag_bits;

	*ret_tag = spread & ((1U << stamp_tag_bits) - 1);
	return bpf_map_lookup_elem(&call_stamps, &slot);
}

static __always_inline bool stamp_is_of(u64 stamp, u32 tag)
{
	return stamp && (stamp & ((1U << stamp_tag_bits) - 1)) == tag;
}

/* The stamp of a thread, which is taken away; or 0. */
static __always_inline u64 stamp_take(u32 tid)
{
	u32 tag;
	volatile u64 *slot = stamp_slot(tid, &tag);
	u64 stamp = slot ? *slot : 0;

	if (!stamp_is_of(stamp, tag))
		return 0;
	*slot = 0;
	return stamp;
}

/*
 * Where returns are not seen between spans: the call began in this one. Else the stamp may be that of an earlier call,
 * which nobody took.
 */
static __always_inline bool stamp_is_of_span(u64 stamp)
{
	u32 bits = stamp_tag_bits + STAMP_SHIFT_BITS;

	return stamp >> bits >= ((call_span.begin - stamp_base) & (~0ULL >> bits));
}

/* N from how fast calls came since the last one that was measured. */
static __always_inline u32 pace_shift(const struct call_pace *p, u64 now)
{
	u64 elapsed = now - p->last, calls = p->passed + 1ULL;
	u32 shift = 0;

	if (elapsed >= calls * PACE_NS)
		return 0;
	for (u32 i = 1; i < 1U << STAMP_SHIFT_BITS; i++)
		if (elapsed << i <= calls * PACE_NS)
			shift = i;
	return shift;
}

/* Whether this call is to be measured. */
static __always_inline bool pace_draw(struct call_pace *p)
{
	p->random = p->random * 6364136223846793005ULL + 1442695040888963407ULL;
	if (p->tick != bpf_jiffies64())
		p->shift = 0;
	if (!(p->random >> 40 & ((1U << p->shift) - 1)))
		return true;
	p->passed++;
	return false;
}

static __always_inline void pace_measured(struct call_pace *p, u64 now)
{
	p->shift = pace_shift(p, now);
	p->random ^= now;
	p->passed = 0;
	p->last = now;
	p->tick = bpf_jiffies64();
}

static __always_inline void stamp_put(u32 tid, u64 now, u32 shift)
{
	struct account *a;
	u32 tag;
	volatile u64 *slot = stamp_slot(tid, &tag);
	u64 stamp = slot ? *slot : 0;

	if (!slot)
		return;
	if (!stamp || stamp_is_of(stamp, tag)) {
		*slot = ((now - stamp_base) << STAMP_SHIFT_BITS | shift) << stamp_tag_bits | tag;
		return;
	}
	a = account_of(window, SOURCE_SYSCALLS);
	if (a)
		a->lost[LOSS_CALL_UNTIMED] += 1ULL << shift;
}

/* A call begins. */
static __always_inline int call_begins(void)
{
	u32 zero = 0;
	struct call_pace *p = bpf_map_lookup_elem(&call_paces, &zero);
	u64 now;

	if (!p || !pace_draw(p))
		return 0;
	now = bpf_ktime_get_ns();
	if (now >= call_span.end || now < call_span.begin)
		return 0;
	stamp_put((u32)bpf_get_current_pid_tgid(), now, p->shift);
	pace_measured(p, now);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall_enter, struct pt_regs *regs, long id)
{
	return call_begins();
}

SEC("tp/raw_syscalls/sys_enter")
int syscall_enter_classic(void *ctx)
{
	return call_begins();
}

/* A thread that is not the first of its process becomes it. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(syscall_exec, struct task_struct *task, int old_pid)
{
	u32 old_tid = old_pid, tid = task->pid, tag;
	u64 stamp = old_tid == tid ? 0 : stamp_take(old_tid);
	volatile u64 *slot = stamp ? stamp_slot(tid, &tag) : NULL;

	if (slot && (!*slot || stamp_is_of(*slot, tag)))
		*slot = stamp >> stamp_tag_bits << stamp_tag_bits | tag;
	return 0;
}

/* ---- what a call took ------------------------------------------------------------------------------ */

static __always_inline u32 detail_bin(u64 v)
{
	u32 bin = significant_bits(v);

	return bin < DETAIL_BINS ? bin : DETAIL_BINS - 1;
}

/* Threads on several CPUs add to one entry. A maximum that another CPU overwrites is written again. */
static __always_inline int detail_merge(void *map, const struct syscall_key *key,
					const struct call_detail *d)
{
	struct call_detail *v = bpf_map_lookup_elem(map, key);
	int r;

	if (!v) {
		r = bpf_map_update_elem(map, key, d, BPF_NOEXIST);
		if (r != -17 /* EEXIST: another CPU was faster */)
			return r;
		v = bpf_map_lookup_elem(map, key);
		if (!v)
			return -16;
	}
	__sync_fetch_and_add(&v->calls, d->calls);
	__sync_fetch_and_add(&v->sum, d->sum);
	__sync_fetch_and_add(&v->measured, d->measured);
	for (int i = 0; i < 3 && *(volatile u64 *)&v->max < d->max; i++)
		*(volatile u64 *)&v->max = d->max;
	return 0;
}

static __noinline int detail_evict(u32 w, const struct detail_line *line)
{
	struct syscall_key key;
	struct call_detail value;
	struct account *a;
	int r;

	if (!line)
		return 0;
	key = line->key;
	value = line->value;
	r = w & 1 ? detail_merge(&details_b, &key, &value) : detail_merge(&details_a, &key, &value);
	a = r ? account_of(w, SOURCE_SYSCALLS) : NULL;
	if (a)
		a->lost[LOSS_CALL_UNTIMED] += value.calls;
	return 0;
}

static __always_inline void detail_add(u32 w, struct detail_cache *c, const struct caller *who,
				       u32 call, u32 shift, u64 v)
{
	u32 i = (who->tgid * 0x9e3779b1U + call * 0x85ebca6bU) >> (32 - DETAIL_LINES_BITS);
	struct detail_line *line = &c->lines[i & (DETAIL_LINES - 1)];

	if (line->key.call == call && line->key.tgid == who->tgid &&
	    line->key.start == who->start) {
		line->value.measured++;
		line->value.calls += 1ULL << shift;
		line->value.sum += v << shift;
		if (line->value.max < v)
			line->value.max = v;
		return;
	}
	if (line->value.calls)
		detail_evict(w, line);
	line->key.start = who->start;
	line->key.tgid = who->tgid;
	line->key.call = call;
	line->value.measured = 1;
	line->value.calls = 1ULL << shift;
	line->value.sum = v << shift;
	line->value.max = v;
}

static __always_inline bool call_is_sized(u32 call)
{
	u32 abi = SYSCALL_KEY_ABI(call), nr = SYSCALL_KEY_NR(call);

	if (abi >= SIZED_ABIS || nr >= SIZED_WORDS * 64)
		return false;
	return sized_calls[abi][nr / 64] >> (nr % 64) & 1;
}

/* A call with a stamp returns. `call` is its SYSCALL_KEY(). A function of its own to the verifier. */
__noinline int call_took(u32 w, u32 call, u64 ret, u64 stamp)
{
	u32 set = w & 1, bits = stamp_tag_bits + STAMP_SHIFT_BITS;
	u64 ns = ((bpf_ktime_get_ns() - stamp_base) - (stamp >> bits)) & (~0ULL >> bits);
	u32 shift = stamp >> stamp_tag_bits & ((1U << STAMP_SHIFT_BITS) - 1);
	struct detail_cache *c;
	struct caller who;
	s64 moved = ret;

	/* Verified for itself, where nobody calls it too. */
	if (!details_enabled)
		return 0;
	c = bpf_map_lookup_elem(&detail_caches, &set);
	if (!c)
		return 0;
	caller_current(&who);
	detail_add(w, c, &who, DETAIL_KEY(call, DETAIL_LATENCY, detail_bin(ns)), shift, ns);
	if (who.compat)
		moved = (s32)ret;
	if (moved >= 0 && call_is_sized(call))
		detail_add(w, c, &who, DETAIL_KEY(call, DETAIL_BYTES, detail_bin(moved)), shift,
			   moved);
	return 0;
}
