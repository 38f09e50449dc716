// SPDX-License-Identifier: GPL-2.0-or-later
/* Filters and visibility, asked the way users do: through totals of selections. */
#include "query-fixture.h"

static uint64_t total_of(const struct bucket *b, struct selection *s)
{
	_cleanup_(profile_free_p) struct profile *p = NULL;
	const char *error = NULL;

	assert_int_equal(selection_check(s, &error), 0);
	assert_int_equal(query_bucket(b, s, &p), 0);
	return p->total;
}

/* One filter on on-CPU. */
static uint64_t one(const struct bucket *b, enum filter_key key, const char *glob, bool negate)
{
	struct selection s = whole(PROFILE_ON_CPU);
	uint64_t total;

	where(&s, key, glob, negate);
	total = total_of(b, &s);
	selection_done(&s);
	return total;
}

/* Values are powers of 2, so that a total tells which rows were taken. In us; answers are ns. */
static struct bucket *host(void)
{
	struct bucket *b = make_bucket(T0, 0);

	on_cpu(b,
	       (struct who){ .comm = "nginx",
			     .thread = "nginx",
			     .unit = "nginx.service",
			     .pid = 100,
			     .tid = 100,
			     .uid = 33,
			     .exe = "/usr/sbin/nginx" },
	       "main;worker;epoll_wait@libc.so.6", 1, 1);
	on_cpu(b,
	       (struct who){ .comm = "nginx",
			     .thread = "aio",
			     .unit = "nginx.service",
			     .pid = 100,
			     .tid = 101,
			     .uid = 33,
			     .exe = "/usr/sbin/nginx" },
	       "main;pool;read@libc.so.6;vfs_read@[kernel]", 1, 2);
	on_cpu(b,
	       (struct who){ .comm = "a*b",
			     .thread = "a*b",
			     .unit = "user@1000.service",
			     .pid = 200,
			     .tid = 200,
			     .uid = 1000 },
	       "main;work", 1, 4);
	on_cpu(b,
	       (struct who){ .comm = "axb",
			     .thread = "axb",
			     .pid = 201,
			     .tid = 201,
			     .uid = 1000,
			     .flags = SERIES_PRIVATE },
	       "main;work;[truncated]", 1, 8);
	on_cpu(b,
	       (struct who){
		       .comm = "kworker/0:1", .pid = 9, .tid = 9, .flags = SERIES_KERNEL_THREAD },
	       "worker_thread@[kernel];+0x1234@[kernel]", 1, 16);
	return b;
}

static void test_names(void **state)
{
	for (int i = 0; i < FILTER_KEY_N; i++)
		assert_int_equal(filter_key_from_name(filter_key_name((enum filter_key)i)), i);
	assert_int_equal(filter_key_from_name("colour"), -EINVAL);
	assert_null(filter_key_name(FILTER_KEY_N));
}

static void test_check(void **state)
{
	struct selection s = whole(PROFILE_ON_CPU);
	const char *error = NULL;

	where(&s, FILTER_COMM, "a\\\\", false);
	assert_int_equal(selection_check(&s, &error), 0);
	where(&s, FILTER_COMM, "a\\", false);
	assert_int_equal(selection_check(&s, &error), -EINVAL);
	assert_non_null(strstr(error, "backslash"));
	s.n_filters = 1;
	s.until_wall_ns = s.from_wall_ns - 1;
	assert_int_equal(selection_check(&s, &error), -EINVAL);
	s.until_wall_ns++; /* an empty range is an answer */
	assert_int_equal(selection_check(&s, NULL), 0);
	s.filters[0].key = FILTER_KEY_N;
	assert_int_equal(selection_check(&s, &error), -EINVAL);
	s.n_filters = 2;
	selection_done(&s);
	for (int i = 0; i < 65; i++)
		where(&s, FILTER_COMM, "x", false);
	s.until_wall_ns = 1;
	assert_int_equal(selection_check(&s, &error), -EINVAL);
	selection_done(&s);
}

static void test_globs(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();

	assert_int_equal(one(b, FILTER_COMM, "nginx", false), 3000);
	assert_int_equal(one(b, FILTER_COMM, "ngin", false), 0);
	assert_int_equal(one(b, FILTER_COMM, "n*x", false), 3000);
	assert_int_equal(one(b, FILTER_COMM, "a?b", false), 12000);
	assert_int_equal(one(b, FILTER_COMM, "a\\*b", false), 4000);
	assert_int_equal(one(b, FILTER_COMM, "a[!x]b", false), 4000);
	assert_int_equal(one(b, FILTER_COMM, "kworker*", false), 16000);
	assert_int_equal(one(b, FILTER_COMM, "*", false), 31000);
	assert_int_equal(one(b, FILTER_COMM, "nginx", true), 28000);
	assert_int_equal(one(b, FILTER_EXE, "/usr/*", false), 3000);
	assert_int_equal(one(b, FILTER_EXE, "", false), 28000);
	assert_int_equal(one(b, FILTER_PID, "100", false), 3000);
	assert_int_equal(one(b, FILTER_PID, "10", false), 0);
	assert_int_equal(one(b, FILTER_PID, "20?", false), 12000);
	assert_int_equal(one(b, FILTER_TID, "101", false), 2000);
	assert_int_equal(one(b, FILTER_THREAD, "aio", false), 2000);
	assert_int_equal(one(b, FILTER_UID, "33", false), 3000);
	assert_int_equal(one(b, FILTER_UID, "0", false), 16000);
}

static void test_units(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();

	assert_int_equal(one(b, FILTER_UNIT, "nginx", false), 3000);
	assert_int_equal(one(b, FILTER_UNIT, "nginx.service", false), 3000);
	assert_int_equal(one(b, FILTER_UNIT, "user@*", false), 4000);
	assert_int_equal(one(b, FILTER_UNIT, "*.service", false), 7000);
	assert_int_equal(one(b, FILTER_UNIT, "nginx", true), 28000);
	assert_int_equal(one(b, FILTER_UNIT, "", false), 24000);
	assert_int_equal(one(b, FILTER_UNIT, "?*", false), 7000);
}

static void test_stacks(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();

	assert_int_equal(one(b, FILTER_FUNCTION, "main", false), 15000);
	assert_int_equal(one(b, FILTER_FUNCTION, "work", false), 12000);
	assert_int_equal(one(b, FILTER_FUNCTION, "work*", false), 29000);
	assert_int_equal(one(b, FILTER_FUNCTION, "work*", true), 2000);
	assert_int_equal(one(b, FILTER_FUNCTION, "[truncated]", false), 8000);
	assert_int_equal(one(b, FILTER_FUNCTION, "\\[truncated\\]", false), 8000);
	assert_int_equal(one(b, FILTER_FUNCTION, "*+0x1234", false), 16000);
	/* Folded into its function, and still found by its own name. */
	for (size_t i = 1; i < b->dict->n_frames; i++)
		if (streq(dict_str(b->dict, b->dict->frames[i].name), "work"))
			b->dict->frames[i].system_name = (uint32_t)dict_string(b->dict,
									       "work.cold");
	assert_int_equal(one(b, FILTER_FUNCTION, "work", false), 12000);
	assert_int_equal(one(b, FILTER_FUNCTION, "work.cold", false), 12000);
	assert_int_equal(one(b, FILTER_FUNCTION, "work.cold", true), 19000);
	assert_int_equal(one(b, FILTER_BINARY, "libc.so.6", false), 3000);
	assert_int_equal(one(b, FILTER_BINARY, "/usr/lib/libc*", false), 3000);
	assert_int_equal(one(b, FILTER_BINARY, "[kernel]", false), 18000);
	assert_int_equal(one(b, FILTER_BINARY, "[kernel]", true), 13000);
	assert_int_equal(one(b, FILTER_BINARY, "libc*", true), 28000);
}

/* Repeated keys are alternatives, different keys narrow, negated ones exclude. */
static void test_combinations(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();
	struct selection s = whole(PROFILE_ON_CPU);

	where(&s, FILTER_COMM, "nginx", false);
	where(&s, FILTER_COMM, "axb", false);
	assert_int_equal(total_of(b, &s), 11000);
	where(&s, FILTER_UID, "1000", false);
	assert_int_equal(total_of(b, &s), 8000);
	where(&s, FILTER_UID, "33", false);
	assert_int_equal(total_of(b, &s), 11000);
	where(&s, FILTER_FUNCTION, "pool", true);
	assert_int_equal(total_of(b, &s), 9000);
	where(&s, FILTER_FUNCTION, "worker", false);
	assert_int_equal(total_of(b, &s), 1000);
	where(&s, FILTER_COMM, "*n*", true);
	assert_int_equal(total_of(b, &s), 0);
	selection_done(&s);
}

/* What a sample does not have is empty: `*` matches it, `?*` does not. */
static void test_absent_keys(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();

	assert_int_equal(one(b, FILTER_CAUSE, "blocked", false), 0);
	assert_int_equal(one(b, FILTER_CAUSE, "blocked", true), 31000);
	assert_int_equal(one(b, FILTER_CAUSE, "*", false), 31000);
	assert_int_equal(one(b, FILTER_LOCK, "?*", false), 0);
	assert_int_equal(one(b, FILTER_ERRNO, "EAGAIN", true), 31000);
	assert_int_equal(one(b, FILTER_STATE, "S", false), 0);
}

static void test_visibility(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();
	struct selection s = whole(PROFILE_ON_CPU);
	char *units[] = { (char *)"ngin*" };

	s.visibility = (struct visibility){ .uid = 1000 };
	assert_int_equal(total_of(b, &s), 4000); /* not the private one */
	s.visibility = (struct visibility){ .uid = 1, .units = units, .n_units = 1 };
	assert_int_equal(total_of(b, &s), 3000);
	units[0] = (char *)"nginx";
	assert_int_equal(total_of(b, &s), 3000);
	units[0] = (char *)"*"; /* units, not what has none */
	assert_int_equal(total_of(b, &s), 7000);
	s.visibility = (struct visibility){ .uid = 0 };
	assert_int_equal(total_of(b, &s), 16000);
}

/* Others see names of kernel frames, never where they lie. */
static void test_kernel_hidden(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	size_t kernel = 0;

	s.visibility = (struct visibility){ .uid = 0 };
	assert_int_equal(query_bucket(b, &s, &p), 0);
	for (size_t i = 1; i < p->dict->n_frames; i++) {
		const struct frame *f = &p->dict->frames[i];

		if (f->kind != FRAME_KERNEL)
			continue;
		kernel++;
		assert_int_equal(f->offset, 0);
		assert_true(f->name != 0);
	}
	assert_int_equal(kernel, 2);
	/* Nothing of what is invisible is left behind in the answer's tables. */
	for (size_t i = 1; i < p->dict->n_strings; i++)
		assert_null(strstr(p->dict->strings[i], "nginx"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	      cmocka_unit_test(test_check),
		cmocka_unit_test(test_globs),	      cmocka_unit_test(test_units),
		cmocka_unit_test(test_stacks),	      cmocka_unit_test(test_combinations),
		cmocka_unit_test(test_absent_keys),   cmocka_unit_test(test_visibility),
		cmocka_unit_test(test_kernel_hidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
