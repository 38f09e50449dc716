// SPDX-License-Identifier: GPL-2.0-or-later
/* Unwind tables on disk, and how the ends of walks are counted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/trim.h"
#include "unwind/cache.h"
#include "window/quality.h"

static char dir[] = "/tmp/test-unwind-cache.XXXXXX";

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static struct table *make_table(uint32_t rows)
{
	const struct table_segment s = { .offset = 0, .size = rows * 16UL, .pc = 0 };
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table *t = NULL;

	assert_int_equal(table_builder_new(62, 0, &b), 0);
	assert_int_equal(table_add_segment(b, &s), 0);
	for (uint32_t i = 0; i < rows; i++) {
		const struct unwind_rule r = { .cfa = UNWIND_SP,
					       .cfa_off = 8 + 8 * (int)(i % 3),
					       .ra = UNWIND_AT_CFA,
					       .ra_off = -8 };

		assert_int_equal(table_add_row(b, i * 16, &r), 0);
	}
	assert_int_equal(table_finish(b, &t), 0);
	return t;
}

static void known(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat a, b;

	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(fstat_known(fd, &b), 0);
	assert_int_equal(a.st_dev, b.st_dev);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(a.st_mode, b.st_mode);
	assert_int_equal(a.st_nlink, b.st_nlink);
	assert_int_equal(a.st_size, b.st_size);
	assert_memory_equal(&a.st_ctim, &b.st_ctim, sizeof(a.st_ctim));
	assert_int_equal(fstat_known(-1, &b), -EBADF);
}

static struct cache_name name_of(const char *path, int flags)
{
	_cleanup_close_ int fd = open(path, flags | O_CLOEXEC, 0600);
	struct cache_name n;

	assert_true(fd >= 0);
	assert_int_equal(cache_name(fd, &n), 0);
	return n;
}

static void test_cache(void **state)
{
	_cleanup_free_ struct table *t = make_table(1000);
	struct table *again = NULL;
	struct cache_name a, b;
	char path[64], other[128];
	uint8_t byte;
	int fd;

	snprintf(path, sizeof(path), "%s/binary", dir);
	a = name_of(path, O_RDWR | O_CREAT);
	assert_int_equal(cache_load(dir, &a, &again), -ENOENT);
	assert_int_equal(cache_load(NULL, &a, &again), -ENOENT);
	assert_int_equal(cache_store(dir, &a, t, 64 << 20), 0);
	assert_int_equal(cache_load(dir, &a, &again), 0);
	assert_memory_equal(again, t, t->bytes);
	free(again);
	again = NULL;

	/* A file that was replaced or changed is another one. */
	snprintf(other, sizeof(other), "echo changed >>%s", path);
	assert_int_equal(system(other), 0);
	b = name_of(path, O_RDONLY);
	assert_string_not_equal(a.text, b.text);
	assert_int_equal(cache_load(dir, &b, &again), -ENOENT);

	assert_int_equal(cache_store(dir, &b, t, t->bytes - 1), -ENOSPC);

	/* One that was damaged goes. */
	snprintf(other, sizeof(other), "%s/%s", dir, a.text);
	fd = open(other, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &byte, 1, 5000), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, 5000), 1);
	close(fd);
	assert_int_equal(cache_load(dir, &a, &again), -ENOENT);
	assert_int_equal(access(other, F_OK), -1);
	/* Torn, of another version, or a link to somewhere else. */
	assert_int_equal(cache_store(dir, &a, t, 64 << 20), 0);
	assert_int_equal(truncate(other, 3000), 0);
	assert_int_equal(cache_load(dir, &a, &again), -ENOENT);
	t->version++;
	assert_int_equal(cache_store(dir, &a, t, 64 << 20), 0);
	assert_int_equal(cache_load(dir, &a, &again), -ENOENT);
	t->version--;
	assert_int_equal(symlink("/etc/passwd", other), 0);
	assert_int_equal(cache_load(dir, &a, &again), -ENOENT);
	assert_null(again);
	unlink(other);
}

static void test_trim(void **state)
{
	_cleanup_free_ struct table *t = make_table(2000);
	struct cache_name n = {};
	struct table *again = NULL;
	char path[128];
	unsigned left = 0;

	for (int i = 0; i < 20; i++) {
		struct timespec used[2] = { { .tv_sec = 1000 + i }, { .tv_sec = 1000 + i } };

		snprintf(n.text, sizeof(n.text), "table%d", i);
		assert_int_equal(cache_store(dir, &n, t, 64 << 20), 0);
		snprintf(path, sizeof(path), "%s/%s", dir, n.text);
		assert_int_equal(utimensat(AT_FDCWD, path, used, 0), 0);
	}
	/* What was used last stays. */
	trim_directory(dir, 10 * t->bytes);
	for (int i = 0; i < 20; i++) {
		snprintf(n.text, sizeof(n.text), "table%d", i);
		if (cache_load(dir, &n, &again) == 0) {
			left++;
			assert_true(i >= 10);
			free(again);
			again = NULL;
		}
	}
	assert_true(left >= 7 && left <= 10);
}

static void test_quality(void **state)
{
	_cleanup_(quality_free_p) struct quality *q = NULL;
	struct binary_ref b = { .path = "/bin/x", .build_id = "ab" };
	struct quality_row *rows;
	uint64_t sum = 0;
	uint32_t first;
	size_t n;

	assert_int_equal(quality_new(&q), 0);
	b.key = 1;
	first = quality_row(q, &b);
	assert_int_not_equal(first, 0);
	assert_int_equal(quality_row(q, &b), first);
	quality_count(q, first, WALK_COMPLETE, false, 100000);
	quality_count(q, first, WALK_NO_ROW, true, 7);
	/* More binaries than there is room for: those with the fewest samples fold. */
	for (uint64_t i = 2; i < 5000; i++) {
		b.key = i;
		quality_count(q, quality_row(q, &b), WALK_NO_TABLE, false, 1);
		if (i % 100 == 0)
			quality_trim(q);
	}
	assert_int_equal(quality_rows(q, &rows, &n), 0);
	assert_true(n <= QUALITY_ROWS_MAX + 1);
	for (size_t i = 0; i < n; i++) {
		sum += rows[i].samples;
		if (rows[i].binary != 1)
			continue;
		assert_int_equal(rows[i].ends[WALK_COMPLETE], 100000);
		assert_int_equal(rows[i].ends[WALK_NO_ROW], 7);
		assert_int_equal(rows[i].frame_pointer, 7);
	}
	/* Nothing is lost, and what spoils most comes first. */
	assert_int_equal(sum, 100007 + 4998);
	assert_int_equal(rows[0].binary, 0);
	assert_string_equal(rows[0].path, "[other]");
	quality_rows_free(rows, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known),
		cmocka_unit_test(test_cache),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_quality),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
