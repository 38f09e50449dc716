// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A small load with a known answer, for a first look: CPU in three functions at 60, 30 and 10 %, two threads that
 * fight over a lock, a loop of tiny reads, a sleeper. Runs until it is killed.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../workload/truth.h"

static volatile uint64_t sink;

/* Each function burns its own time, so that its name is the leaf. */
#define BURN(name)                                             \
	static __attribute__((noinline)) void name(uint64_t n) \
	{                                                      \
		for (uint64_t i = 0; i < n; i++)               \
			sink = sink * 31 + i;                  \
	}
BURN(parse_request)
BURN(render_page)
BURN(write_log)

static __attribute__((noinline)) void serve_request(void)
{
	parse_request(60000);
	render_page(30000);
	write_log(10000);
}

static void *cpu_thread(void *arg)
{
	prctl(PR_SET_NAME, "demo-cpu");
	for (;;) {
		uint64_t end = mono_ns() + 40000000;

		while (mono_ns() < end)
			serve_request();
		usleep(20000);
	}
	return NULL;
}

/* A lock of our own, on the futex directly (Drepper, "Futexes Are Tricky", mutex 3). */
static _Atomic uint32_t orders_lock;

static __attribute__((noinline)) void lock_orders(void)
{
	uint32_t c = 0;

	if (atomic_compare_exchange_strong(&orders_lock, &c, 1))
		return;
	while (atomic_exchange(&orders_lock, 2) != 0)
		raw_syscall(SYS_futex, (long)&orders_lock, FUTEX_WAIT_PRIVATE, 2, 0);
}

static __attribute__((noinline)) void unlock_orders(void)
{
	if (atomic_exchange(&orders_lock, 0) == 2)
		syscall(SYS_futex, &orders_lock, FUTEX_WAKE_PRIVATE, 1);
}

static void *lock_thread(void *arg)
{
	prctl(PR_SET_NAME, "demo-lock");
	for (;;) {
		lock_orders();
		usleep(3000);
		unlock_orders();
		usleep(500);
	}
	return NULL;
}

static void *chatty_thread(void *arg)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char c;

	prctl(PR_SET_NAME, "demo-chatty");
	for (;;) {
		for (int i = 0; i < 200; i++)
			if (raw_syscall(SYS_read, fd, (long)&c, 1, 0) < 0)
				abort();
		usleep(10000);
	}
	return NULL;
}

static __attribute__((noinline)) void wait_for_backend(void)
{
	raw_sleep_ns(250000000);
}

static void *sleeper_thread(void *arg)
{
	prctl(PR_SET_NAME, "demo-sleeper");
	for (;;)
		wait_for_backend();
	return NULL;
}

int main(void)
{
	static void *(*const threads[])(void *) = { cpu_thread, lock_thread, lock_thread,
						    chatty_thread, sleeper_thread };
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, 15);
	for (unsigned i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		if (pthread_create(&t, NULL, threads[i], NULL))
			return 1;
	pause();
	return 0;
}
