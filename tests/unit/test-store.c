// SPDX-License-Identifier: GPL-2.0-or-later
/* The store in good times: append, scan, list, days, clocks, limits, packs, readers. */
#include "store-fixture.h"

#include <time.h>

#include "../bench/model.h"
#include "store/day.h"

static void test_append_and_scan(void **st)
{
	struct store *s = open_store(*st);
	struct reading r;

	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(append_small(s, i, DAY_ONE + i * 10 * SECOND), i + 1);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, 10);
	assert_int_equal(r.rows, 20);
	assert_int_equal(r.value, 10 * 1000 + 45 + 7 * 45);
	assert_int_equal(r.seen, 10 * 10 + 45);
	assert_non_null(
		strstr(r.text.data,
		       "4 @1767225630000000000: prog;main 0 1 1003 0 prog;f3;main 0 2 21 0\n"));
	reading_done(&r);
	r = read_all(*st, PROFILE_SYSCALLS);
	assert_int_equal(r.count, 10 + 285);
	reading_done(&r);
	r = read_all(*st, PROFILE_FUTEX);
	assert_int_equal(r.value, 500 + 45);
	reading_done(&r);
	store_close(s);
}

static void test_range_is_half_open(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *reader;
	struct reading r;

	for (uint64_t i = 0; i < 100; i++)
		append_small(s, i, DAY_ONE + i * 10 * SECOND);
	maintain_all(s);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	for (uint64_t from = 0; from < 100; from += 7)
		for (uint64_t n = 0; n < 100; n += 13) {
			r = read_with(reader, PROFILE_ON_CPU, DAY_ONE + from * 10 * SECOND,
				      DAY_ONE + (from + n) * 10 * SECOND);
			assert_int_equal(r.buckets, MIN(n, 100 - from));
			reading_done(&r);
		}
	r = read_with(reader, PROFILE_ON_CPU, DAY_ONE + 1, DAY_ONE + 10 * SECOND + 1);
	assert_int_equal(r.buckets, 1);
	reading_done(&r);
	r = read_with(reader, PROFILE_ON_CPU, UINT64_MAX, 0);
	assert_int_equal(r.buckets, 0);
	reading_done(&r);
	store_reader_free(reader);
	store_close(s);
}

static void test_reopen(void **st)
{
	char uuid[33] = "";

	for (uint64_t round = 0; round < 5; round++) {
		struct store *s = open_store(*st);
		struct store_stats stats;
		struct reading r;

		store_get_stats(s, &stats);
		assert_int_equal(stats.buckets, round * 25);
		assert_string_equal(stats.state, "ok");
		if (round > 0)
			assert_string_equal(stats.uuid, uuid);
		strcpy(uuid, stats.uuid);
		for (uint64_t i = 0; i < 25; i++)
			assert_int_equal(append_small(s, round * 25 + i,
						      DAY_ONE + (round * 25 + i) * SECOND),
					 round * 25 + i + 1);
		maintain_all(s);
		store_get_stats(s, &stats);
		assert_int_equal(stats.buckets, (round + 1) * 25);
		assert_int_equal(stats.oldest_wall_ns, DAY_ONE);
		assert_int_equal(stats.newest_wall_ns, DAY_ONE + (round * 25 + 24) * SECOND);
		assert_int_equal(stats.bytes, directory_bytes(*st));
		r = read_all(*st, PROFILE_ON_CPU);
		assert_int_equal(r.buckets, (round + 1) * 25);
		reading_done(&r);
		store_close(s);
	}
	assert_int_equal(count_files(*st, ".db", NULL), 1);
	assert_int_equal(count_files(*st, "-wal", NULL), 0);
}

static void test_uuid_of_reader(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *reader;
	struct store_stats stats;

	store_get_stats(s, &stats);
	assert_int_equal(strlen(stats.uuid), 32);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	assert_string_equal(store_reader_uuid(reader), stats.uuid);
	store_reader_free(reader);
	store_close(s);
}

/* ---- list ---- */

struct listing {
	uint64_t first, last, n, value;
};

static int list_bucket(void *ctx, const struct bucket *b)
{
	struct listing *l = ctx;

	l->first = l->first ?: b->meta.seq;
	assert_true(b->meta.seq > l->last);
	l->last = b->meta.seq;
	l->n++;
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		for (size_t i = 0; i < b->columns[t].n; i++)
			l->value += b->columns[t].value[i];
	assert_int_equal(b->columns[PROFILE_ON_CPU].n, 2);
	assert_int_equal(b->columns[PROFILE_FUTEX].n, 1);
	/* Ids are the bucket's own, and nothing in its dictionary is superfluous. */
	assert_int_equal(b->dict->n_series, 2);
	assert_int_equal(b->dict->n_locks, 2);
	assert_in_range(b->dict->n_stacks, 3, 3);
	return 0;
}

static struct listing list_after(struct store_reader *reader, uint64_t after, uint32_t limit)
{
	struct listing l = {};

	assert_int_equal(store_reader_list(reader, after, limit, list_bucket, &l), 0);
	return l;
}

static void test_list(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *reader;
	struct listing l;
	uint64_t value = 0, cursor = 0, n = 0;

	assert_int_equal(store_reader_new(*st, &reader), 0);
	assert_int_equal(list_after(reader, 0, 10).n, 0);
	for (uint64_t i = 0; i < 150; i++) {
		/* Over midnight, too. */
		append_small(s, i, DAY_ONE + DAY - 100 * SECOND + i * SECOND);
		value += 1000 + i + 7 * i + 190 * i + 50 + i;
	}
	maintain_all(s);
	l = list_after(reader, 0, UINT32_MAX);
	assert_int_equal(l.n, 150);
	assert_int_equal(l.value, value);
	l = list_after(reader, 149, 10);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.first, 150);
	assert_int_equal(list_after(reader, 150, 10).n, 0);
	assert_int_equal(list_after(reader, UINT64_MAX, 10).n, 0);
	assert_int_equal(list_after(reader, 0, 0).n, 0);
	/* A cursor in steps sees each bucket once. */
	for (value = 0; (l = list_after(reader, cursor, 7)).n > 0; cursor = l.last) {
		assert_int_equal(l.first, cursor + 1);
		n += l.n;
	}
	assert_int_equal(n, 150);
	store_reader_free(reader);
	store_close(s);
}

static int stop_at_three(void *ctx, const struct dict *d, const struct bucket_meta *m,
			 const struct columns *c)
{
	return m->seq == 3 ? 4711 : 0;
}

static int cancel_at_two(void *ctx, const struct dict *d, const struct bucket_meta *m,
			 const struct columns *c)
{
	*(bool *)ctx = m->seq >= 2;
	assert_true(m->seq <= 2);
	return 0;
}

static void test_scan_ends_early(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *reader;
	bool cancelled = false;

	for (uint64_t i = 0; i < 10; i++)
		append_small(s, i, DAY_ONE + i * SECOND);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	assert_int_equal(store_reader_scan(reader, PROFILE_ON_CPU, 0, UINT64_MAX, NULL,
					   stop_at_three, NULL),
			 4711);
	assert_int_equal(store_reader_scan(reader, PROFILE_ON_CPU, 0, UINT64_MAX, &cancelled,
					   cancel_at_two, &cancelled),
			 -ECANCELED);
	store_reader_free(reader);
	store_close(s);
}

/* ---- days and clocks ---- */

static void test_day_names(void **st)
{
	static const char *const wrong[] = {
		"",
		"2026-01-01.0000000000000001.dbx",
		"2026-02-29.0000000000000001.db",
		"2026-13-01.0000000000000001.db",
		"2026-00-10.0000000000000001.db",
		"2026-01-01.0000000000000000.db",
		"2026-01-01.000000000000000A.db",
		"2026-01-01.ffffffffffffffff.db",
		"2026-01-01-0000000000000001.db",
		"2026-01-01.0000000000000001.db-wal",
		"1969-12-31.0000000000000001.db",
		"2026-01-01.1.db",
	};
	char name[DAY_NAME_MAX], expected[DAY_NAME_MAX];
	uint64_t day_ns, seq;

	for (uint64_t day = 0; day < 106000; day += day % 100 ? 1 : 13) {
		time_t t = (time_t)(day * 86400);
		struct tm tm;

		gmtime_r(&t, &tm);
		strftime(expected, sizeof(expected), "%Y-%m-%d.00000000000000ab.db", &tm);
		day_name(name, day * DAY, 0xab);
		assert_string_equal(name, expected);
		assert_true(day_name_parse(name, &day_ns, &seq));
		assert_int_equal(day_ns, day * DAY);
		assert_int_equal(seq, 0xab);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(day_name_parse(wrong[i], &day_ns, &seq));
}

static void test_day_change(void **st)
{
	struct store *s = open_store(*st);
	struct reading r;

	for (uint64_t i = 0; i < 30; i++)
		append_small(s, i, DAY_ONE + DAY - 150 * SECOND + i * 10 * SECOND);
	assert_int_equal(count_files(*st, ".db", NULL), 2);
	maintain_all(s);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, 30);
	reading_done(&r);
	store_close(s);
}

/* Time goes back an hour, a day, a year and forward again: no bucket is lost, doubled or out of order. */
static void test_clock_steps(void **st)
{
	static const int64_t steps[] = { 0,	    -3600,    3600,	-86400,	  86400,
					 -31536000, 31536000, 31536000, -31536000 };
	struct store_options o = { .directory = *st,
				   .max_bytes = 1ULL << 30,
				   .max_age_ns = 9 * DAY,
				   .repack_buckets = 60,
				   .check_eagerly = true };
	struct store *s = NULL;
	uint64_t now = DAY_ONE + 400 * DAY, i = 0;
	struct reading r;

	assert_int_equal(store_open(&o, &s), 0);
	for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
		now += (uint64_t)(steps[k] * (int64_t)SECOND);
		for (size_t n = 0; n < 20; n++, now += 10 * SECOND)
			append_small(s, i++, now);
		maintain_all(s);
	}
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, i);
	assert_int_equal(r.last_seq, i);
	assert_int_equal(r.seen, 10 * i + i * (i - 1) / 2);
	reading_done(&r);
	store_close(s);
	s = open_store(*st);
	assert_int_equal(append_small(s, i, now), i + 1);
	store_close(s);
}

/* A day of buckets in few appends: each covers ten minutes. */
static void append_day(struct store *s, uint64_t start)
{
	for (uint64_t i = 0; i < 144; i++) {
		struct bucket *b = small_bucket(i, start + i * 600 * SECOND);

		b->meta.length_ns = b->meta.covered_ns = 600 * SECOND;
		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
	}
}

static void test_age(void **st)
{
	struct store_options o = { .directory = *st,
				   .max_bytes = 1ULL << 30,
				   .max_age_ns = 3 * DAY,
				   .repack_buckets = 60,
				   .check_eagerly = true };
	struct store *s = NULL;

	assert_int_equal(store_open(&o, &s), 0);
	for (uint64_t day = 0; day < 6; day++)
		append_day(s, DAY_ONE + day * DAY);
	/* The last bucket is of day 5, 23:50: day 1 ended more than three days before. */
	assert_int_equal(count_files(*st, ".db", NULL), 4);
	store_close(s);
}

static void test_age_ignores_forward_jumps(void **st)
{
	struct store_options o = { .directory = *st,
				   .max_bytes = 1ULL << 30,
				   .max_age_ns = 3 * DAY,
				   .repack_buckets = 60,
				   .check_eagerly = true };
	struct store *s = NULL;
	uint64_t year = 365 * DAY;

	assert_int_equal(store_open(&o, &s), 0);
	append_day(s, DAY_ONE);
	append_day(s, DAY_ONE + DAY);
	/* A wrong clock for twenty hours, over a restart. */
	for (uint64_t i = 0; i < 120; i++) {
		append_small(s, i, DAY_ONE + 2 * DAY + year + i * 600 * SECOND);
		if (i == 60) {
			store_close(s);
			assert_int_equal(store_open(&o, &s), 0);
		}
	}
	append_day(s, DAY_ONE + 2 * DAY);
	maintain_all(s);
	assert_int_equal(count_files(*st, ".db", NULL), 4);
	/* A right clock that jumped, because the host was off: after a day of recording it is believed. */
	append_day(s, DAY_ONE + 2 * year);
	append_day(s, DAY_ONE + 2 * year + DAY);
	maintain_all(s);
	assert_int_equal(count_files(*st, ".db", NULL), 2);
	store_close(s);
}

/* ---- limits ---- */

static void test_size_limit(void **st)
{
	struct store_options o = {
		.directory = *st, .max_bytes = 12 << 20, .repack_buckets = 60, .check_eagerly = true
	};
	struct model *m = malloc(sizeof(*m));
	struct store_stats stats;
	struct store *s = NULL;
	struct reading r;
	uint64_t n = 600;
	char path[PATH_LEN];
	int fd;

	/* A damaged file of old counts like everything else, and goes first. */
	snprintf(path, sizeof(path), "%s/2025-01-01.0000000000000001.db.corrupt", (char *)*st);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(ftruncate(fd, 3 << 20), 0);
	close(fd);
	model_init(m, 3);
	assert_int_equal(store_open(&o, &s), 0);
	store_get_stats(s, &stats);
	assert_int_equal(stats.corrupt_files, 1);
	for (uint64_t i = 0; i < n; i++) {
		/* An hour each, so that there are days to drop. */
		struct bucket *b = model_bucket(m, DAY_ONE + i * HOUR);

		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
		assert_true(directory_bytes(*st) <= o.max_bytes);
		maintain_all(s);
		assert_true(directory_bytes(*st) <= o.max_bytes);
	}
	assert_int_equal(count_files(*st, ".corrupt", NULL), 0);
	store_get_stats(s, &stats);
	assert_true(stats.dropped_buckets > 0);
	assert_int_equal(stats.dropped_buckets + stats.buckets, n);
	/* At least half of the limit is in use. */
	assert_true(stats.bytes > o.max_bytes / 2);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, stats.buckets);
	assert_int_equal(r.last_seq, n);
	reading_done(&r);
	store_close(s);
	free(m);
}

/* A day that does not fit the limit is several files; the oldest go. */
static void test_size_limit_within_a_day(void **st)
{
	struct store_options o = {
		.directory = *st, .max_bytes = 8 << 20, .repack_buckets = 60, .check_eagerly = true
	};
	struct model *m = malloc(sizeof(*m));
	struct store_stats stats;
	struct store *s = NULL;
	uint64_t n = 1200;

	model_init(m, 4);
	assert_int_equal(store_open(&o, &s), 0);
	for (uint64_t i = 0; i < n; i++) {
		struct bucket *b = model_bucket(m, DAY_ONE + i * SECOND);

		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
		maintain_all(s);
		assert_true(directory_bytes(*st) <= o.max_bytes);
	}
	store_get_stats(s, &stats);
	print_message("%" PRIu64 " buckets in %" PRIu64 " KiB\n", stats.buckets, stats.bytes >> 10);
	assert_true(stats.buckets > n / 4);
	assert_int_equal(stats.newest_wall_ns, DAY_ONE + (n - 1) * SECOND);
	assert_int_equal(stats.dropped_buckets + stats.buckets, n);
	store_close(s);
	free(m);
}

static void test_many_processes(void **st)
{
	struct store *s = open_store(*st);
	struct reading r;
	uint64_t n = 0;

	/* 9,000 new processes in each bucket: dictionaries fill up, and new files begin. */
	for (uint64_t i = 0; i < 20; i++) {
		struct bucket *b = small_bucket(i, DAY_ONE + i * SECOND);
		struct series one = b->dict->series[1];

		for (uint32_t k = 0; k < 9000; k++) {
			one.pid = 1000 + k;
			one.start = i * 9000 + k;
			add_row(&b->columns[PROFILE_SYSCALLS], checked(dict_series(b->dict, &one)),
				0, 1, 0, 1, 0, 0);
			n++;
		}
		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
	}
	maintain_all(s);
	assert_true(count_files(*st, ".db", NULL) > 1);
	r = read_all(*st, PROFILE_SYSCALLS);
	assert_int_equal(r.buckets, 20);
	assert_int_equal(r.rows, n + 20);
	reading_done(&r);
	store_close(s);
}

/* ---- packs ---- */

static void test_repack_changes_nothing(void **st)
{
	struct model *m = malloc(sizeof(*m));
	struct reading before[PROFILE_TYPE_N], after[PROFILE_TYPE_N];
	struct store *s = open_store(*st);

	model_init(m, 5);
	for (uint64_t i = 0; i < 150; i++) {
		struct bucket *b = model_bucket(m, DAY_ONE + i * 10 * SECOND);

		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
	}
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		before[t] = read_all(*st, (enum profile_type)t);
	maintain_all(s);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		after[t] = read_all(*st, (enum profile_type)t);
		assert_string_equal(before[t].text.data, after[t].text.data);
		reading_done(&after[t]);
	}
	/* And once more, when the rest is packed because the day is over. */
	append_small(s, 1, DAY_ONE + DAY);
	maintain_all(s);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		after[t] = read_all(*st, (enum profile_type)t);
		assert_int_equal(
			strncmp(before[t].text.data, after[t].text.data, before[t].text.len), 0);
		reading_done(&before[t]);
		reading_done(&after[t]);
	}
	store_close(s);
	free(m);
}

/* A reader whose file is packed between two of its calls sees each bucket once. */
struct disturbed {
	struct store *store;
	uint64_t last;
	bool packed;
};

static int disturb(void *ctx, const struct dict *d, const struct bucket_meta *m,
		   const struct columns *c)
{
	struct disturbed *x = ctx;

	assert_int_equal(m->seq, x->last + 1);
	x->last = m->seq;
	assert_non_null(c);
	if (m->seq == 65 && !x->packed) {
		for (uint64_t i = 0; i < 60; i++)
			append_small(x->store, 500 + i, DAY_ONE + (500 + i) * SECOND);
		maintain_all(x->store);
		x->packed = true;
	}
	return 0;
}

static void test_repack_while_reading(void **st)
{
	struct store *s = open_store(*st);
	struct disturbed x = { .store = s };
	struct store_reader *reader;

	for (uint64_t i = 0; i < 100; i++)
		append_small(s, i, DAY_ONE + i * SECOND);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	assert_int_equal(
		store_reader_scan(reader, PROFILE_ON_CPU, 0, UINT64_MAX, NULL, disturb, &x), 0);
	assert_true(x.packed);
	assert_int_equal(x.last, 100);
	x.last = 0;
	assert_int_equal(
		store_reader_scan(reader, PROFILE_ON_CPU, 0, UINT64_MAX, NULL, disturb, &x), 0);
	assert_int_equal(x.last, 160);
	store_reader_free(reader);
	store_close(s);
}

/* ---- names ---- */

static void test_names_later(void **st)
{
	struct store *s = open_store(*st);
	struct bucket *b = small_bucket(1, DAY_ONE);
	struct lock l = { .pid = 100, .address = 0x1008, .flags = 2 };
	struct store_reader *reader;
	struct reading r;
	uint32_t stack;

	stack = checked(dict_stack(b->dict, 0, frame_named(b->dict, "", 0x777, false)));
	add_row(&b->columns[PROFILE_ON_CPU], 1, stack, 0, 0, 1, 1, 0);
	assert_int_equal(store_append(s, b), 0);
	bucket_free(b);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	r = read_with(reader, PROFILE_ON_CPU, 0, UINT64_MAX);
	assert_non_null(strstr(r.text.data, ";prog+0x777 "));
	reading_done(&r);
	b = small_bucket(2, DAY_ONE + SECOND);
	stack = checked(dict_stack(b->dict, 0, frame_named(b->dict, "late", 0x777, true)));
	add_row(&b->columns[PROFILE_ON_CPU], 1, stack, 0, 0, 1, 1, 0);
	l.name = checked(dict_string(b->dict, "mutex"));
	checked(dict_lock(b->dict, &l));
	assert_int_equal(store_append(s, b), 0);
	bucket_free(b);
	/* In an open reader, in a fresh one, and after a restart and a pack. */
	r = read_with(reader, PROFILE_ON_CPU, 0, UINT64_MAX);
	assert_non_null(strstr(r.text.data, ";late "));
	assert_null(strstr(r.text.data, "0x777"));
	reading_done(&r);
	store_reader_free(reader);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_non_null(strstr(r.text.data, ";late "));
	assert_null(strstr(r.text.data, "0x777"));
	reading_done(&r);
	store_close(s);
	s = open_store(*st);
	for (uint64_t i = 3; i < 70; i++)
		append_small(s, i, DAY_ONE + i * SECOND);
	maintain_all(s);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_non_null(strstr(r.text.data, ";late "));
	assert_null(strstr(r.text.data, "0x777"));
	assert_int_equal(r.buckets, 69);
	reading_done(&r);
	store_close(s);
}

/* A bucket that names what an earlier one did not. */
static void test_names_in_a_later_bucket(void **st)
{
	struct store *s = open_store(*st);
	struct reading r;

	for (uint64_t i = 0; i < 2; i++) {
		struct bucket *b = small_bucket(i, DAY_ONE + i * SECOND);
		uint32_t frame = frame_named(b->dict, "second", 0x888, i == 1);

		add_row(&b->columns[PROFILE_ON_CPU], 1, checked(dict_stack(b->dict, 0, frame)), 0,
			0, 1, 1, 0);
		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
	}
	store_close(s);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_null(strstr(r.text.data, "prog+0x888"));
	assert_non_null(strstr(strstr(r.text.data, ";second ") + 1, ";second "));
	reading_done(&r);
}

/* ---- readers ---- */

static void test_two_readers_follow(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *a, *b;
	struct reading r;

	assert_int_equal(store_reader_new(*st, &a), 0);
	assert_int_equal(store_reader_new(*st, &b), 0);
	for (uint64_t i = 0; i < 200; i++) {
		append_small(s, i, DAY_ONE + i * DAY / 80);
		maintain_all(s);
		r = read_with(i % 2 ? a : b, PROFILE_OFF_CPU, 0, UINT64_MAX);
		assert_int_equal(r.buckets, i + 1);
		reading_done(&r);
	}
	assert_int_equal(count_files(*st, ".db", NULL), 3);
	/* Logs that the readers kept are gone. */
	assert_true(directory_bytes(*st) < 3 << 20);
	store_reader_free(a);
	store_reader_free(b);
	store_close(s);
}

struct unlinker {
	const char *directory;
	uint64_t n;
};

static int unlink_all(void *ctx, const struct dict *d, const struct bucket_meta *m,
		      const struct columns *c)
{
	struct unlinker *u = ctx;
	char path[PATH_LEN];

	assert_non_null(c);
	while (u->n == 0 &&
	       count_files(u->directory, ".db", path) + count_files(u->directory, "-wal", NULL) >
		       0) {
		if (count_files(u->directory, ".db", path) == 0)
			count_files(u->directory, "-wal", path);
		assert_int_equal(unlink(path), 0);
	}
	u->n++;
	return 0;
}

static void test_reader_survives_unlink(void **st)
{
	struct store *s = open_store(*st);
	struct unlinker u = { .directory = *st };
	struct store_reader *reader;
	struct reading r;

	for (uint64_t i = 0; i < 300; i++)
		append_small(s, i, DAY_ONE + i * SECOND);
	maintain_all(s);
	assert_int_equal(store_reader_new(*st, &reader), 0);
	/* Files vanish under the first bucket; the scan has the file open and goes on to its end. */
	assert_int_equal(
		store_reader_scan(reader, PROFILE_ON_CPU, 0, UINT64_MAX, NULL, unlink_all, &u), 0);
	assert_int_equal(u.n, 300);
	r = read_with(reader, PROFILE_ON_CPU, 0, UINT64_MAX);
	assert_int_equal(r.buckets, 0);
	reading_done(&r);
	/* The writer notices and begins another file. */
	append_small(s, 300, DAY_ONE + 300 * SECOND);
	assert_int_equal(append_small(s, 301, DAY_ONE + 301 * SECOND) > 300, 1);
	r = read_with(reader, PROFILE_ON_CPU, 0, UINT64_MAX);
	assert_true(r.buckets >= 1);
	reading_done(&r);
	store_reader_free(reader);
	store_close(s);
}

/* ---- the directory ---- */

static void test_one_writer(void **st)
{
	struct store_options o = {
		.directory = *st, .max_bytes = 1 << 30, .repack_buckets = 60, .check_eagerly = true
	};
	struct store *s = open_store(*st), *second = NULL;

	assert_int_equal(store_open(&o, &second), -EBUSY);
	store_close(s);
	assert_int_equal(store_open(&o, &second), 0);
	store_close(second);
}

static void test_directory_is_ours(void **st)
{
	struct store_options o = {
		.directory = *st, .max_bytes = 1 << 30, .repack_buckets = 60, .check_eagerly = true
	};
	struct store *s = NULL;
	char path[PATH_LEN], file[PATH_LEN];
	struct stat sb;

	assert_int_equal(chmod(*st, 0777), 0);
	assert_int_equal(store_open(&o, &s), -EPERM);
	assert_int_equal(chmod(*st, 0700), 0);
	snprintf(path, sizeof(path), "%s/new", (char *)*st);
	o.directory = path;
	assert_int_equal(store_open(&o, &s), 0);
	append_small(s, 1, DAY_ONE);
	assert_int_equal(stat(path, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0700);
	assert_int_equal(count_files(path, ".db", file), 1);
	assert_int_equal(stat(file, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0600);
	store_close(s);
	snprintf(path, sizeof(path), "%s/new", (char *)*st);
	remove_tree(path);
	o.directory = "/proc/nowhere/at/all";
	assert_int_equal(store_open(&o, &s), -ENOENT);
}

static void test_bad_bucket(void **st)
{
	struct store *s = open_store(*st);
	struct bucket *b = small_bucket(1, DAY_ONE);
	struct store_stats stats;

	add_row(&b->columns[PROFILE_ON_CPU], 77, 0, 0, 0, 1, 1, 1);
	assert_int_equal(store_append(s, b), -EINVAL);
	b->columns[PROFILE_ON_CPU].n--;
	assert_int_equal(store_append(s, b), 0);
	b->meta.start_wall_ns = INT64_MAX;
	assert_int_equal(store_append(s, b), -ERANGE);
	bucket_free(b);
	store_get_stats(s, &stats);
	assert_int_equal(stats.append_errors, 1);
	assert_int_equal(stats.buckets, 1);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		store_test(test_append_and_scan),
		store_test(test_range_is_half_open),
		store_test(test_reopen),
		store_test(test_uuid_of_reader),
		store_test(test_list),
		store_test(test_scan_ends_early),
		store_test(test_day_names),
		store_test(test_day_change),
		store_test(test_clock_steps),
		store_test(test_age),
		store_test(test_age_ignores_forward_jumps),
		store_test(test_size_limit),
		store_test(test_size_limit_within_a_day),
		store_test(test_many_processes),
		store_test(test_repack_changes_nothing),
		store_test(test_repack_while_reading),
		store_test(test_names_later),
		store_test(test_names_in_a_later_bucket),
		store_test(test_two_readers_follow),
		store_test(test_reader_survives_unlink),
		store_test(test_one_writer),
		store_test(test_directory_is_ours),
		store_test(test_bad_bucket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
