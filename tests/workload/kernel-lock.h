/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Waits for locks of the kernel whose length is known. A thread reads a pipe, or writes a file, and its buffer is a
 * page that is not there (userfaultfd): it holds the pipe's mutex, or the file's rwsem, until we bring the page.
 * Another thread that asks for the lock meanwhile is given so much time, once it is seen to sleep.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "truth.h"

#define KERNEL_LOCK_HOLD_NS (20 * 1000000ULL)

struct kernel_lock_truth {
	uint64_t pipe_ns, file_ns; /* that those who asked spent in their calls */
	unsigned rounds;
};

struct kernel_lock_scene {
	int fd[2]; /* the holder's end, the other one's */
	bool pipe;
	char *page;
	int faults;
	int tid; /* of who asks, once it does */
	uint64_t asked_ns;
};

static void *kernel_lock_hold(void *arg)
{
	struct kernel_lock_scene *s = arg;
	ssize_t n = s->pipe ? read(s->fd[0], s->page, 16) : write(s->fd[0], s->page, 16);

	return (void *)(intptr_t)(n == 16);
}

static void *kernel_lock_ask(void *arg)
{
	struct kernel_lock_scene *s = arg;
	uint64_t begin = mono_ns();
	ssize_t n;

	__atomic_store_n(&s->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	n = write(s->fd[1], "0123456789abcdef", 16);
	s->asked_ns = mono_ns() - begin;
	return (void *)(intptr_t)(n == 16);
}

/* Whether the thread sleeps and cannot be interrupted: nothing but the lock makes it do so. */
static bool kernel_lock_waits(int tid)
{
	char path[64], text[512], *behind;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	behind = strrchr(text, ')');
	return behind && behind[1] == ' ' && behind[2] == 'D';
}

/* 0, or what failed. */
static int kernel_lock_round(struct kernel_lock_scene *s)
{
	struct uffdio_zeropage zero = {};
	pthread_t holder, asker;
	struct uffd_msg fault;
	void *held, *asked;

	madvise(s->page, 4096, MADV_DONTNEED);
	s->tid = 0;
	if (pthread_create(&holder, NULL, kernel_lock_hold, s))
		return EAGAIN;
	/* From here on it has the lock. */
	if (read(s->faults, &fault, sizeof(fault)) != sizeof(fault))
		return EIO;
	if (pthread_create(&asker, NULL, kernel_lock_ask, s))
		return EAGAIN;
	while (!__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE) || !kernel_lock_waits(s->tid))
		raw_sleep_ns(1000000);
	raw_sleep_ns(KERNEL_LOCK_HOLD_NS);
	zero.range.start = (uintptr_t)s->page;
	zero.range.len = 4096;
	if (ioctl(s->faults, UFFDIO_ZEROPAGE, &zero))
		return errno;
	pthread_join(holder, &held);
	pthread_join(asker, &asked);
	return held && asked ? 0 : EIO;
}

static int kernel_lock_open(struct kernel_lock_scene *s)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	s->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (s->page == MAP_FAILED || s->faults < 0 || ioctl(s->faults, UFFDIO_API, &api))
		return errno;
	reg.range.start = (uintptr_t)s->page;
	reg.range.len = 4096;
	return ioctl(s->faults, UFFDIO_REGISTER, &reg) ? errno : 0;
}

/* 0, or an errno: ENOSYS and EPERM where the kernel does not let us. */
static int kernel_lock_run(const char *directory, unsigned rounds, struct kernel_lock_truth *ret)
{
	struct kernel_lock_scene file = {}, pipes = { .pipe = true };
	char path[256];
	int r;

	snprintf(path, sizeof(path), "%s/kernel-lock-%d", directory, getpid());
	if (pipe(pipes.fd))
		return errno;
	/* Something to read, whoever comes first. */
	if (write(pipes.fd[1], "0123456789abcdef", 16) != 16)
		return EIO;
	file.fd[0] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	file.fd[1] = open(path, O_RDWR | O_CLOEXEC);
	unlink(path);
	if (file.fd[0] < 0 || file.fd[1] < 0)
		return errno;
	r = kernel_lock_open(&pipes);
	if (!r)
		r = kernel_lock_open(&file);
	for (unsigned i = 0; i < rounds && !r; i++) {
		r = kernel_lock_round(&pipes);
		ret->pipe_ns += pipes.asked_ns;
		if (!r)
			r = kernel_lock_round(&file);
		ret->file_ns += file.asked_ns;
		ret->rounds += !r;
	}
	return r;
}
