/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data model: what a bucket is while it is filled, stored, read back, merged and exported.
 *
 *   dict     strings, binaries, frames, stacks, series, locks, each interned once and named by a small id
 *   columns  the samples of one profile type: ids into a dict, and values
 *   bucket   one stretch of time: metadata, accounting, four columns, one dict
 *   profile  a merge of many buckets for one type, with a dict of its own: what queries return and
 *            exporters read
 *
 * Ids begin at 1; 0 means none (string 0 is ""). All strings are valid UTF-8 without control characters.
 * Nothing here is thread-safe: an object belongs to one thread at a time and is handed over whole.
 */
#pragma once

#include "base/index.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "model/hardware.h"

enum profile_type {
	PROFILE_ON_CPU = 0,
	PROFILE_OFF_CPU = 1,
	PROFILE_SYSCALLS = 2,
	PROFILE_FUTEX = 3,
	PROFILE_TYPE_N
};

/* "on-cpu", "off-cpu", "syscalls", "futex"; NULL outside. */
const char *profile_type_name(enum profile_type type);
int profile_type_from_name(const char *name); /* enum profile_type or -EINVAL */
/* "nanoseconds" or "calls". */
const char *profile_type_unit(enum profile_type type);

/* Reasons are enum loss of bpf/sysprofd.h; the count here is asserted to be the same in profile.c. */
#define LOSS_REASONS 16
const char *loss_reason_name(unsigned reason); /* "tick-skipped", "count-full", ... */
/* The event was counted and only its stack is missing: it is among the stored ones. */
bool loss_keeps_weight(unsigned reason);

/* ---- dictionary -------------------------------------------------------------------------------- */

enum binary_kind {
	BINARY_ELF = 1, /* a mapped file */
	BINARY_KERNEL = 2, /* vmlinux, a module, a BPF program: named when the frame is made */
	BINARY_VDSO = 3,
	BINARY_ANON = 4, /* executable memory without a file: JIT */
	BINARY_UNKNOWN = 5, /* no mapping covers the address */
};

struct binary {
	uint32_t name; /* base name: "libc.so.6", "[kernel]", "[vdso]", "[anon]" */
	uint32_t path; /* as the process saw it */
	uint32_t build_id; /* lower-case hexadecimal, or 0 */
	uint32_t kind; /* enum binary_kind */
	uint64_t dev; /* identity where there is no build-id; makedev() form */
	uint64_t ino;
	uint64_t generation; /* ctime in ns: a file rewritten in place is another binary;
				with a build-id: who says so, 0 for root */
};

enum frame_kind {
	FRAME_NATIVE = 1,
	FRAME_KERNEL = 2,
	FRAME_JIT = 3, /* until it is named, offset is the address */
	FRAME_MARKER = 4, /* [truncated], [unknown], [other], ...: its name says why */
};
#define MARKER_WOKEN "[woken by]"

enum frame_flags {
	FRAME_NAMED = 1, /* name is the final word (it may be 0: no symbol covers the offset) */
	FRAME_INLINE = 2, /* inlined into the frame before it in the stack, at the same place */
};

struct frame {
	uint32_t binary; /* 0 for markers */
	uint32_t name; /* as people read it, demangled; 0: print binary+0xoffset */
	uint32_t system_name; /* as in the symbol table, 0 when equal to name */
	uint32_t file; /* source file, or 0 */
	uint32_t line;
	uint16_t kind; /* enum frame_kind */
	uint16_t flags; /* enum frame_flags */
	uint64_t
		offset; /* file offset of the instruction (ELF), offset from _stext (kernel); callers'
			    addresses are return addresses minus 1 */
};

/* A stack is the id of its leaf; parents lead to the root, whose parent is 0. A parent's id is smaller. */
struct stack {
	uint32_t parent;
	uint32_t frame;
};

enum label {
	LABEL_COMM = 0, /* the leader's comm */
	LABEL_EXE, /* path of the executable */
	LABEL_THREAD, /* this thread's comm */
	LABEL_UNIT, /* systemd unit, with its suffix */
	LABEL_CGROUP, /* path below the mount */
	LABEL_CONTAINER, /* 64 hex digits, or a runtime's own name */
	LABEL_POD, /* Kubernetes pod */
	LABEL_NAMESPACE, /* Kubernetes namespace */
	LABEL_BUILD_ID, /* of the executable */
	LABEL_N
};
const char *label_name(enum label label); /* "comm", "exe", ... as KEYs of the command line */

struct series {
	uint32_t label[LABEL_N]; /* string ids */
	uint32_t pid; /* host pid; 0 above 10 s buckets and for [other] */
	uint32_t tid; /* 0: the whole process (syscalls) */
	uint32_t uid;
	uint32_t flags; /* enum series_flags */
	uint32_t unused; /* 0, for a hole: series are hashed and compared as bytes */
	uint64_t start; /* of the process: ns since boot */
};
_Static_assert(sizeof(struct series) == (LABEL_N + 5) * sizeof(uint32_t) + sizeof(uint64_t),
	       "a hole in struct series would have to be named");

enum series_flags {
	SERIES_KERNEL_THREAD = 1,
	SERIES_PRIVATE = 2, /* set-uid or not dumpable: visible to root and the group only */
	SERIES_OTHER = 4, /* stands for what the limit on series folded */
};

struct lock {
	uint32_t binary; /* the mapping that holds the word, or 0 */
	uint32_t name; /* symbol, or 0: print binary+0xoffset or the address */
	uint32_t flags; /* 1: shared memory, 2: FRAME_NAMED's meaning: name is final */
	uint32_t pid; /* the process, 0 for shared memory */
	uint64_t address; /* as the process saw it */
	uint64_t offset; /* file offset within binary */
};
/* A bucket tells so many locks apart; the others are one of this name, without binary, process and address. */
#define LOCKS_PER_BUCKET 2000
#define LOCK_OTHER "[other]"

struct dict {
	char **strings; /* [0] is "" */
	size_t n_strings, cap_strings;
	struct binary *binaries; /* [0] unused, likewise below */
	size_t n_binaries, cap_binaries;
	struct frame *frames;
	size_t n_frames, cap_frames;
	struct stack *stacks;
	size_t n_stacks, cap_stacks;
	struct series *series;
	size_t n_series, cap_series;
	struct lock *locks;
	size_t n_locks, cap_locks;
	size_t bytes; /* held by strings */
	uint64_t seed; /* of the hashes: names come from strangers */

	/* Built when they are first asked; ids from indexed_* on are not in them yet. */
	struct index string_index, binary_index, frame_index, stack_index, series_index, lock_index;
	size_t indexed_strings, indexed_binaries, indexed_frames, indexed_stacks, indexed_series,
		indexed_locks;
	/* Equal elements may have several ids: it was read from a damaged file, or frames got their names since. */
	bool repeats;
};

/* n_* counts include the unused element 0, so valid ids are 1 .. n_* - 1. */
int dict_new(struct dict **ret);
struct dict *dict_free(struct dict *d);
DEFINE_CLEANUP(struct dict *, dict_free)
int dict_copy(const struct dict *d, struct dict **ret);

/*
 * Each returns the id of the equal element, adding it when new; -ENOMEM or -ENOSPC (2^31 elements).
 * Equality: binary: all fields, build_id alone when set; frame: (binary, offset, kind), and the name for
 * markers, JIT and inlined; stack: (parent, frame); series: all fields; lock: (pid, address, binary, offset, flags & 1).
 * When an equal frame or lock exists unnamed and the new one is named, it takes the name.
 */
int64_t dict_string(struct dict *d, const char *s);
int64_t dict_string_n(struct dict *d, const char *s, size_t len);
int64_t dict_binary(struct dict *d, const struct binary *b);
int64_t dict_frame(struct dict *d, const struct frame *f);
int64_t dict_stack(struct dict *d, uint32_t parent, uint32_t frame);
int64_t dict_series(struct dict *d, const struct series *s);
int64_t dict_lock(struct dict *d, const struct lock *l);

/* The same for an element that is known to be new: nothing is looked up, or hashed before somebody asks. */
int64_t dict_append_string(struct dict *d, const char *s);
int64_t dict_append_binary(struct dict *d, const struct binary *b);
int64_t dict_append_frame(struct dict *d, const struct frame *f);
int64_t dict_append_stack(struct dict *d, uint32_t parent, uint32_t frame);
int64_t dict_append_series(struct dict *d, const struct series *s);
int64_t dict_append_lock(struct dict *d, const struct lock *l);

/* After elements were changed or moved: the indices are built again when they are asked. */
void dict_forget_indices(struct dict *d);

/* A marker frame such as "[truncated]". */
int64_t dict_marker(struct dict *d, const char *name);

static inline const char *dict_str(const struct dict *d, uint32_t id)
{
	return id < d->n_strings ? d->strings[id] : "";
}

/*
 * Translates ids of one dictionary into another's, each at most once: a bucket into a day, a day into a
 * query's answer. Tables are filled lazily; 0 maps to 0. As long as the target holds nothing but what came
 * through this map, no element needs to be looked for there.
 */
struct dict_map_table {
	uint32_t *ids;
	size_t cap;
	size_t appended; /* elements of the target if all of them came this way, 0 included */
};
struct dict_map {
	const struct dict *from;
	struct dict *to;
	struct dict_map_table string, binary, frame, stack, series, lock;
};
void dict_map_init(struct dict_map *m, const struct dict *from, struct dict *to);
void dict_map_done(struct dict_map *m);
int64_t dict_map_string(struct dict_map *m, uint32_t id);
int64_t dict_map_binary(struct dict_map *m, uint32_t id);
int64_t dict_map_frame(struct dict_map *m, uint32_t id);
int64_t dict_map_stack(struct dict_map *m, uint32_t id);
int64_t dict_map_series(struct dict_map *m, uint32_t id);
int64_t dict_map_lock(struct dict_map *m, uint32_t id);
/* The aux of a row of that type and key. */
int64_t dict_map_aux(struct dict_map *m, enum profile_type type, uint32_t key, uint32_t aux);

/*
 * Drops what nobody uses: after init, mark (with 1) the stacks, series and locks that stay; what they refer to
 * stays with them. Afterwards the tables hold the new ids, which keep the order of the old; 0: gone.
 */
struct dict_shrink {
	uint32_t *string, *binary, *frame, *stack, *series, *lock;
};
int dict_shrink_init(struct dict_shrink *s, const struct dict *d) _warn_unused_;
void dict_shrink_done(struct dict_shrink *s);
/* References of d must lead to what exists, as those of a dictionary that was filled by interning do. */
void dict_shrink(struct dict *d, struct dict_shrink *s);

/*
 * What a person reads for a frame or a lock: its name, else "libfoo.so+0x1234", "[unknown]+0x...". Written
 * into buf, cut at its end; returns buf.
 */
const char *frame_text(const struct dict *d, uint32_t frame, char *buf, size_t size);
const char *lock_text(const struct dict *d, uint32_t lock, char *buf, size_t size);
/* A stack as "root;...;leaf", appended; a ';' inside a name is \x3b and a backslash is doubled. */
void stack_text(const struct dict *d, uint32_t stack, struct strbuf *out);

/* ---- samples ----------------------------------------------------------------------------------- */

/*
 * Column meanings by type:
 *
 *            key                              aux    count            value       max
 *  on-cpu    0                                0      samples          us          0
 *  off-cpu   OFF_KEY(cause, state, total)     0      events           us          0
 *            | OFF_WAIT_KEY(kind, idle)
 *  syscalls  SYSCALL_KEY(abi, nr, errno)      0      calls            0           0
 *  futex     FUTEX_KEY(class, outcome)        lock   waits            us          longest us
 *
 * off-cpu holds two kinds of rows: exact totals per thread (total = 1, stack 0, one per cause), and
 * weighted samples (total = 0) that estimate how those totals spread over stacks. The same for futex
 * is exact in both. (series, stack, key, aux) is unique within a bucket after columns_sort_merge().
 *
 * Aspects. This is what a type is about, its aspect 0, and all that a query sees unless it asks for more. Rows of
 * other aspects, told by high bits of the key, explain it:
 *
 *                      key                               aux        count         value          max
 *  ON_COUNTERS         enum counter                      0          that many     0, or us of    0
 *                      from COUNTER_SPANS on estimates                            CPU time that
 *                      from a part of the time                                    they are of
 *  ON_INSTRUCTIONS     0                                 0          samples        instructions   0
 *                      of a burst by another hardware event, which sampled them beside it; never stored
 *  OFF_WAKES           OFF_KEY(cause, ..)                series: of waits woken   us waited      longest us
 *                                                        the waker                so
 *                      the row's series waited; its stack is where, MARKER_WOKEN, and that of the waker, each from
 *                      its root. Waits that ended, whole, from falling asleep to the waking; weighted to stand for all
 *  CALL_LATENCY        CALL_KEY(abi, nr, bin of ns)      0          calls         us             longest us
 *  CALL_BYTES          CALL_KEY(abi, nr, bin of bytes)   0          calls         bytes          largest
 *                      of some calls, weighted to stand for all; bin b > 0: from 2^(b-1) to below 2^b
 *  CALL_BASIS          CALL_KEY(abi, nr, 0)              0          calls timed   calls sized    0
 *                      so many of them these estimates rest on
 *  CALL_STACKS         CALL_STACK_KEY(SYSCALL_KEY)       0          calls         0              0
 *                      drawn at random with their stack, weighted to stand for all
 *  FUTEX_HISTOGRAM     class, log2 of ns                 lock       waits         0              0
 *  FUTEX_WAKES         class, 0                          lock       calls         threads woken  0
 *                      class, WAKES_NOBODY               lock       calls         0              0
 *                      class, WAKES_SAMPLED              lock       calls         threads woken  most at once
 *                      these calls are among the first kind, and have the waker's stack
 *  FUTEX_HOLDER        HOLDER_DETAIL(state, wait kind)   lock       waits that    us in that     longest us
 *                                                                   met it so     state
 *                      series and stack are the holder's; the time is that of holds while somebody waited
 *  FUTEX_CROWD         0                                 lock       waits that    0              most waiters
 *                                                                   met others                   at once
 *  FUTEX_KERNEL        0, enum kernel_lock_kind          0          waits         us             longest us
 *                      for a lock of the kernel; series is the process, the stack the kernel's part alone
 */
#define OFF_KEY(cause, state, total) \
	((uint32_t)(cause) | (uint32_t)(state) << 4 | (uint32_t)(total) << 31)
#define OFF_KEY_CAUSE(k) ((k)&15)
#define OFF_KEY_STATE(k) ((k) >> 4 & 0xffff) /* TASK_* bits */
#define OFF_WAIT_KEY(kind, idle) ((uint32_t)(kind) << 20 | (uint32_t)(idle) << 25)
#define OFF_KEY_WAIT(k) ((k) >> 20 & 31) /* enum wait_kind */
#define OFF_KEY_IDLE(k) ((k) >> 25 & 1)
#define OFF_STATE_UNKNOWN 0xffffU /* time that no sample tells about; its name is "" */
#define OFF_KEY_TOTAL(k) ((k) >> 31)
#define ON_ASPECT(aspect) ((uint32_t)(aspect) << 28)
#define ON_KEY_COUNTER(k) ((k)&255)
#define OFF_ASPECT(aspect) ((uint32_t)(aspect) << 28)
#define FUTEX_KEY(cls, outcome) ((uint32_t)(cls) | (uint32_t)(outcome) << 8)
#define FUTEX_KEY_CLASS(k) ((k)&255)
#define FUTEX_KEY_OUTCOME(k) ((k) >> 8 & 255)
#define FUTEX_DETAIL(detail) ((uint32_t)(detail) << 16)
#define FUTEX_KEY_DETAIL(k) ((k) >> 16 & 0xfff)
#define WAKES_NOBODY 1
#define WAKES_SAMPLED 2
#define HOLDER_DETAIL(state, kind) ((uint32_t)(state) | (uint32_t)(kind) << 4)
#define HOLDER_DETAIL_STATE(d) ((d)&15) /* enum lock_holder */
#define HOLDER_DETAIL_WAIT(d) ((d) >> 4 & 31)
#define FUTEX_ASPECT(aspect) ((uint32_t)(aspect) << 28)
/* SYSCALL_KEY() with a number in the errno's place. */
#define CALL_KEY(aspect, abi, nr, bin) ((uint32_t)(aspect) << 30 | SYSCALL_KEY(abi, nr, bin))
#define CALL_KEY_BIN(k) SYSCALL_KEY_ERRNO(k)
/* Two bits tell four aspects apart; the fifth has those of CALL_BASIS, and the errno, plus one, where that has 0. */
#define CALL_STACK_KEY(call) \
	((uint32_t)CALL_BASIS << 30 | ((call) & ~0xfffU) | MIN(SYSCALL_KEY_ERRNO(call) + 1, 0xfffU))
#define CALL_OF_STACK_KEY(k) (((k) & ~((uint32_t)CALL_BASIS << 30)) - 1)

enum on_aspect {
	ON_SAMPLES = 0,
	ON_COUNTERS = 1,
	ON_INSTRUCTIONS = 2,
};
enum off_aspect { OFF_WAITS = 0, OFF_WAKES = 1 };
enum call_aspect {
	CALL_COUNT = 0,
	CALL_LATENCY = 1,
	CALL_BYTES = 2,
	CALL_BASIS = 3,
	CALL_STACKS = 4
};
enum futex_aspect {
	FUTEX_WAITS = 0,
	FUTEX_HISTOGRAM = 1,
	FUTEX_WAKES = 2,
	FUTEX_HOLDER = 3,
	FUTEX_CROWD = 4,
	FUTEX_KERNEL = 5
};

/* The bits of a key that hold its aspect, and what they hold. */
uint32_t aspect_mask(enum profile_type type);
unsigned row_aspect(enum profile_type type, uint32_t key);
/* Whether value and max are times. */
bool row_is_time(enum profile_type type, uint32_t key);
enum aux_kind { AUX_NONE, AUX_LOCK, AUX_SERIES };
/* What a row's aux names. */
enum aux_kind row_aux(enum profile_type type, uint32_t key);

/* What a blocked thread waited for. Values are stored. */
enum wait_kind {
	WAIT_UNKNOWN =
		0, /* no stack, or kernel addresses are hidden and the call does not tell; or it was runnable */
	WAIT_IO = 1, /* storage */
	WAIT_LOCK = 2, /* of the kernel */
	WAIT_SLEEP = 3, /* time, or a signal */
	WAIT_POLL = 4, /* any of many things: epoll, poll, select, a terminal, events */
	WAIT_FUTEX = 5,
	WAIT_PAGE_FAULT = 6, /* its own memory, from storage */
	WAIT_PIPE = 7,
	WAIT_SOCKET = 8,
	WAIT_CHILD = 9, /* wait4, vfork */
	WAIT_KERNEL_IDLE = 10, /* a thread of the kernel, for work */
	WAIT_OTHER = 11,
	WAIT_KIND_N
};
const char *wait_kind_name(
	unsigned kind); /* "io", "page-fault", ...; "" for 0 and what is no kind */

const char *off_cause_name(unsigned cause); /* "blocked", "run-queue", "preempted" */
const char *off_state_name(unsigned state); /* "S", "D", "R", "I", "T", ... */
/* enum counter of bpf/sysprofd.h; asserted in bucket.c. */
#define COUNTERS 12
#define COUNTERS_EXACT 5 /* so many are exact, the one behind them says what the others rest on */
#define COUNTERS_SPANS COUNTERS_EXACT
const char *counter_name(unsigned counter); /* "minor-faults", "cycles", ... */
const char *kernel_lock_name(unsigned kind); /* "mutex", "rwsem-write", ... */
const char *futex_class_name(unsigned cls); /* "wait", "lock-pi", ... */
const char *futex_outcome_name(unsigned outcome); /* "woken", "timeout", ... */
/* "read", "compat:writev", "x32:ioctl", "syscall_999", "[invalid]"; into buf when it must be made. */
const char *syscall_text(uint32_t key, char *buf, size_t size);
/* The number of a call by its name, where headers know it; -ENOENT. */
int syscall_number(unsigned abi, const char *name);
const char *errno_text(unsigned err, char *buf, size_t size); /* "EAGAIN" */

/*
 * A bucket has one more set of columns: units of work that services reported (PutWork). A row is (series 0,
 * stack = one marker frame whose name is `name{key="value",...}`, count = units).
 */
#define COLUMNS_WORK PROFILE_TYPE_N
#define COLUMNS_N (PROFILE_TYPE_N + 1)

struct columns {
	size_t n, cap;
	uint32_t *series, *stack, *key, *aux;
	uint64_t *count, *value, *max;
};
void columns_done(struct columns *c);
int columns_add(struct columns *c, uint32_t series, uint32_t stack, uint32_t key, uint32_t aux,
		uint64_t count, uint64_t value, uint64_t max);
/* Sorts by (series, stack, key, aux) and adds up equal rows; max takes the maximum. */
int columns_sort_merge(struct columns *c);

/*
 * Seen, stored and lost of one source over a stretch of time: seen = stored + idle + accounting_lost().
 * Reasons that keep the weight are listed in lost[] too, but are part of `stored`.
 */
struct accounting {
	uint64_t seen;
	uint64_t stored;
	uint64_t idle;
	uint64_t lost[LOSS_REASONS];
	uint64_t stored_us, idle_us, lost_us; /* on-cpu only */
	uint64_t rate_mhz; /* on-cpu: the rate asked for, in 1/1000 Hz per CPU */
	uint64_t threshold_us; /* off-cpu: T, the wait that is always kept */
	bool active; /* the collector ran */
	bool sampled; /* syscalls: counted in spans of the time, and scaled to all of it, */
	uint64_t counted_us; /* and so long were these; 0: nothing is known */
};
void accounting_add(struct accounting *a, const struct accounting *b);
uint64_t accounting_lost(
	const struct accounting *a); /* events lost, all reasons that lose the count */

enum gap_reason {
	GAP_NONE = 0,
	GAP_NOT_RUNNING, /* no daemon */
	GAP_STOPPED, /* the daemon did not get to drain: stopped, starved, suspended */
	GAP_CLOCK_STEP, /* the wall clock was set */
	GAP_STORE, /* recorded, but the store could not take it */
	GAP_DAMAGED, /* stored, but its checksum fails */
	GAP_NOT_SAMPLED, /* calls are counted in spans of the time, and none lay in it */
};
const char *gap_reason_name(enum gap_reason reason);

struct gap {
	uint64_t from_wall_ns, until_wall_ns;
	enum gap_reason reason;
};

/* What tasks of the host lacked: some of them at least, or all that were not idle (/proc/pressure). */
enum pressure {
	PRESSURE_CPU_SOME = 0,
	PRESSURE_IO_SOME,
	PRESSURE_IO_FULL,
	PRESSURE_MEMORY_SOME,
	PRESSURE_MEMORY_FULL,
	PRESSURE_N
};

/* Instructions that a burst by another hardware event sampled beside it: rows of ON_INSTRUCTIONS. */
struct instructions {
	bool sampled;
	char why_not[128]; /* where they were wanted and are not sampled: one clause; else "" */
	uint64_t total, samples; /* of a profile */
	uint64_t lost; /* samples, as accounting_lost() counts them */
};

#define BOOT_ID_LEN 32 /* hexadecimal, no dashes */

struct bucket_meta {
	uint64_t seq; /* given by the store; 0 before */
	char boot_id[BOOT_ID_LEN + 1];
	uint64_t start_wall_ns;
	uint64_t length_ns; /* nominal: 10 s; the first and last of a run are shorter */
	uint64_t covered_ns; /* monotonic time recorded */
	uint32_t cpus; /* online */
	uint32_t gap; /* enum gap_reason of the time before this bucket that was not covered */
	uint64_t busy_us; /* CPU time used by all CPUs, from /proc/stat */
	bool pressure_known; /* the kernel tells it (PSI) */
	uint64_t pressure_us[PRESSURE_N]; /* time in which tasks lacked it */
	struct accounting source[PROFILE_TYPE_N];
};

struct bucket {
	struct bucket_meta meta;
	struct dict *dict;
	struct columns columns[COLUMNS_N]; /* by enum profile_type, and COLUMNS_WORK */
	struct instructions instructions; /* of a burst, which is not stored */
};
int bucket_new(struct bucket **ret);
struct bucket *bucket_free(struct bucket *b);
DEFINE_CLEANUP(struct bucket *, bucket_free)
int bucket_copy(const struct bucket *b, struct bucket **ret);

/* ---- the answer to a query ----------------------------------------------------------------------- */

struct profile {
	enum profile_type type;
	unsigned event; /* enum sample_event of a recording: value counts such events; 0: time */
	uint64_t from_wall_ns,
		until_wall_ns; /* the bounds of the buckets that were used, half-open */
	uint64_t covered_ns;
	uint64_t
		counted_ns; /* of that; less where calls were counted in spans (accounting.sampled) */
	struct gap *gaps;
	size_t n_gaps, cap_gaps;
	uint64_t rate_mhz;
	uint64_t total; /* ns, or calls; off-cpu: the exact total */
	uint64_t samples; /* rows' count added up: samples, events, calls, waits */
	struct accounting accounting;
	struct instructions instructions; /* of a recording */
	bool truncated; /* max_nodes folded something into [other] */
	bool coarse; /* too many to hold apart: processes and threads have lost pid, tid, start, thread name */
	uint64_t omitted; /* stacks folded */
	struct dict *dict;
	struct columns columns; /* values in ns here, not us; off-cpu: scaled to the exact total */
};
/* "nanoseconds", "calls", or the event's name. */
const char *profile_unit(const struct profile *p);
int profile_new(enum profile_type type, struct profile **ret);
bool row_is_instructions(const struct profile *p, size_t row);
/* Total and samples of p->instructions, from the rows. */
void profile_sum_instructions(struct profile *p);
struct profile *profile_free(struct profile *p);
DEFINE_CLEANUP(struct profile *, profile_free)
