/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk of a user stack by unwind tables (unwind.h), as it runs in the kernel and, compiled for the host, in the
 * daemon and in tests. Who includes it says first where things are:
 *
 *	struct scratch *scratch_at(u32 slot)		the walk's memory
 *	const void *walk_node(u32 node)			a node of the tables, or NULL
 *	int walk_rule(u32 rule, struct unwind_rule *)	0, or -1
 *	int walk_read(void *to, u32 size, u64 from)	user memory: 0, or an error
 *	struct walk_memo *walk_memo(u64 hash)		a cache of rules by address, or NULL
 *	int walk_young(u32 slot)			finds a mapping that the daemon does not know of yet, into walk.at: 0,
 *							or 1
 *	WALK_FN, WALK_CONST, WALK_UNROLL		how its parts and constants are defined, and loops of few turns
 *	unwinding, user_ip_mask				whether there are tables; the bits of an address
 *
 * One frame: the rule for its address is found (memo, or mapping, index, leaf), its address is appended, and the
 * rule gives the registers of its caller. Where the code has no row, the frame pointer is followed instead, for this
 * frame alone; not where code that was made at run time shows how it returns.
 *
 * What is looked up for a caller is the byte before its return address: a call that never returns may be the last
 * instruction of its function. Not so for the leaf, nor for what a signal interrupted: there the address is that of
 * an instruction that has not run yet. The latter is recorded with 1 added, and so is the return from the handler, which
 * nobody called, so that one rule serves all readers: of all addresses but the leaf's the byte before.
 *
 * Parts are subprograms with a scalar argument, which the verifier checks once each: inlined into the loop over 512
 * frames they would be refused before 6.x. Nodes are read by byte offsets with a mask, which it can follow.
 */
#pragma once

#include "hash.h"
#include "regs.h"

#define MAX_FRAMES (MAX_KERNEL_FRAMES + MAX_USER_FRAMES)
#define WALK_WORDS 34
#define TRACE_WORDS 56
#define TRACE_NONE 255

/* A rule that was found for an address. Torn writes (an interrupt between the two words) match nothing. */
struct walk_memo {
	u64 check; /* hash of what it is for, ^ rule */
	u64 rule;
};

/* Which of scratch.regs are this frame's. */
enum walk_known { WALK_KNOWS_NONE = 0, WALK_KNOWS_BASE, WALK_KNOWS_ALL };

struct walk {
	u64 ip;
	u64 fp;
	u64 sp; /* frames lie at or above this */
	u64 cfa;
	u64 hash;
	u64 check;
	u64 memo; /* what rules are remembered for, beside the address: walk_of() */
	u32 word; /* size of a saved register: 8, or 4 in a 32-bit process; 0: there is no user side */
	u32 rule;
	u8 exact; /* ip is of an instruction that has not run, not a return address */
	u8 known; /* enum walk_known */
	u8 doubtful; /* went by frame pointers where a table should have been: enum walk_end says why */
	u8 noted; /* `at` is from walk_young(): it holds for this moment */
	struct unwind_process space; /* node 0: its mappings are not known */
	struct unwind_mapping at; /* of the last address that was looked up in mappings */
	u64 words[WALK_WORDS]; /* read from the stack */
	/* Where it read what it went by: words from the one before, ascending; the first one from `from`. */
	u8 trace[TRACE_WORDS];
	u32 trace_n; /* TRACE_NONE: it went by more than these words and its first ip, sp, fp (and lr) */
	u32 pad;
	u64 from; /* sp when it began */
	u64 traced; /* the latest of these places */
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

static __always_inline struct scratch *scratch_at(u32 slot);
static __always_inline const void *walk_node(u32 node);
static __always_inline int walk_rule(u32 rule, struct unwind_rule *ret);
static __always_inline int walk_read(void *to, u32 size, u64 from);
static __always_inline struct walk_memo *walk_memo(u64 hash);
WALK_FN int walk_young(u32 slot);

/* ---- identity --------------------------------------------------------------------------------------- */

static __always_inline void hash_add(struct walk *k, u64 v)
{
	u64 h = (k->hash ^ v) * 0x9e3779b97f4a7c15ULL;

	k->hash = h ^ h >> 32;
	h = (k->check + v) * 0xc2b2ae3d27d4eb4fULL;
	k->check = h << 31 | h >> 33;
}

/*
 * The mappings in which a walk looks. A rule is remembered for them, until rules may be used anew: both are in one hash,
 * for as parts of one number, beside the address, they would meet others' sooner or later.
 */
static __always_inline void walk_of(struct walk *w, const struct unwind_process *space, u32 epoch)
{
	w->space = *space;
	w->memo = hash_finish((u64)epoch << 32 | space->space);
}

/* ---- frames ------------------------------------------------------------------------------------------ */

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

/* ---- finding the rule --------------------------------------------------------------------------------- */

#define NODE_HEAD 64

/* Reads at an offset that the verifier takes for any below the mask: nodes end behind it. */
static __always_inline u64 node_u64(const void *node, u32 at)
{
	asm volatile("" : "+r"(at));
	return *(const u64 *)((const char *)node + NODE_HEAD + (at & 1016));
}

static __always_inline u32 node_u32(const void *node, u32 at)
{
	asm volatile("" : "+r"(at));
	return *(const u32 *)((const char *)node + NODE_HEAD + (at & 1020));
}

static __always_inline u16 node_u16(const void *node, u32 at)
{
	asm volatile("" : "+r"(at));
	return *(const u16 *)((const char *)node + NODE_HEAD + (at & 1022));
}

/* The last of n entries of `size` bytes that begins at or below the address; the first one when none does. */
static __always_inline u32 node_find(const void *node, u64 address, u32 n, u32 half, u32 size)
{
	u32 i = 0;

	WALK_UNROLL
	for (u32 step = half; step; step >>= 1) {
		u32 t = i + step;

		if (t < n && node_u64(node, t * size) <= address)
			i = t;
	}
	return i;
}

static __always_inline u64 lookup_pc(const struct walk *w)
{
	return w->ip - !w->exact;
}

/* Finds the executable mapping of the address: 0, or 1 when there is none. */
WALK_FN int walk_mapping(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	const void *node;
	u64 pc;
	u32 i;

	if (!s)
		return 1;
	pc = lookup_pc(&s->walk);
	if (pc - s->walk.at.start < s->walk.at.end - s->walk.at.start)
		return 0;
	s->walk.at.end = s->walk.at.start = 0;
	s->walk.noted = 0;
	node = walk_node(s->walk.space.node);
	if (node && s->walk.space.deep) {
		i = node_find(node, pc, *(const u32 *)node, UNWIND_LISTS / 2, 16);
		node = walk_node(node_u32(node, i * 16 + 8));
	}
	if (!node)
		return 1;
	i = node_find(node, pc, *(const u32 *)node, UNWIND_LIST / 2, sizeof(struct unwind_mapping));
	i *= sizeof(struct unwind_mapping);
	s->walk.at.start = node_u64(node, i);
	s->walk.at.end = node_u64(node, i + 8);
	s->walk.at.delta = node_u64(node, i + 16);
	s->walk.at.root = node_u32(node, i + 24);
	s->walk.at.lack = node_u32(node, i + 28);
	return pc - s->walk.at.start >= s->walk.at.end - s->walk.at.start;
}

/* The row of a table pc: its rule. `leaf` is that of the page. */
static __always_inline u32 leaf_rule(const void *leaf, u32 pc)
{
	const u16 *separator = (const u16 *)((const char *)leaf + 16);
	u32 x, g = 0, i = 0;

	x = pc - *(const u32 *)leaf;
	/* Rows end before; what lies behind has the rule of the last one. */
	if (x > 0xffff)
		x = 0xffff;
	WALK_UNROLL
	for (u32 step = 8; step; step >>= 1) {
		u32 t = g + step;

		asm volatile("" : "+r"(t));
		if (separator[t & 15] <= x)
			g = t & 15;
	}
	g *= sizeof(struct unwind_group);
	WALK_UNROLL
	for (u32 step = 8; step; step >>= 1)
		if (node_u16(leaf, g + (i + step) * 2) <= x)
			i += step;
	return node_u16(leaf, g + 32 + i * 2);
}

/* The rule in the mapping's table: 0 for code without a row. */
WALK_FN int walk_row(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	const void *node;
	u32 pc, root;

	if (!s)
		return 0;
	pc = lookup_pc(&s->walk) - s->walk.at.delta;
	root = s->walk.at.root;
	node = walk_node(root & ~UNWIND_ROOT_DEEP);
	if (node && root & UNWIND_ROOT_DEEP)
		node = walk_node(
			node_u32(node, (pc >> (UNWIND_PAGE_BITS + UNWIND_INDEX_BITS)) * 4));
	if (!node)
		return 0;
	node = walk_node(node_u32(node, (pc >> UNWIND_PAGE_BITS) * 4));
	for (int i = 0; i < UNWIND_LEAF_PAGES; i++) {
		u32 next;

		if (!node)
			return 0;
		next = *(const u32 *)((const char *)node + 4);
		if (!next || pc < *(const u32 *)((const char *)node + 8))
			return leaf_rule(node, pc);
		node = walk_node(next);
	}
	return 0;
}

#define WALK_LACKS 1 /* + enum unwind_lack: the mapping has no table */
#define WALK_NOWHERE -1 /* no executable mapping covers the address */
#define WALK_UNKNOWN -2 /* nobody knows */

/* Finds the rule of the frame's address in walk.rule: 0, or one of the above. */
static __always_inline int walk_find(u32 slot, struct scratch *s)
{
	struct walk_memo *m = NULL;
	u64 key = 0;

	s->walk.rule = 0;
	if (s->walk.space.node) {
		key = hash_finish(lookup_pc(&s->walk) ^ s->walk.memo);
		m = walk_memo(key);
	}
	if (m) {
		u64 rule = m->rule;

		if ((m->check ^ rule) == key && rule < UNWIND_RULES) {
			s->walk.rule = rule;
			return 0;
		}
	}
	if (walk_mapping(slot)) {
		if (walk_young(slot))
			return s->walk.space.node ? WALK_NOWHERE : WALK_UNKNOWN;
		s->walk.noted = 1;
	}
	if (!s->walk.at.root)
		return WALK_LACKS + s->walk.at.lack;
	s->walk.rule = walk_row(slot);
	if (m && !s->walk.noted) {
		m->rule = s->walk.rule;
		m->check = key ^ s->walk.rule;
	}
	return 0;
}

/* ---- following it -------------------------------------------------------------------------------------- */

static __always_inline void walk_trace(struct scratch *s, u64 at)
{
	u64 words = (at - s->walk.traced) >> 3;
	u32 n = s->walk.trace_n;

	s->walk.trace_n = TRACE_NONE;
	if (at & 7 || words > 255 || n >= TRACE_WORDS)
		return;
	s->walk.trace[n] = words;
	s->walk.traced = at;
	s->walk.trace_n = n + 1;
}

static __always_inline void walk_untraced(struct scratch *s)
{
	s->walk.trace_n = TRACE_NONE;
}

/* The caller's registers are there. 1 when the walk is over. */
static __always_inline int walk_arrive(struct scratch *s, u64 ip, u64 sp, u64 fp)
{
	ip &= user_ip_mask;
	s->rec.walk_end = WALK_COMPLETE;
	if (!ip)
		return 1;
	s->rec.walk_end = WALK_NO_MAPPING;
	if (!user_ip_valid(ip))
		return 1;
	s->walk.ip = ip;
	s->walk.sp = sp;
	s->walk.fp = fp;
	s->walk.exact = 0;
	return 0;
}

/* By the frame pointer, in code without a row. `otherwise` tells why there was none. */
static __always_inline int walk_frame_pointer(struct scratch *s, u8 otherwise, bool leaf)
{
	/* Not on the stack, of which none is left here. */
	u64 *frame = s->walk.words, fp = s->walk.fp;
	u32 word = s->walk.word;

	s->rec.walk_end = otherwise;
	s->rec.nr_fp++;
	s->walk.known = WALK_KNOWS_NONE;
	if (!fp) {
		/* The outermost frame of code that keeps frame pointers: entry points begin with 0. */
		if (!leaf && !s->walk.doubtful)
			s->rec.walk_end = WALK_COMPLETE;
		return 1;
	}
	if (fp & (word - 1) || fp < s->walk.sp)
		return 1;
	if (word == 8 ? walk_read(frame, 16, fp) : walk_read(frame, 8, fp)) {
		walk_untraced(s);
		return 1;
	}
	if (word != 8) {
		frame[1] = frame[0] >> 32;
		frame[0] = (u32)frame[0];
	}
	walk_trace(s, fp);
	walk_trace(s, fp + word);
	if (!frame[1]) {
		if (!s->walk.doubtful)
			s->rec.walk_end = WALK_COMPLETE;
		return 1;
	}
	return walk_arrive(s, frame[1], fp + 2 * word, frame[0]);
}

/* What a signal interrupted: all registers are in the frame that the kernel made for the handler. */
static __always_inline int walk_signal(struct scratch *s)
{
	u32 last = s->rec.nr_kernel + s->rec.nr_user - 1;

	asm volatile("" : "+r"(last));
	walk_untraced(s);
	if (!s->walk.exact && last < MAX_FRAMES)
		s->ips[last]++;
	if (walk_read(s->walk.words, SIGNAL_WORDS * 8, s->walk.sp + SIGNAL_REGS)) {
		s->rec.walk_end = WALK_READ_FAILED;
		return 1;
	}
#ifdef SIGNAL_ORDER
	static const u8 order[SIGNAL_WORDS] = SIGNAL_ORDER;

	WALK_UNROLL
	for (int i = 0; i < SIGNAL_WORDS; i++)
		s->regs[order[i]] = s->walk.words[i];
#else
	WALK_UNROLL
	for (int i = 0; i < SIGNAL_WORDS; i++)
		s->regs[i] = s->walk.words[i];
#endif
	if (walk_arrive(s, s->regs[REGS_IP], s->regs[REGS_SP], s->regs[REGS_FP]))
		return 1;
	s->walk.exact = 1;
	s->walk.known = WALK_KNOWS_ALL;
	return 0;
}

#ifdef REGS_OF_DWARF_TABLE
WALK_CONST u8 regs_of_dwarf[16] = REGS_OF_DWARF_TABLE;
#endif

/* A register of the frame by DWARF's number, where it is known. */
static __always_inline int walk_register(struct scratch *s, u32 number, u64 *ret)
{
	u32 word;

	walk_untraced(s);
#ifdef REGS_BASE
	if (s->walk.known == WALK_KNOWS_BASE && number == DWARF_BASE) {
		*ret = s->regs[REGS_BASE];
		return 0;
	}
#endif
	if (s->walk.known != WALK_KNOWS_ALL)
		return -1;
#ifdef REGS_OF_DWARF_TABLE
	if (number > 15)
		return -1;
	asm volatile("" : "+r"(number));
	word = regs_of_dwarf[number & 15];
#else
	word = number;
#endif
	asm volatile("" : "+r"(word));
	if (word >= REGS_WORDS)
		return -1;
	*ret = s->regs[word];
	return 0;
}

/* The caller's stack pointer at the call into walk.cfa: 0, or why not (enum walk_end). */
static __always_inline int walk_cfa(struct scratch *s, const struct unwind_rule *rule)
{
	u64 at = s->walk.sp + rule->cfa_off, r9 = 0;

	switch (rule->cfa) {
	case UNWIND_SP:
		s->walk.cfa = at;
		return 0;
	case UNWIND_FP:
		s->walk.cfa = s->walk.fp + rule->cfa_off;
		return 0;
	case UNWIND_PLT:
		s->walk.cfa = s->walk.sp + 8 + ((s32)(s->walk.ip & 15) >= rule->cfa_off ? 8 : 0);
		return 0;
	case UNWIND_REG:
		if (walk_register(s, rule->cfa_add, &at))
			return WALK_UNSUPPORTED;
		s->walk.cfa = at + rule->cfa_off;
		return 0;
#ifdef REGS_R9
	case UNWIND_SP_R9:
		if (s->walk.known != WALK_KNOWS_ALL)
			return WALK_UNSUPPORTED;
		r9 = s->regs[REGS_R9] * 8;
		walk_untraced(s);
		break;
#endif
	case UNWIND_SP_DEREF:
		break;
	case UNWIND_FP_DEREF:
		at = s->walk.fp + rule->cfa_off;
		break;
	default:
		return WALK_UNSUPPORTED;
	}
	walk_trace(s, at + r9);
	if (walk_read(&at, sizeof(at), at + r9))
		return WALK_READ_FAILED;
	s->walk.cfa = at + rule->cfa_add;
	return 0;
}

/* The return address, where it is not among the words that were read: 0, or why not. */
static __always_inline int walk_return_address(struct scratch *s, const struct unwind_rule *rule,
					       u64 *ret)
{
	u64 at = s->walk.cfa + rule->ra_off;

	switch (rule->ra) {
	case UNWIND_BESIDE_FP:
		at += rule->fp_off;
		break;
	case UNWIND_AT_CFA:
		break;
	case UNWIND_IN_REG:
		return walk_register(s, rule->ra_off, ret) ? WALK_UNSUPPORTED : 0;
#ifdef REGS_LR
	case UNWIND_SAME:
		*ret = s->regs[REGS_LR];
		return s->walk.known == WALK_KNOWS_ALL ? 0 : WALK_UNSUPPORTED;
#endif
	default:
		return WALK_UNSUPPORTED;
	}
	walk_trace(s, at);
	return walk_read(ret, sizeof(*ret), at) ? WALK_READ_FAILED : 0;
}

/* The frame pointer, likewise. */
static __always_inline int walk_saved_fp(struct scratch *s, const struct unwind_rule *rule,
					 u64 *ret)
{
	u64 at = rule->fp_off;

	switch (rule->fp) {
	case UNWIND_SAME:
		*ret = s->walk.fp;
		return 0;
	case UNWIND_AT_CFA:
		at += s->walk.cfa;
		break;
	case UNWIND_AT_FP:
		at += s->walk.fp;
		break;
	default:
		*ret = 0;
		return 0;
	}
	walk_trace(s, at);
	return walk_read(ret, sizeof(*ret), at) ? WALK_READ_FAILED : 0;
}

/* What is known of the registers in the caller's frame. `near`: the words below the CFA are in walk.words. */
static __always_inline void walk_saved_base(struct scratch *s, const struct unwind_rule *rule,
					    bool near)
{
#ifdef REGS_BASE
	if (rule->base < 0 && near) {
		s->regs[REGS_BASE] = s->walk.words[rule->base & 7];
		s->walk.known = WALK_KNOWS_BASE;
		return;
	}
	if (rule->base == UNWIND_BASE_SAME && s->walk.known) {
		s->walk.known = WALK_KNOWS_BASE;
		return;
	}
#endif
	s->walk.known = WALK_KNOWS_NONE;
}

/* Of the caller: 0, or why not. Mostly all lie within 64 bytes below the CFA, which are read at once. */
static __always_inline int walk_saved(struct scratch *s, const struct unwind_rule *rule,
				      u64 *ret_ip, u64 *ret_fp)
{
	u32 ra = rule->ra_off + 64, fp = rule->fp_off + 64;
	bool near_ra = rule->ra == UNWIND_AT_CFA && ra < 64 && !(ra & 7);
	bool near_fp = rule->fp == UNWIND_AT_CFA && fp < 64 && !(fp & 7);
	bool near = near_ra && (near_fp || rule->base < 0) &&
		    !walk_read(s->walk.words, 64, s->walk.cfa - 64);
	int r = 0;

	/* The frame pointer lies below the return address, if it was saved. */
	if (near && near_fp) {
		*ret_fp = s->walk.words[fp >> 3 & 7];
		walk_trace(s, s->walk.cfa + rule->fp_off);
	} else {
		r = walk_saved_fp(s, rule, ret_fp);
	}
	if (near) {
		*ret_ip = s->walk.words[ra >> 3 & 7];
		walk_trace(s, s->walk.cfa + rule->ra_off);
	} else if (!r) {
		r = walk_return_address(s, rule, ret_ip);
	}
	walk_saved_base(s, rule, near);
	return r;
}

#define WALK_ROWLESS 2

/* From a frame with a rule to its caller. 1 when the walk is over; rec.walk_end says why. WALK_ROWLESS: without rule. */
WALK_FN int walk_up(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct unwind_rule rule;
	u64 ip = 0, fp = 0;
	bool leaf;
	int r;

	if (!s)
		return 1;
	leaf = s->walk.exact;
	s->rec.walk_end = WALK_UNSUPPORTED;
	if (walk_rule(s->walk.rule, &rule))
		return 1;
	if (rule.cfa == UNWIND_NONE)
		return WALK_ROWLESS;
	if (rule.cfa == UNWIND_SIGNAL)
		return walk_signal(s);
	if (rule.cfa == UNWIND_END) {
		s->rec.walk_end = WALK_COMPLETE;
		return 1;
	}
	r = walk_cfa(s, &rule);
	if (r == 0) {
		/* On arm64 a leaf may have no frame. */
		r = WALK_NOT_ASCENDING;
		if (s->walk.cfa > s->walk.sp || (leaf && s->walk.cfa == s->walk.sp))
			r = walk_saved(s, &rule, &ip, &fp);
	}
	if (r) {
		s->rec.walk_end = r;
		return 1;
	}
	return walk_arrive(s, ip, s->walk.cfa, fp);
}

#ifdef REGS_LR
/*
 * Code without a row that makes no frame, as the kernel's vDSO: its caller is where the link register says, if that is
 * code with a row. Where the frame record says the same, the code has made it. 0, or 1 when it must be followed.
 */
WALK_FN int walk_link(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	u64 ip;
	struct unwind_rule rule;
	u8 exact;

	if (!s || !s->walk.known || s->walk.word != 8)
		return 1;
	walk_untraced(s);
	ip = s->walk.ip;
	exact = s->walk.exact;
	s->walk.ip = s->regs[REGS_LR] & user_ip_mask;
	if (!user_ip_valid(s->walk.ip))
		goto no;
	s->walk.words[1] = 0;
	(void)walk_read(s->walk.words, 16, s->walk.fp);
	if ((s->walk.words[1] & user_ip_mask) == s->walk.ip)
		goto no;
	s->walk.exact = 0;
	if (walk_find(slot, s) || walk_rule(s->walk.rule, &rule) || rule.cfa == UNWIND_NONE)
		goto no;
	s->walk.known = WALK_KNOWS_NONE;
	s->rec.nr_fp++;
	return 0;
no:
	s->walk.ip = ip;
	s->walk.exact = exact;
	return 1;
}
#endif

/* Why a walk ends at code whose mapping has no table. */
static __always_inline u8 lack_end(int lack)
{
	switch (lack) {
	case UNWIND_LACK_CFI:
		return WALK_NO_ROW;
	case UNWIND_LACK_CODE:
		return WALK_RUNTIME_CODE;
	default:
		return WALK_NO_TABLE;
	}
}

#ifdef FRAME_DROP
/*
 * Code that was made at run time has no table, but what it does after a call is there to be read. Where that is dropping
 * its frame and returning, as in the trampolines of Python, the caller is known. 1 when the walk is over; -1: it is not.
 */
WALK_FN int walk_trampoline(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	u64 code = 0, frame, ip;

	if (!s || s->walk.exact || walk_read(&code, FRAME_DROP_BYTES, s->walk.ip) ||
	    (code & FRAME_DROP_MASK) != FRAME_DROP)
		return -1;
	frame = FRAME_DROP_SIZE(code);
	if (frame & 7 || walk_read(&ip, sizeof(ip), s->walk.sp + frame))
		return -1;
	walk_untraced(s);
	return walk_arrive(s, ip, s->walk.sp + frame + 8, s->walk.fp);
}
#endif

/* One frame. 1 when the walk is over; rec.walk_end says why. */
WALK_FN int walk_step(u32 slot)
{
	struct scratch *s = scratch_at(slot);
	bool leaf;
	u8 why;
	int r;

	if (!s)
		return 1;
	leaf = s->rec.nr_user == 0;
	/* Processes of 32 bits are walked by their frame pointers alone. */
	r = s->walk.word == 8 ? walk_find(slot, s) : WALK_LACKS + UNWIND_LACK_CFI;
	if (r == WALK_NOWHERE && !leaf) {
		s->rec.walk_end = WALK_NO_MAPPING;
		return 1;
	}
	if (push_user_ip(s, s->walk.ip + (s->walk.exact && !leaf))) {
		s->rec.walk_end = WALK_LIMIT;
		return 1;
	}
	why = WALK_NO_ROW;
	if (r == 0) {
		r = walk_up(slot);
		if (r != WALK_ROWLESS)
			return r;
	} else {
		why = r == WALK_NOWHERE	  ? WALK_NO_MAPPING
		      : r == WALK_UNKNOWN ? WALK_NO_PROCESS
					  : lack_end(r - WALK_LACKS);
	}
	if (why != WALK_NO_ROW && why != WALK_RUNTIME_CODE && !s->walk.doubtful && unwinding)
		s->walk.doubtful = why;
#ifdef FRAME_DROP
	if (why == WALK_RUNTIME_CODE) {
		r = walk_trampoline(slot);
		if (r >= 0)
			return r;
	}
#endif
#ifdef REGS_LR
	if (!walk_link(slot))
		return 0;
#endif
	return walk_frame_pointer(s, why, s->walk.exact);
}

WALK_FN int walk_user(u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s || !s->walk.word)
		return 0;
	s->rec.walk_end = WALK_NO_REGS;
	if (!user_ip_valid(s->walk.ip))
		return 0;
	s->walk.exact = 1;
	s->walk.doubtful = 0;
	s->walk.from = s->walk.traced = s->walk.sp;
	s->walk.trace_n = s->walk.word == 8 ? 0 : TRACE_NONE;
	s->walk.at.start = s->walk.at.end = 0;
	for (int i = 0; i <= MAX_USER_FRAMES; i++) {
		if (walk_step(slot))
			break;
	}
	/* Why it could not be right is why it is not: where it went astray then says nothing. */
	if (s->walk.doubtful && s->rec.walk_end != WALK_LIMIT)
		s->rec.walk_end = s->walk.doubtful;
	return 0;
}
