// SPDX-License-Identifier: GPL-2.0-or-later
/* Chains of who waits and who wakes. */
#include "query-fixture.h"


static void wake(struct bucket *b, const struct who *by, const char *path, uint64_t us)
{
	add_row(b, PROFILE_OFF_CPU, series_id(b->dict, app), stack_id(b->dict, path),
		OFF_KEY(OFF_BLOCKED, 1, 0) | OFF_WAIT_KEY(WAIT_PIPE, 0) | OFF_ASPECT(OFF_WAKES),
		by ? series_id(b->dict, *by) : 0, 2, us, us);
}

static struct bucket *host(void)
{
	struct bucket *b = make_bucket(T0, 0);

	off_total(b, app, OFF_BLOCKED, 9, 5000);
	off_sample(b, app, "main;read", OFF_BLOCKED, 1, 9, 4000);
	wake(b, &db, "main;read;[woken by];query;write", 600);
	wake(b, &app, "main;read;[woken by];main;kill", 100);
	wake(b, NULL, "main;sleep;[woken by];[interrupt]", 50);
	wake(b, &db, "[other]", 7); /* the bucket was full */
	return b;
}

/* "stack ns", sorted, one a line. */
static int line_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void assert_chains(const struct selection *s, uint64_t total, const char *expected)
{
	_cleanup_(bucket_free_p) struct bucket *b = host();
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(strbuf_done) struct strbuf text = {};
	struct query_source src = { .open = b };
	char *lines[16];
	size_t n = 0;

	assert_int_equal(query_chains(&src, s, 0, &p), 0);
	for (; n < p->columns.n; n++) {
		struct strbuf line = {};

		assert_int_equal(row_aspect(PROFILE_OFF_CPU, p->columns.key[n]), OFF_WAITS);
		assert_int_equal(p->columns.aux[n], 0);
		stack_text(p->dict, p->columns.stack[n], &line);
		strbuf_printf(&line, " %llu\n", (unsigned long long)p->columns.value[n]);
		lines[n] = line.data;
	}
	qsort(lines, n, sizeof(*lines), line_compare);
	for (size_t i = 0; i < n; i++) {
		strbuf_puts(&text, lines[i]);
		free(lines[i]);
	}
	assert_string_equal(text.data ?: "", expected);
	assert_int_equal(p->total, total);
}

static void test_chains(void **state)
{
	struct selection s = whole(PROFILE_OFF_CPU);

	assert_chains(&s, 757000,
		      "[other];woken by db 7000\n"
		      "main;read;woken by app;kill;main 100000\n"
		      "main;read;woken by db;write;query 600000\n"
		      "main;sleep;woken by [interrupt] 50000\n");
}

static void test_filtered(void **state)
{
	struct selection s = whole(PROFILE_OFF_CPU);

	where(&s, FILTER_FUNCTION, "sleep", false);
	assert_chains(&s, 50000, "main;sleep;woken by [interrupt] 50000\n");
	selection_done(&s);
	s = whole(PROFILE_OFF_CPU);
	/* Filters choose waits, whoever ended them. */
	where(&s, FILTER_FUNCTION, "write", false);
	assert_chains(&s, 0, "");
	selection_done(&s);
}

/* Of another user's waker there is nothing to see, not even its functions. */
static void test_hidden(void **state)
{
	char *units[] = { (char *)app.unit };
	struct selection s = whole(PROFILE_OFF_CPU);

	s.visibility = (struct visibility){ .uid = 99, .units = units, .n_units = 1 };
	assert_chains(&s, 757000,
		      "[other];woken by [unknown] 7000\n"
		      "main;read;woken by [unknown] 600000\n"
		      "main;read;woken by app;kill;main 100000\n"
		      "main;sleep;woken by [interrupt] 50000\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_filtered),
		cmocka_unit_test(test_hidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
