// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * On-CPU collection against the running kernel. Needs root, BPF and perf events; skips with the kernel's own
 * reason otherwise. Truth: the workload's CPU clock, the elapsed time, and what the workload knows it did.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "collect/internal.h"
#include "places.h"

/* ---- workloads: children that die with the test ------------------------------------------------------ */

#define frame_pointers                                                       \
	__attribute__((noinline, noipa, no_sanitize("address", "undefined"), \
		       optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))

typedef void (*work_fn)(void);

static pid_t start_child(work_fn work, int cpu)
{
	pid_t parent = getpid(), pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) < 0)
			_exit(1);
	}
	work();
	_exit(0);
}

static void stop_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static frame_pointers void spin_leaf(void)
{
	for (volatile unsigned i = 0; i < 50000; i++)
		;
}

static frame_pointers void spin_middle(void)
{
	spin_leaf();
	__asm__ volatile("");
}

static frame_pointers void spin(void)
{
	for (;;) {
		spin_middle();
		__asm__ volatile("");
	}
}

/* Keeps its CPU inside bpf(2), where ticks are skipped without a trace. */
static void hammer_bpf(void)
{
	enum { N = 20000 };
	uint32_t *keys = new0(uint32_t, N), *values = new0(uint32_t, N), out, n;
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, "hammer", 4, 4, N, NULL);

	for (uint32_t i = 0; fd >= 0 && keys && values && i < N; i++)
		bpf_map_update_elem(fd, &i, &i, BPF_ANY);
	for (;;) {
		n = N;
		bpf_map_lookup_batch(fd, NULL, &out, keys, values, &n, NULL);
	}
}

/* A random walk over 16 functions, 20 deep: a new stack nearly each time. */
static uint64_t walk_random;
static frame_pointers void walk(unsigned depth);

#define STEP(n)                                            \
	static frame_pointers void step##n(unsigned depth) \
	{                                                  \
		walk(depth);                               \
		__asm__ volatile("" ::"r"(n));             \
	}
STEP(0);
STEP(1);
STEP(2);
STEP(3);
STEP(4);
STEP(5);
STEP(6);
STEP(7);
STEP(8);
STEP(9);
STEP(10);
STEP(11);
STEP(12);
STEP(13);
STEP(14);
STEP(15);

static void (*const steps[])(unsigned) = {
	step0, step1, step2,  step3,  step4,  step5,  step6,  step7,
	step8, step9, step10, step11, step12, step13, step14, step15,
};

static frame_pointers void walk(unsigned depth)
{
	if (!depth) {
		for (volatile unsigned i = 0; i < 20000; i++)
			;
		return;
	}
	walk_random = walk_random * 6364136223846793005ULL + 1442695040888963407ULL;
	steps[walk_random >> 60](depth - 1);
	__asm__ volatile("");
}

static frame_pointers void wander(void)
{
	walk_random = mono_now_ns();
	for (;;)
		walk(20);
}

/* ---- collecting --------------------------------------------------------------------------------------- */

static struct collect_options options(double hz)
{
	return (struct collect_options){
		.enabled = { [SOURCE_ON_CPU] = true },
		.on_cpu_hz = hz,
		.on_cpu_jitter = 0.1,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

static struct collector *start_or_skip(const struct collect_options *o)
{
	struct collector *c = NULL;
	char *why = NULL;

	if (collector_new(o, &c, &why) < 0) {
		print_message("SKIP: %s\n", why);
		free(why);
		skip();
	}
	return c;
}

/* What a test sums up over windows. */
struct sum {
	struct account a;
	uint64_t samples, ns; /* of the rows */
	uint64_t mono_start_ns, mono_end_ns;
	uint64_t stacks;
};

static uint64_t counts_lost(const struct account *a)
{
	return a->lost[LOSS_TICK_SKIPPED] + a->lost[LOSS_COUNT_FULL] + a->lost[LOSS_COUNT_BUSY] +
	       a->lost[LOSS_RECURSION] + a->lost[LOSS_OTHER];
}

/* Everything that must hold for every window. */
static void check_slice(const struct slice *s)
{
	const struct account *a = &s->source[SOURCE_ON_CPU].sum;
	uint64_t samples = 0, ns = 0;

	assert_int_equal(a->seen, a->stored + a->idle + counts_lost(a));
	assert_int_equal(a->lost[LOSS_OTHER], 0);
	for (size_t i = 0; i < s->n_on_cpu; i++) {
		const struct slice_on_cpu *e = &s->on_cpu[i];
		bool found = e->key.stack == STACK_ID_NONE;

		samples += e->value.samples;
		ns += e->value.ns;
		for (size_t k = 0; k < s->n_stacks && !found; k++) {
			const struct slice_stack *t = &s->stacks[k];

			if (t->id != e->key.stack)
				continue;
			found = true;
			assert_int_equal(t->tgid, e->key.tgid);
			assert_int_equal(t->start, e->key.start);
		}
		assert_true(found);
	}
	assert_int_equal(samples, a->stored);
	assert_int_equal(ns, a->ns);
}

static void add_account(struct account *sum, const struct account *a)
{
	const uint64_t *from = (const uint64_t *)a;
	uint64_t *to = (uint64_t *)sum;

	for (size_t i = 0; i < sizeof(*a) / sizeof(*to); i++)
		to[i] += from[i];
}

static struct slice *drain(struct collector *c, struct sum *sum)
{
	struct slice *s = NULL;

	assert_int_equal(collector_drain(c, false, &s), 0);
	check_slice(s);
	if (!sum->mono_start_ns)
		sum->mono_start_ns = s->mono_start_ns;
	assert_true(!sum->mono_end_ns || sum->mono_end_ns == s->mono_start_ns);
	sum->mono_end_ns = s->mono_end_ns;
	add_account(&sum->a, &s->source[SOURCE_ON_CPU].sum);
	sum->stacks += s->n_stacks;
	for (size_t i = 0; i < s->n_on_cpu; i++) {
		sum->samples += s->on_cpu[i].value.samples;
		sum->ns += s->on_cpu[i].value.ns;
	}
	return s;
}

static void poll_for(struct collector *c, unsigned ms)
{
	uint64_t end = mono_now_ns() + ms * NSEC_PER_MSEC;

	while (mono_now_ns() < end) {
		usleep(50000);
		assert_int_equal(collector_poll(c), 0);
	}
}

static void check_time_within(const struct sum *sum, unsigned cpus, double slack)
{
	double expected = (double)(sum->mono_end_ns - sum->mono_start_ns) * cpus;
	double got = (double)sum->a.ns + sum->a.idle_ns + sum->a.lost_ns;

	if (got < expected - slack || got > expected + slack)
		fail_msg("accounted for %.3f s of %.3f s", got / NSEC_PER_SEC,
			 expected / NSEC_PER_SEC);
}

/* All CPU time of the windows is accounted for, up to the ticks in progress at both ends. */
static void check_time(const struct sum *sum, unsigned cpus, double hz)
{
	check_time_within(sum, cpus, 3 * cpus * NSEC_PER_SEC / hz + 10 * NSEC_PER_MSEC);
}

static uint64_t ns_of(const struct slice *s, uint32_t tgid)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < s->n_on_cpu; i++)
		if (s->on_cpu[i].key.tgid == tgid)
			ns += s->on_cpu[i].value.ns;
	return ns;
}

static uint64_t cpu_clock_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &t), 0);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static bool within(uint64_t address, void *function, size_t bytes)
{
	return address - (uint64_t)(uintptr_t)function < bytes;
}

/* The spinner's stack, from its leaf to main, in the order in which the functions called each other. */
static void check_spinner_stack(const struct slice *s, pid_t pid)
{
	unsigned good = 0, all = 0;

	for (size_t k = 0; k < s->n_stacks; k++) {
		const struct slice_stack *t = &s->stacks[k];
		const uint64_t *user = s->ips + t->first_ip + t->nr_kernel;

		if (t->tgid != (uint32_t)pid || t->nr_user < 4)
			continue;
		all++;
		good += within(user[0], spin_leaf, 64) && within(user[1], spin_middle, 64) &&
			within(user[2], spin, 64);
	}
	assert_true(all > 0);
	assert_true(good > 0);
}

static void test_spinner(void **state)
{
	struct collect_options o = options(199);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *first = NULL, *s = NULL;
	struct sum sum = {};
	struct source_state st;
	pid_t pid = start_child(spin, -1);
	uint64_t cpu;

	collector_source_state(c, SOURCE_ON_CPU, &st);
	assert_true(st.running);
	assert_string_equal(st.hook, "cpu-clock");
	collector_source_state(c, SOURCE_FUTEX, &st);
	assert_false(st.running);
	assert_string_equal(st.text, "off");
	first = drain(c, &sum);
	cpu = cpu_clock_ns(pid);
	poll_for(c, 2000);
	cpu = cpu_clock_ns(pid) - cpu;
	s = drain(c, &sum);
	check_spinner_stack(s, pid);
	check_time(&sum, s->cpus_online, 199);
	/* Time of ticks that were skipped is the spinner's as likely as not. */
	assert_true(ns_of(s, pid) < cpu * 1.1 + 50 * NSEC_PER_MSEC);
	assert_true(ns_of(s, pid) + sum.a.lost_ns > cpu * 0.9 - 50 * NSEC_PER_MSEC);
	assert_true(collector_map_bytes(c) > 0);
	stop_child(pid);
}

static void test_low_rate_conserves_time(void **state)
{
	struct collect_options o = options(19);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct sum sum = {};
	unsigned cpus = 0;

	for (int i = 0; i < 4; i++) {
		struct slice *s;

		poll_for(c, 700);
		s = drain(c, &sum);
		cpus = s->cpus_online;
		slice_free(s);
	}
	check_time(&sum, cpus, 19);
	/* 2.8 s at 19 Hz, however busy or quiet the host is. */
	assert_in_range(sum.a.seen, 2.8 * 19 * cpus * 0.7, 2.8 * 19 * cpus * 1.3);
}

static void test_bpf_hammered(void **state)
{
	struct collect_options o = options(499);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_child(hammer_bpf, 0);
	struct sum sum = {};

	poll_for(c, 1500);
	s = drain(c, &sum);
	stop_child(pid);
	assert_true(sum.a.lost[LOSS_TICK_SKIPPED] > 0);
	assert_true(sum.a.lost_ns > 0);
	/* Whoever is preempted within bpf(2) silences its CPU until it goes on: what that hides at the end comes later. */
	check_time_within(&sum, s->cpus_online, 200 * NSEC_PER_MSEC);
}

/* Windows that close as fast as they can, while ticks come as fast as they may. */
static void test_swaps_lose_nothing(void **state)
{
	struct collect_options o = options(4000);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	pid_t pid = start_child(spin, -1);
	struct sum sum = {};
	unsigned cpus = 0;

	for (int i = 0; i < 200; i++) {
		struct slice *s;

		usleep(3000);
		s = drain(c, &sum);
		assert_int_equal(s->window, i);
		cpus = s->cpus_online;
		slice_free(s);
	}
	stop_child(pid);
	assert_int_equal(sum.samples, sum.a.stored);
	assert_int_equal(sum.ns, sum.a.ns);
	assert_int_equal(sum.a.lost[LOSS_STACK_MISSING], 0);
	check_time(&sum, cpus, 4000);
}

static void test_many_stacks(void **state)
{
	struct collect_options o = options(5000);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t a = start_child(wander, -1), b = start_child(wander, -1);
	struct sum sum = {};

	o.slice_ns = 3 * NSEC_PER_SEC;
	poll_for(c, 2500);
	s = drain(c, &sum);
	stop_child(a);
	stop_child(b);
	print_message("%zu distinct stacks\n", s->n_stacks);
	assert_true(s->n_stacks > 5000);
	assert_int_equal(sum.a.lost[LOSS_STACK_COLLISION], 0);
	assert_int_equal(sum.a.lost[LOSS_STACK_MISSING], 0);
	assert_int_equal(sum.a.lost[LOSS_COUNT_FULL], 0);
	assert_int_equal(sum.a.lost[LOSS_STACK_RING_FULL], 0);
}

/* 16 ids for thousands of stacks: all collide, none is merged, no weight is lost. */
static void test_collisions(void **state)
{
	struct collect_options o = options(2000);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct collector *c;
	struct sum sum = {};
	pid_t pid = start_child(wander, -1);
	uint64_t without = 0;

	o.hash_mask = 0xf;
	c = start_or_skip(&o);
	poll_for(c, 1000);
	s = drain(c, &sum);
	stop_child(pid);
	collector_free(c);
	for (size_t i = 0; i < s->n_on_cpu; i++)
		if (s->on_cpu[i].key.stack == STACK_ID_NONE)
			without += s->on_cpu[i].value.samples;
	assert_true(s->n_stacks <= 16);
	assert_true(sum.a.lost[LOSS_STACK_COLLISION] > 100);
	assert_int_equal(without, sum.a.lost[LOSS_STACK_COLLISION]);
}

/* Nobody empties the ring buffer: weights stay, stacks are lost and counted; then all is well again. */
static void test_ring_full(void **state)
{
	struct collect_options o = options(3000);
	_cleanup_(slice_free_p) struct slice *s = NULL, *later = NULL;
	struct collector *c;
	struct sum sum = {}, after = {};
	pid_t pid = start_child(wander, -1);

	o.ring_bytes = 1;
	c = start_or_skip(&o);
	usleep(1000000);
	s = drain(c, &sum);
	assert_true(sum.a.lost[LOSS_STACK_RING_FULL] > 0);
	assert_int_equal(sum.a.lost[LOSS_STACK_MISSING], 0);
	stop_child(pid);
	poll_for(c, 100);
	later = drain(c, &after);
	slice_free(later);
	after = (struct sum){};
	poll_for(c, 100);
	later = drain(c, &after);
	assert_int_equal(after.a.lost[LOSS_STACK_RING_FULL], 0);
	collector_free(c);
}

static void test_counts_full(void **state)
{
	struct collect_options o = options(2000);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct collector *c;
	struct sum sum = {};
	pid_t pid = start_child(wander, -1);

	o.count_entries = 64;
	c = start_or_skip(&o);
	poll_for(c, 500);
	s = drain(c, &sum);
	stop_child(pid);
	assert_true(s->n_on_cpu <= 64);
	assert_true(sum.a.lost[LOSS_COUNT_FULL] > 0);
	check_time(&sum, s->cpus_online, 2000);
	collector_free(c);
}

/* A burst counts its processes alone, beside the recorder, which goes on. */
static void test_burst(void **state)
{
	struct collect_options o = options(19), b = options(499);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o), *burst = NULL;
	_cleanup_(slice_free_p) struct slice *s = NULL, *main_slice = NULL;
	pid_t pid = start_child(spin, -1), other = start_child(spin, -1);
	uint32_t only = pid;
	struct sum sum = {}, main_sum = {};

	b.burst = true;
	b.only_tgids = &only;
	b.n_only_tgids = 1;
	burst = start_or_skip(&b);
	for (int i = 0; i < 10; i++) {
		poll_for(c, 50);
		poll_for(burst, 50);
	}
	s = drain(burst, &sum);
	main_slice = drain(c, &main_sum);
	stop_child(pid);
	stop_child(other);
	assert_true(sum.a.stored > 50);
	for (size_t i = 0; i < s->n_on_cpu; i++)
		assert_int_equal(s->on_cpu[i].key.tgid, pid);
	assert_true(ns_of(main_slice, other) > 0);
}

static void test_cycles_fall_back(void **state)
{
	struct collect_options o = options(199);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct source_state st;
	struct collector *c;
	struct sum sum = {};
	pid_t pid = start_child(spin, -1);

	o.on_cpu_cycles = true;
	c = start_or_skip(&o);
	collector_source_state(c, SOURCE_ON_CPU, &st);
	print_message("%s: %s\n", st.hook, st.text);
	if (streq(st.hook, "cpu-clock"))
		assert_non_null(strstr(st.text, "no cycles counter"));
	else
		assert_string_equal(st.hook, "cycles");
	poll_for(c, 500);
	s = drain(c, &sum);
	stop_child(pid);
	assert_true(ns_of(s, pid) > 50 * NSEC_PER_MSEC);
	collector_free(c);
}

/* How hosts without a cycles counter say so. The collector's calls come by here. */
static int cycles_errno;

long syscall(long nr, ...)
{
	static long (*next)(long, ...);
	long arg[6];
	va_list ap;

	va_start(ap, nr);
	for (size_t i = 0; i < ARRAY_SIZE(arg); i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	if (cycles_errno && nr == SYS_perf_event_open &&
	    ((const struct perf_event_attr *)arg[0])->type == PERF_TYPE_HARDWARE) {
		errno = cycles_errno;
		return -1;
	}
	next = next ?: (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return next(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

static void test_no_cycles_by_any_name(void **state)
{
	static const int errors[] = { ENOENT, ENODEV, EOPNOTSUPP, EINVAL,
				      EACCES, EPERM,  EBUSY,	  ENOSPC };

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		struct collect_options o = options(199);
		struct source_state st;
		struct collector *c;

		o.on_cpu_cycles = true;
		cycles_errno = errors[i];
		c = start_or_skip(&o);
		collector_source_state(c, SOURCE_ON_CPU, &st);
		collector_free(c);
		cycles_errno = 0;
		assert_true(st.running);
		assert_string_equal(st.hook, "cpu-clock");
		assert_non_null(strstr(st.text, "no cycles counter"));
	}
}

/* ---- CPUs that come and go ------------------------------------------------------------------------------ */

#define CPU1_ONLINE "/sys/devices/system/cpu/cpu1/online"

static bool set_cpu1(bool on)
{
	_cleanup_close_ int fd = open(CPU1_ONLINE, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, on ? "1" : "0", 1) == 1;
}

static int online_again(void **state)
{
	set_cpu1(true);
	return 0;
}

/* Whether a spinner that is bound to CPU 1 is seen there. */
static bool cpu1_is_sampled(struct collector *c)
{
	pid_t pid = start_child(spin, 1);
	struct sum sum = {};
	struct slice *s;
	bool seen;

	poll_for(c, 400);
	s = drain(c, &sum);
	seen = ns_of(s, pid) > 0;
	slice_free(s);
	stop_child(pid);
	return seen;
}

static void test_cpu_comes_back(void **state)
{
	struct collect_options o = options(199);
	_cleanup_(collector_free_p) struct collector *c = NULL;
	struct source_state st;

	if (access(CPU1_ONLINE, W_OK) < 0 || !set_cpu1(false)) {
		print_message("SKIP: CPU 1 cannot be switched off\n");
		skip();
	}
	c = start_or_skip(&o);
	poll_for(c, 200);
	assert_true(set_cpu1(true));
	poll_for(c, 1200);
	assert_true(cpu1_is_sampled(c));

	assert_true(set_cpu1(false));
	poll_for(c, 1200);
	assert_true(set_cpu1(true));
	poll_for(c, 1200);
	assert_true(cpu1_is_sampled(c));

	/* Away and back between two looks: only the event's own clock tells. */
	assert_true(set_cpu1(false));
	assert_true(set_cpu1(true));
	poll_for(c, 3500);
	assert_true(cpu1_is_sampled(c));
	collector_source_state(c, SOURCE_ON_CPU, &st);
	assert_true(st.running);
}

/* ---- what is missing is named --------------------------------------------------------------------------- */

/* Runs collector_new() in a child after `spoil`; true when it failed and said `expected`. */
static bool fails_saying(bool (*spoil)(void), const char *expected)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct collect_options o = options(19);
		struct collector *c = NULL;
		char *why = NULL;

		if (!spoil())
			_exit(2);
		if (collector_new(&o, &c, &why) == 0)
			_exit(3);
		fprintf(stderr, "%s\n", why);
		_exit(strstr(why, expected) ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
		print_message("SKIP: this condition cannot be made here\n");
		skip();
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool become_nobody(void)
{
	return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0;
}

static bool hide_btf(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("/dev/null", "/sys/kernel/btf/vmlinux", NULL, MS_BIND, NULL) == 0;
}

static void test_reasons(void **state)
{
	struct collect_options o = options(19);

	collector_free(start_or_skip(&o));
	assert_true(fails_saying(become_nobody, "CAP_BPF and CAP_PERFMON missing"));
	assert_true(fails_saying(hide_btf, "CONFIG_DEBUG_INFO_BTF"));
}

/* Two runs at once would switch off each other's CPUs. */
static int take_turns(void **state)
{
	int fd = open("/run/lock/sysprofd-test-cpus", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0)
		flock(fd, LOCK_EX);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spinner),
		cmocka_unit_test(test_low_rate_conserves_time),
		cmocka_unit_test(test_bpf_hammered),
		cmocka_unit_test(test_swaps_lose_nothing),
		cmocka_unit_test(test_many_stacks),
		cmocka_unit_test(test_collisions),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_counts_full),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_cycles_fall_back),
		cmocka_unit_test(test_no_cycles_by_any_name),
		cmocka_unit_test_teardown(test_cpu_comes_back, online_again),
		cmocka_unit_test(test_reasons),
	};

	return cmocka_run_group_tests(tests, take_turns, NULL);
}
