// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Off-CPU time against the running kernel. Needs root and BPF. Workloads stamp their own truth: what passes of
 * CLOCK_MONOTONIC and not of the thread's CPU clock, it did not run.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "collect-live.h"

#define FUNCTION_BYTES 4096

static struct collect_options options(void)
{
	return (struct collect_options){
		.enabled = { [SOURCE_OFF_CPU] = true },
		.off_cpu_threshold_ns = 20 * NSEC_PER_MSEC,
		.off_cpu_threshold_max_ns = NSEC_PER_SEC,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

struct sums {
	uint64_t blocked, run_queue, preempted; /* exact */
	uint64_t waits;
	uint64_t sampled; /* weighted, all causes */
	uint64_t sampled_blocked, sampled_preempted;
	double events;
};

static void add(struct sums *sum, const struct slice *s, pid_t tgid)
{
	for (size_t i = 0; i < s->n_threads; i++) {
		const struct slice_thread *t = &s->threads[i];

		assert_int_not_equal(t->tid, 0);
		/* Nobody waits for longer than time goes by; a reading may be some ms off its window. */
		assert_true(t->blocked_ns + t->run_queue_ns + t->preempted_ns <
			    s->mono_end_ns - s->mono_start_ns + 500 * NSEC_PER_MSEC);
		if ((pid_t)t->tgid != tgid)
			continue;
		sum->blocked += t->blocked_ns;
		sum->run_queue += t->run_queue_ns;
		sum->preempted += t->preempted_ns;
		sum->waits += t->blocked_n;
	}
	for (size_t i = 0; i < s->n_off_cpu; i++) {
		const struct slice_off_cpu *o = &s->off_cpu[i];

		assert_int_not_equal(o->key.tid, 0);
		assert_true(o->value.ns < 3600 * NSEC_PER_SEC);
		if ((pid_t)o->key.tgid != tgid)
			continue;
		sum->sampled += o->value.ns;
		sum->events += o->value.events_q8 / 256.0;
		if (o->key.cause == OFF_BLOCKED)
			sum->sampled_blocked += o->value.ns;
		if (o->key.cause == OFF_PREEMPTED)
			sum->sampled_preempted += o->value.ns;
	}
	assert_conserved(s, SOURCE_OFF_CPU);
}

/* ---- a sleeper ------------------------------------------------------------------------------------ */

struct sleeps {
	uint64_t short_ns, long_ns;
	uint64_t begin_ns; /* before the process was made */
	uint64_t life_ns; /* its whole time off-CPU */
};

/* Time in which this thread did not run, up to now. */
static uint64_t off_cpu_ns(void)
{
	struct timespec cpu;
	uint64_t now = mono_now_ns();

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	return now - cpu.tv_sec * NSEC_PER_SEC - cpu.tv_nsec;
}

static __attribute__((noinline)) uint64_t sleep_stamped(unsigned ms)
{
	uint64_t begin = off_cpu_ns();

	sleep_ms(ms);
	return off_cpu_ns() - begin;
}

static void sleeper(void *arg)
{
	struct sleeps *truth = arg;

	for (int i = 0; i < 10; i++)
		truth->short_ns += sleep_stamped(100);
	truth->long_ns = sleep_stamped(1000);
	truth->life_ns = off_cpu_ns() - truth->begin_ns;
}

static void check_sleeper(const struct collect_options *o)
{
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(o);
	struct sleeps *truth = shared_memory(sizeof(*truth));
	struct sums sum = {};
	uint64_t all;
	pid_t pid;

	truth->begin_ns = mono_now_ns();
	pid = start_process(sleeper, truth);

	/* Bucket ends fall into the middle of waits. */
	for (int i = 0; i < 9; i++) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		if (i == 8)
			wait_for(pid);
		else
			run_for(c, 250);
		s = drain(c, i % 2);
		add(&sum, s, pid);
	}
	all = truth->short_ns + truth->long_ns;
	print_message("told %.3f ms of %.3f, sampled %.3f, events %.2f\n",
		      (sum.blocked + sum.run_queue + sum.preempted) / 1e6, all / 1e6,
		      sum.sampled / 1e6, sum.events);
	/* At the least its sleeps, at the most its life, and what it waited on its way out. */
	assert_in_range(sum.blocked + sum.run_queue + sum.preempted, all - NSEC_PER_MSEC,
			truth->life_ns + 100 * NSEC_PER_MSEC);
	assert_in_range(sum.waits, 11, 60);
	/* All sleeps are longer than T, so they are all kept: only what was short is weighted. */
	assert_true(fabs((double)sum.sampled - sum.blocked - sum.run_queue - sum.preempted) <
		    4 * sqrt(20e6 * 50e6));
	assert_in_range(sum.events, 11, 40);
	munmap(truth, sizeof(*truth));
}

static void test_sleeper(void **state)
{
	struct collect_options o = options();

	check_sleeper(&o);
}

/* The same without sched_exit_tp and kprobes. */
static void test_sleeper_split(void **state)
{
	struct collect_options o = options();

	o.skip_hooks = 1;
	check_sleeper(&o);
}

/* ---- from one collector to the next ------------------------------------------------------------- */

#define HAND_OVERS 5
#define CROWD 1500

static void *crowd_thread(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

/* Many threads make a reading of all of them take its time. */
static void crowd(void *arg)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&t, &attr, crowd_thread, NULL))
			_exit(1);
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	pause();
}

static void long_sleeper(void *arg)
{
	struct sleeps *truth = arg;

	truth->long_ns = sleep_stamped(4000);
	truth->life_ns = off_cpu_ns() - truth->begin_ns;
}

/* Of a wait that several collectors see nothing is lost, and nothing told twice, neither in totals nor in stacks. */
static void test_hand_over(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct sleeps *truth = shared_memory(sizeof(*truth));
	bool *ready = shared_memory(sizeof(*ready));
	pid_t others = start_process(crowd, ready), pid;
	struct sums sum = {};
	uint64_t told;

	while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE))
		sleep_ms(10);
	truth->begin_ns = mono_now_ns();
	pid = start_process(long_sleeper, truth);
	for (int i = 0; i <= HAND_OVERS; i++) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		run_for(c, 100);
		if (i < HAND_OVERS) {
			s = hand_over(&c, &o);
		} else {
			wait_for(pid);
			s = drain(c, true);
		}
		add(&sum, s, pid);
	}
	told = sum.blocked + sum.run_queue + sum.preempted;
	print_message("told %.3f ms of %.3f, sampled %.3f\n", told / 1e6, truth->long_ns / 1e6,
		      sum.sampled / 1e6);
	assert_in_range(told, truth->long_ns - NSEC_PER_MSEC, truth->life_ns + 100 * NSEC_PER_MSEC);
	/* A wait that is kept from its begin on, and the reading of its stack a little later than that of its time. */
	assert_in_range(sum.sampled, truth->long_ns - HAND_OVERS * 50 * NSEC_PER_MSEC,
			told + 50 * NSEC_PER_MSEC);
	kill_process(others);
	munmap(truth, sizeof(*truth));
	munmap(ready, sizeof(*ready));
}

/* ---- stacks --------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void wait_here(int fd)
{
	char b;

	/* Without libc's wrapper, which has no frame pointer. */
#ifdef __x86_64__
	register long r __asm__("rax") = SYS_read;

	__asm__ volatile("syscall"
			 : "+r"(r)
			 : "D"((long)fd), "S"(&b), "d"(1L)
			 : "rcx", "r11", "memory");
#else
	if (read(fd, &b, 1) < 0)
		_exit(1);
#endif
	__asm__ volatile("" ::: "memory");
}

static void reader(void *arg)
{
	int *fds = arg;

	for (;;)
		wait_here(fds[0]);
}

static void check_stacks(const struct collect_options *o)
{
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	bool user = false, kernel = false;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = start_process(reader, fds);
	for (int i = 0; i < 10; i++) {
		run_for(c, 100);
		assert_int_equal(write(fds[1], "x", 1), 1);
	}
	s = drain(c, false);
	for (size_t i = 0; i < s->n_off_cpu; i++) {
		const struct slice_off_cpu *e = &s->off_cpu[i];
		const struct slice_stack *k = find_stack(s, e->key.stack);

		if ((pid_t)e->key.tgid != pid || e->key.cause != OFF_BLOCKED || !k)
			continue;
		assert_int_equal(k->tgid, pid);
		assert_int_equal(e->key.task_state & 3, 1);
		user |= stack_has(s, k, wait_here, FUNCTION_BYTES);
		kernel |= k->nr_kernel >= 4;
	}
	assert_true(user);
	assert_true(kernel);
	kill_process(pid);
}

static void test_stacks(void **state)
{
	struct collect_options o = options();

	check_stacks(&o);
}

static void test_stacks_split(void **state)
{
	struct collect_options o = options();

	o.skip_hooks = 1;
	check_stacks(&o);
}

/* A thread that is blocked all the time is in every bucket, with its whole stack, though it never resumes. */
static void test_blocked_throughout(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	uint64_t told = 0, sampled = 0, whole = 0, begin;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	/* It waits before we come. */
	pid = start_process(reader, fds);
	sleep_ms(100);
	c = start_or_skip(&o);
	begin = mono_now_ns();
	for (int i = 0; i < 4; i++) {
		_cleanup_(slice_free_p) struct slice *s = NULL;
		struct sums sum = {};
		bool found = false;

		run_for(c, 300);
		s = drain(c, true);
		for (size_t k = 0; k < s->n_off_cpu; k++) {
			const struct slice_off_cpu *e = &s->off_cpu[k];
			const struct slice_stack *stack = find_stack(s, e->key.stack);

			if ((pid_t)e->key.tgid != pid)
				continue;
			assert_int_equal(e->key.cause, OFF_BLOCKED);
			assert_non_null(stack);
			assert_true(stack->nr_kernel >= 4);
			found |= stack->walk_end != WALK_PENDING &&
				 stack_has(s, stack, wait_here, FUNCTION_BYTES);
		}
		/* On a busy host it may take longer than is waited for to read its memory, but not each time. */
		whole += found;
		add(&sum, s, pid);
		assert_true(sum.blocked >= 290 * NSEC_PER_MSEC);
		told += sum.blocked;
		sampled += sum.sampled;
	}
	assert_true(whole >= 2);
	/* What passed since the last reading is not told yet. */
	assert_in_range(told, (mono_now_ns() - begin) * 8 / 10,
			mono_now_ns() - begin + 60 * NSEC_PER_MSEC);
	assert_in_range(sampled, told - 5 * NSEC_PER_MSEC, told + 5 * NSEC_PER_MSEC);
	kill_process(pid);
}

/* ---- who does not run is not always blocked ---------------------------------------------------------- */

static void spin_on_cpu_0(void *arg)
{
	cpu_set_t set;
	uint64_t until = mono_now_ns() + *(unsigned *)arg * NSEC_PER_MSEC;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
	while (mono_now_ns() < until)
		;
}

static void test_spinners(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct sums sum = {};
	unsigned ms = 1500;
	pid_t a = start_process(spin_on_cpu_0, &ms), b = start_process(spin_on_cpu_0, &ms);

	wait_for(a);
	wait_for(b);
	s = drain(c, true);
	add(&sum, s, a);
	add(&sum, s, b);
	print_message("blocked %.1f run-queue %.1f preempted %.1f, sampled %.1f\n",
		      sum.blocked / 1e6, sum.run_queue / 1e6, sum.preempted / 1e6,
		      sum.sampled_preempted / 1e6);
	/* One of them waits at any time, or both when others run here as well. */
	assert_in_range(sum.preempted, 1200 * NSEC_PER_MSEC, 3100 * NSEC_PER_MSEC);
	assert_true(sum.blocked < 100 * NSEC_PER_MSEC);
	assert_true(fabs((double)sum.sampled_preempted - sum.preempted) <
		    4 * sqrt(20e6 * (double)sum.preempted));
}

static void yielder(void *arg)
{
	uint64_t until = mono_now_ns() + 500 * NSEC_PER_MSEC;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	while (mono_now_ns() < until)
		sched_yield();
}

/* Who gives the CPU away wants it: that is run-queue time, not preemption. */
static void test_yield(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct sums sum = {};
	pid_t a = start_process(yielder, NULL), b = start_process(yielder, NULL);

	wait_for(a);
	wait_for(b);
	s = drain(c, true);
	add(&sum, s, a);
	add(&sum, s, b);
	assert_true(sum.run_queue > 10 * sum.blocked);
	assert_true(sum.run_queue > sum.preempted / 2);
}

/* ---- sampling is unbiased -------------------------------------------------------------------------------- */

static void short_sleeper(void *arg)
{
	struct sleeps *truth = arg;
	uint64_t begin = off_cpu_ns();

	prctl(PR_SET_TIMERSLACK, 1);
	for (int i = 0; i < 1500; i++) {
		struct timespec t = { .tv_nsec = 200000 + i % 7 * 150000 };

		nanosleep(&t, NULL);
	}
	truth->short_ns = off_cpu_ns() - begin;
	truth->life_ns = off_cpu_ns() - truth->begin_ns;
}

static void test_unbiased(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct sleeps *truth = shared_memory(sizeof(*truth));
	struct sums sum = {};
	bool done = false;
	double deviation;
	uint64_t told;
	pid_t pid;

	truth->begin_ns = mono_now_ns();
	pid = start_process(short_sleeper, truth);
	while (!done) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		run_for(c, 200);
		done = waitpid(pid, NULL, WNOHANG) == pid;
		s = drain(c, true);
		add(&sum, s, pid);
	}
	told = sum.blocked + sum.run_queue + sum.preempted;
	deviation = sqrt(20e6 * (double)told);
	print_message("stamped %.1f to %.1f told %.1f sampled %.1f, one deviation %.1f; %.0f "
		      "events of %lu\n",
		      truth->short_ns / 1e6, truth->life_ns / 1e6, told / 1e6, sum.sampled / 1e6,
		      deviation / 1e6, sum.events, sum.waits);
	assert_true(fabs((double)sum.sampled - told) < 4 * deviation);
	/* Interrupts are in none of the clocks. */
	assert_in_range(told, truth->short_ns * 97 / 100,
			truth->life_ns * 102 / 100 + 100 * NSEC_PER_MSEC);
	/* A timer that fires on the way to sleep is no wait. */
	assert_in_range(sum.waits, 1400, 1600);
	munmap(truth, sizeof(*truth));
}

/* ---- as fast as a CPU can switch ------------------------------------------------------------------------ */

#define TURNS 100000

struct player {
	int from, to;
	bool begins;
	struct sleeps truth;
	uint64_t switches; /* that it asked for, as the kernel counts them */
};

static uint64_t voluntary_switches(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return (uint64_t)u.ru_nvcsw;
}

/* Two of them, on one CPU: each turn is a switch. */
static void play(void *arg)
{
	struct player *p = arg;
	uint64_t begin = off_cpu_ns();
	char ball = 0;

	for (int i = 0; i < TURNS; i++) {
		if (p->begins && write(p->to, &ball, 1) != 1)
			_exit(1);
		if (read(p->from, &ball, 1) != 1)
			_exit(1);
		if (!p->begins && write(p->to, &ball, 1) != 1)
			_exit(1);
	}
	p->truth.short_ns = off_cpu_ns() - begin;
	p->truth.life_ns = off_cpu_ns() - p->truth.begin_ns;
	p->switches = voluntary_switches();
}

/* Totals are those of all waits, however many there are and however few are kept. */
static void test_every_switch(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct player *players = shared_memory(2 * sizeof(*players));
	struct sums sum[2] = {};
	int there[2], back[2];
	uint64_t begin = mono_now_ns(), took;
	cpu_set_t before, one;
	pid_t pids[2];
	unsigned ended = 0;

	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	players[0] = (struct player){ .from = back[0], .to = there[1], .begins = true };
	players[1] = (struct player){ .from = there[0], .to = back[1] };
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (int i = 0; i < 2; i++) {
		players[i].truth.begin_ns = mono_now_ns();
		pids[i] = start_process(play, &players[i]);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);

	while (ended < 2) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		run_for(c, 200);
		for (int i = 0; i < 2; i++)
			ended += waitpid(pids[i], NULL, WNOHANG) == pids[i];
		took = mono_now_ns() - begin;
		s = drain(c, true);
		for (int i = 0; i < 2; i++)
			add(&sum[i], s, pids[i]);
	}
	for (int i = 0; i < 2; i++) {
		const struct sleeps *truth = &players[i].truth;
		uint64_t told = sum[i].blocked + sum[i].run_queue + sum[i].preempted;

		print_message("stamped %.1f to %.1f told %.1f ms in %lu waits of %lu, %.0f "
			      "switches a second\n",
			      truth->short_ns / 1e6, truth->life_ns / 1e6, told / 1e6, sum[i].waits,
			      players[i].switches, 2 * (double)players[i].switches * 1e9 / took);
		/* A wait that is broken off before it is one counts as a switch in neither. */
		assert_in_range(sum[i].waits, players[i].switches - 2, players[i].switches + 10);
		assert_true(players[i].switches > TURNS / 10);
		assert_in_range(told, truth->short_ns * 97 / 100,
				truth->life_ns * 103 / 100 + 100 * NSEC_PER_MSEC);
	}
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
	munmap(players, 2 * sizeof(*players));
}

/* ---- ends of threads ---------------------------------------------------------------------------------------- */

static void storm(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		pid_t pid = vfork();

		if (pid == 0)
			_exit(0);
		if (pid < 0 || waitpid(pid, NULL, 0) < 0)
			_exit(1);
	}
}

/* Threads that ended are told once more, and no more after that. */
static void test_exits(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	pid_t pid = start_process(storm, NULL), blocked;
	uint64_t threads = 0;
	int fds[2];

	/* Others end threads meanwhile: what the ring has is taken, as the daemon does. */
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		assert_int_equal(collector_poll(c), 0);
		sleep_ms(20);
	}
	for (int i = 0; i < 3; i++) {
		_cleanup_(slice_free_p) struct slice *s = drain(c, false);

		assert_conserved(s, SOURCE_OFF_CPU);
		assert_int_equal(s->source[SOURCE_OFF_CPU].sum.lost[LOSS_STATE_FULL], 0);
		assert_int_equal(s->source[SOURCE_OFF_CPU].sum.lost[LOSS_EXIT_RING_FULL], 0);
		threads = s->n_threads;
	}
	assert_true(threads < 1000);

	assert_int_equal(pipe(fds), 0);
	blocked = start_process(reader, fds);
	sleep_ms(200);
	kill_process(blocked);
	for (int i = 0; i < 3; i++) {
		_cleanup_(slice_free_p) struct slice *s = drain(c, true);
		struct sums sum = {};

		add(&sum, s, blocked);
		if (i == 0)
			assert_in_range(sum.blocked, 20 * NSEC_PER_MSEC, 500 * NSEC_PER_MSEC);
		else
			assert_int_equal(sum.blocked + sum.sampled, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sleeper),	     cmocka_unit_test(test_sleeper_split),
		cmocka_unit_test(test_hand_over),    cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_stacks_split), cmocka_unit_test(test_blocked_throughout),
		cmocka_unit_test(test_spinners),     cmocka_unit_test(test_yield),
		cmocka_unit_test(test_unbiased),     cmocka_unit_test(test_every_switch),
		cmocka_unit_test(test_exits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
