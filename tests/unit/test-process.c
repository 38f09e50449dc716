// SPDX-License-Identifier: GPL-2.0-or-later
/* The process table on a /proc of our own, with records made up here. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/table.h"

#define TICK (10 * NSEC_PER_MSEC)
#define CODE 0x400000ULL

static char root[] = "/tmp/sysprofd-process-XXXXXX";
static int root_fd = -1;
static struct process_table *table;

/* ---- the made-up /proc ------------------------------------------------------------------------------------ */

static void put(uint32_t pid, const char *name, const char *data, size_t len)
{
	_cleanup_close_ int dir = -1, fd = -1;
	char text[32];

	snprintf(text, sizeof(text), "%u", pid);
	mkdirat(root_fd, text, 0755);
	dir = openat(root_fd, text, O_PATH | O_DIRECTORY);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, data, len), 0);
}

static void puts_at(uint32_t pid, const char *name, const char *text)
{
	put(pid, name, text, strlen(text));
}

static void put_stat(uint32_t pid, const char *comm, char state, unsigned flags, unsigned threads,
		     uint64_t ticks)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "%u (%s) %c 1 1 1 0 -1 %u 0 0 0 0 0 0 0 0 20 0 %u 0 %llu 0 0\n", pid, comm, state,
		 flags, threads, (unsigned long long)ticks);
	puts_at(pid, "stat", text);
}

static void put_process(uint32_t pid, const char *comm, uint64_t ticks)
{
	char text[128];

	put_stat(pid, comm, 'S', 0, 1, ticks);
	snprintf(text, sizeof(text), "Name:\tx\nUid:\t%u\t%u\t%u\t%u\n", getuid(), getuid(),
		 getuid(), getuid());
	puts_at(pid, "status", text);
	puts_at(pid, "cgroup", "0::/system.slice/demo.service\n");
	puts_at(pid, "maps",
		"00400000-00401000 r--p 00000000 fd:01 11 /usr/bin/demo\n"
		"00401000-00405000 r-xp 00001000 fd:01 11 /usr/bin/demo\n"
		"00405000-00406000 rw-p 00005000 fd:01 11 /usr/bin/demo\n"
		"00406000-00408000 rw-p 00000000 00:00 0 \n"
		"00500000-00501000 rw-p 00000000 00:00 0 [heap]\n"
		"7f0000000000-7f0000010000 r-xp 00002000 103:03 12 /usr/lib/libx.so\n"
		"7f0000020000-7f0000021000 rwxp 00000000 00:00 0 \n"
		"7f0000030000-7f0000031000 rw-s 00000000 00:05 13 /dev/shm/words\n"
		"7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]\n");
}

static void put_exe(uint32_t pid, const char *target)
{
	char text[64];

	snprintf(text, sizeof(text), "%s/%u/exe", root, pid);
	unlink(text);
	assert_int_equal(symlink(target, text), 0);
}

static void clear_proc(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/*", root);
	assert_int_equal(system(command), 0);
}

static void start_table(uint32_t max_processes)
{
	struct process_options o = { .proc = root, .pods = root, .max_processes = max_processes };

	assert_int_equal(process_table_new(&o, &table), 0);
	assert_int_equal(snapshot_scan(table), 0);
	table->mono_to_boot_ns = 0;
}

static int setup(void **state)
{
	if (!mkdtemp(root))
		return -1;
	root_fd = proc_open(root);
	return root_fd < 0 ? -1 : 0;
}

static int end_test(void **state)
{
	table = process_table_free(table);
	clear_proc();
	return 0;
}

static int teardown(void **state)
{
	close_fd(root_fd);
	return rmdir(root);
}

/* ---- made-up records --------------------------------------------------------------------------------------- */

static void fork_event(uint32_t parent, uint32_t parent_tid, uint32_t pid, uint32_t tid,
		       uint64_t mono)
{
	struct sideband_event e = {
		.type = SIDEBAND_FORK,
		.mono_ns = mono,
		.pid = pid,
		.tid = tid,
		.parent = parent,
		.parent_tid = parent_tid,
	};

	event_apply(table, &e);
}

static void exit_event(uint32_t pid, uint32_t tid, uint64_t mono)
{
	struct sideband_event e = {
		.type = SIDEBAND_EXIT, .mono_ns = mono, .pid = pid, .tid = tid
	};

	event_apply(table, &e);
}

static void comm_event(uint32_t pid, uint32_t tid, const char *comm, bool exec, uint64_t mono)
{
	struct sideband_event e = {
		.type = SIDEBAND_COMM,
		.mono_ns = mono,
		.pid = pid,
		.tid = tid,
		.exec = exec,
		.text = comm,
		.text_len = strlen(comm),
	};

	event_apply(table, &e);
}

static void mmap_event(uint32_t pid, uint64_t start, const char *path, uint8_t id, uint64_t mono)
{
	struct sideband_event e = {
		.type = SIDEBAND_MMAP,
		.mono_ns = mono,
		.pid = pid,
		.tid = pid,
		.start = start,
		.len = 0x1000,
		.text = path,
		.text_len = strlen(path),
		.build_id = { id },
		.build_id_len = id ? 20 : 0,
	};

	event_apply(table, &e);
}

static void check_address(struct process *p, uint64_t mono, uint64_t address, const char *name,
			  uint64_t offset)
{
	struct binary_ref b;
	uint64_t off;

	process_resolve(p, mono, address, &b, &off);
	assert_string_equal(b.name, name);
	assert_int_equal(off, offset);
}

static struct process_labels labels_of(struct process *p)
{
	struct process_labels l;

	process_labels(p, &l);
	return l;
}

static struct process_stats stats(void)
{
	struct process_stats s;

	process_table_stats(table, &s);
	return s;
}

/* ---- what was there before ---------------------------------------------------------------------------------- */

static void test_existing(void **state)
{
	struct process_labels l;
	struct process *p;

	put_process(50, "demo", 1000);
	put_exe(50, "/usr/bin/demo (deleted)");
	start_table(0);
	p = process_find(table, 50, 1000 * TICK + 1234567);
	l = labels_of(p);
	assert_string_equal(l.comm, "demo");
	assert_string_equal(l.exe, "/usr/bin/demo");
	assert_string_equal(l.cgroup, "/system.slice/demo.service");
	assert_string_equal(l.unit, "demo.service");
	assert_string_equal(l.container, "");
	assert_int_equal(l.uid, getuid());
	assert_false(l.is_private);
	check_address(p, mono_now_ns(), 0x401010, "demo", 0x1010);
	check_address(p, mono_now_ns(), 0x7f0000000001, "libx.so", 0x2001);
	check_address(p, mono_now_ns(), 0x7f0000020008, "[anon]", 8);
	check_address(p, mono_now_ns(), 0x7ffc00000700, "[vdso]", 0x700);
	check_address(p, mono_now_ns(), 0x405000, "[unknown]", 0x405000);
	assert_ptr_equal(process_find(table, 50, 1000 * TICK + 1234567), p);
}

/* Names of all kinds come out as valid text. */
static void test_names(void **state)
{
	static const struct {
		const char *comm, *shown;
	} names[] = {
		{ ") ", ") " },
		{ "a (b) c", "a (b) c" },
		{ "x\ny\tz", "x?y?z" },
		{ "\xff"
		  "a",
		  "\xef\xbf\xbd"
		  "a" },
		{ "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put_process(100 + (uint32_t)i, names[i].comm, 5);
	put_stat(200, "kworker/u8:3-events_unbound", 'I', 0x00200000, 1, 5);
	put_stat(201, "kworker/0:1H+kblockd", 'I', 0x00200000, 1, 5);
	put_stat(202, "ksoftirqd/0", 'S', 0x00200000, 1, 5);
	start_table(0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_string_equal(
			labels_of(process_find(table, 100 + (uint32_t)i, 5 * TICK)).comm,
			names[i].shown);
	assert_string_equal(labels_of(process_find(table, 200, 5 * TICK)).comm, "kworker/u8:3");
	assert_string_equal(labels_of(process_find(table, 201, 5 * TICK)).comm, "kworker/0:1H");
	assert_string_equal(labels_of(process_find(table, 202, 5 * TICK)).comm, "ksoftirqd/0");
	assert_true(labels_of(process_find(table, 202, 5 * TICK)).kernel_thread);
	check_address(process_find(table, 202, 5 * TICK), 1, 0x400000, "[unknown]", 0x400000);
	assert_string_equal(labels_of(process_find(table, 0, 0)).comm, "swapper");
	assert_int_equal(stats().resyncs, 0);
}

/* One number, two processes: the start tells them apart, by the tick. */
static void test_reuse(void **state)
{
	struct process *old, *new, *ghost;

	put_process(50, "old", 1000);
	start_table(0);
	old = process_find(table, 50, 1000 * TICK + TICK - 1);
	assert_string_equal(labels_of(old).comm, "old");
	put_process(50, "new", 1001);
	new = process_find(table, 50, 1001 * TICK);
	assert_ptr_not_equal(old, new);
	assert_string_equal(labels_of(new).comm, "new");
	assert_ptr_equal(process_find(table, 50, 1000 * TICK + TICK - 1), old);
	check_address(old, mono_now_ns(), 0x401000, "demo", 0x1000);
	/* One between them that nobody saw is neither. */
	ghost = process_find(table, 50, 1000 * TICK + 5);
	assert_ptr_not_equal(ghost, old);
	assert_ptr_not_equal(ghost, new);
	assert_string_equal(labels_of(ghost).comm, "[unknown]");
	assert_ptr_equal(process_find(table, 50, 1001 * TICK), new);
	/* Nor is one that started in the same tick. */
	ghost = process_find(table, 50, 1001 * TICK + 5);
	assert_ptr_not_equal(ghost, new);
	assert_string_equal(labels_of(ghost).comm, "[unknown]");
	assert_ptr_equal(process_find(table, 50, 1001 * TICK), new);
	assert_string_equal(labels_of(new).comm, "new");
	process_table_expire(table, UINT64_MAX);
	assert_int_equal(stats().exited, 0);
	assert_int_equal(stats().processes, 1);
}

static void test_time_namespace(void **state)
{
	char path[128];

	put_process(50, "demo", 1000);
	snprintf(path, sizeof(path), "%s/self", root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/self/timens_offsets", root);
	{
		_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT, 0644);

		assert_int_equal(write_full(fd, "monotonic 0 0\nboottime 4 0\n", 27), 0);
	}
	start_table(0);
	assert_string_equal(labels_of(process_find(table, 50, 600 * TICK + 1)).comm, "demo");
	assert_string_equal(labels_of(process_find(table, 50, 1000 * TICK + 1)).comm, "[unknown]");
}

/* The main thread has gone: memory is reached through another one. */
static void test_main_thread_gone(void **state)
{
	char path[64];
	struct process *p;

	put_process(50, "demo", 1000);
	put_stat(50, "demo", 'Z', 0, 3, 1000);
	puts_at(50, "maps", "");
	put_process(51, "worker", 1000);
	put_exe(51, "/usr/bin/demo");
	for (unsigned tid = 50; tid <= 51; tid++) {
		snprintf(path, sizeof(path), "%s/50/task", root);
		mkdir(path, 0755);
		snprintf(path, sizeof(path), "%s/50/task/%u", root, tid);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	assert_string_equal(labels_of(p).exe, "/usr/bin/demo");
	check_address(p, mono_now_ns(), 0x401000, "demo", 0x1000);
	/* Its record of the main thread's exit is not the end of the process, that of the last thread is. */
	exit_event(50, 50, mono_now_ns());
	assert_int_equal(p->exit_mono_ns, 0);
	put_stat(50, "demo", 'Z', 0, 1, 1000);
	exit_event(50, 51, mono_now_ns());
	assert_true(p->exit_mono_ns > 0);
}

static void test_zombie(void **state)
{
	put_process(50, "demo", 1000);
	put_stat(50, "demo", 'Z', 4, 1, 1000);
	start_table(0);
	assert_int_equal(stats().processes, 0);
	process_table_expire(table, UINT64_MAX);
	assert_int_equal(stats().exited, 0);
}

static void test_loader(void **state)
{
	struct process *p;

	put_process(50, "ld-linux-x86-64", 1000);
	put_exe(50, "/lib/ld-linux-x86-64.so.2");
	puts_at(50, "maps",
		"00401000-00405000 r-xp 00001000 fd:01 20 /lib/libc.so.6\n"
		"00501000-00505000 r-xp 00001000 fd:01 21 /opt/app/server\n"
		"00601000-00605000 r-xp 00001000 fd:01 22 /lib/ld-linux-x86-64.so.2\n");
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	assert_string_equal(labels_of(p).exe, "/opt/app/server");
	assert_string_equal(labels_of(p).comm, "server");
	/* The same, told by records. */
	fork_event(50, 50, 60, 60, 20 * NSEC_PER_SEC);
	comm_event(60, 60, "ld-linux-x86-64", true, 20 * NSEC_PER_SEC + 10);
	mmap_event(60, CODE, "/lib/ld-linux-x86-64.so.2", 1, 20 * NSEC_PER_SEC + 20);
	mmap_event(60, 2 * CODE, "[vdso]", 0, 20 * NSEC_PER_SEC + 30);
	mmap_event(60, 3 * CODE, "/opt/other", 2, 20 * NSEC_PER_SEC + 40);
	mmap_event(60, 4 * CODE, "/lib/libc.so.6", 3, 20 * NSEC_PER_SEC + 50);
	p = process_find(table, 60, 20 * NSEC_PER_SEC - 1);
	assert_string_equal(labels_of(p).exe, "/opt/other");
	assert_string_equal(labels_of(p).comm, "other");
	assert_string_equal(labels_of(p).build_id, "0200000000000000000000000000000000000000");
}

static void test_private(void **state)
{
	put_process(50, "ping", 1000);
	puts_at(50, "status", "Name:\tping\nUid:\t1000\t0\t0\t0\n");
	/* Its files belong to somebody else: not dumpable. */
	put_process(51, "agent", 1000);
	puts_at(51, "status", "Name:\tagent\nUid:\t4242\t4242\t4242\t4242\n");
	start_table(0);
	assert_true(labels_of(process_find(table, 50, 1000 * TICK)).is_private);
	assert_int_equal(labels_of(process_find(table, 50, 1000 * TICK)).uid, 1000);
	assert_true(labels_of(process_find(table, 51, 1000 * TICK)).is_private);
}

/* ---- what records tell --------------------------------------------------------------------------------------- */

#define T0 (100 * NSEC_PER_SEC)

static void test_fork_exec_exit(void **state)
{
	struct process_labels l;
	struct process *p;

	put_process(50, "shell", 1000);
	put_exe(50, "/usr/bin/demo");
	start_table(0);
	fork_event(50, 50, 60, 60, T0);
	p = process_find(table, 60, T0 - 1000);
	l = labels_of(p);
	assert_string_equal(l.comm, "shell");
	assert_string_equal(l.exe, "/usr/bin/demo");
	assert_string_equal(l.unit, "demo.service");
	assert_int_equal(l.uid, getuid());
	check_address(p, T0 + 1, 0x401000, "demo", 0x1000);
	comm_event(60, 60, "git", true, T0 + 100);
	mmap_event(60, CODE, "/usr/bin/git", 7, T0 + 110);
	mmap_event(60, 2 * CODE, "//anon", 0, T0 + 120);
	exit_event(60, 60, T0 + 200);
	assert_int_equal(stats().exited, 1);
	assert_ptr_equal(process_find(table, 60, T0 - 1000), p);
	l = labels_of(p);
	assert_string_equal(l.comm, "git");
	assert_string_equal(l.exe, "/usr/bin/git");
	assert_string_equal(l.build_id, "0700000000000000000000000000000000000000");
	assert_string_equal(l.unit, "demo.service");
	/* Before and after its exec. */
	check_address(p, T0 + 99, 0x401000, "demo", 0x1000);
	check_address(p, T0 + 150, 0x401000, "[unknown]", 0x401000);
	check_address(p, T0 + 150, CODE + 5, "git", 5);
	check_address(p, T0 + 150, 2 * CODE + 5, "[anon]", 5);
	process_table_expire(table, T0 + 200);
	assert_ptr_equal(process_find(table, 60, T0 - 1000), p);
	process_table_expire(table, T0 + 201);
	assert_int_equal(stats().exited, 0);
	assert_int_equal(stats().processes, 1);
	/* The parent has learnt nothing of its child's mappings. */
	check_address(process_find(table, 50, 1000 * TICK), mono_now_ns(), 0x401000, "demo",
		      0x1000);
}

/* It execs all the time: the latest images are kept, and none stands in for one that is not. */
static void test_endless_exec(void **state)
{
	struct process *p;

	start_table(0);
	fork_event(1, 1, 50, 50, T0);
	p = process_find(table, 50, T0);
	for (uint32_t i = 1; i <= 1000; i++) {
		comm_event(50, 50, "again", true, T0 + 10 * i);
		mmap_event(50, CODE, "/usr/bin/again", (uint8_t)i, T0 + 10 * i + 1);
	}
	assert_int_equal(p->n_past, 64);
	assert_int_equal(stats().dropped_images, 1000 - 64);
	check_address(p, T0 + 10005, CODE + 5, "again", 5);
	check_address(p, T0 + 9365, CODE + 5, "again", 5);
	check_address(p, T0 + 9355, CODE + 5, "[unknown]", CODE + 5);
	process_table_expire(table, T0 + 20000);
	assert_int_equal(p->n_past, 0);
	check_address(p, T0 + 20001, CODE + 5, "again", 5);
}

/* An exec by a thread that is not the main one: the main one's exit comes first. */
static void test_exec_by_thread(void **state)
{
	struct process *p;

	start_table(0);
	put_process(50, "multi", 9000);
	fork_event(1, 1, 50, 50, 9000 * TICK);
	p = process_find(table, 50, 9000 * TICK);
	fork_event(50, 50, 50, 51, 9000 * TICK + 10);
	exit_event(50, 50, 9000 * TICK + 20);
	comm_event(50, 50, "other", true, 9000 * TICK + 30);
	mmap_event(50, CODE, "/usr/bin/other", 7, 9000 * TICK + 40);
	assert_int_equal(p->exit_mono_ns, 0);
	assert_string_equal(labels_of(p).comm, "other");
	assert_string_equal(labels_of(p).exe, "/usr/bin/other");
}

static void test_threads(void **state)
{
	char name[16];
	struct process *p;

	put_process(50, "main", 1000);
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	assert_string_equal(process_thread_name(p, 50), "main");
	assert_string_equal(process_thread_name(p, 51), "");
	fork_event(50, 50, 50, 51, T0);
	assert_string_equal(process_thread_name(p, 51), "main");
	comm_event(50, 51, "wor\nker", false, T0 + 1);
	assert_string_equal(process_thread_name(p, 51), "wor?ker");
	assert_string_equal(labels_of(p).comm, "main");
	fork_event(50, 51, 50, 52, T0 + 2);
	assert_string_equal(process_thread_name(p, 52), "wor?ker");
	/* A child of a thread has the thread's name. */
	fork_event(50, 51, 60, 60, T0 + 3);
	assert_string_equal(labels_of(process_find(table, 60, T0)).comm, "wor?ker");
	exit_event(50, 51, T0 + 4);
	process_table_expire(table, T0 + 4);
	assert_string_equal(process_thread_name(p, 51), "wor?ker");
	process_table_expire(table, T0 + 5);
	assert_string_equal(process_thread_name(p, 51), "");
	assert_string_equal(process_thread_name(p, 52), "wor?ker");
	/* Endless new names: bounded. */
	for (uint32_t i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "req-%u", i);
		comm_event(50, 100 + i, name, false, T0 + 10);
	}
	assert_string_equal(process_thread_name(p, 100), "req-0");
	assert_int_equal(p->n_threads, 32768);
	assert_int_equal(stats().refused_names, 100000 - (32768 - 1));
	for (uint32_t i = 0; i < 100000; i++)
		exit_event(50, 100 + i, T0 + 20);
	process_table_expire(table, T0 + 21);
	assert_int_equal(p->n_threads, 1);
	assert_true(table->names.bytes < 4096);
}

/* 50,000 processes of which /proc never shows one. */
static void test_many_short_lived(void **state)
{
	uint64_t bytes = 0;

	put_process(50, "make", 1000);
	put_exe(50, "/usr/bin/demo");
	start_table(0);
	for (uint32_t i = 0; i < 50000; i++) {
		uint32_t pid = 1000 + i % 30000;
		uint64_t mono = T0 + i * 5 * NSEC_PER_MSEC;
		struct process *p;

		fork_event(50, 50, pid, pid, mono);
		comm_event(pid, pid, "cc1", true, mono + 10);
		mmap_event(pid, CODE, "/usr/lib/cc1", 9, mono + 20);
		exit_event(pid, pid, mono + 4 * NSEC_PER_MSEC);
		if (i % 200)
			continue;
		p = process_find(table, pid, mono - 5);
		assert_string_equal(labels_of(p).exe, "/usr/lib/cc1");
		assert_string_equal(labels_of(p).unit, "demo.service");
		check_address(p, mono + 30, CODE + 1, "cc1", 1);
		process_table_expire(table, mono);
		bytes = bytes ?: stats().bytes;
		assert_true(stats().bytes < bytes + 1000000);
	}
	process_table_expire(table, UINT64_MAX);
	assert_int_equal(stats().processes, 1);
	assert_int_equal(stats().exited, 0);
	assert_int_equal(stats().evicted_processes, 0);
}

static void test_limit(void **state)
{
	start_table(100);
	for (uint32_t i = 0; i < 1000; i++)
		fork_event(1, 1, 1000 + i, 1000 + i, T0 + i);
	assert_int_equal(stats().processes, 100);
	assert_int_equal(stats().evicted_processes, 900);
	/* Those that exited go first, then those that were not sampled for the longest time. */
	assert_non_null(process_find(table, 1900, T0 + 900));
	exit_event(1950, 1950, T0 + 2000);
	fork_event(1, 1, 3000, 3000, T0 + 3000);
	fork_event(1, 1, 3001, 3001, T0 + 3000);
	assert_null(table_newest(table, 1950));
	assert_non_null(table_newest(table, 1902));
	assert_non_null(table_newest(table, 1900));
	assert_null(table_newest(table, 1901));
}

/* Addresses that nobody knows: /proc is asked again at most once per window, ever more rarely. */
static void test_resync(void **state)
{
	struct process *p;
	uint64_t before;

	put_process(50, "demo", 1000);
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	for (int i = 0; i < 1000; i++)
		check_address(p, mono_now_ns(), 0x10 + (uint64_t)i, "[unknown]",
			      0x10 + (uint64_t)i);
	assert_int_equal(stats().resyncs, 1);
	for (int window = 0; window < 200; window++) {
		process_table_expire(table, 1);
		check_address(p, mono_now_ns(), 0x10, "[unknown]", 0x10);
	}
	before = stats().resyncs;
	assert_in_range(before, 6, 12);
	/* What it finds makes it eager again. */
	puts_at(50, "maps", "10000000-10001000 r-xp 00001000 fd:01 33 /usr/lib/new.so\n");
	for (int window = 0; window < 40; window++)
		process_table_expire(table, 1);
	check_address(p, mono_now_ns(), 0x10000010, "new.so", 0x1010);
	check_address(p, mono_now_ns(), 0x401000, "[unknown]", 0x401000);
	assert_int_equal(stats().resyncs, before + 1);
}

static void lose_records(uint64_t ago_ns)
{
	table->rescan = true;
	table->rescan_mono_ns = mono_now_ns() - ago_ns;
	assert_int_equal(process_table_poll(table), 0);
}

/* Records are lost all the time: all of /proc is read for a hundredth of it. */
static void test_rescan(void **state)
{
	start_table(0);
	put_process(50, "late", 1000);
	lose_records(NSEC_PER_SEC / 2);
	assert_null(table_newest(table, 50));
	lose_records(NSEC_PER_SEC);
	assert_non_null(table_newest(table, 50));
	assert_false(table->rescan);
	assert_true(table->rescan_took_ns > 0);
	put_process(51, "later", 1000);
	table->rescan_took_ns = NSEC_PER_SEC;
	lose_records(99 * NSEC_PER_SEC);
	assert_null(table_newest(table, 51));
	lose_records(100 * NSEC_PER_SEC);
	assert_non_null(table_newest(table, 51));
	assert_in_range(table->rescan_took_ns, 1, NSEC_PER_SEC - 1);
	assert_int_equal(stats().resyncs, 2);
}

static void test_data(void **state)
{
	struct binary_ref b;
	struct process *p;
	uint64_t offset;
	bool shared;

	put_process(50, "demo", 1000);
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	process_resolve_data(p, 0x405010, &b, &offset, &shared);
	assert_string_equal(b.name, "demo");
	assert_int_equal(offset, 0x5010);
	assert_false(shared);
	/* .bss goes on where .data ends. */
	process_resolve_data(p, 0x407010, &b, &offset, &shared);
	assert_string_equal(b.name, "demo");
	assert_int_equal(offset, 0x7010);
	process_resolve_data(p, 0x500010, &b, &offset, &shared);
	assert_int_equal(b.kind, BINARY_ANON);
	process_resolve_data(p, 0x7f0000030004, &b, &offset, &shared);
	assert_string_equal(b.name, "words");
	assert_int_equal(offset, 4);
	assert_true(shared);
	process_resolve_data(p, 0x10, &b, &offset, &shared);
	assert_int_equal(b.kind, BINARY_UNKNOWN);
	assert_int_equal(offset, 0x10);
}

/* One file, one binary, whichever process maps it; another content of the same inode is another one. */
static void test_sharing(void **state)
{
	struct binary_ref a, b;
	uint64_t offset;

	put_process(50, "one", 1000);
	put_process(51, "two", 1000);
	start_table(0);
	process_resolve(process_find(table, 50, 1000 * TICK), mono_now_ns(), 0x401000, &a, &offset);
	process_resolve(process_find(table, 51, 1000 * TICK), mono_now_ns(), 0x401000, &b, &offset);
	assert_int_equal(a.key, b.key);
	fork_event(50, 50, 60, 60, T0);
	mmap_event(60, CODE, "/usr/bin/demo", 7, T0 + 1);
	process_resolve(process_find(table, 60, T0), T0 + 2, CODE, &b, &offset);
	assert_int_not_equal(a.key, b.key);
	assert_int_equal(process_table_open_binary(table, 12345), -ENOENT);
}

static void test_many_mappings(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	struct process *p;

	put_process(50, "demo", 1000);
	for (unsigned i = 0; i < 10000; i++)
		strbuf_printf(&text, "%x-%x r-xp 00000000 fd:01 11 /usr/bin/demo\n",
			      0x10000 + i * 0x2000, 0x11000 + i * 0x2000);
	put(50, "maps", text.data, text.len);
	start_table(0);
	p = process_find(table, 50, 1000 * TICK);
	check_address(p, mono_now_ns(), 0x10000, "demo", 0);
	assert_int_equal(p->image->n, 4096);
	assert_int_equal(stats().refused_mappings, 10000 - 4096);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end_test)
	const struct CMUnitTest tests[] = {
		TEST(test_existing),
		TEST(test_names),
		TEST(test_reuse),
		TEST(test_time_namespace),
		TEST(test_main_thread_gone),
		TEST(test_zombie),
		TEST(test_loader),
		TEST(test_private),
		TEST(test_fork_exec_exit),
		TEST(test_endless_exec),
		TEST(test_exec_by_thread),
		TEST(test_threads),
		TEST(test_many_short_lived),
		TEST(test_limit),
		TEST(test_resync),
		TEST(test_rescan),
		TEST(test_data),
		TEST(test_sharing),
		TEST(test_many_mappings),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
