// SPDX-License-Identifier: GPL-2.0-or-later
/* Rows about locks of the kernel: by kind and caller, with those who wait; and what else must not see them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../bpf/sysprofd.h"
#include "query/kernel-locks.h"
#include "query/locks.h"
#include "query/query.h"

static void test_functions(void **state)
{
	static const struct {
		const char *name;
		bool locks;
	} cases[] = {
		{ "__mutex_lock.constprop.0", true },
		{ "mutex_lock_killable", true },
		{ "down_write", true },
		{ "down", true },
		{ "__down", true },
		{ "rwsem_down_read_slowpath", true },
		{ "native_queued_spin_lock_slowpath", true },
		{ "_raw_spin_lock_irqsave", true },
		{ "queued_write_lock_slowpath", true },
		{ "percpu_rwsem_wait", true },
		{ "downgrade_write", false },
		{ "vm_mmap_pgoff", false },
		{ "anon_pipe_write", false },
		{ "futex_wait", false },
		{ "", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (kernel_function_locks(cases[i].name) != cases[i].locks)
			fail_msg("%s", cases[i].name);
}

/* ---- a bucket ------------------------------------------------------------------------------------------- */

/* Root first. */
static uint32_t kernel_stack(struct dict *d, const char *const *functions)
{
	uint32_t stack = 0;

	for (; *functions; functions++) {
		uint32_t name = (uint32_t)dict_string(d, *functions);
		struct frame f = { .kind = FRAME_KERNEL,
				   .flags = FRAME_NAMED,
				   .offset = name * 16,
				   .name = name };

		stack = (uint32_t)dict_stack(d, stack, (uint32_t)dict_frame(d, &f));
	}
	return stack;
}

static uint32_t process(struct dict *d, const char *comm, uint32_t pid, uint32_t uid)
{
	struct series s = { .pid = pid, .start = pid, .uid = uid };

	s.label[LABEL_COMM] = (uint32_t)dict_string(d, comm);
	return (uint32_t)dict_series(d, &s);
}

static void add(struct bucket *b, uint32_t series, uint32_t stack, enum kernel_lock_kind kind,
		uint64_t waits, uint64_t us, uint64_t max_us)
{
	assert_int_equal(columns_add(&b->columns[PROFILE_FUTEX], series, stack,
				     FUTEX_DETAIL(kind) | FUTEX_ASPECT(FUTEX_KERNEL), 0, waits, us,
				     max_us),
			 0);
}

static struct bucket *example(void)
{
	static const char *const mapping[] = { "do_syscall_64", "vm_mmap_pgoff", "down_write",
					       "rwsem_down_write_slowpath", NULL };
	static const char *const binary[] = { "load_elf_binary", "vm_mmap_pgoff", "down_write",
					      "rwsem_down_write_slowpath", NULL };
	static const char *const pipe[] = { "vfs_write", "pipe_write", "__mutex_lock", NULL };
	struct bucket *b;
	uint32_t one, two, other, stack;

	assert_int_equal(bucket_new(&b), 0);
	b->meta.covered_ns = 10 * NSEC_PER_SEC;
	b->meta.source[PROFILE_FUTEX].active = true;
	one = process(b->dict, "one", 7, 1000);
	two = process(b->dict, "two", 8, 1001);
	other = process(b->dict, "one", 9, 1000);
	stack = kernel_stack(b->dict, mapping);
	add(b, one, stack, KERNEL_LOCK_RWSEM_WRITE, 10, 5000, 900);
	add(b, two, stack, KERNEL_LOCK_RWSEM_WRITE, 1, 100, 100);
	add(b, other, stack, KERNEL_LOCK_RWSEM_WRITE, 2, 2000, 1500);
	add(b, two, kernel_stack(b->dict, binary), KERNEL_LOCK_RWSEM_WRITE, 4, 4000, 1000);
	add(b, one, kernel_stack(b->dict, pipe), KERNEL_LOCK_MUTEX, 100, 700, 8);
	add(b, two, 0, KERNEL_LOCK_SPINLOCK, 5, 1, 1);
	/* A wait for a lock in user space. */
	assert_int_equal(columns_add(&b->columns[PROFILE_FUTEX], one, 0,
				     FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), 0, 3, 30, 10),
			 0);
	return b;
}

static struct kernel_lock_answer *ask(const struct bucket *b, const struct selection *sel,
				      uint32_t limit, uint32_t waiters)
{
	struct query_source src = { .open = b };
	struct kernel_lock_answer *a = NULL;

	assert_int_equal(query_kernel_locks(&src, sel, limit, waiters, &a), 0);
	return a;
}

static const struct selection everything = { .until_wall_ns = UINT64_MAX, .visibility.all = true };

static void test_rows(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = example();
	_cleanup_(kernel_lock_answer_free_p) struct kernel_lock_answer *a = ask(b, &everything, 10,
										2);
	const struct kernel_lock_row *row = &a->rows[0];

	assert_int_equal(a->n_rows, 3);
	assert_int_equal(a->coverage->total, 11801 * NSEC_PER_USEC);
	assert_int_equal(a->coverage->samples, 122);
	assert_string_equal(row->kind, "rwsem-write");
	assert_string_equal(row->caller, "vm_mmap_pgoff");
	assert_int_equal(row->waits, 17);
	assert_int_equal(row->ns, 11100 * NSEC_PER_USEC);
	assert_int_equal(row->max_ns, 1500 * NSEC_PER_USEC);
	/* One after the other by time, and the stack on which most of it was spent. */
	assert_int_equal(row->n_waiters, 2);
	assert_int_equal(row->waiters_omitted, 1);
	assert_int_equal(row->waiters[0].pid, 7);
	assert_int_equal(row->waiters[1].pid, 8);
	assert_int_equal(row->waiters[1].waits, 5);
	assert_int_equal(row->waiters[1].ns, 4100 * NSEC_PER_USEC);
	assert_int_equal(row->waiters[1].max_ns, 1000 * NSEC_PER_USEC);
	assert_int_equal(row->n_stack, 2);
	assert_string_equal(row->stack[0], "vm_mmap_pgoff");
	assert_string_equal(row->stack[1], "do_syscall_64");
	row = &a->rows[1];
	assert_string_equal(row->kind, "mutex");
	assert_string_equal(row->caller, "pipe_write");
	row = &a->rows[2];
	assert_string_equal(row->kind, "spinlock");
	assert_string_equal(row->caller, "");
	assert_int_equal(row->n_stack, 0);
}

static void test_limits_and_filters(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = example();
	struct filter f = { .key = FILTER_COMM, .glob = (char *)"two" };
	struct selection sel = everything;
	struct kernel_lock_answer *a = ask(b, &sel, 1, 0);

	assert_int_equal(a->n_rows, 1);
	assert_int_equal(a->omitted, 2);
	assert_int_equal(a->rows[0].waiters_omitted, 3);
	kernel_lock_answer_free(a);
	sel.filters = &f;
	sel.n_filters = 1;
	a = ask(b, &sel, 10, 10);
	assert_int_equal(a->n_rows, 2);
	assert_int_equal(a->rows[0].ns, 4100 * NSEC_PER_USEC);
	assert_int_equal(a->rows[0].n_waiters, 1);
	kernel_lock_answer_free(a);
	f = (struct filter){ .key = FILTER_FUNCTION, .glob = (char *)"pipe_*" };
	a = ask(b, &sel, 10, 10);
	assert_int_equal(a->n_rows, 1);
	assert_string_equal(a->rows[0].caller, "pipe_write");
	kernel_lock_answer_free(a);
}

/* Who may not see all sees its own processes alone. */
static void test_visibility(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = example();
	struct selection sel = { .until_wall_ns = UINT64_MAX, .visibility.uid = 1001 };
	_cleanup_(kernel_lock_answer_free_p) struct kernel_lock_answer *a = ask(b, &sel, 10, 10);

	assert_int_equal(a->coverage->total, 4101 * NSEC_PER_USEC);
	for (size_t i = 0; i < a->n_rows; i++) {
		assert_int_equal(a->rows[i].n_waiters, 1);
		assert_int_equal(a->rows[i].waiters[0].pid, 8);
	}
	assert_string_equal(a->rows[0].caller, "vm_mmap_pgoff");
}

/* Waits for locks in user space are what they were. */
static void test_apart(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = example();
	struct query_source src = { .open = b };
	struct selection sel = everything;
	struct profile *p = NULL;
	struct lock_answer *a = NULL;

	sel.type = PROFILE_FUTEX;
	assert_int_equal(query_merge(&src, &sel, 0, &p), 0);
	assert_int_equal(p->total, 30 * NSEC_PER_USEC);
	assert_int_equal(p->samples, 3);
	assert_int_equal(p->columns.n, 1);
	profile_free(p);
	assert_int_equal(query_locks(&src, &sel, (struct lock_limits){ 10, 3, 0 }, &a), 0);
	assert_int_equal(a->coverage->total, 30 * NSEC_PER_USEC);
	for (size_t i = 0; i < a->n_rows; i++)
		assert_int_equal(a->rows[i].facts.waits, 3);
	lock_answer_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_limits_and_filters),
		cmocka_unit_test(test_visibility),
		cmocka_unit_test(test_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
