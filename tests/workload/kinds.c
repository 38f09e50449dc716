// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One thread for each kind of wait, named after it, for S seconds (kinds S DIRECTORY): each stamps the time that it
 * waited. The disk's writes a file in the DIRECTORY.
 * {"pid", "sleep_ns", "poll_ns", "pipe_ns", "socket_ns", "futex_ns", "child_ns", "io_ns", "page-fault_ns"}; the last is 0
 * where userfaultfd(2) is not to be had.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

#define BEAT_NS 30000000
#define PAGE 4096
#define PAGES 4096

static uint64_t end_ns;
static const char *directory;
static int pipe_fds[2], socket_fds[2], quiet_fds[2], fault_fd = -1;
static char *fault_memory;
static _Atomic uint32_t word;

static bool over(void)
{
	return mono_ns() > end_ns;
}

static __attribute__((noinline)) void sleep_wait(void)
{
	raw_sleep_ns(3 * BEAT_NS);
}

/* A server that is asked for nothing. */
static __attribute__((noinline)) void poll_wait(void)
{
	struct pollfd p = { .fd = quiet_fds[0], .events = POLLIN };

	poll(&p, 1, 200);
}

static __attribute__((noinline)) void pipe_wait(void)
{
	char c;

	if (raw_syscall(SYS_read, pipe_fds[0], (long)&c, 1, 0) < 0)
		abort();
}

static __attribute__((noinline)) void socket_wait(void)
{
	char c;

	if (raw_syscall(SYS_recvfrom, socket_fds[0], (long)&c, 1, 0) < 0)
		abort();
}

/* Until the beat lets it go: somebody's lock. */
static __attribute__((noinline)) void futex_wait(void)
{
	uint32_t now = word;

	raw_syscall(SYS_futex, (long)&word, 128 /* FUTEX_WAIT_PRIVATE */, now, 0);
}

static __attribute__((noinline)) void child_wait(void)
{
	pid_t child = fork();

	if (child == 0) {
		raw_sleep_ns(BEAT_NS);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

static int file_fd = -1;

static __attribute__((noinline)) void io_wait(void)
{
	static char page[PAGE];

	page[0]++;
	if (pwrite(file_fd, page, sizeof(page), 0) < 0)
		abort();
	fsync(file_fd);
}

static __attribute__((noinline)) void fault_wait(void)
{
	static size_t next;

	((volatile char *)fault_memory)[next++ % PAGES * PAGE] = 1;
}

static struct kind {
	const char *name;
	void (*wait)(void);
	uint64_t ns;
	pthread_t thread;
} kinds[] = {
	{ .name = "sleep", .wait = sleep_wait }, { .name = "poll", .wait = poll_wait },
	{ .name = "pipe", .wait = pipe_wait },	 { .name = "socket", .wait = socket_wait },
	{ .name = "futex", .wait = futex_wait }, { .name = "child", .wait = child_wait },
	{ .name = "io", .wait = io_wait },	 { .name = "page-fault", .wait = fault_wait },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void *run(void *arg)
{
	struct kind *k = arg;

	prctl(PR_SET_NAME, k->name);
	while (!over()) {
		uint64_t begin = mono_ns();

		k->wait();
		k->ns += mono_ns() - begin;
	}
	return NULL;
}

/* Wakes those that wait for somebody. */
static __attribute__((noinline)) void beat_once(void)
{
	if (raw_syscall(SYS_write, pipe_fds[1], (long)"x", 1, 0) != 1 ||
	    raw_syscall(SYS_write, socket_fds[1], (long)"x", 1, 0) != 1)
		abort();
	word++;
	raw_syscall(SYS_futex, (long)&word, 129 /* FUTEX_WAKE_PRIVATE */, 1, 0);
}

static _Atomic bool stopped;

static void *beat(void *arg)
{
	prctl(PR_SET_NAME, "beat");
	while (!stopped) {
		raw_sleep_ns(BEAT_NS);
		beat_once();
	}
	return NULL;
}

/* Gives a page to each that is asked for, a beat later. */
static void *pager(void *arg)
{
	struct uffd_msg m;

	prctl(PR_SET_NAME, "pager");
	while (read(fault_fd, &m, sizeof(m)) == sizeof(m)) {
		struct uffdio_zeropage z = { .range = { m.arg.pagefault.address & ~(PAGE - 1ULL),
							PAGE } };

		raw_sleep_ns(BEAT_NS);
		ioctl(fault_fd, UFFDIO_ZEROPAGE, &z);
	}
	return NULL;
}

static bool fault_init(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t t;

	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api))
		return false;
	fault_memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	if (fault_memory == MAP_FAILED)
		return false;
	madvise(fault_memory, PAGES * PAGE, MADV_NOHUGEPAGE);
	reg.range = (struct uffdio_range){ (uintptr_t)fault_memory, PAGES * PAGE };
	return ioctl(fault_fd, UFFDIO_REGISTER, &reg) == 0 &&
	       pthread_create(&t, NULL, pager, NULL) == 0;
}

static bool file_init(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/kinds-%d", directory, getpid());
	file_fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	unlink(path);
	return file_fd >= 0;
}

int main(int argc, char **argv)
{
	pthread_t beater;
	bool faults;

	if (argc < 3)
		return 2;
	directory = argv[2];
	end_ns = mono_ns() + (uint64_t)(atof(argv[1]) * 1e9);
	if (pipe(pipe_fds) || pipe(quiet_fds) || socketpair(AF_UNIX, SOCK_STREAM, 0, socket_fds) ||
	    !file_init())
		return 1;
	faults = fault_init();
	if (pthread_create(&beater, NULL, beat, NULL))
		return 1;
	for (size_t i = 0; i < KINDS; i++)
		if ((faults || kinds[i].wait != fault_wait) &&
		    pthread_create(&kinds[i].thread, NULL, run, &kinds[i]))
			return 1;
	printf("{\"pid\": %d", getpid());
	for (size_t i = 0; i < KINDS; i++) {
		if (kinds[i].thread)
			pthread_join(kinds[i].thread, NULL);
		printf(", \"%s_ns\": %lu", kinds[i].name, kinds[i].ns);
	}
	printf("}\n");
	stopped = true;
	pthread_join(beater, NULL);
	return 0;
}
