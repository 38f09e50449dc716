/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program to be looked at: started by the shell, quiet. */
#pragma once

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static pid_t start(const char *command)
{
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		for (int i = 0; i < 3; i++)
			dup2(null, i);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	return pid;
}

static void sleep_us(unsigned us)
{
	struct timespec t = { .tv_nsec = us * 1000L };

	nanosleep(&t, NULL);
}
