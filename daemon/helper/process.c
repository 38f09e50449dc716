// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "helper/process.h"
#include "helper/limits.h"

#define PAUSE_FIRST_NS (100 * NSEC_PER_MSEC)
#define PAUSE_MAX_NS (30 * NSEC_PER_SEC)
#define REAP_NS (200 * NSEC_PER_MSEC)
#define HELPER_FD 3

extern char **environ;

void helper_process_init(struct helper_process *h, const char *name, const char *option,
			 uint64_t memory)
{
	*h = (struct helper_process){
		.channel = { .fd = -1, .passed_fd = -1 },
		.name = name,
		.option = option,
		.memory = memory,
	};
}

static bool reaped(pid_t pid)
{
	int status;

	/* ECHILD: somebody ignores SIGCHLD, the kernel has reaped it. */
	return waitpid(pid, &status, WNOHANG) != 0;
}

static void sleep_until(uint64_t mono_ns)
{
	struct timespec t = { .tv_sec = (time_t)(mono_ns / NSEC_PER_SEC),
			      .tv_nsec = (long)(mono_ns % NSEC_PER_SEC) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void stop(struct helper_process *h)
{
	uint64_t until = mono_now_ns() + REAP_NS;

	channel_done(&h->channel);
	if (!h->pid)
		return;
	kill(h->pid, SIGKILL);
	for (;;) {
		if (reaped(h->pid)) {
			h->pid = 0;
			return;
		}
		if (mono_now_ns() >= until)
			break;
		sleep_until(mono_now_ns() + NSEC_PER_MSEC);
	}
	/* There is room: helper_process_ensure() starts none when the array is full. */
	assert(h->n_abandoned < HELPERS_ABANDONED_MAX);
	h->abandoned[h->n_abandoned++] = h->pid;
	h->pid = 0;
}

void helper_process_done(struct helper_process *h)
{
	stop(h);
}

static void reap_abandoned(struct helper_process *h)
{
	for (size_t i = h->n_abandoned; i-- > 0;)
		if (reaped(h->abandoned[i]))
			h->abandoned[i] = h->abandoned[--h->n_abandoned];
}

static int spawn(const struct helper_process *h, int fd, pid_t *ret)
{
	char how[32];
	char *const argv[] = { (char *)h->name, (char *)h->option, how, NULL };
	static char *const no_env[] = { NULL };
	char *const *env = no_env;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	env = environ;
#endif
	snprintf(how, sizeof(how), "%d:%llu", HELPER_FD, (unsigned long long)h->memory);
	sigemptyset(&none);
	sigfillset(&all);
	r = posix_spawnattr_init(&attr);
	if (r)
		return -r;
	r = posix_spawn_file_actions_init(&actions);
	if (r) {
		posix_spawnattr_destroy(&attr);
		return -r;
	}
	/* A group of its own: Ctrl-C at a terminal is for the daemon, which may still need names then. */
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	r = posix_spawn_file_actions_adddup2(&actions, fd, HELPER_FD);
	if (!r)
		r = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -r;
}

static int start(struct helper_process *h)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return negative_errno();
	r = channel_init(&h->channel, pair[0], HELPER_RESPONSE_MAX);
	if (r < 0) {
		close_fd(pair[0]);
		close_fd(pair[1]);
		h->channel.fd = -1;
		return r;
	}
	r = spawn(h, pair[1], &h->pid);
	close_fd(pair[1]);
	if (r < 0) {
		h->pid = 0;
		channel_done(&h->channel);
		return r;
	}
	return 0;
}

int helper_process_ensure(struct helper_process *h, uint64_t deadline_mono_ns)
{
	int r;

	if (h->n_abandoned)
		reap_abandoned(h);
	if (h->pid)
		return 0;
	if (h->n_abandoned == HELPERS_ABANDONED_MAX || h->restart_mono_ns > deadline_mono_ns)
		return -EAGAIN;
	if (h->restart_mono_ns)
		sleep_until(h->restart_mono_ns);
	r = start(h);
	if (r < 0)
		helper_process_failed(h);
	return r;
}

void helper_process_failed(struct helper_process *h)
{
	uint64_t pause = PAUSE_FIRST_NS << MIN(h->failures, 10U);

	stop(h);
	h->failures++;
	h->restart_mono_ns = mono_now_ns() + MIN(pause, PAUSE_MAX_NS);
}

void helper_process_answered(struct helper_process *h)
{
	h->failures = 0;
	h->restart_mono_ns = 0;
}

static uint64_t cpu_time_of(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

void helper_process_mark(struct helper_process *h)
{
	h->marked_cpu_ns = cpu_time_of(h->pid);
}

bool helper_process_starves(const struct helper_process *h, uint64_t cpu_ns)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	const char *state;
	char path[32];

	if (!h->pid || cpu_time_of(h->pid) - h->marked_cpu_ns >= cpu_ns)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", h->pid);
	if (read_file_at(AT_FDCWD, path, 4096, &b) < 0)
		return false;
	/* "pid (comm) R ..." */
	state = strrchr(b.data, ')');
	return state && str_skip_prefix(state, ") R");
}
