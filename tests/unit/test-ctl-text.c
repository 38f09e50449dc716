// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <pty.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/utf8.h"
#include "ctl/json.h"
#include "ctl/text.h"

static const char *const names[] = {
	"plain",
	"",
	"日本語の関数名はとても長いことがあります",
	"e\xcc\x81\xcc\x82\xcc\x83 combining",
	"\x1b[31mred\x1b[0m",
	"tab\there",
	"\xff\xfe broken",
	"\xe2\x80\xae reversed", /* U+202E */
	"a very long name that goes on and on and on and on and on and on and on and on and on and "
	"on",
	"std::vector<std::pair<int, std::map<std::string, std::function<void "
	"(int)>>>>::emplace_back",
	"\xf0\x9f\x94\xa5 fire",
};

static void test_widths(void **state)
{
	assert_int_equal(text_width("abc"), 3);
	assert_int_equal(text_width("日本"), 4);
	assert_int_equal(text_width("e\xcc\x81"), 1);
	assert_int_equal(text_width("\xf0\x9f\x94\xa5"), 2);
	assert_int_equal(text_width("\x1b["), 2);
	assert_int_equal(text_width("\xff"), 1);
	assert_int_equal(text_width(""), 0);
}

static void assert_fit(const char *s, size_t width, bool middle, bool utf8, const char *expected)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	struct text t = { .utf8 = utf8 };

	text_fit(&t, s, width, middle, &b);
	assert_string_equal(b.data ?: "", expected);
}

static void test_fit(void **state)
{
	assert_fit("abcdef", 6, false, true, "abcdef");
	assert_fit("abcdef", 5, false, true, "abcd…");
	assert_fit("abcdef", 5, true, true, "ab…ef");
	assert_fit("abcdef", 5, false, false, "ab...");
	assert_fit("abcdef", 0, false, true, "abcdef");
	assert_fit("日本語", 5, false, true, "日本…");
	assert_fit("日本語", 4, false, true, "日…");
	assert_fit("main;a;b;leaf", 9, true, true, "main…leaf");
	assert_fit("\x1b[31m\n", 0, false, true, "?[31m?");
}

/* Whatever the name and the width: valid, printable, and not wider. */
static void test_fit_always_fits(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t width = 1; width < 60; width++)
			for (int mode = 0; mode < 4; mode++) {
				_cleanup_(strbuf_done) struct strbuf b = {};
				struct text t = { .utf8 = mode & 1 };

				text_fit(&t, names[i], width, mode & 2, &b);
				assert_true(text_width(b.data ?: "") <= width);
				assert_true(utf8_valid(b.data ?: "", b.len));
				for (size_t c = 0; c < b.len; c++)
					assert_true((unsigned char)b.data[c] >= 0x20);
				assert_null(strstr(b.data ?: "", "\xe2\x80\xae"));
			}
}

static void check_lines(const struct strbuf *b, size_t width)
{
	_cleanup_free_ char *copy = strdup(b->data ?: "");
	char *save = NULL;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		assert_true(text_width(line) <= width);
}

static void print_table(const struct text *text, struct strbuf *out)
{
	struct table_column columns[] = {
		{ .head = "SELF", .right = true },
		{ .head = "SHARE", .right = true, .keep = 3 },
		{ .head = "TOTAL", .right = true, .keep = 2 },
		{ .head = "BINARY", .max = 20, .middle = true, .keep = 1 },
		{ .head = "NAME", .flexible = true },
	};
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		table_cellf(&t, "%zu.23 s", i * 1000);
		table_cell(&t, "12.3 %");
		table_cell(&t, "5 min 3 s");
		table_cell(&t, i & 1 ? "libc.so.6" : "a-binary-with-a-rather-long-name.so.1");
		table_cell(&t, names[i]);
	}
	assert_int_equal(table_print(&t, text, out), 0);
}

static void test_tables_fit_any_width(void **state)
{
	for (unsigned width = 1; width < 200; width++) {
		_cleanup_(strbuf_done) struct strbuf b = {};
		struct text text = { .terminal = true, .utf8 = true, .width = width };

		print_table(&text, &b);
		check_lines(&b, width);
	}
}

static void test_table_layout(void **state)
{
	struct table_column columns[] = { { .head = "SELF", .right = true },
					  { .head = "BINARY" },
					  { .head = "NAME", .flexible = true } };
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	_cleanup_(strbuf_done) struct strbuf wide = {}, narrow = {};
	struct text text = { .utf8 = true };

	table_cell(&t, "1.23 s");
	table_cell(&t, "日本");
	table_cell(&t, "main");
	table_cell(&t, "4 ms");
	table_cell(&t, "x");
	table_cell(&t, "a_function_of_some_length");
	assert_int_equal(table_print(&t, &text, &wide), 0);
	assert_string_equal(wide.data, "  SELF  BINARY  NAME\n"
				       "1.23 s  日本    main\n"
				       "  4 ms  x       a_function_of_some_length\n");
	text.width = 34;
	assert_int_equal(table_print(&t, &text, &narrow), 0);
	assert_string_equal(narrow.data, "  SELF  BINARY  NAME\n"
					 "1.23 s  日本    main\n"
					 "  4 ms  x       a_function_of_som…\n");
}

static void test_wrap(void **state)
{
	struct text t = { .utf8 = true, .width = 20 };

	for (unsigned width = 1; width < 90; width++) {
		_cleanup_(strbuf_done) struct strbuf b = {};

		t.width = width;
		text_wrap(&t,
			  "--type on-cpu --filter 'function=std::vector<int>*' 日本語の関数 end", 2,
			  &b);
		check_lines(&b, width);
		assert_int_equal(b.data[b.len - 1], '\n');
	}
}

static void test_sentence(void **state)
{
	struct text t = { .utf8 = true, .color = true, .width = 20 };
	_cleanup_(strbuf_done) struct strbuf b = {}, whole = {};

	text_sentence(&t, STYLE_BOLD, "  verdict: it was blocked for long", 4, &b);
	assert_string_equal(b.data, "\x1b[1m  verdict: it was\x1b[0m\n"
				    "\x1b[1m    blocked for long\x1b[0m\n");
	t = (struct text){};
	text_sentence(&t, STYLE_BOLD, "  verdict: it was blocked for long", 4, &whole);
	assert_string_equal(whole.data, "  verdict: it was blocked for long\n");
	for (unsigned width = 1; width < 40; width++) {
		_cleanup_(strbuf_done) struct strbuf narrow = {};

		t.width = width;
		text_sentence(&t, STYLE_WARN, "  waits    1,234, 5.67 s together", 11, &narrow);
		check_lines(&narrow, width);
		/* Columns stay. */
		if (width >= 17)
			assert_memory_equal(narrow.data, "  waits    1,234,", 17);
	}
}

static void test_color_only_on_terminals(void **state)
{
	struct winsize size = { .ws_row = 24, .ws_col = 93 };
	int master, slave, pipes[2];
	struct text t;

	assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	text_init(&t, slave);
	assert_true(t.terminal && t.color);
	assert_int_equal(t.width, 93);
	setenv("NO_COLOR", "1", 1);
	text_init(&t, slave);
	assert_true(t.terminal && !t.color);
	setenv("NO_COLOR", "", 1);
	text_init(&t, slave);
	assert_true(t.color);
	setenv("TERM", "dumb", 1);
	text_init(&t, slave);
	assert_false(t.color);
	close(slave);
	close(master);

	setenv("TERM", "xterm", 1);
	assert_int_equal(pipe(pipes), 0);
	text_init(&t, pipes[1]);
	assert_false(t.terminal || t.color);
	assert_int_equal(t.width, 0);
	close(pipes[0]);
	close(pipes[1]);
}

static void test_json_writer(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	struct json j = { .out = &b };

	json_object(&j);
	json_key(&j, "a");
	json_array(&j);
	json_unsigned(&j, UINT64_MAX);
	json_object(&j);
	json_object_end(&j);
	json_double(&j, 0.1);
	json_double(&j, NAN);
	json_double(&j, 19);
	json_array_end(&j);
	json_key(&j, "b\"\n");
	json_string(&j, "x\x01\xff</script>");
	json_key(&j, "t");
	json_time(&j, 1790000000ULL * NSEC_PER_SEC);
	json_key(&j, "n");
	json_null(&j);
	json_object_end(&j);
	assert_string_equal(b.data, "{\"a\":[18446744073709551615,{},0.1,null,19],"
				    "\"b\\\"\\n\":\"x\\u0001\xef\xbf\xbd\\u003c/script>\","
				    "\"t\":\"2026-09-21T14:13:20Z\",\"n\":null}");
}

static void test_json_find(void **state)
{
	static const struct {
		const char *json, *expected; /* of error.message; NULL: not found */
	} table[] = {
		{ "{\"error\":{\"code\":\"x\",\"message\":\"hello\"}}", "hello" },
		{ " { \"a\" : [1, {\"message\":\"no\"}, \"}\"], \"error\" : { \"message\" : \"hi\" "
		  "} } ",
		  "hi" },
		{ "{\"error\":{\"message\":\"q\\\"\\\\\\u00e9\\n\\u4e2d\"}}", "q\"\\é\n中" },
		{ "{\"error\":{\"message\":\"\"}}", "" },
		{ "{\"error\":{\"message\":5}}", NULL },
		{ "{\"error\":\"message\"}", NULL },
		{ "{}", NULL },
		{ "", NULL },
		{ "[]", NULL },
		{ "{\"error\":{\"message\":\"cut", NULL },
		{ "{\"error\":{\"message\":\"\\u12\"}}", NULL },
		{ "{\"a\":[[[[[[[[[[[[[[[[[", NULL },
		{ "{\"a\":]", NULL },
		{ "{\"a\"", NULL },
	};
	const char *const path[] = { "error", "message" };

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char buf[64] = "untouched";
		bool found = json_find_string(table[i].json, strlen(table[i].json), path, 2, buf,
					      sizeof(buf));

		assert_int_equal(found, table[i].expected != NULL);
		if (found)
			assert_string_equal(buf, table[i].expected);
	}
}

/* Every cut and every changed byte of a text ends without a crash; sanitizers watch. */
static void test_json_find_hostile(void **state)
{
	const char *const path[] = { "error", "message" };
	const char *good =
		"{\"a\":[1,{\"b\":null}],\"error\":{\"code\":\"\\u0041\",\"message\":\"m\\\"\"}}";
	size_t len = strlen(good);
	char buf[4];

	for (size_t i = 0; i <= len; i++) {
		_cleanup_free_ char *copy = malloc(len);

		memcpy(copy, good, len);
		json_find_string(copy, i, path, 2, buf, sizeof(buf));
		for (int c = 0; c < 256 && i < len; c++) {
			copy[i] = (char)c;
			json_find_string(copy, len, path, 2, buf, sizeof(buf));
		}
	}
}

static int set_up(void **state)
{
	return setlocale(LC_CTYPE, "C.UTF-8") ? 0 : -1;
}

/* What is printed must not end up in whatever was opened first. */
static void test_closed_descriptors(void **state)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		for (int i = 0; i <= STDERR_FILENO; i++)
			close(i);
		if (stdio_occupy() < 0 || open("/dev/null", O_RDWR) <= STDERR_FILENO)
			_exit(1);
		_exit(write(STDOUT_FILENO, "x", 1) < 0 && write(STDERR_FILENO, "x", 1) < 0 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_descriptors),
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_fit_always_fits),
		cmocka_unit_test(test_tables_fit_any_width),
		cmocka_unit_test(test_table_layout),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_sentence),
		cmocka_unit_test(test_json_writer),
		cmocka_unit_test(test_json_find),
		cmocka_unit_test(test_json_find_hostile),
		cmocka_unit_test(test_color_only_on_terminals),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
