// SPDX-License-Identifier: GPL-2.0-or-later
/* Tables against a plain list of the rows that were added, and against damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unwind/table.h"

#define PAGE 4096U

/* ---- a list of rows, and its table ------------------------------------------------------------- */

struct list {
	struct {
		uint32_t pc;
		int32_t off; /* 0: no rule */
	} rows[200000];
	size_t n;
};

static struct list list;
static uint32_t seed;

static uint32_t any(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)seed * n) >> 32);
}

static struct unwind_rule rule_of(int32_t off)
{
	if (!off)
		return (struct unwind_rule){};
	return (struct unwind_rule){ .cfa = UNWIND_SP, .cfa_off = off, .ra = UNWIND_AT_CFA };
}

static void add(uint32_t pc, int32_t off)
{
	assert_true(list.n < sizeof(list.rows) / sizeof(list.rows[0]));
	list.rows[list.n].pc = pc;
	list.rows[list.n++].off = off;
}

static void start(uint32_t number)
{
	list.n = 0;
	seed = number;
}

static struct table *build(uint64_t size)
{
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table_segment s = { .offset = 0x1000, .size = size };
	struct table *t;

	assert_int_equal(table_builder_new(62, 0x400000, &b), 0);
	assert_int_equal(table_add_segment(b, &s), 0);
	for (size_t i = 0; i < list.n; i++) {
		struct unwind_rule rule = rule_of(list.rows[i].off);

		assert_int_equal(table_add_row(b, list.rows[i].pc, &rule), 0);
	}
	assert_int_equal(table_finish(b, &t), 0);
	assert_int_equal(table_check(t, t->bytes), 0);
	return t;
}

/* The table says the same as the list: at each row, one byte before it, and in between. */
static void expect_list(const struct table *t, uint64_t size)
{
	struct unwind_rule before = {};

	for (size_t i = 0; i < list.n; i++) {
		uint32_t pc = list.rows[i].pc;
		uint32_t end = i + 1 < list.n ? list.rows[i + 1].pc : (uint32_t)size;
		struct unwind_rule rule = rule_of(list.rows[i].off);

		if (pc)
			assert_memory_equal(table_find(t, pc - 1), &before, sizeof(rule));
		if (!list.rows[i].off && i + 1 < list.n && end - pc < 16)
			rule = before; /* not worth a row */
		assert_memory_equal(table_find(t, pc), &rule, sizeof(rule));
		assert_memory_equal(table_find(t, pc + (end - pc) / 2), &rule, sizeof(rule));
		before = rule;
	}
	assert_int_equal(table_find(t, (uint32_t)size)->cfa, UNWIND_NONE);
	assert_int_equal(table_find(t, UINT32_MAX)->cfa, UNWIND_NONE);
}

static void round_trip(uint64_t size)
{
	struct table *t = build(size);

	expect_list(t, size);
	free(t);
}

/* ---- shapes ------------------------------------------------------------------------------------ */

static void sparse_and_dense(void **state)
{
	static const uint32_t steps[] = { 1, 2, 5, 17, 40, 300, 5000, 90000 };

	for (uint32_t round = 0; round < 60; round++) {
		uint32_t pc, step = 1;
		bool gap = false;

		start(round);
		pc = any(3) ? any(9000) : 0;
		for (uint32_t i = 0; i < 3000 && pc < (60U << 20); i++) {
			if (any(200) == 0)
				step = steps[any(8)];
			add(pc, any(8) || gap ? (int32_t)(1 + any(600)) * 8 : 0);
			gap = !list.rows[i].off;
			pc += 1 + any(step);
		}
		round_trip(pc + any(5000));
	}
}

static void one_row_a_byte(void **state)
{
	struct table *t;

	start(0);
	for (uint32_t pc = 0; pc < 5 * PAGE; pc++)
		add(pc, 8 + 8 * (int32_t)(pc % 7));
	round_trip(5 * PAGE);
	/* The page is full of leaves, what comes behind is not. */
	add(5 * PAGE + 10, 8);
	t = build(9 * PAGE);
	expect_list(t, 9 * PAGE);
	assert_int_equal(t->n_leaves, 5 * 16 + 1);
	free(t);
}

static void exactly_full(void **state)
{
	for (uint32_t n = 254; n <= 258; n++) {
		struct table *t;

		start(n);
		for (uint32_t i = 0; i < n; i++)
			add(8 + i * 2, 8 + 8 * (int32_t)(i % 5));
		t = build(PAGE);
		expect_list(t, PAGE);
		/* One more row for what lies before the first. */
		assert_int_equal(t->n_leaves, n + 1 > 256 ? 2 : 1);
		free(t);
	}
}

static void leaves_hold_whole_pages(void **state)
{
	struct table *t;

	start(1);
	for (uint32_t page = 0; page < 40; page++)
		for (uint32_t i = 0; i < 100; i++)
			add(page * PAGE + 7 + i * 40, 8 + 8 * (int32_t)((page + i) % 9));
	t = build(40 * PAGE);
	expect_list(t, 40 * PAGE);
	assert_int_equal(t->n_leaves, 20);
	for (uint32_t i = 1; i <= t->n_leaves; i++) {
		const struct unwind_leaf *l = table_node(t, i);

		assert_int_equal(l->base % PAGE, 0);
		assert_int_equal(l->next, 0);
		assert_int_equal(l->rows, 201);
	}
	free(t);
	/* A function of 1 MB: a leaf is there for each of its pages, and spans 16 of them. */
	start(1);
	add(100, 8);
	add(100 + (1U << 20), 0);
	t = build(2U << 20);
	expect_list(t, 2U << 20);
	assert_int_equal(t->n_leaves, 17);
	free(t);
}

static void deep(void **state)
{
	struct table *t;

	start(1);
	add(UNWIND_TABLE_BYTES - 5 * PAGE, 8);
	add(UNWIND_TABLE_BYTES - 1, 16);
	t = build(UNWIND_TABLE_BYTES);
	expect_list(t, UNWIND_TABLE_BYTES);
	assert_true(t->root & UNWIND_ROOT_DEEP);
	assert_int_equal(t->n_index, 2); /* the rest of 256 MiB has no rows */
	free(t);
	start(1);
	add(0, 8);
	add(256 * PAGE - 1, 16);
	t = build(256 * PAGE);
	assert_int_equal(t->n_index, 1);
	free(t);
	/* Code behind them without a row: it must not be found in the first 256 pages. */
	list.rows[1].off = 0;
	t = build(300 * PAGE);
	expect_list(t, 300 * PAGE);
	assert_true(t->root & UNWIND_ROOT_DEEP);
	assert_int_equal(t->n_index, 2);
	free(t);
	list.rows[1].off = 16;
	add(256 * PAGE, 24);
	t = build(257 * PAGE);
	expect_list(t, 257 * PAGE);
	assert_int_equal(t->n_index, 3);
	free(t);
}

/* ---- gaps -------------------------------------------------------------------------------------- */

static void gaps(void **state)
{
	static const struct unwind_rule none, sp = { .cfa = UNWIND_SP, .cfa_off = 8 };
	static const struct unwind_rule exact[] = { { .cfa = UNWIND_END },
						    { .cfa = UNWIND_SIGNAL } };
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table_segment s = { .size = 0x1000 };
	_cleanup_free_ struct table *t = NULL;

	assert_int_equal(table_builder_new(62, 0, &b), 0);
	assert_int_equal(table_add_segment(b, &s), 0);
	assert_int_equal(table_add_row(b, 0x10, &sp), 0);
	assert_int_equal(table_add_row(b, 0x20, &none), 0);
	assert_int_equal(table_add_row(b, 0x2f, &sp), 0); /* 15 bytes */
	assert_int_equal(table_add_row(b, 0x40, &none), 0);
	assert_int_equal(table_add_row(b, 0x50, &exact[0]), 0); /* 16 bytes */
	assert_int_equal(table_add_row(b, 0x60, &none), 0);
	assert_int_equal(table_add_row(b, 0x62, &exact[1]), 0);
	assert_int_equal(table_add_row(b, 0x64, &none), 0);
	assert_int_equal(table_add_row(b, 0x66, &sp), 0);
	assert_int_equal(table_add_row(b, 0x66, &sp), -EINVAL);
	assert_int_equal(table_finish(b, &t), 0);
	assert_int_equal(table_check(t, t->bytes), 0);
	assert_int_equal(table_find(t, 0x0f)->cfa, UNWIND_NONE);
	assert_int_equal(table_find(t, 0x25)->cfa, UNWIND_SP);
	assert_int_equal(table_find(t, 0x3f)->cfa, UNWIND_SP);
	assert_int_equal(table_find(t, 0x40)->cfa, UNWIND_NONE);
	assert_int_equal(table_find(t, 0x5f)->cfa, UNWIND_END);
	assert_int_equal(table_find(t, 0x60)->cfa, UNWIND_NONE);
	assert_int_equal(table_find(t, 0x63)->cfa, UNWIND_SIGNAL);
	assert_int_equal(table_find(t, 0x64)->cfa, UNWIND_NONE);
	assert_int_equal(table_find(t, 0xfff)->cfa, UNWIND_SP);
	assert_int_equal(table_find(t, 0x1000)->cfa, UNWIND_NONE);
	assert_int_equal(t->n_rules, 4);
}

/* ---- limits ------------------------------------------------------------------------------------ */

static void limits(void **state)
{
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table_segment s = { .size = 1U << 20 };
	struct unwind_rule rule = { .cfa = UNWIND_SP };
	struct table *t;
	uint32_t i;

	assert_int_equal(table_builder_new(62, 0x401, &b), -EINVAL);
	assert_int_equal(table_builder_new(62, 0, &b), 0);
	assert_int_equal(table_finish(b, &t), -ENODATA);
	assert_int_equal(table_add_segment(b, &s), 0);
	assert_int_equal(table_add_segment(b, &s), -EINVAL);
	assert_int_equal(table_finish(b, &t), -ENODATA);
	for (i = 1; i < UNWIND_RULES; i++) {
		rule.cfa_off = (int32_t)i;
		assert_int_equal(table_add_row(b, i, &rule), 0);
	}
	rule.cfa_off = (int32_t)i;
	assert_int_equal(table_add_row(b, i, &rule), -EFBIG);
	assert_int_equal(table_add_row(b, UNWIND_TABLE_BYTES, &rule), -EFBIG);
	s = (struct table_segment){ .pc = UNWIND_TABLE_BYTES - 0x1000, .size = 0x1001 };
	assert_int_equal(table_add_segment(b, &s), -EFBIG);
}

/* ---- damage ------------------------------------------------------------------------------------ */

/* Every path through a table that was believed; the sanitizer watches the memory. */
static void walk_all(const struct table *t)
{
	for (uint32_t pc = 0; pc < 600 * PAGE; pc += 61)
		assert_true(table_find(t, pc)->cfa < UNWIND_CFA_N);
	table_find(t, UINT32_MAX);
	for (uint32_t i = 1; i <= t->n_leaves; i++) {
		const struct unwind_leaf *l = table_node(t, i);
		int steps = 0;

		for (; l->next; l = table_node(t, l->next))
			assert_true(++steps < 16);
	}
}

static bool is_copy_right(const struct table *good, size_t at, uint8_t value, size_t size)
{
	_cleanup_free_ struct table *t = malloc(size);
	bool right;

	memcpy(t, good, size);
	if (at < size)
		((uint8_t *)t)[at] = value;
	if (size >= sizeof(*t) && t->bytes == size)
		t->checksum = table_sum(t);
	right = table_check(t, size) == 0;
	if (right)
		walk_all(t);
	return right;
}

static void damage(void **state)
{
	_cleanup_free_ struct table *t = NULL;
	size_t believed = 0, refused = 0;

	start(5);
	for (uint32_t pc = 0; pc < PAGE; pc += 2 + any(9))
		add(pc, any(8) ? 8 + 8 * (int32_t)any(30) : 0);
	add(20 * PAGE, 8);
	add(500 * PAGE, 0);
	t = build(510 * PAGE);
	assert_true(t->root & UNWIND_ROOT_DEEP);
	for (size_t i = 0; i < t->bytes; i++) {
		static const uint8_t values[] = { 0, 1, 2, 0x7f, 0x80, 0xff };

		/* All of the front, where the numbers are, and a part of each node. */
		if (i > 2000 && any(60))
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(values); k++)
			if (is_copy_right(t, i, values[k], t->bytes))
				believed++;
			else
				refused++;
	}
	assert_true(believed > 0 && refused > believed);
	for (size_t size = 0; size < t->bytes; size += 1 + any(900))
		assert_false(is_copy_right(t, SIZE_MAX, 0, size));
	/* Without a new checksum nothing is believed. */
	((uint8_t *)t)[t->bytes - 1] ^= 1;
	assert_int_equal(table_check(t, t->bytes), -EBADMSG);
	((uint8_t *)t)[t->bytes - 1] ^= 1;
	t->version++;
	assert_int_equal(table_check(t, t->bytes), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sparse_and_dense),
		cmocka_unit_test(one_row_a_byte),
		cmocka_unit_test(exactly_full),
		cmocka_unit_test(leaves_hold_whole_pages),
		cmocka_unit_test(deep),
		cmocka_unit_test(gaps),
		cmocka_unit_test(limits),
		cmocka_unit_test(damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
