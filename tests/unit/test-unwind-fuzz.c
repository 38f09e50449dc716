// SPDX-License-Identifier: GPL-2.0-or-later
/* Without a fuzzer: its seeds, cut and changed, and ELF files that are built here, with changes where numbers lie. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>

#include "../tests/fuzz/fuzz-cfi.c"

#define SEEDS "tests/fuzz/cfi"
#define CHANGED 2000 /* files */

static char dir[64];
static uint32_t seed = 1;

static uint32_t any(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)seed * n) >> 32);
}

static void run_exactly(const char *data, size_t len)
{
	uint8_t *copy = malloc(len + !len);

	memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static void run_around(const struct strbuf *s)
{
	for (size_t i = 0; i <= s->len; i++)
		run_exactly(s->data, i);
	for (int how = 0; how < 16; how++)
		for (size_t i = 0; i < s->len; i++) {
			static const char bytes[] = { 0, 1, 0x7f, (char)0x80, (char)0xff };
			char old = s->data[i];

			for (size_t k = 0; k < sizeof(bytes); k++) {
				s->data[0] = (char)how;
				s->data[i] = bytes[k];
				run_exactly(s->data, s->len);
			}
			s->data[i] = old;
		}
}

static void seeds(void **state)
{
	DIR *d = opendir(SEEDS);
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		_cleanup_(strbuf_done) struct strbuf s = {};

		if (e->d_name[0] == '.')
			continue;
		assert_int_equal(read_file_at(dirfd(d), e->d_name, 1 << 20, &s), 0);
		run_around(&s);
		n++;
	}
	closedir(d);
	assert_true(n >= 3);
}

/* ---- files ------------------------------------------------------------------------------------- */

static bool build(const char *command, struct strbuf *ret)
{
	char line[1024], path[128];

	snprintf(line, sizeof(line), "cd %s && exec 2>>log && %s -o built", dir, command);
	snprintf(path, sizeof(path), "%s/built", dir);
	return system(line) == 0 && read_file_at(AT_FDCWD, path, 8 << 20, ret) == 0;
}

/* Where a number lies that matters: headers, and what sections and segments of frames occupy. */
static size_t interesting(const struct strbuf *s)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)s->data;
	const Elf64_Shdr *sh = (const Elf64_Shdr *)(s->data + e->e_shoff);
	const char *names = s->data + sh[e->e_shstrndx].sh_offset;

	switch (any(4)) {
	case 0:
		return any(sizeof(*e));
	case 1:
		return e->e_phoff + any((uint32_t)(e->e_phnum * sizeof(Elf64_Phdr)));
	case 2:
		return e->e_shoff + any((uint32_t)(e->e_shnum * sizeof(Elf64_Shdr)));
	default:
		for (;;) {
			const Elf64_Shdr *x = &sh[any(e->e_shnum)];

			if (x->sh_size && strstr(names + x->sh_name, "_frame"))
				return x->sh_offset + any((uint32_t)MIN(x->sh_size, 4096ULL));
		}
	}
}

/* Headers are looked up in the unchanged file. */
static void change(struct strbuf *s, const struct strbuf *whole)
{
	static const uint64_t numbers[] = { 0,	       1,	   0x7f,       0xff,
					    0xffff,    0x7fffffff, 0xffffffff, 0x100000000,
					    INT64_MAX, UINT64_MAX };
	size_t at = interesting(whole), size = (size_t)1 << any(4);
	uint64_t number = any(2) ? any(256) : numbers[any(ARRAY_SIZE(numbers))];

	memcpy(s->data + at, &number, MIN(s->len - at, size));
}

static void changed_files(void **state)
{
	static const char *const commands[] = {
		"gcc -O2 x.c",
		"gcc -O2 -static -nostdlib -fno-stack-protector x.c",
		"gcc -g -gz=zlib -fno-asynchronous-unwind-tables -static -nostdlib x.c",
		"clang --target=aarch64-linux-gnu -O2 -nostdlib -fuse-ld=lld -shared x.c",
	};
	struct strbuf files[ARRAY_SIZE(commands)] = {};
	char path[128];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/x.c", dir);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs("int g(int *p) { return *p; }\nint f(int n) { int a[n]; a[0] = n; return g(a) + n; "
	      "}\n"
	      "int main(void) { return f(3); }\nvoid __attribute__((weak)) _start(void) { f(1); "
	      "}\n",
	      f);
	fclose(f);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (build(commands[i], &files[n]))
			n++;
		else
			print_message("left out: %s\n", commands[i]);
	assert_true(n > 0);
	for (int i = 0; i < CHANGED; i++) {
		const struct strbuf *whole = &files[(size_t)i % n];
		_cleanup_(strbuf_done) struct strbuf s = {};

		strbuf_add(&s, whole->data, whole->len);
		for (uint32_t k = 1 + any(4); k > 0; k--)
			change(&s, whole);
		run_exactly(s.data, any(10) ? s.len : any((uint32_t)s.len));
	}
	for (size_t i = 0; i < n; i++)
		strbuf_done(&files[i]);
}

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test-unwind-fuzz-XXXXXX");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds),
		cmocka_unit_test(changed_files),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
