/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks in user space, explained: who waits, who holds, who wakes, and what follows from it. */
#pragma once

#include "query/query.h"

enum lock_class {
	LOCK_CLASS_UNKNOWN =
		0, /* a futex, and no function on the waiters' stacks says of what kind */
	LOCK_CLASS_MUTEX,
	LOCK_CLASS_CONDVAR,
	LOCK_CLASS_RWLOCK,
	LOCK_CLASS_SEMAPHORE,
	LOCK_CLASS_JOIN,
	LOCK_CLASS_BARRIER,
	LOCK_CLASS_RUNTIME, /* a language's own locks */
	LOCK_CLASS_SCHEDULER, /* a thread of a language's scheduler that has nothing to run */
	LOCK_CLASS_N
};
const char *lock_class_name(enum lock_class c); /* "mutex", ...; "futex" for UNKNOWN */
enum lock_class lock_class_of(const char *function);
/* Along a stack from its leaf: what the functions so far have said, then `function`. */
enum lock_class lock_class_along(enum lock_class inner, const char *function);
/* Of a condition variable as the C library has them: its waiters change between two words. */
bool lock_has_two_words(const char *function);

enum lock_verdict {
	VERDICT_CONTENDED = 0, /* none of the others: it is asked for often */
	VERDICT_IO, /* the holder waits for something itself */
	VERDICT_PREEMPTED, /* the holder has no CPU */
	VERDICT_LONG, /* the holder works for long */
	VERDICT_HERD, /* many are woken for what few can have */
	VERDICT_IDLE, /* its waiters have nothing to do */
	VERDICT_N
};
const char *lock_verdict_name(enum lock_verdict v); /* "io-under-lock", ... */

#define LOCK_BINS 64
#define LOCK_BIN_FIRST 9 /* which has all shorter ones as well, */
#define LOCK_BIN_LAST 32 /* all longer ones */

/* What a holder does; the numbers are those of rows' keys. */
enum lock_state {
	LOCK_STATE_UNKNOWN = 0,
	LOCK_STATE_RUNNING,
	LOCK_STATE_RUNNABLE, /* preempted, or woken and not running yet */
	LOCK_STATE_BLOCKED,
	LOCK_STATES
};

/* A stack of those who wait, hold or wake. */
struct lock_stack {
	char *stack; /* "root;...;leaf"; "" where it was not taken */
	char *place; /* "leaf < ... < root" of the program's own functions, a few */
	char *comm, *thread;
	uint32_t pid, tid;
	uint64_t count, ns, max_ns;
	unsigned state, wait; /* of a holder: enum lock_state, enum wait_kind */
};
struct lock_stacks {
	struct lock_stack *s; /* heaviest first */
	size_t n;
	uint64_t omitted;
};

/* What verdicts are made of. */
struct lock_facts {
	enum lock_class lock_class;
	bool others; /* the sum of many locks, of which nothing follows */
	uint64_t waits, total_ns, max_ns;
	uint64_t woken_waits, timed_out, interrupted, failed; /* how they ended */
	uint64_t bins[LOCK_BINS]; /* waits from 2^n ns on */
	uint64_t met, most; /* waits that met others; most at once */
	uint64_t wakes, woken, idle_wakes;
	uint64_t seen[LOCK_STATES]; /* waits that met the holder so */
	uint64_t held_ns[LOCK_STATES]; /* holds while somebody waited */
	uint64_t wait_ns[32]; /* of held_ns[LOCK_STATE_BLOCKED], by enum wait_kind */
};
enum lock_verdict lock_judge(const struct lock_facts *f);
/*
 * How a holder spends its time while others wait, by enum lock_state: as measured or, for want of it, as it was seen
 * when they began to. False when neither is known.
 */
bool lock_holder_shares(const struct lock_facts *f, double ret_shares[LOCK_STATES]);
/* The length that so much of all waits do not exceed, at most twice too long; 0 without any. */
uint64_t lock_percentile(const struct lock_facts *f, double share);

struct lock_row {
	char *name, *binary, *comm; /* comm: of the process whose waits were the longest */
	uint32_t pid;
	uint64_t start;
	bool shared;
	struct lock_facts facts;
	struct lock_stacks waiters, holders, unlockers;
	enum lock_verdict verdict;
};
struct lock_answer {
	struct profile *coverage;
	struct lock_row *rows; /* longest total first, those that idle last */
	size_t n_rows;
	uint64_t omitted;
};
struct lock_limits {
	uint32_t locks, stacks; /* of each kind and lock */
	size_t bytes; /* of all stacks; 0: any number. More is -EFBIG */
};
/*
 * Filters choose locks by those who wait, and waits, total_ns, max_ns, outcomes and waiters are theirs; all else is
 * of the whole lock.
 */
int query_locks(const struct query_source *src, const struct selection *sel,
		struct lock_limits limits, struct lock_answer **ret);
struct lock_answer *lock_answer_free(struct lock_answer *a);
DEFINE_CLEANUP(struct lock_answer *, lock_answer_free)
