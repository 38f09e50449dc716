// SPDX-License-Identifier: GPL-2.0-or-later
/* System calls with what is known of them: exact counts, and estimates that are scaled to them. */
#include "query-fixture.h"

#include "query/calls.h"

static void detail(struct bucket *b, struct who w, unsigned aspect, int nr, unsigned bin,
		   uint64_t n, uint64_t value, uint64_t max)
{
	add_row(b, PROFILE_SYSCALLS, series_id(b->dict, w), 0,
		CALL_KEY(aspect, SYSCALL_ABI_NATIVE, nr, bin), 0, n, value, max);
}

/*
 * app reads 900 bytes at a time with a tenth of EAGAIN, and sleeps; db writes single bytes. What was measured stands for
 * less than there was: of the reads for half.
 */
static struct bucket *fill(void)
{
	struct bucket *b = make_bucket(T0, 1);

	calls(b, app, NATIVE(SYS_read, 0), 900);
	calls(b, app, NATIVE(SYS_read, EAGAIN), 90);
	calls(b, app, NATIVE(SYS_read, EINTR), 10);
	detail(b, app, CALL_LATENCY, SYS_read, 10, 400, 400 * 700 / 1000, 1);
	detail(b, app, CALL_LATENCY, SYS_read, 20, 100, 100 * 800, 1000);
	detail(b, app, CALL_BYTES, SYS_read, 10, 450, 450 * 900, 900);
	detail(b, app, CALL_BASIS, SYS_read, 0, 50, 45, 0);
	calls(b, app, NATIVE(SYS_nanosleep, 0), 10);
	detail(b, app, CALL_LATENCY, SYS_nanosleep, 25, 10, 200000, 21000);
	detail(b, app, CALL_BASIS, SYS_nanosleep, 0, 1, 0, 0);
	calls(b, db, NATIVE(SYS_write, 0), 5000);
	detail(b, db, CALL_BYTES, SYS_write, 1, 5000, 5000, 1);
	detail(b, db, CALL_BASIS, SYS_write, 0, 0, 500, 0);
	calls(b, db, NATIVE(SYS_getpid, 0), 7);
	return b;
}

static struct calls_answer *ask(const struct bucket *b, enum calls_by by, uint32_t limit,
				const struct selection *sel)
{
	struct selection all = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	struct calls_answer *a = NULL;

	assert_int_equal(query_calls(&src, sel ?: &all, by, limit, &a), 0);
	return a;
}

static const struct call_row *row_of(const struct calls_answer *a, const char *name)
{
	for (size_t i = 0; i < a->n_rows; i++)
		if (streq(a->rows[i].name, name))
			return &a->rows[i];
	fail_msg("no row %s", name);
	return NULL;
}

static void test_by_syscall(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	_cleanup_(calls_answer_free_p) struct calls_answer *a = ask(b, CALLS_BY_SYSCALL, 0, NULL);
	const struct call_row *row;

	assert_int_equal(a->n_rows, 4);
	assert_int_equal(a->calls, 6017);
	assert_int_equal(a->errors, 100);
	assert_string_equal(a->rows[0].name, "write");
	assert_true(a->rows[0].tiny == 5000);
	row = row_of(a, "read");
	assert_int_equal(row->calls, 1000);
	assert_int_equal(row->errors, 100);
	assert_int_equal(row->n_parts, 2);
	assert_string_equal(row->parts[0].name, "EAGAIN");
	assert_int_equal(row->parts[0].calls, 90);
	/* Scaled to the 1,000 calls, and to the 900 that moved something. */
	assert_true(row->latency.bins[10] == 800 && row->latency.bins[20] == 200);
	assert_int_equal(row->latency.measured, 50);
	assert_true(row->bytes.total == 900 * 900);
	assert_int_equal(row->bytes.measured, 45);
	assert_int_equal(row->tiny, 0);
	row = row_of(a, "getpid");
	assert_int_equal(row->latency.measured, 0);
	assert_int_equal(row->bytes.measured, 0);
}

static void test_by_process(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	_cleanup_(calls_answer_free_p) struct calls_answer *a = ask(b, CALLS_BY_PROCESS, 1, NULL);
	_cleanup_(calls_answer_free_p) struct calls_answer *all = ask(b, CALLS_BY_PROCESS, 0, NULL);
	const struct call_row *row = row_of(all, "app");

	assert_int_equal(a->n_rows, 1);
	assert_int_equal(a->omitted, 1);
	assert_string_equal(a->rows[0].name, "db");
	assert_int_equal(a->rows[0].pid, 20);
	assert_int_equal(row->calls, 1010);
	assert_string_equal(row->unit, "app.service");
	/* Calls of two kinds, each by its own number. */
	assert_true(row->latency.bins[10] == 800 && row->latency.bins[25] == 10);
	assert_int_equal(row->latency.max, 21000 * NSEC_PER_USEC);
}

static void test_by_errno(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	_cleanup_(calls_answer_free_p) struct calls_answer *a = ask(b, CALLS_BY_ERRNO, 0, NULL);
	const struct call_row *row = row_of(a, "ok");

	assert_int_equal(a->n_rows, 3);
	assert_int_equal(row->calls, 5917);
	assert_int_equal(row->errors, 0);
	assert_string_equal(row->parts[0].name, "write");
	row = row_of(a, "EAGAIN");
	assert_int_equal(row->calls, 90);
	assert_int_equal(row->n_parts, 1);
	assert_string_equal(row->parts[0].name, "read");
	assert_int_equal(row->latency.measured, 0);
}

static void test_filters(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	_cleanup_(selection_done) struct selection sel = whole(PROFILE_SYSCALLS);
	_cleanup_(calls_answer_free_p) struct calls_answer *a = NULL, *errors = NULL;

	where(&sel, FILTER_SYSCALL, "read", false);
	a = ask(b, CALLS_BY_SYSCALL, 0, &sel);
	assert_int_equal(a->n_rows, 1);
	assert_int_equal(a->rows[0].latency.measured, 50);
	where(&sel, FILTER_ERRNO, "EAGAIN", false);
	errors = ask(b, CALLS_BY_SYSCALL, 0, &sel);
	assert_int_equal(errors->calls, 90);
	assert_int_equal(errors->rows[0].latency.measured, 0);
}

/* Other users' processes do not exist, in estimates as in counts. */
static void test_visibility(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = fill();
	struct selection sel = whole(PROFILE_SYSCALLS);
	_cleanup_(calls_answer_free_p) struct calls_answer *a = NULL;
	char *units[] = { (char *)"db.service" };

	sel.visibility = (struct visibility){ .uid = 99, .units = units, .n_units = 1 };
	a = ask(b, CALLS_BY_SYSCALL, 0, &sel);
	assert_int_equal(a->calls, 5007);
	assert_int_equal(row_of(a, "write")->bytes.measured, 500);
}

static void test_quantiles(void **state)
{
	struct call_measure m = { .max = 5000 };

	assert_int_equal(call_quantile(&m, 0.5), 5000);
	m.bins[0] = 10;
	assert_int_equal(call_quantile(&m, 0.5), 0);
	m.bins[11] = 90; /* 1024 to 2047 */
	assert_int_equal(call_quantile(&m, 0.1), 0);
	assert_in_range(call_quantile(&m, 0.55), 1535, 1537);
	assert_in_range(call_quantile(&m, 0.99), 2036, 2048);
	m.max = 1500;
	assert_int_equal(call_quantile(&m, 0.99), 1500);
	m.bins[63] = 1000;
	m.max = UINT64_MAX;
	assert_true(call_quantile(&m, 0.99) > 1ULL << 62);
}

/* Ten at most, the most frequent. */
static void test_many_errnos(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 1);
	_cleanup_(calls_answer_free_p) struct calls_answer *a = NULL;

	for (int e = 1; e <= 30; e++)
		calls(b, app, NATIVE(SYS_ioctl, e), 100 + (uint64_t)e);
	a = ask(b, CALLS_BY_SYSCALL, 0, NULL);
	assert_int_equal(a->rows[0].n_parts, CALL_PARTS);
	assert_string_equal(a->rows[0].parts[0].name, "EROFS");
	assert_int_equal(a->rows[0].parts[9].calls, 121);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_syscall),  cmocka_unit_test(test_by_process),
		cmocka_unit_test(test_by_errno),    cmocka_unit_test(test_filters),
		cmocka_unit_test(test_visibility),  cmocka_unit_test(test_quantiles),
		cmocka_unit_test(test_many_errnos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
