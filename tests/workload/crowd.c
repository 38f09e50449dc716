// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * crowd PROCESSES THREADS: so many processes of so many threads each that sleep, and one that computes at the
 * lowest priority so that there is something to sample. Says "ready" when all are there and stays until killed.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *stay(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

static void crowd(int threads, int ready)
{
	pthread_attr_t attr;
	pthread_t t;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 1; i < threads; i++)
		if (pthread_create(&t, &attr, stay, NULL))
			_exit(1);
	if (write(ready, &byte, 1) != 1)
		_exit(1);
	close(ready);
	stay(NULL);
}

static void compute(void)
{
	const struct sched_param none = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sched_setscheduler(0, SCHED_IDLE, &none);
	for (;;)
		for (volatile int i = 0; i < 100000; i++)
			;
}

int main(int argc, char **argv)
{
	int processes = argc > 2 ? atoi(argv[1]) : 0, threads = argc > 2 ? atoi(argv[2]) : 0;
	int ready[2], got = 0;
	char byte;

	if (processes < 1 || threads < 1 || pipe(ready) < 0) {
		fprintf(stderr, "Usage: crowd PROCESSES THREADS\n");
		return 2;
	}
	for (int i = 0; i < processes; i++)
		switch (fork()) {
		case 0:
			close(ready[0]);
			crowd(threads, ready[1]);
			_exit(0);
		case -1:
			perror("crowd: fork");
			return 1;
		}
	if (fork() == 0)
		compute();
	close(ready[1]);
	while (got < processes && read(ready[0], &byte, 1) == 1)
		got++;
	if (got < processes) {
		fprintf(stderr, "crowd: only %d of %d processes started\n", got, processes);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	stay(NULL);
	return 0;
}
