// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stacks of others. The memory is this process's own: frames are laid out by hand, and /proc/self/task/TID/mem
 * is read like a stranger's. A FIFO in a /proc of the test's own stands for memory that never answers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "collect/remote.h"

#define PAGES 8
#define PAGE_BYTES 4096
#define IP 0x400000UL

static uint64_t *stack;

static int make_stack(void **state)
{
	stack = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	assert_true(stack != MAP_FAILED);
	return 0;
}

static int drop_stack(void **state)
{
	munmap(stack, PAGES * PAGE_BYTES);
	return 0;
}

static struct remote_stack wanted(uint64_t fp)
{
	return (struct remote_stack){
		.tgid = getpid(),
		.tid = syscall(SYS_gettid),
		.ip = IP,
		.sp = (uint64_t)stack,
		.fp = fp,
		.word = 8,
	};
}

/* A frame at word `at`, whose caller's frame is at word `next` (0: the outermost). */
static void frame(unsigned at, unsigned next, uint64_t ip)
{
	stack[at] = next ? (uint64_t)(stack + next) : 0;
	stack[at + 1] = ip;
}

static const struct remote_options plain = { .proc = "/proc", .ip_mask = ~0UL };

static void read_and_check(struct remote_stack s, enum walk_end end, unsigned n)
{
	remote_stacks_read(&plain, &s, 1);
	assert_int_equal(s.end, end);
	assert_int_equal(s.n, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(s.ips[i], IP + i);
	free(s.ips);
}

static void test_complete(void **state)
{
	/* Frames on three pages, one across a page's end. */
	frame(2, 511, IP + 1);
	frame(511, 1500, IP + 2);
	frame(1500, 1502, IP + 3);
	frame(1502, 0, IP + 4);
	read_and_check(wanted((uint64_t)(stack + 2)), WALK_COMPLETE, 5);
	/* A return address of 0 ends it as well, and so does a frame pointer of 0 at once. */
	frame(1500, 1502, 0);
	read_and_check(wanted((uint64_t)(stack + 2)), WALK_COMPLETE, 3);
	read_and_check(wanted(0), WALK_NO_PROCESS, 1);
}

static void test_bad_frames(void **state)
{
	frame(10, 4, IP + 1);
	read_and_check(wanted((uint64_t)(stack + 10)), WALK_NO_PROCESS, 2);
	frame(10, 10, IP + 1);
	read_and_check(wanted((uint64_t)(stack + 10)), WALK_NO_PROCESS, 2);
	read_and_check(wanted((uint64_t)stack - 8), WALK_NO_PROCESS, 1);
	read_and_check(wanted((uint64_t)(stack + 10) + 4), WALK_NO_PROCESS, 1);
	stack[10] = 0x7000;
	stack[11] = 17; /* no address */
	read_and_check(wanted((uint64_t)(stack + 10)), WALK_NO_MAPPING, 1);
	read_and_check(wanted(0xffffffffffffff00UL), WALK_NO_PROCESS, 1);
	read_and_check(wanted(0x7fffffffffff0000UL), WALK_NO_PROCESS, 1);
}

static void test_limit(void **state)
{
	for (unsigned i = 0; i < 1000; i++)
		frame(2 + 2 * i, 4 + 2 * i, IP + 1 + i);
	read_and_check(wanted((uint64_t)(stack + 2)), WALK_LIMIT, MAX_USER_FRAMES);
}

/* A page that is not there is not brought in. */
static void test_not_resident(void **state)
{
	unsigned char in;
	uint64_t *second = stack + PAGE_BYTES / 8;

	frame(2, PAGE_BYTES / 8, IP + 1);
	frame(PAGE_BYTES / 8, 0, IP + 2);
	read_and_check(wanted((uint64_t)(stack + 2)), WALK_COMPLETE, 3);
	assert_int_equal(madvise(second, PAGE_BYTES, MADV_DONTNEED), 0);
	read_and_check(wanted((uint64_t)(stack + 2)), WALK_NO_PROCESS, 2);
	assert_int_equal(mincore(second, PAGE_BYTES, &in), 0);
	assert_int_equal(in & 1, 0);
}

static void test_32_bit(void **state)
{
	/* The program's own memory may lie anywhere: a mapping below 4 GiB. */
	uint32_t *low = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS
#ifdef MAP_32BIT
				     | MAP_32BIT
#endif
			     ,
			     -1, 0);
	struct remote_stack s = wanted(0);

	if (low == MAP_FAILED || (uint64_t)low >> 32)
		skip();
	low[1] = (uint32_t)(uintptr_t)(low + 5);
	low[2] = IP + 1;
	low[5] = 0;
	low[6] = IP + 2;
	s.sp = (uint64_t)low;
	s.fp = (uint64_t)(low + 1);
	s.word = 4;
	read_and_check(s, WALK_COMPLETE, 3);
	munmap(low, PAGE_BYTES);
}

static void test_nobody(void **state)
{
	struct remote_stack s = wanted((uint64_t)stack);

	s.tgid = s.tid = 1 << 30;
	/* The leaf is known all the same. */
	read_and_check(s, WALK_PENDING, 1);
	s.ip = 0;
	read_and_check(s, WALK_NO_REGS, 0);
}

static void test_ip_mask(void **state)
{
	const struct remote_options masked = { .proc = "/proc", .ip_mask = (1UL << 48) - 1 };
	struct remote_stack s = wanted((uint64_t)(stack + 2));

	frame(2, 0, 0x2aUL << 48 | (IP + 1));
	remote_stacks_read(&masked, &s, 1);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.ips[1], IP + 1);
	free(s.ips);
}

/* ---- the reader thread ------------------------------------------------------------------------------ */

static void test_reader(void **state)
{
	_cleanup_(remote_reader_free_p) struct remote_reader *r = NULL;
	struct remote_stack s[3];
	size_t done;

	frame(2, 0, IP + 1);
	assert_int_equal(remote_reader_new(&plain, &r), 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++)
			s[i] = wanted((uint64_t)(stack + 2));
		assert_int_equal(remote_reader_run(r, s, 3, 10 * NSEC_PER_SEC, &done), 0);
		assert_int_equal(done, 3);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(s[i].end, WALK_COMPLETE);
			free(s[i].ips);
		}
	}
}

/* The second process's memory never answers: the first's stack is there, the caller goes on, and on. */
static void test_hanging(void **state)
{
	_cleanup_(remote_reader_free_p) struct remote_reader *r = NULL;
	char dir[] = "/tmp/test-remote.XXXXXX", path[128];
	const struct remote_options o = { .proc = dir, .ip_mask = ~0UL };
	struct remote_stack s[3];
	uint64_t begin;
	size_t done;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "mkdir -p %s/7/task/7; mkfifo %s/7/task/7/mem", dir, dir);
	assert_int_equal(system(path), 0);
	assert_int_equal(remote_reader_new(&o, &r), 0);
	for (int i = 0; i < 3; i++)
		s[i] = wanted((uint64_t)(stack + 2));
	s[1].tgid = s[1].tid = 7;
	begin = mono_now_ns();
	assert_int_equal(remote_reader_run(r, s, 3, 50 * NSEC_PER_MSEC, &done), 0);
	assert_true(mono_now_ns() - begin < 5 * NSEC_PER_SEC);
	assert_int_equal(done, 1);
	assert_int_equal(s[0].end, WALK_PENDING);
	free(s[0].ips);
	assert_int_equal(remote_reader_run(r, s, 3, 50 * NSEC_PER_MSEC, &done), -EBUSY);
	/* It answers at last: the reader is of use again. */
	snprintf(path, sizeof(path), "%s/7/task/7/mem", dir);
	close(open(path, O_WRONLY));
	for (int i = 0; i < 100; i++) {
		if (remote_reader_run(r, s, 1, NSEC_PER_SEC, &done) != -EBUSY)
			break;
		usleep(10000);
	}
	assert_int_equal(done, 1);
	free(s[0].ips);
	/* And once more: the owner leaves while it hangs. */
	s[0].tgid = s[0].tid = 7;
	assert_int_equal(remote_reader_run(r, s, 1, 10 * NSEC_PER_MSEC, &done), 0);
	assert_int_equal(done, 0);
	r = remote_reader_free(r);
	close(open(path, O_WRONLY));
	snprintf(path, sizeof(path), "rm -rf %s", dir);
	assert_int_equal(system(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_complete, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_bad_frames, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_limit, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_not_resident, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_32_bit, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_nobody, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_ip_mask, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_reader, make_stack, drop_stack),
		cmocka_unit_test_setup_teardown(test_hanging, make_stack, drop_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
