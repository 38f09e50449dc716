/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Walks of stacks are rationed, per CPU and second.
 *
 * They go by the kernel's ticks, which cost nothing to read. A second has 2^30 ns.
 */
#pragma once

#include "duration.h"

const volatile u32 walks_per_second = 1000; /* per CPU */
const volatile u32 tick_ns = 4000000;

/* A ration each: the sources', and of futex calls two more. */
enum ration { RATION_LOOKS = SOURCE_N, RATION_WAKES, RATION_CALLERS, RATION_N };

struct walk_ration {
	u64 second;
	u32 walks;
	u32 asked; /* futex waits of this second that wanted one, */
	u64 asked_ns; /* of this length together */
	u64 threshold; /* a shorter one of length d is walked with probability d / threshold */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RATION_N);
	__type(key, u32);
	__type(value, struct walk_ration);
} walk_rations SEC(".maps");

#define WALK_SECOND (1ULL << 30)
#define FIRST_THRESHOLD WALK_SECOND
#define PACE_FIFTHS 3 /* of a ration are meant to be used */

/* As of the last tick, from an epoch of its own. */
static __always_inline u64 ticks_ns(void)
{
	return bpf_jiffies64() * tick_ns;
}

/* This CPU's ration for this second, or NULL. */
static __always_inline struct walk_ration *walk_ration_of(u32 source, u64 now)
{
	struct walk_ration *r = bpf_map_lookup_elem(&walk_rations, &source);

	if (!r || r->second == now >> 30)
		return r;
	/* Waits of together S ns, none of which counts more than T, make S / T walks; the rest is left to chance. */
	r->threshold = 0;
	if (r->asked > walks_per_second && r->second + 1 == now >> 30)
		r->threshold = r->asked_ns * 5 / (walks_per_second * PACE_FIFTHS);
	r->second = now >> 30;
	r->walks = 0;
	r->asked = 0;
	r->asked_ns = 0;
	return r;
}

static __always_inline bool ration_granted(u32 source, u32 per_second)
{
	struct walk_ration *r = walk_ration_of(source, ticks_ns());

	if (!r || r->walks >= per_second)
		return false;
	r->walks++;
	return true;
}

/* Whether this CPU may walk another stack in this second. */
static __always_inline bool walk_granted(u32 source)
{
	return ration_granted(source, walks_per_second);
}

/* Looking whether a stack is known costs an eighth of a walk. */
#define LOOKS_PER_WALK 8

static __always_inline bool look_granted(void)
{
	struct walk_ration *r = walk_ration_of(SOURCE_OFF_CPU, ticks_ns());

	if (!r || r->asked >= walks_per_second * LOOKS_PER_WALK)
		return false;
	r->asked++;
	return true;
}

#define DEAR_NS (1ULL << 10) /* the least length that is asked of a wait once walks run ahead, */
#define DEAR_DOUBLINGS 64 /* which doubles so often per ration that they do, */
#define DEAR_DOUBLINGS_MAX 20 /* after that nothing is long enough */

/* Walks beyond an even pace, of which an eighth of the ration is free. */
static __always_inline u32 walks_ahead(const struct walk_ration *r, u64 now)
{
	u32 easy = walks_per_second / 8;

	if (r->walks <= easy)
		return 0;
	easy += (u64)walks_per_second * PACE_FIFTHS * (now & (WALK_SECOND - 1)) / 5 >> 30;
	return r->walks > easy ? r->walks - easy : 0;
}

/*
 * The same for a wait that is over, and is counted with or without its stack. When there were more of them in
 * the last second than may be walked, the long ones go before the short ones. As this second may have more than the
 * last, walks that run ahead of an even pace are ever dearer: the later long ones find some.
 */
static __always_inline bool walk_granted_by_length(u32 source, u64 d, u32 tid)
{
	u64 now = ticks_ns();
	struct walk_ration *r = walk_ration_of(source, now);
	u64 most, price, doublings;
	u32 ahead;

	if (!r)
		return false;
	most = r->threshold ?: FIRST_THRESHOLD;
	r->asked++;
	r->asked_ns += d < most ? d : most;
	if (r->walks >= walks_per_second)
		return false;
	ahead = walks_ahead(r, now);
	if (ahead) {
		price = r->threshold > DEAR_NS ? r->threshold : DEAR_NS;
		doublings = (u64)ahead * DEAR_DOUBLINGS / walks_per_second;
		if (doublings > DEAR_DOUBLINGS_MAX || d < price << doublings)
			return false;
	} else if (d < r->threshold && d < draw_theta(r->threshold, now ^ d, tid)) {
		return false;
	}
	r->walks++;
	return true;
}
