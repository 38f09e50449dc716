// SPDX-License-Identifier: GPL-2.0-or-later
/* Futex waits against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "collect-live.h"
#include "own-bpf.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define CALL_FUTEX_WAIT 455
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

#define FUNCTION_BYTES 4096
#define WAIT_MS 100 /* longer than a busy host keeps a thread from going to sleep */
#define LONG_WAIT_S 1 /* much longer than it is stopped */
#define STOPPED 40

static struct collect_options options(void)
{
	return (struct collect_options){
		.enabled = { [SOURCE_FUTEX] = true },
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

/* What the workload made, in memory that the test sees. */
struct truth {
	uint32_t word, other, shared_word;
	uint32_t pi;
	uint64_t wait_ns, waits, again;
	bool ready;
	/* Calls that really slept. */
	uint32_t timed, interrupted, shared, lock_pi, waitv, wait, requeue, requeue_pi, private[2],
		woken[2];
};

static struct timespec in_ms(clockid_t clock, unsigned ms)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_nsec += ms * NSEC_PER_MSEC;
	t.tv_sec += t.tv_nsec / NSEC_PER_SEC;
	t.tv_nsec %= NSEC_PER_SEC;
	return t;
}

static long switches_asked_for(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

/*
 * Whether this thread's last call slept, as the scheduler counts it: on a busy host it may be woken, or its time be
 * over, before it goes to sleep.
 */
static __thread bool slept;

static long call(long nr, const void *address, long a, long b, const void *c, const void *d, long e)
{
	long before = switches_asked_for(), r = syscall(nr, address, a, b, c, d, e);

	r = r < 0 ? -errno : 0;
	slept = switches_asked_for() != before;
	return r;
}

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *t, uint32_t value3)
{
	return call(SYS_futex, word, op, value, t, NULL, value3);
}

/* Makes one wait that must end so; adds it to *ret_n if it slept. */
static void must_end(long expected, long r, uint32_t *ret_n)
{
	if (r != expected)
		_exit(1);
	*ret_n += slept;
}

static uint64_t waits(const struct slice *s, pid_t tgid, const void *address, int class,
		      int outcome, struct futex_value *ret)
{
	struct futex_value sum = {};

	for (size_t i = 0; i < s->n_futex; i++) {
		const struct slice_futex *f = &s->futex[i];

		if ((pid_t)f->key.tgid != tgid ||
		    (address && f->key.address != (uint64_t)address) ||
		    (class && f->key.futex_class != class) ||
		    (outcome && f->key.outcome != outcome))
			continue;
		sum.waits += f->value.waits;
		sum.ns += f->value.ns;
		sum.max_ns = MAX(sum.max_ns, f->value.max_ns);
	}
	if (ret)
		*ret = sum;
	return sum.waits;
}

static uint32_t flags_of(const struct slice *s, pid_t tgid, const void *address)
{
	for (size_t i = 0; i < s->n_futex; i++)
		if ((pid_t)s->futex[i].key.tgid == tgid &&
		    s->futex[i].key.address == (uint64_t)address)
			return s->futex[i].key.flags;
	fail_msg("no wait for this address");
	return 0;
}

/* ---- outcomes ------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void timed_waits(struct truth *t)
{
	uint64_t begin = mono_now_ns();
	struct timespec ts = { .tv_nsec = WAIT_MS * NSEC_PER_MSEC };

	for (int i = 0; i < 5; i++)
		must_end(-ETIMEDOUT, futex(&t->word, FUTEX_WAIT_PRIVATE, 0, &ts, 0), &t->timed);
	t->wait_ns = mono_now_ns() - begin;
}

static void on_signal(int sig)
{
}

static void interrupted_wait(struct truth *t)
{
	struct sigaction sa = { .sa_handler = on_signal };
	timer_t timer;
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec in = { .it_value.tv_nsec = WAIT_MS * NSEC_PER_MSEC };

	sigaction(SIGUSR1, &sa, NULL);
	/* Again, should it come before we wait. */
	in.it_interval = in.it_value;
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &in, NULL))
		_exit(1);
	must_end(-EINTR, futex(&t->other, FUTEX_WAIT_PRIVATE, 0, NULL, 0), &t->interrupted);
	timer_delete(timer);
}

static void outcomes(void *arg)
{
	struct truth *t = arg;
	struct timespec ts;

	/* The word has another value: no wait. */
	for (int i = 0; i < 1000; i++)
		if (futex(&t->word, FUTEX_WAIT_PRIVATE, 7, NULL, 0) != -EAGAIN)
			_exit(1);
	timed_waits(t);
	interrupted_wait(t);
	ts = in_ms(CLOCK_REALTIME, WAIT_MS);
	must_end(-ETIMEDOUT,
		 futex(&t->shared_word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &ts,
		       FUTEX_BITSET_MATCH_ANY),
		 &t->shared);
}

#ifdef __x86_64__
static bool seen_in(const struct slice *s, pid_t tgid, const void *address, const void *function)
{
	for (size_t i = 0; i < s->n_futex; i++) {
		const struct slice_futex *f = &s->futex[i];
		const struct slice_stack *k = find_stack(s, f->key.stack);

		if ((pid_t)f->key.tgid == tgid && f->key.address == (uint64_t)address && k &&
		    stack_has(s, k, function, FUNCTION_BYTES))
			return true;
	}
	return false;
}
#endif

static void test_outcomes(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(outcomes, t);
	struct futex_value v;

	wait_for(pid);
	s = drain(c, true);
	assert_conserved(s, SOURCE_FUTEX);
	assert_in_range(t->timed, 3, 5);
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, &v), t->timed);
	assert_int_equal(waits(s, pid, &t->word, 0, 0, NULL), t->timed);
	assert_in_range(v.ns, t->timed * WAIT_MS / 2 * NSEC_PER_MSEC, t->wait_ns);
	assert_in_range(v.max_ns, v.ns / t->timed, v.ns);
	assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_WAIT, FUTEX_INTERRUPTED, NULL),
			 t->interrupted);
	assert_int_equal(waits(s, pid, &t->shared_word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, NULL),
			 t->shared);
	assert_int_equal(flags_of(s, pid, &t->word), 0);
	if (t->shared)
		assert_int_equal(flags_of(s, pid, &t->shared_word), FUTEX_SHARED);
	munmap(t, sizeof(*t));
}

/* ---- broken off ---------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void long_wait(void *arg)
{
	struct truth *t = arg;
	struct timespec ts = { .tv_sec = LONG_WAIT_S };
	uint64_t begin = mono_now_ns();

	__atomic_store_n(&t->ready, true, __ATOMIC_RELEASE);
	if (futex(&t->word, FUTEX_WAIT_PRIVATE, 0, &ts, 0) != -ETIMEDOUT)
		_exit(1);
	t->wait_ns = mono_now_ns() - begin;
	/* Another call that goes on after a stop is none for a futex. */
	nanosleep(&ts, NULL);
}

/* Stops them once they sleep; how long each was stopped at least. */
static void stop_for_a_while(const pid_t pid[static STOPPED], uint64_t stopped_ns[static STOPPED])
{
	siginfo_t si;

	sleep_ms(WAIT_MS);
	for (int i = 0; i < STOPPED; i++)
		kill(pid[i], SIGSTOP);
	for (int i = 0; i < STOPPED; i++) {
		assert_int_equal(waitid(P_PID, pid[i], &si, WSTOPPED | WNOWAIT), 0);
		stopped_ns[i] = mono_now_ns();
	}
	sleep_ms(WAIT_MS);
	for (int i = 0; i < STOPPED; i++) {
		stopped_ns[i] = mono_now_ns() - stopped_ns[i];
		kill(pid[i], SIGCONT);
	}
}

/* Many: of a thousand stops about one meets a switch that programs are not shown, and its wait must not go with it. */
static void test_stopped(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(STOPPED * sizeof(*t));
	uint64_t stopped_ns[STOPPED], unused[STOPPED];
	pid_t pid[STOPPED];
	struct futex_value v;

	for (int i = 0; i < STOPPED; i++)
		pid[i] = start_process(long_wait, &t[i]);
	for (int i = 0; i < STOPPED; i++)
		while (!__atomic_load_n(&t[i].ready, __ATOMIC_ACQUIRE))
			sleep_ms(1);
	stop_for_a_while(pid, stopped_ns);
	for (int i = 0; i < STOPPED; i++)
		while (!__atomic_load_n(&t[i].wait_ns, __ATOMIC_ACQUIRE))
			sleep_ms(10);
	stop_for_a_while(pid, unused);
	for (int i = 0; i < STOPPED; i++)
		wait_for(pid[i]);
	s = drain(c, true);
	assert_conserved(s, SOURCE_FUTEX);
	for (int i = 0; i < STOPPED; i++) {
		assert_int_equal(waits(s, pid[i], NULL, 0, 0, NULL), 1);
		assert_int_equal(
			waits(s, pid[i], &t[i].word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, &v), 1);
		assert_in_range(v.ns, t[i].wait_ns / 2, t[i].wait_ns - stopped_ns[i]);
	}
	munmap(t, STOPPED * sizeof(*t));
}

static void handled_wait(void *arg)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct truth *t = arg;
	struct timespec ts = { .tv_sec = 5 };

	sigaction(SIGUSR1, &sa, NULL);
	__atomic_store_n(&t->ready, true, __ATOMIC_RELEASE);
	/* A handler ends a wait that has a timeout, SA_RESTART or not. */
	if (futex(&t->word, FUTEX_WAIT_PRIVATE, 0, &ts, 0) != -EINTR)
		_exit(1);
	ts = (struct timespec){ .tv_nsec = WAIT_MS * NSEC_PER_MSEC };
	if (futex(&t->other, FUTEX_WAIT_PRIVATE, 0, &ts, 0) != -ETIMEDOUT)
		_exit(1);
}

static void test_handled(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(handled_wait, t);

	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	sleep_ms(WAIT_MS);
	kill(pid, SIGUSR1);
	wait_for(pid);
	s = drain(c, true);
	assert_conserved(s, SOURCE_FUTEX);
	assert_int_equal(waits(s, pid, NULL, 0, 0, NULL), 2);
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_WAIT, FUTEX_INTERRUPTED, NULL), 1);
	assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, NULL), 1);
	munmap(t, sizeof(*t));
}

/* ---- a lock ------------------------------------------------------------------------------------------- */

/* 0 free, 1 taken, 2 taken and somebody may wait. */
static __attribute__((noinline)) void lock(struct truth *t)
{
	uint32_t free_word = 0;

	if (__atomic_compare_exchange_n(&t->word, &free_word, 1, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(&t->word, 2, __ATOMIC_ACQUIRE)) {
		long r;
#ifdef __x86_64__
		/* Without libc's wrapper, which has no frame pointer. */
		register uint64_t timeout __asm__("r10") = 0;

		__asm__ volatile("syscall"
				 : "=a"(r)
				 : "0"((long)SYS_futex), "D"(&t->word),
				   "S"((long)FUTEX_WAIT_PRIVATE), "d"(2L), "r"(timeout)
				 : "rcx", "r11", "memory");
#else
		r = futex(&t->word, FUTEX_WAIT_PRIVATE, 2, NULL, 0);
#endif
		__atomic_fetch_add(r ? &t->again : &t->waits, 1, __ATOMIC_RELAXED);
	}
}

static void unlock(struct truth *t)
{
	if (__atomic_exchange_n(&t->word, 0, __ATOMIC_RELEASE) == 2)
		futex(&t->word, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
}

static void *contender(void *arg)
{
	for (int i = 0; i < 200; i++) {
		lock(arg);
		usleep(200);
		unlock(arg);
	}
	return NULL;
}

static void contended_lock(void *arg)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, contender, arg))
			_exit(1);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void test_lock(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(contended_lock, t);
	uint64_t n;

	wait_for(pid);
	s = drain(c, true);
	n = waits(s, pid, &t->word, FUTEX_CLASS_WAIT, FUTEX_WOKEN, NULL);
	print_message("%lu waits counted, %lu made, %lu returned at once\n", n, t->waits, t->again);
	/* Who was woken on the way to sleep has not slept. */
	assert_in_range(n, t->waits * 95 / 100, t->waits);
	assert_int_equal(waits(s, pid, &t->word, 0, FUTEX_AGAIN, NULL), 0);
#ifdef __x86_64__
	assert_true(seen_in(s, pid, &t->word, lock));
#endif
	assert_conserved(s, SOURCE_FUTEX);
	munmap(t, sizeof(*t));
}

/* ---- more waits than stacks ---------------------------------------------------------------------------- */

#define LONG_WAITS 80
#define LONG_WAIT_MS 50

struct turn {
	struct truth *t;
	uint32_t me;
};

static void *take_turns(void *arg)
{
	const struct turn *turn = arg;
	struct truth *t = turn->t;

	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(&t->word, __ATOMIC_ACQUIRE) != turn->me) {
			futex(&t->word, FUTEX_WAIT_PRIVATE, !turn->me, NULL, 0);
			continue;
		}
		__atomic_store_n(&t->word, !turn->me, __ATOMIC_RELEASE);
		futex(&t->word, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	}
	futex(&t->word, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	return NULL;
}

static void flood(void *arg)
{
	struct turn turns[2] = { { arg, 0 }, { arg, 1 } };
	struct timespec ts = { .tv_nsec = LONG_WAIT_MS * NSEC_PER_MSEC };
	struct truth *t = arg;
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, take_turns, &turns[i]))
			_exit(1);
	for (int i = 0; i < LONG_WAITS; i++)
		if (futex(&t->other, FUTEX_WAIT_PRIVATE, 0, &ts, 0) != -ETIMEDOUT)
			_exit(1);
	__atomic_store_n(&t->ready, true, __ATOMIC_RELEASE);
	__atomic_store_n(&t->word, 2, __ATOMIC_RELEASE);
	futex(&t->word, FUTEX_WAKE_PRIVATE, 2, NULL, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Thousands of short waits do not take the stacks of the long ones, from the second second on. */
static void test_flood(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	_cleanup_(slice_free_p) struct slice *first = NULL, *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	uint64_t all, without = 0;
	pid_t pid;

	o.walks_per_second = 200;
	c = start_or_skip(&o);
	pid = start_process(flood, t);
	run_for(c, 2200);
	first = drain(c, true);
	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE))
		run_for(c, 50);
	wait_for(pid);
	s = drain(c, true);
	all = waits(s, pid, &t->other, 0, 0, NULL);
	for (size_t i = 0; i < s->n_futex; i++)
		if (s->futex[i].key.address == (uint64_t)&t->other &&
		    s->futex[i].key.stack == STACK_ID_NONE)
			without += s->futex[i].value.waits;
	print_message("%lu waits, %lu without a stack; %lu long ones, %lu without\n",
		      s->source[SOURCE_FUTEX].sum.seen, s->source[SOURCE_FUTEX].sum.lost[LOSS_SHED],
		      all, without);
	assert_true(all > 0 && without * 5 <= all);
	assert_conserved(s, SOURCE_FUTEX);
	munmap(t, sizeof(*t));
}

/* ---- more addresses than places ------------------------------------------------------------------------ */

#define PLACES 256
#define MANY_WORDS (4 * PLACES)

struct many {
	uint32_t word[MANY_WORDS];
	uint32_t timed; /* waits that slept */
};

static void wait_at_many(void *arg)
{
	const struct timespec ts = { .tv_nsec = 100000 };
	struct many *m = arg;

	for (int i = 0; i < MANY_WORDS; i++)
		must_end(-ETIMEDOUT, futex(&m->word[i], FUTEX_WAIT_PRIVATE, 0, &ts, 0), &m->timed);
}

/* No wait is lost; those without a place are of no lock that is known. */
static void test_many_addresses(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct many *m = shared_memory(sizeof(*m));
	struct futex_value all, rest = {};
	pid_t pid;

	o.count_entries = PLACES;
	c = start_or_skip(&o);
	pid = start_process(wait_at_many, m);
	wait_for(pid);
	s = drain(c, true);
	waits(s, pid, NULL, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, &all);
	for (size_t i = 0; i < s->n_futex; i++)
		if ((pid_t)s->futex[i].key.tgid == pid && !s->futex[i].key.address)
			rest.waits += s->futex[i].value.waits;
	print_message("%lu of %u waits, %lu without a place\n", all.waits, m->timed, rest.waits);
	assert_int_equal(all.waits, m->timed);
	assert_true(all.ns >= m->timed * 100000ULL);
	assert_true(rest.waits >= m->timed - PLACES);
	assert_int_equal(s->source[SOURCE_FUTEX].sum.lost[LOSS_COUNT_FULL], 0);
	assert_conserved(s, SOURCE_FUTEX);
	munmap(m, sizeof(*m));
}

/* ---- every operation that waits ----------------------------------------------------------------------- */

static void *pi_holder(void *arg)
{
	struct truth *t = arg;

	if (futex(&t->pi, FUTEX_LOCK_PI_PRIVATE, 0, NULL, 0))
		_exit(1);
	__atomic_store_n(&t->ready, true, __ATOMIC_RELEASE);
	usleep(WAIT_MS * 1000);
	futex(&t->pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, 0);
	return NULL;
}

/* Returns whether the kernel knows the operation. */
static bool pi_wait(struct truth *t, int op)
{
	pthread_t thread;
	long r;

	t->ready = false;
	if (pthread_create(&thread, NULL, pi_holder, t))
		_exit(1);
	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE))
		usleep(100);
	r = futex(&t->pi, op | FUTEX_PRIVATE_FLAG, 0, NULL, 0);
	if (r && r != -ENOSYS)
		_exit(1);
	if (!r) {
		t->lock_pi += slept;
		futex(&t->pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, 0);
	}
	pthread_join(thread, NULL);
	return r == 0;
}

struct waitv {
	uint64_t val, uaddr;
	uint32_t flags, reserved;
};

static void operations(void *arg)
{
	struct truth *t = arg;
	struct timespec ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	struct waitv v = { .uaddr = (uint64_t)&t->other, .flags = 2 | FUTEX_PRIVATE_FLAG };
	long r;

	if (!pi_wait(t, FUTEX_LOCK_PI))
		_exit(1);
	pi_wait(t, FUTEX_LOCK_PI2);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	r = call(SYS_futex_waitv, &v, 1, 0, &ts, (void *)CLOCK_MONOTONIC, 0);
	if (r != -ENOSYS)
		must_end(-ETIMEDOUT, r, &t->waitv);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	r = call(CALL_FUTEX_WAIT, &t->shared_word, 0, ~0U, (void *)2 /* 32 bits */, &ts,
		 CLOCK_MONOTONIC);
	if (r != -ENOSYS)
		must_end(-ETIMEDOUT, r, &t->wait);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	must_end(-ETIMEDOUT,
		 call(SYS_futex, &t->word, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 0, &ts, &t->pi, 0),
		 &t->requeue_pi);
}

static void test_operations(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(operations, t);

	wait_for(pid);
	s = drain(c, true);
	assert_int_equal(waits(s, pid, &t->pi, FUTEX_CLASS_LOCK_PI, FUTEX_WOKEN, NULL), t->lock_pi);
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_REQUEUE_PI, FUTEX_TIMED_OUT, NULL),
			 t->requeue_pi);
	assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_WAITV, FUTEX_TIMED_OUT, NULL),
			 t->waitv);
	assert_int_equal(waits(s, pid, &t->shared_word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, NULL),
			 t->wait);
	assert_true(t->lock_pi && t->requeue_pi);
	if (t->waitv)
		assert_int_equal(flags_of(s, pid, &t->other), 0);
	if (t->wait)
		assert_int_equal(flags_of(s, pid, &t->shared_word), FUTEX_SHARED);
	munmap(t, sizeof(*t));
}

static void *requeued(void *arg)
{
	struct truth *t = arg;

	must_end(0, futex(&t->word, FUTEX_WAIT_PRIVATE, 0, NULL, 0), &t->requeue);
	must_end(0, call(SYS_futex, &t->other, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 0, NULL, &t->pi, 0),
		 &t->requeue_pi);
	if (futex(&t->pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, 0))
		_exit(1);
	return NULL;
}

/* Until the other thread was there to be moved, or woken. */
static void requeue(uint32_t *from, int op, long wake, uint32_t *to)
{
	sleep_ms(WAIT_MS);
	while (syscall(SYS_futex, from, op, wake, 1L, to, 0) != 1)
		sleep_ms(1);
}

static void requeues(void *arg)
{
	struct truth *t = arg;
	pthread_t thread;

	if (pthread_create(&thread, NULL, requeued, t))
		_exit(1);
	requeue(&t->word, FUTEX_CMP_REQUEUE_PRIVATE, 0, &t->shared_word);
	requeue(&t->shared_word, FUTEX_WAKE_PRIVATE, 1, NULL);
	requeue(&t->other, FUTEX_CMP_REQUEUE_PI_PRIVATE, 1, &t->pi);
	pthread_join(thread, NULL);
}

/* A waiter that was moved to another lock waited for the one that it named. */
static void test_requeue(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(requeues, t);
	struct futex_value v;

	wait_for(pid);
	s = drain(c, true);
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_WAIT, FUTEX_WOKEN, &v), t->requeue);
	assert_true(!t->requeue || v.ns >= WAIT_MS / 2 * NSEC_PER_MSEC);
	assert_int_equal(waits(s, pid, &t->shared_word, 0, 0, NULL), 0);
	assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_REQUEUE_PI, FUTEX_WOKEN, NULL),
			 t->requeue_pi);
	munmap(t, sizeof(*t));
}

static uint32_t private_word;

struct process {
	struct truth *shared;
	uint32_t *timed, *woken;
};

static void private_and_shared(void *arg)
{
	struct process *p = arg;
	struct timespec ts = { .tv_nsec = WAIT_MS * NSEC_PER_MSEC };

	for (int i = 0; i < 3; i++)
		must_end(-ETIMEDOUT, futex(&private_word, FUTEX_WAIT_PRIVATE, 0, &ts, 0), p->timed);
	must_end(0, futex(&p->shared->shared_word, FUTEX_WAIT, 0, NULL, 0), p->woken);
}

/* The same address in two processes is two locks; a lock that they share is seen by each, and marked. */
static void test_two_processes(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pids[2];

	for (int i = 0; i < 2; i++)
		pids[i] = start_process(private_and_shared,
					&(struct process){ t, &t->private[i], &t -> woken[i] });
	sleep_ms(5 * WAIT_MS);
	for (long woken = 0; woken < 2; sleep_ms(WAIT_MS))
		woken += syscall(SYS_futex, &t->shared_word, FUTEX_WAKE, 1, NULL, NULL, 0);
	for (int i = 0; i < 2; i++)
		wait_for(pids[i]);
	s = drain(c, true);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(waits(s, pids[i], &private_word, 0, FUTEX_TIMED_OUT, NULL),
				 t->private[i]);
		assert_int_equal(waits(s, pids[i], &private_word, 0, 0, NULL), t->private[i]);
		assert_int_equal(waits(s, pids[i], &t->shared_word, 0, FUTEX_WOKEN, NULL),
				 t->woken[i]);
		assert_true(t->private[i] && t->woken[i]);
		assert_int_equal(flags_of(s, pids[i], &private_word), 0);
		assert_int_equal(flags_of(s, pids[i], &t->shared_word), FUTEX_SHARED);
	}
	munmap(t, sizeof(*t));
}

/*
 * Calls must be seen to return before switches are seen to wait, whichever source comes first: a wait whose end is not
 * seen would be added to the thread's next one.
 */
static void test_attach_order(void **state)
{
	for (unsigned with = 0; with < 4; with++) {
		struct collect_options o = options();
		_cleanup_(collector_free_p) struct collector *c = NULL;
		uint32_t returns, switches;

		o.enabled[SOURCE_OFF_CPU] = with & 1;
		o.enabled[SOURCE_SYSCALLS] = with & 2;
		c = start_or_skip(&o);
		returns = own_link_id("syscall_exit");
		switches = own_link_id("offcpu_sched_sw");
		assert_true(returns && switches);
		assert_true(returns < switches);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outcomes),     cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_handled),	     cmocka_unit_test(test_lock),
		cmocka_unit_test(test_flood),	     cmocka_unit_test(test_operations),
		cmocka_unit_test(test_requeue),	     cmocka_unit_test(test_two_processes),
		cmocka_unit_test(test_attach_order), cmocka_unit_test(test_many_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
