// SPDX-License-Identifier: GPL-2.0-or-later
/* Perf maps as compilers write them, and as nobody should. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../tests/fuzz/fuzz-perf-map.c"

#define BUDGET (64ULL << 20)

struct fixture {
	struct perf_map *map;
	int fd;
};

static int set_up(void **state)
{
	struct fixture *f = new0(struct fixture, 1);

	f->fd = memfd_create("map", MFD_CLOEXEC);
	*state = f;
	return f->fd < 0 ? -1 : perf_map_new(&f->map);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	perf_map_free(f->map);
	close_fd(f->fd);
	free(f);
	return 0;
}

static void append(struct fixture *f, const void *data, size_t len)
{
	assert_true(lseek(f->fd, 0, SEEK_END) >= 0);
	assert_int_equal(write_full(f->fd, data, len), 0);
}

static void say(struct fixture *f, const char *text)
{
	append(f, text, strlen(text));
}

static void rewrite(struct fixture *f, const char *text)
{
	assert_int_equal(ftruncate(f->fd, 0), 0);
	say(f, text);
}

static void take_in(struct fixture *f)
{
	assert_int_equal(perf_map_read(f->map, f->fd, BUDGET), 0);
}

static void assert_name(struct fixture *f, uint64_t address, const char *name)
{
	const char *found = perf_map_find(f->map, address);

	if (!name)
		assert_null(found);
	else
		assert_string_equal(found ?: "nothing", name);
}

static struct perf_map_stats stats(struct fixture *f)
{
	struct perf_map_stats s;

	perf_map_stats(f->map, &s);
	return s;
}

/* Node, the JVM's jcmd, and what others made of it. */
static void dialects(void **state)
{
	struct fixture *f = *state;

	say(f, "7f0d00000400 1a0 JS:*fib /srv/app.js:3:14\n"
	       "0x00007f02aa000000 0x0000000000000270 java.lang.Object jdk.internal.Foo.bar(int)\n"
	       "0X7f03AB000000\t0X10\tpy::work:/srv/app.py\r\n"
	       "00007f0400000000 10   spaces before, and  within \n");
	take_in(f);
	assert_name(f, 0x7f0d00000400, "JS:*fib /srv/app.js:3:14");
	assert_name(f, 0x7f0d0000059f, "JS:*fib /srv/app.js:3:14");
	assert_name(f, 0x7f0d000005a0, NULL);
	assert_name(f, 0x7f0d000003ff, NULL);
	assert_name(f, 0x7f02aa00026f, "java.lang.Object jdk.internal.Foo.bar(int)");
	assert_name(f, 0x7f03ab000000, "py::work:/srv/app.py");
	assert_name(f, 0x7f0400000000, "spaces before, and  within");
	assert_int_equal(stats(f).skipped, 0);
}

static void junk_is_skipped(void **state)
{
	struct fixture *f = *state;
	char *line = malloc(300000);

	say(f, "7f0000001000 378 JS:~we;ird name \nwith a line break /srv/a.js:1\n"
	       "\n"
	       "# a comment\n"
	       "7f0000002000 10\n"
	       "7f0000002000 10 \n"
	       "7f0000002000\n"
	       "ffffffffffffffff1 10 too large\n"
	       "ffffffffffffff00 1000 beyond the end\n"
	       "7f0000002000 100000000 as large as nothing\n"
	       "0x 0x nothing\n"
	       "7f0000003000 0 without a size\n"
	       "7f0000004000 10 \xff\x01name\n");
	memset(line, 'x', 300000);
	line[299999] = '\n';
	append(f, line, 300000);
	say(f, "7f0000005000 10 behind\n");
	take_in(f);
	assert_name(f, 0x7f0000001000, "JS:~we;ird name");
	assert_name(f, 0x7f0000002000, NULL);
	assert_name(f, 0x7f0000003000, NULL);
	assert_name(f, 0x7f0000004000, "\xef\xbf\xbd?name");
	assert_name(f, 0x7f0000005000, "behind");
	assert_int_equal(stats(f).skipped, 11);
	free(line);
}

static void the_last_wins(void **state)
{
	struct fixture *f = *state;

	say(f, "100000 100 a\n100080 100 b\n");
	take_in(f);
	assert_name(f, 0x100010, "a");
	assert_name(f, 0x100090, "b");
	assert_name(f, 0x10017f, "b");
	/* Within, over both, and where there was nothing. */
	say(f, "100040 10 c\n");
	take_in(f);
	assert_name(f, 0x10003f, "a");
	assert_name(f, 0x10004f, "c");
	assert_name(f, 0x100050, "a");
	say(f, "0ff000 2000 d\n100100 1 e\n");
	take_in(f);
	assert_name(f, 0x0ff000, "d");
	assert_name(f, 0x100040, "d");
	assert_name(f, 0x1000ff, "d");
	assert_name(f, 0x100100, "e");
	assert_name(f, 0x100101, "d");
	assert_name(f, 0x101000, NULL);
}

/* Against the obvious way to do it. */
static void like_a_list(void **state)
{
	struct fixture *f = *state;
	static char truth[4096][16];
	uint64_t x = 12345;

	memset(truth, 0, sizeof(truth));
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++) {
			unsigned start, size;
			char line[64];

			x = x * 6364136223846793005ULL + 1442695040888963407ULL;
			start = (unsigned)(x >> 33) % 4000;
			size = (unsigned)(x >> 20) % 96 + 1;
			snprintf(line, sizeof(line), "%x %x n%d\n", 0x10000 + start, size,
				 (int)(x >> 50) % 20);
			say(f, line);
			for (unsigned k = 0; k < size; k++)
				snprintf(truth[start + k], sizeof(truth[0]), "n%d",
					 (int)(x >> 50) % 20);
		}
		take_in(f);
		for (unsigned k = 0; k < 4096; k++)
			assert_name(f, 0x10000 + k, *truth[k] ? truth[k] : NULL);
	}
}

static void it_grows(void **state)
{
	struct fixture *f = *state;
	uint64_t before;

	/* Empty when it is seen first, then in the middle of a line. */
	take_in(f);
	assert_name(f, 0x1000, NULL);
	say(f, "1000 100 on");
	take_in(f);
	assert_name(f, 0x1000, NULL);
	say(f, "e\n2000 100 two\n");
	take_in(f);
	assert_name(f, 0x1000, "one");
	assert_name(f, 0x2000, "two");
	/* Only what is new is read. */
	for (int i = 0; i < 20000; i++)
		say(f, "3000 100 three\n");
	take_in(f);
	before = stats(f).read_bytes;
	take_in(f);
	assert_int_equal(stats(f).read_bytes, before);
	say(f, "4000 100 four\n");
	take_in(f);
	assert_name(f, 0x4000, "four");
	assert_true(stats(f).read_bytes - before < 100);
}

static void it_is_written_anew(void **state)
{
	struct fixture *f = *state;

	say(f, "1000 100 old\n2000 100 old_too\n");
	take_in(f);
	/* Shorter, */
	rewrite(f, "1000 100 new\n");
	take_in(f);
	assert_name(f, 0x1000, "new");
	assert_name(f, 0x2000, NULL);
	/* longer, */
	rewrite(f, "1000 100 newer\n3000 100 x\n4000 100 y\n");
	take_in(f);
	assert_name(f, 0x1000, "newer");
	/* and of the same length. */
	rewrite(f, "1000 100 other\n3000 100 z\n4000 100 y\n");
	futimens(f->fd, (struct timespec[2]){ { 1, 1 }, { 1, 1 } });
	take_in(f);
	assert_name(f, 0x1000, "other");
	assert_name(f, 0x3000, "z");
	/* Grown behind a head that is the same. */
	assert_int_equal(pwrite(f->fd, "q", 1, 24), 1);
	say(f, "5000 100 five\n");
	take_in(f);
	assert_name(f, 0x5000, "five");
}

static void a_million_lines(void **state)
{
	struct fixture *f = *state;
	_cleanup_(strbuf_done) struct strbuf b = {};
	int r;

	for (unsigned i = 0; i < 1000000; i++)
		strbuf_printf(&b, "%x 40 function_with_a_long_name_%u\n", 0x10000000 + i * 64,
			      i % 5000);
	append(f, b.data, b.len);
	take_in(f);
	assert_name(f, 0x10000000 + 64 * 999999, "function_with_a_long_name_4999");
	assert_int_equal(stats(f).dropped, 0);
	assert_true(stats(f).bytes < 32 << 20);
	/* What a map repeats costs nothing. */
	append(f, b.data, b.len);
	while ((r = perf_map_read(f->map, f->fd, BUDGET)) == 1)
		;
	assert_int_equal(r, 0);
	assert_int_equal(stats(f).dropped, 0);
	assert_true(stats(f).bytes < 32 << 20);
}

static void names_without_end(void **state)
{
	struct fixture *f = *state;
	_cleanup_(strbuf_done) struct strbuf b = {};
	char pad[201];

	memset(pad, 'x', 200);
	pad[200] = 0;
	/* The code of one place, again and again: names of what is gone make room. */
	for (unsigned i = 0; i < 100000; i++)
		strbuf_printf(&b, "1000 100 %s%u\n", pad, i);
	append(f, b.data, b.len);
	take_in(f);
	assert_int_equal(stats(f).dropped, 0);
	/* All in use: what does not fit is counted. */
	strbuf_reset(&b);
	for (unsigned i = 0; i < 100000; i++)
		strbuf_printf(&b, "%x 10 %s%u\n", 0x100000 + i * 16, pad, i);
	append(f, b.data, b.len);
	take_in(f);
	assert_true(stats(f).dropped > 0);
	assert_true(stats(f).bytes < 32 << 20);
}

static void in_portions(void **state)
{
	struct fixture *f = *state;
	int turns = 0, r;

	for (unsigned i = 0; i < 60000; i++) {
		char line[64];

		snprintf(line, sizeof(line), "%x 10 n%u\n", 0x100000 + i * 16, i);
		say(f, line);
	}
	while ((r = perf_map_read(f->map, f->fd, 1 << 18)) == 1)
		turns++;
	assert_int_equal(r, 0);
	assert_in_range(turns, 2, 8);
	assert_name(f, 0x100000 + 59999 * 16, "n59999");
}

static void no_map(void **state)
{
	struct fixture *f = *state;

	/* A large sparse file, and one that is too large. */
	assert_int_equal(ftruncate(f->fd, 100 << 20), 0);
	assert_int_equal(perf_map_read(f->map, f->fd, 1 << 20), 1);
	assert_true(stats(f).bytes < 1 << 20);
	assert_int_equal(ftruncate(f->fd, 1LL << 40), 0);
	assert_int_equal(perf_map_read(f->map, f->fd, BUDGET), -EFBIG);
}

/* ---- jitdump --------------------------------------------------------------------------------------- */

static void say_header(struct fixture *f, uint32_t size)
{
	uint32_t h[10] = { 0x4a695444, 1, size, 62, 0, 1 };

	append(f, h, sizeof(h));
}

static void say_load(struct fixture *f, uint64_t address, uint64_t size, const char *name)
{
	uint32_t head[6] = { 0, 0, 1, 2, 7, 7 };
	uint64_t place[4] = { address, address, size, 1 };
	char code[64] = "";

	head[1] = (uint32_t)(sizeof(head) + sizeof(place) + strlen(name) + 1 + sizeof(code));
	append(f, head, sizeof(head));
	append(f, place, sizeof(place));
	append(f, name, strlen(name) + 1);
	append(f, code, sizeof(code));
}

static void jitdump(void **state)
{
	struct fixture *f = *state;
	uint32_t debug_info[8] = { 2, 32 }, half[4] = { 0, 100 };

	say_header(f, 40);
	say_load(f, 0x10000, 64, "one");
	append(f, debug_info, sizeof(debug_info));
	say_load(f, 0x20000, 64, "two");
	take_in(f);
	assert_name(f, 0x10000, "one");
	assert_name(f, 0x2003f, "two");
	say_load(f, 0x10000, 32, "again");
	append(f, half, sizeof(half));
	take_in(f);
	assert_name(f, 0x10000, "again");
	assert_name(f, 0x10020, "one");
	assert_int_equal(stats(f).lines, 3);
}

static void damaged_jitdump(void **state)
{
	struct fixture *f = *state;
	uint32_t none[4] = { 0, 3 };

	say_header(f, 4);
	assert_int_equal(perf_map_read(f->map, f->fd, BUDGET), -EBADMSG);
	assert_int_equal(ftruncate(f->fd, 0), 0);
	say_header(f, 40);
	append(f, none, sizeof(none));
	assert_int_equal(perf_map_read(f->map, f->fd, BUDGET), -EBADMSG);
	/* What it is now counts. */
	rewrite(f, "1000 100 text\n");
	take_in(f);
	assert_name(f, 0x1000, "text");
}

/* ---- the fuzzer's seeds, and what is near them ------------------------------------------------------- */

static void run_around(uint8_t *seed, size_t len)
{
	static const uint8_t bytes[] = { 0, 1, 0x7f, 0x80, 0xff, '\n', ' ', 'f' };

	for (size_t i = 0; i <= len; i++)
		assert_int_equal(LLVMFuzzerTestOneInput(seed, i), 0);
	for (size_t i = 0; i < len; i++) {
		uint8_t old = seed[i];

		for (size_t k = 0; k < sizeof(bytes); k++) {
			seed[i] = bytes[k];
			assert_int_equal(LLVMFuzzerTestOneInput(seed, len), 0);
		}
		seed[i] = old;
	}
}

static void seeds(void **state)
{
	struct fixture *f = *state;
	_cleanup_(strbuf_done) struct strbuf text = {};
	uint8_t dump[512] = { 100 };
	ssize_t n;

	assert_int_equal(read_file_at(AT_FDCWD, "tests/fuzz/perf-map/text.map", 4096, &text), 0);
	run_around((uint8_t *)text.data, text.len);
	say_header(f, 40);
	say_load(f, 0x10000, 64, "one");
	say_load(f, 0x10020, 64, "two");
	n = pread(f->fd, dump + 1, sizeof(dump) - 1, 0);
	assert_true(n > 0);
	run_around(dump, (size_t)n + 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(dialects),	       TEST(junk_is_skipped),	TEST(the_last_wins),
		TEST(like_a_list),     TEST(it_grows),		TEST(it_is_written_anew),
		TEST(a_million_lines), TEST(names_without_end), TEST(in_portions),
		TEST(no_map),	       TEST(jitdump),		TEST(damaged_jitdump),
		TEST(seeds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
