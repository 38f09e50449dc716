// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#include "ctl/options.h"

#define NOW (1800000000ULL * NSEC_PER_SEC)
#define ARGS_MAX 24

/* Splits at spaces; "_" stands for a space within a word. */
static int parse(const char *line, struct options *ret, struct strbuf *error)
{
	static char words[1024];
	char *argv[ARGS_MAX + 2] = { (char *)"sysprofctl" }, *save = NULL;
	int argc = 1;

	snprintf(words, sizeof(words), "%s", line);
	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		for (char *c = w; *c; c++)
			if (*c == '_')
				*c = ' ';
		assert_true(argc < ARGS_MAX);
		argv[argc++] = w;
	}
	return options_parse(argc, argv, NOW, ret, error);
}

static void assert_described(const char *line, const char *expected)
{
	_cleanup_(options_done) struct options o = {};
	_cleanup_(strbuf_done) struct strbuf error = {}, text = {};
	int r = parse(line, &o, &error);

	if (r < 0)
		print_message("%s: %s\n", line, error.data);
	assert_int_equal(r, 0);
	options_describe(&o, &text);
	assert_string_equal(text.data, expected);
}

static void test_defaults(void **state)
{
	assert_described("top",
			 "--type on-cpu --by function --since -5min --until now -n 20 --sort self");
	assert_described(
		"top --type syscalls",
		"--type syscalls --by syscall --since -5min --until now -n 20 --sort self");
	assert_described(
		"top --type syscalls --by function",
		"--type syscalls --by function --since -5min --until now -n 20 --sort self");
	assert_described(
		"top --type syscalls --by process",
		"--type syscalls --by process --since -5min --until now -n 20 --sort self");
	assert_described("series", "--type on-cpu --since -5min --until now");
	assert_described("series --step 1min",
			 "--type on-cpu --since -5min --until now --step 1min");
	assert_described("flame -o a.svg", "--type on-cpu --since -5min --until now");
	assert_described("counters", "--since -5min --until now");
	assert_described("top --type counters --by process --sort total",
			 "--since -5min --until now");
	assert_described("flame -o a.svg --wakers",
			 "--type off-cpu --wakers --since -5min --until now");
}

static void test_dimension_names_its_type(void **state)
{
	assert_described("top --by lock",
			 "--type futex --by lock --since -5min --until now -n 20 --sort self");
	assert_described("top --by cause",
			 "--type off-cpu --by cause --since -5min --until now -n 20 --sort self");
	assert_described(
		"top --by syscall",
		"--type syscalls --by syscall --since -5min --until now -n 20 --sort self");
	/* What is said is kept. */
	assert_described("top --by lock --type on-cpu",
			 "--type on-cpu --by lock --since -5min --until now -n 20 --sort self");
}

static void test_forms(void **state)
{
	static const char *const same[] = {
		"top --by process -n 5 --since -5min --filter comm=a*",
		"top -n5 --by=process --since=-5min --filter=comm=a*",
		"-n 5 --by process --filter comm=a* --since -5min top",
		"--by process top --filter comm=a* -n 7 -n 5",
		"top --rows 5 --by process --filter comm=a* --",
	};

	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		assert_described(same[i],
				 "--type on-cpu --by process --since -5min --until now -n 5 "
				 "--sort self --filter 'comm=a*'");
	assert_described("top --since yesterday_14:00 --filter comm=it's --filter unit!=a",
			 "--type on-cpu --by function --since 'yesterday 14:00' --until now -n 20 "
			 "--sort self --filter 'comm=it'\\''s' --filter 'unit!=a'");
	assert_described("top --names short --names=full",
			 "--type on-cpu --by function --since -5min "
			 "--until now -n 20 --sort self");
	assert_described("top --names short",
			 "--type on-cpu --by function --since -5min --until now "
			 "-n 20 --sort self --names short");
}

static void test_socket_anywhere(void **state)
{
	static const char *const lines[] = { "--socket /s status", "status --socket /s",
					     "status --socket=/s",
					     "--socket=/s status --format json" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_(options_done) struct options o = {};
		_cleanup_(strbuf_done) struct strbuf error = {};

		assert_int_equal(parse(lines[i], &o, &error), 0);
		assert_string_equal(o.socket, "/s");
		assert_int_equal(o.command, COMMAND_STATUS);
	}
}

static void test_ranges(void **state)
{
	static const struct {
		const char *line;
		uint64_t since_s, until_s; /* before now */
		bool until_now;
	} table[] = {
		{ "top", 300, 0, true },
		{ "top --since -1h", 3600, 0, true },
		{ "top --since -1h --until -30min", 3600, 1800, false },
		/* The default start is before the end that was asked for. */
		{ "top --until -1h", 3900, 3600, false },
		{ "top --since -5min --until -5min", 300, 300, false },
		{ "top --since now", 0, 0, true },
		{ "top --since @1799999000 --until @1799999500", 1000, 500, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(options_done) struct options o = {};
		_cleanup_(strbuf_done) struct strbuf error = {};

		assert_int_equal(parse(table[i].line, &o, &error), 0);
		assert_true(o.since_wall_ns == NOW - table[i].since_s * NSEC_PER_SEC);
		assert_true(o.until_wall_ns == NOW - table[i].until_s * NSEC_PER_SEC);
		assert_int_equal(o.until_now, table[i].until_now);
	}
}

static void test_files(void **state)
{
	static const struct {
		const char *line;
		enum export_format format;
	} table[] = {
		{ "flame -o a.svg", EXPORT_SVG },
		{ "flame -o a.svg --format folded", EXPORT_FOLDED },
		{ "flame -o - --format pprof", EXPORT_PPROF },
		{ "flame -oa.pb.gz", EXPORT_PPROF },
		{ "record -F 99 -d 2.5 -o x/y.json", EXPORT_SPEEDSCOPE },
		{ "record --output=a.html", EXPORT_HTML },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(options_done) struct options o = {};
		_cleanup_(strbuf_done) struct strbuf error = {};

		assert_int_equal(parse(table[i].line, &o, &error), 0);
		assert_int_equal(o.format, table[i].format);
		assert_false(o.table);
	}
}

/* A recording may also be a table. */
static void test_tables(void **state)
{
	static const char *const lines[] = { "record -o -", "record -o a.txt",
					     "record -o a.svg --format text" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_(options_done) struct options o = {};
		_cleanup_(strbuf_done) struct strbuf error = {};

		assert_int_equal(parse(lines[i], &o, &error), 0);
		assert_true(o.table);
	}
}

static void test_values(void **state)
{
	_cleanup_(options_done) struct options o = {}, s = {};
	_cleanup_(strbuf_done) struct strbuf error = {};

	assert_int_equal(parse("record -F 997 -d 300 -o a.svg --filter pid=5", &o, &error), 0);
	assert_true(o.rate_hz == 997 && o.seconds == 300);
	assert_int_equal(o.n_filters, 1);
	assert_string_equal(o.filters[0].key, "pid");
	assert_string_equal(o.filters[0].glob, "5");
	assert_int_equal(
		parse("series --step 1h30min --by unit --filter function=a=b\\*!", &s, &error), 0);
	assert_true(s.step_ns == 5400 * NSEC_PER_SEC);
	assert_string_equal(s.filters[0].glob, "a=b\\*!");
}

static void test_usage_errors(void **state)
{
	static const struct {
		const char *line, *part; /* of the sentence */
	} table[] = {
		{ "", "no command" },
		{ "bogus", "no command bogus" },
		{ "top extra", "unexpected argument extra" },
		{ "top -5min", "unexpected argument -5min" },
		{ "top --nope", "unknown option --nope" },
		{ "top -x", "unknown option -x" },
		{ "top --sor self", "unknown option --sor" },
		{ "status --type on-cpu", "status has no option --type" },
		{ "top -o a.svg", "top has no option -o" },
		{ "flame --by process -o a.svg", "flame has no option --by" },
		{ "top --type", "needs a value" },
		{ "top --type --by process", "--type needs a value" },
		{ "top --help=yes", "takes no value" },
		{ "top --type cpu", "on-cpu, off-cpu, syscalls or futex" },
		{ "record -e faults -o a.svg", "cycles, instructions, cache-misses" },
		{ "top --event cycles", "top has no option --event" },
		{ "top --type counters --by function", "counters are those of processes" },
		{ "series --type counters", "expected on-cpu, off-cpu, syscalls or futex" },
		{ "top --by user", "function, process" },
		{ "top --names long", "full or short" },
		{ "series --names short", "series has no option --names" },
		{ "top -n 0", "1 to 10000" },
		{ "top -n 10001", "1 to 10000" },
		{ "locks -n 1001", "1 to 1000" },
		{ "series -n 1001", "1 to 1000" },
		{ "top -n -5", "1 to 10000" },
		{ "top -n 5x", "1 to 10000" },
		{ "top -n 99999999999999999999", "1 to 10000" },
		{ "top --sort share", "self or total" },
		{ "top --format svg", "text or json" },
		{ "flame -o a.svg --format json", "svg, html" },
		{ "flame", "flame needs -o" },
		{ "flame -o a.png", "the ending tells no format" },
		{ "flame -o -", "the ending tells no format" },
		{ "flame -o a.txt", "the ending tells no format" },
		{ "flame -o a.svg --format text", "expected svg" },
		{ "record -o .txt", "(.txt .svg" },
		{ "record -o a.txt --format json", "text, svg" },
		{ "top --filter comm", "KEY=GLOB" },
		{ "top --filter comm!x", "KEY=GLOB" },
		{ "top --filter =x", "no such key" },
		{ "top --filter name=x", "no such key" },
		{ "top --since never", "--since never: expected" },
		{ "top --since 2026-02-30", "no such moment" },
		{ "top --since -1min --until -2min", "--since -1min is after --until -2min" },
		{ "top --since now --until -1s", "is after" },
		{ "series --step 0", "a duration" },
		{ "record -o a.svg -F 998", "1 to 997" },
		{ "record -o a.svg -F 0", "1 to 997" },
		{ "record -o a.svg -F nan", "1 to 997" },
		{ "record -o a.svg -d 301", "up to 300" },
		{ "record -o a.svg --since -5min", "record has no option --since" },
		{ "labels colour", "no label colour" },
		{ "top --socket=", "expected a path" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(strbuf_done) struct strbuf error = {};
		struct options o = { .rows = 4711 };
		int r = parse(table[i].line, &o, &error);

		if (r != -EINVAL || !strstr(error.data ?: "", table[i].part))
			print_message("%s: %d %s\n", table[i].line, r, error.data ?: "");
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(error.data, table[i].part));
		assert_null(strchr(error.data, '\n'));
		assert_int_equal(o.rows, 4711);
	}
}

static void test_help(void **state)
{
	static const struct {
		const char *line;
		enum command_id command;
	} table[] = {
		{ "--help", COMMAND_NONE },	 { "-h", COMMAND_NONE },
		{ "help", COMMAND_NONE },	 { "top -h", COMMAND_TOP },
		{ "help flame", COMMAND_FLAME }, { "--help record", COMMAND_RECORD },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(options_done) struct options o = {};
		_cleanup_(strbuf_done) struct strbuf error = {};

		assert_int_equal(parse(table[i].line, &o, &error), 0);
		assert_true(o.help);
		assert_int_equal(o.command, table[i].command);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_dimension_names_its_type),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_socket_anywhere),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_usage_errors),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
