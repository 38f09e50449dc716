// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What an unwind table costs, for each file that is named: rows, rules, bytes, processor time (the best of five) and memory
 * above that of the process before. A process of its own for each file, as the parser starts with a trimmed heap.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"

#include "unwind/compile.h"

static long status_kib(const char *field)
{
	char line[256];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f)) {
		const char *rest = str_skip_prefix(line, field);

		if (rest)
			kib = strtol(rest, NULL, 10);
	}
	if (f)
		fclose(f);
	return kib;
}

static int measure(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t best = UINT64_MAX;
	long before = status_kib("VmRSS:"), peak = 0;
	const char *slash = strrchr(path, '/');

	if (fd < 0) {
		perror(path);
		return 1;
	}
	for (int i = 0; i < 5; i++) {
		_cleanup_free_ struct table *t = NULL;
		uint64_t start = cpu_now_ns();
		int r = table_compile(fd, &t);

		best = MIN(best, cpu_now_ns() - start);
		if (!i)
			peak = status_kib("VmHWM:") - before;
		if (r < 0) {
			printf("%-28s %s\n", slash ? slash + 1 : path, strerror(-r));
			return 0;
		}
		if (i == 4)
			printf("%-28.28s %8llu %6llu %8u %6u %9.2f %6.2f %7.2f %8.2f\n",
			       slash ? slash + 1 : path, (unsigned long long)t->functions,
			       (unsigned long long)t->damaged, t->rows, t->n_rules,
			       (double)t->bytes / 1048576, (double)t->bytes / t->rows,
			       (double)best / 1e6, (double)peak / 1024);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fputs("usage: bench-unwind FILE...\n", stderr);
		return 2;
	}
	printf("%-28s %8s %6s %8s %6s %9s %6s %7s %8s\n", "file", "functions", "damaged", "rows",
	       "rules", "MiB", "B/row", "ms", "peak MiB");
	for (int i = 1; i < argc; i++) {
		int status = 0;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			status = measure(argv[i]);
			fflush(stdout);
			_exit(status);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
			return 1;
	}
	return 0;
}
