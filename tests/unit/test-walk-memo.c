// SPDX-License-Identifier: GPL-2.0-or-later
/* What a walk remembers of rules, and for whom: bpf/walk.h with surroundings that are arrays. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "../bpf/sysprofd.h"
#include "base/util.h"

#define WALK_FN static
#define WALK_CONST static const
#define WALK_UNROLL
#define unwinding true
#define user_ip_mask ~0ULL
#include "../bpf/walk.h"

#define BASE 0x400000ULL
#define END 0x401000ULL
#define STACK 0x10000ULL
#define LIST 1
#define INDEX 2
#define LEAF 3
#define MEMOS 1024
#define SPACE 2 /* its three rules have places of their own */

static struct scratch scratch;
static struct unwind_list list;
static struct unwind_index index_node;
static struct unwind_leaf leaf;
static struct walk_memo memos[MEMOS];
static uint64_t stack[16];
static bool noted; /* whether walk_young() finds the mapping */

static struct scratch *scratch_at(u32 slot)
{
	return &scratch;
}

static const void *walk_node(u32 node)
{
	switch (node) {
	case LIST:
		return &list;
	case INDEX:
		return &index_node;
	case LEAF:
		return &leaf;
	default:
		return NULL;
	}
}

static int walk_rule(u32 rule, struct unwind_rule *ret)
{
	*ret = (struct unwind_rule){
		.cfa = UNWIND_SP, .cfa_off = 16, .ra = UNWIND_AT_CFA, .ra_off = -8
	};
	return rule == 1 ? 0 : -1;
}

static int walk_read(void *to, u32 size, u64 from)
{
	if (from < STACK || from + size > STACK + sizeof(stack))
		return -EFAULT;
	memcpy(to, (const char *)stack + (from - STACK), size);
	return 0;
}

static struct walk_memo *walk_memo(u64 hash)
{
	return &memos[hash % MEMOS];
}

static const struct unwind_mapping mapping = {
	.start = BASE, .end = END, .delta = BASE, .root = INDEX
};

static int walk_young(u32 slot)
{
	if (noted)
		scratch.walk.at = mapping;
	return !noted;
}

static void set_up(void)
{
	memset(memos, 0, sizeof(memos));
	memset(&list, 0, sizeof(list));
	index_node.entry[0] = LEAF;
	leaf = (struct unwind_leaf){ .next_pc = UINT32_MAX, .rows = 1 };
	for (int i = 0; i < UNWIND_ROWS; i++) {
		leaf.group[i / UNWIND_GROUP].pc[i % UNWIND_GROUP] = i ? 0xffff : 0;
		leaf.group[i / UNWIND_GROUP].rule[i % UNWIND_GROUP] = 1;
	}
	for (size_t i = 1; i < ARRAY_SIZE(leaf.separator); i++)
		leaf.separator[i] = 0xffff;
	/* Two callers in the same mapping; then the end. */
	memset(stack, 0, sizeof(stack));
	stack[9] = BASE + 0x20;
	stack[11] = BASE + 0x30;
}

static void walk(uint32_t space, uint32_t epoch)
{
	const struct unwind_process p = { .node = LIST, .space = space };

	memset(&scratch, 0, sizeof(scratch));
	scratch.walk.ip = BASE + 0x10;
	scratch.walk.sp = STACK + 64;
	scratch.walk.word = 8;
	walk_of(&scratch.walk, &p, epoch);
	walk_user(0);
}

static size_t remembered(void)
{
	size_t n = 0;

	for (size_t i = 0; i < MEMOS; i++)
		n += memos[i].rule != 0;
	return n;
}

/* What the daemon described is remembered; what programs noted is not, however many frames lie there. */
static void test_what(void **state)
{
	set_up();
	noted = true;
	walk(SPACE, 0);
	assert_int_equal(scratch.rec.walk_end, WALK_COMPLETE);
	assert_int_equal(scratch.rec.nr_user, 3);
	assert_int_equal(remembered(), 0);
	noted = false;
	list.n = 1;
	list.mapping[0] = mapping;
	walk(SPACE, 0);
	assert_int_equal(scratch.rec.walk_end, WALK_COMPLETE);
	assert_int_equal(scratch.rec.nr_user, 3);
	assert_int_equal(remembered(), 3);
}

/* Other mappings, and other times, have nothing of it. */
static void test_whose(void **state)
{
	static const uint32_t others[][2] = {
		{ 1, 0 }, { SPACE, 1 }, { SPACE + 65536, 1 }, { SPACE + 131072, 2 }
	};

	set_up();
	noted = false;
	list.n = 1;
	list.mapping[0] = mapping;
	walk(SPACE, 0);
	memset(&list, 0, sizeof(list));
	walk(SPACE, 0);
	assert_int_equal(scratch.rec.nr_user, 3);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		walk(others[i][0], others[i][1]);
		assert_int_equal(scratch.rec.walk_end, WALK_NO_MAPPING);
		assert_int_equal(scratch.rec.nr_user, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what),
		cmocka_unit_test(test_whose),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
