// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sleeps 10 x 100 ms in short_sleep(), 1 x 1 s in long_sleep(), and waits 300 ms in vfork_wait(), stamped:
 * {"pid", "short_ns", "long_ns", "vfork_ns", "end_ns" on the monotonic clock}.
 * With an argument: a second thread blocks in a pipe read in blocked_throughout() until that many seconds are over.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "truth.h"

static volatile uint64_t sink;
static int pipe_fds[2];

static __attribute__((noinline)) uint64_t short_sleep(void)
{
	uint64_t begin = mono_ns();

	raw_sleep_ns(100000000);
	return mono_ns() - begin;
}

static __attribute__((noinline)) uint64_t long_sleep(void)
{
	uint64_t begin = mono_ns();

	raw_sleep_ns(1000000000);
	return mono_ns() - begin;
}

/* A wait that no signal ends: state D. */
static __attribute__((noinline)) uint64_t vfork_wait(void)
{
	uint64_t begin = mono_ns();

	if (vfork() == 0) {
		raw_sleep_ns(300000000);
		_exit(0);
	}
	return mono_ns() - begin;
}

static __attribute__((noinline)) void blocked_throughout(void)
{
	char c;

	if (raw_syscall(SYS_read, pipe_fds[0], (long)&c, 1, 0) < 0)
		abort();
	sink++;
}

static void *blocked_thread(void *arg)
{
	blocked_throughout();
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t short_ns = 0, long_ns, vfork_ns;
	pthread_t t;

	if (argc > 1 && (pipe(pipe_fds) || pthread_create(&t, NULL, blocked_thread, NULL)))
		return 1;
	for (int i = 0; i < 10; i++)
		short_ns += short_sleep();
	long_ns = long_sleep();
	vfork_ns = vfork_wait();
	if (argc > 1) {
		sleep((unsigned)atoi(argv[1]));
		if (write(pipe_fds[1], "x", 1) != 1)
			return 1;
		pthread_join(t, NULL);
	}
	printf("{\"pid\": %d, \"short_ns\": %lu, \"long_ns\": %lu, \"vfork_ns\": %lu, "
	       "\"end_ns\": %lu}\n",
	       getpid(), short_ns, long_ns, vfork_ns, mono_ns());
	return 0;
}
