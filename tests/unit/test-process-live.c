// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The process table against the real kernel: side-band records, /proc of real processes. Skips, with its
 * reason, where perf_event_open is not permitted.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/process.h"
#include "model/profile.h"

static struct process_table *table;

static uint64_t boot_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static int setup(void **state)
{
	struct process_options o = { .side_band = true };
	int r = process_table_new(&o, &table);

	if (r == -EACCES || r == -EPERM) {
		print_message("skipped: perf_event_open needs CAP_PERFMON\n");
		return 0;
	}
	return r;
}

static int teardown(void **state)
{
	table = process_table_free(table);
	return 0;
}

static void require_table(void)
{
	if (!table)
		skip();
}

/* The start time of a process as the kernel's programs see it, to the tick: its middle. */
static uint64_t start_of(pid_t pid)
{
	char path[64];
	_cleanup_(strbuf_done) struct strbuf text = {};
	unsigned long long ticks;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	assert_int_equal(read_file_at(AT_FDCWD, path, 4096, &text), 0);
	assert_int_equal(sscanf(strrchr(text.data, ')') + 2,
				"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
				"%*d %*d %*d %llu",
				&ticks),
			 1);
	return ticks * (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK)) + 5 * NSEC_PER_MSEC;
}

static pid_t spawn(char *const argv[])
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(127);
	}
	return pid;
}

static void finish(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void pause_ms(unsigned ms)
{
	usleep(ms * 1000);
}

/* Code of our own is found, with its file and offset. */
static void test_self(void **state)
{
	struct process_labels l;
	struct binary_ref b;
	struct process *p;
	uint64_t offset;
	_cleanup_close_ int fd = -1;
	struct stat st, self;

	require_table();
	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)getpid(), start_of(getpid()));
	assert_non_null(p);
	process_labels(p, &l);
	assert_string_equal(l.comm, "test-process-li");
	assert_non_null(strstr(l.exe, "test-process-live"));
	assert_int_equal(l.uid, getuid());
	assert_false(l.kernel_thread);
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)test_self, &b, &offset);
	assert_int_equal(b.kind, BINARY_ELF);
	assert_string_equal(b.name, "test-process-live");
	assert_string_equal(b.build_id, l.build_id);
	fd = process_table_open_binary(table, b.key);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(stat("/proc/self/exe", &self), 0);
	assert_int_equal(st.st_ino, self.st_ino);
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)malloc, &b, &offset);
	assert_int_equal(b.kind, BINARY_ELF);
	/* An address that is nowhere: once more or a thousand times, it is unknown. */
	process_resolve(p, mono_now_ns(), 0x10, &b, &offset);
	assert_int_equal(b.kind, BINARY_UNKNOWN);
	assert_int_equal(offset, 0x10);
}

static int global_word = 1;
static int zero_word;

static void test_data(void **state)
{
	struct binary_ref b;
	struct process *p;
	uint64_t offset;
	bool shared;
	int *page;

	require_table();
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(page != MAP_FAILED);
	p = process_find(table, (uint32_t)getpid(), start_of(getpid()));
	process_resolve_data(p, (uint64_t)(uintptr_t)&global_word, &b, &offset, &shared);
	assert_string_equal(b.name, "test-process-live");
	assert_false(shared);
	process_resolve_data(p, (uint64_t)(uintptr_t)&zero_word, &b, &offset, &shared);
	assert_string_equal(b.name, "test-process-live");
	process_resolve_data(p, (uint64_t)(uintptr_t)page, &b, &offset, &shared);
	assert_true(shared);
	munmap(page, 4096);
}

/* A process that has come and gone between two polls is known from records alone. */
static void test_short_lived(void **state)
{
	char *const argv[] = { (char *)"/bin/true", NULL };
	struct process_labels l, ours;
	uint64_t mono, start;
	struct binary_ref b;
	struct process *p;
	uint64_t offset;
	pid_t pid;

	require_table();
	assert_int_equal(process_table_poll(table), 0);
	start = boot_now_ns(); /* a moment too early, which no other process of that number can be */
	mono = mono_now_ns();
	pid = spawn(argv);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	pause_ms(5);
	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)getpid(), start_of(getpid()));
	process_labels(p, &ours);
	p = process_find(table, (uint32_t)pid, start);
	process_labels(p, &l);
	assert_string_equal(l.comm, "true");
	assert_non_null(strstr(l.exe, "/true"));
	assert_string_equal(l.cgroup, ours.cgroup);
	assert_int_equal(l.uid, getuid());
	/* Before its exec it was us. */
	process_resolve(p, mono, (uint64_t)(uintptr_t)test_short_lived, &b, &offset);
	assert_string_equal(b.name, "test-process-live");
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)test_short_lived, &b, &offset);
	assert_int_equal(b.kind, BINARY_UNKNOWN);
	/* It is forgotten when the window is over, not before. */
	process_table_expire(table, mono);
	assert_ptr_equal(process_find(table, (uint32_t)pid, start), p);
	process_table_expire(table, mono_now_ns());
	p = process_find(table, (uint32_t)pid, start);
	process_labels(p, &l);
	assert_string_equal(l.comm, "[unknown]");
}

/* A running program is removed and another one put in its place: what runs is the old one. */
static void test_replaced_file(void **state)
{
	char path[] = "/tmp/sysprofd-test-XXXXXX", command[128];
	char *const argv[] = { path, (char *)"100", NULL };
	_cleanup_close_ int fd = -1, opened = -1;
	struct process_labels l;
	struct stat was, st;
	struct binary_ref b;
	struct process *p;
	uint64_t offset, address;
	pid_t pid;
	FILE *maps;

	require_table();
	fd = mkstemp(path);
	assert_true(fd >= 0);
	snprintf(command, sizeof(command), "cp /bin/sleep %s", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(fchmod(fd, 0755), 0);
	assert_int_equal(fstat(fd, &was), 0);
	fd = close_fd(fd);
	pid = spawn(argv);
	pause_ms(50);
	snprintf(command, sizeof(command), "rm %s && cp /bin/cat %s", path, path);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "/proc/%d/maps", pid);
	maps = fopen(command, "re");
	assert_non_null(maps);
	while (fgets(command, sizeof(command), maps) && !strstr(command, " r-xp"))
		;
	fclose(maps);
	address = strtoull(command, NULL, 16);

	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)pid, start_of(pid));
	process_labels(p, &l);
	assert_string_equal(l.exe, path);
	process_resolve(p, mono_now_ns(), address, &b, &offset);
	assert_string_equal(b.path, path);
	opened = process_table_open_binary(table, b.key);
	assert_true(opened >= 0);
	assert_int_equal(fstat(opened, &st), 0);
	assert_int_equal(st.st_ino, was.st_ino);
	assert_int_equal(st.st_nlink, 0);
	finish(pid);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_short_lived),
		cmocka_unit_test(test_replaced_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
