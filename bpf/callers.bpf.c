// SPDX-License-Identifier: GPL-2.0
/*
 * System calls: who makes them. The user stack of one call in N is taken when it returns, and stands for N. The gap from
 * one to the next on a CPU is drawn evenly from 1 to 2 N - 1: no pattern of calls keeps clear of it, and none is
 * preferred.
 *
 * N is caller_period, and doubles with each sixteenth of the second's ration of walks that was spent: a burst of calls is
 * followed to its end instead of using the ration up. It depends on what was drawn before, never on the call at hand,
 * and the next second begins some doublings lower. It never rises beyond what the fastest loop of calls would need.
 */
#pragma once

const volatile u32 caller_period = 0; /* 0: no stacks */

#define CALLER_STEPS 16
#define CALLER_STEPS_BACK 4
#define CALLS_MOST \
	(1U << 24) /* that a CPU can make in a second: N need not rise beyond what they ask for */

struct caller_draw {
	u32 left; /* calls up to the next one that is taken; 0: not drawn yet */
	u32 weight; /* for so many that one stands: N when it was drawn */
	u32 second; /* of 2^30 ns */
	u32 drawn; /* in it */
	u32 begun; /* doublings with which it began */
	u32 shift; /* doublings now */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct caller_draw);
} caller_draws SEC(".maps");

static __always_inline void caller_draw_next(struct caller_draw *d)
{
	u32 second = ticks_ns() >> 30;
	u64 period, most = CALLS_MOST / (walks_per_second | 1);

	if (d->second != second) {
		d->second = second;
		d->begun = d->shift > CALLER_STEPS_BACK ? d->shift - CALLER_STEPS_BACK : 0;
		d->drawn = 0;
	}
	d->drawn++;
	d->shift = d->begun + d->drawn * CALLER_STEPS / (walks_per_second | 1);
	if (d->shift > 30)
		d->shift = 30;
	period = (u64)caller_period << (d->shift & 31);
	if (most < caller_period)
		most = caller_period;
	if (period > most)
		period = most;
	d->weight = period;
	d->left = 1 + bpf_get_prandom_u32() % (u32)(2 * period - 1);
}

/* For how many calls this one stands: 0 for most. */
static __always_inline u32 caller_drawn(void)
{
	u32 zero = 0, weight;
	struct caller_draw *d = bpf_map_lookup_elem(&caller_draws, &zero);

	if (!d)
		return 0;
	if (d->left > 1) {
		d->left--;
		return 0;
	}
	weight = d->left ? d->weight : 0;
	caller_draw_next(d);
	return weight;
}

/*
 * The current thread's call was drawn. A function of its own to the verifier. From the program down to the walk's last
 * subprogram there are 512 bytes of stack, which kernels count in steps of up to 32: next to none is left.
 */
__noinline int caller_taken(u32 w, u32 call, u32 weight)
{
	struct caller_key key = { .stack = STACK_ID_NONE, .call = call };
	struct task_struct *task;
	struct account *a;
	struct caller who;
	int r;

	/* Verified for itself, where nobody calls it too. */
	if (!caller_period)
		return 0;
	a = account_of(w, SOURCE_SYSCALLS);
	if (!a)
		return 0;
	task = caller_current(&who);
	key.start = who.start;
	key.tgid = who.tgid;
	/* Read back from there, they need no place of their own while the walk goes on. */
	asm volatile("" : : "r"(&key) : "memory");
	if (walk_granted(RATION_CALLERS))
		key.stack = stack_of_caller(w, SOURCE_SYSCALLS, a, task, key.tgid, key.start);
	else
		a->lost[LOSS_SHED]++;
	r = w & 1 ? count_add(&callers_b, &key, weight) : count_add(&callers_a, &key, weight);
	/* A stack is lost, once: the call itself is counted. */
	if (r && key.stack != STACK_ID_NONE)
		a->lost[LOSS_SHED]++;
	return 0;
}
