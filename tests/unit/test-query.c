// SPDX-License-Identifier: GPL-2.0-or-later
/* Merges, tops, folding, series and labels, on buckets made by hand. */
#include "fake-reader.h"
#include "query/internal.h"

/* ---- on-CPU ---------------------------------------------------------------------------------------------- */

static struct bucket *on_cpu_host(uint64_t start)
{
	struct bucket *b = make_bucket(start, 0);

	on_cpu(b, app, "main;a;b", 3, 300);
	on_cpu(b, app, "main;a;b;a;b", 1, 100); /* recursion */
	on_cpu(b, app_io, "main;a", 2, 200);
	on_cpu(b, db, "main;c@libc.so.6", 4, 400);
	return b;
}

static void test_functions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	const struct top_row *r;

	t = top_of(&src, &s, BY_NONE, false, 0);
	assert_int_equal(t->coverage->total, 1000 * 1000);
	assert_int_equal(t->coverage->samples, 10);
	assert_int_equal(t->coverage->rate_mhz, 19000);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(t->rows_omitted, 0);
	r = row_named(t, "a");
	assert_int_equal(r->self, 200 * 1000);
	assert_int_equal(r->total, 600 * 1000); /* once for the recursive path */
	assert_true(r->share == 0.2);
	assert_int_equal(r->events, 0);
	r = row_named(t, "b");
	assert_int_equal(r->self, 400 * 1000);
	assert_int_equal(r->total, 400 * 1000);
	r = row_named(t, "main");
	assert_int_equal(r->self, 0);
	assert_int_equal(r->total, 1000 * 1000);
	assert_string_equal(r->binary, "app");
	/* Equal self: the larger total first, then the name. */
	assert_string_equal(t->rows[0].name, "b");
	assert_string_equal(t->rows[1].name, "c");
	assert_string_equal(t->rows[1].binary, "libc.so.6");
	assert_string_equal(t->rows[3].name, "main");
}

static void test_limit_and_sort(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };

	t = top_of(&src, &s, BY_FUNCTION, true, 2);
	assert_int_equal(t->n_rows, 2);
	assert_int_equal(t->rows_omitted, 2);
	assert_string_equal(t->rows[0].name, "main");
	assert_true(t->rows[0].share == 1.0);
	assert_string_equal(t->rows[1].name, "a");
}

static void test_dimensions(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct top *t = top_of(&src, &s, BY_PROCESS, false, 0);
	const struct top_row *r = row_named(t, "app");

	assert_int_equal(t->n_rows, 2);
	assert_int_equal(r->self, 600 * 1000);
	assert_int_equal(r->total, 600 * 1000);
	assert_int_equal(r->pid, 10);
	assert_int_equal(r->start, 5);
	top_free(t);
	t = top_of(&src, &s, BY_THREAD, false, 0);
	assert_int_equal(t->n_rows, 3);
	assert_int_equal(row_named(t, "io")->self, 200 * 1000);
	assert_int_equal(row_named(t, "io")->tid, 11);
	top_free(t);
	t = top_of(&src, &s, BY_UNIT, false, 0);
	assert_int_equal(row_named(t, "db.service")->self, 400 * 1000);
	assert_int_equal(row_named(t, "db.service")->pid, 0);
	top_free(t);
	t = top_of(&src, &s, BY_POD, false, 0);
	assert_int_equal(t->n_rows, 1);
	assert_string_equal(t->rows[0].name, "[none]");
	top_free(t);
	t = top_of(&src, &s, BY_BINARY, false, 0);
	assert_int_equal(row_named(t, "app")->self, 600 * 1000);
	assert_int_equal(row_named(t, "app")->total, 1000 * 1000);
	assert_int_equal(row_named(t, "libc.so.6")->total, 400 * 1000);
	top_free(t);
	t = top_of(&src, &s, BY_STACK, false, 0);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(row_named(t, "main;a;b;a;b")->self, 100 * 1000);
	assert_int_equal(row_named(t, "main;a")->total, 200 * 1000);
	top_free(t);
}

static void test_wrong_dimensions(void **state)
{
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = {};
	enum dimension by = BY_NONE;
	struct top *t = NULL;
	const char *error = NULL;

	assert_int_equal(query_top(&src, &s, BY_CAUSE, false, 0, &t), -EINVAL);
	assert_int_equal(query_top(&src, &s, BY_LOCK, false, 0, &t), -EINVAL);
	assert_int_equal(dimension_resolve(PROFILE_FUTEX, BY_CAUSE, &by, &error), -EINVAL);
	assert_non_null(error);
	assert_int_equal(dimension_resolve(PROFILE_SYSCALLS, BY_FUNCTION, &by, &error), 0);
	assert_int_equal(by, BY_FUNCTION);
	assert_int_equal(dimension_resolve(PROFILE_SYSCALLS, BY_NONE, &by, &error), 0);
	assert_int_equal(by, BY_SYSCALL);
	assert_int_equal(dimension_from_name("total"), -EINVAL);
	for (int i = BY_FUNCTION; i < DIMENSION_N; i++)
		assert_int_equal(dimension_from_name(dimension_name((enum dimension)i)), i);
}

/* Names in the answer, unnamed frames and two frames of one function: by what people see. */
static void test_frames_of_one_function(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	_cleanup_(top_free_p) struct top *t = NULL, *stacks = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct dict *d = b->dict;
	uint32_t f = frame_id(d, "spin"), other, series = series_id(d, app);
	struct frame twin = d->frames[f];

	twin.offset += 4;
	other = ok_id(dict_frame(d, &twin));
	assert_int_not_equal(f, other);
	add_row(b, PROFILE_ON_CPU, series, ok_id(dict_stack(d, 0, f)), 0, 0, 1, 10, 0);
	add_row(b, PROFILE_ON_CPU, series, ok_id(dict_stack(d, 0, other)), 0, 0, 1, 20, 0);
	on_cpu(b, app, "+0x10@lib.so", 1, 1);
	on_cpu(b, app, "+0x20@lib.so", 1, 2);
	add_row(b, PROFILE_ON_CPU, series, 0, 0, 0, 1, 7, 0);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->n_rows, 4);
	assert_int_equal(row_named(t, "spin")->self, 30 * 1000);
	assert_int_equal(row_named(t, "lib.so+0x20")->self, 2 * 1000);
	assert_int_equal(row_named(t, "[no stack]")->self, 7 * 1000);
	assert_int_equal(row_named(t, "[no stack]")->total, 7 * 1000);
	stacks = top_of(&src, &s, BY_STACK, false, 0);
	assert_int_equal(stacks->n_rows, 4);
	assert_int_equal(row_named(stacks, "spin")->self, 30 * 1000);
}

/* The same process, stack and name in two days' dictionaries are one in the answer. */
static void test_two_days(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	_cleanup_(profile_free_p) struct profile *p = NULL;
	struct bucket *a = stored(&reader, T0), *b = stored(&reader, T0 + 10 * SEC);

	str_id(b->dict, "shifts all ids");
	on_cpu(b, db, "x;y", 1, 1);
	on_cpu(a, app, "main;a;b", 3, 300);
	on_cpu(b, app, "main;a;b", 5, 500);
	p = merged(&src, &s, 0);
	assert_int_equal(p->columns.n, 2);
	assert_int_equal(p->total, 801 * 1000);
	assert_int_equal(sum_of(p), p->total);
	assert_int_equal(p->samples, 9);
	assert_int_equal(p->covered_ns, 20 * SEC);
	assert_int_equal(p->dict->n_series, 3);
	assert_int_equal(p->dict->n_stacks, 6);
	reader_done(&reader);
}

static void test_cancel(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	bool cancelled = true;
	struct query_source src = { .open = b, .cancelled = &cancelled };
	struct profile *p = NULL;

	assert_int_equal(query_merge(&src, &s, 0, &p), -ECANCELED);
	assert_null(p);
}

/* ---- system calls and futexes ------------------------------------------------------------------------------ */

static void test_syscalls(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_SYSCALLS);
	struct query_source src = { .open = b };
	struct top *t;

	calls(b, app, NATIVE(NR_READ, 0), 100);
	calls(b, app, NATIVE(NR_READ, EAGAIN), 20);
	calls(b, app, NATIVE(NR_READ, EINTR), 3);
	calls(b, db, NATIVE(NR_GETPID, 0), 1000000);
	calls(b, db, SYSCALL_KEY(SYSCALL_ABI_COMPAT, 20, 0), 7);
	t = top_of(&src, &s, BY_NONE, false, 0);
	assert_int_equal(t->coverage->total, 1000130);
	assert_int_equal(t->coverage->samples, 1000130);
	assert_int_equal(t->n_rows, 3);
	assert_string_equal(t->rows[0].name, "getpid");
	assert_int_equal(t->rows[0].self, 1000000);
	assert_int_equal(t->rows[0].total, 1000000);
	assert_int_equal(t->rows[0].events, 1000000);
	assert_int_equal(row_named(t, "read")->events, 123);
	assert_int_equal(row_named(t, "read")->errors, 23);
	assert_int_equal(row_named(t, "compat:getpid")->self, 7);
	top_free(t);
	t = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(row_named(t, "app")->self, 123);
	assert_int_equal(row_named(t, "app")->errors, 23);
	top_free(t);
	where(&s, FILTER_ERRNO, "EAGAIN", false);
	where(&s, FILTER_ERRNO, "4", false); /* EINTR */
	t = top_of(&src, &s, BY_SYSCALL, false, 0);
	assert_int_equal(t->coverage->total, 23);
	top_free(t);
	where(&s, FILTER_SYSCALL, "getpid", false);
	t = top_of(&src, &s, BY_SYSCALL, false, 0);
	assert_int_equal(t->n_rows, 0);
	top_free(t);
	selection_done(&s);
}

static void test_futex(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_FUTEX);
	struct query_source src = { .open = b };
	struct lock lock = { .pid = 10, .address = 0x7f00, .flags = 2 },
		    plain = { .pid = 20, .address = 0x1000 };
	uint32_t woken = FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), a, p, named, unnamed;
	uint32_t timed_out = FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT);
	struct top *t;

	lock.name = str_id(b->dict, "big_lock");
	named = ok_id(dict_lock(b->dict, &lock));
	unnamed = ok_id(dict_lock(b->dict, &plain));
	a = series_id(b->dict, app);
	p = stack_id(b->dict, "main;lock");
	add_row(b, PROFILE_FUTEX, a, p, woken, named, 5, 500, 200);
	add_row(b, PROFILE_FUTEX, a, p, timed_out, named, 1, 900, 900);
	add_row(b, PROFILE_FUTEX, series_id(b->dict, db), p, woken, unnamed, 2, 10, 6);
	t = top_of(&src, &s, BY_LOCK, false, 0);
	assert_int_equal(t->n_rows, 2);
	assert_string_equal(t->rows[0].name, "big_lock");
	assert_int_equal(t->rows[0].self, 1400 * 1000);
	assert_int_equal(t->rows[0].events, 6);
	assert_int_equal(t->rows[0].max, 900 * 1000);
	assert_int_equal(t->rows[0].pid, 10);
	assert_string_equal(t->rows[1].name, "0x1000");
	assert_int_equal(t->coverage->samples, 8);
	top_free(t);
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_string_equal(t->rows[0].name, "lock");
	assert_int_equal(t->rows[0].events, 8);
	assert_int_equal(t->rows[0].max, 900 * 1000);
	assert_int_equal(row_named(t, "main")->events, 8);
	assert_int_equal(row_named(t, "main")->max, 900 * 1000);
	top_free(t);
	where(&s, FILTER_LOCK, "big*", true);
	t = top_of(&src, &s, BY_LOCK, false, 0);
	assert_int_equal(t->coverage->total, 10 * 1000);
	top_free(t);
	selection_done(&s);
}

/* ---- folding ------------------------------------------------------------------------------------------------ */

static void test_fold(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	unsigned seed = 3;
	size_t all;
	struct profile *p;

	for (int i = 0; i < 2000; i++) {
		char path[128] = "main";

		for (unsigned n = (unsigned)rand_r(&seed) % 6; n > 0; n--)
			snprintf(path + strlen(path), sizeof(path) - strlen(path), ";f%u",
				 (unsigned)rand_r(&seed) % 7);
		on_cpu(b, i % 3 ? app : db, path, 1, (uint64_t)rand_r(&seed) % 1000);
	}
	p = merged(&src, &s, 0);
	all = p->dict->n_stacks - 1;
	assert_false(p->truncated);
	assert_int_equal(p->omitted, 0);
	profile_free(p);
	for (uint32_t max = 1; max < all + 2; max = max * 3 / 2 + 1) {
		struct profile *folded = merged(&src, &s, max);

		assert_true(folded->dict->n_stacks - 1 <= max);
		assert_int_equal(sum_of(folded), folded->total);
		assert_int_equal(folded->samples, 2000);
		assert_int_equal(folded->truncated, max < all);
		assert_int_equal(folded->omitted > 0, max < all);
		profile_free(folded);
	}
}

/* What is kept is the heaviest; the rest hangs where it was cut off. */
static void test_fold_place(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(strbuf_done) struct strbuf text = {};

	on_cpu(b, app, "main;heavy", 1, 100);
	on_cpu(b, app, "main;x;y", 1, 3);
	on_cpu(b, app, "main;z", 1, 2);
	on_cpu(b, db, "other_root", 1, 1);
	p = merged(&src, &s, 4);
	assert_true(p->truncated);
	assert_int_equal(p->omitted, 3);
	assert_int_equal(p->columns.n, 3);
	for (size_t i = 0; i < p->columns.n; i++) {
		stack_text(p->dict, p->columns.stack[i], &text);
		strbuf_printf(&text, " %d\n", (int)p->columns.value[i]);
	}
	assert_string_equal(text.data, "main;heavy 100000\nmain;[other] 5000\n[other] 1000\n");
}

/* ---- over time ----------------------------------------------------------------------------------------------- */

static void test_series(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct series_answer *a = NULL;

	for (int i = 0; i < 6; i++) {
		struct bucket *b = stored(&reader, T0 + i * 10 * SEC);

		on_cpu(b, app, "main;a", 1, 10);
		on_cpu(b, db, "main;c", 1, i == 2 ? 100 : 1);
	}
	s.from_wall_ns = T0 + 5 * SEC; /* the first bucket starts before it */
	s.until_wall_ns = T0 + 80 * SEC;
	assert_int_equal(query_series(&src, &s, BY_PROCESS, 20 * SEC, 0, &a), 0);
	assert_int_equal(a->first_wall_ns, T0);
	assert_int_equal(a->n_steps, 4);
	assert_int_equal(a->n_lines, 2);
	assert_int_equal(a->omitted, 0);
	assert_string_equal(a->lines[0].name, "db");
	assert_int_equal(a->lines[0].pid, 20);
	assert_int_equal(a->lines[0].values[0], 1 * 1000);
	assert_int_equal(a->lines[0].values[1], 101 * 1000);
	assert_int_equal(a->lines[0].values[3], 0);
	assert_int_equal(a->lines[1].total, 50 * 1000);
	assert_int_equal(a->covered_ns[0], 10 * SEC);
	assert_int_equal(a->covered_ns[1], 20 * SEC);
	assert_int_equal(a->covered_ns[3], 0);
	assert_int_equal(a->coverage->total, 154 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_FUNCTION, 20 * SEC, 1, &a), 0);
	assert_int_equal(a->n_lines, 2);
	assert_int_equal(a->omitted, 1);
	assert_int_equal(line_named(a, "c")->total, 104 * 1000);
	assert_int_equal(line_named(a, "[other]")->total, 50 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_NONE, 0, 0, &a), 0);
	assert_int_equal(a->step_ns, 10 * SEC);
	assert_int_equal(a->n_lines, 1);
	assert_string_equal(a->lines[0].name, "total");
	assert_int_equal(a->lines[0].total, 154 * 1000);
	series_answer_free(a);
	assert_int_equal(query_series(&src, &s, BY_NONE, 1000, 0, &a), -E2BIG);
	reader_done(&reader);
}

/* Nobody knows what happened when within a bucket: no step is shorter. */
static void test_series_of_short_steps(void **state)
{
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	struct selection s = whole(PROFILE_ON_CPU);
	struct series_answer *a = NULL;

	for (int i = 0; i < 6; i++)
		on_cpu(stored(&reader, T0 + i * 10 * SEC), app, "main;a", 1, 10);
	s.from_wall_ns = T0;
	s.until_wall_ns = T0 + 60 * SEC;
	assert_int_equal(query_series(&src, &s, BY_NONE, SEC, 0, &a), 0);
	assert_int_equal(a->step_ns, 10 * SEC);
	assert_int_equal(a->n_steps, 6);
	for (size_t i = 0; i < a->n_steps; i++) {
		assert_int_equal(a->covered_ns[i], 10 * SEC);
		assert_int_equal(a->lines[0].values[i], 10 * 1000);
	}
	series_answer_free(a);
	/* Multiples of what was asked for; and of buckets of several lengths, the longest counts. */
	reader.buckets[3]->meta.length_ns = 15 * SEC;
	assert_int_equal(query_series(&src, &s, BY_NONE, 4 * SEC, 0, &a), 0);
	assert_int_equal(a->step_ns, 24 * SEC);
	assert_int_equal(a->coverage->total, 60 * 1000);
	assert_int_equal(a->coverage->covered_ns, 60 * SEC);
	series_answer_free(a);
	reader.buckets[3]->meta.length_ns = UINT64_MAX;
	assert_int_equal(query_series(&src, &s, BY_NONE, SEC, 0, &a), 0);
	assert_int_equal(a->step_ns, 10 * SEC);
	series_answer_free(a);
	reader_done(&reader);
}

/* ---- labels --------------------------------------------------------------------------------------------------- */

static void test_label_values(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = on_cpu_host(T0);
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };
	struct label_values *v = NULL;
	uint64_t keys = 0;

	assert_int_equal(query_label_values(&src, &s, FILTER_UNIT, 0, 0, &v), 0);
	assert_int_equal(v->n, 2);
	assert_string_equal(v->values[0].value, "app.service");
	assert_int_equal(v->values[0].total, 600 * 1000);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_FUNCTION, 1, 2, &v), 0);
	assert_int_equal(v->n, 2);
	assert_string_equal(v->values[0].value, "a"); /* main, a, b and c at 400 each */
	assert_string_equal(v->values[1].value, "b");
	assert_int_equal(v->omitted, 1);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_TID, 0, 0, &v), 0);
	assert_int_equal(v->n, 3);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_LOCK, 0, 10, &v), 0);
	assert_int_equal(v->n, 0);
	label_values_free(v);
	assert_int_equal(query_label_values(&src, &s, FILTER_COMM, 5, 10, &v), 0);
	assert_int_equal(v->n, 0);
	assert_int_equal(v->omitted, 0);
	label_values_free(v);
	assert_int_equal(query_labels(&src, &s, &keys), 0);
	assert_int_equal(keys, 1U << FILTER_COMM | 1U << FILTER_PID | 1U << FILTER_TID |
				       1U << FILTER_THREAD | 1U << FILTER_UID | 1U << FILTER_UNIT |
				       1U << FILTER_BINARY | 1U << FILTER_FUNCTION);
}

/* ---- against a model ------------------------------------------------------------------------------------------ */

/* Random buckets over two dictionaries: every projection gives the same total, and rows add up to it. */
static void test_consistent(void **state)
{
	static const enum dimension all[] = { BY_FUNCTION, BY_PROCESS, BY_THREAD,
					      BY_UNIT,	   BY_BINARY,  BY_STACK };
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	unsigned seed = 11;
	uint64_t want[2] = {};

	for (int i = 0; i < 40; i++) {
		struct bucket *b = stored(&reader, T0 + i * 10 * SEC);

		for (int n = 0; n < 50; n++) {
			struct who w = { .comm = "w",
					 .thread = "t",
					 .pid = 1 + (uint32_t)rand_r(&seed) % 9 };
			char path[64];
			uint64_t us = (uint64_t)rand_r(&seed) % 5000;
			unsigned cause = 1 + (unsigned)rand_r(&seed) % 3;

			w.tid = w.pid + (uint32_t)rand_r(&seed) % 3;
			snprintf(path, sizeof(path), "main;f%u;g%u@lib.so",
				 (unsigned)rand_r(&seed) % 5, (unsigned)rand_r(&seed) % 5);
			on_cpu(b, w, path, 1, us);
			off_total(b, w, cause, 1, us);
			if (rand_r(&seed) % 4 == 0)
				off_sample(b, w, path, cause, 1, 4, 2 * us + 1);
			want[0] += us * 1000;
			want[1] += us * 1000;
		}
	}
	for (int type = PROFILE_ON_CPU; type <= PROFILE_OFF_CPU; type++) {
		struct selection s = whole((enum profile_type)type);

		for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
			_cleanup_(top_free_p) struct top *t = top_of(&src, &s, all[k], false, 0);
			uint64_t self = 0;

			for (size_t i = 0; i < t->n_rows; i++) {
				self += t->rows[i].self;
				assert_true(t->rows[i].self <= t->rows[i].total);
				assert_true(t->rows[i].total <= t->coverage->total);
			}
			assert_true(t->coverage->total == want[type]);
			assert_true(self == want[type]);
			assert_int_equal(t->coverage->samples, 40 * 50);
		}
	}
	reader_done(&reader);
}

static int add_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		      const struct columns *columns)
{
	return merge_add(ctx, d, columns);
}

/* More processes than may be held: they are told apart by name, and nothing is lost. */
static void test_too_many_processes(void **state)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	struct store_reader reader = {};
	struct query_source src = { .reader = &reader };
	uint64_t want = 0;

	for (uint32_t i = 0; i < 600; i++) {
		struct who w = {
			.comm = i % 2 ? "cc" : "ld", .pid = 1 + i, .tid = 1 + i, .start = i
		};
		struct bucket *b = i % 200 ? reader.buckets[reader.n - 1]
					   : stored(&reader, T0 + i / 200 * 10 * SEC);

		on_cpu(b, w, i % 3 ? "main;parse" : "main;link", 1, i);
		off_total(b, w, OFF_BLOCKED, 1, i);
		off_sample(b, w, "main;read", OFF_BLOCKED, 1, 1, 2 * i);
		want += i * 1000;
	}
	for (int type = PROFILE_ON_CPU; type <= PROFILE_OFF_CPU; type++) {
		_cleanup_(merge_done) struct merge m = {};
		struct selection s = whole((enum profile_type)type);

		assert_int_equal(merge_init(&m, &s, all), 0);
		m.max_rows = 50;
		assert_int_equal(query_scan(&src, &m, add_bucket, &m), 0);
		assert_int_equal(merge_close(&m), 0);
		assert_true(m.coarse && m.p->coarse);
		assert_int_equal(m.p->total, want);
		assert_int_equal(sum_of(m.p), want);
		assert_int_equal(m.p->samples, 600);
		assert_true(m.p->columns.n <= 6);
		for (size_t i = 0; i < m.p->columns.n; i++)
			assert_int_equal(m.p->dict->series[m.p->columns.series[i]].pid, 0);
	}
	reader_done(&reader);
}

/* Ids that name nothing, as from a store that was written over: counted, unnamed, no crash. */
static void test_bad_ids(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = make_bucket(T0, 0);
	_cleanup_(top_free_p) struct top *t = NULL, *filtered = NULL;
	struct selection s = whole(PROFILE_ON_CPU);
	struct query_source src = { .open = b };

	on_cpu(b, app, "main;a", 1, 1);
	add_row(b, PROFILE_ON_CPU, 999, 999, 999, 999, 1, 2, 0);
	b->dict->stacks[2].parent = 7777;
	b->dict->stacks[1].frame = 4444;
	b->dict->series[1].label[LABEL_UNIT] = 5555;
	t = top_of(&src, &s, BY_FUNCTION, false, 0);
	assert_int_equal(t->coverage->total, 3000);
	where(&s, FILTER_FUNCTION, "a", false);
	where(&s, FILTER_UNIT, "", false);
	filtered = top_of(&src, &s, BY_PROCESS, false, 0);
	assert_int_equal(filtered->coverage->total, 1000);
	selection_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_limit_and_sort),
		cmocka_unit_test(test_dimensions),
		cmocka_unit_test(test_wrong_dimensions),
		cmocka_unit_test(test_frames_of_one_function),
		cmocka_unit_test(test_two_days),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_syscalls),
		cmocka_unit_test(test_futex),
		cmocka_unit_test(test_fold),
		cmocka_unit_test(test_fold_place),
		cmocka_unit_test(test_series),
		cmocka_unit_test(test_series_of_short_steps),
		cmocka_unit_test(test_label_values),
		cmocka_unit_test(test_consistent),
		cmocka_unit_test(test_too_many_processes),
		cmocka_unit_test(test_bad_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
