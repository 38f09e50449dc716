// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Questions about a day of the model, answered from a store. bench-query [DIRECTORY]: a store that bench-store
 * left there; without it, three hours are made first. Best of five, CPU time of the one thread.
 */
#include <ftw.h>
#include <time.h>

#include "base/clock.h"
#include "base/heap.h"
#include "model.h"
#include "query/query.h"

#define DAY_START (1767225600ULL * NSEC_PER_SEC) /* as bench-store */
#define ROUNDS 5
#define SHORT_BUCKETS 1080

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench-query: %s: %s\n", what, strerror(-r));
	exit(1);
}

static double thread_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void make_store(const char *directory)
{
	struct store_options o = { .directory = directory,
				   .max_bytes = 4ULL << 30,
				   .repack_buckets = 60 };
	struct model *m = malloc(sizeof(*m));
	struct store *s;

	if (!m)
		exit(1);
	model_init(m, 1);
	must(store_open(&o, &s), "open");
	for (uint64_t i = 0; i < SHORT_BUCKETS; i++) {
		struct bucket *b = model_bucket(m, DAY_START + i * 10 * NSEC_PER_SEC);

		must(store_append(s, b), "append");
		bucket_free(b);
		while (store_maintain(s) > 0)
			;
	}
	store_close(s);
	free(m);
}

struct question {
	const char *label;
	enum profile_type type;
	int (*ask)(const struct query_source *src, struct selection *sel);
	uint64_t range_ns;
};

static int ask_merge(const struct query_source *src, struct selection *sel)
{
	struct profile *p = NULL;
	int r = query_merge(src, sel, 8192, &p);

	profile_free(p);
	return r;
}

static int ask_top(const struct query_source *src, struct selection *sel)
{
	struct top *t = NULL;
	int r = query_top(src, sel, BY_NONE, false, 20, &t);

	top_free(t);
	return r;
}

static int ask_process(const struct query_source *src, struct selection *sel)
{
	struct top *t = NULL;
	int r = query_top(src, sel, BY_PROCESS, false, 20, &t);

	top_free(t);
	return r;
}

static int ask_filtered(const struct query_source *src, struct selection *sel)
{
	struct filter f[] = { { FILTER_FUNCTION, (char *)"*function_12*", false },
			      { FILTER_UNIT, (char *)"service-1*", false } };
	int r;

	sel->filters = f;
	sel->n_filters = ARRAY_SIZE(f);
	r = ask_merge(src, sel);
	sel->n_filters = 0;
	return r;
}

static int ask_series(const struct query_source *src, struct selection *sel)
{
	struct series_answer *a = NULL;
	int r = query_series(src, sel, BY_PROCESS, 0, 20, &a);

	series_answer_free(a);
	return r;
}

static void run(struct store_reader *reader, const struct question *q)
{
	struct query_source src = { .reader = reader };
	struct selection sel = { .type = q->type,
				 .from_wall_ns = DAY_START,
				 .until_wall_ns = DAY_START + q->range_ns,
				 .visibility = { .all = true } };
	double best = 0;

	for (int i = 0; i < ROUNDS; i++) {
		double before = thread_ms(), took;

		must(q->ask(&src, &sel), q->label);
		took = thread_ms() - before;
		best = i == 0 || took < best ? took : best;
	}
	printf("  %-40s %8.2f ms\n", q->label, best);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	return remove(path);
}

int main(int argc, char **argv)
{
	static const uint64_t hour = 3600 * NSEC_PER_SEC;
	const struct question questions[] = {
		{ "on-cpu, merge, 24 h", PROFILE_ON_CPU, ask_merge, 24 * hour },
		{ "on-cpu, merge, 1 h", PROFILE_ON_CPU, ask_merge, hour },
		{ "on-cpu, merge, 24 h, two filters", PROFILE_ON_CPU, ask_filtered, 24 * hour },
		{ "on-cpu, top by function, 24 h", PROFILE_ON_CPU, ask_top, 24 * hour },
		{ "on-cpu, top by process, 24 h", PROFILE_ON_CPU, ask_process, 24 * hour },
		{ "on-cpu, series by process, 24 h", PROFILE_ON_CPU, ask_series, 24 * hour },
		{ "off-cpu, merge, 24 h", PROFILE_OFF_CPU, ask_merge, 24 * hour },
		{ "off-cpu, top by function, 24 h", PROFILE_OFF_CPU, ask_top, 24 * hour },
		{ "syscalls, top, 24 h", PROFILE_SYSCALLS, ask_top, 24 * hour },
		{ "futex, top by function, 24 h", PROFILE_FUTEX, ask_top, 24 * hour },
	};
	char temporary[] = "/var/tmp/sysprofd-bench-XXXXXX";
	const char *directory = argc > 1 ? argv[1] : mkdtemp(temporary);
	struct store_reader *reader;

	if (!directory)
		return 1;
	heap_keep_some();
	if (argc == 1) {
		printf("3 h of the model (24 h means all of it)\n");
		make_store(directory);
	}
	must(store_reader_new(directory, &reader), "reader");
	for (size_t i = 0; i < ARRAY_SIZE(questions); i++)
		run(reader, &questions[i]);
	store_reader_free(reader);
	if (argc == 1)
		nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}
