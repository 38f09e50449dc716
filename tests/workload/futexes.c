// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A lock of our own on raw futexes, two contenders, R rounds (futexes R): each wait that returned 0 after sleeping
 * is counted and stamped. Then 1,000 waits on a changed value (EAGAIN: no waits), 5 that time out after 20 ms.
 * Beside them a pool of four threads that wait all the time for work that never comes.
 * {"pid", "waits", "wait_ns", "again", "timeouts", "pool_ns"}.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "truth.h"

_Atomic uint32_t contended_lock;
static _Atomic uint32_t idle_word;
static _Atomic uint32_t pool_over;
static _Atomic uint64_t waits, wait_ns, again, pool_ns;
static long rounds;

static __attribute__((noinline)) void lock_wait(void)
{
	uint64_t begin = mono_ns();

	if (raw_syscall(SYS_futex, (long)&contended_lock, FUTEX_WAIT_PRIVATE, 2, 0) == 0) {
		waits++;
		wait_ns += mono_ns() - begin;
	} else {
		again++;
	}
}

static __attribute__((noinline)) void take_lock(void)
{
	uint32_t c = 0;

	if (atomic_compare_exchange_strong(&contended_lock, &c, 1))
		return;
	while (atomic_exchange(&contended_lock, 2) != 0)
		lock_wait();
}

static void release_lock(void)
{
	if (atomic_exchange(&contended_lock, 0) == 2)
		syscall(SYS_futex, &contended_lock, FUTEX_WAKE_PRIVATE, 1);
}

static void *contender(void *arg)
{
	for (long i = 0; i < rounds; i++) {
		take_lock();
		usleep(2000);
		release_lock();
		usleep(100);
	}
	return NULL;
}

static __attribute__((noinline)) void pool_wait(void)
{
	while (!pool_over)
		raw_syscall(SYS_futex, (long)&pool_over, FUTEX_WAIT_PRIVATE, 0, 0);
}

static void *idle_worker(void *arg)
{
	uint64_t begin = mono_ns();

	pool_wait();
	pool_ns += mono_ns() - begin;
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec timeout = { .tv_nsec = 20000000 };
	pthread_t t, pool[4];
	int timeouts = 0;

	rounds = argc > 1 ? atol(argv[1]) : 100;
	for (int i = 0; i < 4; i++)
		if (pthread_create(&pool[i], NULL, idle_worker, NULL))
			return 1;
	if (pthread_create(&t, NULL, contender, NULL))
		return 1;
	contender(NULL);
	pthread_join(t, NULL);
	for (int i = 0; i < 1000; i++)
		if (syscall(SYS_futex, &idle_word, FUTEX_WAIT_PRIVATE, 7, NULL) < 0 &&
		    errno == EAGAIN)
			again++;
	for (int i = 0; i < 5; i++)
		if (syscall(SYS_futex, &idle_word, FUTEX_WAIT_PRIVATE, 0, &timeout) < 0 &&
		    errno == ETIMEDOUT)
			timeouts++;
	pool_over = 1;
	syscall(SYS_futex, &pool_over, FUTEX_WAKE_PRIVATE, 4);
	for (int i = 0; i < 4; i++)
		pthread_join(pool[i], NULL);
	printf("{\"pid\": %d, \"waits\": %lu, \"wait_ns\": %lu, \"again\": %lu, \"timeouts\": %d, "
	       "\"pool_ns\": %lu}\n",
	       getpid(), waits, wait_ns, again, timeouts, pool_ns);
	return 0;
}
