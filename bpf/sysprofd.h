/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything that the BPF programs and the daemon share: map keys and values, ring buffer records, reason
 * codes. Fixed widths, explicit padding, sizes asserted on both sides. Included by bpf/ (after vmlinux
 * types) and by daemon/collect (after <stdint.h>); below, u32 and u64 are the same in both.
 *
 * Windows. There are two sets of count maps. `window` in the control variable is the number of the open
 * window (it only grows); its lowest bit selects the set. A program reads it once and uses that value to
 * its end. The daemon flips it, waits for an RCU grace period, and only then drains the other set.
 *
 * A process is (tgid, start): start is task->group_leader->start_boottime (5.5+), nanoseconds.
 */
#pragma once

#ifdef __bpf__
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
#define SHARED_ASSERT(cond) _Static_assert(cond, #cond)
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
#define SHARED_ASSERT(cond) _Static_assert(cond, #cond)
#endif

#include "unwind.h"

#define MAX_USER_FRAMES 512
#define MAX_KERNEL_FRAMES \
	256 /* bpf_get_stack gives at most kernel.perf_event_max_stack, mostly 127 */

/* The four sources; loss is counted for each. */
enum source {
	SOURCE_ON_CPU = 0,
	SOURCE_OFF_CPU = 1,
	SOURCE_SYSCALLS = 2,
	SOURCE_FUTEX = 3,
	SOURCE_N
};

/*
 * Why an event was seen but is not stored in full. "weight kept" reasons lose the stack and keep the count;
 * the others lose the count as well. Names for people: loss_reason_name() in daemon/model/profile.h.
 */
enum loss {
	LOSS_TICK_SKIPPED =
		0, /* a tick that never ran (CPU inside bpf(2), throttled); units: ticks */
	LOSS_COUNT_FULL, /* count map full (E2BIG) */
	LOSS_COUNT_BUSY, /* count map update refused: EBUSY, ENOMEM, any other */
	LOSS_STATE_FULL, /* no task state could be created */
	LOSS_SCRATCH_BUSY, /* no scratch left on this CPU: weight kept, no stack */
	LOSS_STACK_RING_FULL, /* ring buffer reservation failed: weight kept, no stack */
	LOSS_STACK_COLLISION, /* two stacks with one hash: weight kept, no stack */
	LOSS_STACK_MISSING, /* counted in user space: a count whose stack never arrived: weight kept */
	LOSS_RECURSION, /* recursion_misses of the programs */
	LOSS_SHED, /* walk rate capped: weight kept, no stack */
	LOSS_EXIT_RING_FULL, /* a thread's last totals did not fit the ring buffer */
	LOSS_DICT_FULL, /* counted in user space: bucket or dictionary limit, folded into [other] */
	LOSS_QUEUE_FULL, /* counted in user space: a closed bucket that the store could not take */
	LOSS_OTHER,
	LOSS_SWITCH_UNSEEN, /* off-CPU: the wait is in the totals, its stack was not taken */
	LOSS_CALL_UNTIMED, /* syscalls: counted, and was to be timed: weight kept */
	LOSS_N
};

/*
 * How a user stack walk ended. Complete: the outermost frame was reached, which is an undefined or zero return
 * address, or a zero frame pointer in a caller that has no row. All else is partial: the frames nearest to the leaf.
 */
enum walk_end {
	WALK_NONE = 0, /* no user stack wanted: kernel thread or no user registers */
	WALK_COMPLETE = 1,
	WALK_READ_FAILED = 2, /* page not resident or pointer wild */
	WALK_LIMIT = 3, /* MAX_USER_FRAMES reached */
	WALK_NOT_ASCENDING = 4, /* the next frame does not lie above this one */
	WALK_NO_ROW = 5, /* code without call frame information, and no frame pointer either */
	WALK_PENDING = 6, /* the user side could not be read from where we were */
	WALK_NO_REGS = 7,
	WALK_NO_PROCESS = 8, /* its mappings are not known yet: walked by frame pointers */
	WALK_NO_MAPPING = 9, /* the address lies in no executable mapping */
	WALK_NO_TABLE =
		10, /* the table is not there: not built yet, beyond the budget, file unreadable */
	WALK_RUNTIME_CODE = 11, /* code made at run time, and no frame pointer */
	WALK_UNSUPPORTED =
		12, /* a rule that needs a register or an expression that a walk does not have */
	WALK_END_N
};

/* Why a thread did not run. */
enum off_cause {
	OFF_BLOCKED = 1, /* it waited for something */
	OFF_RUN_QUEUE = 2, /* it was runnable, woken or yielding, and waited for a CPU */
	OFF_PREEMPTED = 3, /* it was running and another thread was put in its place */
};

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Ring buffer records begin with this. */
enum record_type {
	RECORD_STACK = 1,
	RECORD_THREAD_EXIT = 2,
};

/*
 * A stack that was not sent in this window yet: header, then nr_kernel + nr_user addresses, each leaf first,
 * kernel part first. Of the user's, all but the leaf are return addresses, or one more than the address that a signal
 * interrupted: what they name is the byte before. `id` covers (tgid, start) and all addresses, and is never 0 nor STACK_ID_NONE.
 */
struct stack_record {
	u32 type; /* RECORD_STACK */
	u32 window;
	u64 id;
	u64 mono_ns;
	u64 start; /* of the process */
	u32 tgid;
	u16 nr_kernel;
	u16 nr_user;
	u8 walk_end; /* enum walk_end */
	u8 source;
	u16 nr_fp; /* steps that went by the frame pointer */
	u32 call; /* off-CPU: the call that waits, as call_of_regs() says */
	/* u64 ips[] follows */
};
SHARED_ASSERT(sizeof(struct stack_record) == 48);

#define STACK_ID_NONE 0ULL /* the count is kept, its stack was lost or not wanted */

/* What is counted of processes beside their time. The first ones the kernel counts itself, for each thread. */
enum counter {
	COUNTER_MINOR_FAULTS = 0,
	COUNTER_MAJOR_FAULTS, /* that had to wait for a disk */
	COUNTER_VOLUNTARY_SWITCHES, /* it waited for something */
	COUNTER_INVOLUNTARY_SWITCHES, /* another thread was put in its place */
	COUNTER_MIGRATIONS, /* to another CPU */
	COUNTER_OF_THREADS,
	/* Of processes, read at switches: hardware.bpf.h. First the spans in which the others were read. */
	COUNTER_SPANS = COUNTER_OF_THREADS,
	COUNTER_CYCLES, /* from here on in the order of PERF_COUNT_HW_* */
	COUNTER_INSTRUCTIONS,
	COUNTER_CACHE_REFERENCES,
	COUNTER_CACHE_MISSES,
	COUNTER_BRANCHES,
	COUNTER_BRANCH_MISSES,
	COUNTER_N
};
#define HARDWARE_COUNTERS (COUNTER_N - COUNTER_CYCLES)

/*
 * A stack may be counted without a walk, and without a record, for so many windows after the one in which it was
 * walked: so long the daemon remembers it.
 */
#define REUSE_WINDOWS 8

/* A thread's exact totals at its end: the last word on (tid, thread_start). */
struct thread_record {
	u32 type; /* RECORD_THREAD_EXIT, 0 from the iterator */
	u32 tgid;
	u32 tid;
	u32 state; /* THREAD_*; bits 8..15: enum off_cause of the wait in progress */
	u64 start; /* of the process */
	u64 thread_start; /* of this thread: start_boottime */
	u64 off_ns; /* all ended waits that began blocked, run-queue delay after wakeup included */
	u64 off_n;
	u64 preempted_ns; /* all ended involuntary waits, and sched_yield */
	u64 preempted_n;
	u64 yield_ns; /* the part of preempted_ns that was asked for: sched_yield */
	u64 yield_n;
	u64 run_delay_ns; /* task->sched_info.run_delay inside the waits of off_ns and the one in progress */
	u64 since_mono_ns; /* begin of the wait in progress, or 0 */
	u64 now_mono_ns; /* when this record was made */
	u64 counters[COUNTER_OF_THREADS]; /* since its life began */
};
SHARED_ASSERT(sizeof(struct thread_record) == 144);
#define THREAD_OFF_CPU 1U
#define THREAD_WAIT_FOLLOWS 2U /* the iterator wrote a wait_record behind this */
#define THREAD_WAIT_REVOKED 8U /* that wait ended meanwhile, and the resume told all of it */
#define THREAD_UNREAD 4U /* in a switch whenever the iterator looked: it is there, totals are not */

/* A wait in progress that is kept, at a bucket's end. */
struct wait_record {
	u64 ns; /* weighted, less what earlier buckets were told */
	u64 ip, sp, fp; /* user registers */
	u32 task_state;
	u32 nr_kernel;
	u32 word; /* size of a saved register, 0: there is no user side */
	u32 call; /* as in a stack_record */
	/* u64 ips[nr_kernel] follows, leaf first */
};
SHARED_ASSERT(sizeof(struct wait_record) == 48);

/* Where the stack of a thread that resumes is taken. */
enum resume_hook {
	RESUME_SCHED_EXIT = 0, /* tp_btf/sched_exit_tp, 6.16 */
	RESUME_KPROBE = 1, /* kprobe on finish_task_switch */
	RESUME_SPLIT = 2, /* kernel side at the switch, user side at the next sys_exit */
};

/* ---- counts ---------------------------------------------------------------------------------- */

struct on_cpu_key {
	u64 stack;
	u64 start;
	u32 tgid;
	u32 tid;
};
SHARED_ASSERT(sizeof(struct on_cpu_key) == 24);

struct on_cpu_value {
	u64 samples;
	u64 ns; /* sum of the true gaps between ticks that these samples stand for, or of events */
};

struct off_cpu_key {
	u64 stack;
	u64 start;
	u32 tgid;
	u32 tid;
	u32 cause; /* enum off_cause */
	u32 task_state; /* TASK_* bits at switch-out: 1 interruptible (S), 2 uninterruptible (D), ... */
};
SHARED_ASSERT(sizeof(struct off_cpu_key) == 32);

struct off_cpu_value {
	u64 samples; /* waits kept */
	u64 events_q8; /* waits they stand for, in 1/256 */
	u64 ns; /* weighted */
};

/* Who ended waits. The first part is the waiting thread's, as in off_cpu_key; its cause is OFF_BLOCKED. */
struct wake_key {
	u64 stack;
	u64 start;
	u32 tgid;
	u32 tid;
	u32 task_state;
	u32 flags; /* WAKER_* */
	u64 by_stack;
	u64 by_start;
	u32 by_tgid; /* 0 with WAKER_INTERRUPT */
	u32 by_tid;
};
SHARED_ASSERT(sizeof(struct wake_key) == 56);
#define WAKER_INTERRUPT 1U /* an interrupt, or the idle loop */
#define WAKER_SERVED \
	2U /* an interrupt that the thread asked for; if another one came, the stack tells */

/* Kernel functions below which an interrupt is the work of the thread that runs. */
enum own_place {
	OWN_SERVES = 0, /* enables soft interrupts, and serves those that wait */
	OWN_FAULTS, /* page faults of user space; x86 only */
	OWN_PLACES
};

struct wake_value {
	u64 waits; /* kept */
	u64 events_q8; /* waits they stand for, in 1/256 */
	u64 ns; /* from falling asleep to being woken, weighted */
	u64 max_ns;
};

/* nr outside 0..16382 is SYSCALL_NR_INVALID: no table is ever indexed by a number that a process made up. */
enum syscall_abi {
	SYSCALL_ABI_NATIVE = 0,
	SYSCALL_ABI_COMPAT = 1, /* int 0x80 and ia32 on x86-64; arm on arm64 */
	SYSCALL_ABI_X32 = 2,
};
#define SYSCALL_NR_INVALID 0x3fffU
#define SYSCALL_KEY(abi, nr, err) ((u32)(abi) << 28 | ((u32)(nr)&0x3fff) << 12 | ((u32)(err)&0xfff))
#define SYSCALL_KEY_ABI(k) ((k) >> 28 & 3)
#define SYSCALL_KEY_NR(k) ((k) >> 12 & 0x3fff)
#define SYSCALL_KEY_ERRNO(k) ((k)&0xfff) /* 0: the call succeeded */

/*
 * The call that a thread waits in: SYSCALL_KEY() whose lower 12 bits hold, of a futex call, its operation and whether it
 * has a timeout.
 */
#define CALL_NONE (~0U)
#define CALL_FUTEX_TIMED 0x200U

struct syscall_key {
	u64 start;
	u32 tgid;
	u32 call; /* SYSCALL_KEY() */
};
SHARED_ASSERT(sizeof(struct syscall_key) == 16);

/* value: u64 calls */

/* Calls whose stack was taken. */
struct caller_key {
	u64 stack;
	u64 start;
	u32 tgid;
	u32 call; /* SYSCALL_KEY() */
};
SHARED_ASSERT(sizeof(struct caller_key) == 24);

/* value: u64 calls, for which those that were drawn stand */

/* In front of the count map, one per CPU and set: the calls that this CPU repeats. */
#define CALL_LINES_BITS 9
#define CALL_LINES (1U << CALL_LINES_BITS)
struct call_line {
	struct syscall_key key;
	u64 calls; /* not yet in the count map; 0: the line is free */
};
struct call_cache {
	u64 seen; /* calls that came here */
	struct call_line lines[CALL_LINES];
};
SHARED_ASSERT(sizeof(struct call_cache) == 8 + CALL_LINES * 24);

/*
 * How long calls took and how many bytes they moved: of those that begin in a span, which the daemon draws at random.
 * The key is that of the calls, with a bin of the value in the place of the errno; bin 0 is 0, bin b holds the values
 * from 2^(b-1) up to but not including 2^b.
 */
#define DETAIL_LATENCY 1U /* as enum call_aspect */
#define DETAIL_BYTES 2U
#define DETAIL_KEY(call, kind, bin) (((call) & ~0xfffU) | (u32)(kind) << 30 | (u32)(bin))
#define DETAIL_BINS 64
struct call_detail {
	u64 calls; /* for which the measured ones stand */
	u64 sum; /* ns or bytes, of all these */
	u64 max;
	u64 measured;
};

/* In front of the map, as call_cache is. */
#define DETAIL_LINES_BITS 8
#define DETAIL_LINES (1U << DETAIL_LINES_BITS)
struct detail_line {
	struct syscall_key key;
	struct call_detail value;
};
struct detail_cache {
	struct detail_line lines[DETAIL_LINES];
};
SHARED_ASSERT(sizeof(struct detail_cache) == DETAIL_LINES * 48);

/* The time in which a call must begin, or a thread be woken, monotonic: begin <= t < end. */
struct time_span {
	u64 begin, end;
};

/*
 * When a thread's call in progress began. Tids are spread over the slots: the lowest bits of a stamp tell whose it is,
 * the next for how many calls (a power of two) this one stands, the others the time.
 */
#define TID_BITS 22 /* PID_MAX_LIMIT */
#define STAMP_SHIFT_BITS 3

/* Calls by ABI and number that return how many bytes they moved. */
#define SIZED_ABIS 3
#define SIZED_WORDS 16

enum futex_class {
	FUTEX_CLASS_WAIT = 1, /* WAIT, WAIT_BITSET, futex_wait */
	FUTEX_CLASS_LOCK_PI = 2, /* LOCK_PI, LOCK_PI2 */
	FUTEX_CLASS_REQUEUE_PI = 3, /* WAIT_REQUEUE_PI */
	FUTEX_CLASS_WAITV =
		4, /* futex_waitv: the address is that of the first waiter entry's futex */
	/* Calls that wake. */
	FUTEX_CLASS_WAKE = 16, /* WAKE, WAKE_BITSET, futex_wake */
	FUTEX_CLASS_REQUEUE = 17, /* REQUEUE, CMP_REQUEUE, futex_requeue */
	FUTEX_CLASS_WAKE_OP = 18, /* WAKE_OP */
	FUTEX_CLASS_UNLOCK_PI = 19, /* UNLOCK_PI */
	FUTEX_CLASS_CMP_REQUEUE_PI = 20, /* CMP_REQUEUE_PI */
};

enum futex_outcome {
	FUTEX_WOKEN = 1,
	FUTEX_TIMED_OUT = 2,
	FUTEX_INTERRUPTED = 3,
	FUTEX_AGAIN = 4, /* slept, and yet EAGAIN: a PI race */
	FUTEX_FAILED = 5, /* any other error */
};

struct futex_key {
	u64 stack;
	u64 start;
	u64 address; /* user address of the futex word; 0: of those that found no place of their own */
	u32 tgid;
	u32 tid;
	u16 futex_class;
	u16 outcome;
	u32 flags; /* FUTEX_SHARED */
};
SHARED_ASSERT(sizeof(struct futex_key) == 40);
#define FUTEX_SHARED 1U /* without FUTEX_PRIVATE_FLAG */

/* Waits by length: bin n begins with 2^(n + 9) ns, the first one with 0; the last one (4.3 s) has no end. */
#define FUTEX_BINS 24
#define FUTEX_BIN_LOG2(bin) ((bin) + 9)

struct futex_value {
	u64 waits;
	u64 ns;
	u64 max_ns;
	u32 bins[FUTEX_BINS];
};
SHARED_ASSERT(sizeof(struct futex_value) == 24 + 4 * FUTEX_BINS);

/* What one window saw of a lock beside its waits. The daemon clears it when the window is over. */
struct lock_window {
	u32 most; /* threads that waited at once, counted when one more begins */
	u32 met; /* waits that began while another one was going on */
	u32 wakes; /* calls that woke somebody, */
	u32 woken; /* so many threads together */
	u32 idle_wakes; /* calls that woke nobody */
	u32 wake_class; /* of the latest of these calls */
};

/*
 * A lock for which threads wait, or did lately: one of LOCK_WAYS places in a table without locks, found by a hash of
 * process and address. It belongs to its lock while threads wait for it, and for a whole window after that when there
 * is more to tell of it than that one waited.
 */
struct lock_slot {
	u64 address;
	u64 start; /* of the process */
	u32 tgid;
	u32 flags; /* FUTEX_SHARED */
	u32 waiters; /* now, as far as they began to wait since we came */
	u32 claims; /* 1 while the slot gets a new lock */
	u32 last; /* window in which it was used */
	u32 generation; /* how many locks it had */
	u32 marks; /* threads that are marked as holding it; more where a mark was lost with its thread */
	struct lock_window window[2]; /* by window set */
	u32 unused[9]; /* up to two cache lines */
};
SHARED_ASSERT(sizeof(struct lock_slot) == 128);
#define LOCK_WAYS 4
#define LOCK_SLOTS_MIN 4096
#define LOCK_SLOTS_MAX 32768

enum lock_aspect {
	LOCK_WAKE = 1, /* a call that woke somebody; ns: threads */
	LOCK_LOOK = 2, /* what the holder did when a thread began to wait */
	LOCK_HELD = 3, /* what the holder did from then until it woke somebody; ns */
};
enum lock_holder {
	HOLDER_UNKNOWN = 0, /* the word does not tell, or names no thread of the process */
	HOLDER_RUNNING = 1,
	HOLDER_RUNNABLE = 2, /* preempted, or woken and without a CPU yet */
	HOLDER_BLOCKED = 3,
};

/* Samples of who wakes and who holds. The thread is the waker or the holder; the lock is that of the waiter. */
struct lock_key {
	u64 stack;
	u64 start;
	u64 address;
	u64 lock_start;
	u32 tgid;
	u32 tid;
	u32 lock_tgid;
	u8 aspect; /* enum lock_aspect */
	u8 state; /* enum lock_holder */
	u8 futex_class; /* of the call that wakes */
	u8 flags; /* FUTEX_SHARED */
};
SHARED_ASSERT(sizeof(struct lock_key) == 48);
struct lock_value {
	u64 n;
	u64 ns; /* time, or threads woken */
	u64 max_ns;
};

/* ---- locks of the kernel ----------------------------------------------------------------------- */

enum kernel_lock_kind {
	KERNEL_LOCK_OTHER = 0,
	KERNEL_LOCK_SPINLOCK = 1,
	KERNEL_LOCK_RWLOCK_READ = 2,
	KERNEL_LOCK_RWLOCK_WRITE = 3,
	KERNEL_LOCK_MUTEX = 4,
	KERNEL_LOCK_RWSEM_READ = 5,
	KERNEL_LOCK_RWSEM_WRITE = 6,
	KERNEL_LOCK_PERCPU_READ = 7,
	KERNEL_LOCK_PERCPU_WRITE = 8,
	KERNEL_LOCK_RT_MUTEX = 9,
	KERNEL_LOCK_SEMAPHORE = 10,
	KERNEL_LOCK_KINDS
};

/* The innermost ones, our own programs' and the tracepoint's among them. */
#define KERNEL_LOCK_FRAMES 12

/* Waits of one process for one kind of lock at one place, of one window. Written by programs without any lock. */
struct kernel_lock {
	u64 id; /* a hash of all that tells it from others; 0: free */
	u64 start;
	u64 waits;
	u64 ns;
	u64 max_ns;
	u32 check; /* another hash of the same */
	u32 claims; /* 1 while it is filled */
	u32 tgid;
	u16 kind; /* enum kernel_lock_kind */
	u16 nr;
	u64 ips[KERNEL_LOCK_FRAMES]; /* leaf first */
};
SHARED_ASSERT(sizeof(struct kernel_lock) == 56 + 8 * KERNEL_LOCK_FRAMES);
#define KERNEL_LOCK_WAYS 8

/* A wait in progress. */
struct kernel_wait {
	u64 lock;
	u64 since;
	u64 id;
	u64 start;
	u32 check;
	u32 tid; /* 0: free */
	u32 tgid;
	u16 kind;
	u16 nr;
	u64 ips[KERNEL_LOCK_FRAMES];
};
#define KERNEL_WAIT_WAYS 2

/* Those who spin do not leave their CPU; what interrupts them may spin as well. */
#define KERNEL_SPINS 4
struct kernel_spins {
	u32 depth;
	u32 walks; /* in this stretch of time */
	u64 stretch;
	struct kernel_wait wait[KERNEL_SPINS];
};

/* ---- hardware counters --------------------------------------------------------------------------- */

struct process_key {
	u64 start;
	u32 tgid;
	u32 pad;
};
SHARED_ASSERT(sizeof(struct process_key) == 16);

/* What is read stands for more: n and ns are of all the process's time, as far as chance has it. */
struct hardware_value {
	u64 spans; /* as many as were read */
	u64 ns; /* of CPU time, of all spans */
	struct {
		u64 n;
		u64 ns; /* of CPU time in which this one counted: it may have been off, or another's */
	} counters[HARDWARE_COUNTERS];
};
SHARED_ASSERT(sizeof(struct hardware_value) == 16 + 16 * HARDWARE_COUNTERS);

/* As struct bpf_perf_event_value has it. */
struct hardware_reading {
	u64 counter;
	u64 enabled, running; /* ns */
};

/* Of a CPU. */
struct hardware_cpu {
	u64 until; /* the interval ends with the first switch from then on */
	u64 since; /* the latest switch that was looked at, */
	struct process_key key; /* to this process, */
	u32 tid; /* and thread, or 0: idle */
	u32 open; /* this interval is counted, */
	u32 shift; /* 2^shift-fold */
	u32 switches; /* in this interval, so far */
	u64 refused; /* spans that found no room in the map */
	struct hardware_reading base[HARDWARE_COUNTERS]; /* as read then */
};
SHARED_ASSERT(sizeof(struct hardware_cpu) == 56 + 24 * HARDWARE_COUNTERS);

/* ---- accounting -------------------------------------------------------------------------------- */

/* Per CPU, per window set, per source. */
struct account {
	u64 seen; /* events that reached the program (ticks, sampled waits, calls, futex waits that slept) */
	u64 stored; /* events that reached a count map or cache, idle ticks not included */
	u64 idle; /* on-CPU only: ticks that hit the idle loop */
	u64 idle_ns;
	u64 walked; /* off-CPU only: waits whose stack was walked, */
	u64 reused; /* and those whose stack was known; */
	u64 timed; /* so many of both were timed, */
	u64 timed_ns; /* and took so long together */
	u64 ns; /* on-CPU only: time that stored samples stand for */
	u64 lost_ns; /* on-CPU only: time of ticks that were skipped or could not be counted */
	u64 lost[LOSS_N];
};

/* ---- sampling clock ---------------------------------------------------------------------------- */

/* One per CPU id; the daemon writes all but `last`. Monotonic nanoseconds. A cache line each. */
struct tick_cpu {
	u64 opened; /* time counts from here: the event was opened, or all before is booked */
	u64 redrawn; /* its period was set, which starts the period anew */
	u64 period;
	u64 last; /* tick */
	u64 pad[4];
};
SHARED_ASSERT(sizeof(struct tick_cpu) == 64);

/* Kernel code in which a CPU waits for work. */
#define MAX_IDLE_RANGES 32
struct idle_range {
	u64 start, size;
};
