// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory runs out: each question is asked with the Nth allocation failing, for all N until it is answered. It
 * must fail with -ENOMEM, keep nothing, and leave its output alone.
 */
#include "fake-reader.h"
#include "query/internal.h"

#ifdef __SANITIZE_ADDRESS__
static long left,
	live; /* the sanitizer has malloc: each question is asked once, and it finds leaks */
#else
extern void *__libc_malloc(size_t n), *__libc_calloc(size_t n, size_t size),
	*__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);

static long left; /* allocations until one fails; 0: none will */
static long live;

static bool fails(void)
{
	return left > 0 && --left == 0;
}

void *malloc(size_t n)
{
	void *p = fails() ? NULL : __libc_malloc(n);

	live += p != NULL;
	if (!p)
		errno = ENOMEM;
	return p;
}

void *calloc(size_t n, size_t size)
{
	void *p = fails() ? NULL : __libc_calloc(n, size);

	live += p != NULL;
	if (!p)
		errno = ENOMEM;
	return p;
}

void *realloc(void *old, size_t n)
{
	void *p = fails() ? NULL : __libc_realloc(old, n);

	live += p != NULL && old == NULL;
	if (!p)
		errno = ENOMEM;
	return p;
}

void free(void *p)
{
	live -= p != NULL;
	__libc_free(p);
}
#endif

typedef int (*ask_fn)(const struct query_source *src, const struct selection *s);

static int ask_merge(const struct query_source *src, const struct selection *s)
{
	struct profile *p = NULL;
	int r = query_merge(src, s, 4, &p);

	assert_true((r == 0) == (p != NULL));
	profile_free(p);
	return r;
}

static int ask_top(const struct query_source *src, const struct selection *s)
{
	struct top *t = NULL;
	int r = query_top(src, s, BY_FUNCTION, false, 3, &t);

	assert_true((r == 0) == (t != NULL));
	top_free(t);
	return r;
}

static int ask_stacks(const struct query_source *src, const struct selection *s)
{
	struct top *t = NULL;
	int r = query_top(src, s, BY_STACK, false, 3, &t);

	top_free(t);
	return r;
}

static int ask_series(const struct query_source *src, const struct selection *s)
{
	struct series_answer *a = NULL;
	int r = query_series(src, s, BY_PROCESS, 10 * SEC, 1, &a);

	assert_true((r == 0) == (a != NULL));
	series_answer_free(a);
	return r;
}

static int add_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		      const struct columns *columns)
{
	return merge_add(ctx, d, columns);
}

/* Settles again and again, because it may hold so few rows. */
static int ask_coarse(const struct query_source *src, const struct selection *s)
{
	static const struct projection some = { .series = PROJECT_ALL, .stack = PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	int r = merge_init(&m, s, some);

	m.max_rows = 25;
	if (r == 0)
		r = query_scan(src, &m, add_bucket, &m);
	if (r == 0)
		r = merge_close(&m);
	assert_true(r < 0 || m.coarse);
	return r;
}

static int ask_values(const struct query_source *src, const struct selection *s)
{
	struct label_values *v = NULL;
	int r = query_label_values(src, s, FILTER_FUNCTION, 1, 1, &v);

	assert_true((r == 0) == (v != NULL));
	label_values_free(v);
	return r;
}

static int ask_labels(const struct query_source *src, const struct selection *s)
{
	uint64_t keys = 0;

	return query_labels(src, s, &keys);
}

static void starve(ask_fn ask, const struct query_source *src, const struct selection *s)
{
	int r = -ENOMEM;

	for (long n = 1; r != 0; n++) {
		long before = live;

		left = n;
		r = ask(src, s);
		left = 0;
		assert_true(r == 0 || r == -ENOMEM);
		assert_int_equal(live, before);
		assert_true(n < 100000);
	}
}

static void test_starved(void **state)
{
	static const ask_fn questions[] = { ask_merge,	ask_top,    ask_stacks, ask_series,
					    ask_values, ask_labels, ask_coarse };
	struct who who = {
		.comm = "app", .thread = "t", .unit = "app.service", .pid = 1, .tid = 1
	};
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };

	for (unsigned i = 0; i < 3; i++) {
		struct bucket *b = stored(&reader, T0 + i * 20 * SEC); /* with gaps */

		for (unsigned k = 0; k < 20; k++) {
			char path[64];

			who.pid = who.tid = 1 + k % 4;
			snprintf(path, sizeof(path), "main;a%u;b%u@lib.so", k % 3, k);
			on_cpu(b, who, path, 1, 10 + k);
			off_total(b, who, OFF_BLOCKED, 1, 100);
			off_sample(b, who, path, OFF_BLOCKED, 1, 1, 7);
		}
	}
	for (int type = PROFILE_ON_CPU; type <= PROFILE_OFF_CPU; type++) {
		struct selection s = whole((enum profile_type)type);

		s.visibility = (struct visibility){ .uid = 0 };
		where(&s, FILTER_FUNCTION, "a*", false);
		where(&s, FILTER_LOCK, "*", false);
		for (size_t i = 0; i < ARRAY_SIZE(questions); i++)
			starve(questions[i], &src, &s);
		selection_done(&s);
	}
	reader_done(&reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_starved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
