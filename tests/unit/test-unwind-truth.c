// SPDX-License-Identifier: GPL-2.0-or-later
/* Unwind tables of whole files, installed and built here. The truth is elfutils' (unwind-truth.h). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "unwind-truth.h"

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#else
#define MULTIARCH "aarch64-linux-gnu"
#endif

static char dir[64];

/* ---- building ---------------------------------------------------------------------------------- */

static bool run(const char *fmt, ...)
{
	char command[4096];
	va_list ap;
	int n;

	n = snprintf(command, sizeof(command), "cd %s && exec 2>>log && ", dir);
	va_start(ap, fmt);
	vsnprintf(command + n, sizeof(command) - (size_t)n, fmt, ap);
	va_end(ap);
	return system(command) == 0;
}

static void must(bool ok)
{
	if (!ok) {
		run("cat log >&2");
		fail_msg("a test input could not be built, see %s/log", dir);
	}
}

static FILE *open_new(const char *name)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	return f;
}

static void write_file(const char *name, const char *text)
{
	FILE *f = open_new(name);

	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int open_file(const char *name, int flags)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static uint64_t nm_address(const char *file, const char *symbol)
{
	char command[512], line[512], name[256];
	uint64_t found = 0, address;
	FILE *f;

	snprintf(command, sizeof(command), "nm %s/%s", dir, file);
	f = popen(command, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx %*c %255s", &address, name) == 2 && streq(name, symbol))
			found = address;
	pclose(f);
	if (!found)
		fail_msg("%s has no symbol %s", file, symbol);
	return found;
}

static uint64_t header_offset(int fd)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;

	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	for (int i = 0; i < e.e_phnum; i++) {
		assert_int_equal(pread(fd, &p, sizeof(p), (off_t)(e.e_phoff + i * sizeof(p))),
				 sizeof(p));
		if (p.p_type == PT_GNU_EH_FRAME)
			return p.p_offset;
	}
	fail_msg("no .eh_frame_hdr");
	return 0;
}

/* The last argument may be NULL: where the header lies. */
static Elf64_Shdr find_section(int fd, const char *name, off_t *ret_at)
{
	Elf64_Shdr s, names;
	char found[32];
	Elf64_Ehdr e;

	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	assert_int_equal(pread(fd, &names, sizeof(names),
			       (off_t)(e.e_shoff + e.e_shstrndx * sizeof(s))),
			 sizeof(names));
	for (int i = 0; i < e.e_shnum; i++) {
		assert_int_equal(pread(fd, &s, sizeof(s), (off_t)(e.e_shoff + i * sizeof(s))),
				 sizeof(s));
		assert_true(pread(fd, found, sizeof(found), (off_t)(names.sh_offset + s.sh_name)) >
			    0);
		if (strncmp(found, name, sizeof(found)) != 0)
			continue;
		if (ret_at)
			*ret_at = (off_t)(e.e_shoff + i * sizeof(s));
		return s;
	}
	return (Elf64_Shdr){};
}

static void compare(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	compare_file(path);
}

static void compare_tables(const char *a, const char *b)
{
	_cleanup_close_ int x = open_file(a, O_RDONLY), y = open_file(b, O_RDONLY);
	_cleanup_free_ struct table *t = NULL, *u = NULL;

	assert_int_equal(table_compile(x, &t), 0);
	assert_int_equal(table_compile(y, &u), 0);
	assert_true(t->functions > 0);
	assert_int_equal(t->functions, u->functions);
	assert_int_equal(t->bytes, u->bytes);
	assert_memory_equal(t, u, t->bytes);
}

static void compare_functions(const char *a, const char *b)
{
	_cleanup_close_ int x = open_file(a, O_RDONLY), y = open_file(b, O_RDONLY);
	_cleanup_free_ struct table *t = NULL, *u = NULL;

	assert_int_equal(table_compile(x, &t), 0);
	assert_int_equal(table_compile(y, &u), 0);
	assert_int_equal(t->functions, u->functions);
}

/* In any machine they say the same. */
static void compare_rules(const struct table *t, uint64_t a, const struct table *u, uint64_t b)
{
	const struct unwind_rule *p = table_find(t, (uint32_t)(a - t->base));
	const struct unwind_rule *q = table_find(u, (uint32_t)(b - u->base));
	struct caller x, y;
	struct machine m;

	randomize(&m, t->machine, a);
	x = by_rule(&m, p, a);
	y = by_rule(&m, q, b);
	if (x.none || x.cfa != y.cfa || x.ra != y.ra || x.fp != y.fp)
		fail_msg("rules at %lx differ: cfa %u %d, cfa %u %d", a, p->cfa, p->cfa_off, q->cfa,
			 q->cfa_off);
}

static uint8_t rule_at(const struct table *t, uint64_t vaddr)
{
	return table_find(t, (uint32_t)(vaddr - t->base))->cfa;
}

/* ---- files that are there ---------------------------------------------------------------------- */

static void installed(void **state)
{
	static const char *const libraries[] = { "libc.so.6", "libm.so.6", "libstdc++.so.6",
						 "libcrypto.so.3", "libgcc_s.so.1" };
	static const char *const programs[] = { "/bin/bash", "/usr/bin/perl", "/usr/bin/python3",
						"/proc/self/exe" };
	char path[256];
	int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
		for (int usr = 0; usr < 2; usr++) {
			snprintf(path, sizeof(path), "%s/lib/%s/%s", usr ? "/usr" : "", MULTIARCH,
				 libraries[i]);
			if (access(path, R_OK) < 0)
				continue;
			compare_file(path);
			n++;
			break;
		}
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (access(programs[i], R_OK) == 0) {
			compare_file(programs[i]);
			n++;
		}
	assert_true(n >= 3);
}

static void vdso(void **state)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
	FILE *f = open_new("vdso");

	assert_non_null(e);
	assert_int_equal(fwrite(e, e->e_shoff + (uint64_t)e->e_shnum * e->e_shentsize, 1, f), 1);
	assert_int_equal(fclose(f), 0);
	compare("vdso");
}

/* ---- files that are built ---------------------------------------------------------------------- */

static const char calls_c[] =
	"#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\n"
	"void use(void *p);\n"
	"volatile int v;\n"
	"__attribute__((noinline)) void use(void *p) { v = p != 0; }\n"
	"__attribute__((noinline)) int leaf(int x) { return x * 3; }\n"
	"__attribute__((noinline)) int many(int a, int b, int c, int d, int e, int f, int g, int "
	"h) {\n"
	"	char big[70000]; use(big); return a + b * c - d + leaf(e) * f + leaf(g) + h; }\n"
	"__attribute__((noinline)) int alloca_(int n) { int a[n]; use(a); return a[0]; }\n"
	"__attribute__((noinline)) int aligned(int n) {\n"
	"	_Alignas(64) float x[64]; int a[n]; use(x); use(a); return (int)x[1] + a[n - 1]; "
	"}\n"
	"__attribute__((noinline, noreturn)) void end(int n) { use(&n); exit(n); }\n"
	"__attribute__((noinline)) int rec(int n) { return n ? rec(n - 1) + leaf(n) : leaf(n); }\n"
	"int main(int argc, char **argv) { char b[256]; memset(b, argc, sizeof(b)); use(b);\n"
	"	if (argc > 5) end(argc); signal(SIGUSR1, SIG_IGN);\n"
	"	return many(1, 2, 3, 4, 5, 6, 7, 8) + alloca_(argc) + aligned(argc) + rec(9); }\n";

static const char throws_cc[] =
	"#include <string>\n#include <vector>\nstruct X { ~X(); int i; }; X::~X() { i = 0; }\n"
	"static int f(int n) { X x; if (n > 3) throw std::string(\"x\"); return n + x.i; }\n"
	"int main(int argc, char **) { std::vector<std::string> s(9);\n"
	"	try { return f(argc); } catch (std::string &e) { return (int)(e.size() + "
	"s.size()); } }\n";

static void built(void **state)
{
	static const char *const commands[] = {
		"gcc -O0 calls.c",
		"gcc -O3 -mavx2 calls.c",
		"clang -O2 -mavx2 calls.c",
		"gcc -O2 -no-pie -fno-pie calls.c",
		"gcc -O2 -fuse-ld=gold calls.c",
		"clang -O2 -fuse-ld=lld calls.c",
		"gcc -O2 -static-pie calls.c",
		"gcc -O2 -Wl,--no-eh-frame-hdr -static calls.c",
		"musl-gcc -O2 -static calls.c",
		"gcc -O2 -Wl,-z,noseparate-code -Wl,-z,max-page-size=65536 calls.c",
		"gcc -O2 -shared -fPIC -Wl,-Ttext-segment=0x340000000 calls.c",
		"clang++ -O1 -fuse-ld=lld throws.cc",
	};
	int n = 0;

	write_file("calls.c", calls_c);
	write_file("throws.cc", throws_cc);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!run("%s -o built", commands[i])) {
			print_message("left out: %s\n", commands[i]);
			continue;
		}
		print_message("%s: ", commands[i]);
		compare("built");
		n++;
	}
	assert_true(n >= 6);
}

/* Clang makes code for any machine, and lld links it. */
static void other_machine(void **state)
{
	static const char code_c[] =
		"int g(int *); int leaf(int x) { return x * 3; }\n"
		"int f(int x) { int a[100]; g(a); return a[x] + 1; }\n"
		"int va(int n) { int a[n]; g(a); return a[0]; }\n"
		"int big(int n) { char a[70000]; return g((int *)a) + a[n]; }\n";
	static const char *const flags[] = { "-mbranch-protection=standard",
					     "-fomit-frame-pointer" };

	write_file("code.c", code_c);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!run("clang --target=aarch64-linux-gnu -O2 -fPIC %s -c code.c -o code.o && "
			 "ld.lld -shared --eh-frame-hdr code.o -o arm64.so",
			 flags[i])) {
			print_message("left out: arm64\n");
			return;
		}
		compare("arm64.so");
	}
}

/* ---- other places ------------------------------------------------------------------------------ */

/* Rewrites a section in the file that is open, at its end. */
static void compress_section(int fd, const char *name, uint32_t type)
{
	off_t header, end = lseek(fd, 0, SEEK_END);
	Elf64_Shdr s = find_section(fd, name, &header);
	Elf64_Chdr c = { .ch_type = type, .ch_size = s.sh_size, .ch_addralign = 8 };
	_cleanup_free_ char *in = malloc(s.sh_size), *out = malloc(s.sh_size + 1000);
	uLongf n = s.sh_size + 1000;

	assert_int_equal(pread(fd, in, s.sh_size, (off_t)s.sh_offset), s.sh_size);
	if (type == 1)
		assert_int_equal(compress((Bytef *)out, &n, (Bytef *)in, s.sh_size), Z_OK);
	else
		n = ZSTD_compress(out, n, in, s.sh_size, 3);
	assert_int_equal(pwrite(fd, &c, sizeof(c), end), sizeof(c));
	assert_int_equal(pwrite(fd, out, n, end + (off_t)sizeof(c)), n);
	s.sh_flags |= SHF_COMPRESSED;
	s.sh_offset = (uint64_t)end;
	s.sh_size = sizeof(c) + n;
	assert_int_equal(pwrite(fd, &s, sizeof(s), header), sizeof(s));
}

#define PLAIN "-O1 -fno-stack-protector -fno-inline"

static void debug_frame(void **state)
{
	write_file("plain.c", "int g(int *); int leaf(int x) { return x * 3; }\n"
			      "int f(int x) { int a[100]; g(a); return a[x] + leaf(a[0]); }\n"
			      "int va(int n) { int a[n]; g(a); return a[0]; }\n");
	write_file("more.c", "int va(int); int g(int *p) { return *p + va(0); }\n"
			     "void _start(void) { va(3); }\n");
	must(run("gcc -g " PLAIN " -fno-asynchronous-unwind-tables -c plain.c more.c && "
		 "gcc -nostdlib -static plain.o more.o -o plain"));
	compare("plain");
	for (uint32_t type = 1; type <= 2; type++) {
		_cleanup_close_ int fd = -1;

		must(run("cp plain packed"));
		fd = open_file("packed", O_RDWR);
		compress_section(fd, ".debug_frame", type);
		compare_tables("packed", "plain");
	}
	/* A part of the code is described there, the rest in .eh_frame. */
	must(run("gcc " PLAIN " -c more.c && gcc -nostdlib -static plain.o more.o -o mixed"));
	compare("mixed");
	compare_functions("mixed", "plain");
}

/* Without section headers the program headers lead to the same. */
static void no_sections(void **state)
{
	_cleanup_close_ int fd = -1;
	Elf64_Ehdr e;

	write_file("calls.c", calls_c);
	/* Without the start files, whose code is known by its sections. */
	must(run("gcc -O2 -shared -fPIC -nostartfiles calls.c -o whole && cp whole bare"));
	fd = open_file("bare", O_RDWR);
	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	e.e_shoff = 0;
	e.e_shnum = e.e_shstrndx = 0;
	assert_int_equal(pwrite(fd, &e, sizeof(e), 0), sizeof(e));
	compare("bare");
	compare_tables("bare", "whole");
}

/* What .eh_frame_hdr sorts, and what is sorted here. */
static void sorted_here(void **state)
{
	_cleanup_close_ int fd = -1;
	uint64_t at;
	uint8_t none = DW_EH_PE_omit;

	write_file("throws.cc", throws_cc);
	must(run("g++ -O2 throws.cc -o whole && cp whole unsorted"));
	fd = open_file("unsorted", O_RDWR);
	at = header_offset(fd);
	assert_int_equal(pwrite(fd, &none, 1, (off_t)at + 3), 1);
	compare_tables("unsorted", "whole");
	/* A header whose order is wrong is not used. */
	must(run("cp whole unsorted"));
	close_fd(fd);
	fd = open_file("unsorted", O_RDWR);
	assert_int_equal(pwrite(fd, "\x7f\xff\xff\x7f", 4, (off_t)at + 12), 4);
	compare_tables("unsorted", "whole");
}

/* ---- code without call frame information ------------------------------------------------------- */

static const char bare_s[] =
	".text\n.globl _start, inner, handler, restorer\n"
	"handler: .cfi_startproc\n nop\n ret\n.cfi_endproc\n.fill 30, 1, 0x90\n"
	"restorer: mov $15, %rax\n syscall\n.fill 13, 1, 0x90\n"
	"restorer2: mov $15, %eax\n syscall\n.fill 20, 1, 0x90\n"
	"_start: xor %ebp, %ebp\n call inner\n hlt\n.fill 100, 1, 0x90\n"
	"inner: .cfi_startproc\n ret\n.cfi_endproc\n";

static void known_by_code(void **state)
{
	_cleanup_free_ struct table *t = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t start, at;

	write_file("bare.s", bare_s);
	if (!run("gcc -nostdlib -static -no-pie bare.s -o bare")) {
		print_message("left out: code for another machine\n");
		return;
	}
	fd = open_file("bare", O_RDONLY);
	assert_int_equal(table_compile(fd, &t), 0);
	start = nm_address("bare", "_start");
	assert_int_equal(rule_at(t, start - 1), UNWIND_NONE);
	assert_int_equal(rule_at(t, start), UNWIND_END);
	assert_int_equal(rule_at(t, start + 63), UNWIND_END);
	assert_int_equal(rule_at(t, start + 64), UNWIND_NONE);
	at = nm_address("bare", "restorer");
	assert_int_equal(rule_at(t, at - 2), UNWIND_NONE);
	assert_int_equal(rule_at(t, at - 1), UNWIND_SIGNAL);
	assert_int_equal(rule_at(t, at + 8), UNWIND_SIGNAL);
	assert_int_equal(rule_at(t, at + 9), UNWIND_NONE);
	at = nm_address("bare", "restorer2");
	assert_int_equal(rule_at(t, at - 2), UNWIND_NONE);
	assert_int_equal(rule_at(t, at - 1), UNWIND_SIGNAL);
	assert_int_equal(rule_at(t, at + 6), UNWIND_SIGNAL);
	assert_int_equal(rule_at(t, at + 7), UNWIND_NONE);
	assert_int_equal(rule_at(t, nm_address("bare", "handler")), UNWIND_SP);
	assert_int_equal(rule_at(t, nm_address("bare", "inner")), UNWIND_SP);
}

/* bfd describes its tables: the same must be known without that. */
static void linkage_tables(void **state)
{
	static const char *const flags[] = { "-fcf-protection=none -Wl,-z,lazy",
					     "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy",
					     "-Wl,-z,now" };
	static const char *const names[] = { ".plt", ".plt.sec", ".plt.got" };
	int n = 0;

	write_file("calls.c", calls_c);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		_cleanup_close_ int told = -1, untold = -1;
		_cleanup_free_ struct table *t = NULL, *u = NULL;

		must(run("gcc -O1 -fuse-ld=bfd %s calls.c -o told && "
			 "gcc -O1 -fuse-ld=bfd %s -Wl,--no-ld-generated-unwind-info calls.c -o "
			 "untold",
			 flags[i], flags[i]));
		told = open_file("told", O_RDONLY);
		untold = open_file("untold", O_RDONLY);
		assert_int_equal(table_compile(told, &t), 0);
		assert_int_equal(table_compile(untold, &u), 0);
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			Elf64_Shdr s = find_section(told, names[k], NULL),
				   v = find_section(untold, names[k], NULL);

			assert_int_equal(s.sh_size, v.sh_size);
			for (uint64_t at = 0; at < s.sh_size; at++, n++)
				compare_rules(t, s.sh_addr + at, u, v.sh_addr + at);
		}
	}
	assert_true(n > 0);
}

static void start_files(void **state)
{
	static const char *const names[] = { ".init", ".fini" };
	_cleanup_free_ struct table *t = NULL;
	_cleanup_close_ int fd = -1;

	write_file("calls.c", calls_c);
	must(run("gcc -O1 calls.c -o started"));
	fd = open_file("started", O_RDONLY);
	assert_int_equal(table_compile(fd, &t), 0);
	for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
		Elf64_Shdr s = find_section(fd, names[k], NULL);
		uint8_t code[64] = {};
		int pushed = 0;

		assert_true(s.sh_size && s.sh_size < sizeof(code));
		assert_int_equal(pread(fd, code, s.sh_size, (off_t)s.sh_offset), s.sh_size);
		for (uint64_t at = 0; at < s.sh_size; at++) {
			const struct unwind_rule *r =
				table_find(t, (uint32_t)(s.sh_addr + at - t->base));

			/* Behind the only instruction of its kind. */
			if (at >= 4 && memcmp(code + at - 4, "\x48\x83\xec\x08", 4) == 0)
				pushed = 8;
			if (at >= 4 && memcmp(code + at - 4, "\x48\x83\xc4\x08", 4) == 0)
				pushed = 0;
			assert_int_equal(r->cfa, UNWIND_SP);
			assert_int_equal(r->cfa_off, 8 + pushed);
		}
	}
}

/* Neither lld nor static programs have information for theirs. */
static void untold_linkage_tables(void **state)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ struct table *t = NULL, *u = NULL;
	Elf64_Shdr s;

	write_file("calls.c", calls_c);
	must(run("gcc -O1 -static calls.c -o fixed"));
	fd = open_file("fixed", O_RDONLY);
	s = find_section(fd, ".plt", NULL);
	assert_int_equal(table_compile(fd, &t), 0);
	if (s.sh_size) /* IFUNCs of memcpy() and its like */
		assert_int_equal(rule_at(t, s.sh_addr + s.sh_size / 2), UNWIND_SP);
	close_fd(fd);
	write_file("far.c", "int far(int x); int f(int x) { return far(x) + far(x + 1); }\n");
	if (!run("clang --target=aarch64-linux-gnu -O2 -fPIC -c far.c -o far.o && "
		 "ld.lld -shared --eh-frame-hdr far.o -o far.so")) {
		print_message("left out: arm64\n");
		fd = -1;
		return;
	}
	fd = open_file("far.so", O_RDONLY);
	s = find_section(fd, ".plt", NULL);
	assert_true(s.sh_size >= 48);
	assert_int_equal(table_compile(fd, &u), 0);
	for (uint64_t at = 0; at < s.sh_size; at += 4) {
		const struct unwind_rule *r = table_find(u, (uint32_t)(s.sh_addr + at - u->base));

		assert_int_equal(r->cfa, UNWIND_SP);
		assert_int_equal(r->cfa_off, at >= 4 && at < 32 ? 16 : 0);
		assert_int_equal(r->ra, at >= 4 && at < 32 ? UNWIND_AT_CFA : UNWIND_SAME);
	}
}

/* 300 MB of constants in the segment of the code. */
static void large_segment(void **state)
{
	_cleanup_close_ int fd = -1;
	Elf64_Ehdr e;
	Elf64_Phdr p;

	write_file("large.s",
		   ".text\n.globl _start\n_start: .cfi_startproc\n nop\n ret\n.cfi_endproc\n");
	write_file("large.ld", "ENTRY(_start) PHDRS { a PT_LOAD FLAGS(5); }\n"
			       "SECTIONS { . = 0x400000 + SIZEOF_HEADERS; .text : { *(.text) } :a\n"
			       ".eh_frame : { *(.eh_frame) } :a }\n");
	must(run("as large.s -o large.o && ld --build-id=none -T large.ld large.o -o large"));
	fd = open_file("large", O_RDWR);
	assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
	assert_int_equal(pread(fd, &p, sizeof(p), (off_t)e.e_phoff), sizeof(p));
	p.p_filesz = p.p_memsz = 300 << 20;
	assert_int_equal(pwrite(fd, &p, sizeof(p), (off_t)e.e_phoff), sizeof(p));
	assert_int_equal(ftruncate(fd, (off_t)(p.p_offset + p.p_filesz)), 0);
	compare("large");
}

/* Go's own information has it that the runtime's assembly code never leaves its stack. */
static void go_runtime(void **state)
{
	static const struct {
		const char *name;
		uint8_t cfa;
	} functions[] = {
		{ "runtime.goexit.abi0", UNWIND_END },
		{ "runtime.systemstack.abi0", UNWIND_END },
		{ "runtime.mcall", UNWIND_END },
		{ "runtime.asmcgocall.abi0", UNWIND_UNSUPPORTED },
		{ "main.main", UNWIND_SP },
		{ "runtime.mallocgc", UNWIND_SP },
	};
	_cleanup_free_ struct table *t = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t at;

	write_file("x.go", "package main\nfunc main() { println(len(make([]int, 9))) }\n");
	if (!run("HOME=$PWD GOFLAGS=-mod=mod GO111MODULE=off go build -o gone x.go")) {
		print_message("left out: Go\n");
		return;
	}
	fd = open_file("gone", O_RDONLY);
	assert_int_equal(table_compile(fd, &t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		at = nm_address("gone", functions[i].name);
		assert_int_equal(rule_at(t, at), functions[i].cfa);
	}
	if (t->machine != EM_X86_64)
		return;
	if (!run("nm gone | grep -q 'sigreturn__sigaction'"))
		at = nm_address("gone", "runtime.sigreturn.abi0");
	else
		at = nm_address("gone", "runtime.sigreturn__sigaction.abi0");
	assert_int_equal(rule_at(t, at - 1), UNWIND_SIGNAL);
	assert_int_equal(rule_at(t, at), UNWIND_SIGNAL);
	assert_int_not_equal(rule_at(t, at - 2), UNWIND_SIGNAL);
}

static void several_segments(void **state)
{
	_cleanup_free_ struct table *t = NULL;
	_cleanup_close_ int fd = -1;

	write_file("two.c", "int g(int *p);\n"
			    "__attribute__((section(\".far\"))) int f(int x) { int a[9]; return "
			    "g(a) + a[x]; }\n"
			    "int g(int *p) { return *p + 1; }\nvoid _start(void) { f(1); }\n");
	write_file("two.ld",
		   "ENTRY(_start) PHDRS { a PT_LOAD FLAGS(5); b PT_LOAD FLAGS(5); c PT_LOAD "
		   "FLAGS(4); }\n"
		   "SECTIONS { . = 0x400000 + SIZEOF_HEADERS; .text : { *(.text*) } :a\n"
		   " . = 0x900000 + 0x10; .far : { *(.far) } :b\n . = 0xa00000; .eh_frame : { "
		   "*(.eh_frame) } :c }\n");
	must(run("gcc -O1 -fno-inline -ffreestanding -nostdlib -static -no-pie -fno-pie "
		 "-Wl,--build-id=none -Wl,-T,two.ld two.c -o two"));
	fd = open_file("two", O_RDONLY);
	assert_int_equal(table_compile(fd, &t), 0);
	assert_int_equal(t->n_segments, 2);
	assert_int_equal(rule_at(t, nm_address("two", "f")), UNWIND_SP);
	assert_int_equal(rule_at(t, nm_address("two", "g")), UNWIND_SP);
	assert_int_equal(rule_at(t, 0x800000), UNWIND_NONE);
	compare("two");
}

/* ------------------------------------------------------------------------------------------------ */

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test-unwind-truth-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	return remove(path);
}

static int clean_up(void **state)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(installed),
		cmocka_unit_test(vdso),
		cmocka_unit_test(built),
		cmocka_unit_test(other_machine),
		cmocka_unit_test(debug_frame),
		cmocka_unit_test(no_sections),
		cmocka_unit_test(sorted_here),
		cmocka_unit_test(known_by_code),
		cmocka_unit_test(linkage_tables),
		cmocka_unit_test(untold_linkage_tables),
		cmocka_unit_test(start_files),
		cmocka_unit_test(go_runtime),
		cmocka_unit_test(several_segments),
		cmocka_unit_test(large_segment),
	};

	/* Any file, by hand. */
	for (int i = 1; i < argc; i++)
		compare_file(argv[i]);
	return argc > 1 ? 0 : cmocka_run_group_tests(tests, set_up, clean_up);
}
