/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that a test builds in a directory of its own, and what is expected of their symbols. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "symbol/elf.h"

static char dir[64];

/* ---- building ---------------------------------------------------------------------------------- */

static _unused_ bool run(const char *fmt, ...)
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

static _unused_ void must(bool ok)
{
	if (!ok) {
		run("cat log >&2");
		fail_msg("a test input could not be built, see %s/log", dir);
	}
}

static _unused_ void write_file(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static _unused_ int open_file(const char *name, int flags)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* What nm says about a file, asked once for each file that it is. */
static _unused_ const char *nm_output(const char *file)
{
	static struct strbuf text;
	static struct stat last;
	char command[512];
	struct stat st;
	FILE *f;

	snprintf(command, sizeof(command), "%s/%s", dir, file);
	assert_int_equal(stat(command, &st), 0);
	if (text.data && st.st_ino == last.st_ino && st.st_size == last.st_size &&
	    memcmp(&st.st_mtim, &last.st_mtim, sizeof(st.st_mtim)) == 0)
		return text.data;
	last = st;
	strbuf_reset(&text);
	snprintf(command, sizeof(command), "nm %s/%s", dir, file);
	f = popen(command, "re");
	assert_non_null(f);
	assert_true(read_fd(fileno(f), 64 << 20, &text) >= 0);
	pclose(f);
	return text.data ?: "";
}

static _unused_ uint64_t nm_address(const char *file, const char *symbol)
{
	uint64_t found = 0, address;
	char name[256];

	for (const char *line = nm_output(file); line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, "%lx %*c %255s", &address, name) == 2 && streq(name, symbol))
			found = address;
	}
	if (!found)
		fail_msg("%s has no symbol %s", file, symbol);
	return found;
}

static _unused_ uint64_t to_offset(int fd, uint64_t vaddr)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;

	assert_int_equal(pread_full(fd, &e, sizeof(e), 0), 0);
	for (int i = 0; i < e.e_phnum; i++) {
		assert_int_equal(pread_full(fd, &p, sizeof(p), e.e_phoff + (uint64_t)i * sizeof(p)),
				 0);
		if (p.p_type == PT_LOAD && vaddr >= p.p_vaddr && vaddr < p.p_vaddr + p.p_memsz)
			return vaddr - p.p_vaddr + p.p_offset;
	}
	fail_msg("no segment holds %lx", vaddr);
	return 0;
}

/* ---- expecting --------------------------------------------------------------------------------- */

static _unused_ const char *name_at(int fd, enum elf_want want, uint64_t offset)
{
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	static char name[ELF_NAME_MAX];

	assert_int_equal(elf_table_new(fd, -1, want, &t), 0);
	return elf_table_find(t, fd, -1, offset, name) ? name : "";
}

static _unused_ void expect_at(const char *file, uint64_t offset, const char *name)
{
	_cleanup_close_ int fd = open_file(file, O_RDONLY);

	assert_string_equal(name_at(fd, ELF_WANT_CODE, offset), name);
}

/* The address is looked up in `truth`, which may be the file before it was stripped or patched. */
static _unused_ void expect_symbol(const char *file, const char *truth, const char *symbol,
				   int64_t plus, const char *name)
{
	_cleanup_close_ int fd = open_file(truth, O_RDONLY);

	expect_at(file, to_offset(fd, nm_address(truth, symbol) + (uint64_t)plus), name);
}

static _unused_ void patch(const char *file, uint64_t offset, const void *data, size_t len)
{
	_cleanup_close_ int fd = open_file(file, O_RDWR);

	assert_int_equal(pwrite(fd, data, len, (off_t)offset), (ssize_t)len);
}

static _unused_ int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	return remove(path);
}

static _unused_ int group_setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test-elf.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static _unused_ int group_teardown(void **state)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
