// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "collect/procfs.h"

#define TAIL " S 1 2 3 4 5 4194560 7 8 9 10 11 12 13 14 15 16 17 0 12345 99 100\n"

static void check_stat(const char *comm, size_t comm_len)
{
	char text[512];
	struct proc_stat st;
	size_t n = (size_t)snprintf(text, sizeof(text), "42 (");

	memcpy(text + n, comm, comm_len);
	n += comm_len;
	n += (size_t)snprintf(text + n, sizeof(text) - n, ")%s", TAIL);
	assert_int_equal(proc_parse_stat(text, n, &st), 0);
	assert_int_equal(st.pid, 42);
	assert_int_equal(st.comm_len, MIN(comm_len, (size_t)PROC_COMM_MAX));
	assert_memory_equal(st.comm, comm, st.comm_len);
	assert_int_equal(st.state, 'S');
	assert_int_equal(st.threads, 17);
	assert_int_equal(st.start_ticks, 12345);
	assert_false(st.kernel_thread);
	assert_false(st.exiting);
}

static void test_stat(void **state)
{
	char longer[200];

	memset(longer, 'x', sizeof(longer));
	check_stat("cat", 3);
	check_stat("", 0);
	check_stat(") ", 2);
	check_stat("a) S 1 (b", 9);
	check_stat("new\nline", 8);
	check_stat("\xff\xfe(", 3);
	check_stat("kworker/u257:3-events_unbound", 29);
	check_stat(longer, sizeof(longer));
}

static void test_stat_flags(void **state)
{
	static const char kthread[] =
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0\n";
	static const char exiting[] = "2 (x) Z 0 0 0 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0\n";
	struct proc_stat st;

	assert_int_equal(proc_parse_stat(kthread, sizeof(kthread) - 1, &st), 0);
	assert_true(st.kernel_thread);
	assert_int_equal(proc_parse_stat(exiting, sizeof(exiting) - 1, &st), 0);
	assert_true(st.exiting);
	assert_int_equal(st.threads, 1);
}

/* Every shorter text is refused or means the same; nothing is read behind its end. */
static void test_stat_cut(void **state)
{
	static const char text[] = "42 (a b)" TAIL;
	struct proc_stat st;

	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		_cleanup_free_ char *copy = malloc(n ?: 1);

		assert_non_null(copy);
		memcpy(copy, text, n);
		if (proc_parse_stat(copy, n, &st) == 0)
			assert_true(n > (size_t)(strstr(text, "12345") - text));
	}
	assert_int_equal(proc_parse_stat(")42 (", 5, &st), -EBADMSG);
	assert_int_equal(proc_parse_stat("99999999999999999999 (a)" TAIL, 40, &st), -EBADMSG);
}

static void test_status(void **state)
{
	struct proc_status st;

	assert_int_equal(
		proc_parse_status("Name:\tUid:\\n\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t5\n",
				  &st),
		0);
	assert_int_equal(st.uid, 1000);
	assert_int_equal(st.euid, 0);
	assert_int_equal(proc_parse_status("Name:\tUid:\n", &st), -EBADMSG);
	assert_int_equal(proc_parse_status("Uid:\t-1\t0\n", &st), -EBADMSG);
	assert_int_equal(proc_parse_status("Uid:\t4294967296\t0\n", &st), -EBADMSG);
	assert_int_equal(proc_parse_status("Uid:\t4294967295\t4294967295", &st), 0);
	assert_int_equal(proc_parse_status("", &st), -EBADMSG);
}

static void check_map(const char *line, uint64_t dev, const char *path, bool deleted)
{
	struct proc_map m;

	assert_int_equal(proc_parse_map(line, strlen(line), &m), 0);
	assert_int_equal(m.start, 0x7f0000001000);
	assert_int_equal(m.end, 0x7f0000003000);
	assert_int_equal(m.offset, 0x1b000);
	assert_int_equal(m.dev, dev);
	assert_int_equal(m.path_len, strlen(path));
	assert_memory_equal(m.path, path, m.path_len);
	assert_int_equal(m.deleted, deleted);
}

#define RANGE "7f0000001000-7f0000003000 r-xp 0001b000 "

static void test_map(void **state)
{
	check_map(RANGE "08:01 131 /usr/lib/libc.so.6", makedev(8, 1), "/usr/lib/libc.so.6", false);
	check_map(RANGE "103:03 131                 /a b c", makedev(0x103, 3), "/a b c", false);
	check_map(RANGE "fff:fffff 131 /x", makedev(0xfff, 0xfffff), "/x", false);
	check_map(RANGE "00:00 0 ", 0, "", false);
	check_map(RANGE "00:00 0", 0, "", false);
	check_map(RANGE "00:00 0                  [vdso]", 0, "[vdso]", false);
	check_map(RANGE "00:01 7 /memfd:evil (deleted)", makedev(0, 1), "/memfd:evil", true);
	check_map(RANGE "00:01 7 /x (deleted) (deleted)", makedev(0, 1), "/x (deleted)", true);
	check_map(RANGE "00:01 7 [x] (deleted)", makedev(0, 1), "[x] (deleted)", false);
	check_map(RANGE "00:01 7 /a\\012b", makedev(0, 1), "/a\\012b", false);
}

static void test_map_bits(void **state)
{
	static const char shared[] = "1000-2000 -w-s 00000000 00:05 1 /dev/shm/x";
	static const char vsyscall[] =
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
	struct proc_map m;

	assert_int_equal(proc_parse_map(shared, strlen(shared), &m), 0);
	assert_true(m.shared && m.write && !m.exec);
	assert_int_equal(proc_parse_map(vsyscall, strlen(vsyscall), &m), 0);
	assert_true(m.exec && !m.write && !m.shared);
}

static void test_map_malformed(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"1000",
		"1000-",
		"1000-2000",
		"1000-2000 r-x",
		"1000-2000 r-xp",
		"2000-1000 r-xp 00000000 00:00 0",
		"1000-1000 r-xp 00000000 00:00 0",
		"1000-2000 r-xp 00000000 00 0",
		"1000-2000 r-xp 00000000 00:00 ",
		"1000-2000 r-xp zz 00:00 0",
		"11112222333344445-2 r-xp 00000000 00:00 0",
		"1000-2000 r-xp 00000000 100000000:00 0",
	};
	struct proc_map m;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(proc_parse_map(bad[i], strlen(bad[i]), &m), -EBADMSG);
}

/* ---- readers on a tree of our own ----------------------------------------------------------------------- */

static char root[] = "/tmp/sysprofd-procfs-XXXXXX";
static int root_fd = -1;

static int setup(void **state)
{
	if (!mkdtemp(root))
		return -1;
	root_fd = proc_open(root);
	return root_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	char command[128];

	close_fd(root_fd);
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static int put(const char *dir, const char *name, const char *data, size_t len)
{
	_cleanup_close_ int dir_fd = -1, fd = -1;

	mkdirat(root_fd, dir, 0755);
	dir_fd = openat(root_fd, dir, O_PATH | O_DIRECTORY);
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, data, len), 0);
	return proc_open_pid(root_fd, (uint32_t)atoi(dir));
}

struct seen {
	unsigned n, anonymous, exec;
	size_t longest;
};

static int count(void *ctx, const struct proc_map *m)
{
	struct seen *s = ctx;

	s->n++;
	s->anonymous += m->path_len == 0;
	s->exec += m->exec;
	s->longest = MAX(s->longest, m->path_len);
	return 0;
}

static void test_each_map(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	_cleanup_close_ int fd = -1;
	struct seen s = {};

	for (unsigned i = 0; i < 3000; i++) {
		unsigned start = 0x1000 + i * 0x2000;

		/* A line without a path must not swallow the next one. */
		strbuf_printf(&text, "%x-%x rw-p 00000000 00:00 0 \n", start, start + 0x1000);
		strbuf_printf(&text, "%x-%x r-xp 00000000 103:03 7 ", start + 0x1000,
			      start + 0x2000);
		for (unsigned k = 0; k < i % 200; k++)
			strbuf_puts(&text, "/dir");
		strbuf_puts(&text, "/f\n");
	}
	strbuf_puts(&text, "garbage\n");
	strbuf_puts(&text, "f0000000-f0001000 r-xp 00000000 00:00 0 /");
	for (unsigned i = 0; i < 4095; i++)
		strbuf_puts(&text, "\\012");
	strbuf_puts(&text, "\n");
	assert_int_equal(strbuf_error(&text), 0);
	fd = put("7", "maps", text.data, text.len);
	assert_int_equal(proc_each_map(fd, count, &s), 6001);
	assert_int_equal(s.n, 6001);
	assert_int_equal(s.anonymous, 3000);
	assert_int_equal(s.exec, 3001);
	assert_int_equal(s.longest, 1 + 4095); /* newlines, which the kernel escapes */
}

static void test_each_map_hostile(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	_cleanup_close_ int endless = -1, empty = -1;
	struct seen s = {};

	for (unsigned i = 0; i < 200000; i++)
		strbuf_putc(&text, 'x');
	endless = put("8", "maps", text.data, text.len);
	assert_int_equal(proc_each_map(endless, count, &s), -EBADMSG);
	empty = put("9", "maps", "", 0);
	assert_int_equal(proc_each_map(empty, count, &s), 0);
	assert_int_equal(s.n, 0);
	assert_int_equal(proc_each_map(-1, count, &s), -EBADF);
}

static int sum(void *ctx, uint32_t pid)
{
	*(unsigned *)ctx += pid;
	return 0;
}

static void test_each_pid(void **state)
{
	unsigned total = 0;

	mkdirat(root_fd, "self", 0755);
	mkdirat(root_fd, "12x", 0755);
	mkdirat(root_fd, "0", 0755);
	mkdirat(root_fd, "99999999999", 0755);
	assert_int_equal(proc_each_pid(root_fd, ".", sum, &total), 0);
	assert_int_equal(total, 7 + 8 + 9);
}

static void test_boottime(void **state)
{
	assert_int_equal(
		proc_parse_boottime_offset(
			"monotonic           0         0\nboottime           0         0\n"),
		0);
	assert_int_equal(proc_parse_boottime_offset("monotonic  5 6\nboottime  -100  5\n"),
			 -100 * (int64_t)NSEC_PER_SEC + 5);
	assert_int_equal(proc_parse_boottime_offset("boottime"), 0);
	assert_int_equal(proc_parse_boottime_offset(""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat),
		cmocka_unit_test(test_stat_flags),
		cmocka_unit_test(test_stat_cut),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_map),
		cmocka_unit_test(test_map_bits),
		cmocka_unit_test(test_map_malformed),
		cmocka_unit_test(test_each_map),
		cmocka_unit_test(test_each_map_hostile),
		cmocka_unit_test(test_each_pid),
		cmocka_unit_test(test_boottime),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
