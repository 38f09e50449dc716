// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Symbols by file offset, on programs that are built here. The truth for a running program is /proc/self/maps,
 * for the rest nm and an independent reading of the program headers. What cannot be built because a
 * compiler or linker is missing is left out and said so.
 */
#include <sys/mman.h>

#include "elf-files.h"

/* ---- programs that say themselves where their functions lie ------------------------------------------ */

static const char locate_h[] =
	"#include <stdio.h>\n"
	"static void locate(const char *name, const void *p) {\n"
	"	unsigned long a = (unsigned long)p, start, end, off; char line[512];\n"
	"	FILE *f = fopen(\"/proc/self/maps\", \"r\");\n"
	"	while (fgets(line, sizeof(line), f))\n"
	"		if (sscanf(line, \"%lx-%lx %*s %lx\", &start, &end, &off) == 3 && a >= "
	"start && a < end)\n"
	"			printf(\"%lx %s\\n\", a - start + off + 2, name);\n"
	"	fclose(f);\n"
	"}\n";

static const char spin_c[] =
	"#include \"locate.h\"\n"
	"__attribute__((noinline)) int leaf(volatile int *p) { for (int i = 0; i < 9; i++) ++*p; "
	"return *p; }\n"
	"__attribute__((noinline)) int mid(volatile int *p) { return leaf(p) + leaf(p); }\n"
	"int main(void) { volatile int x = 0; locate(\"leaf\", leaf); locate(\"mid\", mid);\n"
	"	locate(\"main\", main); return mid(&x) == 0; }\n";

/* Runs a program and looks up each "OFFSET NAME" that it prints. Returns how many there were. */
static int check_located(const char *program, const char *file)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY);
	char command[512], line[512], name[256];
	uint64_t offset;
	int n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "cd %s && ./%s", dir, program);
	f = popen(command, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(line, "%lx %255s", &offset, name), 2);
		assert_string_equal(name_at(fd, ELF_WANT_CODE, offset), name);
		n++;
	}
	assert_int_equal(pclose(f), 0);
	return n;
}

static void linkers_and_layouts(void **state)
{
	static const char *const compilers[] = { "gcc", "clang" };
	static const char *const linkers[] = { "bfd", "lld", "gold" };
	static const char *const layouts[] = { "-no-pie", "-pie", "-static", "-static-pie" };
	int built = 0;

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	for (size_t c = 0; c < ARRAY_SIZE(compilers); c++)
		for (size_t l = 0; l < ARRAY_SIZE(linkers); l++)
			for (size_t y = 0; y < ARRAY_SIZE(layouts); y++) {
				const char *pic = streq(layouts[y], "-pie") ||
								  streq(layouts[y], "-static-pie")
							  ? "-fPIE"
							  : "-fno-pie";

				if (!run("%s -O1 %s -fuse-ld=%s %s spin.c -o spin", compilers[c],
					 pic, linkers[l], layouts[y]) ||
				    !run("./spin >/dev/null")) {
					print_message("left out: %s %s %s\n", compilers[c],
						      linkers[l], layouts[y]);
					continue;
				}
				assert_int_equal(check_located("spin", "spin"), 3);
				built++;
			}
	assert_true(built > 0);
}

static void prelinked_library(void **state)
{
	write_file("locate.h", locate_h);
	write_file("lib.c", "__attribute__((noinline)) int low(int x) { return x * 3; }\n"
			    "int high(int x) { return low(x) + low(x + 1); }\n");
	write_file("load.c",
		   "#include <dlfcn.h>\n#include \"locate.h\"\n"
		   "int main(void) { void *h = dlopen(\"./lib.so\", RTLD_NOW); if (!h) return 1;\n"
		   "locate(\"low\", dlsym(h, \"low\")); locate(\"high\", dlsym(h, \"high\"));\n"
		   "return 0; }\n");
	must(run("gcc -O1 load.c -o load"));
	must(run("gcc -O1 -shared -fPIC -Wl,-Ttext-segment=0x340000000 lib.c -o lib.so"));
	assert_int_equal(check_located("load", "lib.so"), 2);
	must(run("strip lib.so"));
	assert_int_equal(check_located("load", "lib.so"), 2);
	if (!run("gcc -O1 -shared -fPIC -fuse-ld=lld lib.c -o lib.so")) {
		print_message("left out: lld\n");
		return;
	}
	assert_int_equal(check_located("load", "lib.so"), 2);
}

/* ---- which symbol ------------------------------------------------------------------------------ */

static const char asm_s[] = ".text\n"
			    ".globl _start, known_before, known_after, zsz, enclosing\n"
			    ".type known_before, @function\n.type known_after, @function\n"
			    ".type enclosing, @function\n.type inner, @function\n"
			    "_start: .fill 32, 1, 0x90\n.size _start, 32\n"
			    "known_before: .fill 32, 1, 0x90\n.size known_before, 32\n"
			    "gapfn: .fill 32, 1, 0x90\n"
			    "known_after: .fill 32, 1, 0x90\n.size known_after, 32\n"
			    "zsz: .fill 32, 1, 0x90\n"
			    "enclosing: .fill 16, 1, 0x90\n"
			    "inner: .fill 8, 1, 0x90\n.size inner, 8\n"
			    "label_inside: .fill 16, 1, 0x90\n.size enclosing, 40\n"
			    "behind: .fill 16, 1, 0x90\n"
			    ".section .text.second, \"ax\", @progbits\n"
			    "second_start: .fill 32, 1, 0x90\n"
			    ".section .text.third, \"ax\", @progbits\n"
			    ".fill 32, 1, 0x90\nthird: .fill 16, 1, 0x90\n";

static void sizes_and_gaps(void **state)
{
	write_file("sizes.s", asm_s);
	write_file("sizes.ld",
		   "ENTRY(_start) SECTIONS { . = 0x400000 + SIZEOF_HEADERS; .text : { *(.text) }\n"
		   ".second : { *(.text.second) } .third : { *(.text.third) } }\n");
	must(run("as sizes.s -o sizes.o && ld -T sizes.ld sizes.o -o sizes.full"));
	must(run("cp sizes.full sizes && strip -N gapfn sizes"));
	expect_symbol("sizes", "sizes.full", "known_before", 0, "known_before");
	expect_symbol("sizes", "sizes.full", "known_before", 31, "known_before");
	expect_symbol("sizes", "sizes.full", "gapfn", 0, "");
	expect_symbol("sizes", "sizes.full", "gapfn", 31, "");
	expect_symbol("sizes", "sizes.full", "known_after", 0, "known_after");
	expect_symbol("sizes", "sizes.full", "zsz", 0, "zsz");
	expect_symbol("sizes", "sizes.full", "zsz", 31, "zsz");
	expect_symbol("sizes", "sizes.full", "enclosing", 4, "enclosing");
	expect_symbol("sizes", "sizes.full", "inner", 4, "inner");
	/* A label inside a function is not a function; the function covers what its inner one leaves. */
	expect_symbol("sizes", "sizes.full", "label_inside", 4, "enclosing");
	expect_symbol("sizes", "sizes.full", "behind", 15, "behind");
	/* The next section has code of its own in front of its first label. */
	expect_symbol("sizes", "sizes.full", "second_start", 31, "second_start");
	expect_symbol("sizes", "sizes.full", "second_start", 32, "");
	expect_symbol("sizes", "sizes.full", "third", -1, "");
	expect_symbol("sizes", "sizes.full", "third", 15, "third");
	expect_at("sizes", 0, "");
	expect_at("sizes", UINT64_MAX, "");
}

/* Behind the end of what a stripped libc exports, its own functions have no name, such as what calls main(). */
static void gaps_of_libc(void **state)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	char line[512], symbol[256], name[ELF_NAME_MAX];
	_cleanup_close_ int fd = -1;
	unsigned long start, size;
	unsigned gaps = 0;
	FILE *f;

	must(run(
		"strip -o libc $(gcc -print-file-name=libc.so.6) && nm -D -S --defined-only libc | "
		"awk '$3 ~ /^[TW]$/ { sub(/@.*/, \"\", $4); print $1, $2, $4 }' >exports"));
	fd = open_file("libc", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	snprintf(line, sizeof(line), "%s/exports", dir);
	f = fopen(line, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(line, "%lx %lx %255s", &start, &size, symbol), 3);
		if (elf_table_find(t, fd, -1, to_offset(fd, start + size), name) == 1)
			assert_string_not_equal(name, symbol);
		else
			gaps++;
	}
	fclose(f);
	assert_true(gaps > 10);
}

static void aliases(void **state)
{
	static const char *const source[] = {
		".text\n.globl _start\n_start: nop\n.size _start, 1\n.type _start, @function\n",
		/* name, binding, all at one place */
		".globl __under\n.globl glob_longer\n.globl glob\n.weak a_weak\n"
		".type __under, @function\n.type glob_longer, @function\n.type glob, @function\n"
		".type a_weak, @function\n.type a_local, @function\n"
		"__under:\nglob_longer:\nglob:\na_weak:\na_local:\nlabel: .fill 16, 1, 0x90\n"
		".size __under, 16\n.size glob_longer, 16\n.size glob, 16\n.size a_weak, 16\n.size "
		"a_local, 16\n",
	};
	static const char *const order[] = { "glob", "glob_longer", "__under", "a_weak",
					     "a_local" };
	char text[2048];

	snprintf(text, sizeof(text), "%s%s", source[0], source[1]);
	write_file("alias.s", text);
	must(run("as alias.s -o alias.o && ld alias.o -o alias"));
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		expect_symbol("alias", "alias", "a_local", 3, order[i]);
		if (i + 1 < ARRAY_SIZE(order))
			must(run("strip -N %s alias", order[i]));
	}
}

static void folded_bodies(void **state)
{
	write_file("icf1.c", "int zeta(int x) { return x * 7 + 1; }\n");
	write_file("icf2.c", "int alpha(int x) { return x * 7 + 1; }\n");
	write_file("icfm.c", "int zeta(int), alpha(int); int main(int c, char **v) { return "
			     "zeta(c) + alpha(c); }");
	if (!run("clang -O1 -ffunction-sections -fuse-ld=lld -Wl,--icf=all icf1.c icf2.c icfm.c -o "
		 "icf1") ||
	    !run("clang -O1 -ffunction-sections -fuse-ld=lld -Wl,--icf=all icf2.c icfm.c icf1.c -o "
		 "icf2")) {
		print_message("clang or lld is missing\n");
		skip();
	}
	assert_int_equal(nm_address("icf1", "alpha"), nm_address("icf1", "zeta"));
	expect_symbol("icf1", "icf1", "zeta", 1, "zeta"); /* shorter */
	expect_symbol("icf2", "icf2", "alpha", 1, "zeta");
}

static void cold_parts(void **state)
{
	write_file("cold.c", "__attribute__((cold, noinline)) void fail(int x) { __asm__ "
			     "volatile(\"\" : : \"r\"(x)); }\n"
			     "__attribute__((noinline)) int hotc(int x) {\n"
			     "if (x > 1000) { fail(x); fail(x * 7); fail(x * 9); }\n"
			     "return x * 3; }\n"
			     "int main(int c, char **v) { return hotc(c); }\n");
	must(run("gcc -O2 cold.c -o cold"));
	/* The raw name: folding is for the readable one. */
	expect_symbol("cold", "cold", "hotc.cold", 1, "hotc.cold");
	expect_symbol("cold", "cold", "hotc", 1, "hotc");
}

static void resolvers(void **state)
{
	write_file("ifunc.c",
		   "static __attribute__((noinline)) int fast(int x) { return x + 41; }\n"
		   "static int (*choose(void))(int) { return fast; }\n"
		   "int pick(int x) __attribute__((ifunc(\"choose\")));\n");
	must(run("gcc -O1 -shared -fPIC ifunc.c -o ifunc.full && cp ifunc.full ifunc.so && strip "
		 "ifunc.so"));
	expect_symbol("ifunc.full", "ifunc.full", "fast", 1, "fast");
	expect_symbol("ifunc.full", "ifunc.full", "choose", 1, "choose");
	expect_symbol("ifunc.so", "ifunc.full", "choose", 1, "pick.resolver");
	expect_symbol("ifunc.so", "ifunc.full", "fast", 1, "");
}

/* objdump knows the linkage tables: every entry that it names must have that name. */
static int check_plt(const char *file)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY);
	char command[512], line[512], name[256];
	uint64_t address;
	int n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "objdump -d %s/%s", dir, file);
	f = popen(command, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx <%255[^>]>:", &address, name) != 2 || strlen(name) < 4 ||
		    !streq(name + strlen(name) - 4, "@plt"))
			continue;
		assert_string_equal(name_at(fd, ELF_WANT_CODE, to_offset(fd, address) + 3), name);
		n++;
	}
	pclose(f);
	return n;
}

static void linkage_tables(void **state)
{
	static const char *const flags[] = { "-Wl,-z,lazy",
					     "-Wl,-z,now",
					     "-Wl,-z,lazy -fcf-protection=none",
					     "-no-pie -Wl,-z,lazy",
					     "-fuse-ld=lld -Wl,-z,lazy",
					     "-fuse-ld=gold -Wl,-z,lazy" };

	write_file("callee.c",
		   "int callee(int x) { return x + 1; }\nint other(int x) { return x + 2; }\n");
	write_file("caller.c",
		   "int callee(int), other(int);\nint (*taken)(int) = other;\n"
		   "int main(int c, char **v) { return callee(c) + other(c) + taken(c); }\n");
	must(run("gcc -O1 -shared -fPIC callee.c -o callee.so"));
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!run("gcc -O1 %s caller.c ./callee.so -o caller", flags[i])) {
			print_message("left out: %s\n", flags[i]);
			continue;
		}
		assert_true(check_plt("caller") >= 2);
		must(run("strip caller"));
		assert_true(check_plt("caller") >= 2);
	}
	if (!run("clang --target=aarch64-linux-gnu -O1 -ffreestanding -fPIC -shared -nostdlib "
		 "-fuse-ld=lld "
		 "callee.c -o callee-arm.so") ||
	    !run("clang --target=aarch64-linux-gnu -O1 -ffreestanding -fPIC -shared -nostdlib "
		 "-fuse-ld=lld "
		 "-Wl,-z,lazy caller.c ./callee-arm.so -o caller-arm.so")) {
		print_message("left out: arm64\n");
		return;
	}
	/* objdump of another machine may be missing; lld's table is a head of 32 bytes and 16 an entry. */
	{
		_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
		_cleanup_close_ int fd = open_file("caller-arm.so", O_RDONLY);
		char name[ELF_NAME_MAX];
		int callee = 0, other = 0;

		assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
		for (uint64_t at = 0; at < 65536; at += 4)
			if (elf_table_find(t, fd, -1, at, name)) {
				callee += streq(name, "callee@plt");
				other += streq(name, "other@plt");
			}
		assert_int_equal(callee, 4);
		assert_int_equal(other, 4);
	}
}

static void static_objects(void **state)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t last;

	write_file("data.c",
		   "int in_data[4] = { 1 }, in_bss[4]; static int hidden = 3;\n"
		   "const int in_rodata[4] = { 5 };\n"
		   "int main(void) { return ++hidden + in_data[0] + in_bss[1] + in_rodata[0]; }\n");
	must(run("gcc -O0 data.c -o data"));
	fd = open_file("data", O_RDONLY);
	assert_string_equal(name_at(fd, ELF_WANT_DATA,
				    to_offset(fd, nm_address("data", "in_data") + 15)),
			    "in_data");
	assert_string_equal(name_at(fd, ELF_WANT_DATA, to_offset(fd, nm_address("data", "hidden"))),
			    "hidden");
	assert_string_equal(name_at(fd, ELF_WANT_DATA,
				    to_offset(fd, nm_address("data", "in_bss") + 8)),
			    "in_bss");
	assert_string_equal(name_at(fd, ELF_WANT_DATA,
				    to_offset(fd, nm_address("data", "in_rodata"))),
			    "in_rodata");
	assert_string_equal(name_at(fd, ELF_WANT_DATA, to_offset(fd, nm_address("data", "main"))),
			    "");
	assert_string_equal(
		name_at(fd, ELF_WANT_CODE, to_offset(fd, nm_address("data", "in_data"))), "");
	/* The file's memory ends with the page that .bss ends in. */
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_DATA, &t), 0);
	last = to_offset(fd, nm_address("data", "_end") - 1);
	assert_true(elf_table_reaches(t, last));
	assert_true(elf_table_reaches(t, last + 1));
	assert_false(elf_table_reaches(t, last + (uint64_t)sysconf(_SC_PAGESIZE)));
}

/* ---- files that are not as they should be --------------------------------------------------------- */

/* Debug information in any form, damaged or gone, costs no name of the symbol table's. */
static void debug_information(void **state)
{
	static const char *const builds[] = {
		"gcc -g -gz=zlib -O1 spin.c -o debug",
		"gcc -g -gz=zlib-gnu -O1 spin.c -o debug",
		"gcc -g -O1 spin.c -o debug && objcopy --compress-debug-sections=zstd debug",
		"gcc -g -gsplit-dwarf -O1 spin.c -o debug",
		"gcc -g -gsplit-dwarf -O1 spin.c -o debug && rm *.dwo",
		"clang -g -gdwarf-5 -gsplit-dwarf -O1 spin.c -o debug && rm -f *.dwo",
		"clang -g -gdwarf-4 -O1 spin.c -o debug",
		"gcc -g -O1 spin.c -o debug && cp debug debug2 && dwz -m common.dbg debug debug2",
		"gcc -g -O1 spin.c -o debug && head -c 64 /dev/urandom > noise && "
		"objcopy --update-section .debug_info=noise debug",
	};
	int built = 0;

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		if (!run("%s", builds[i])) {
			print_message("left out: %s\n", builds[i]);
			continue;
		}
		assert_int_equal(check_located("debug", "debug"), 3);
		built++;
	}
	assert_true(built >= 5);
}

/* Another C library. */
static void musl(void **state)
{
	static const char *const layouts[] = { "-pie -fPIE", "-static" };

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		if (!run("musl-gcc -O1 %s spin.c -o spin && ./spin >/dev/null", layouts[i])) {
			print_message("left out: musl %s\n", layouts[i]);
			continue;
		}
		assert_int_equal(check_located("spin", "spin"), 3);
	}
}

static void entry_size_zero(void **state)
{
	_cleanup_close_ int fd = -1;
	Elf64_Xword zero = 0;
	Elf64_Ehdr e;
	Elf64_Shdr s;

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	must(run("gcc -O1 spin.c -o spin0 && cp spin0 entsize"));
	fd = open_file("entsize", O_RDONLY);
	assert_int_equal(pread_full(fd, &e, sizeof(e), 0), 0);
	for (int i = 0; i < e.e_shnum; i++) {
		uint64_t at = e.e_shoff + (uint64_t)i * sizeof(s);

		assert_int_equal(pread_full(fd, &s, sizeof(s), at), 0);
		if (s.sh_type == SHT_SYMTAB || s.sh_type == SHT_DYNSYM)
			patch("entsize", at + offsetof(Elf64_Shdr, sh_entsize), &zero,
			      sizeof(zero));
	}
	assert_int_equal(check_located("spin0", "entsize"), 3);
}

/* A hole in a file costs its owner nothing, and its reader every byte. */
static void endless_tables(void **state)
{
	static const Elf64_Word types[] = { SHT_SYMTAB, SHT_DYNSYM, SHT_RELA };
	_cleanup_close_ int fd = -1;
	Elf64_Ehdr e;
	Elf64_Shdr s;

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	alarm(60); /* instead of hours */
	for (size_t type = 0; type < ARRAY_SIZE(types); type++) {
		_cleanup_(elf_table_free_p) struct elf_table *t = NULL;

		must(run("gcc -O1 spin.c -o sparse && truncate -s 2T sparse"));
		fd = close_fd(fd);
		fd = open_file("sparse", O_RDONLY);
		assert_int_equal(pread_full(fd, &e, sizeof(e), 0), 0);
		for (int i = 0; i < e.e_shnum; i++) {
			uint64_t at = e.e_shoff + (uint64_t)i * sizeof(s);

			assert_int_equal(pread_full(fd, &s, sizeof(s), at), 0);
			if (s.sh_type != types[type])
				continue;
			s.sh_offset = 1 << 30;
			s.sh_size = 1ULL << 40;
			patch("sparse", at, &s, sizeof(s));
		}
		assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), -EFBIG);
	}
	alarm(0);
}

static void no_section_headers(void **state)
{
	static const char *const hashes[] = { "gnu", "sysv", "both" };
	Elf64_Off no_offset = 0;
	Elf64_Half none = 0;

	write_file("export.c",
		   "int exported(int x) { return x * 5; }\n"
		   "static __attribute__((noinline)) int local(int x) { return x * 9 + 1; }\n"
		   "int second(int x) { return local(x) + local(x + 2); }\n");
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++) {
		must(run("gcc -O1 -shared -fPIC -Wl,--hash-style=%s export.c -o headless.full && "
			 "cp headless.full headless",
			 hashes[i]));
		patch("headless", offsetof(Elf64_Ehdr, e_shoff), &no_offset, sizeof(no_offset));
		patch("headless", offsetof(Elf64_Ehdr, e_shnum), &none, sizeof(none));
		patch("headless", offsetof(Elf64_Ehdr, e_shstrndx), &none, sizeof(none));
		expect_symbol("headless", "headless.full", "exported", 1, "exported");
		expect_symbol("headless", "headless.full", "second", 1, "second");
		expect_symbol("headless", "headless.full", "local", 1, "");
	}
}

static void build_ids(void **state)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	_cleanup_close_ int fd = -1;

	write_file("lib.c", "int low(int x) { return x * 3; }\n");
	must(run("gcc -shared -fPIC -Wl,--build-id=0x0123456789abcdef lib.c -o id.so"));
	must(run("gcc -shared -fPIC -Wl,--build-id=none lib.c -o noid.so"));
	fd = open_file("id.so", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	assert_string_equal(elf_table_build_id(t), "0123456789abcdef");
	t = elf_table_free(t);
	close_fd(fd);
	fd = open_file("noid.so", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	assert_string_equal(elf_table_build_id(t), "");
}

static void other_machines(void **state)
{
	write_file(
		"other.c",
		"int first(int x) { return x + 1; }\nint second(int x) { return first(x) * 2; }\n"
		"int _start(void) { return second(3); }\n");
	if (run("gcc -m32 -O0 -ffreestanding -fno-pic -c other.c -o other32.o && ld -m elf_i386 "
		"other32.o -o other32")) {
		_cleanup_close_ int fd = open_file("other32", O_RDONLY);
		Elf32_Ehdr e;
		Elf32_Phdr p;
		uint64_t at = nm_address("other32", "second") + 2;
		bool found = false;

		assert_int_equal(pread_full(fd, &e, sizeof(e), 0), 0);
		for (int i = 0; i < e.e_phnum; i++) {
			assert_int_equal(pread_full(fd, &p, sizeof(p),
						    e.e_phoff + (uint64_t)i * sizeof(p)),
					 0);
			if (p.p_type != PT_LOAD || at < p.p_vaddr || at >= p.p_vaddr + p.p_memsz)
				continue;
			assert_string_equal(name_at(fd, ELF_WANT_CODE, at - p.p_vaddr + p.p_offset),
					    "second");
			found = true;
		}
		assert_true(found);
	} else {
		print_message("left out: i386\n");
	}
	if (run("clang --target=aarch64-linux-gnu -O0 -ffreestanding -c other.c -o arm.o && ld.lld "
		"arm.o -o arm"))
		expect_symbol("arm", "arm", "second", 4, "second");
	else
		print_message("left out: arm64\n");
	/* The other byte order: numbers come swapped, and must not be believed as they are. */
	if (run("clang --target=mips-linux-gnu -O0 -ffreestanding -fno-pic -mno-abicalls -c "
		"other.c -o mips.o && ld.lld mips.o -o mips")) {
		_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
		_cleanup_close_ int fd = open_file("mips", O_RDONLY);
		char name[ELF_NAME_MAX];
		int found = 0;

		assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
		for (uint64_t at = 0; at < 65536 * 4; at += 4)
			found += elf_table_find(t, fd, -1, at, name) && streq(name, "second");
		assert_true(found > 1);
	} else {
		print_message("left out: big endian\n");
	}
}

static void not_elf(void **state)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	_cleanup_close_ int fd = -1;

	write_file("text", "#!/bin/sh\nexit 0\n");
	fd = open_file("text", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), -ENOEXEC);
	close_fd(fd);
	write_file("text", "");
	fd = open_file("text", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), -ENOEXEC);
	close_fd(fd);
	must(run("echo 'int x;' > o.c && gcc -c o.c -o o.o"));
	fd = open_file("o.o", O_RDONLY);
	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), -ENOEXEC);
}

/* Every lookup must end, without a crash and without a name that is not text. */
static void look_around(int fd)
{
	char name[ELF_NAME_MAX];

	for (int want = ELF_WANT_CODE; want <= ELF_WANT_DATA; want++) {
		_cleanup_(elf_table_free_p) struct elf_table *t = NULL;

		if (elf_table_new(fd, -1, (enum elf_want)want, &t) < 0)
			continue;
		for (uint64_t at = 0; at < 20000; at += 499)
			if (elf_table_find(t, fd, -1, at, name))
				assert_true(strlen(name) < ELF_NAME_MAX);
	}
}

static void damaged_files(void **state)
{
	_cleanup_free_ unsigned char *good = NULL, *bad = NULL;
	_cleanup_close_ int fd = -1, in = -1;
	uint64_t seed = 88172645463325252ULL;
	struct stat st;

	write_file("locate.h", locate_h);
	write_file("spin.c", spin_c);
	must(run("gcc -O1 spin.c -o good"));
	in = open_file("good", O_RDONLY);
	assert_int_equal(fstat(in, &st), 0);
	good = malloc((size_t)st.st_size);
	bad = malloc((size_t)st.st_size);
	assert_true(good && bad);
	assert_int_equal(pread_full(in, good, (size_t)st.st_size, 0), 0);
	fd = memfd_create("damaged", MFD_CLOEXEC);
	assert_true(fd >= 0);

	for (off_t len = st.st_size; len > 0; len -= len > 1024 ? 331 : 13) {
		if (len == st.st_size)
			assert_int_equal(write_full(fd, good, (size_t)st.st_size), 0);
		assert_int_equal(ftruncate(fd, len), 0);
		look_around(fd);
	}
	for (int round = 0; round < 3000; round++) {
		memcpy(bad, good, (size_t)st.st_size);
		for (int i = 0; i < 1 + round % 8; i++) {
			uint64_t where, value;

			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			/* Headers are where it hurts: the first 1 KiB, the last 2 KiB, sometimes anywhere. */
			where = seed >> 8;
			where = round % 3 == 0	 ? where % 1024
				: round % 3 == 1 ? (uint64_t)st.st_size - 1 - where % 2048
						 : where % (uint64_t)st.st_size;
			value = seed & 3 ? seed & 0xff : 0xff;
			bad[where] = (unsigned char)value;
		}
		assert_int_equal(pwrite(fd, bad, (size_t)st.st_size, 0), st.st_size);
		look_around(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linkers_and_layouts),
		cmocka_unit_test(prelinked_library),
		cmocka_unit_test(sizes_and_gaps),
		cmocka_unit_test(gaps_of_libc),
		cmocka_unit_test(aliases),
		cmocka_unit_test(folded_bodies),
		cmocka_unit_test(cold_parts),
		cmocka_unit_test(resolvers),
		cmocka_unit_test(linkage_tables),
		cmocka_unit_test(static_objects),
		cmocka_unit_test(debug_information),
		cmocka_unit_test(musl),
		cmocka_unit_test(entry_size_zero),
		cmocka_unit_test(endless_tables),
		cmocka_unit_test(no_section_headers),
		cmocka_unit_test(build_ids),
		cmocka_unit_test(other_machines),
		cmocka_unit_test(not_elf),
		cmocka_unit_test(damaged_files),
	};

	if (system("command -v gcc as ld nm strip >/dev/null") != 0) {
		print_message("SKIP: gcc and binutils are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
