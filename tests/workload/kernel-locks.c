// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kernel-locks held ROUNDS DIRECTORY: waits of a known length for a pipe's mutex and a file's rwsem.
 * kernel-locks crowd SECONDS THREADS: threads that map and unmap, and move bytes through one pipe, as fast as they can.
 */
#include "kernel-lock.h"

static uint64_t end_ns;
static int shared_pipe[2];
static uint64_t turns;

static void *map_and_unmap(void *arg)
{
	uint64_t n = 0;

	for (; mono_ns() < end_ns; n++) {
		char *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			exit(1);
		*p = 1;
		munmap(p, 1 << 16);
	}
	__atomic_fetch_add(&turns, n, __ATOMIC_RELAXED);
	return NULL;
}

static void *move_bytes(void *arg)
{
	char buf[256] = "";

	while (mono_ns() < end_ns)
		if (write(shared_pipe[1], buf, sizeof(buf)) < 0)
			(void)!read(shared_pipe[0], buf, sizeof(buf));
	return NULL;
}

static int crowd(double seconds, int threads)
{
	pthread_t t;

	if (pipe2(shared_pipe, O_NONBLOCK))
		return 1;
	end_ns = mono_ns() + (uint64_t)(seconds * 1e9);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t, NULL, i % 4 == 3 ? move_bytes : map_and_unmap, NULL))
			return 1;
	raw_sleep_ns((uint64_t)(seconds * 1e9) + 200000000);
	printf("{\"pid\": %d, \"turns\": %lu}\n", getpid(), turns);
	return 0;
}

int main(int argc, char **argv)
{
	struct kernel_lock_truth t = {};
	int r;

	if (argc > 3 && !strcmp(argv[1], "crowd"))
		return crowd(atof(argv[2]), atoi(argv[3]));
	if (argc < 4)
		return 2;
	r = kernel_lock_run(argv[3], (unsigned)atoi(argv[2]), &t);
	if (r && r != ENOSYS && r != EPERM)
		fprintf(stderr, "%s\n", strerror(r));
	printf("{\"pid\": %d, \"rounds\": %u, \"hold_ns\": %llu, \"pipe_ns\": %lu, \"file_ns\": "
	       "%lu}\n",
	       getpid(), t.rounds, KERNEL_LOCK_HOLD_NS, t.pipe_ns, t.file_ns);
	return r && r != ENOSYS && r != EPERM;
}
