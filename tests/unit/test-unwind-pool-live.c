// SPDX-License-Identifier: GPL-2.0-or-later
/* Nodes and rules in real maps, and mappings in nodes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "unwind/pool.h"
#include "unwind/rules.h"
#include "unwind/unwinder.h"

static void test_pool(void **state)
{
	_cleanup_(pool_free_p) struct pool *p = NULL;
	static uint32_t a[3 * UNWIND_NODES_PER_MAP], b[8];
	uint64_t one;

	assert_int_equal(pool_new(3 << 20, &p), 0);
	assert_int_equal(pool_take(p, b, 1), 0);
	one = pool_bytes(p);
	assert_true(one > 1000000 && one <= 1 << 20);
	assert_int_equal(pool_take(p, a, 1500), 0);
	assert_int_equal(pool_bytes(p), 2 * one);
	/* All or nothing. */
	assert_int_equal(pool_take(p, a + 1500, 1400), -ENOSPC);
	assert_int_equal(pool_used(p), 1501 * UNWIND_NODE_SIZE);
	/* Of three maps, but for the node that is none. */
	assert_int_equal(pool_room(p), 3 * UNWIND_NODES_PER_MAP - 1502);
	for (int i = 0; i < 1500; i++) {
		assert_int_not_equal(a[i], 0);
		memset(pool_at(p, a[i]), i & 0xff, UNWIND_NODE_SIZE);
	}
	assert_int_equal(((uint8_t *)pool_at(p, a[1499]))[UNWIND_NODE_SIZE - 1], 1499 & 0xff);
	assert_null(pool_at(p, 0));
	assert_null(pool_at(p, UNWIND_NODES_PER_MAP));
	assert_null(pool_at(p, 77U << UNWIND_SLOT_BITS));
	pool_unmap(p);
	assert_int_equal(*(uint8_t *)pool_at(p, a[7]), 7);

	/* A walk may still read what was given back. */
	pool_give_back(p, a, 1500);
	assert_int_equal(pool_used(p), 1501 * UNWIND_NODE_SIZE);
	pool_settle(p);
	assert_int_equal(pool_used(p), 1501 * UNWIND_NODE_SIZE);
	assert_int_equal(*(uint8_t *)pool_at(p, a[7]), 7);
	pool_settle(p);
	assert_int_equal(pool_used(p), UNWIND_NODE_SIZE);
	/* Memory goes back as well. */
	assert_int_equal(pool_bytes(p), one);
	assert_int_equal(pool_take(p, a, 1500), 0);
}

static void test_rules(void **state)
{
	_cleanup_(rules_free_p) struct rules *r = NULL;
	struct unwind_rule rule = { .cfa = UNWIND_SP, .ra = UNWIND_AT_CFA, .ra_off = -8 }, copy;
	uint16_t first, id;

	assert_int_equal(rules_new(&r), 0);
	rule.cfa_off = 8;
	assert_int_equal(rules_get(r, &rule, &first), 0);
	assert_int_equal(rules_get(r, &rule, &id), 0);
	assert_int_equal(id, first);
	for (int i = 2; i < UNWIND_RULES; i++) {
		rule.cfa_off = 8 * i;
		assert_int_equal(rules_get(r, &rule, &id), 0);
	}
	rule.cfa_off = 1;
	assert_int_equal(rules_get(r, &rule, &id), -ENOSPC);
	/* "None" is a rule of every table and takes no place. */
	assert_int_equal(rules_get(r, &(struct unwind_rule){}, &id), 0);
	assert_int_equal(id, 0);
	rules_put(r, first);
	rules_settle(r);
	rules_settle(r);
	assert_int_equal(rules_get(r, &rule, &id), -ENOSPC);
	rules_put(r, first);
	assert_int_equal(rules_copy(r, first, &copy), 0);
	assert_int_equal(copy.cfa_off, 8);
	rules_settle(r);
	assert_int_equal(rules_get(r, &rule, &id), -ENOSPC);
	rules_settle(r);
	assert_int_equal(rules_get(r, &rule, &id), 0);
	assert_int_equal(id, first);
	assert_int_equal(rules_copy(r, UNWIND_RULES, &copy), -ENOENT);
}

/* Two segments share a page of the file: each of their mappings shows some of the other. */
static void test_shared_page(void **state)
{
	static const struct unwind_rule rule = { .cfa = UNWIND_SP };
	static const struct table_segment segments[] = { { 0x1000, 0x1100, 0 },
							 { 0x2100, 0x0f00, 0x2100 } };
	static const struct unwinder_region regions[] = {
		{ 0x401000, 0x403000, 0x1000, 7, UNWINDER_FILE },
		{ 0x403000, 0x404000, 0x2000, 7, UNWINDER_FILE },
	};
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	_cleanup_(unwinder_free_p) struct unwinder *u = NULL;
	_cleanup_free_ struct table *t = NULL;
	struct unwind_process p;
	struct unwind_list list;

	assert_int_equal(unwinder_new(&(struct unwinder_options){}, &u), 0);
	assert_int_equal(table_builder_new(62, 0x401000, &b), 0);
	for (size_t i = 0; i < ARRAY_SIZE(segments); i++)
		assert_int_equal(table_add_segment(b, &segments[i]), 0);
	assert_int_equal(table_add_row(b, 0, &rule), 0);
	assert_int_equal(table_finish(b, &t), 0);
	assert_int_equal(unwinder_put(u, 1, 1, 1, regions, ARRAY_SIZE(regions)), 0);
	assert_int_equal(unwinder_next(u), 7);
	unwinder_answer(u, 7, t, NULL, 0, false);
	assert_true(unwinder_space(u, 1, 1, &p));
	assert_true(unwinder_node(u, p.node, &list));
	for (size_t i = 0; i < ARRAY_SIZE(regions); i++) {
		assert_int_not_equal(list.mapping[i].root, 0);
		assert_int_equal(list.mapping[i].delta, 0x401000);
	}
}

static struct table *table_of(uint32_t rows)
{
	const struct table_segment segment = { .offset = 0x1000, .size = rows * 16UL };
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table *t = NULL;

	assert_int_equal(table_builder_new(62, 0x1000, &b), 0);
	assert_int_equal(table_add_segment(b, &segment), 0);
	for (uint32_t i = 0; i < rows; i++) {
		struct unwind_rule rule = { .cfa = UNWIND_SP, .cfa_off = 8 + 8 * (int)(i & 1) };

		assert_int_equal(table_add_row(b, i * 16, &rule), 0);
	}
	assert_int_equal(table_finish(b, &t), 0);
	return t;
}

/* Room is made where it suffices, with what is free; what fits in no case makes nobody go. */
static void test_too_large(void **state)
{
	const struct unwinder_options o = { .memory_max = 2 << 20 };
	_cleanup_free_ struct table *small = table_of(25600), *fits = table_of(475000),
				    *large = table_of(512000);
	_cleanup_(unwinder_free_p) struct unwinder *u = NULL;
	struct unwinder_stats s;

	assert_int_equal(unwinder_new(&o, &u), 0);
	unwinder_want(u, 1);
	assert_int_equal(unwinder_next(u), 1);
	unwinder_answer(u, 1, small, NULL, 0, false);
	for (int i = 0; i < 40; i++)
		unwinder_settle(u);
	unwinder_want(u, 2);
	assert_int_equal(unwinder_next(u), 2);
	unwinder_answer(u, 2, large, NULL, 0, false);
	unwinder_stats(u, &s);
	assert_int_equal(s.evicted, 0);
	assert_int_equal(s.tables, 1);
	assert_int_equal(s.lacking[UNWIND_LACK_MEMORY], 1);
	unwinder_want(u, 3);
	assert_int_equal(unwinder_next(u), 3);
	unwinder_answer(u, 3, fits, NULL, 0, false);
	unwinder_stats(u, &s);
	assert_int_equal(s.evicted, 1);
	/* That is free two windows later; then it is tried again. */
	assert_int_equal(s.lacking[UNWIND_LACK_MEMORY], 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_shared_page),
		cmocka_unit_test(test_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
