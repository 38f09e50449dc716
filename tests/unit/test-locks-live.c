// SPDX-License-Identifier: GPL-2.0-or-later
/* What is known of locks beside the waits, against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "collect-live.h"
#include "own-bpf.h"

#define CROWD 20
#define WORDS (2 * LOCK_SLOTS_MAX)
#define HOLD_MS 60
#define HOLDS 5

static struct collect_options options(void)
{
	return (struct collect_options){
		/* Off-CPU, too: it takes the stacks of what a holder waits for. */
		.enabled = { [SOURCE_OFF_CPU] = true, [SOURCE_FUTEX] = true },
		.slice_ns = 2 * NSEC_PER_SEC,
		.off_cpu_threshold_ns = NSEC_PER_MSEC,
		.off_cpu_threshold_max_ns = 100 * NSEC_PER_MSEC,
		.places = kernel_places(),
	};
}

struct truth {
	uint32_t word;
	bool go;
	pid_t holder;
	uint64_t held_ns;
	pthread_mutex_t mutex;
};

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *t)
{
	return syscall(SYS_futex, word, op, value, t, NULL, 0);
}

static struct lock_window seen_of(const struct slice *s, pid_t tgid, const void *address)
{
	struct lock_window sum = {};

	for (size_t i = 0; i < s->n_locks; i++) {
		const struct slice_lock *l = &s->locks[i];

		if ((pid_t)l->tgid != tgid || l->address != (uint64_t)address)
			continue;
		sum.most = MAX(sum.most, l->seen.most);
		sum.met += l->seen.met;
		sum.wakes += l->seen.wakes;
		sum.woken += l->seen.woken;
		sum.idle_wakes += l->seen.idle_wakes;
		sum.wake_class = l->seen.wake_class;
	}
	return sum;
}

static struct lock_value samples_of(const struct slice *s, pid_t lock_tgid, const void *address,
				    enum lock_aspect aspect, int state)
{
	struct lock_value sum = {};

	for (size_t i = 0; i < s->n_lock_samples; i++) {
		const struct slice_lock_sample *l = &s->lock_samples[i];

		if ((pid_t)l->key.lock_tgid != lock_tgid || l->key.address != (uint64_t)address ||
		    l->key.aspect != aspect || (state >= 0 && l->key.state != state))
			continue;
		sum.n += l->value.n;
		sum.ns += l->value.ns;
		sum.max_ns = MAX(sum.max_ns, l->value.max_ns);
	}
	return sum;
}

/* ---- wakes and crowds ------------------------------------------------------------------------------ */

static void *wait_once(void *arg)
{
	struct truth *t = arg;

	while (!__atomic_load_n(&t->word, __ATOMIC_ACQUIRE))
		futex(&t->word, FUTEX_WAIT_PRIVATE, 0, NULL);
	return NULL;
}

static void crowd(void *arg)
{
	struct truth *t = arg;
	pthread_t threads[CROWD];

	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&threads[i], NULL, wait_once, t))
			_exit(1);
	for (uint64_t i = 1; i <= WORDS; i++)
		if (futex((uint32_t *)(i * 64), FUTEX_WAKE_PRIVATE, 1, NULL) != 0)
			_exit(1);
	while (!__atomic_load_n(&t->go, __ATOMIC_ACQUIRE))
		usleep(1000);
	__atomic_store_n(&t->word, 1, __ATOMIC_RELEASE);
	while (futex(&t->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL) > 0)
		;
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	usleep(1000);
}

static void test_crowd(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct truth *t = shared_memory(sizeof(*t));
	struct lock_window sum = {}, v;
	pid_t pid = start_process(crowd, t);
	uint64_t begin = mono_now_ns(), short_of = 0;
	struct slice *s;

	/* Until all of them wait, which a window says in which none of them began to. */
	do {
		run_for(c, 100);
		s = drain(c, false);
		v = seen_of(s, pid, &t->word);
		sum.most = MAX(sum.most, v.most);
		sum.met += v.met;
		short_of += s->lock_slots_short;
		slice_free(s);
	} while ((v.most != CROWD || v.met) && mono_now_ns() - begin < 20 * NSEC_PER_SEC);
	assert_int_equal(v.most, CROWD);
	assert_int_equal(sum.most, CROWD);
	assert_in_range(sum.met, 1, CROWD - 1);
	/* Wakes of words that nobody waits for take no places. */
	assert_int_equal(short_of, 0);
	__atomic_store_n(&t->go, true, __ATOMIC_RELEASE);
	wait_for(pid);
	s = drain(c, true);
	v = seen_of(s, pid, &t->word);
	assert_int_equal(v.woken, CROWD);
	assert_in_range(v.wakes, 1, CROWD);
	assert_in_range(v.idle_wakes, 1, 1);
	assert_int_equal(v.wake_class, FUTEX_CLASS_WAKE);
	assert_int_equal(samples_of(s, pid, &t->word, LOCK_WAKE, -1).ns, CROWD);
	assert_int_equal(s->lock_slots_short, 0);
	slice_free(s);
	/* And nobody is left behind. */
	s = drain(c, true);
	assert_int_equal(seen_of(s, pid, &t->word).most, 0);
	slice_free(s);
	munmap(t, sizeof(*t));
}

/* ---- histogram -------------------------------------------------------------------------------------- */

static void waits_of_two_lengths(void *arg)
{
	struct timespec five = { .tv_nsec = 5 * NSEC_PER_MSEC },
			sixty = { .tv_nsec = 60 * NSEC_PER_MSEC };
	struct truth *t = arg;

	for (int i = 0; i < 20; i++)
		futex(&t->word, FUTEX_WAIT_PRIVATE, 0, i % 2 ? &five : &sixty);
}

static void test_histogram(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	pid_t pid = start_process(waits_of_two_lengths, t);
	uint64_t waits = 0, bins[FUTEX_BINS] = {}, short_ones = 0, long_ones = 0;

	wait_for(pid);
	s = drain(c, true);
	for (size_t i = 0; i < s->n_futex; i++) {
		if ((pid_t)s->futex[i].key.tgid != pid)
			continue;
		waits += s->futex[i].value.waits;
		for (int k = 0; k < FUTEX_BINS; k++)
			bins[k] += s->futex[i].value.bins[k];
	}
	for (int k = 0; k < FUTEX_BINS; k++)
		*(FUTEX_BIN_LOG2(k) < 25 /* 33 ms */ ? &short_ones : &long_ones) += bins[k];
	assert_int_equal(short_ones + long_ones, waits);
	/* On a busy host one may be over before it goes to sleep. */
	assert_in_range(waits, 10, 20);
	/* 2^22 ns are 4.2 ms: no wait is shorter. */
	for (int k = 0; FUTEX_BIN_LOG2(k) < 22; k++)
		assert_int_equal(bins[k], 0);
	assert_true(long_ones >= 5);
	munmap(t, sizeof(*t));
}

/* ---- the holder -------------------------------------------------------------------------------------- */

static void sleep_with_it(void)
{
	usleep(HOLD_MS * 1000);
}

static void compute_with_it(void)
{
	uint64_t until = mono_now_ns() + HOLD_MS * NSEC_PER_MSEC;

	while (mono_now_ns() < until)
		;
}

struct holding {
	struct truth *t;
	void (*with_it)(void);
};

/* Takes the mutex, lets others come, works. */
static __attribute__((noinline)) void hold(struct holding *h)
{
	pthread_mutex_lock(&h->t->mutex);
	__atomic_store_n(&h->t->go, true, __ATOMIC_RELEASE);
	h->with_it();
	pthread_mutex_unlock(&h->t->mutex);
}

static void *waiter(void *arg)
{
	struct truth *t = arg;

	for (int i = 0; i < HOLDS; i++) {
		while (!__atomic_exchange_n(&t->go, false, __ATOMIC_ACQ_REL))
			usleep(100);
		pthread_mutex_lock(&t->mutex);
		pthread_mutex_unlock(&t->mutex);
	}
	return NULL;
}

static void hold_and_wait(void *arg)
{
	struct holding *h = arg;
	pthread_t thread;

	h->t->holder = getpid();
	if (pthread_create(&thread, NULL, waiter, h->t))
		_exit(1);
	for (int i = 0; i < HOLDS; i++) {
		while (__atomic_load_n(&h->t->go, __ATOMIC_ACQUIRE))
			usleep(100);
		hold(h);
		usleep(20000);
	}
	pthread_join(thread, NULL);
}

struct found {
	struct lock_value look[HOLDER_BLOCKED + 1], held[HOLDER_BLOCKED + 1];
};

static struct found holders(void (*with_it)(void), int protocol)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct truth *t = shared_memory(sizeof(*t));
	struct holding h = { t, with_it };
	pthread_mutexattr_t attr;
	struct found f = {};
	pid_t pid;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, protocol);
	pthread_mutex_init(&t->mutex, &attr);
	pid = start_process(hold_and_wait, &h);
	wait_for(pid);
	s = drain(c, true);
	for (int i = 0; i <= HOLDER_BLOCKED; i++) {
		f.look[i] = samples_of(s, pid, &t->mutex, LOCK_LOOK, i);
		f.held[i] = samples_of(s, pid, &t->mutex, LOCK_HELD, i);
	}
	print_message("looks: %lu unknown, %lu running, %lu runnable, %lu blocked; held ms: %llu "
		      "%llu %llu\n",
		      f.look[0].n, f.look[1].n, f.look[2].n, f.look[3].n,
		      f.held[1].ns / NSEC_PER_MSEC, f.held[2].ns / NSEC_PER_MSEC,
		      f.held[3].ns / NSEC_PER_MSEC);
	munmap(t, sizeof(*t));
	return f;
}

static bool kernel_finds_threads(void)
{
	return access("/sys/kernel/btf/vmlinux", F_OK) == 0 &&
	       system("grep -qw bpf_task_from_pid /proc/kallsyms") == 0;
}

static void test_blocked_holder(void **state)
{
	struct found f = holders(sleep_with_it, PTHREAD_PRIO_NONE);

	if (!kernel_finds_threads())
		skip();
	assert_true(f.look[HOLDER_BLOCKED].n >= 1);
	assert_true(f.held[HOLDER_BLOCKED].ns >= HOLD_MS / 4 * NSEC_PER_MSEC);
	assert_true(f.held[HOLDER_BLOCKED].ns > 4 * f.held[HOLDER_RUNNING].ns);
}

static void test_running_holder(void **state)
{
	struct found f = holders(compute_with_it, PTHREAD_PRIO_NONE);

	if (!kernel_finds_threads())
		skip();
	assert_int_equal(f.look[HOLDER_BLOCKED].n, 0);
	/* How much of its time it has a CPU is the host's business. */
	assert_true(f.held[HOLDER_RUNNING].ns > 0);
	assert_true(f.held[HOLDER_RUNNING].ns + f.held[HOLDER_RUNNABLE].ns >=
		    HOLD_MS / 4 * NSEC_PER_MSEC + 4 * f.held[HOLDER_BLOCKED].ns);
}

static void test_inheriting(void **state)
{
	struct found f = holders(sleep_with_it, PTHREAD_PRIO_INHERIT);

	if (!kernel_finds_threads())
		skip();
	assert_true(f.look[HOLDER_BLOCKED].n >= 1);
	assert_true(f.held[HOLDER_BLOCKED].ns > 4 * f.held[HOLDER_RUNNING].ns);
}

/* ---- what anybody may write ------------------------------------------------------------------------- */

#define FORGED_WAITS 20
#define MUTEX_SHARED 128

/* The words of glibc's mutex. */
struct forged {
	uint32_t lock, count, owner, users, kind;
};

static void wait_for_forged(void *arg)
{
	static const uint32_t owners[] = { 2 /* kthreadd */, 0x3fffffff, UINT32_MAX, 0 /* us */ };
	const struct timespec t = { .tv_nsec = 5000000 };
	struct forged *f = arg;

	for (size_t i = 0; i < FORGED_WAITS; i++) {
		*f = (struct forged){
			.lock = 2,
			.owner = owners[i % ARRAY_SIZE(owners)] ?: (uint32_t)getpid(),
			.kind = MUTEX_SHARED,
		};
		futex(&f->lock, FUTEX_WAIT, 2, &t);
	}
}

/* Nobody holds a lock who cannot. */
static void test_forged(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct forged *f = shared_memory(sizeof(*f));
	pid_t pid = start_process(wait_for_forged, f);

	wait_for(pid);
	s = drain(c, true);
	for (int i = HOLDER_UNKNOWN + 1; i <= HOLDER_BLOCKED; i++)
		assert_int_equal(samples_of(s, pid, f, LOCK_LOOK, i).n, 0);
	if (kernel_finds_threads())
		assert_true(samples_of(s, pid, f, LOCK_LOOK, HOLDER_UNKNOWN).n > 0);
	munmap(f, sizeof(*f));
}

/* ---- what is left behind ---------------------------------------------------------------------------- */

/* Of a wait with a timeout the kernel means to go on with it when a signal breaks it off, whatever the signal does. */
static void *wait_forever(void *arg)
{
	const struct timespec t = { .tv_sec = 1000 };
	static uint32_t word;

	for (;;)
		futex(&word, FUTEX_WAIT_PRIVATE, 0, &t);
	return NULL;
}

static void *end_all(void *arg)
{
	usleep(100);
	_exit(0);
}

static void start_thread(void *(*f)(void *))
{
	pthread_t t;

	if (pthread_create(&t, NULL, f, NULL))
		_exit(1);
}

/* Each way of ending while threads wait. */
static void end_in_a_wait(int kind)
{
	if (kind)
		start_thread(wait_forever);
	if (kind == 1)
		start_thread(end_all);
	if (kind == 2) {
		usleep(100);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	wait_forever(NULL);
}

static void many_waiters(void *arg)
{
	int n = *(int *)arg;

	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0)
			end_in_a_wait(i % 3);
		if (pid < 0)
			_exit(1);
		if (i % 3 == 0) {
			usleep((unsigned)i % 5 * 50);
			kill(pid, SIGKILL);
		}
		if (waitpid(pid, NULL, 0) != pid)
			_exit(1);
	}
}

/* Waiters of processes that do not exist any more, and slots that somebody seems to be taking. */
static unsigned count_left(const struct own_map *slots)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < slots->entries; i++) {
		struct lock_slot s;

		assert_int_equal(bpf_map_lookup_elem(slots->fd, &i, &s), 0);
		if (s.waiters && kill((pid_t)s.tgid, 0) && errno == ESRCH)
			n += s.waiters;
		n += s.claims;
	}
	return n;
}

static void test_nothing_is_left_behind(void **state)
{
	const char *asked = getenv("PROCESSES");
	int n = asked ? atoi(asked) : 1500;
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct own_map slots = own_map("lock_slots");
	unsigned left;

	wait_for(start_process(many_waiters, &n));
	left = count_left(&slots);
	/* The last switch of a thread may come after its process has been waited for. */
	for (int i = 0; left && i < 100; i++) {
		usleep(10000);
		left = count_left(&slots);
	}
	assert_int_equal(left, 0);
	close(slots.fd);
}

/* ---- one lock inside another ----------------------------------------------------------------------- */

struct nested {
	pthread_mutex_t outer, inner;
	bool outer_held, inner_held, over;
};

static void *want(pthread_mutex_t *m, bool *held, const bool *over)
{
	while (!__atomic_load_n(over, __ATOMIC_ACQUIRE)) {
		if (__atomic_exchange_n(held, false, __ATOMIC_ACQ_REL)) {
			pthread_mutex_lock(m);
			pthread_mutex_unlock(m);
		} else {
			usleep(100);
		}
	}
	return NULL;
}

static void *want_outer(void *arg)
{
	struct nested *n = arg;

	return want(&n->outer, &n->outer_held, &n->over);
}

static void *want_inner(void *arg)
{
	struct nested *n = arg;

	return want(&n->inner, &n->inner_held, &n->over);
}

static void hold_both(void *arg)
{
	struct nested *n = arg;
	pthread_t threads[2];

	if (pthread_create(&threads[0], NULL, want_outer, n) ||
	    pthread_create(&threads[1], NULL, want_inner, n))
		_exit(1);
	for (int i = 0; i < HOLDS; i++) {
		pthread_mutex_lock(&n->outer);
		__atomic_store_n(&n->outer_held, true, __ATOMIC_RELEASE);
		usleep(HOLD_MS * 500);
		pthread_mutex_lock(&n->inner);
		__atomic_store_n(&n->inner_held, true, __ATOMIC_RELEASE);
		usleep(HOLD_MS * 250);
		pthread_mutex_unlock(&n->inner);
		usleep(HOLD_MS * 250);
		pthread_mutex_unlock(&n->outer);
		usleep(20000);
	}
	__atomic_store_n(&n->over, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Who waits for a lock inside does not hide what its holder did while others waited for the one outside. */
static void test_nested(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct nested *n = shared_memory(sizeof(*n));
	uint64_t outer, inner;
	pid_t pid;

	pthread_mutex_init(&n->outer, NULL);
	pthread_mutex_init(&n->inner, NULL);
	pid = start_process(hold_both, n);
	wait_for(pid);
	s = drain(c, true);
	outer = samples_of(s, pid, &n->outer, LOCK_HELD, HOLDER_BLOCKED).ns;
	inner = samples_of(s, pid, &n->inner, LOCK_HELD, HOLDER_BLOCKED).ns;
	print_message("held blocked: outer %lu ms, inner %lu ms\n",
		      (unsigned long)(outer / NSEC_PER_MSEC),
		      (unsigned long)(inner / NSEC_PER_MSEC));
	munmap(n, sizeof(*n));
	if (!kernel_finds_threads())
		skip();
	assert_true(inner >= HOLD_MS / 8 * NSEC_PER_MSEC);
	assert_true(outer >= 2 * inner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_blocked_holder),
		cmocka_unit_test(test_running_holder),
		cmocka_unit_test(test_inheriting),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_nothing_is_left_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
