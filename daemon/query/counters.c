// SPDX-License-Identifier: GPL-2.0-or-later
/* Counters of processes beside their CPU time, and how busy the host was meanwhile. */
#include "../bpf/sysprofd.h"
#include "query/internal.h"

struct counting {
	struct merge merge;
	struct counters_answer *a;
	struct index index; /* row number + 1, by process */
	size_t cap_rows;
};

static void counting_done(struct counting *c)
{
	merge_done(&c->merge);
	index_done(&c->index);
}

struct counters_answer *counters_answer_free(struct counters_answer *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->n_rows; i++)
		free(a->rows[i].name);
	free(a->rows);
	profile_free(a->coverage);
	free(a);
	return NULL;
}

static int on_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		     const struct columns *columns)
{
	struct counting *c = ctx;
	struct counters_answer *a = c->a;

	a->busy_ns += meta->busy_us * NSEC_PER_USEC;
	a->capacity_ns += meta->covered_ns * meta->cpus;
	if (meta->pressure_known) {
		a->pressure_covered_ns += meta->covered_ns;
		for (size_t i = 0; i < PRESSURE_N; i++)
			a->pressure_ns[i] += meta->pressure_us[i] * NSEC_PER_USEC;
	}
	return merge_add(&c->merge, d, columns);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

static bool same_process(const void *ctx, uint32_t number, const void *key)
{
	const struct counters_row *row = &((const struct counters_answer *)ctx)->rows[number - 1],
				  *k = key;

	return row->pid == k->pid && row->start == k->start &&
	       (k->pid || streq(row->name, k->name));
}

static uint64_t process_hash(const struct counters_row *k)
{
	uint64_t h = query_mix(k->pid, k->start);

	for (const char *p = k->name; !k->pid && *p; p++)
		h = query_mix(h, (unsigned char)*p);
	return h;
}

static int row_of(struct counting *c, uint32_t series, struct counters_row **ret)
{
	const struct dict *d = c->merge.p->dict;
	const struct series *s = &d->series[series];
	struct counters_answer *a = c->a;
	struct counters_row key = {
		.name = (char *)dict_str(d, s->label[LABEL_COMM]),
		.pid = s->pid,
		.start = s->start,
	};
	uint64_t hash;
	uint32_t number;
	int r = 0;

	if (!*key.name)
		key.name = (char *)NAME_NONE;
	hash = process_hash(&key);
	number = index_find(&c->index, hash, same_process, a, &key);
	if (!number) {
		r = ARRAY_GROW(a->rows, c->cap_rows, a->n_rows + 1);
		if (r == 0)
			key.name = strdup(key.name);
		if (r < 0 || !key.name)
			return -ENOMEM;
		a->rows[a->n_rows++] = key;
		number = (uint32_t)a->n_rows;
		r = index_add(&c->index, hash, number);
	}
	*ret = &a->rows[number - 1];
	return r;
}

static void add_counter(struct counters_row *row, uint32_t counter, uint64_t n, uint64_t ns)
{
	row->counters[counter] += n;
	row->counted_ns[counter] += ns;
}

static int fill_rows(struct counting *c)
{
	const struct columns *rows = &c->merge.p->columns;
	int r = 0;

	for (size_t i = 0; r == 0 && i < rows->n; i++) {
		uint32_t key = rows->key[i], counter = ON_KEY_COUNTER(key);
		struct counters_row *row;

		r = row_of(c, rows->series[i], &row);
		if (r < 0)
			return r;
		if (row_aspect(PROFILE_ON_CPU, key) == ON_SAMPLES)
			row->cpu_ns += rows->value[i];
		else if (counter < COUNTERS)
			add_counter(row, counter, rows->count[i], rows->value[i]);
	}
	return r;
}

static uint64_t events_of(const struct counters_row *row)
{
	uint64_t n = 0;

	for (size_t i = 0; i < COUNTERS; i++)
		n += row->counters[i];
	return n;
}

static int by_cpu_time(const void *pa, const void *pb)
{
	const struct counters_row *a = pa, *b = pb;
	uint64_t x = events_of(a), y = events_of(b);

	if (a->cpu_ns != b->cpu_ns)
		return a->cpu_ns > b->cpu_ns ? -1 : 1;
	if (x != y)
		return x > y ? -1 : 1;
	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static void cut_rows(struct counters_answer *a, uint32_t limit)
{
	qsort(a->rows, a->n_rows, sizeof(*a->rows), by_cpu_time);
	while (limit && a->n_rows > limit) {
		free(a->rows[--a->n_rows].name);
		a->rows_omitted++;
	}
}

/* ---- delays ---------------------------------------------------------------------------------------- */

static int fill_delays(const struct query_source *src, const struct selection *sel,
		       struct counters_answer *a)
{
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection off = *sel;
	int r;

	off.type = PROFILE_OFF_CPU;
	off.aspects = 0;
	r = query_top(src, &off, BY_CAUSE, false, 0, &t);
	if (r < 0)
		return r;
	a->delays_covered_ns = t->coverage->covered_ns;
	for (size_t i = 0; i < t->n_rows; i++) {
		if (streq(t->rows[i].name, off_cause_name(OFF_RUN_QUEUE)))
			a->run_queue_ns = t->rows[i].self;
		if (streq(t->rows[i].name, off_cause_name(OFF_PREEMPTED)))
			a->preempted_ns = t->rows[i].self;
	}
	return 0;
}

int query_counters(const struct query_source *src, const struct selection *sel, uint32_t limit,
		   struct counters_answer **ret)
{
	static const struct projection processes = { .series = PROJECT_ALL, .key = PROJECT_ALL };
	_cleanup_(counting_done) struct counting c = {};
	_cleanup_(counters_answer_free_p) struct counters_answer *a = new0(struct counters_answer,
									   1);
	struct selection on = *sel;
	int r;

	if (!a)
		return -ENOMEM;
	on.type = PROFILE_ON_CPU;
	on.aspects = 1U << ON_SAMPLES | 1U << ON_COUNTERS;
	c.a = a;
	r = merge_init(&c.merge, &on, processes);
	if (r == 0)
		r = query_scan(src, &c.merge, on_bucket, &c);
	if (r == 0)
		r = merge_close(&c.merge);
	if (r == 0)
		r = fill_rows(&c);
	if (r == 0)
		r = fill_delays(src, sel, a);
	if (r < 0)
		return r;
	cut_rows(a, limit);
	a->coverage = merge_take(&c.merge);
	columns_done(&a->coverage->columns);
	*ret = TAKE_PTR(a);
	return 0;
}
