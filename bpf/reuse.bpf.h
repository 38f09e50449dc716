/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacks of waits are reused: a thread that waits where it waited before has the same stack, and is not walked again.
 *
 * The kernel's side is taken anew each time and is part of what is compared, as are the user registers that a walk
 * begins with. The rest that a walk goes by are words of the stack, return addresses and saved frame pointers: it keeps
 * their places (walk.trace). When all of them hold what they held, a walk would read the same at each step and end in
 * the same stack: that is proven, not guessed. A walk that went by more than that is not reused: through the frame of a
 * signal, by other registers, by what run-time code does next, by memory that could not be read, over frames of more
 * than 2 KiB, by more than TRACE_WORDS words.
 *
 * The table is direct-mapped, two places to an entry, which also serve two ways to the same wait. It is written without
 * locks: the hash of the words covers their places, and the sum covers the rest, so that an entry that two writers mixed
 * is none.
 */
#pragma once

struct reuse_entry {
	u64 place; /* hash of the kernel's frames, the process, and the user's registers */
	u64 words; /* hash of the words and their places */
	u64 id; /* of the stack */
	u64 sum;
	u32 window; /* in which it was walked */
	u32 n; /* words */
	u64 trace[TRACE_WORDS / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reuse_entry);
} reuse_entries SEC(".maps");

const volatile u32 reuse_mask = 0; /* entries - 1: a power of two. 0: stacks are not reused */

static __always_inline u64 reuse_sum(const struct reuse_entry *e)
{
	return hash_finish(e->place ^ (u64)e->n << 32 ^ e->window) ^ e->words ^ hash_finish(e->id);
}

/* Hashes the words at the places in walk.trace into walk.cfa. A subprogram: the verifier follows its turns once. */
__noinline int reuse_hash(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	u64 h, at, word;
	u32 n;

	if (!s)
		return -1;
	n = s->walk.trace_n;
	h = hash_seed ^ n;
	at = s->walk.from;
	for (u32 i = 0; i < TRACE_WORDS; i++) {
		if (i >= n)
			break;
		at += (u64)s->walk.trace[i] * 8;
		if (bpf_probe_read_user(&word, sizeof(word), (const void *)at))
			return -1;
		h = (h ^ word) * 0x9e3779b97f4a7c15ULL + s->walk.trace[i];
		h ^= h >> 29;
	}
	s->walk.cfa = hash_finish(h);
	return 0;
}

static __always_inline struct reuse_entry *reuse_at(u64 place, u32 way)
{
	u32 index = (place ^ way) & reuse_mask;

	return bpf_map_lookup_elem(&reuse_entries, &index);
}

/* The stack's hash covers the kernel's side; the user's registers are those that the walk begins with. */
static __always_inline u64 reuse_place(const struct scratch *s)
{
	u64 h = s->walk.hash ^ hash_finish(s->walk.sp);

#ifdef REGS_LR
	h ^= hash_finish(s->regs[REGS_LR] + 1);
#endif
	return hash_finish(h ^ hash_finish(s->walk.ip ^ s->walk.fp << 8));
}

/* The id of the stack that begins with these registers, if it is known; else STACK_ID_NONE. */
static __always_inline u64 reuse_find(struct scratch *s, u32 slot, u64 place)
{
	for (u32 way = 0; way < 2; way++) {
		struct reuse_entry *at = reuse_at(place, way);
		u64 id, words;

		if (!at)
			break;
		id = at->id;
		words = at->words;
		if (at->place != place || reuse_sum(at) != at->sum ||
		    s->rec.window - at->window > REUSE_WINDOWS || at->n > TRACE_WORDS)
			continue;
		s->walk.from = s->walk.sp;
		s->walk.trace_n = at->n;
		__builtin_memcpy(s->walk.trace, at->trace, TRACE_WORDS);
		if (!reuse_hash(slot) && s->walk.cfa == words)
			return id;
	}
	return STACK_ID_NONE;
}

/* What a later walk would find anew, or better. */
static __always_inline bool reuse_worth(const struct scratch *s)
{
	switch (s->rec.walk_end) {
	case WALK_NO_PROCESS:
	case WALK_NO_MAPPING:
	case WALK_NO_TABLE:
		return !unwinding;
	case WALK_READ_FAILED: /* it may be readable then */
		return false;
	default:
		return true;
	}
}

/* Keeps the stack that was just walked. */
static __always_inline void reuse_keep(struct scratch *s, u32 slot, u64 place, u64 id)
{
	struct reuse_entry *at, *other;

	if (s->walk.trace_n > TRACE_WORDS || !reuse_worth(s) || reuse_hash(slot))
		return;
	at = reuse_at(place, 0);
	other = reuse_at(place, 1);
	if (!at || !other)
		return;
	/* The older one goes; of two alike any: one place may be reached on two ways in turn. */
	if (at->window == other->window ? s->walk.cfa & 1 : other->window < at->window)
		at = other;
	at->place = place;
	at->words = s->walk.cfa;
	at->id = id;
	at->window = s->rec.window;
	at->n = s->walk.trace_n;
	__builtin_memcpy(at->trace, s->walk.trace, TRACE_WORDS);
	at->sum = reuse_sum(at);
}
