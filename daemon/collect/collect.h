/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel side as seen from the daemon: load, attach, swap windows, drain.
 *
 * Everything here is called by one thread, the drain thread, and may block for a grace period (15 ms); only
 * made and freed may a collector be by another one, which takes the verifier's time.
 * collector_drain() turns one window of kernel counts into a slice; the slice is self-contained.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"
#include "collect/places.h"
#include "collect/walk.h"
#include "model/hardware.h"

/* Where calls are not counted all the time: the part of each bucket in which they are. */
#define COUNTED_SHARE 0.1
/* What the stacks of waits may take of the budget. The rest is for what is exact. */
#define WAITS_OF_BUDGET 0.5

struct collect_options {
	bool enabled[SOURCE_N];
	double on_cpu_hz; /* per CPU */
	bool on_cpu_cycles; /* try the PMU's cycles, fall back to cpu-clock */
	enum sample_event event; /* of a burst: no other will do, and samples weigh its events */
	double on_cpu_jitter; /* the period is redrawn each second within +-this share: 0.1 */
	uint64_t off_cpu_threshold_ns; /* T at start */
	uint64_t
		off_cpu_threshold_max_ns; /* T is raised to at most this when walks cost too much */
	uint32_t walks_per_second; /* per CPU: above it T rises */
	double cpu_budget; /* share of all CPUs: above WAITS_OF_BUDGET of it T rises; 0: whatever it costs */
	uint32_t max_threads; /* whose time off-CPU is remembered; 0: THREADS_DEFAULT */
	uint32_t count_entries; /* per count map and set; 0: by CPUs, rate and slice */
	uint32_t ring_bytes; /* 0: 1 MiB per 4 CPUs, at least 1 MiB, a power of two */
	uint64_t slice_ns; /* the longest window: sizes maps */
	const struct walk_tables *tables; /* lent; NULL: user stacks by frame pointers alone */
	const struct kernel_places *places; /* read while the collector is made; NULL: not known */
	uint32_t counter_reads; /* of hardware counters, per CPU and second at most; 0: none */
	double syscall_details; /* share of the time in which calls are timed and sized; 0: never, 1: always */
	uint32_t syscall_stacks; /* the stack of one call in so many is taken; 0: of none */
	bool sample_calls; /* count calls for COUNTED_SHARE of the time only */
	uint64_t
		bucket_ns; /* the time from one bucket's end to the next: what is sampled is sampled in each */
	bool kernel_locks; /* waits for the kernel's own locks, beside those of futex */
	double off_cpu_wakers; /* share of the time in which it is seen who ends waits; as above */
	uint64_t hash_mask; /* test hook: and-ed to stack hashes; 0 means all bits */
	unsigned
		skip_hooks; /* test hook: leave out so many of the better ways to take off-CPU stacks */
	bool software_counters; /* test hook: in the place of the hardware's */
	bool force_classic; /* test hook: classic tracepoints although tp_btf loses nothing here */
	/* A burst (record): only these count. Empty for the recorder. */
	const uint32_t *only_tgids;
	size_t n_only_tgids;
	bool burst; /* on-CPU alone, maps of its own */
	bool full_size; /* smaller maps would not do where memory is short for these */
};

struct collector;

/*
 * Probes, loads and attaches what the options enable. A source that the kernel cannot give is left off with
 * its reason (collector_source_state); -errno only when nothing at all can run, and then *ret_why (static
 * or owned by the caller: free it) names what is missing: BTF, a capability, a kernel option, lockdown.
 */
int collector_new(const struct collect_options *o, struct collector **ret, char **ret_why);
struct collector *collector_free(struct collector *c);
DEFINE_CLEANUP(struct collector *, collector_free)

/* One sentence on why perf events do not work here. The caller frees it. */
char *diagnose_perf(int error);

struct source_state {
	bool running;
	char text[128]; /* "running", or why not */
	char hook[64]; /* "cpu-clock", "sched_exit_tp", "finish_task_switch", "tp_btf", ... */
	double rate_hz; /* on-CPU */
	double share; /* of the time in which it counts; 0: always */
	/* On-CPU, of a burst by a hardware event: why instructions are not sampled beside it; or "". */
	char no_instructions[128];
	double event_ns; /* what counting an event costs, measured at the start; 0: not known */
	uint64_t threshold_ns; /* off-CPU: T now */
	char kernel_locks
		[96]; /* futex: where waits for the kernel's own locks come from, or why there are none */
};
void collector_source_state(const struct collector *c, enum source s, struct source_state *ret);

void collector_hardware_state(const struct collector *c, struct hardware_state *ret);

/* Counts of this window, copied out of the kernel. Arrays are owned by the slice. */
struct slice_stack {
	uint64_t id;
	uint64_t mono_ns;
	uint64_t start;
	uint32_t tgid;
	uint16_t nr_kernel, nr_user;
	uint16_t nr_fp; /* steps of the user's side that went by the frame pointer */
	uint8_t walk_end; /* enum walk_end */
	uint8_t source;
	uint32_t first_ip; /* index into ips: kernel part, then user part, leaf first */
	uint32_t call; /* off-CPU: the call that waited, or CALL_NONE */
};

struct slice_on_cpu {
	struct on_cpu_key key;
	struct on_cpu_value value;
};
struct slice_off_cpu {
	struct off_cpu_key key;
	struct off_cpu_value value;
};
/* Who ended waits, seen in spans. */
struct slice_wake {
	struct wake_key key;
	struct wake_value value;
};
struct slice_syscall {
	struct syscall_key key;
	uint64_t calls;
};
struct slice_caller {
	struct caller_key key;
	uint64_t calls; /* that it stands for */
};
struct slice_detail {
	struct syscall_key key; /* DETAIL_KEY() */
	struct call_detail value;
};
struct slice_futex {
	struct futex_key key;
	struct futex_value value;
};

/* A lock that was waited for or woken in this window. */
struct slice_lock {
	uint64_t address, start;
	uint32_t tgid, flags;
	struct lock_window seen;
};
/* Who wakes and who holds: samples. */
struct slice_lock_sample {
	struct lock_key key;
	struct lock_value value;
};

/*
 * Exact off-CPU time of one thread in this window: differences of its cumulative totals, waits in progress
 * included up to now. Never negative. Only threads with any. (blocked excludes run-queue delay.) And what the
 * kernel counted of it.
 */
struct slice_thread {
	uint64_t start;
	uint64_t thread_start;
	uint32_t tgid, tid;
	uint64_t blocked_ns, run_queue_ns, preempted_ns;
	uint64_t blocked_n, run_queue_n, preempted_n;
	uint64_t counters[COUNTER_OF_THREADS];
};

/* Estimates of a process's hardware counters. */
struct slice_hardware {
	struct process_key key;
	struct hardware_value value;
};

struct slice_source {
	struct account sum; /* over CPUs; user-space reasons are added later */
};

struct slice {
	uint64_t window;
	uint64_t mono_start_ns, mono_end_ns;
	uint32_t cpus_online;
	struct slice_stack *stacks;
	size_t n_stacks, cap_stacks;
	uint64_t *ips;
	size_t n_ips, cap_ips;
	struct slice_on_cpu *on_cpu;
	size_t n_on_cpu, cap_on_cpu;
	/* Of a burst by a hardware event: samples of instructions beside it, with accounts of their own. */
	struct slice_on_cpu *instructions;
	size_t n_instructions, cap_instructions;
	struct account instructions_sum;
	struct slice_off_cpu *off_cpu;
	size_t n_off_cpu, cap_off_cpu;
	struct slice_wake *wakes;
	size_t n_wakes, cap_wakes;
	uint64_t wake_span_ns; /* the time in which threads were woken that these tell of */
	double wake_span_share; /* of all time, as it was asked for */
	struct slice_syscall *syscalls;
	size_t n_syscalls, cap_syscalls;
	struct slice_caller *callers;
	size_t n_callers, cap_callers;
	struct slice_detail *details; /* a key may be repeated */
	size_t n_details, cap_details;
	uint64_t span_ns; /* the time in which calls began that details tell of */
	double span_share; /* of all time, as it was asked for */
	bool calls_sampled; /* calls were counted for a part of the time, */
	uint64_t counted_ns; /* which is this */
	struct slice_futex *futex;
	size_t n_futex, cap_futex;
	struct slice_lock *locks;
	size_t n_locks, cap_locks;
	struct slice_lock_sample *lock_samples;
	size_t n_lock_samples, cap_lock_samples;
	uint64_t lock_slots_short, lock_samples_lost; /* waits and calls, samples: not told here */
	struct kernel_lock *kernel_locks; /* several may have the same key */
	size_t n_kernel_locks, cap_kernel_locks;
	uint64_t kernel_locks_lost; /* waits */
	uint64_t hardware_lost; /* spans in which counters were read */
	struct slice_thread *threads;
	size_t n_threads, cap_threads;
	struct slice_hardware *hardware;
	size_t n_hardware, cap_hardware;
	struct slice_source source[SOURCE_N];
	uint64_t threshold_ns;
};
struct slice *slice_free(struct slice *s);
DEFINE_CLEANUP(struct slice *, slice_free)

/*
 * Called several times a second between drains: empties the ring buffer, redraws sampling periods once a
 * second, reopens events of CPUs that came back, adapts T.
 */
int collector_poll(struct collector *c);
/* When it should be called next, if not sooner: monotonic, UINT64_MAX when that does not matter. */
uint64_t collector_wake_ns(const struct collector *c);
/*
 * Closes the window: flip, grace period, ring buffer, counts, accounting. With `bucket_end`, waits in
 * progress are walked as well (task iterator), so that every blocked thread shows in the bucket.
 */
int collector_drain(struct collector *c, bool bucket_end, struct slice **ret);
/*
 * From one collector to another that runs beside it: closes the window of both at the same moment. The old one's
 * is a bucket's last; the new one's, whose events both have counted, is thrown away. Two programs count an event
 * one after the other, and nothing tells the second what the first has done: an event in whose middle the windows
 * are closed may be told twice, one that comes between the two stores (100 ns) not at all. Waits in progress are
 * told up to here, and on from here; of a futex call in progress only the part since the new collector came, when
 * it returns.
 */
int collector_hand_over(struct collector *old, struct collector *fresh, struct slice **ret);

uint64_t collector_map_bytes(const struct collector *c); /* memory of all maps (fdinfo memlock) */
