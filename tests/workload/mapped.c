// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mapped MS @OFFSET FILE... [@OFFSET FILE...]: maps each file executable as a whole, says "ready", and calls long f(long),
 * which lies at the offset before its name and counts down, in one file after another, so many milliseconds in each.
 * Makes way for all others.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "truth.h"

typedef long count_down(long);

static char *map(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		exit(1);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		exit(1);
	close(fd);
	return p;
}

static __attribute__((noinline)) void run(count_down *f, uint64_t ns)
{
	uint64_t begin = thread_cpu_ns();

	do
		f(100000);
	while (thread_cpu_ns() - begin < ns);
}

int main(int argc, char **argv)
{
	uint64_t offset = 0, ns;
	count_down **all;
	int n = 0;

	all = calloc((size_t)argc, sizeof(*all));
	if (argc < 4 || !all || nice(19) < 0)
		return 1;
	ns = strtoul(argv[1], NULL, 0) * 1000000;
	for (int i = 2; i < argc; i++) {
		if (*argv[i] == '@') {
			offset = strtoul(argv[i] + 1, NULL, 0);
			continue;
		}
		all[n] = (count_down *)(map(argv[i]) + offset);
		all[n++](1);
	}
	puts("ready");
	fflush(stdout);
	for (int i = 0;; i = (i + 1) % n)
		run(all[i], ns);
}
