// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * calls PROCESSES THREADS N: each thread of each process makes exactly N getpid calls. Then the odd ones, once per
 * process: 10 x int 0x80 number 20 (i386 getpid; 20 is writev natively), 10 x number -1, 10 x 9999, 10 x an x32
 * number. Prints {"pids": [...], "getpid": total, "compat": whether int 0x80 works here}.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long n;
static int compat;

static void compat_call(void)
{
#ifdef __x86_64__
	long r = 20;

	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
#endif
}

/* Kernels without 32-bit emulation answer with a signal. */
static int probe_compat(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0) {
		compat_call();
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static void *caller(void *arg)
{
	for (long i = 0; i < n; i++)
		syscall(SYS_getpid);
	return NULL;
}

static void odd_calls(void)
{
	for (int i = 0; i < 10; i++) {
		if (compat)
			compat_call();
#ifdef __x86_64__
		syscall(0x40000000 + 39);
#endif
		syscall(-1);
		syscall(9999);
	}
}

static void process(int threads)
{
	pthread_t t[64];

	for (int i = 1; i < threads; i++)
		if (pthread_create(&t[i], NULL, caller, NULL))
			_exit(1);
	caller(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(t[i], NULL);
	odd_calls();
	_exit(0);
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 1;
	int status, bad = 0;
	pid_t pids[256];

	n = argc > 3 ? atol(argv[3]) : 1000;
	if (processes > 256 || threads > 64)
		return 2;
#ifdef __x86_64__
	compat = probe_compat();
#endif
	for (int i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			process(threads);
	}
	for (int i = 0; i < processes; i++)
		bad |= waitpid(pids[i], &status, 0) < 0 || status;
	printf("{\"pids\": [");
	for (int i = 0; i < processes; i++)
		printf("%s%d", i ? ", " : "", pids[i]);
	printf("], \"getpid\": %ld, \"compat\": %d}\n", (long)processes * threads * n, compat);
	return bad;
}
