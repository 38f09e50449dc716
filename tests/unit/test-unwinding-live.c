// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processes of a made-up /proc, their vDSOs, and the tables that are built for them. This program is the parser when it
 * is executed with --symbol-helper.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "manager/unwinding.h"
#include "parser/parser.h"

#define PATIENCE (30 * NSEC_PER_SEC)
#define START NSEC_PER_SEC /* 100 ticks */

static char root[] = "/tmp/test-unwinding-XXXXXX";

static void put(uint32_t pid, const char *name, const char *text)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%u/%s", root, pid, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void put_process(uint32_t pid, const char *maps)
{
	char path[96], text[128];

	snprintf(path, sizeof(path), "%s/%u", root, pid);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(text, sizeof(text), "%u (demo) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n",
		 pid);
	put(pid, "stat", text);
	put(pid, "status", "Name:\tx\nUid:\t0\t0\t0\t0\n");
	put(pid, "cgroup", "0::/\n");
	put(pid, "maps", maps);
}

static void meet(struct process_table *t, uint32_t pid, size_t regions)
{
	struct process *p = process_find(t, pid, START);
	struct process_labels l;

	assert_non_null(p);
	process_labels(p, &l);
	assert_int_equal(process_region_count(p), regions);
}

static struct unwinder_stats stats_of(struct unwinding *u)
{
	struct unwinding_state s;

	unwinding_state(u, &s);
	return s.unwinder;
}

/* A 32-bit process has another vDSO, and does not take the place of the others'. */
static void test_vdso(void **state)
{
	const struct process_options o = { .proc = root, .pods = root };
	_cleanup_(process_table_free_p) struct process_table *t = NULL;
	_cleanup_(unwinding_free_p) struct unwinding *u = NULL;
	uint64_t deadline = mono_now_ns() + PATIENCE;
	struct slice_stack stacks[] = { { .tgid = 11, .start = START, .nr_user = 1 },
					{ .tgid = 12, .start = START, .nr_user = 1 } };
	const struct slice s = { .stacks = stacks, .n_stacks = ARRAY_SIZE(stacks) };

	put_process(11, "7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]\n");
	put_process(12, "f7f00000-f7f02000 r-xp 00000000 00:00 0 [vdso]\n");
	assert_int_equal(process_table_new(&o, &t), 0);
	meet(t, 11, 1);
	meet(t, 12, 1);
	assert_int_equal(unwinding_new(t, NULL, 0, &u), 0);
	unwinding_see(u, &s);
	while (stats_of(u).tables + stats_of(u).lacking[UNWIND_LACK_FILE] == 0 ||
	       stats_of(u).wanted) {
		assert_true(mono_now_ns() < deadline);
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	assert_int_equal(stats_of(u).processes, 2);
	assert_int_equal(stats_of(u).tables, 1);
	assert_int_equal(stats_of(u).lacking[UNWIND_LACK_FILE], 0);
}

/* Processes that map too much are looked at once in a slice, however many stacks they have. */
static void test_too_many_mappings(void **state)
{
	const struct process_options o = { .proc = root, .pods = root };
	_cleanup_(process_table_free_p) struct process_table *t = NULL;
	_cleanup_(unwinding_free_p) struct unwinding *u = NULL;
	_cleanup_(strbuf_done) struct strbuf maps = {};
	struct slice_stack stacks[100] = {};
	const struct slice s = { .stacks = stacks, .n_stacks = ARRAY_SIZE(stacks) };

	for (unsigned i = 0; i < 2100; i++)
		strbuf_printf(&maps, "%x000-%x000 r-xp 00000000 00:00 0 \n", 0x1000 + 2 * i,
			      0x1001 + 2 * i);
	put_process(21, maps.data);
	put_process(22, maps.data);
	assert_int_equal(process_table_new(&o, &t), 0);
	meet(t, 21, 2100);
	meet(t, 22, 2100);
	assert_int_equal(unwinding_new(t, NULL, 0, &u), 0);
	for (size_t i = 0; i < ARRAY_SIZE(stacks); i++)
		stacks[i] =
			(struct slice_stack){ .tgid = 21 + i % 2, .start = START, .nr_user = 1 };
	unwinding_see(u, &s);
	assert_int_equal(stats_of(u).refused, 2);
	unwinding_see(u, &s);
	assert_int_equal(stats_of(u).refused, 4);
}

static int teardown(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_vdso),
					    cmocka_unit_test(test_too_many_mappings) };

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (!mkdtemp(root))
		return 1;
	return cmocka_run_group_tests(tests, NULL, teardown);
}
