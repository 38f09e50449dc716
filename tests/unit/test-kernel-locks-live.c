// SPDX-License-Identifier: GPL-2.0-or-later
/* Waits for the kernel's own locks, against the running kernel. Needs root and BPF. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../workload/kernel-lock.h"
#include "collect-live.h"

#define ROUNDS 5

static struct collect_options options(bool kernel_locks)
{
	return (struct collect_options){
		.enabled = { [SOURCE_FUTEX] = true },
		.kernel_locks = kernel_locks,
		.slice_ns = 2 * NSEC_PER_SEC,
		.places = kernel_places(),
	};
}

static void source_text(const struct collector *c, char *text, size_t size)
{
	struct source_state state;

	collector_source_state(c, SOURCE_FUTEX, &state);
	snprintf(text, size, "%s", state.kernel_locks);
}

static struct collector *start_with_tracepoints(void)
{
	struct collect_options o = options(true);
	struct collector *c = start_or_skip(&o);
	char text[128];

	source_text(c, text, sizeof(text));
	if (streq(text, "contention tracepoints"))
		return c;
	print_message("SKIP: %s\n", text);
	collector_free(c);
	skip();
	return NULL;
}

struct sums {
	uint64_t waits, ns, max_ns;
};

static struct sums sums_of(const struct slice *s, pid_t tgid, enum kernel_lock_kind kind)
{
	struct sums sum = {};

	for (size_t i = 0; i < s->n_kernel_locks; i++) {
		const struct kernel_lock *k = &s->kernel_locks[i];

		if ((pid_t)k->tgid != tgid || k->kind != kind)
			continue;
		assert_true(k->max_ns <= k->ns && k->waits > 0 && k->nr <= KERNEL_LOCK_FRAMES);
		sum.waits += k->waits;
		sum.ns += k->ns;
		sum.max_ns = MAX(sum.max_ns, k->max_ns);
	}
	return sum;
}

/* ---- waits of a known length ------------------------------------------------------------------------ */

struct held {
	struct kernel_lock_truth truth;
	int error;
};

static void run_held(void *arg)
{
	struct held *h = arg;

	h->error = kernel_lock_run("/tmp", ROUNDS, &h->truth);
}

/* The lower bound is sharp: so long each of these waits was made to last. */
static void check_sums(struct sums s, uint64_t elapsed_ns)
{
	assert_true(s.waits >= ROUNDS);
	assert_true(s.ns >= ROUNDS * KERNEL_LOCK_HOLD_NS);
	assert_true(s.max_ns >= KERNEL_LOCK_HOLD_NS);
	/* Never more than three threads were there. */
	assert_true(s.ns <= 3 * elapsed_ns);
}

static void test_lengths(void **state)
{
	_cleanup_(collector_free_p) struct collector *c = start_with_tracepoints();
	_cleanup_(slice_free_p) struct slice *s = NULL, *next = NULL;
	struct held *h = shared_memory(sizeof(*h));
	uint64_t begin = mono_now_ns();
	pid_t pid = start_process(run_held, h);

	wait_for(pid);
	s = drain(c, true);
	if (h->error == ENOSYS || h->error == EPERM) {
		print_message("SKIP: userfaultfd: %s\n", strerror(h->error));
		skip();
	}
	assert_int_equal(h->error, 0);
	assert_int_equal(h->truth.rounds, ROUNDS);
	check_sums(sums_of(s, pid, KERNEL_LOCK_MUTEX), mono_now_ns() - begin);
	check_sums(sums_of(s, pid, KERNEL_LOCK_RWSEM_WRITE), mono_now_ns() - begin);
	assert_int_equal(s->kernel_locks_lost, 0);
	/* And they are told once. */
	next = drain(c, true);
	assert_int_equal(sums_of(next, pid, KERNEL_LOCK_MUTEX).waits, 0);
	munmap(h, sizeof(*h));
}

/* ---- crowds ------------------------------------------------------------------------------------------- */

#define CROWD 8
#define CROWD_MS 700

static void *map_and_unmap(void *arg)
{
	uint64_t until = mono_now_ns() + CROWD_MS * NSEC_PER_MSEC;

	while (mono_now_ns() < until) {
		char *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			_exit(1);
		*p = 1;
		munmap(p, 1 << 16);
	}
	return NULL;
}

static void run_crowd(void *arg)
{
	pthread_t threads[CROWD];

	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&threads[i], NULL, map_and_unmap, NULL))
			_exit(1);
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
}

/* No thread waits for longer than it lives, however the windows fall. */
static void test_crowd(void **state)
{
	_cleanup_(collector_free_p) struct collector *c = start_with_tracepoints();
	uint64_t begin = mono_now_ns(), ns = 0, waits = 0, lost = 0;
	pid_t pid = start_process(run_crowd, NULL), done = 0;
	int status = 0;

	while (!done) {
		struct slice *s;

		run_for(c, 100);
		done = waitpid(pid, &status, WNOHANG);
		s = drain(c, false);
		for (enum kernel_lock_kind k = KERNEL_LOCK_RWSEM_READ; k <= KERNEL_LOCK_RWSEM_WRITE;
		     k++) {
			waits += sums_of(s, pid, k).waits;
			ns += sums_of(s, pid, k).ns;
		}
		lost += s->kernel_locks_lost;
		slice_free(s);
	}
	assert_true(done == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(waits > 0);
	assert_true(ns <= (CROWD + 1) * (mono_now_ns() - begin));
	assert_int_equal(lost, 0);
}

static void test_off(void **state)
{
	struct collect_options o = options(false);
	_cleanup_(collector_free_p) struct collector *c = start_or_skip(&o);
	_cleanup_(slice_free_p) struct slice *s = NULL;
	char text[128];

	source_text(c, text, sizeof(text));
	assert_string_equal(text, "off (kernel-locks=no)");
	wait_for(start_process(run_crowd, NULL));
	s = drain(c, true);
	assert_int_equal(s->n_kernel_locks, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
