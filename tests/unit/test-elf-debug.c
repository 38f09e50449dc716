// SPDX-License-Identifier: GPL-2.0-or-later
/* Names of stripped programs, from where distributions put them. Truth: the program before it was stripped. */
#include <sys/mman.h>

#include "elf-files.h"
#include "symbol/debug-file.h"

/* A library with one function that .dynsym knows and two that it does not. */
static void build_library(const char *flags)
{
	write_file("lib.c",
		   "static __attribute__((noinline)) int hidden(int x) { return x * 9 + 1; }\n"
		   "static __attribute__((noinline)) int other(int x) { return x * 7 + 2; }\n"
		   "int known(int x) { return hidden(x) + other(x + 2); }\n");
	must(run("gcc -O1 -g -shared -fPIC %s lib.c -o lib.full", flags));
}

static void expect_names(const char *file, const char *hidden)
{
	expect_symbol(file, "lib.full", "hidden", 1, hidden);
	expect_symbol(file, "lib.full", "other", 1, *hidden ? "other" : "");
	expect_symbol(file, "lib.full", "known", 1, "known");
}

/* ---- .gnu_debugdata --------------------------------------------------------------------------------- */

static void add_section(const char *to, const char *data)
{
	must(run("strip -o %s lib.full && objcopy --add-section .gnu_debugdata=%s %s", to, data,
		 to));
}

/* As rpm's find-debuginfo makes it. */
static void functions_inside(void **state)
{
	build_library("");
	must(run("objcopy -S --keep-symbol=hidden --keep-symbol=other lib.full mini && xz -kf "
		 "mini"));
	add_section("inside", "mini.xz");
	expect_names("inside", "hidden");
	must(run("strip -o bare lib.full"));
	expect_names("bare", "");
}

/* The names are memory that must be counted. */
static void names_are_counted(void **state)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL, *bare = NULL;
	_cleanup_close_ int fd = -1, bare_fd = -1;

	build_library("");
	must(run("(for i in $(seq 2000); do echo \".type f$i, @function; f$i: nop; "
		 ".size f$i, 1\"; "
		 "done) > many.s && gcc -shared many.s -o many.full && strip -o many.bare "
		 "many.full && "
		 "objcopy -S --wildcard --keep-symbol='f*' many.full many.mini && xz -kf many.mini "
		 "&& "
		 "objcopy --add-section .gnu_debugdata=many.mini.xz many.bare many"));
	fd = open_file("many", O_RDONLY);
	bare_fd = open_file("many.bare", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	assert_int_equal(elf_table_new(bare_fd, -1, ELF_WANT_CODE, &bare), 0);
	assert_true(elf_table_bytes(t) >= elf_table_bytes(bare) + 2000 * (16 + 5));
	assert_true(elf_table_bytes(t) < elf_table_bytes(bare) + 3000 * (16 + 8));
}

/* What cannot be unpacked costs no other name. */
static void damaged_inside(void **state)
{
	build_library("");
	must(run("objcopy -S --keep-symbol=hidden --keep-symbol=other lib.full mini && xz -kf "
		 "mini"));
	must(run("head -c 700 mini.xz > cut.xz"));
	add_section("damaged", "cut.xz");
	expect_names("damaged", "");
	must(run("echo no xz at all > text.xz"));
	add_section("damaged", "text.xz");
	expect_names("damaged", "");
	must(run("echo no program | xz > text.xz"));
	add_section("damaged", "text.xz");
	expect_names("damaged", "");
	/* Of another machine. */
	must(run("gcc -m32 -c lib.c -o lib32.o || cp /dev/null lib32.o; xz -kf lib32.o"));
	add_section("damaged", "lib32.o.xz");
	expect_names("damaged", "");
	/* 10 KiB that stand for 70 MiB: no more than the limit is unpacked. */
	must(run("(cat mini; head -c 70M /dev/zero) | xz -1 > bomb.xz"));
	add_section("damaged", "bomb.xz");
	expect_names("damaged", "");
}

/* ---- separate debug files ----------------------------------------------------------------------------- */

static struct elf_table *table_with(int fd, int debug_fd)
{
	struct elf_table *t = NULL;

	assert_int_equal(elf_table_new(fd, debug_fd, ELF_WANT_CODE, &t), 0);
	return t;
}

static void expect_debug(const char *file, const char *debug, bool accepted)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY), debug_fd = open_file(debug, O_RDONLY),
			    full_fd = open_file("lib.full", O_RDONLY);
	uint64_t hidden = to_offset(full_fd, nm_address("lib.full", "hidden"));
	uint64_t known = to_offset(full_fd, nm_address("lib.full", "known"));
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL, *bare = table_with(fd, -1);
	char name[ELF_NAME_MAX];

	assert_int_equal(elf_table_find(bare, fd, -1, hidden, name), 0);
	assert_true(elf_table_wants_debug_file(bare));
	if (!accepted) {
		assert_int_equal(elf_table_new(fd, debug_fd, ELF_WANT_CODE, &t), -ESTALE);
		return;
	}
	t = table_with(fd, debug_fd);
	assert_int_equal(elf_table_find(t, fd, debug_fd, hidden, name), 1);
	assert_string_equal(name, "hidden");
	assert_int_equal(elf_table_find(t, fd, debug_fd, known, name), 1);
	assert_string_equal(name, "known");
	assert_false(elf_table_wants_debug_file(t));
}

static void separate_files(void **state)
{
	static const char *const linkers[] = { "bfd", "lld", "gold" };

	for (size_t i = 0; i < ARRAY_SIZE(linkers); i++) {
		build_library("");
		if (!run("gcc -O1 -g -shared -fPIC -fuse-ld=%s -Wl,--build-id lib.c -o lib.full",
			 linkers[i])) {
			print_message("left out: %s\n", linkers[i]);
			continue;
		}
		must(run("strip -o bare lib.full && objcopy --only-keep-debug lib.full lib.debug"));
		expect_debug("bare", "lib.debug", true);
		expect_debug("bare", "lib.full", true);
		/* Its own build-id, but nothing to give. */
		expect_debug("bare", "bare", false);
	}
	/* The same source, built again with another result. */
	must(run("gcc -O0 -g -shared -fPIC lib.c -o stale.full && objcopy --only-keep-debug "
		 "stale.full stale.debug"));
	expect_debug("bare", "stale.debug", false);
	must(run("echo nothing > text"));
	expect_debug("bare", "text", false);
	expect_names("lib.full", "hidden");
}

/* The name is padded to four bytes; nothing but the CRC says whose the file is. */
static void links_of_any_length(void **state)
{
	build_library("-Wl,--build-id=none");
	must(run("gcc -O0 -g -shared -fPIC -Wl,--build-id=none lib.c -o stale.full"));
	for (int len = 1; len <= 8; len++) {
		_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
		_cleanup_close_ int fd = -1;
		char link[16] = "abcdefghi";

		link[len] = '\0';
		must(run("objcopy --only-keep-debug lib.full %s && strip -o linked lib.full && "
			 "objcopy --add-gnu-debuglink=%s linked",
			 link, link));
		fd = open_file("linked", O_RDONLY);
		t = table_with(fd, -1);
		assert_string_equal(elf_table_link(t), link);
		expect_debug("linked", link, true);
		if (len > 1)
			continue;
		must(run("objcopy --only-keep-debug stale.full %s", link));
		expect_debug("linked", link, false);
	}
}

static void expect_link(const char *file, const char *link)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY);
	_cleanup_(elf_table_free_p) struct elf_table *t = table_with(fd, -1);

	assert_string_equal(elf_table_link(t), link);
}

static void hostile_links(void **state)
{
	static const char *const sections[] = {
		"", "x", "abc", "abcd", "abc\\0crc", "a/b\\0crc_", "..\\0_crc_", "\\0_____"
	};

	build_library("-Wl,--build-id=none");
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		must(run("printf '%s' > link.bin && strip -o linked lib.full && objcopy "
			 "--add-section .gnu_debuglink=link.bin linked",
			 sections[i]));
		expect_link("linked", "");
	}
	must(run("printf 'abc\\0_crc' > link.bin && strip -o linked lib.full && objcopy "
		 "--add-section .gnu_debuglink=link.bin linked"));
	expect_link("linked", "abc");
}

static void expect_text(const char *paths, size_t n, const char *expected)
{
	char text[DEBUG_PATHS_MAX + DEBUG_PLACES] = "";

	for (; n > 0; n--, paths += strlen(paths) + 1) {
		strcat(text, paths);
		strcat(text, " ");
	}
	assert_string_equal(text, expected);
}

static void expect_paths(const struct debug_hints *h, const char *binary, const char *expected)
{
	char paths[DEBUG_PATHS_MAX];
	size_t n = debug_paths(h, binary, paths);

	expect_text(paths, n, expected);
}

static void places(void **state)
{
	static const struct debug_hints hostile[] = {
		{ "12/4ab", "" }, { "1", "" }, { "12AB", "" }, { "", "a/b" },
		{ "", ".." },	  { "", "." }, { "", "" },
	};

	expect_paths(&(struct debug_hints){ "1234ab", "a.dbg" }, "/opt/app/bin/a",
		     "/usr/lib/debug/.build-id/12/34ab.debug /opt/app/bin/a.dbg "
		     "/opt/app/bin/.debug/a.dbg /usr/lib/debug/opt/app/bin/a.dbg ");
	expect_paths(&(struct debug_hints){ "", "b" }, "/a", "/b /.debug/b /usr/lib/debug/b ");
	expect_paths(&(struct debug_hints){ "", "b" }, "memfd:x", "");
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++)
		expect_paths(&hostile[i], "/opt/a", "");
}

static void expect_part(Sysprofd__V1__WantedKind kind, const char *path, const char *directory,
			const char *binary, const char *debug, const char *expected)
{
	struct debug_part p = { .kind = kind,
				.path = (char *)path,
				.directory = (char *)directory,
				.build_id = "12ab" };
	char paths[DEBUG_PATHS_MAX];
	size_t n = debug_part_paths(&p, binary, debug, paths);

	expect_text(paths, n, expected);
}

static void places_of_parts(void **state)
{
	const Sysprofd__V1__WantedKind common = SYSPROFD__V1__WANTED_KIND__WANTED_KIND_COMMON,
				       split = SYSPROFD__V1__WANTED_KIND__WANTED_KIND_SPLIT,
				       package = SYSPROFD__V1__WANTED_KIND__WANTED_KIND_PACKAGE;

	expect_part(common, "../c", "", "/opt/a", "/d/e/a.debug",
		    "/d/e/../c /usr/lib/debug/.build-id/12/ab.debug /usr/lib/debug/.dwz/c ");
	expect_part(common, "/x/c", "", "memfd:a", "",
		    "/x/c /usr/lib/debug/.build-id/12/ab.debug /usr/lib/debug/.dwz/c ");
	expect_part(common, "x/..", "", "memfd:a", "", "/usr/lib/debug/.build-id/12/ab.debug ");
	expect_part(split, "o/a.dwo", "/src", "/opt/a", "",
		    "/src/o/a.dwo /opt/o/a.dwo /opt/a.dwo ");
	expect_part(split, "/o/a.dwo", "/src", "/opt/a", "", "/o/a.dwo /opt/a.dwo ");
	expect_part(split, "a.dwo", "src", "memfd:a", "", "");
	expect_part(package, "", "", "/opt/a", "/d/a.debug", "/opt/a.dwp /d/a.debug.dwp ");
	expect_part(package, "", "", "memfd:a", "", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_inside),
		cmocka_unit_test(names_are_counted),
		cmocka_unit_test(damaged_inside),
		cmocka_unit_test(separate_files),
		cmocka_unit_test(links_of_any_length),
		cmocka_unit_test(hostile_links),
		cmocka_unit_test(places),
		cmocka_unit_test(places_of_parts),
	};

	if (system("command -v gcc objcopy nm strip xz >/dev/null") != 0) {
		print_message("SKIP: gcc, binutils and xz are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
