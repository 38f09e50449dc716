/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Maps, settings and accounting that all programs share.
 *
 * Window sets: each source counts in two preallocated hash maps, NAME_a and NAME_b. A program reads `window`
 * once, passes that value to everything it calls, and writes the set of its lowest bit. Maps are preallocated
 * because programs run with interrupts off, in interrupts and, with a PMU, in NMIs. Each source's maps are
 * written by programs of one kind only, so that an interrupt never meets its own bucket lock.
 *
 * Sizes here are placeholders: the daemon sets them before load.
 */
#pragma once

/* ---- settings: constants to the verifier, set before load -------------------------------------- */

const volatile u64 hash_seed = 0; /* random: nobody can prepare stacks that collide */
const volatile u64 hash_mask = ~0ULL; /* tests force collisions by clearing bits */
const volatile u64 user_ip_mask = ~0ULL; /* clears pointer authentication bits on arm64 */
const volatile bool unwinding =
	false; /* there are tables: the maps unwind_* are those of daemon/unwind */
const volatile u32 page_size = 4096;
const volatile u32 thread_size = 16384; /* of a kernel stack, where bpf_task_pt_regs is missing */
const volatile u32 seen_mask = 0; /* entries of `seen` - 1: a power of two */

/* ---- the window --------------------------------------------------------------------------------- */

/* The open window. Written by the daemon alone; it only grows. */
volatile u32 window = 0;

/* ---- counts -------------------------------------------------------------------------------------- */

#define COUNT_MAP(name, key_type, value_type)    \
	struct {                                 \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, 1024);       \
		__type(key, key_type);           \
		__type(value, value_type);       \
	} name SEC(".maps")

COUNT_MAP(on_cpu_a, struct on_cpu_key, struct on_cpu_value);
COUNT_MAP(on_cpu_b, struct on_cpu_key, struct on_cpu_value);
COUNT_MAP(off_cpu_a, struct off_cpu_key, struct off_cpu_value);
COUNT_MAP(off_cpu_b, struct off_cpu_key, struct off_cpu_value);
COUNT_MAP(syscalls_a, struct syscall_key, u64);
COUNT_MAP(syscalls_b, struct syscall_key, u64);
COUNT_MAP(callers_a, struct caller_key, u64);
COUNT_MAP(callers_b, struct caller_key, u64);
COUNT_MAP(futex_a, struct futex_key, struct futex_value);
COUNT_MAP(futex_b, struct futex_key, struct futex_value);
COUNT_MAP(futex_rest_a, struct futex_key, struct futex_value);
COUNT_MAP(futex_rest_b, struct futex_key, struct futex_value);
COUNT_MAP(locks_a, struct lock_key, struct lock_value);
COUNT_MAP(locks_b, struct lock_key, struct lock_value);

/* ---- records: stacks that are new in this window, last totals of threads ------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

/*
 * Which stacks were sent. Direct-mapped and written without locks, since NMIs write it too; two writers that
 * meet leave at worst an entry that matches nothing, and that stack travels again. It is a filter, not the
 * truth: user space has every stack in full and judges there whether two of them share an id.
 */
struct seen_entry {
	u64 id;
	u32 window;
	u32 check; /* a second hash of the same stack */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen_entry);
} seen SEC(".maps");

/* ---- accounting ----------------------------------------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * SOURCE_N);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Never NULL in practice; the verifier wants the caller to test it. */
static __always_inline struct account *account_of(u32 w, enum source source)
{
	u32 index = (w & 1) * SOURCE_N + source;

	return bpf_map_lookup_elem(&accounts, &index);
}

/*
 * Books a refused count map update: `r` is the helper's result. It must pass through an int: below 6.4 map
 * helpers leave the upper half of the register at 0, and -E2BIG would not compare equal.
 */
static __always_inline void account_refused(struct account *a, int r)
{
	if (r == -7 /* E2BIG */)
		a->lost[LOSS_COUNT_FULL]++;
	else
		a->lost[LOSS_COUNT_BUSY]++;
}

/* Adds to a u64 in a count map. Threads on several CPUs add to one entry. */
static __always_inline int count_add(void *map, const void *key, u64 n)
{
	u64 *v = bpf_map_lookup_elem(map, key);
	int r;

	if (!v) {
		r = bpf_map_update_elem(map, key, &n, BPF_NOEXIST);
		if (r != -17 /* EEXIST: another CPU was faster */)
			return r;
		v = bpf_map_lookup_elem(map, key);
		if (!v)
			return -16;
	}
	__sync_fetch_and_add(v, n);
	return 0;
}
