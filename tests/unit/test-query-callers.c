// SPDX-License-Identifier: GPL-2.0-or-later
/* System calls by who makes them: exact numbers, spread over the stacks of those that were drawn. */
#include "query-fixture.h"

#include "query/calls.h"

static void drawn(struct bucket *b, struct who w, const char *path, uint32_t call, uint64_t n)
{
	add_row(b, PROFILE_SYSCALLS, series_id(b->dict, w), stack_id(b->dict, path),
		CALL_STACK_KEY(call), 0, n, 0, 0);
}

/* 1,003 reads of app, one in ten fails; of those that were drawn as many stand for 800. getpid of db was not drawn. */
static struct bucket *fill(void)
{
	struct bucket *b = make_bucket(T0, 1);

	calls(b, app, NATIVE(NR_READ, 0), 903);
	calls(b, app, NATIVE(NR_READ, EAGAIN), 100);
	drawn(b, app, "main;load", NATIVE(NR_READ, 0), 400);
	drawn(b, app, "main;poll", NATIVE(NR_READ, 0), 200);
	drawn(b, app, "main;poll", NATIVE(NR_READ, EAGAIN), 200);
	calls(b, db, NATIVE(NR_GETPID, 0), 50);
	return b;
}

static uint64_t total_of(const struct top *t, const char *name)
{
	const struct top_row *row = row_named(t, name);

	return row ? row->total : 0;
}

static void test_by_function(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	struct selection s = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	_cleanup_(top_free_p) struct top *t = top_of(&src, &s, BY_FUNCTION, true, 0), *usual = NULL;

	assert_int_equal(t->coverage->total, 1053);
	assert_int_equal(total_of(t, "main"), 1003);
	assert_int_equal(total_of(t, "load"), 602);
	assert_int_equal(total_of(t, "poll"), 301 + 100);
	assert_int_equal(total_of(t, "[not sampled]"), 50);
	/* Those that are counted know nothing of those that were drawn. */
	usual = top_of(&src, &s, BY_NONE, false, 0);
	assert_int_equal(usual->coverage->total, 1053);
	assert_int_equal(total_of(usual, "read"), 1003);
	assert_int_equal(row_named(usual, "read")->errors, 100);
}

static void test_filters(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	_cleanup_(selection_done) struct selection failed = whole(PROFILE_SYSCALLS),
						   loads = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	_cleanup_(top_free_p) struct top *t = NULL;
	_cleanup_(profile_free_p) struct profile *p = NULL;

	where(&failed, FILTER_ERRNO, "EAGAIN", false);
	t = top_of(&src, &failed, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 100);
	assert_int_equal(total_of(t, "poll"), 100);
	assert_int_equal(total_of(t, "load"), 0);
	where(&loads, FILTER_FUNCTION, "load", false);
	p = merged(&src, &loads, 0);
	assert_int_equal(p->total, 602);
	assert_int_equal(p->columns.n, 1);
	/* As counts are, for whoever draws or exports them. */
	assert_int_equal(p->columns.key[0], NATIVE(NR_READ, 0));
	assert_int_equal(p->columns.count[0], 602);
}

/* Where no stack was taken, calls have none: nothing is called a sample. */
static void test_without_stacks(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 1);
	struct selection s = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(top_free_p) struct top *t = NULL;

	calls(b, app, NATIVE(NR_READ, EAGAIN), 7);
	p = merged(&src, &s, 0);
	assert_int_equal(p->columns.n, 1);
	assert_int_equal(p->columns.stack[0], 0);
	assert_int_equal(p->columns.key[0], NATIVE(NR_READ, EAGAIN));
	t = top_of(&src, &s, BY_STACK, false, 0);
	assert_int_equal(t->n_rows, 1);
	assert_int_equal(t->rows[0].self, 7);
}

static void test_keys(void **state)
{
	static const uint32_t errnos[] = { 0, 1, EAGAIN, 512, 4094 };

	for (size_t i = 0; i < ARRAY_SIZE(errnos); i++)
		for (unsigned abi = 0; abi < 3; abi++) {
			uint32_t call = SYSCALL_KEY(abi, SYSCALL_NR_INVALID - i, errnos[i]),
				 key = CALL_STACK_KEY(call);

			assert_int_equal(row_aspect(PROFILE_SYSCALLS, key), CALL_STACKS);
			assert_int_equal(CALL_OF_STACK_KEY(key), call);
		}
	assert_int_equal(row_aspect(PROFILE_SYSCALLS, CALL_KEY(CALL_BASIS, 2, 0x3fff, 0)),
			 CALL_BASIS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_function),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_without_stacks),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
