// SPDX-License-Identifier: GPL-2.0-or-later
/* Rows of other aspects: through a store and its repacking, asked for and not, seen by some and not by others. */
#include <ftw.h>

#include "query-fixture.h"

#define BUCKETS 70 /* 60 of them are repacked into one row */
#define BUCKET_NS (10 * SEC)

struct host {
	char directory[64];
	struct store *store;
	struct store_reader *reader;
	struct query_source src;
};

static const struct who waiter = { .comm = "waiter", .pid = 7, .tid = 8, .uid = 1, .start = 1 };
static const struct who waker = { .comm = "waker", .pid = 9, .tid = 9, .uid = 2, .start = 2 };

static uint32_t lock_of(struct dict *d)
{
	const struct lock l = { .pid = 7, .address = 0x1000, .name = str_id(d, "queue_lock") };

	return ok_id(dict_lock(d, &l));
}

static void fill(struct bucket *b, unsigned i)
{
	struct dict *d = b->dict;
	char name[32];

	/* Ids differ from bucket to bucket, and from those of the file. */
	snprintf(name, sizeof(name), "other%u", i);
	on_cpu(b, (struct who){ .comm = name, .pid = 100 + i }, name, 1, 1);
	off_total(b, waiter, OFF_BLOCKED, 2, 1000);
	off_sample(b, waiter, "main;wait", OFF_BLOCKED, 1, 1, 3);
	add_row(b, PROFILE_OFF_CPU, series_id(d, waiter),
		stack_id(d, "main;wait;[woken by];main;post"),
		OFF_KEY(OFF_BLOCKED, 1, 0) | OFF_ASPECT(OFF_WAKES), series_id(d, waker), 1, 40, 40);
	calls(b, waiter, NATIVE(NR_READ, 0), 5);
	add_row(b, PROFILE_SYSCALLS, series_id(d, waiter), 0,
		CALL_KEY(CALL_LATENCY, 0, NR_READ, 12), 0, 3, 15, 6);
	add_row(b, PROFILE_SYSCALLS, series_id(d, waiter), 0, CALL_KEY(CALL_BYTES, 0, NR_READ, 2),
		0, 3, 15, 7);
	add_row(b, PROFILE_FUTEX, series_id(d, waiter), stack_id(d, "main;lock"),
		FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), lock_of(d), 2, 50, 40);
	add_row(b, PROFILE_FUTEX, series_id(d, waker), stack_id(d, "main;unlock"),
		FUTEX_KEY(FUTEX_CLASS_WAIT, 0) | FUTEX_DETAIL(1) | FUTEX_ASPECT(FUTEX_WAKES),
		lock_of(d), 4, 0, 0);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	return remove(path);
}

static int setup(void **state)
{
	struct host *h = new0(struct host, 1);
	struct store_options o = { .directory = h->directory,
				   .max_bytes = 64 << 20,
				   .repack_buckets = 60 };

	strcpy(h->directory, "/tmp/test-query-aspects.XXXXXX");
	assert_non_null(mkdtemp(h->directory));
	assert_int_equal(store_open(&o, &h->store), 0);
	for (unsigned i = 0; i < BUCKETS; i++) {
		_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0 + i * BUCKET_NS, 0);

		fill(b, i);
		assert_int_equal(store_append(h->store, b), 0);
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

static struct selection all_of(enum profile_type type, unsigned aspects)
{
	struct selection s = whole(type);

	s.until_wall_ns = T0 + BUCKETS * BUCKET_NS;
	s.aspects = aspects;
	return s;
}

static struct profile *ask(struct host *h, const struct selection *s)
{
	struct profile *p = NULL;

	assert_int_equal(query_merge(&h->src, s, 0, &p), 0);
	return p;
}

static const char *comm_of(const struct profile *p, uint32_t series)
{
	return dict_str(p->dict, p->dict->series[series].label[LABEL_COMM]);
}

/* The one row of an aspect. */
static size_t only_row(const struct profile *p, unsigned aspect)
{
	size_t found = SIZE_MAX;

	for (size_t i = 0; i < p->columns.n; i++) {
		if (row_aspect(p->type, p->columns.key[i]) != aspect)
			continue;
		assert_int_equal(found, SIZE_MAX);
		found = i;
	}
	assert_true(found != SIZE_MAX);
	return found;
}

static void test_not_asked_for(void **state)
{
	for (int type = PROFILE_OFF_CPU; type <= PROFILE_FUTEX; type++) {
		struct selection s = all_of((enum profile_type)type, 0);
		_cleanup_(profile_free_p) struct profile *p = ask(*state, &s);
		_cleanup_(top_free_p) struct top *t = NULL;

		assert_int_equal(p->columns.n, 1);
		assert_int_equal(row_aspect(p->type, p->columns.key[0]), 0);
		assert_int_equal(
			query_top(&((struct host *)*state)->src, &s, BY_PROCESS, false, 0, &t), 0);
		assert_int_equal(t->n_rows, 1);
		assert_int_equal(t->rows[0].self, p->total);
	}
}

static void test_wakes(void **state)
{
	struct selection s = all_of(PROFILE_OFF_CPU, 1U << OFF_WAITS | 1U << OFF_WAKES);
	_cleanup_(profile_free_p) struct profile *p = ask(*state, &s);
	size_t i = only_row(p, OFF_WAKES);
	char text[64];

	assert_int_equal(p->total, BUCKETS * 1000 * NSEC_PER_USEC);
	assert_int_equal(p->columns.count[i], BUCKETS);
	assert_int_equal(p->columns.value[i], BUCKETS * 40 * NSEC_PER_USEC);
	assert_int_equal(p->columns.max[i], 40 * NSEC_PER_USEC);
	assert_string_equal(comm_of(p, p->columns.series[i]), "waiter");
	assert_string_equal(comm_of(p, p->columns.aux[i]), "waker");
	assert_string_equal(frame_text(p->dict, p->dict->stacks[p->columns.stack[i]].frame, text,
				       sizeof(text)),
			    "post");
}

/* Of a waker whom the peer may not see, nothing is told but that there was one. */
static void test_hidden_waker(void **state)
{
	struct selection s = all_of(PROFILE_OFF_CPU, 1U << OFF_WAKES);
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(strbuf_done) struct strbuf stack = {};

	s.visibility = (struct visibility){ .uid = 1 };
	p = ask(*state, &s);
	assert_int_equal(p->columns.aux[only_row(p, OFF_WAKES)], 0);
	stack_text(p->dict, p->columns.stack[only_row(p, OFF_WAKES)], &stack);
	assert_string_equal(stack.data, "main;wait");
	for (size_t i = 1; i < p->dict->n_series; i++)
		assert_string_not_equal(comm_of(p, (uint32_t)i), "waker");
}

/* A filter on locks has nothing to say about rows whose aux is another thing. */
static void test_filtered_wakes(void **state)
{
	struct selection s = all_of(PROFILE_OFF_CPU, 1U << OFF_WAKES);
	_cleanup_(profile_free_p) struct profile *p = NULL;

	where(&s, FILTER_LOCK, "x", true);
	/* They choose by where it was waited. */
	where(&s, FILTER_FUNCTION, "wait", false);
	p = ask(*state, &s);
	assert_int_equal(p->columns.count[only_row(p, OFF_WAKES)], BUCKETS);
	profile_free(p);
	where(&s, FILTER_FUNCTION, "post", false);
	where(&s, FILTER_FUNCTION, "wait", true);
	p = ask(*state, &s);
	assert_int_equal(p->columns.n, 0);
	for (size_t i = 0; i < s.n_filters; i++)
		free(s.filters[i].glob);
	free(s.filters);
}

/* What the host was short of, and the counters of a process, with and without off-CPU. */
static void test_counters(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct counters_answer *a = NULL;
	uint32_t process = series_id(b->dict, waker);

	s.until_wall_ns = T0 + 10 * SEC;
	b->meta.busy_us = 7000000;
	b->meta.pressure_known = true;
	b->meta.pressure_us[PRESSURE_IO_FULL] = 5;
	on_cpu(b, waker, "main", 3, 2000);
	add_row(b, PROFILE_ON_CPU, process, 0, ON_ASPECT(ON_COUNTERS) | COUNTER_MAJOR_FAULTS, 0, 9,
		0, 0);
	add_row(b, PROFILE_ON_CPU, process, 0, ON_ASPECT(ON_COUNTERS) | COUNTER_CYCLES, 0, 3000000,
		1000, 0);
	add_row(b, PROFILE_ON_CPU, series_id(b->dict, waiter), 0,
		ON_ASPECT(ON_COUNTERS) | COUNTER_MIGRATIONS, 0, 4, 0, 0);
	off_total(b, waiter, OFF_RUN_QUEUE, 1, 300);
	off_total(b, waiter, OFF_PREEMPTED, 1, 200);
	assert_int_equal(query_counters(&src, &s, 1, &a), 0);
	assert_int_equal(a->n_rows, 1);
	assert_int_equal(a->rows_omitted, 1);
	assert_string_equal(a->rows[0].name, "waker");
	assert_int_equal(a->rows[0].cpu_ns, 2000000);
	assert_int_equal(a->rows[0].counters[COUNTER_MAJOR_FAULTS], 9);
	assert_int_equal(a->rows[0].counters[COUNTER_CYCLES], 3000000);
	assert_int_equal(a->rows[0].counted_ns[COUNTER_CYCLES], 1000000);
	assert_int_equal(a->busy_ns, 7 * SEC);
	assert_int_equal(a->capacity_ns, 20 * SEC);
	assert_int_equal(a->pressure_covered_ns, 10 * SEC);
	assert_int_equal(a->pressure_ns[PRESSURE_IO_FULL], 5000);
	assert_int_equal(a->run_queue_ns, 300000);
	assert_int_equal(a->preempted_ns, 200000);
	assert_int_equal(a->delays_covered_ns, 10 * SEC);
	counters_answer_free(a);
	/* Without off-CPU delays are not 0: they are not known. */
	columns_done(&b->columns[PROFILE_OFF_CPU]);
	b->meta.source[PROFILE_OFF_CPU].active = false;
	assert_int_equal(query_counters(&src, &s, 0, &a), 0);
	assert_int_equal(a->n_rows, 2);
	assert_int_equal(a->delays_covered_ns, 0);
	counters_answer_free(a);
}

static void test_calls(void **state)
{
	struct selection s = all_of(PROFILE_SYSCALLS, 1U << CALL_LATENCY | 1U << CALL_BYTES);
	_cleanup_(profile_free_p) struct profile *p = ask(*state, &s);
	size_t latency = only_row(p, CALL_LATENCY), bytes = only_row(p, CALL_BYTES);

	assert_int_equal(CALL_KEY_BIN(p->columns.key[latency]), 12);
	assert_int_equal(p->columns.value[latency], BUCKETS * 15 * NSEC_PER_USEC);
	assert_int_equal(p->columns.max[latency], 6 * NSEC_PER_USEC);
	assert_int_equal(p->columns.value[bytes], BUCKETS * 15);
	assert_int_equal(p->columns.max[bytes], 7);
	assert_int_equal(p->total, 0);
	/* How calls ended is not told here, so no errno matches. */
	profile_free(TAKE_PTR(p));
	where(&s, FILTER_ERRNO, "E*", false);
	p = ask(*state, &s);
	assert_int_equal(p->columns.n, 0);
	free(s.filters[0].glob);
	free(s.filters);
}

static void test_futex(void **state)
{
	struct selection s = all_of(PROFILE_FUTEX, 1U << FUTEX_WAITS | 1U << FUTEX_WAKES);
	_cleanup_(profile_free_p) struct profile *p = ask(*state, &s);
	size_t i = only_row(p, FUTEX_WAKES);

	assert_int_equal(FUTEX_KEY_DETAIL(p->columns.key[i]), 1);
	assert_int_equal(p->columns.aux[i], p->columns.aux[only_row(p, FUTEX_WAITS)]);
	assert_int_equal(p->columns.count[i], 4 * BUCKETS);
	assert_int_equal(p->samples, 2 * BUCKETS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_asked_for), cmocka_unit_test(test_wakes),
		cmocka_unit_test(test_hidden_waker),  cmocka_unit_test(test_calls),
		cmocka_unit_test(test_futex),	      cmocka_unit_test(test_filtered_wakes),
		cmocka_unit_test(test_counters),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
