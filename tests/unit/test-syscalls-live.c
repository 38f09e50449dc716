// SPDX-License-Identifier: GPL-2.0-or-later
/* Exact counts of system calls against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "collect-live.h"

#define PROCESSES 16
#define CALLS 62500

static struct collect_options options(void)
{
	return (struct collect_options){
		.enabled = { [SOURCE_SYSCALLS] = true },
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

/* Calls in a slice by process and abi, number and errno; -1 is any. */
static uint64_t count(const struct slice *s, pid_t tgid, int abi, int nr, int err)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s->n_syscalls; i++) {
		const struct syscall_key *k = &s->syscalls[i].key;

		if ((pid_t)k->tgid == tgid && (abi < 0 || (int)SYSCALL_KEY_ABI(k->call) == abi) &&
		    (nr < 0 || (int)SYSCALL_KEY_NR(k->call) == nr) &&
		    (err < 0 || (int)SYSCALL_KEY_ERRNO(k->call) == err))
			n += s->syscalls[i].calls;
	}
	return n;
}

static void getpid_calls(void *arg)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getpid);
}

/* Drains while the calls are being made: none may fall between two windows. */
static uint64_t exact_calls(struct collector *c)
{
	pid_t pids[PROCESSES];
	uint64_t n = 0;

	for (int i = 0; i < PROCESSES; i++)
		pids[i] = start_process(getpid_calls, NULL);
	for (int round = 0; round < 6; round++) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		if (round == 5)
			for (int i = 0; i < PROCESSES; i++)
				wait_for(pids[i]);
		else
			run_for(c, 50);
		s = drain(c, false);
		assert_conserved(s, SOURCE_SYSCALLS);
		assert_int_equal(s->source[SOURCE_SYSCALLS].sum.lost[LOSS_RECURSION], 0);
		for (int i = 0; i < PROCESSES; i++)
			n += count(s, pids[i], SYSCALL_ABI_NATIVE, SYS_getpid, 0);
	}
	return n;
}

static void test_processes(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);

	assert_int_equal(exact_calls(c), PROCESSES * CALLS);
}

#define CALLERS 4
#define HAND_OVERS 6

struct calls {
	bool stop;
	uint64_t made[CALLERS];
};

static void call_until_told(void *arg)
{
	uint64_t *made = arg, n = 0;
	const struct calls *calls = (const void *)((uintptr_t)made & ~(uintptr_t)4095);

	for (; !__atomic_load_n(&calls->stop, __ATOMIC_RELAXED); n++)
		syscall(SYS_getpid);
	*made = n;
}

/*
 * From one collector to the next while calls are made as fast as they can be: what may be wrong is the call that
 * each CPU was in when the windows were closed.
 */
static void test_hand_over(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	struct calls *calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				   -1, 0);
	int64_t wrong = 0;
	pid_t pids[CALLERS];

	assert_ptr_not_equal(calls, MAP_FAILED);
	for (int i = 0; i < CALLERS; i++)
		pids[i] = start_process(call_until_told, &calls->made[i]);
	for (int round = 0; round <= HAND_OVERS; round++) {
		_cleanup_(slice_free_p) struct slice *s = NULL;

		run_for(c, 50);
		if (round < HAND_OVERS) {
			s = hand_over(&c, &o);
		} else {
			__atomic_store_n(&calls->stop, true, __ATOMIC_RELAXED);
			for (int i = 0; i < CALLERS; i++)
				wait_for(pids[i]);
			s = drain(c, false);
		}
		assert_conserved(s, SOURCE_SYSCALLS);
		for (int i = 0; i < CALLERS; i++)
			wrong += (int64_t)count(s, pids[i], SYSCALL_ABI_NATIVE, SYS_getpid, 0);
	}
	for (int i = 0; i < CALLERS; i++)
		wrong -= (int64_t)calls->made[i];
	print_message("%d hand-overs: %lld calls wrong\n", HAND_OVERS, (long long)wrong);
	assert_in_range(wrong + HAND_OVERS * sysconf(_SC_NPROCESSORS_ONLN), 0,
			2 * HAND_OVERS * sysconf(_SC_NPROCESSORS_ONLN));
	munmap(calls, 4096);
}

static void test_classic(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	struct source_state st;

	o.force_classic = true;
	c = start_or_skip(&o);
	collector_source_state(c, SOURCE_SYSCALLS, &st);
	if (!streq(st.hook, "tracepoint")) {
		print_message("SKIP: tracefs is not mounted\n");
		skip();
	}
	assert_int_equal(exact_calls(c), PROCESSES * CALLS);
}

static void *getppid_calls(void *arg)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	return NULL;
}

static void eight_threads(void *arg)
{
	pthread_t t[8];

	for (int i = 0; i < 8; i++)
		if (pthread_create(&t[i], NULL, getppid_calls, NULL))
			_exit(1);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
}

static void test_threads(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(eight_threads, NULL);

	wait_for(pid);
	s = drain(c, false);
	assert_int_equal(count(s, pid, SYSCALL_ABI_NATIVE, SYS_getppid, 0), 8 * CALLS);
	assert_conserved(s, SOURCE_SYSCALLS);
}

static void odd_calls(void *arg)
{
	for (int i = 0; i < 10; i++) {
#ifdef __x86_64__
		syscall(0x40000000 + SYS_getpid);
#endif
		syscall(-1);
		syscall(9999);
		syscall(1 << 20);
	}
}

static void test_odd_numbers(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(odd_calls, NULL);

	wait_for(pid);
	s = drain(c, false);
#ifdef __x86_64__
	assert_int_equal(count(s, pid, SYSCALL_ABI_X32, SYS_getpid, -1), 10);
	assert_int_equal(count(s, pid, SYSCALL_ABI_NATIVE, SYS_getpid, -1), 0);
#endif
	assert_int_equal(count(s, pid, SYSCALL_ABI_NATIVE, SYSCALL_NR_INVALID, ENOSYS), 20);
	assert_int_equal(count(s, pid, SYSCALL_ABI_NATIVE, 9999, ENOSYS), 10);
	assert_int_equal(count(s, pid, -1, SYS_rt_sigreturn, -1), 0);
}

#ifdef __x86_64__
/* i386's getpid; natively the number is writev's. */
static void compat_calls(void *arg)
{
	signal(SIGSEGV, SIG_DFL);
	for (int i = 0; i < 10; i++) {
		long r = 20;

		__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	}
}

static void test_compat(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(compat_calls, NULL);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		print_message("SKIP: this kernel runs without 32-bit calls\n");
		/* skip() jumps over what is left to clean up. */
		collector_free(TAKE_PTR(c));
		skip();
	}
	s = drain(c, false);
	assert_int_equal(count(s, pid, SYSCALL_ABI_COMPAT, 20, -1), 10);
	assert_int_equal(count(s, pid, SYSCALL_ABI_NATIVE, 20, -1), 0);
}
#endif

static void on_signal(int sig)
{
}

/* Calls that do not return, return twice, or return as another. */
static void special_calls(void *arg)
{
	pid_t *child = arg, pid;
	int status;

	signal(SIGUSR1, on_signal);
	for (int i = 0; i < 5; i++)
		raise(SIGUSR1);
	for (int i = 0; i < 3; i++) {
		pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		if (pid == 0)
			syscall(SYS_exit, 0);
		*child = pid;
		if (waitpid(pid, &status, 0) < 0)
			_exit(1);
	}
	if (close(-1) != -1)
		_exit(1);
	/* It runs in our memory until it ends; a child of its own it is all the same. */
	pid = vfork();
	if (pid == 0) {
		syscall(SYS_getppid);
		_exit(0);
	}
	child[1] = pid;
	if (waitpid(pid, &status, 0) < 0)
		_exit(1);
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

static void test_special_calls(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t *child = shared_memory(2 * sizeof(*child));
	pid_t pid = start_process(special_calls, child);

	wait_for(pid);
	s = drain(c, false);
	assert_int_equal(count(s, pid, 0, SYS_rt_sigreturn, 0), 5);
#ifdef SYS_vfork
	assert_int_equal(count(s, pid, 0, SYS_clone, 0), 3);
#endif
	assert_int_equal(count(s, *child, 0, SYS_clone, -1), 0);
	assert_int_equal(count(s, *child, 0, SYS_exit, -1), 1);
	assert_int_equal(count(s, *child, -1, -1, -1), 1);
#ifdef SYS_vfork
	assert_int_equal(count(s, pid, 0, SYS_vfork, 0), 1);
	assert_int_equal(count(s, child[1], 0, SYS_vfork, -1), 0);
#endif
	assert_int_equal(count(s, child[1], 0, SYS_getppid, 0), 1);
	assert_int_equal(count(s, child[1], 0, SYS_exit_group, 0), 1);
#ifndef __SANITIZE_ADDRESS__ /* which makes calls of its own */
	assert_int_equal(count(s, child[1], -1, -1, -1), 2);
#endif
	assert_int_equal(count(s, pid, 0, SYS_getppid, -1), 0);
	assert_int_equal(count(s, pid, 0, SYS_close, EBADF), 1);
	assert_int_equal(count(s, pid, 0, SYS_execve, 0), 1);
	assert_int_equal(count(s, pid, 0, SYS_exit_group, 0), 1);
	assert_int_equal(count(s, pid, 0, SYS_exit, -1), 0);
	munmap(child, 2 * sizeof(*child));
}

static void one_read(void *arg)
{
	char b;

	if (read(*(int *)arg, &b, 1) != 1)
		_exit(1);
}

/* A call that was being made when counting began is counted when it ends, one that never ends is not. */
static void test_call_in_progress(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid, waits;
	int fds[2], none[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(none), 0);
	pid = start_process(one_read, fds);
	waits = start_process(one_read, none);
	sleep_ms(200);
	c = start_or_skip(&o);
	assert_int_equal(write(fds[1], "x", 1), 1);
	wait_for(pid);
	s = drain(c, false);
	assert_int_equal(count(s, pid, 0, SYS_read, 0), 1);
	assert_int_equal(count(s, waits, -1, -1, -1), 0);
	assert_conserved(s, SOURCE_SYSCALLS);
	kill_process(waits);
}

static void *wait_forever(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

static void *leave(void *arg)
{
	return NULL;
}

/* exit by each thread that leaves, exit_group by the one that ends the process, nothing by those it takes along. */
static void threads_and_exit(void *arg)
{
	pthread_t t;

	for (int i = 0; i < 4; i++) {
		if (pthread_create(&t, NULL, leave, NULL))
			_exit(1);
		pthread_join(t, NULL);
	}
	for (int i = 0; i < 3; i++)
		if (pthread_create(&t, NULL, wait_forever, NULL))
			_exit(1);
}

static void blocked_read(void *arg)
{
	int fds[2];
	char b;

	if (pipe(fds) || read(fds[0], &b, 1) < 0)
		_exit(1);
}

static void test_exits(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	pid_t pid = start_process(threads_and_exit, NULL),
	      killed = start_process(blocked_read, NULL);

	wait_for(pid);
	sleep_ms(50);
	kill_process(killed);
	s = drain(c, false);
	assert_int_equal(count(s, pid, 0, SYS_exit, -1), 4);
	assert_int_equal(count(s, pid, 0, SYS_exit_group, -1), 1);
	assert_int_equal(count(s, killed, 0, SYS_exit, -1), 0);
	assert_int_equal(count(s, killed, 0, SYS_exit_group, -1), 0);
	assert_int_equal(count(s, killed, 0, SYS_read, -1), 1);
}

static void many_numbers(void *arg)
{
	for (int round = 0; round < 3; round++)
		for (int nr = 1000; nr < 9000; nr++)
			syscall(nr);
}

/* More calls than the map holds: what does not fit is counted as lost. */
static void test_full(void **state)
{
	struct collect_options o = options();
	_cleanup_(collector_free_p) struct collector *c = NULL;
	_cleanup_(slice_free_p) struct slice *s = NULL;
	const struct account *a;
	pid_t pid;

	o.count_entries = 512;
	c = start_or_skip(&o);
	pid = start_process(many_numbers, NULL);
	wait_for(pid);
	s = drain(c, false);
	a = &s->source[SOURCE_SYSCALLS].sum;
	assert_conserved(s, SOURCE_SYSCALLS);
	print_message("seen %lu, stored %lu, full %lu, busy %lu\n", a->seen, a->stored,
		      a->lost[LOSS_COUNT_FULL], a->lost[LOSS_COUNT_BUSY]);
	assert_true(a->lost[LOSS_COUNT_FULL] > 10000);
	assert_true(a->seen >= 24000);
}

int main(void)
{
	/* A view of our own with tracefs, which classic tracepoints need. */
	if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		(void)!mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),     cmocka_unit_test(test_hand_over),
		cmocka_unit_test(test_classic),	      cmocka_unit_test(test_threads),
		cmocka_unit_test(test_odd_numbers),
#ifdef __x86_64__
		cmocka_unit_test(test_compat),
#endif
		cmocka_unit_test(test_special_calls), cmocka_unit_test(test_call_in_progress),
		cmocka_unit_test(test_exits),	      cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
