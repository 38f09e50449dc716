/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware counters by process, read at context switches.
 *
 * Time on a CPU is cut into intervals of about 10 ms, each of which ends with the first switch after that. When one
 * begins a coin is tossed, of probability 2^-shift, and only where it wins the counters are read: at every switch up
 * to the interval's end, for the process that leaves. What is read counts 2^shift-fold. The shift is that with which
 * the interval before would have kept to the budget of reads, so that a CPU that switches seldom is counted
 * throughout, and one that switches often for a share of the time.
 *
 * Where intervals begin and end, and how likely one is to be counted, is settled before its coin is tossed: every
 * instant counts once on average, whatever runs then, so that sums over processes are unbiased and rates consistent.
 * (Spans that begin at a tick and end with the run in which it falls would not do: they meet long runs in proportion
 * to the square of their length, and hardly ever the begin of a run, when caches are cold.)
 */
#pragma once

#define HARDWARE_INTERVAL_NS 10000000ULL
#define HARDWARE_SHIFT_MAX 16

const volatile bool hardware_on = false;
const volatile u32 hardware_mask = 0; /* of those that exist: 1 << (counter - COUNTER_CYCLES) */
const volatile u32 hardware_cpu_ids = 1;
const volatile u32 hardware_reads = 10; /* in an interval, on average, at most */

/* By counter, then by CPU id. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} hardware_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hardware_cpu);
} hardware_cpus SEC(".maps");

/* Written at switches alone. */
COUNT_MAP(hardware_a, struct process_key, struct hardware_value);
COUNT_MAP(hardware_b, struct process_key, struct hardware_value);

static const struct hardware_value hardware_value_zero;

static __always_inline struct hardware_value *hardware_value_in(void *map, struct process_key *key)
{
	struct hardware_value *v = bpf_map_lookup_elem(map, key);

	if (v)
		return v;
	bpf_map_update_elem(map, key, &hardware_value_zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

/* The process that ran up to now gets its time; NULL: nobody did, or it finds no room. */
static __always_inline struct hardware_value *hardware_close(struct hardware_cpu *c, u32 prev_tid,
							     u64 now)
{
	struct hardware_value *v;

	/* It is another one: the switch between was not seen. */
	if (!c->open || !c->tid || c->tid != prev_tid)
		return NULL;
	v = window & 1 ? hardware_value_in(&hardware_b, &c->key)
		       : hardware_value_in(&hardware_a, &c->key);
	if (!v) {
		c->refused++;
		return NULL;
	}
	__sync_fetch_and_add(&v->spans, 1);
	__sync_fetch_and_add(&v->ns, (now - c->since) << c->shift);
	return v;
}

/* One counter goes on from here; with v, what came since the last reading is counted. */
static __always_inline void hardware_read(struct hardware_cpu *c, struct hardware_value *v, u32 i,
					  u32 cpu)
{
	struct hardware_reading now = {}, *base = &c->base[i];

	if (bpf_perf_event_read_value(&hardware_events, i * hardware_cpu_ids + cpu, (void *)&now,
				      sizeof(now))) {
		base->running = 0;
		return;
	}
	/* Another event may have taken its place, when the CPU was away. */
	if (v && base->running && now.running > base->running && now.counter >= base->counter) {
		__sync_fetch_and_add(&v->counters[i].n, (now.counter - base->counter) << c->shift);
		/* By the event's clock, as of this very reading: from switch to switch takes another time. */
		__sync_fetch_and_add(&v->counters[i].ns, (now.running - base->running) << c->shift);
	}
	*base = now;
}

/* The shift for the interval that begins, from what the one that ends had. */
static __always_inline u32 hardware_shift(u32 switches)
{
	u32 shift = 0;

	for (int i = 0; i < HARDWARE_SHIFT_MAX; i++)
		if (switches > (u64)hardware_reads << i)
			shift = i + 1;
	return shift;
}

/* An interval ends, or one that is counted sees a switch. */
static __noinline int hardware_look(struct hardware_cpu *c, u32 prev_tid, struct task_struct *next,
				    u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct hardware_value *v = hardware_close(c, prev_tid, now);
	u64 draw;
	u32 was_open = c->open, shift = c->shift;

	if (now >= c->until) {
		draw = hash_finish(now ^ hash_seed ^ (u64)cpu << 48);
		shift = hardware_shift(c->switches);
		c->switches = 0;
		c->until = now + HARDWARE_INTERVAL_NS * 3 / 4 +
			   (draw >> 40) * (HARDWARE_INTERVAL_NS / 2) / (1 << 24);
		c->open = !(draw & ((1U << shift) - 1));
	}
	if (was_open || c->open) {
#pragma unroll
		for (int i = 0; i < HARDWARE_COUNTERS; i++)
			if (hardware_mask >> i & 1)
				hardware_read(c, v, i, cpu);
	}
	c->shift = shift;
	c->since = now;
	c->tid = next->pid;
	c->key.tgid = next->tgid;
	c->key.start = next->group_leader->start_boottime;
	return 0;
}

static __always_inline void hardware_switch(struct task_struct *prev, struct task_struct *next,
					    u64 now)
{
	u32 zero = 0;
	struct hardware_cpu *c = bpf_map_lookup_elem(&hardware_cpus, &zero);

	if (!c)
		return;
	c->switches++;
	if (c->open || now >= c->until)
		hardware_look(c, prev->pid, next, now);
}
