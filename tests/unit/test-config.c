// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of settings and its files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "manager/config.h"

static char dir[] = "/tmp/test-config-XXXXXX";
static char path[64], drop_in_dir[80];

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int load(const char *text, struct config **ret, struct strbuf *problems)
{
	write_file(path, text);
	assert_int_equal(config_new(ret), 0);
	return config_load(*ret, path, true, problems);
}

static void test_defaults(void **state)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};

	assert_int_equal(load("", &c, &p), 0);
	assert_true(c->on_cpu && c->off_cpu && c->syscalls && c->futex);
	assert_true(c->on_cpu_rate == 19);
	assert_int_equal(c->bucket_ns, 10 * NSEC_PER_SEC);
	assert_int_equal(c->store_max_bytes, 1ULL << 30);
	assert_int_equal(c->log_level, LOG_LEVEL_INFO);
	assert_string_equal(c->state_directory, "/var/lib/sysprofd");
}

static void test_values(void **state)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};

	assert_int_equal(
		load("# a comment\n[collect]\r\n\ton-cpu-rate = "
		     "99.5\nfutex=off\nsyscall-details=25%\nsyscall-counts=sampled\n"
		     "off-cpu-threshold=500us\non-cpu-event=cycles\n"
		     "[store]\nmax-size=64M\n[log]\nlevel=debug\n"
		     "[symbol]\ndebuginfod-urls=https://a.example/x  http://b:8002\n"
		     "[access]\nallow=group:dev unit=web*.service\nallow=group:ops unit=*\n",
		     &c, &p),
		0);
	assert_true(c->on_cpu_rate == 99.5);
	assert_true(c->syscall_details == 0.25);
	assert_int_equal(c->syscall_counts, 1);
	assert_false(c->futex);
	assert_int_equal(c->off_cpu_threshold_ns, 500000);
	assert_int_equal(c->on_cpu_event, 1);
	assert_int_equal(c->store_max_bytes, 64 << 20);
	assert_int_equal(c->log_level, LOG_LEVEL_DEBUG);
	assert_string_equal(c->debuginfod_urls, "https://a.example/x  http://b:8002");
	assert_int_equal(c->n_rules, 2);
	assert_string_equal(c->rules[0].group, "dev");
	assert_string_equal(c->rules[0].unit, "web*.service");
}

/* Each bad line is named with its file and number, and changes nothing. */
static void test_sections_are_compared(void **state)
{
	static const char *const changes[] = {
		"futex=no",
		"on-cpu-rate=20",
		"syscall-details=always",
		"syscall-details=off",
		"syscall-details=0.5%",
		"on-cpu-event=cycles",
		"slice=1s",
		"max-stacks=1000",
	};
	_cleanup_(config_free_p) struct config *a = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};

	assert_int_equal(load("[serve]\ngroup=users\n", &a, &p), 0);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		_cleanup_(config_free_p) struct config *b = NULL;
		char text[64];

		snprintf(text, sizeof(text), "[collect]\n%s\n", changes[i]);
		assert_int_equal(load(text, &b, &p), 0);
		assert_false(config_section_equal(a, b, "collect"));
		assert_true(config_section_equal(b, b, "collect"));
		assert_true(config_section_equal(a, b, "symbol"));
		assert_false(config_section_equal(a, b, "serve"));
	}
}

static void test_problems(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{ "[collect]\non-cpu-rate=0\n",
		  ":2: on-cpu-rate=0: expected a number from 1 to 9999" },
		{ "[collect]\non-cpu-rate=nan\n", ":2: on-cpu-rate=nan: expected a number" },
		{ "[collect]\nbucket=10\n", ":2: bucket=10: expected a time from 500ms to 1min" },
		{ "[collect]\nsyscall-details=0\n",
		  ":2: syscall-details=0: expected off, always, or a share from 0.1% to 100%" },
		{ "[collect]\nsyscall-details=101%\n", "expected off, always, or a share" },
		{ "[collect]\nsyscall-details=yes\n", "expected off, always, or a share" },
		{ "[collect]\non-cpu=maybe\n", ":2: on-cpu=maybe: expected yes or no" },
		{ "[store]\nmax-size=1X\n", ":2: max-size=1X: expected a size from 8M to 1T" },
		{ "[collect]\non-cpu-event=foo\n", "expected cpu-clock or cycles" },
		{ "[symbol]\ndebuginfod-urls=no url\n", "expected http:// or https:// and a host" },
		{ "[symbol]\ndebuginfod-urls=https://a b\n", "expected http:// or https://" },
		{ "[symbol]\ndebuginfod-urls=https:///a\n", "expected http:// or https://" },
		{ "[symbol]\ndebuginfod-urls=https://a,https://b\n", "separated by blanks" },
		{ "[symbol]\ndebuginfod-urls=file:///a\n", "expected http:// or https://" },
		{ "\n\n[nope]\nx=1\n", ":3: unknown section [nope]" },
		{ "[collect]\nmax-size=1G\n", ":2: max-size belongs into section [store]" },
		{ "[collect]\nfrobnicate=1\n", ":2: unknown key frobnicate in section [collect]" },
		{ "on-cpu=yes\n", ":1: on-cpu belongs into section [collect]" },
		{ "[collect]\nwhatever\n", ":2: expected key=value" },
		{ "[collect\n", ":1: expected [section]" },
		{ "[]\n", ":1: expected [section]" },
		{ "[access]\nallow=dev\n", "expected group:NAME unit=GLOB" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(config_free_p) struct config *c = NULL;
		_cleanup_(strbuf_done) struct strbuf p = {};

		assert_int_equal(load(cases[i].text, &c, &p), 1);
		if (!strstr(p.data, cases[i].expected))
			fail_msg("expected \"%s\" in \"%s\"", cases[i].expected, p.data);
		assert_non_null(strstr(p.data, path));
		assert_true(c->on_cpu_rate == 19);
		assert_int_equal(c->bucket_ns, 10 * NSEC_PER_SEC);
	}
}

static void test_drop_ins(void **state)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};
	char name[128];

	assert_int_equal(mkdir(drop_in_dir, 0755), 0);
	snprintf(name, sizeof(name), "%s/20-b.conf", drop_in_dir);
	write_file(name, "[collect]\non-cpu-rate=49\n");
	snprintf(name, sizeof(name), "%s/10-a.conf", drop_in_dir);
	write_file(name, "[collect]\non-cpu-rate=97\nfutex=no\n");
	snprintf(name, sizeof(name), "%s/ignored.txt", drop_in_dir);
	write_file(name, "nonsense\n");
	assert_int_equal(load("[collect]\non-cpu-rate=7\n", &c, &p), 0);
	assert_true(c->on_cpu_rate == 49);
	assert_false(c->futex);
}

static void test_files(void **state)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};

	assert_int_equal(config_new(&c), 0);
	assert_int_equal(config_load(c, "/nonexistent/sysprofd.conf", false, &p), 0);
	assert_int_equal(config_load(c, "/nonexistent/sysprofd.conf", true, &p), 1);
	assert_int_equal(config_load(c, "/dev/zero", true, &p), 1);
	assert_non_null(strstr(p.data, "larger than 256 KiB"));
}

/* The printed sample is itself a valid configuration, with and without its comment marks. */
static void test_sample(void **state)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	_cleanup_(strbuf_done) struct strbuf p = {};
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_int_equal(config_print_sample(f), 0);
	fclose(f);
	for (char *s = text; (s = strstr(s, "\n#")); s++)
		if (s[2] != ' ' && !strstr(s, "\n#allow="))
			s[1] = ' ';
	assert_int_equal(load(text, &c, &p), 0);
}

static int set_up(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/s.conf", dir);
	snprintf(drop_in_dir, sizeof(drop_in_dir), "%s.d", path);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_sections_are_compared),
		cmocka_unit_test(test_problems),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_sample),
		cmocka_unit_test(test_drop_ins),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
