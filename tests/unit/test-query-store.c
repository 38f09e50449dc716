// SPDX-License-Identifier: GPL-2.0-or-later
/* Queries over a real store: several days with dictionaries of their own, repacked or not. */
#include <ftw.h>

#include "query-fixture.h"

#define DAY (86400 * SEC)
#define MIDNIGHT (19675 * DAY) /* before T0 */

struct host {
	char directory[64];
	struct store *store;
	struct store_reader *reader;
	struct query_source src;
};

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	return remove(path);
}

static void append(struct host *h, uint64_t start, uint64_t us)
{
	static const struct who who = {
		.comm = "app", .thread = "app", .pid = 7, .tid = 7, .start = 1
	};
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(start, 0);
	char name[32];

	/* Every day has other ids. */
	snprintf(name, sizeof(name), "day%u", (unsigned)(start / DAY));
	on_cpu(b, (struct who){ .comm = name, .pid = 1, .tid = 1 }, name, 1, 1);
	on_cpu(b, who, "main;work", 1, us);
	off_total(b, who, OFF_BLOCKED, 2, us);
	off_sample(b, who, "main;wait", OFF_BLOCKED, 1, 1, 3);
	assert_int_equal(store_append(h->store, b), 0);
}

/* Five days of 70 buckets each: one repacked row and ten single ones. */
static int setup(void **state)
{
	struct host *h = new0(struct host, 1);
	struct store_options o = { .directory = h->directory,
				   .max_bytes = 64 << 20,
				   .repack_buckets = 60 };

	strcpy(h->directory, "/tmp/test-query-store.XXXXXX");
	assert_non_null(mkdtemp(h->directory));
	assert_int_equal(store_open(&o, &h->store), 0);
	for (unsigned day = 0; day < 5; day++)
		for (unsigned i = 0; i < 70; i++) {
			append(h, MIDNIGHT + day * DAY + i * 10 * SEC, 1000);
			while (store_maintain(h->store) > 0)
				;
		}
	assert_int_equal(store_reader_new(h->directory, &h->reader), 0);
	h->src.reader = h->reader;
	*state = h;
	return 0;
}

static int teardown(void **state)
{
	struct host *h = *state;

	store_reader_free(h->reader);
	store_close(h->store);
	nftw(h->directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	free(h);
	return 0;
}

static struct selection range(enum profile_type type, uint64_t from, uint64_t until)
{
	return (struct selection){ .type = type,
				   .from_wall_ns = from,
				   .until_wall_ns = until,
				   .visibility = { .all = true } };
}

static void test_every_day(void **state)
{
	struct host *h = *state;

	/*
	 * Again and again, since the reader keeps what it read for some days only; up to midnight, so that it
	 * meets the next day while this one is not done.
	 */
	for (unsigned n = 0; n < 10; n++) {
		uint64_t from = MIDNIGHT + n % 5 * DAY;
		struct selection s = range(PROFILE_ON_CPU, from + 10 * SEC, from + DAY);
		_cleanup_(profile_free_p) struct profile *p = NULL;

		assert_int_equal(query_merge(&h->src, &s, 0, &p), 0);
		assert_int_equal(p->total, 69 * 1001 * 1000);
		assert_int_equal(p->columns.n, 2);
		assert_int_equal(p->covered_ns, 690 * SEC);
		assert_int_equal(p->n_gaps, 1);
	}
}

static void test_all_days(void **state)
{
	struct host *h = *state;
	struct selection s = range(PROFILE_OFF_CPU, MIDNIGHT, MIDNIGHT + 5 * DAY);
	_cleanup_(top_free_p) struct top *t = NULL;
	_cleanup_(series_answer_free_p) struct series_answer *a = NULL;

	assert_int_equal(query_top(&h->src, &s, BY_FUNCTION, false, 0, &t), 0);
	assert_int_equal(t->coverage->total, 5 * 70 * 1000 * 1000);
	assert_int_equal(row_named(t, "wait")->self, t->coverage->total);
	assert_int_equal(row_named(t, "wait")->events, 5 * 70 * 2);
	assert_int_equal(t->coverage->n_gaps, 5);
	assert_int_equal(t->coverage->gaps[0].from_wall_ns, MIDNIGHT + 700 * SEC);
	assert_int_equal(t->coverage->gaps[0].until_wall_ns, MIDNIGHT + DAY);
	s.type = PROFILE_ON_CPU;
	assert_int_equal(query_series(&h->src, &s, BY_PROCESS, DAY, 0, &a), 0);
	assert_int_equal(a->n_steps, 5);
	assert_int_equal(a->n_lines, 2);
	assert_string_equal(a->lines[0].name, "app");
	for (unsigned day = 0; day < 5; day++)
		assert_int_equal(a->lines[0].values[day], 70 * 1000 * 1000);
}

/* Stored while the query held a copy. */
static void test_counted_once(void **state)
{
	struct host *h = *state;
	uint64_t start = MIDNIGHT + 4 * DAY + 690 * SEC;
	struct selection s = range(PROFILE_ON_CPU, start, start + 60 * SEC);
	_cleanup_(bucket_free_p) struct bucket *open = make_bucket(start, 0), *next = NULL;
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct query_source src = { .reader = h->reader, .open = open };

	on_cpu(open, (struct who){ .comm = "x", .pid = 1 }, "main", 1, 5);
	assert_int_equal(query_merge(&src, &s, 0, &p), 0);
	assert_int_equal(p->total, 1001 * 1000);
	next = make_bucket(start + 10 * SEC, 0);
	on_cpu(next, (struct who){ .comm = "x", .pid = 1 }, "main", 1, 5);
	src.open = next;
	profile_free(TAKE_PTR(p));
	assert_int_equal(query_merge(&src, &s, 0, &p), 0);
	assert_int_equal(p->total, 1006 * 1000);
	assert_int_equal(p->n_gaps, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_day),
		cmocka_unit_test(test_all_days),
		cmocka_unit_test(test_counted_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
