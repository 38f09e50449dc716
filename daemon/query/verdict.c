// SPDX-License-Identifier: GPL-2.0-or-later
/* What kind of lock it is, and what is wrong with it. */
#include "query/locks.h"

const char *lock_class_name(enum lock_class c)
{
	static const char *const names[LOCK_CLASS_N] = {
		[LOCK_CLASS_UNKNOWN] = "futex",	      [LOCK_CLASS_MUTEX] = "mutex",
		[LOCK_CLASS_CONDVAR] = "condvar",     [LOCK_CLASS_RWLOCK] = "rwlock",
		[LOCK_CLASS_SEMAPHORE] = "semaphore", [LOCK_CLASS_JOIN] = "join",
		[LOCK_CLASS_SCHEDULER] = "scheduler", [LOCK_CLASS_BARRIER] = "barrier",
		[LOCK_CLASS_RUNTIME] = "runtime",
	};

	return (unsigned)c < LOCK_CLASS_N ? names[c] : "futex";
}

const char *lock_verdict_name(enum lock_verdict v)
{
	static const char *const names[VERDICT_N] = {
		[VERDICT_CONTENDED] = "contended",	  [VERDICT_IO] = "io-under-lock",
		[VERDICT_PREEMPTED] = "holder-preempted", [VERDICT_LONG] = "long-critical-section",
		[VERDICT_HERD] = "thundering-herd",	  [VERDICT_IDLE] = "idle-pool",
	};

	return (unsigned)v < VERDICT_N ? names[v] : "contended";
}

/* ---- class --------------------------------------------------------------------------------------- */

/* Parts of names, the more special ones first, without leading underscores. */
static const struct {
	const char *part;
	enum lock_class lock_class;
	bool prefix; /* must begin the name */
	bool outer; /* says more than the condition variable or the sleep below it */
} functions[] = {
	/* glibc and musl */
	{ "pthread_mutex_cond_lock", LOCK_CLASS_MUTEX, true, false },
	{ "pthread_mutex_", LOCK_CLASS_MUTEX, true, false },
	{ "lll_lock_wait", LOCK_CLASS_MUTEX, true, false },
	{ "pthread_cond_wait", LOCK_CLASS_CONDVAR, true, false },
	{ "pthread_cond_timedwait", LOCK_CLASS_CONDVAR, true, false },
	{ "pthread_cond_clockwait", LOCK_CLASS_CONDVAR, true, false },
	{ "cnd_wait", LOCK_CLASS_CONDVAR, true, false },
	{ "cnd_timedwait", LOCK_CLASS_CONDVAR, true, false },
	{ "pthread_rwlock_", LOCK_CLASS_RWLOCK, true, false },
	{ "pthread_barrier_wait", LOCK_CLASS_BARRIER, true, false },
	{ "pthread_join", LOCK_CLASS_JOIN, true, false },
	{ "pthread_clockjoin", LOCK_CLASS_JOIN, true, false },
	{ "pthread_timedjoin", LOCK_CLASS_JOIN, true, false },
	{ "new_sem_wait", LOCK_CLASS_SEMAPHORE, true, false },
	{ "new_sem_clockwait", LOCK_CLASS_SEMAPHORE, true, false },
	{ "sem_wait", LOCK_CLASS_SEMAPHORE, true, false },
	{ "sem_timedwait", LOCK_CLASS_SEMAPHORE, true, false },
	{ "sem_clockwait", LOCK_CLASS_SEMAPHORE, true, false },
	{ "new_sem_post", LOCK_CLASS_SEMAPHORE, true, false },
	{ "sem_post", LOCK_CLASS_SEMAPHORE, true, false },
	/* Rust; of the standard library, and parking_lot */
	{ "sys::sync::mutex::", LOCK_CLASS_MUTEX, false, false },
	{ "sys::sync::condvar::", LOCK_CLASS_CONDVAR, false, false },
	{ "sys::sync::rwlock::", LOCK_CLASS_RWLOCK, false, false },
	{ "futex::Mutex::lock", LOCK_CLASS_MUTEX, false, false },
	{ "futex_mutex::Mutex", LOCK_CLASS_MUTEX, false, false },
	{ "futex::Condvar::wait", LOCK_CLASS_CONDVAR, false, false },
	{ "futex_condvar::Condvar", LOCK_CLASS_CONDVAR, false, false },
	{ "futex_rwlock::RwLock", LOCK_CLASS_RWLOCK, false, false },
	{ "RawMutex::lock_slow", LOCK_CLASS_MUTEX, false, false },
	{ "RawRwLock::lock_", LOCK_CLASS_RWLOCK, false, false },
	{ "thread_parking::", LOCK_CLASS_RUNTIME, false, false },
	/* Go: what goroutines wait for never comes here; a thread without one does */
	{ "runtime.lock2", LOCK_CLASS_MUTEX, true, false },
	{ "runtime.stopm", LOCK_CLASS_SCHEDULER, true, true },
	{ "runtime.sysmon", LOCK_CLASS_SCHEDULER, true, true },
	{ "runtime.futex", LOCK_CLASS_RUNTIME, true, false },
	{ "runtime.note", LOCK_CLASS_RUNTIME, true, false },
	/* Java: monitors, and java.util.concurrent, by an event that each thread has */
	{ "ObjectMonitor::Enter", LOCK_CLASS_MUTEX, false, true },
	{ "ObjectMonitor::enter", LOCK_CLASS_MUTEX, false, true },
	{ "ObjectMonitor::wait", LOCK_CLASS_CONDVAR, false, true },
	{ "Unsafe_Park", LOCK_CLASS_RUNTIME, true, true },
	{ "PlatformEvent::park", LOCK_CLASS_RUNTIME, false, true },
	{ "Parker::park", LOCK_CLASS_RUNTIME, false, true },
};

/* Without underscores, and what glibc puts before names for itself. */
static const char *plain_name(const char *function)
{
	const char *name = function + strspn(function, "_");

	if (strncmp(name, "GI_", 3) == 0)
		name += 3 + strspn(name + 3, "_");
	return name;
}

bool lock_has_two_words(const char *function)
{
	const char *name = plain_name(function);

	return strncmp(name, "pthread_cond_", 13) == 0 || strncmp(name, "cnd_", 4) == 0;
}

enum lock_class lock_class_along(enum lock_class inner, const char *function)
{
	const char *name = plain_name(function);

	if (inner != LOCK_CLASS_UNKNOWN && inner != LOCK_CLASS_CONDVAR &&
	    inner != LOCK_CLASS_RUNTIME)
		return inner;
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		const char *part = functions[i].part;

		if (inner != LOCK_CLASS_UNKNOWN && !functions[i].outer)
			continue;
		if (functions[i].prefix ? strncmp(name, part, strlen(part)) == 0
					: strstr(name, part) != NULL)
			return functions[i].lock_class;
	}
	return inner;
}

enum lock_class lock_class_of(const char *function)
{
	return lock_class_along(LOCK_CLASS_UNKNOWN, function);
}

/* ---- percentiles ----------------------------------------------------------------------------------- */

uint64_t lock_percentile(const struct lock_facts *f, double share)
{
	uint64_t all = 0, sum = 0, longest;

	for (int i = 0; i < LOCK_BINS; i++)
		all += f->bins[i];
	/* Filters leave some of the waits, which say nothing about the others' longest. */
	longest = all > f->waits ? UINT64_MAX : f->max_ns;
	for (int i = 0; i < LOCK_BINS; i++) {
		uint64_t end = (2ULL << MIN(i, LOCK_BIN_LAST)) - 1;

		/* The last one has all longer ones as well. */
		if (i >= LOCK_BIN_LAST)
			end = MAX(end, f->max_ns);
		sum += f->bins[i];
		if (f->bins[i] && (double)sum >= share * (double)all)
			/* Where the bin ends, or the longest wait where that is less. */
			return MIN(end, longest);
	}
	return 0;
}

/* ---- verdict --------------------------------------------------------------------------------------- */

#define IDLE_WAIT_NS \
	(100 * NSEC_PER_MSEC) /* who waits so long for work on average is not held up */
#define LONG_WAIT_NS (100 * NSEC_PER_USEC)
#define HERD 4 /* woken by one call, on average */
#define SEEN_ENOUGH 3

static bool waits_for_work(enum lock_class c)
{
	return c == LOCK_CLASS_CONDVAR || c == LOCK_CLASS_SEMAPHORE || c == LOCK_CLASS_RUNTIME ||
	       c == LOCK_CLASS_UNKNOWN;
}

static bool is_herd(const struct lock_facts *f)
{
	if (f->lock_class == LOCK_CLASS_BARRIER)
		return false;
	/* Most of those who are woken come back to where others wait already. */
	return f->most >= HERD && f->woken >= f->wakes * HERD && f->wakes && f->met * 2 >= f->woken;
}

static bool is_idle(const struct lock_facts *f)
{
	if (f->lock_class == LOCK_CLASS_JOIN || f->lock_class == LOCK_CLASS_SCHEDULER)
		return true;
	if (!waits_for_work(f->lock_class))
		return false;
	if (f->waits == 0)
		return f->wakes == 0;
	/* Who mostly waits until time is up looks after something now and then; nobody kept it. */
	if (f->total_ns / f->waits < IDLE_WAIT_NS && f->timed_out * 10 <= f->waits * 9)
		return false;
	/* A lock whose holder is known is no place to wait for work. */
	return f->seen[LOCK_STATE_RUNNING] + f->seen[LOCK_STATE_RUNNABLE] +
		       f->seen[LOCK_STATE_BLOCKED] ==
	       0;
}

bool lock_holder_shares(const struct lock_facts *f, double ret_shares[LOCK_STATES])
{
	uint64_t held = 0, seen = 0;

	for (int i = LOCK_STATE_RUNNING; i < LOCK_STATES; i++) {
		held += f->held_ns[i];
		seen += f->seen[i];
	}
	if (!held && seen < SEEN_ENOUGH)
		return false;
	ret_shares[LOCK_STATE_UNKNOWN] = 0;
	for (int i = LOCK_STATE_RUNNING; i < LOCK_STATES; i++)
		ret_shares[i] = held ? (double)f->held_ns[i] / (double)held
				     : (double)f->seen[i] / (double)seen;
	return true;
}

enum lock_verdict lock_judge(const struct lock_facts *f)
{
	double shares[LOCK_STATES];

	if (f->others)
		return VERDICT_CONTENDED;
	if (is_idle(f))
		return VERDICT_IDLE;
	if (is_herd(f))
		return VERDICT_HERD;
	if (!lock_holder_shares(f, shares))
		return VERDICT_CONTENDED;
	if (shares[LOCK_STATE_BLOCKED] >= 0.5)
		return VERDICT_IO;
	if (shares[LOCK_STATE_RUNNABLE] >= 0.5)
		return VERDICT_PREEMPTED;
	if (shares[LOCK_STATE_RUNNING] >= 0.5 && lock_percentile(f, 0.5) >= LONG_WAIT_NS)
		return VERDICT_LONG;
	return VERDICT_CONTENDED;
}
