// SPDX-License-Identifier: GPL-2.0-or-later
/* Units of work from clients into a bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "manager/work.h"

static const char *const labels[] = { "b=2", "a=1" }, *const turned[] = { "a=1", "b=2" };

static void test_taken_once(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	struct work w;

	work_init(&w);
	assert_int_equal(bucket_new(&b), 0);
	assert_int_equal(work_add(&w, "requests", labels, 2, 3, true), 0);
	assert_int_equal(work_add(&w, "requests", turned, 2, 4, true), 0);
	assert_int_equal(work_add(&w, "", NULL, 0, 1, true), -EINVAL);
	assert_int_equal(work_take(&w, b), 0);
	assert_int_equal(b->columns[COLUMNS_WORK].n, 1);
	assert_int_equal(b->columns[COLUMNS_WORK].count[0], 7);
	assert_int_equal(work_take(&w, b), 0);
	assert_int_equal(b->columns[COLUMNS_WORK].n, 1);
	work_done(&w);
}

/* What the bucket has no room for is in the next one. */
static void test_kept(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	struct work w;
	size_t n;

	work_init(&w);
	assert_int_equal(bucket_new(&b), 0);
	assert_int_equal(work_add(&w, "requests", NULL, 0, 3, true), 0);
	assert_int_equal(work_take(&w, b), 0);
	assert_int_equal(work_add(&w, "requests", NULL, 0, 1, true), 0);
	assert_int_equal(work_add(&w, "rows", NULL, 0, 4, true), 0);
	n = b->dict->n_strings;
	b->dict->n_strings = 1U << 31;
	assert_int_equal(work_take(&w, b), -ENOSPC);
	b->dict->n_strings = n;
	assert_int_equal(w.n, 1);
	assert_int_equal(work_take(&w, b), 0);
	assert_int_equal(b->columns[COLUMNS_WORK].n, 3);
	assert_int_equal(b->columns[COLUMNS_WORK].count[1], 1);
	assert_int_equal(b->columns[COLUMNS_WORK].count[2], 4);
	work_done(&w);
}

/* Who may report anything under any name leaves room for others. */
static void test_shares(void **state)
{
	struct work w;
	char name[16];
	int r = 0, n = 0;

	work_init(&w);
	for (; r == 0; n++) {
		snprintf(name, sizeof(name), "mine-%d", n);
		r = work_add(&w, name, NULL, 0, 1, false);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(n, WORK_ENTRIES_MAX / 2 + 1);
	assert_int_equal(work_add(&w, "requests", NULL, 0, 1, true), 0);
	assert_int_equal(work_refused(&w), 1);
	work_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_once),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_shares),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
