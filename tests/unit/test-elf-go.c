// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Functions of stripped Go programs. Truth for what go builds is nm before strip; tables of the versions that this go
 * does not make are written by the assembler.
 */
#include "elf-files.h"

#include <sys/mman.h>

/* ---- what go builds ---------------------------------------------------------------------------------- */

static const char go_source[] =
	"package main\n"
	"type T struct{ n int }\n"
	"//go:noinline\n"
	"func (t *T) Spin(k int) int { for i := 0; i < k; i++ { t.n += i ^ k }; return t.n }\n"
	"//go:noinline\n"
	"func work(k int) int { t := &T{}; f := func(x int) int { return t.Spin(x) + 1 }; return "
	"f(k) }\n"
	"func main() { println(work(1000)) }\n";

/* Every function that nm finds in `truth` within Go's part of the code. Returns how many. */
static int check_functions(const char *file, const char *truth)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY), truth_fd = open_file(truth, O_RDONLY);
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	char command[512], line[1024], name[ELF_NAME_MAX];
	uint64_t address;
	int n = 0, at;
	FILE *f;

	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	snprintf(command, sizeof(command),
		 "nm -n %s/%s | grep -i ' t ' | "
		 "sed -n '/ runtime.text$/,/ runtime.etext$/p' | grep -v ' runtime.e*text$'",
		 dir, truth);
	f = popen(command, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		assert_int_equal(sscanf(line, "%lx %*c %n", &address, &at), 1);
		/* The symbol table says besides which calling convention it has. */
		if (strlen(line) > 5 && streq(line + strlen(line) - 5, ".abi0"))
			line[strlen(line) - 5] = '\0';
		assert_int_equal(elf_table_find(t, fd, -1, to_offset(truth_fd, address) + 1, name),
				 1);
		/* Types within names are shortened in the table. */
		if (!strchr(name, '['))
			assert_string_equal(name, line + at);
		n++;
	}
	pclose(f);
	return n;
}

static void built_by_go(void **state)
{
	static const char *const flags[] = { "", "-ldflags=-linkmode=external", "-buildmode=pie" };

	write_file("tiny.go", go_source);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!run("GO111MODULE=off GOCACHE=$PWD/cache go build %s -o tiny.full tiny.go",
			 flags[i])) {
			print_message("left out: go %s\n", flags[i]);
			continue;
		}
		must(run("strip -o tiny tiny.full"));
		assert_true(check_functions("tiny", "tiny.full") > 500);
		/* Where position-independent programs have it. */
		must(run("objcopy --rename-section .gopclntab=.data.rel.ro tiny"));
		assert_true(check_functions("tiny", "tiny.full") > 500);
		/* Without section headers. */
		patch("tiny", offsetof(Elf64_Ehdr, e_shoff), &(Elf64_Off){ 0 }, sizeof(Elf64_Off));
		patch("tiny", offsetof(Elf64_Ehdr, e_shnum), &(Elf64_Half){ 0 },
		      sizeof(Elf64_Half));
		patch("tiny", offsetof(Elf64_Ehdr, e_shstrndx), &(Elf64_Half){ 0 },
		      sizeof(Elf64_Half));
		assert_true(check_functions("tiny", "tiny.full") > 500);
	}
}

/* ---- each version of the table ----------------------------------------------------------------------- */

static const char code[] =
	".text\n.globl _start\n_start: .fill 16, 1, 0x90\n"
	"text: first: .fill 32, 1, 0x90\nsecond: .fill 32, 1, 0x90\nthird: .fill 32, 1, 0x90\n"
	"end: behind: .fill 16, 1, 0x90\n"
	".section .go.buildinfo, \"aw\", @progbits\n.quad 0\n";
static const char names[] =
	"names: .asciz \"\"\nn0: .asciz \"main.first\"\nn1: .asciz \"main.(*T).second\"\n"
	"n2: .asciz \"main.third.func1\"\n.balign 8\nother:\n.quad 0\n";
/* From 1.18 on addresses count from the text's; before, they are words. */
static const char entries_18[] =
	"entries: .long first - text, r0 - entries, second - text, r1 - entries\n"
	".long third - text, r2 - entries, end - text\n"
	"r0: .long first - text, n0 - names\nr1: .long second - text, n1 - names\n"
	"r2: .long third - text, n2 - names\n";
static const char entries_16[] =
	"entries: .quad first, r0 - entries, second, r1 - entries, third, r2 - entries, end\n"
	"r0: .quad first\n.long n0 - names, 0\nr1: .quad second\n.long n1 - names, 0\n"
	"r2: .quad third\n.long n2 - names, 0\n";
static const char entries_2[] =
	"entries: .quad first, r0 - tab, second, r1 - tab, third, r2 - tab, end\n"
	"r0: .quad first\n.long n0 - tab, 0\nr1: .quad second\n.long n1 - tab, 0\n"
	"r2: .quad third\n.long n2 - tab, 0\n";

static const struct {
	const char *magic, *words;
	const char *parts[2];
	bool position_independent;
} versions[] = {
	{ "0xfffffff1",
	  "3, 1, text, names - tab, other - tab, other - tab, other - tab, entries - tab",
	  { names, entries_18 },
	  true },
	{ "0xfffffff0",
	  "3, 1, text, names - tab, other - tab, other - tab, other - tab, entries - tab",
	  { names, entries_18 },
	  true },
	{ "0xfffffffa",
	  "3, 1, names - tab, other - tab, other - tab, other - tab, entries - tab",
	  { names, entries_16 },
	  false },
	{ "0xfffffffb", "3", { entries_2, names }, false },
};

static void assemble(size_t version, const char *section, const char *link)
{
	char text[4096];

	snprintf(text, sizeof(text),
		 "%s.section %s\n.balign 32\ntab: .long %s\n.byte 0, 0, 1, 8\n.quad %s\n%s%s", code,
		 section, versions[version].magic, versions[version].words,
		 versions[version].parts[0], versions[version].parts[1]);
	write_file("table.s", text);
	must(run("as table.s -o table.o && %s table.o -o table.full && strip -o table table.full",
		 link));
}

static void expect_functions(bool named)
{
	static const struct {
		const char *symbol;
		int64_t plus;
		const char *name;
	} cases[] = {
		{ "_start", 15, "" },
		{ "first", 0, "main.first" },
		{ "first", 31, "main.first" },
		{ "second", 0, "main.(*T).second" },
		{ "third", 31, "main.third.func1" },
		{ "behind", 0, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		expect_symbol("table", "table.full", cases[i].symbol, cases[i].plus,
			      named ? cases[i].name : "");
}

static void every_version(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		assemble(i, ".gopclntab, \"a\", @progbits", "ld");
		expect_functions(true);
		/* GNU ld leaves the addresses in place beside their relocations, as go does; lld does not. */
		if (system("command -v ld.lld >/dev/null") != 0)
			continue;
		assemble(i, ".data.rel.ro, \"aw\", @progbits", "ld.lld -pie --no-dynamic-linker");
		expect_functions(versions[i].position_independent);
	}
}

/* Every lookup ends, without a crash. */
static void damaged(void **state)
{
	static unsigned char good[1 << 16], bad[1 << 16];
	uint64_t seed = 88172645463325252ULL;
	char name[ELF_NAME_MAX];

	for (size_t version = 0; version < ARRAY_SIZE(versions); version++) {
		_cleanup_close_ int in = -1, fd = memfd_create("damaged", MFD_CLOEXEC);
		const unsigned char *table;
		size_t size, at;

		assemble(version, ".gopclntab, \"a\", @progbits", "ld");
		in = open_file("table", O_RDONLY);
		size = (size_t)read(in, good, sizeof(good));
		assert_true(size > 1000 && size < sizeof(good));
		table = memmem(good, size, "\xff\xff\xff\0\0\1\10", 7);
		assert_non_null(table);
		at = (size_t)(table - good);
		for (int round = 0; round < 400; round++) {
			_cleanup_(elf_table_free_p) struct elf_table *t = NULL;

			memcpy(bad, good, size);
			for (int i = 0; i < 1 + round % 4; i++) {
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				bad[at + 3 + (seed >> 8) % 256] = (unsigned char)seed;
			}
			assert_int_equal(pwrite(fd, bad, size, 0), (ssize_t)size);
			assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
			for (uint64_t offset = 0; offset < size; offset += 37)
				if (elf_table_find(t, fd, -1, offset, name))
					assert_true(strlen(name) < ELF_NAME_MAX);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(built_by_go),
		cmocka_unit_test(every_version),
		cmocka_unit_test(damaged),
	};

	if (system("command -v as ld nm strip objcopy >/dev/null") != 0) {
		print_message("SKIP: binutils are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
