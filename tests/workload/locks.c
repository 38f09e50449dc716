// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Locks with a known trouble: `locks KIND SECONDS`, of the kinds in the table at the end. The lock of each has its
 * kind's name, and so has the function that is the trouble. {"pid", "waits", "lock_at"}; waits: those that this
 * program knows of, at most.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

#define NOINLINE __attribute__((noinline))
#define POOL 100

static _Atomic bool over;
static _Atomic uint64_t waits;
static uint64_t end_ns;

static bool goes_on(void)
{
	return mono_ns() < end_ns;
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	if (pthread_create(t, NULL, fn, arg))
		exit(1);
}

static void burn(uint64_t ns)
{
	uint64_t until = mono_ns() + ns;

	while (mono_ns() < until)
		;
}

/* One thread works with the mutex in hand, others want it for a moment. */
struct contest {
	pthread_mutex_t *mutex;
	void (*with_it)(pthread_mutex_t *mutex);
};

static void *worker(void *arg)
{
	const struct contest *c = arg;

	while (goes_on()) {
		c->with_it(c->mutex);
		usleep(500);
	}
	return NULL;
}

NOINLINE void ask_for_it(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	pthread_mutex_unlock(mutex);
	waits++;
}

static void *asker(void *arg)
{
	const struct contest *c = arg;

	while (goes_on()) {
		ask_for_it(c->mutex);
		usleep(700);
	}
	return NULL;
}

static void contest(pthread_mutex_t *mutex, void (*with_it)(pthread_mutex_t *))
{
	struct contest c = { mutex, with_it };
	pthread_t w, a[2];

	start(&w, worker, &c);
	for (int i = 0; i < 2; i++)
		start(&a[i], asker, &c);
	pthread_join(w, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(a[i], NULL);
}

/* ---- one kind each ------------------------------------------------------------------------------- */

pthread_mutex_t io_lock = PTHREAD_MUTEX_INITIALIZER;

NOINLINE void read_under_lock(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	usleep(20000);
	pthread_mutex_unlock(mutex);
}

static void run_io(void)
{
	contest(&io_lock, read_under_lock);
}

pthread_mutex_t long_lock = PTHREAD_MUTEX_INITIALIZER;

NOINLINE void compute_under_lock(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	burn(20000000);
	pthread_mutex_unlock(mutex);
}

static void run_long(void)
{
	contest(&long_lock, compute_under_lock);
}

pthread_mutex_t pi_lock;

static void run_pi(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	if (pthread_mutex_init(&pi_lock, &attr))
		exit(1);
	contest(&pi_lock, read_under_lock);
}

pthread_mutex_t preempted_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool taken, wanted;

NOINLINE void work_without_cpu(pthread_mutex_t *mutex)
{
	pthread_mutex_lock(mutex);
	taken = true;
	while (!wanted && goes_on())
		;
	burn(2000000);
	pthread_mutex_unlock(mutex);
}

static void pin_to_first(void)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof(all), &all);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &one);
			break;
		}
	sched_setaffinity(0, sizeof(one), &one);
}

static void *spinner(void *arg)
{
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), -20);
	while (!taken)
		usleep(100);
	while (goes_on())
		;
	return NULL;
}

static void *patient(void *arg)
{
	const struct contest *c = arg;

	setpriority(PRIO_PROCESS, syscall(SYS_gettid), -20);
	while (!taken)
		usleep(100);
	wanted = true;
	ask_for_it(c->mutex);
	return asker(arg);
}

static void *starved(void *arg)
{
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19);
	return worker(arg);
}

/* On one CPU: the holder has it first, and hardly ever again once it is wanted. */
static void run_preempted(void)
{
	struct contest c = { &preempted_lock, work_without_cpu };
	pthread_t s, w, a[2];

	pin_to_first();
	start(&w, starved, &c);
	start(&s, spinner, NULL);
	for (int i = 0; i < 2; i++)
		start(&a[i], patient, &c);
	for (int i = 0; i < 2; i++)
		pthread_join(a[i], NULL);
	pthread_join(s, NULL);
	pthread_join(w, NULL);
	/* The only waits ended just now: who they were is looked up when the window is over. */
	usleep(2500000);
}

static pthread_mutex_t herd_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t herd_cond = PTHREAD_COND_INITIALIZER;
static int herd_items;

NOINLINE void take_item(void)
{
	pthread_mutex_lock(&herd_mutex);
	while (!herd_items && !over)
		pthread_cond_wait(&herd_cond, &herd_mutex);
	if (herd_items)
		herd_items--;
	pthread_mutex_unlock(&herd_mutex);
}

static void *herd_member(void *arg)
{
	while (!over)
		take_item();
	return NULL;
}

NOINLINE void wake_the_herd(void)
{
	pthread_mutex_lock(&herd_mutex);
	herd_items++;
	pthread_cond_broadcast(&herd_cond);
	pthread_mutex_unlock(&herd_mutex);
}

static void run_herd(void)
{
	pthread_t t[POOL];

	for (int i = 0; i < POOL; i++)
		start(&t[i], herd_member, NULL);
	while (goes_on()) {
		usleep(20000);
		wake_the_herd();
	}
	over = true;
	wake_the_herd();
	for (int i = 0; i < POOL; i++)
		pthread_join(t[i], NULL);
}

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t pool_cond = PTHREAD_COND_INITIALIZER;
static int pool_items;

NOINLINE void wait_for_work(void)
{
	pthread_mutex_lock(&pool_mutex);
	while (!pool_items && !over)
		pthread_cond_wait(&pool_cond, &pool_mutex);
	if (pool_items)
		pool_items--;
	pthread_mutex_unlock(&pool_mutex);
}

static void *pool_member(void *arg)
{
	while (!over)
		wait_for_work();
	return NULL;
}

static void run_pool(void)
{
	pthread_t t[POOL];

	for (int i = 0; i < POOL; i++)
		start(&t[i], pool_member, NULL);
	while (goes_on()) {
		usleep(250000);
		pthread_mutex_lock(&pool_mutex);
		pool_items++;
		pthread_cond_signal(&pool_cond);
		pthread_mutex_unlock(&pool_mutex);
	}
	pthread_mutex_lock(&pool_mutex);
	over = true;
	pthread_cond_broadcast(&pool_cond);
	pthread_mutex_unlock(&pool_mutex);
	for (int i = 0; i < POOL; i++)
		pthread_join(t[i], NULL);
}

pthread_rwlock_t rw_lock = PTHREAD_RWLOCK_INITIALIZER;

NOINLINE void write_slowly(void)
{
	pthread_rwlock_wrlock(&rw_lock);
	usleep(20000);
	pthread_rwlock_unlock(&rw_lock);
}

static void *writer(void *arg)
{
	while (goes_on()) {
		write_slowly();
		usleep(500);
	}
	return NULL;
}

NOINLINE void read_it(void)
{
	pthread_rwlock_rdlock(&rw_lock);
	pthread_rwlock_unlock(&rw_lock);
	waits++;
}

static void run_rwlock(void)
{
	pthread_t t;

	start(&t, writer, NULL);
	while (goes_on()) {
		read_it();
		usleep(700);
	}
	pthread_join(t, NULL);
}

static pthread_mutex_t *map_shared(int fd)
{
	pthread_mutex_t *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
				  MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	if (m == MAP_FAILED)
		exit(1);
	return m;
}

/* In a file that two processes map, each at another address, or without a path in memory that they share. */
static void run_shared(const char *path)
{
	int fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
	pthread_mutexattr_t attr;
	pthread_mutex_t *m;
	pid_t pid;

	if (path && (fd < 0 || ftruncate(fd, 8192)))
		exit(1);
	m = map_shared(fd);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&m[10], &attr);
	pid = fork();
	if (pid == 0) {
		if (path)
			m = map_shared(fd);
		worker(&(struct contest){ &m[10], read_under_lock });
		_exit(0);
	}
	asker(&(struct contest){ &m[10], NULL });
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} kinds[] = {
		{ "io", run_io },	  { "long", run_long }, { "preempted", run_preempted },
		{ "herd", run_herd },	  { "pool", run_pool }, { "pi", run_pi },
		{ "rwlock", run_rwlock },
	};

	if (argc < 3)
		return 2;
	end_ns = mono_ns() + (uint64_t)(atof(argv[2]) * 1e9);
	if (!strcmp(argv[1], "shared"))
		run_shared(argc > 3 ? argv[3] : "shared-lock");
	if (!strcmp(argv[1], "anonymous"))
		run_shared(NULL);
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i].name))
			kinds[i].run();
	printf("{\"pid\": %d, \"waits\": %lu}\n", getpid(), waits);
	return 0;
}
