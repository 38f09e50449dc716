/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacks of waits are reused: a thread that waits where it waited before has the same stack, and is not walked again.
 *
 * The kernel's side is taken anew each time and is part of what is compared, as are the thread's user registers: ip, sp
 * and fp. What they do not tell is who called. So of the words next to the stack pointer those are compared as well in
 * which the walk found return addresses. Equal registers give the same first frame, whose return address lies in the
 * same place; when that is equal too, so is the next frame, and so on: the stack is proven to be the same. One whose
 * outermost return address lies beyond REUSE_WORDS words is walked each time.
 *
 * The table is direct-mapped, two places to an entry, and written without locks: an entry that two writers mixed does
 * not add up and is none.
 */
#pragma once

#define REUSE_WORDS 64

struct reuse_entry {
	u64 place; /* hash of the kernel's frames, the process, and the user's registers */
	u64 mask; /* words that hold return addresses */
	u64 words; /* hash of them */
	u64 id; /* of the stack */
	u64 window; /* in which it was walked */
	u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reuse_entry);
} reuse_entries SEC(".maps");

/* The words at the stack pointer, and what is found out about them. */
struct reuse_words {
	u64 word[REUSE_WORDS];
	u64 mask; /* those that hold return addresses */
	u64 hash; /* of those; never 0 */
	u64 latest[3]; /* return addresses that were found */
	u32 next; /* the frame whose return address is looked for */
	u32 pad;
};

/* By slot of the scratch, whose owner it belongs to. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_SLOTS);
	__type(key, u32);
	__type(value, struct reuse_words);
} reuse_scratch SEC(".maps");

const volatile u32 reuse_mask = 0; /* entries - 1: a power of two. 0: stacks are not reused */

static __always_inline u64 reuse_sum(const struct reuse_entry *e)
{
	return hash_finish(e->place ^ e->mask) ^ e->words ^ hash_finish(e->id ^ e->window << 32);
}

/*
 * These are subprograms of their own, and branch as little as can be: the verifier would follow every combination of
 * words.
 */
__noinline int reuse_hash(u32 slot)
{
	struct reuse_words *w = bpf_map_lookup_elem(&reuse_scratch, &slot);
	u64 h, mask;

	if (!w)
		return 0;
	mask = w->mask;
	h = hash_seed ^ mask;
	for (u32 i = 0; i < REUSE_WORDS; i++) {
		h ^= w->word[i] & user_ip_mask & (0 - (mask & 1));
		h *= 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
		mask >>= 1;
	}
	w->hash = hash_finish(h) | 1;
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

	return hash_finish(h ^ hash_finish(s->walk.ip ^ s->walk.fp << 8));
}

static __always_inline bool reuse_read(const struct scratch *s, struct reuse_words *w)
{
	return !bpf_probe_read_user(w->word, sizeof(w->word), (const void *)s->walk.sp);
}

/* The id of the stack that begins with these registers, if it is known; else STACK_ID_NONE. */
static __always_inline u64 reuse_find(struct scratch *s, u32 slot, u64 place)
{
	struct reuse_words *w = bpf_map_lookup_elem(&reuse_scratch, &slot);

	if (!w)
		return STACK_ID_NONE;
	for (u32 way = 0; way < 2; way++) {
		struct reuse_entry *at = reuse_at(place, way), e;

		if (!at)
			break;
		e = *at;
		if (e.place != place || reuse_sum(&e) != e.sum ||
		    s->rec.window - (u32)e.window > REUSE_WINDOWS)
			continue;
		if (!reuse_read(s, w))
			break;
		w->mask = e.mask;
		reuse_hash(slot);
		return w->hash == e.words ? e.id : STACK_ID_NONE;
	}
	return STACK_ID_NONE;
}

/*
 * Marks a word that holds a walked return address. Both ascend; a copy of an address that was left over below its own
 * place is marked as well and does no harm, so the latest few are looked for again.
 */
__noinline int reuse_mark_word(u32 slot, u32 i)
{
	struct reuse_words *w = bpf_map_lookup_elem(&reuse_scratch, &slot);
	struct scratch *s = scratch_at(slot);
	u64 word;
	u32 at;

	if (!s || !w || i >= REUSE_WORDS)
		return 0;
	word = w->word[i] & user_ip_mask;
	at = w->next;
	asm volatile("" : "+r"(at));
	if (!word)
		return 0;
	if (at < MAX_FRAMES && at < (u32)s->rec.nr_kernel + s->rec.nr_user && word == s->ips[at]) {
		w->latest[2] = w->latest[1];
		w->latest[1] = w->latest[0];
		w->latest[0] = word;
		w->next = at + 1;
	}
	if (word == w->latest[0] || word == w->latest[1] || word == w->latest[2])
		w->mask |= 1ULL << i;
	return 0;
}

/* What a later walk would find anew, or better. */
static __always_inline bool reuse_worth(const struct scratch *s)
{
	switch (s->rec.walk_end) {
	case WALK_NO_PROCESS:
	case WALK_NO_MAPPING:
	case WALK_NO_TABLE:
		return !unwinding;
	default:
		return true;
	}
}

/* The registers that the walk began with are gone: `sp` is the stack pointer. */
static __always_inline void reuse_keep(struct scratch *s, u32 slot, u64 place, u64 sp, u64 id)
{
	struct reuse_words *w = bpf_map_lookup_elem(&reuse_scratch, &slot);
	struct reuse_entry e = { .place = place, .id = id, .window = s->rec.window }, *at, *other;

	if (!w || !reuse_worth(s) ||
	    bpf_probe_read_user(w->word, sizeof(w->word), (const void *)sp))
		return;
	w->mask = w->latest[0] = w->latest[1] = w->latest[2] = 0;
	w->next = s->rec.nr_kernel + 1;
	for (u32 i = 0; i < REUSE_WORDS; i++)
		reuse_mark_word(slot, i);
	/*
	 * Only what is compared in full is known again: no caller lies beyond these words, in a register, or was
	 * interrupted by a signal, whose address is kept as one more than the word.
	 */
	if (w->next < (u32)s->rec.nr_kernel + s->rec.nr_user)
		return;
	reuse_hash(slot);
	e.mask = w->mask;
	e.words = w->hash;
	e.sum = reuse_sum(&e);
	at = reuse_at(place, 0);
	other = reuse_at(place, 1);
	if (!at || !other)
		return;
	/* The older one goes. */
	if (other->place == place || (at->place != place && other->window < at->window))
		at = other;
	*at = e;
}
