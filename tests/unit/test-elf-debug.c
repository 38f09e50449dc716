// SPDX-License-Identifier: GPL-2.0-or-later
/* Names of stripped programs, from where distributions put them. Truth: the program before it was stripped. */
#include <sys/mman.h>

#include "elf-files.h"

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
	assert_int_equal(elf_table_new(fd, ELF_WANT_CODE, &t), 0);
	assert_int_equal(elf_table_new(bare_fd, ELF_WANT_CODE, &bare), 0);
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
	/* 50 KiB that stand for 300 MiB: no more than the limit is unpacked. */
	must(run("(cat mini; head -c 300M /dev/zero) | xz -1 > bomb.xz"));
	add_section("damaged", "bomb.xz");
	expect_names("damaged", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_inside),
		cmocka_unit_test(names_are_counted),
		cmocka_unit_test(damaged_inside),
	};

	if (system("command -v gcc objcopy nm strip xz >/dev/null") != 0) {
		print_message("SKIP: gcc, binutils and xz are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
