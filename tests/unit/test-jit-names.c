// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frames of code that was made at run time, named by the symbolizer's real helper: this program is the helper when it
 * is executed with --symbol-helper.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/io.h"
#include "parser/parser.h"
#include "symbol/jit.h"
#include "symbol/symbolizer.h"

#define MAPS 4 /* the last one cannot be opened */

struct fixture {
	struct symbolizer *symbolizer;
	struct dict *dict;
	uint64_t keys[16];
	int fds[MAPS]; /* by key - 1 */
};

static int open_map(void *ctx, uint64_t key)
{
	struct fixture *f = ctx;

	return key < MAPS ? fcntl(f->fds[key - 1], F_DUPFD_CLOEXEC, 3) : -ENOENT;
}

static int set_up(void **state)
{
	struct fixture *f = new0(struct fixture, 1);
	struct symbolizer_options o = { .open_binary = open_map, .open_ctx = f };

	for (size_t i = 0; i < MAPS; i++)
		f->fds[i] = memfd_create("map", MFD_CLOEXEC);
	*state = f;
	return symbolizer_new(&o, &f->symbolizer) < 0 ? -1 : dict_new(&f->dict);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	symbolizer_free(f->symbolizer);
	dict_free(f->dict);
	for (size_t i = 0; i < MAPS; i++)
		close_fd(f->fds[i]);
	free(f);
	return 0;
}

static void say(struct fixture *f, uint64_t key, const char *text)
{
	assert_true(lseek(f->fds[key - 1], 0, SEEK_END) >= 0);
	assert_int_equal(write_full(f->fds[key - 1], text, strlen(text)), 0);
}

static uint32_t add_frame(struct fixture *f, uint64_t key, uint64_t address)
{
	int64_t name = dict_string(f->dict, "[anon]");
	struct binary b = {
		.name = (uint32_t)name, .path = (uint32_t)name, .kind = BINARY_ANON, .ino = key
	};
	struct frame x = { .kind = FRAME_JIT, .offset = address };
	int64_t id = dict_binary(f->dict, &b);

	assert_in_range(id, 1, 15);
	f->keys[id] = key;
	x.binary = (uint32_t)id;
	id = dict_frame(f->dict, &x);
	assert_true(id > 0);
	return (uint32_t)id;
}

static int name_all(struct fixture *f)
{
	return symbolizer_name(f->symbolizer, f->dict, f->keys, f->dict->n_binaries,
			       mono_now_ns() + 20 * NSEC_PER_SEC);
}

static void assert_frame(const struct fixture *f, uint32_t id, const char *binary, const char *name)
{
	const struct frame *x = &f->dict->frames[id];

	assert_string_equal(dict_str(f->dict, x->name), name);
	assert_string_equal(dict_str(f->dict, f->dict->binaries[x->binary].name), binary);
	assert_int_equal(x->kind, FRAME_JIT);
	assert_int_equal(x->flags, FRAME_NAMED);
	/* Nothing of the address or the process is left. */
	assert_int_equal(x->offset, 0);
	assert_int_equal(f->dict->binaries[x->binary].ino, 0);
}

static void by_name(void **state)
{
	struct fixture *f = *state;
	_cleanup_(dict_free_p) struct dict *to = NULL;
	_cleanup_(dict_map_done) struct dict_map map = {};
	uint32_t a, b, c, other, none;
	int64_t stacks[3];
	struct symbolizer_stats s;

	say(f, 1, "1000 100 work\njunk\n2000 100 idle\n");
	say(f, 2, "1000 100 work\n");
	a = add_frame(f, 1, 0x1010);
	b = add_frame(f, 1, 0x1020);
	c = add_frame(f, 1, 0x2020);
	other = add_frame(f, 2, 0x1010);
	none = add_frame(f, 1, 0x5000);
	stacks[0] = dict_stack(f->dict, 0, a);
	stacks[1] = dict_stack(f->dict, 0, b);
	stacks[2] = dict_stack(f->dict, 0, c);
	assert_int_equal(name_all(f), 0);
	assert_frame(f, a, "[jit]", "work");
	assert_frame(f, b, "[jit]", "work");
	assert_frame(f, c, "[jit]", "idle");
	assert_frame(f, other, "[jit]", "work");
	assert_frame(f, none, "[anon]", "[anon]");
	/* Where dictionaries meet, a name is one frame, whatever address and process it had. */
	assert_int_equal(dict_new(&to), 0);
	dict_map_init(&map, f->dict, to);
	assert_int_equal(dict_map_stack(&map, (uint32_t)stacks[0]),
			 dict_map_stack(&map, (uint32_t)stacks[1]));
	assert_int_not_equal(dict_map_stack(&map, (uint32_t)stacks[0]),
			     dict_map_stack(&map, (uint32_t)stacks[2]));
	assert_int_equal(dict_map_frame(&map, a), dict_map_frame(&map, other));
	assert_int_equal(to->n_frames, 3);
	symbolizer_stats(f->symbolizer, &s);
	assert_int_equal(s.map_lines_skipped, 1);
	assert_int_equal(s.map_entries_dropped, 0);
}

/* Code whose place is used again: what was said first is no answer for ever. */
static void another_time(void **state)
{
	struct fixture *f = *state;
	uint32_t a;

	say(f, 1, "1000 100 before\n");
	a = add_frame(f, 1, 0x1010);
	assert_int_equal(name_all(f), 0);
	assert_frame(f, a, "[jit]", "before");

	dict_free(f->dict);
	assert_int_equal(dict_new(&f->dict), 0);
	assert_int_equal(ftruncate(f->fds[0], 0), 0);
	say(f, 1, "1000 100 after_\n");
	a = add_frame(f, 1, 0x1010);
	assert_int_equal(name_all(f), 0);
	assert_frame(f, a, "[jit]", "after_");
}

static void without_a_map(void **state)
{
	struct fixture *f = *state;
	uint32_t gone = add_frame(f, MAPS, 0x1010), empty = add_frame(f, 1, 0x1010);
	struct symbolizer_stats s;

	assert_int_equal(name_all(f), 0);
	assert_frame(f, gone, "[anon]", "[anon]");
	assert_frame(f, empty, "[anon]", "[anon]");
	symbolizer_stats(f->symbolizer, &s);
	assert_int_equal(s.crashes + s.timeouts + s.poisoned, 0);
}

/* A map without end takes its turns, and others get their names. */
static void too_large(void **state)
{
	struct fixture *f = *state;
	uint32_t large, other;

	assert_int_equal(ftruncate(f->fds[0], 1000 << 20), 0);
	say(f, 2, "1000 100 work\n");
	large = add_frame(f, 1, 0x1010);
	other = add_frame(f, 2, 0x1010);
	/* Whether it was read to its end or not. */
	assert_in_range(name_all(f), 0, 1);
	assert_frame(f, large, "[anon]", "[anon]");
	assert_frame(f, other, "[jit]", "work");
}

static void many_addresses(void **state)
{
	struct fixture *f = *state;
	uint32_t first = 0, last = 0;
	char text[64];

	for (unsigned i = 0; i < 2000; i++) {
		snprintf(text, sizeof(text), "%x 10 f%u\n", 0x10000 + i * 16, i);
		say(f, 1, text);
		last = add_frame(f, 1, 0x10000 + i * 16 + i % 16);
		first = first ?: last;
	}
	assert_int_equal(name_all(f), 0);
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(text, sizeof(text), "f%u", i);
		assert_frame(f, first + i, "[jit]", text);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(by_name),	 TEST(another_time),   TEST(without_a_map),
		TEST(too_large), TEST(many_addresses),
	};

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
