/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of collect share. Everything here belongs to the drain thread.
 *
 * A source (on-CPU, off-CPU, syscalls, futex) is a table of functions that collect.c calls in turn: configure
 * before load, attach after it, then before_swap and drain once a window. A source keeps its own state behind
 * collector.sources[].priv and switches itself off with source_off(), which records why.
 */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "collect/collect.h"

#include "base/index.h"
#include "collect/spans.h"
#include "sysprofd.skel.h"

struct source_ops {
	/* Programs whose name begins with this belong to the source: their recursion misses are its losses. */
	const char *prefix;
	/*
	 * Before load, once per attempt, on a fresh skeleton in which no program of any source is loaded and no
	 * map of any source is created: sets settings and sizes, and turns on what it needs with use_program()
	 * and use_map(). sources[].attempt counts the loads in which one of its programs was refused, so that
	 * another way can be tried; an error leaves the source off.
	 */
	int (*configure)(struct collector *c);
	int (*attach)(struct collector *c);
	/* Several times a second. */
	int (*poll)(struct collector *c, uint64_t mono_ns);
	uint64_t (*wake_ns)(const struct collector *c); /* when it should be polled next */
	/* Whether a run of this program that the kernel skipped is an event that was lost; NULL: of any. */
	bool (*counts)(const struct collector *c, const struct bpf_program *p);
	/* The window is still open: gaps between ticks, and waits in progress at a bucket's end. */
	int (*before_swap)(struct collector *c, bool bucket_end, struct slice *s);
	/* Instead of it where a source goes over to another collector: `fresh` is to begin where `old` ends. */
	int (*hand_over)(struct collector *old, struct collector *fresh);
	/* The window's accounts, one per possible CPU in the order of c->possible, before they are added up. */
	void (*correct)(struct collector *c, struct account *per_cpu);
	/* No program writes the set any more: move its counts into s, leave the set empty. */
	int (*drain)(struct collector *c, unsigned set, struct slice *s);
	/* A ring buffer record that is not a stack; size covers its type. True when it was the source's. */
	bool (*record)(struct collector *c, uint32_t type, const void *data, size_t size);
	void (*free)(struct collector *c);
};

extern const struct source_ops oncpu_ops, waits_ops, syscalls_ops, futex_ops;
const struct source_ops *source_ops_of(enum source s); /* NULL when there is none */

struct source_run {
	bool on; /* enabled and not switched off */
	unsigned attempt;
	struct source_state state;
	char failure[96]; /* of the last window, or "" */
	void *priv;
};

/* Stacks of one window as they arrive, each id once. */
struct stack_set {
	struct slice_stack *stacks;
	size_t n_stacks, cap_stacks;
	uint64_t *ips;
	size_t n_ips, cap_ips;
	uint8_t *collided; /* of each stack: another one had its id */
	size_t cap_collided;
	struct index by_id; /* stack number + 1 */
};
void stack_set_done(struct stack_set *t);

struct program_misses {
	struct bpf_program *program;
	enum source source;
	uint64_t misses; /* up to the last drain */
};

/* What hooks.c found out about this kernel. */
struct hooks {
	bool probed;
	bool task_storage; /* fit for a context switch */
	bool prev_state; /* sched_switch tells the state of the thread that leaves */
	bool sched_exit; /* there is sched_exit_tp */
	bool classic; /* count calls at the classic tracepoint */
	bool no_tracefs; /* which could not be attached */
	bool sys_exit_chosen; /* it was attached once: which form, stays */
	bool task_from_pid,
		task_from_vpid; /* a program can find a thread by its number (6.2; 6.14) */
	bool contention; /* the kernel tells waits for its own locks (5.19) */
	double call_ns; /* that counting adds to a call; 0: not measured */
	bool find_vma; /* a program can ask for a mapping (5.17) */
	const char *finish_task_switch; /* its symbol, where there are kprobes; or NULL */
};

/* A program that is attached for spans of time only. */
struct span_program {
	struct spans spans;
	struct bpf_program *program;
	struct bpf_link *link;
	volatile struct time_span *limits; /* with which the programs compare */
};

struct collector {
	struct collect_options o;
	struct sysprofd_bpf *skel;
	struct hooks hooks;
	struct source_run sources[SOURCE_N];
	struct span_program *wakers; /* or NULL */
	unsigned cpu_ids; /* largest possible CPU id + 1 */
	unsigned cpus_possible; /* values of a per-CPU map */
	unsigned *possible; /* their CPU ids */
	uint64_t random; /* state of collector_random() */
	unsigned shrink; /* maps have 1/2^shrink of their size: memory was short */
	int policy; /* of the thread between undisturbed_begin() and _end(), or -1 */

	struct hardware *hardware; /* counters; NULL: none are read */
	struct hardware_state hardware_state;

	struct ring_buffer *ring;
	/* Stacks of the open window, of one that begins during a drain, and what is left of a closed one's. */
	struct stack_set open, next, closed;
	/* Stacks of closed windows that programs may count without sending them again; `older` goes first. */
	struct stack_set recent, older;
	unsigned recent_windows; /* in `recent` */
	uint32_t window; /* the open one, to whose end the programs may be ahead during a drain */
	uint64_t window_mono_ns; /* the open window's begin */
	struct kernel_locks *kernel_locks; /* or NULL */
	bool kernel_locks_refused;
	int grace_fd, grace_slot_fd; /* map-in-map whose rewriting waits for a grace period */

	struct program_misses *misses;
	size_t n_misses, cap_misses;
	bool instructions; /* are sampled beside the burst's event */
	struct program_misses instruction_misses;
	struct account *accounts; /* one per possible CPU */
	struct counts
		*counts; /* of syscalls, where they are counted for a part of the time; or NULL */
};

/* Leaves the source out from now on; the text is what people read in status. */
_printf_(3, 4) void source_off(struct collector *c, enum source s, const char *fmt, ...);
double collector_random(struct collector *c); /* uniform in [0, 1) */
uint64_t collector_random64(struct collector *c);
void use_program(struct bpf_program *p);
/* Creates the map, with so many entries unless that is 0. */
int use_map(struct bpf_map *m, uint32_t entries);
/* Entries for a count map in which `events` come per CPU and second, each of which may need its own. */
uint32_t count_entries(const struct collector *c, double events, uint32_t min, uint32_t max);

/* ---- drain.c ------------------------------------------------------------------------------------- */

/* Around calls of bpf(2) on maps: see undisturbed.c. errno is kept. */
void undisturbed_begin(struct collector *c);
void undisturbed_end(struct collector *c);

int read_per_cpu(struct collector *c, const struct bpf_map *map, uint32_t key, void *values);
int write_per_cpu(struct collector *c, const struct bpf_map *map, uint32_t key, const void *values);

/*
 * Empties a hash map: `each` gets every key and value until it returns an error, which is then the result; what
 * it did not get is lost.
 */
typedef int (*drain_fn)(void *ctx, const void *key, const void *value);
int drain_map(struct collector *c, const struct bpf_map *map, drain_fn each, void *ctx);
void account_add(struct account *sum, const struct account *a);
/* Runs that the kernel skipped because the same program was running on that CPU already (5.12+). */
void account_misses(struct account *a, struct program_misses *m);
/*
 * Makes seen = stored + idle + lost hold when what was drained is not what the programs stored: what a failed drain
 * left in the map comes with the set's next window, and counts as seen there.
 */
void account_balance(struct account *a, uint64_t drained);
void slice_balance(struct slice *s, enum source source, uint64_t drained);

/*
 * For a count that names stack `id` and stands for n events: the id, or STACK_ID_NONE with the loss booked
 * when its stack never arrived or is not the only one with this id.
 */
void stacks_remember(struct collector *c, const struct slice *s, enum source source);
uint64_t slice_stack_id(struct collector *c, struct slice *s, enum source source, uint64_t id,
			uint64_t n);

/* ---- instructions.c, for oncpu.c: sampled beside another hardware event ----------------------------- */

int instructions_configure(struct collector *c, uint32_t entries);
int instructions_drain(struct collector *c, unsigned set, struct slice *s);

/* ---- locks.c, for futex.c ------------------------------------------------------------------------- */

int locks_configure(struct collector *c);
int locks_attach(struct collector *c);
int locks_drain(struct collector *c, unsigned set, struct slice *s);
void locks_free(struct collector *c);

/* ---- kernel-locks.c, for futex.c: the kernel's own locks ------------------------------------------- */

int kernel_locks_configure(struct collector *c);
/* After a refused load that may be theirs: true when they were in it, and will not be in the next one. */
bool kernel_locks_give_way(struct collector *c, const char *why);
/* What fails leaves them out, and the state says so. */
void kernel_locks_attach(struct collector *c);
int kernel_locks_drain(struct collector *c, unsigned set, struct slice *s);
void kernel_locks_free(struct collector *c);

/* ---- hooks.c ------------------------------------------------------------------------------------- */

#define WALKS_PER_SECOND 1000 /* per CPU, where options leave it open */

int hooks_probe(struct collector *c);
/* Threads that exist now; 0 when that is not known. */
uint32_t count_threads(void);
/* _use before load, _attach after it; each may be called by several sources. */
int hooks_use_switch(struct collector *c);
int hooks_use_rations(struct collector *c);
int hooks_attach_switch(struct collector *c);
int hooks_attach_resume(struct collector *c, enum resume_hook hook);
int hooks_use_sys_exit(struct collector *c);
int hooks_attach_sys_exit(struct collector *c);
/* Unless another source needs it as well. */
void hooks_detach_sys_exit(struct collector *c);
bool hooks_sys_exit_is_classic(const struct collector *c); /* once it was attached */
/* New mappings, for the walks; where they cannot be noted, new programs have partial stacks for a while. */
void hooks_use_young(struct collector *c);
void hooks_attach_young(struct collector *c);

/* ---- hardware.c: counters that are read at the switch -------------------------------------------------- */

int hardware_probe(struct collector *c);
int hardware_configure(struct collector *c); /* may be called twice */
int hardware_attach(struct collector *c);
void hardware_poll(struct collector *c, uint64_t mono_ns);
int hardware_drain(struct collector *c, unsigned set, struct slice *s);
void hardware_free(struct collector *c);

/* ---- span-program.c --------------------------------------------------------------------------------- */

/* When its program and limits are set. */
int span_program_start(struct collector *c, struct span_program *p, double share);
int span_program_poll(struct collector *c, struct span_program *p, uint64_t mono_ns);
/* For one span that somebody else drew. */
int span_program_open(struct span_program *p, const struct span *s);
void span_program_stop(struct span_program *p); /* detaches it */

/* ---- wakers.c: who ends waits, a part of the source off-cpu ------------------------------------------- */

bool wakers_wanted(const struct collector *c);
int wakers_configure(struct collector *c);
int wakers_attach(struct collector *c);
void wakers_name(struct collector *c); /* behind the source's own hook */
int wakers_poll(struct collector *c, uint64_t mono_ns);
uint64_t wakers_wake_ns(const struct collector *c);
int wakers_drain(struct collector *c, unsigned set, struct slice *s);
void wakers_free(struct collector *c);

/* ---- details.c: latency and sizes of calls, a part of the source syscalls ---------------------------- */

int details_configure(struct collector *c);
int details_attach(struct collector *c); /* after the return of calls */
int details_poll(struct collector *c, uint64_t mono_ns);
uint64_t details_wake_ns(const struct collector *c);
int details_drain(struct collector *c, unsigned set, struct slice *s);
void details_free(struct collector *c);

/* Where another one says when: the begin may fail, which leaves calls without time. */
int details_begin(struct collector *c, const struct span *s);
void details_end(struct collector *c);

/* ---- cost.c --------------------------------------------------------------------------------------- */

/* Nanoseconds that a cheap call takes now. */
double cost_of_call(void);

/* ---- callers.c: stacks of calls ------------------------------------------------------------------------ */

int callers_configure(struct collector *c);
int callers_drain(struct collector *c, unsigned set, struct slice *s);

/* ---- counts.c: when calls are counted, where that is not always -------------------------------------- */

int counts_attach(struct collector *c);
int counts_poll(struct collector *c, uint64_t mono_ns);
uint64_t counts_wake_ns(const struct collector *c);
void counts_bucket_ends(struct collector *c);
void counts_drain(struct collector *c, struct slice *s);
void counts_free(struct collector *c);

/* ---- ring.c --------------------------------------------------------------------------------------- */

int ring_open(struct collector *c);
void ring_close(struct collector *c);
/* Takes in all that the ring buffer holds. */
int ring_consume(struct collector *c);
/* One record, of which nothing is believed. */
void ring_record(struct collector *c, const void *data, size_t size);
/* Closes the window: moves its stacks to the slice; those of the next window become the open ones. */
void ring_take(struct collector *c, struct slice *s);

/* ---- diagnose.c ------------------------------------------------------------------------------------ */

/* One sentence on why BPF does not work here, given what failed. The caller frees it. */
char *diagnose_load(int error, const char *verifier_log);

/* ---- cpus.c ----------------------------------------------------------------------------------------- */

/* The kernel's list form, "0-3,8,10-11". ids beyond `limit` are an error. Sets bits in set[]. */
struct cpu_set {
	uint64_t *bits;
	unsigned n; /* ids */
};
int cpu_set_parse(const char *text, unsigned limit, struct cpu_set *ret);
int cpu_set_read(const char *path, unsigned limit, struct cpu_set *ret);
void cpu_set_done(struct cpu_set *s);
bool cpu_set_has(const struct cpu_set *s, unsigned cpu);
unsigned cpu_set_count(const struct cpu_set *s);

/* ---- gaps.c ---------------------------------------------------------------------------------------- */

/* Idle time of each CPU so far, from text in the form of /proc/stat; 0 where a CPU has no line. */
int idle_times_read(const char *stat_path, uint64_t *idle_ns, unsigned n);
/*
 * Of the time in which this CPU did not tick, moves to idle what idle ticks have not shown already: idle_ns is
 * the CPU's idle time in the window by the kernel's own account.
 */
void account_explain_gaps(struct account *a, uint64_t idle_ns);
