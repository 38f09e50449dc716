// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * names N: N threads one after another, each of which names itself req-<i>, calls getppid once and sleeps a
 * little; and one thread that computes for a while as "before" and, renamed, as "after".
 * {"pid", "before_ns", "after_ns"}
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "truth.h"

static uint64_t before_ns, after_ns;

static void set_name(const char *name)
{
	prctl(PR_SET_NAME, name);
}

static uint64_t compute(uint64_t ns)
{
	uint64_t begin = thread_cpu_ns();

	while (thread_cpu_ns() - begin < ns)
		for (volatile int i = 0; i < 20000; i++)
			;
	return thread_cpu_ns() - begin;
}

static void *renamed(void *arg)
{
	set_name("before");
	before_ns = compute(1000000000);
	set_name("after");
	after_ns = compute(1000000000);
	return NULL;
}

static void *request(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "req-%ld", (long)arg);
	set_name(name);
	syscall(SYS_getppid);
	raw_sleep_ns(20000);
	return NULL;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 100;
	pthread_t t, r;

	if (pthread_create(&r, NULL, renamed, NULL))
		return 1;
	for (long i = 0; i < n; i++)
		if (pthread_create(&t, NULL, request, (void *)i) || pthread_join(t, NULL))
			return 1;
	pthread_join(r, NULL);
	printf("{\"pid\": %d, \"before_ns\": %lu, \"after_ns\": %lu}\n", getpid(), before_ns,
	       after_ns);
	return 0;
}
