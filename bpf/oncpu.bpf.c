// SPDX-License-Identifier: GPL-2.0
/*
 * On-CPU samples: one perf event per CPU, an interrupt each period.
 *
 * Time is conserved on each CPU: a tick stands for the time since the tick before it, so that the weights of
 * stored, idle and lost ticks add up to the time that passed. Ticks go missing without a trace (the kernel
 * skips the program while its CPU is inside bpf(2), an hrtimer that is late forwards over periods), which
 * shows as a gap of 1.5 periods or more: the tick then stands for one period, the rest is counted as lost.
 */
#pragma once

const volatile struct idle_range idle_ranges[MAX_IDLE_RANGES] = {};
const volatile u32 nr_idle_ranges = 0; /* 0: kernel addresses are hidden, all of pid 0 is idle */
const volatile bool ticks_are_time = true; /* false for cycles: a halted CPU has none */
const volatile bool weigh_events = false; /* a sample stands for events, not for time */
const volatile bool only_listed = false; /* a burst of some processes: those in only_tgids */

/* One per CPU id. The daemon writes all but `last` through its mapping. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tick_cpu);
} tick_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u8);
} only_tgids SEC(".maps");

/*
 * Instructions, sampled beside another event of a burst by an event of their own, so that each function has an estimate
 * of both. Never a part of the source's accounts.
 */
COUNT_MAP(instructions_a, struct on_cpu_key, struct on_cpu_value);
COUNT_MAP(instructions_b, struct on_cpu_key, struct on_cpu_value);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct account);
} instruction_accounts SEC(".maps");

struct tick {
	u64 weight_ns; /* what this tick stands for */
	u64 lost_ns;
	u64 skipped;
};

/* Measures the gap that ends now, and begins the next one. */
static __always_inline void tick_measure(struct tick_cpu *c, u64 now, struct tick *t)
{
	u64 last = c->last > c->opened ? c->last : c->opened;
	/* A new period begins when it is set, however long ago the last tick was. */
	u64 due = last > c->redrawn ? last : c->redrawn;
	u64 period = c->period ?: 1;
	u64 overdue = now > due ? now - due : 0;

	c->last = now;
	t->weight_ns = now > last ? now - last : 0;
	t->lost_ns = 0;
	t->skipped = 0;
	if (overdue < period + period / 2)
		return;
	if (ticks_are_time) {
		t->skipped = (overdue + period / 2) / period - 1;
		t->lost_ns = t->weight_ns - period;
	}
	t->weight_ns = period;
}

static __always_inline bool ip_is_idle(u64 ip)
{
	if (!nr_idle_ranges)
		return true;
	for (u32 i = 0; i < MAX_IDLE_RANGES; i++) {
		if (ip - idle_ranges[i].start < idle_ranges[i].size)
			return true;
	}
	return false;
}

static __always_inline u64 tick_stack(struct perf_context *ctx, struct task_struct *task, u32 w,
				      const struct on_cpu_key *key, struct account *a)
{
	int slot = scratch_claim();
	struct scratch *s;
	u64 id;

	s = slot >= 0 ? scratch_at(slot) : NULL;
	if (!s) {
		a->lost[LOSS_SCRATCH_BUSY]++;
		return STACK_ID_NONE;
	}
	stack_begin(s, w, SOURCE_ON_CPU, key->tgid, key->start);
	/* Word by word: the verifier takes no address that was computed within a context. */
#pragma unroll
	for (int i = 0; i < REGS_WORDS; i++)
		s->regs[i] = *(volatile u64 *)&ctx->regs[i];
	if (REGS_IN_USER(s->regs)) {
		stack_user_regs(s);
	} else {
		s->rec.nr_kernel = kernel_frames(bpf_get_stack(ctx, s->ips, KERNEL_STACK_BYTES, 0));
		stack_user_regs_of_current(s, task);
	}
	id = stack_send(s, slot, a);
	scratch_release(s);
	return id;
}

/* Idle tasks share tid 0, so an entry may have a writer on each CPU. */
static __always_inline int tick_count(void *map, struct on_cpu_key *key, u64 ns)
{
	struct on_cpu_value first = { .samples = 1, .ns = ns };
	struct on_cpu_value *v = bpf_map_lookup_elem(map, key);
	int r;

	if (!v) {
		r = bpf_map_update_elem(map, key, &first, BPF_NOEXIST);
		if (r != -17 /* EEXIST: another CPU was faster */)
			return r;
		v = bpf_map_lookup_elem(map, key);
		if (!v)
			return -16;
	}
	__sync_fetch_and_add(&v->samples, 1);
	__sync_fetch_and_add(&v->ns, ns);
	return 0;
}

/* One sample of the given weight, by the given books. */
static __always_inline void tick_book(struct perf_context *ctx, u32 w, struct account *a,
				      void *map_a, void *map_b, u64 weight)
{
	u64 id = bpf_get_current_pid_tgid();
	struct on_cpu_key key = { .tgid = id >> 32, .tid = id };
	struct task_struct *task = (void *)bpf_get_current_task();
	int r;

	/* Of a burst of some processes too: user space compares it with the kernel's own account. */
	if (!key.tid && ip_is_idle(ctx->regs[REGS_IP])) {
		a->seen++;
		a->idle++;
		a->idle_ns += weight;
		return;
	}
	if (only_listed && !bpf_map_lookup_elem(&only_tgids, &key.tgid))
		return;
	a->seen++;
	if (key.tgid)
		key.start = BPF_CORE_READ(task, group_leader, start_boottime);
	key.stack = tick_stack(ctx, task, w, &key, a);
	r = w & 1 ? tick_count(map_b, &key, weight) : tick_count(map_a, &key, weight);
	if (r) {
		account_refused(a, r);
		a->lost_ns += weight;
		return;
	}
	a->stored++;
	a->ns += weight;
}

SEC("perf_event")
int oncpu_tick(struct perf_context *ctx)
{
	u32 w = window, cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct account *a = account_of(w, SOURCE_ON_CPU);
	struct tick_cpu *c = bpf_map_lookup_elem(&tick_cpus, &cpu);
	struct tick t;

	if (!a || !c)
		return 0;
	tick_measure(c, now, &t);
	if (weigh_events)
		t.weight_ns = ctx->sample_period;
	a->seen += t.skipped;
	a->lost[LOSS_TICK_SKIPPED] += t.skipped;
	a->lost_ns += t.lost_ns;
	tick_book(ctx, w, a, &on_cpu_a, &on_cpu_b, t.weight_ns);
	return 0;
}

SEC("perf_event")
int oncpu_instructions(struct perf_context *ctx)
{
	u32 w = window, set = w & 1;
	struct account *a = bpf_map_lookup_elem(&instruction_accounts, &set);

	if (a)
		tick_book(ctx, w, a, &instructions_a, &instructions_b, ctx->sample_period);
	return 0;
}
