// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pairs of threads, of which one ends the waits of the other, for S seconds (wakes S). The one that waits is named after
 * what it waits for: "pipe", "mutex", "socket" (to its own host) and "timer", which has no other; the others after it:
 * "pipe-by", ... They do so in functions of the same name as the thread, with '_' for '-'. Prints {"pid"}.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "truth.h"

#define BEAT_NS 20000000

#define WAKER __attribute__((noinline))
#define STAY __asm__ volatile("" ::: "memory") /* no tail call */

static uint64_t end_ns;
static int pipe_fds[2], socket_fds[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static bool last_round;

static bool over(void)
{
	return mono_ns() > end_ns;
}

static void name_thread(const char *name)
{
	prctl(PR_SET_NAME, name);
}

static WAKER void pipe_by(void)
{
	if (write(pipe_fds[1], "x", 1) != 1)
		abort();
	STAY;
}

static WAKER void socket_by(void)
{
	if (send(socket_fds[1], "x", 1, 0) != 1)
		abort();
	STAY;
}

static WAKER void mutex_by(void)
{
	pthread_mutex_unlock(&mutex);
	STAY;
}

static void *run_pipe(void *arg)
{
	char c;

	name_thread("pipe");
	while (read(pipe_fds[0], &c, 1) == 1)
		;
	return NULL;
}

static void *run_pipe_by(void *arg)
{
	name_thread("pipe-by");
	while (!over()) {
		raw_sleep_ns(BEAT_NS);
		pipe_by();
	}
	close(pipe_fds[1]);
	return NULL;
}

static void *run_socket(void *arg)
{
	char c;

	name_thread("socket");
	while (recv(socket_fds[0], &c, 1, 0) == 1)
		;
	return NULL;
}

static void *run_socket_by(void *arg)
{
	name_thread("socket-by");
	while (!over()) {
		raw_sleep_ns(BEAT_NS);
		socket_by();
	}
	shutdown(socket_fds[1], SHUT_RDWR);
	return NULL;
}

/* Both meet when one has the mutex, and again when the other one had it. */
static void *run_mutex(void *arg)
{
	bool last = false;

	name_thread("mutex");
	while (!last) {
		pthread_barrier_wait(&barrier);
		last = last_round;
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *run_mutex_by(void *arg)
{
	bool last = false;

	name_thread("mutex-by");
	while (!last) {
		pthread_mutex_lock(&mutex);
		last = last_round = over();
		pthread_barrier_wait(&barrier);
		raw_sleep_ns(BEAT_NS);
		mutex_by();
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *run_timer(void *arg)
{
	name_thread("timer");
	while (!over())
		raw_sleep_ns(BEAT_NS);
	return NULL;
}

static void connect_sockets(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	socket_fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (void *)&a, sizeof(a)) || listen(listener, 1) ||
	    getsockname(listener, (void *)&a, &len) || connect(socket_fds[1], (void *)&a, len))
		abort();
	socket_fds[0] = accept(listener, NULL, NULL);
	setsockopt(socket_fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

int main(int argc, char **argv)
{
	static void *(*const run[])(void *) = { run_pipe,  run_pipe_by,	 run_socket, run_socket_by,
						run_mutex, run_mutex_by, run_timer };
	pthread_t threads[sizeof(run) / sizeof(*run)];

	end_ns = mono_ns() + (uint64_t)(atof(argc > 1 ? argv[1] : "3") * 1e9);
	if (pipe(pipe_fds))
		abort();
	connect_sockets();
	pthread_barrier_init(&barrier, NULL, 2);
	for (unsigned i = 0; i < sizeof(run) / sizeof(*run); i++)
		if (pthread_create(&threads[i], NULL, run[i], NULL))
			abort();
	for (unsigned i = 0; i < sizeof(run) / sizeof(*run); i++)
		pthread_join(threads[i], NULL);
	printf("{\"pid\": %d}\n", (int)getpid());
	return 0;
}
