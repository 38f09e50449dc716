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
#include <stdatomic.h>
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

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(null, 1);
		dup2(null, 2);
		execv(argv[0], argv);
		_exit(127);
	}
	return pid;
}

/* Until the child runs another program than ours. */
static void wait_exec(pid_t pid)
{
	char link[64], theirs[512] = "", ours[512] = "";

	assert_true(readlink("/proc/self/exe", ours, sizeof(ours) - 1) > 0);
	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	for (int i = 0; i < 5000; i++) {
		ssize_t n = readlink(link, theirs, sizeof(theirs) - 1);

		if (n > 0 && (theirs[n] = 0, !streq(theirs, ours)))
			break;
		usleep(1000);
	}
	usleep(20000); /* its libraries */
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

static uint64_t code_address(pid_t pid)
{
	char line[512];
	FILE *maps;

	snprintf(line, sizeof(line), "/proc/%d/maps", pid);
	maps = fopen(line, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) && !strstr(line, " r-xp"))
		;
	fclose(maps);
	return strtoull(line, NULL, 16);
}

/* A copy with a build-id of its own: the original may be running, too, and would be the same binary. */
static void copy_program(const char *from, int to)
{
	static const uint8_t note[] = { 4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0 };
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint64_t unique = mono_now_ns();
	char *at;

	assert_int_equal(read_file_at(AT_FDCWD, from, 64 << 20, &b), 0);
	at = memmem(b.data, b.len, note, sizeof(note));
	assert_non_null(at);
	memcpy(at + sizeof(note), &unique, sizeof(unique));
	assert_int_equal(write_full(to, b.data, b.len), 0);
	assert_int_equal(fchmod(to, 0755), 0);
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

	require_table();
	fd = mkstemp(path);
	assert_true(fd >= 0);
	copy_program("/bin/sleep", fd);
	assert_int_equal(fstat(fd, &was), 0);
	fd = close_fd(fd);
	pid = spawn(argv);
	wait_exec(pid);
	snprintf(command, sizeof(command), "rm %s && cp /bin/cat %s", path, path);
	assert_int_equal(system(command), 0);
	address = code_address(pid);

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

/* A program without a name in any directory. */
static void test_memfd(void **state)
{
	_cleanup_close_ int opened = -1;
	struct process_labels l;
	struct binary_ref b;
	struct process *p;
	uint64_t offset;
	struct stat st;
	pid_t pid;
	int fd;

	require_table();
	fd = memfd_create("evil\n", MFD_CLOEXEC);
	assert_true(fd >= 0);
	copy_program("/bin/tail", fd);
	assert_int_equal(fstat(fd, &st), 0);
	pid = fork();
	if (pid == 0) {
		char *const argv[] = { (char *)"x", (char *)"-f", (char *)"/dev/null", NULL };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fexecve(fd, argv, environ);
		_exit(127);
	}
	close(fd);
	wait_exec(pid);
	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)pid, start_of(pid));
	process_labels(p, &l);
	assert_string_equal(l.exe, "/memfd:evil?");
	process_resolve(p, mono_now_ns(), code_address(pid), &b, &offset);
	assert_string_equal(b.name, "memfd:evil?");
	assert_int_equal(b.kind, BINARY_ELF);
	opened = process_table_open_binary(table, b.key);
	assert_true(opened >= 0);
	assert_int_equal(fstat(opened, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	finish(pid);
}

/*
 * A program came and went, and a FIFO and then another program lie at its path: neither is taken for it, and
 * nothing waits.
 */
static void test_path_is_not_trusted(void **state)
{
	char dir[] = "/tmp/sysprofd-test-XXXXXX", path[64];
	char *const argv[] = { path, (char *)"100", NULL };
	struct process_options o = { .side_band = true, .max_fds = 1 };
	_cleanup_(process_table_free_p) struct process_table *t = NULL;
	_cleanup_close_ int fd = -1;
	struct binary_ref b, other;
	struct process *p;
	uint64_t offset, before;
	pid_t pid;

	require_table();
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/program", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	copy_program("/bin/sleep", fd);
	fd = close_fd(fd);
	assert_int_equal(process_table_new(&o, &t), 0);
	pid = spawn(argv);
	wait_exec(pid);
	assert_int_equal(process_table_poll(t), 0);
	p = process_find(t, (uint32_t)pid, start_of(pid));
	process_resolve(p, mono_now_ns(), code_address(pid), &b, &offset);
	assert_string_equal(b.path, path);
	finish(pid);
	/* The one descriptor that is kept goes to another binary. */
	p = process_find(t, (uint32_t)getpid(), start_of(getpid()));
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)malloc, &other, &offset);
	fd = process_table_open_binary(t, other.key);
	assert_true(fd >= 0);
	fd = close_fd(fd);

	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0777), 0);
	before = mono_now_ns();
	assert_true(process_table_open_binary(t, b.key) < 0);
	assert_true(mono_now_ns() - before < NSEC_PER_SEC);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void *wait_forever(void *arg)
{
	prctl(PR_SET_NAME, "worker");
	for (;;)
		pause();
	return NULL;
}

/* The main thread ends, another one goes on: the process lives and its code is known. */
static void test_main_thread_exits(void **state)
{
	struct binary_ref b;
	struct process *p;
	uint64_t offset, start;
	pid_t pid;

	require_table();
	pid = fork();
	if (pid == 0) {
		pthread_t th;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pthread_create(&th, NULL, wait_forever, NULL);
		usleep(20000);
		syscall(SYS_exit, 0);
	}
	pause_ms(100);
	start = start_of(pid);
	assert_int_equal(process_table_poll(table), 0);
	process_table_expire(table, mono_now_ns());
	p = process_find(table, (uint32_t)pid, start);
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)wait_forever, &b, &offset);
	assert_string_equal(b.name, "test-process-live");
	process_resolve(p, mono_now_ns(), 0x10, &b, &offset);
	process_resolve(p, mono_now_ns(), (uint64_t)(uintptr_t)wait_forever, &b, &offset);
	assert_string_equal(b.name, "test-process-live");
	finish(pid);
	pause_ms(5);
	assert_int_equal(process_table_poll(table), 0);
	process_table_expire(table, mono_now_ns());
	/* Now it is gone. */
	assert_ptr_not_equal(process_find(table, (uint32_t)pid, start + 1), NULL);
	assert_string_equal(process_thread_name(process_find(table, (uint32_t)pid, start),
						(uint32_t)pid),
			    "[unknown]");
}

static void *renamed(void *arg)
{
	atomic_int *step = arg;

	prctl(PR_SET_NAME, "first \xff");
	atomic_store(step, (int)syscall(SYS_gettid));
	while (atomic_load(step) != 0)
		usleep(1000);
	prctl(PR_SET_NAME, "second");
	atomic_store(step, -1);
	while (atomic_load(step) != -2)
		usleep(1000);
	return NULL;
}

static void test_thread_names(void **state)
{
	atomic_int step = 1;
	struct process *p;
	pthread_t th;
	uint32_t tid;

	require_table();
	assert_int_equal(pthread_create(&th, NULL, renamed, &step), 0);
	while (atomic_load(&step) == 1)
		usleep(1000);
	tid = (uint32_t)atomic_load(&step);
	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)getpid(), start_of(getpid()));
	assert_string_equal(process_thread_name(p, tid), "first \xef\xbf\xbd");
	atomic_store(&step, 0);
	while (atomic_load(&step) != -1)
		usleep(1000);
	assert_int_equal(process_table_poll(table), 0);
	p = process_find(table, (uint32_t)getpid(), start_of(getpid()));
	assert_string_equal(process_thread_name(p, tid), "second");
	assert_string_equal(process_thread_name(p, (uint32_t)getpid()), "test-process-li");
	atomic_store(&step, -2);
	pthread_join(th, NULL);
}

#define MANY 1000

/* Runs a thousand processes that nobody could look at; returns how many of them are known. */
static int run_short_lived(void)
{
	char *const argv[] = { (char *)"/bin/true", NULL };
	static uint64_t start[MANY];
	static pid_t pids[MANY];
	struct process_labels l;
	int known = 0;

	for (int i = 0; i < MANY; i++) {
		start[i] = boot_now_ns();
		pids[i] = spawn(argv);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		if (i % 100 == 99)
			assert_int_equal(process_table_poll(table), 0);
	}
	for (int i = 0; i < MANY; i++) {
		process_labels(process_find(table, (uint32_t)pids[i], start[i]), &l);
		known += streq(l.comm, "true") && strstr(l.exe, "/true");
	}
	process_table_expire(table, mono_now_ns());
	return known;
}

static void test_many_short_lived(void **state)
{
	struct process_stats before, after;
	int known = 0;

	require_table();
	/* A CPU that another test takes offline meanwhile takes its records with it; that is noticed. */
	for (int attempt = 0; attempt < 5 && known < MANY; attempt++) {
		assert_int_equal(process_table_poll(table), 0);
		process_table_expire(table, mono_now_ns());
		process_table_stats(table, &before);
		known = run_short_lived();
		process_table_stats(table, &after);
		if (after.resyncs == before.resyncs)
			break;
	}
	assert_int_equal(known, MANY);
	assert_int_equal(after.side_band_lost, before.side_band_lost);
	assert_true(after.bytes < before.bytes + (1 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_short_lived),
		cmocka_unit_test(test_replaced_file),
		cmocka_unit_test(test_memfd),
		cmocka_unit_test(test_path_is_not_trusted),
		cmocka_unit_test(test_main_thread_exits),
		cmocka_unit_test(test_thread_names),
		cmocka_unit_test(test_many_short_lived),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
