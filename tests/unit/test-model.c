// SPDX-License-Identifier: GPL-2.0-or-later
/* Dictionaries, their maps, columns, names. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "base/index.h"
#include "base/utf8.h"
#include "model/profile.h"

static void test_interning(void **state)
{
	_cleanup_(dict_free_p) struct dict *d = NULL;
	struct binary b = { .kind = BINARY_ELF, .dev = 1, .ino = 2 };
	struct frame f = { .kind = FRAME_NATIVE, .offset = 0x1000 };
	int64_t s, bin, fr, st;

	assert_int_equal(dict_new(&d), 0);
	s = dict_string(d, "libfoo.so");
	assert_true(s > 0);
	assert_int_equal(dict_string(d, "libfoo.so"), s);
	assert_int_equal(dict_string(d, ""), 0);
	assert_int_equal(dict_string_n(d, "libfoo.so.1", 9), s);
	b.name = (uint32_t)s;
	bin = dict_binary(d, &b);
	assert_int_equal(dict_binary(d, &b), bin);
	b.generation = 7;
	assert_int_not_equal(dict_binary(d, &b), bin);
	f.binary = (uint32_t)bin;
	fr = dict_frame(d, &f);
	f.name = (uint32_t)dict_string(d, "work");
	f.flags = FRAME_NAMED;
	assert_int_equal(dict_frame(d, &f), fr);
	assert_string_equal(dict_str(d, d->frames[fr].name), "work");
	st = dict_stack(d, 0, (uint32_t)fr);
	assert_int_equal(dict_stack(d, 0, (uint32_t)fr), st);
	assert_int_not_equal(dict_stack(d, (uint32_t)st, (uint32_t)fr), st);
	assert_int_not_equal(dict_marker(d, "[truncated]"), dict_marker(d, "[other]"));
}

/* 100,000 strings, all found again, also after a copy. */
static void test_many(void **state)
{
	_cleanup_(dict_free_p) struct dict *d = NULL, *c = NULL;
	char buf[32];

	assert_int_equal(dict_new(&d), 0);
	for (int i = 1; i <= 100000; i++) {
		snprintf(buf, sizeof(buf), "name-%d", i);
		assert_int_equal(dict_string(d, buf), i);
	}
	assert_int_equal(dict_copy(d, &c), 0);
	for (int i = 1; i <= 100000; i++) {
		snprintf(buf, sizeof(buf), "name-%d", i);
		assert_int_equal(dict_string(c, buf), i);
	}
	assert_int_equal(c->n_strings, 100001);
}

static void test_map(void **state)
{
	_cleanup_(dict_free_p) struct dict *from = NULL, *to = NULL;
	struct dict_map m;
	struct frame f = { .kind = FRAME_KERNEL, .flags = FRAME_NAMED };
	uint32_t leaf = 0;
	int64_t mapped;
	char buf[64];

	assert_int_equal(dict_new(&from), 0);
	assert_int_equal(dict_new(&to), 0);
	assert_true(dict_string(to, "something else") > 0);
	for (int i = 0; i < 600; i++) {
		snprintf(buf, sizeof(buf), "f%d", i);
		f.offset = (uint64_t)i;
		f.name = (uint32_t)dict_string(from, buf);
		leaf = (uint32_t)dict_stack(from, leaf, (uint32_t)dict_frame(from, &f));
	}
	dict_map_init(&m, from, to);
	mapped = dict_map_stack(&m, leaf);
	assert_true(mapped > 0);
	assert_int_equal(dict_map_stack(&m, leaf), mapped);
	assert_int_equal(to->n_stacks, 601);
	for (int i = 599; i >= 0; i--) {
		snprintf(buf, sizeof(buf), "f%d", i);
		assert_string_equal(dict_str(to, to->frames[to->stacks[mapped].frame].name), buf);
		mapped = to->stacks[mapped].parent;
	}
	assert_int_equal(mapped, 0);
	assert_int_equal(dict_map_stack(&m, 0), 0);
	assert_int_equal(dict_map_stack(&m, 5000), -EBADMSG);
	/* A chain that does not descend comes from a damaged file. */
	from->stacks[3].parent = 3;
	dict_map_done(&m);
	dict_map_init(&m, from, to);
	assert_int_equal(dict_map_stack(&m, leaf), -EBADMSG);
	dict_map_done(&m);
}

/* An empty target is filled without being searched; whoever asks it later finds everything all the same. */
static void test_map_alone(void **state)
{
	_cleanup_(dict_free_p) struct dict *a = NULL, *b = NULL, *to = NULL;
	struct frame f = { .kind = FRAME_NATIVE };
	struct dict_map m;
	int64_t leaf, mapped, other;

	assert_int_equal(dict_new(&a), 0);
	assert_int_equal(dict_new(&b), 0);
	assert_int_equal(dict_new(&to), 0);
	for (int i = 0; i < 3; i++) {
		f.offset = (uint64_t)i;
		leaf = dict_stack(a, 0, (uint32_t)dict_frame(a, &f));
		assert_int_equal(dict_stack(b, 0, (uint32_t)dict_frame(b, &f)), leaf);
	}
	assert_int_equal(dict_string(a, "one"), 1);
	assert_int_equal(dict_string(a, "two"), 2);
	dict_map_init(&m, a, to);
	mapped = dict_map_stack(&m, (uint32_t)leaf);
	assert_int_equal(dict_map_string(&m, 2), 1);
	assert_int_equal(to->stack_index.n, 0);
	/* Somebody else adds what the map will meet later. */
	assert_int_equal(dict_string(to, "one"), 2);
	assert_int_equal(dict_string(to, "two"), 1);
	assert_int_equal(dict_map_string(&m, 1), 2);
	dict_map_done(&m);
	dict_map_init(&m, b, to);
	assert_int_equal(dict_map_stack(&m, (uint32_t)leaf), mapped);
	other = dict_map_stack(&m, 1);
	assert_true(other > mapped);
	assert_int_equal(to->n_stacks, 3);
	dict_map_done(&m);
	dict_map_init(&m, a, to);
	assert_int_equal(dict_map_stack(&m, 1), other);
	assert_int_equal(to->n_stacks, 3);
	dict_map_done(&m);
}

/* What damage left may be there twice, under two ids, and is one element elsewhere. */
static void test_map_repeats(void **state)
{
	_cleanup_(dict_free_p) struct dict *from = NULL, *to = NULL;
	struct dict_map m;

	assert_int_equal(dict_new(&from), 0);
	assert_int_equal(dict_new(&to), 0);
	assert_int_equal(dict_append_string(from, "[damaged]"), 1);
	assert_int_equal(dict_append_string(from, "[damaged]"), 2);
	from->repeats = true;
	dict_map_init(&m, from, to);
	assert_int_equal(dict_map_string(&m, 1), 1);
	assert_int_equal(dict_map_string(&m, 2), 1);
	dict_map_done(&m);
}

static void test_shrink(void **state)
{
	_cleanup_(dict_shrink_done) struct dict_shrink shrink = {};
	_cleanup_(dict_free_p) struct dict *d = NULL;
	uint32_t stack[10], frame[10];
	char name[16];
	size_t bytes;

	assert_int_equal(dict_new(&d), 0);
	for (uint32_t i = 0; i < 10; i++) {
		struct frame f = { .kind = FRAME_NATIVE, .offset = i, .flags = FRAME_NAMED };
		struct binary b = { .kind = BINARY_ELF };
		struct series s = { .pid = i };
		struct lock l = { .address = i, .flags = 2 };

		snprintf(name, sizeof(name), "f%u", i);
		b.name = f.name = (uint32_t)dict_string(d, name);
		f.binary = (uint32_t)dict_binary(d, &b);
		frame[i] = (uint32_t)dict_frame(d, &f);
		stack[i] = (uint32_t)dict_stack(d, i % 5 ? stack[i - 1] : 0, frame[i]);
		s.label[LABEL_COMM] = l.name = f.name;
		assert_true(dict_series(d, &s) > 0 && dict_lock(d, &l) > 0);
	}
	bytes = d->bytes;
	assert_int_equal(dict_shrink_init(&shrink, d), 0);
	shrink.stack[stack[6]] = 1; /* and its parent */
	shrink.series[4] = 1; /* "f3" */
	shrink.lock[1] = 1; /* "f0" */
	dict_shrink(d, &shrink);
	assert_int_equal(d->n_stacks, 3);
	assert_int_equal(d->n_frames, 3);
	assert_int_equal(d->n_binaries, 3);
	assert_int_equal(d->n_strings, 5);
	assert_int_equal(d->n_series, 2);
	assert_int_equal(d->n_locks, 2);
	assert_int_equal(d->bytes, bytes - 6 * 3);
	assert_int_equal(shrink.stack[stack[6]], 2);
	assert_int_equal(shrink.stack[stack[7]], 0);
	assert_int_equal(d->stacks[2].parent, 1);
	assert_string_equal(dict_str(d, d->frames[d->stacks[2].frame].name), "f6");
	assert_string_equal(dict_str(d, d->binaries[d->frames[d->stacks[1].frame].binary].name),
			    "f5");
	assert_string_equal(dict_str(d, d->series[1].label[LABEL_COMM]), "f3");
	assert_string_equal(dict_str(d, d->locks[1].name), "f0");
	/* Everything is found under its new id, and nothing else is. */
	assert_int_equal(dict_string(d, "f3"), shrink.string[4]);
	assert_int_equal(dict_stack(d, 1, d->stacks[2].frame), 2);
	assert_int_equal(dict_string(d, "f1"), 5);
}

static void test_columns(void **state)
{
	struct columns c = {};

	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(columns_add(&c, i % 10, i % 7, 0, 0, 1, 10, i), 0);
	assert_int_equal(columns_sort_merge(&c), 0);
	assert_int_equal(c.n, 70);
	for (size_t i = 1; i < c.n; i++)
		assert_true(c.series[i - 1] < c.series[i] ||
			    (c.series[i - 1] == c.series[i] && c.stack[i - 1] < c.stack[i]));
	assert_int_equal(c.count[0], 15);
	assert_int_equal(c.value[0], 150);
	assert_int_equal(c.max[0], 980);
	columns_done(&c);
}

static bool id_equal(const void *ctx, uint32_t id, const void *key)
{
	return id == *(const uint32_t *)key;
}

/* Deletion keeps every other member findable: few hash values, long runs. */
static void test_index_delete(void **state)
{
	struct index x = {};

	for (uint32_t i = 1; i <= 500; i++)
		assert_int_equal(index_add(&x, i % 13, i), 0);
	for (uint32_t i = 1; i <= 500; i += 2)
		index_del(&x, i % 13, i);
	for (uint32_t i = 1; i <= 500; i++)
		assert_int_equal(index_find(&x, i % 13, id_equal, NULL, &i), i % 2 ? 0 : i);
	assert_int_equal(x.n, 250);
	index_done(&x);
}

static void test_names(void **state)
{
	char buf[64];

	assert_string_equal(syscall_text(SYSCALL_KEY(SYSCALL_ABI_NATIVE, 9999, 0), buf,
					 sizeof(buf)),
			    "syscall_9999");
	assert_string_equal(syscall_text(SYSCALL_KEY(0, SYSCALL_NR_INVALID, 0), buf, sizeof(buf)),
			    "[invalid]");
	assert_string_equal(syscall_text(SYSCALL_KEY(0, 462, 0), buf, sizeof(buf)), "mseal");
#ifdef __x86_64__
	assert_string_equal(syscall_text(SYSCALL_KEY(0, 0, 0), buf, sizeof(buf)), "read");
	assert_string_equal(syscall_text(SYSCALL_KEY(SYSCALL_ABI_COMPAT, 20, 0), buf, sizeof(buf)),
			    "compat:getpid");
#endif
	assert_string_equal(errno_text(11, buf, sizeof(buf)), "EAGAIN");
	assert_string_equal(off_state_name(0x402), "I");
	assert_string_equal(off_state_name(1), "S");
	for (unsigned i = 0; i < LOSS_REASONS; i++)
		assert_non_null(loss_reason_name(i));
}

/* A lock is known by its place, of which a name may be told later; without a place it is its name. */
static void test_locks(void **state)
{
	struct dict *d;
	struct lock placed = { .pid = 1, .address = 8 }, other = { .flags = 2 };
	int64_t a, b, c;

	assert_int_equal(dict_new(&d), 0);
	a = dict_lock(d, &placed);
	placed.name = (uint32_t)dict_string(d, "mutex");
	assert_int_equal(dict_lock(d, &placed), a);
	other.name = (uint32_t)dict_string(d, LOCK_OTHER);
	b = dict_lock(d, &other);
	other.name = (uint32_t)dict_string(d, "[damaged]");
	c = dict_lock(d, &other);
	assert_true(a > 0 && b > a && c > b);
	other.name = (uint32_t)dict_string(d, LOCK_OTHER);
	assert_int_equal(dict_lock(d, &other), b);
	dict_free(d);
}

static void test_utf8(void **state)
{
	char buf[64];

	assert_true(utf8_valid("gr\xc3\xbc\xc3\x9f", 6));
	assert_false(utf8_valid("\xc0\x80", 2));
	assert_false(utf8_valid("\xed\xa0\x80", 3));
	assert_false(utf8_valid("a\0b", 3));
	utf8_sanitize(buf, sizeof(buf),
		      "a\nb\xff"
		      "c",
		      5);
	assert_string_equal(buf, "a?b\xef\xbf\xbd"
				 "c");
	assert_int_equal(utf8_sanitize(buf, 4, "ab\xc3\xbc", 4), 2);
	assert_string_equal(buf, "ab");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interning),   cmocka_unit_test(test_many),
		cmocka_unit_test(test_map),	    cmocka_unit_test(test_map_alone),
		cmocka_unit_test(test_map_repeats), cmocka_unit_test(test_shrink),
		cmocka_unit_test(test_columns),	    cmocka_unit_test(test_index_delete),
		cmocka_unit_test(test_names),	    cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_locks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
