// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The symbolizer's search for debug files, with its real helper: this program is the helper when it is executed with
 * --symbol-helper. Paths that the symbolizer asks for lie in a root of the test's own.
 */
#include "elf-files.h"

#include "base/clock.h"
#include "parser/parser.h"
#include "symbol/symbolizer.h"

struct fixture {
	struct symbolizer *symbolizer;
	struct dict *dict;
	uint64_t keys[2];
	uint32_t binary;
	char asked[1024]; /* paths of debug files that were asked for */
};

static int open_binary(void *ctx, uint64_t key)
{
	return open_file("root/opt/prog", O_RDONLY);
}

static int open_debug_file(void *ctx, uint64_t key, const char *paths, size_t n, size_t *ret_which)
{
	struct fixture *f = ctx;
	int fd = -ENOENT;

	for (size_t i = 0; fd < 0 && i < n; i++, paths += strlen(paths) + 1) {
		size_t len = strlen(f->asked);
		char real[512];

		snprintf(f->asked + len, sizeof(f->asked) - len, "%s ", paths);
		snprintf(real, sizeof(real), "%s/root%s", dir, paths);
		fd = open(real, O_RDONLY | O_CLOEXEC);
		*ret_which = i;
	}
	return fd;
}

static struct fixture *fixture_new(void)
{
	struct fixture *f = new0(struct fixture, 1);
	struct symbolizer_options o = {
		.open_binary = open_binary,
		.open_debug_file = open_debug_file,
		.open_ctx = f,
	};
	struct binary b = { .kind = BINARY_ELF, .ino = 1 };

	assert_int_equal(symbolizer_new(&o, &f->symbolizer), 0);
	assert_int_equal(dict_new(&f->dict), 0);
	b.name = (uint32_t)dict_string(f->dict, "prog");
	b.path = (uint32_t)dict_string(f->dict, "/opt/prog");
	f->binary = (uint32_t)dict_binary(f->dict, &b);
	assert_int_equal(f->binary, 1);
	f->keys[1] = 1;
	return f;
}

static void fixture_free(struct fixture *f)
{
	symbolizer_free(f->symbolizer);
	dict_free(f->dict);
	free(f);
}

static const char *name_of(struct fixture *f, const char *symbol, unsigned plus)
{
	_cleanup_close_ int fd = open_file("prog.full", O_RDONLY);
	struct frame x = { .binary = f->binary,
			   .offset = to_offset(fd, nm_address("prog.full", symbol)) + plus,
			   .kind = FRAME_NATIVE };
	int64_t id = dict_frame(f->dict, &x);

	assert_true(id > 0);
	f->asked[0] = '\0';
	assert_int_equal(symbolizer_name(f->symbolizer, f->dict, f->keys, 2,
					 mono_now_ns() + 20 * NSEC_PER_SEC),
			 0);
	return dict_str(f->dict, f->dict->frames[id].name);
}

static uint64_t requests(const struct fixture *f)
{
	struct symbolizer_stats s;

	symbolizer_stats(f->symbolizer, &s);
	assert_int_equal(s.crashes + s.timeouts + s.poisoned, 0);
	return s.requests;
}

static void build(const char *flags)
{
	must(run("rm -rf root && mkdir -p root/opt/.debug root/usr/lib/debug/opt"));
	write_file("prog.c",
		   "static __attribute__((noinline)) int hidden(int x) { return x * 9; }\n"
		   "static __attribute__((noinline)) int other(int x) { return x * 7; }\n"
		   "int known(int x) { return hidden(x) + other(x); }\n");
	must(run("gcc -O1 -g -shared -fPIC %s prog.c -o prog.full && strip -o root/opt/prog "
		 "prog.full && objcopy --only-keep-debug prog.full prog.debug",
		 flags));
}

/* Named from a debug file that lies there, with a link of that name. */
static void expect_found(const char *link, const char *place, const char *asked)
{
	struct fixture *f = fixture_new();
	uint64_t before;

	if (*link)
		must(run("cp prog.debug %s && objcopy --add-gnu-debuglink=%s root/opt/prog", link,
			 link));
	must(run("mkdir -p $(dirname root%s) && cp prog.debug root%s", place, place));
	assert_string_equal(name_of(f, "hidden", 1), "hidden");
	assert_string_equal(f->asked, asked);
	before = requests(f);
	/* One more, where the program itself has the name. */
	assert_int_equal(before, streq(link, "prog") ? 3 : 2);
	/* From then on it is known. */
	assert_string_equal(name_of(f, "other", 1), "other");
	assert_string_equal(name_of(f, "known", 1), "known");
	assert_int_equal(requests(f), before + 2);
	fixture_free(f);
}

static void places(void **state)
{
	build("-Wl,--build-id=0x1234567890abcdef");
	expect_found("", "/usr/lib/debug/.build-id/12/34567890abcdef.debug",
		     "/usr/lib/debug/.build-id/12/34567890abcdef.debug ");
	build("-Wl,--build-id=none");
	expect_found("d", "/opt/d", "/opt/d ");
	build("-Wl,--build-id=none");
	expect_found("d", "/opt/.debug/d", "/opt/d /opt/.debug/d ");
	build("-Wl,--build-id=none");
	expect_found("d", "/usr/lib/debug/opt/d", "/opt/d /opt/.debug/d /usr/lib/debug/opt/d ");
}

/* The link leads to the program itself first. */
static void own_name(void **state)
{
	build("-Wl,--build-id=none");
	expect_found("prog", "/opt/.debug/prog", "/opt/prog /opt/.debug/prog ");
	build("-Wl,--build-id=0x12345678");
	expect_found("prog", "/opt/.debug/prog",
		     "/usr/lib/debug/.build-id/12/345678.debug /opt/prog /opt/.debug/prog ");
}

/* Names that it has of its own stay, and nobody searches again soon. */
static void not_found(struct fixture *f, unsigned n_requests)
{
	assert_string_equal(name_of(f, "hidden", 1), "");
	assert_true(*f->asked);
	assert_int_equal(requests(f), n_requests);
	assert_string_equal(name_of(f, "known", 1), "known");
	assert_string_equal(f->asked, "");
	assert_int_equal(requests(f), n_requests + 1);
	fixture_free(f);
}

static void none(void **state)
{
	build("-Wl,--build-id=none");
	must(run("cp prog.debug absent && objcopy --add-gnu-debuglink=absent root/opt/prog"));
	not_found(fixture_new(), 1);
	/* Of the build before, under the right name. */
	must(run("gcc -O0 -g -shared -fPIC -Wl,--build-id=none prog.c -o stale && objcopy "
		 "--only-keep-debug stale root/opt/absent"));
	not_found(fixture_new(), 2);
	must(run("echo nothing > root/opt/absent"));
	not_found(fixture_new(), 2);
	must(run("rm root/opt/absent && mkdir root/opt/absent"));
	not_found(fixture_new(), 2);
}

/* The parser unpacks what is inside the file, in its sandbox. */
static void inside(void **state)
{
	struct fixture *f = fixture_new();

	build("");
	must(run("objcopy -S --keep-symbol=hidden --keep-symbol=other prog.full mini && xz -f mini "
		 "&& "
		 "objcopy --add-section .gnu_debugdata=mini.xz root/opt/prog"));
	assert_string_equal(name_of(f, "hidden", 1), "hidden");
	assert_true(*f->asked);
	assert_string_equal(name_of(f, "known", 1), "known");
	assert_string_equal(name_of(f, "other", 1), "other");
	requests(f);
	fixture_free(f);
}

/* It goes while it is in use: what the program has itself is still right. */
static void removed(void **state)
{
	struct fixture *f = fixture_new();

	build("-Wl,--build-id=0x12345678");
	must(run("mkdir -p root/usr/lib/debug/.build-id/12 && cp prog.debug "
		 "root/usr/lib/debug/.build-id/12/345678.debug"));
	assert_string_equal(name_of(f, "hidden", 1), "hidden");
	must(run("rm -r root/usr/lib/debug/.build-id"));
	assert_string_equal(name_of(f, "known", 1), "known");
	assert_string_equal(name_of(f, "other", 1), "");
	assert_string_equal(name_of(f, "hidden", 1), "hidden");
	fixture_free(f);
}

/* A program with a symbol table of its own, or with nothing that leads elsewhere: one request is all. */
static void not_wanted(void **state)
{
	struct fixture *f = fixture_new();

	build("-Wl,--build-id=0x12345678");
	must(run("cp prog.full root/opt/prog"));
	assert_string_equal(name_of(f, "hidden", 1), "hidden");
	assert_string_equal(f->asked, "");
	assert_int_equal(requests(f), 1);
	fixture_free(f);

	f = fixture_new();
	build("-Wl,--build-id=none");
	assert_string_equal(name_of(f, "hidden", 1), "");
	assert_string_equal(f->asked, "");
	assert_int_equal(requests(f), 1);
	fixture_free(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places), cmocka_unit_test(own_name), cmocka_unit_test(none),
		cmocka_unit_test(inside), cmocka_unit_test(removed),  cmocka_unit_test(not_wanted),
	};

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (system("command -v gcc objcopy nm strip xz >/dev/null") != 0) {
		print_message("SKIP: gcc and binutils are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
