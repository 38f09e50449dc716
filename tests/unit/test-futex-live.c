// SPDX-License-Identifier: GPL-2.0-or-later
/* Futex waits against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "collect-live.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define CALL_FUTEX_WAIT 455
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

#define FUNCTION_BYTES 4096
#define WAIT_MS 100 /* longer than a busy host keeps a thread from going to sleep */

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
	bool has_waitv, has_wait, ready;
	uint64_t slept_ns;
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

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *t, uint32_t value3)
{
	return syscall(SYS_futex, word, op, value, t, NULL, value3) < 0 ? -errno : 0;
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
		if (futex(&t->word, FUTEX_WAIT_PRIVATE, 0, &ts, 0) != -ETIMEDOUT)
			_exit(1);
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
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &in, NULL) ||
	    futex(&t->other, FUTEX_WAIT_PRIVATE, 0, NULL, 0) != -EINTR)
		_exit(1);
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
	if (futex(&t->shared_word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &ts,
		  FUTEX_BITSET_MATCH_ANY) != -ETIMEDOUT)
		_exit(1);
}

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
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, &v), 5);
	assert_int_equal(waits(s, pid, &t->word, 0, 0, NULL), 5);
	assert_in_range(v.ns, 5 * (WAIT_MS - 1) * NSEC_PER_MSEC, t->wait_ns);
	assert_in_range(v.max_ns, (WAIT_MS - 1) * NSEC_PER_MSEC, v.ns / 2);
	assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_WAIT, FUTEX_INTERRUPTED, NULL), 1);
	assert_int_equal(waits(s, pid, &t->shared_word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, NULL),
			 1);
	assert_int_equal(flags_of(s, pid, &t->word), 0);
	assert_int_equal(flags_of(s, pid, &t->shared_word), FUTEX_SHARED);
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

static void pi_wait(struct truth *t)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, pi_holder, t))
		_exit(1);
	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE))
		usleep(100);
	if (futex(&t->pi, FUTEX_LOCK_PI_PRIVATE, 0, NULL, 0))
		_exit(1);
	futex(&t->pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, 0);
	pthread_join(thread, NULL);
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

	pi_wait(t);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	r = syscall(SYS_futex_waitv, &v, 1, 0, &ts, CLOCK_MONOTONIC) < 0 ? -errno : 0;
	t->has_waitv = r != -ENOSYS;
	if (t->has_waitv && r != -ETIMEDOUT)
		_exit(1);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	r = syscall(CALL_FUTEX_WAIT, &t->shared_word, 0UL, ~0U, 2 /* 32 bits */, &ts,
		    CLOCK_MONOTONIC) < 0
		    ? -errno
		    : 0;
	t->has_wait = r != -ENOSYS;
	if (t->has_wait && r != -ETIMEDOUT)
		_exit(1);
	ts = in_ms(CLOCK_MONOTONIC, WAIT_MS);
	if (syscall(SYS_futex, &t->word, FUTEX_WAIT_REQUEUE_PI_PRIVATE, 0, &ts, &t->pi, 0) == 0 ||
	    errno != ETIMEDOUT)
		_exit(1);
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
	assert_int_equal(waits(s, pid, &t->pi, FUTEX_CLASS_LOCK_PI, FUTEX_WOKEN, NULL), 1);
	assert_int_equal(waits(s, pid, &t->word, FUTEX_CLASS_REQUEUE_PI, FUTEX_TIMED_OUT, NULL), 1);
	if (t->has_waitv) {
		assert_int_equal(waits(s, pid, &t->other, FUTEX_CLASS_WAITV, FUTEX_TIMED_OUT, NULL),
				 1);
		assert_int_equal(flags_of(s, pid, &t->other), 0);
	}
	if (t->has_wait) {
		assert_int_equal(
			waits(s, pid, &t->shared_word, FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT, NULL), 1);
		assert_int_equal(flags_of(s, pid, &t->shared_word), FUTEX_SHARED);
	}
	munmap(t, sizeof(*t));
}

/* The same address in two processes is two locks. */
static void test_two_processes(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t a = start_process(outcomes, t), b = start_process(outcomes, t);

	wait_for(a);
	wait_for(b);
	s = drain(c, true);
	assert_int_equal(waits(s, a, &t->word, 0, FUTEX_TIMED_OUT, NULL), 5);
	assert_int_equal(waits(s, b, &t->word, 0, FUTEX_TIMED_OUT, NULL), 5);
	munmap(t, sizeof(*t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_two_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
