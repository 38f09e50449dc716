// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A day of the model through the store: size, time of an append, of opening, of loading and of merging.
 * bench-store [DIRECTORY [BUCKETS]]: the directory is kept when given.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "model.h"
#include "store/store.h"

#define DAY_START (1767225600ULL * NSEC_PER_SEC) /* 2026-01-01 */

static double ms(uint64_t ns)
{
	return (double)ns / NSEC_PER_MSEC;
}

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench-store: %s: %s\n", what, strerror(-r));
	exit(1);
}

struct merge {
	uint64_t *value;
	size_t cap;
	uint64_t rows, buckets, damaged, total;
};

static int merge_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
			const struct columns *c)
{
	struct merge *m = ctx;

	m->buckets++;
	if (!c) {
		m->damaged++;
		return 0;
	}
	if (ARRAY_GROW(m->value, m->cap, d->n_stacks) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		m->value[c->stack[i]] += c->value[i];
		m->total += c->value[i];
	}
	m->rows += c->n;
	return 0;
}

static void scan(struct store_reader *r, enum profile_type type, uint64_t from, uint64_t until,
		 const char *label)
{
	struct merge m = {};
	uint64_t start = mono_now_ns(), cpu = cpu_now_ns();

	must(store_reader_scan(r, type, from, until, NULL, merge_bucket, &m), "scan");
	printf("  %-28s %8.2f ms, %.2f ms CPU  %9llu rows, %llu buckets\n", label,
	       ms(mono_now_ns() - start), ms(cpu_now_ns() - cpu), (unsigned long long)m.rows,
	       (unsigned long long)m.buckets);
	free(m.value);
}

/* Asks the kernel to forget the files, as after a night. */
static void chill(const char *directory)
{
	struct dirent *e;
	DIR *dir = opendir(directory);

	while (dir && (e = readdir(dir))) {
		int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);

		if (fd >= 0) {
			(void)!fsync(fd);
			(void)!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
	}
	closedir(dir);
}

/* What grows with the days. The log and the reserve are there once, however many. */
static double days_mib(const char *directory)
{
	struct dirent *e;
	DIR *dir = opendir(directory);
	uint64_t bytes = 0;

	while (dir && (e = readdir(dir))) {
		const char *ending = strrchr(e->d_name, '.');
		struct stat st;

		if (ending && strcmp(ending, ".db") == 0 &&
		    fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
			bytes += (uint64_t)st.st_size;
	}
	closedir(dir);
	return (double)bytes / (1 << 20);
}

static void read_back(const char *directory, uint64_t until)
{
	struct store_reader *r;

	must(store_reader_new(directory, &r), "reader");
	scan(r, PROFILE_ON_CPU, DAY_START, DAY_START + 1, "open, load the dictionary");
	scan(r, PROFILE_ON_CPU, DAY_START, until, "on-cpu, all, warm");
	scan(r, PROFILE_ON_CPU, DAY_START, until, "on-cpu, all, again");
	scan(r, PROFILE_ON_CPU, until - 3600 * NSEC_PER_SEC, until, "on-cpu, the last hour");
	scan(r, PROFILE_OFF_CPU, DAY_START, until, "off-cpu, all");
	scan(r, PROFILE_SYSCALLS, DAY_START, until, "syscalls, all");
	scan(r, PROFILE_FUTEX, DAY_START, until, "futex, all");
	store_reader_free(r);
	chill(directory);
	must(store_reader_new(directory, &r), "reader");
	scan(r, PROFILE_ON_CPU, DAY_START, until, "on-cpu, all, cold");
	store_reader_free(r);
}

int main(int argc, char **argv)
{
	char temporary[] = "/var/tmp/sysprofd-bench-XXXXXX", command[PATH_MAX];
	const char *directory = argc > 1 ? argv[1] : mkdtemp(temporary);
	uint64_t buckets = argc > 2 ? strtoull(argv[2], NULL, 10) : 8640;
	struct store_options o = { .directory = directory,
				   .max_bytes = 4ULL << 30,
				   .repack_buckets = 60,
				   .check_eagerly = true };
	uint64_t append_wall = 0, append_cpu = 0, maintain_wall = 0, maintain_cpu = 0, worst = 0, t,
		 c;
	struct store_stats st;
	struct store *s;
	struct model *m = malloc(sizeof(*m));

	if (!directory || !m)
		return 1;
	model_init(m, 1);
	must(store_open(&o, &s), "open");
	for (uint64_t i = 0; i < buckets; i++) {
		struct bucket *b = model_bucket(m, DAY_START + i * 10 * NSEC_PER_SEC);

		t = mono_now_ns();
		c = cpu_now_ns();
		must(store_append(s, b), "append");
		append_cpu += cpu_now_ns() - c;
		append_wall += mono_now_ns() - t;
		worst = MAX(worst, mono_now_ns() - t);
		bucket_free(b);
		t = mono_now_ns();
		c = cpu_now_ns();
		while (store_maintain(s) > 0)
			;
		maintain_cpu += cpu_now_ns() - c;
		maintain_wall += mono_now_ns() - t;
	}
	store_get_stats(s, &st);
	printf("%llu buckets\n", (unsigned long long)st.buckets);
	printf("  day files                    %8.2f MiB\n", days_mib(directory));
	printf("  beside them, once            %8.2f MiB\n",
	       (double)st.bytes / (1 << 20) - days_mib(directory));
	printf("  append                       %8.3f ms CPU, %.3f ms, worst %.1f ms\n",
	       ms(append_cpu) / buckets, ms(append_wall) / buckets, ms(worst));
	printf("  maintenance per append       %8.3f ms CPU, %.3f ms\n", ms(maintain_cpu) / buckets,
	       ms(maintain_wall) / buckets);
	store_close(s);
	t = mono_now_ns();
	must(store_open(&o, &s), "open");
	printf("  open again                   %8.2f ms\n", ms(mono_now_ns() - t));
	read_back(directory, DAY_START + buckets * 10 * NSEC_PER_SEC);
	store_close(s);
	free(m);
	if (argc <= 1) {
		snprintf(command, sizeof(command), "rm -rf %s", directory);
		return system(command) != 0;
	}
	return 0;
}
