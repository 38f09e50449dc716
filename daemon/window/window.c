// SPDX-License-Identifier: GPL-2.0-or-later
/* Filling, closing and copying the open bucket. */
#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "window/internal.h"

/* The GNU build-id note of the running kernel; "" when there is none. */
static void read_kernel_build_id(char *ret, size_t size)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint32_t head[3];

	ret[0] = 0;
	if (read_file_at(AT_FDCWD, "/sys/kernel/notes", 64 * 1024, &b) < 0)
		return;
	for (size_t o = 0; o + sizeof(head) <= b.len;) {
		size_t name, desc;

		memcpy(head, b.data + o, sizeof(head));
		if (head[0] > b.len || head[1] > b.len)
			return;
		name = o + sizeof(head);
		desc = name + ((head[0] + 3) & ~(size_t)3);
		if (desc + head[1] > b.len)
			return;
		if (head[2] == 3 && head[0] == 4 && memcmp(b.data + name, "GNU", 4) == 0 &&
		    head[1] * 2 < size) {
			for (size_t i = 0; i < head[1]; i++)
				snprintf(ret + 2 * i, 3, "%02x", (unsigned char)b.data[desc + i]);
			return;
		}
		o = desc + ((head[1] + 3) & ~(size_t)3);
	}
}

int window_new(const struct window_options *o, struct process_table *processes,
	       struct kallsyms *kallsyms, struct window **ret)
{
	struct window *w = new0(struct window, 1);

	if (!w)
		return -ENOMEM;
	w->options = *o;
	w->series_limit = o->max_series;
	w->processes = processes;
	w->kallsyms = kallsyms;
	read_kernel_build_id(w->kernel_build_id, sizeof(w->kernel_build_id));
	*ret = w;
	return 0;
}

static void drop_open(struct window *w)
{
	w->bucket = bucket_free(w->bucket);
	free(w->binary_keys);
	w->binary_keys = NULL;
	w->n_keys = w->cap_keys = 0;
	memset(w->ns, 0, sizeof(w->ns));
	w->spans = w->wakes = (struct call_spans){};
	memo_clear(&w->binaries);
	memo_clear(&w->locks);
}

struct window *window_free(struct window *w)
{
	if (!w)
		return NULL;
	drop_open(w);
	memo_done(&w->binaries);
	memo_done(&w->series);
	memo_done(&w->stacks);
	memo_done(&w->waits);
	memo_done(&w->records);
	memo_done(&w->locks);
	free(w->ends);
	free(w->places);
	free(w);
	return NULL;
}

void filled_done(struct filled *f)
{
	bucket_free(f->bucket);
	free(f->binary_keys);
	*f = (struct filled){};
}

/* ---- adding a slice ---------------------------------------------------------------------------- */

static void begin_slice(struct adding *a)
{
	struct window *w = a->w;

	memo_clear(&w->series);
	memo_clear(&w->stacks);
	memo_clear(&w->waits);
	memo_clear(&w->records);
	if (w->options.quality)
		quality_trim(w->options.quality);
	if (ARRAY_GROW(w->ends, w->cap_ends, a->s->n_stacks) < 0)
		a->error = -ENOMEM;
	else if (a->s->n_stacks)
		memset(w->ends, 0, a->s->n_stacks * sizeof(*w->ends));
	if (ARRAY_GROW(w->places, w->cap_places, a->s->n_stacks) < 0)
		a->error = -ENOMEM;
	else if (a->s->n_stacks)
		memset(w->places, 0, a->s->n_stacks * sizeof(*w->places));
	for (size_t i = 0; i < a->s->n_stacks; i++) {
		int r;

		if (memo_find(&w->records, a->s->stacks[i].id, 0))
			continue;
		/* Rows whose stack is not found count it as missing. */
		r = memo_add(&w->records, a->s->stacks[i].id, 0, (uint32_t)i);
		if (r < 0 && a->error == 0)
			a->error = r;
	}
}

static void lose(struct adding *a, enum source source, enum loss reason, uint64_t n)
{
	a->s->source[source].sum.lost[reason] += n;
}

void window_drop_row(struct adding *a, enum source source, uint64_t n, uint64_t ns, int error)
{
	struct account *sum = &a->s->source[source].sum;

	if (a->error == 0)
		a->error = error;
	sum->stored -= MIN(n, sum->stored);
	lose(a, source, LOSS_OTHER, n);
	if (source != SOURCE_ON_CPU)
		return;
	sum->ns -= MIN(ns, sum->ns);
	sum->lost_ns += ns;
}

/* The dict stack of a row. */
static int64_t row_stack(struct adding *a, enum source source, const struct row *row,
			 bool *ret_folded)
{
	struct window *w = a->w;
	uint32_t *record = row->stack ? memo_find(&w->records, row->stack, 0) : NULL;
	int64_t marker;

	if (record) {
		const struct slice_stack *st = &a->s->stacks[*record];
		int64_t stack = resolve_stack(w, a->s, st, ret_folded);

		if (w->options.quality && st->walk_end != WALK_NONE && *record < w->cap_ends)
			quality_count(w->options.quality, w->ends[*record], st->walk_end,
				      st->nr_fp > 0, row->samples);
		return stack;
	}
	/* STACK_ID_NONE was counted by its reason in the kernel. */
	if (row->stack)
		lose(a, source, LOSS_STACK_MISSING, row->samples);
	*ret_folded = false;
	marker = dict_marker(w->bucket->dict, "[no stack]");
	return marker < 0 ? marker : dict_stack(w->bucket->dict, 0, (uint32_t)marker);
}

/* One row with a stack: series and stack are resolved, what had to be folded or is missing is counted. */
static int try_row(struct adding *a, enum source source, const struct row *row)
{
	struct window *w = a->w;
	bool series_folded, stack_folded;
	int64_t stack, series = resolve_series(w, row->tgid, row->tid, row->start,
					       a->s->mono_end_ns, &series_folded);
	int r;

	if (series < 0)
		return (int)series;
	stack = row_stack(a, source, row, &stack_folded);
	if (stack < 0)
		return (int)stack;
	r = columns_add(&w->bucket->columns[source], (uint32_t)series, (uint32_t)stack, row->key,
			row->aux, row->count, row->value, row->max);
	if (r == 0 && (series_folded || stack_folded))
		lose(a, source, LOSS_DICT_FULL, row->samples);
	return r;
}

void window_add_row(struct adding *a, enum source source, const struct row *row)
{
	int r = try_row(a, source, row);

	if (r < 0)
		window_drop_row(a, source, row->samples, row->value, r);
}

static void add_on_cpu(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_on_cpu; i++) {
		const struct slice_on_cpu *c = &a->s->on_cpu[i];

		window_add_row(a, SOURCE_ON_CPU,
			       &(struct row){
				       .stack = c->key.stack,
				       .tgid = c->key.tgid,
				       .tid = c->key.tid,
				       .start = c->key.start,
				       .samples = c->value.samples,
				       .count = c->value.samples,
				       .value = c->value.ns,
			       });
	}
}

/* They are in no source's accounts: what fails of them, or is folded, is booked apart. */
static void add_instructions(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_instructions; i++) {
		const struct slice_on_cpu *c = &a->s->instructions[i];
		struct account *sum = &a->s->instructions_sum;
		const struct row row = {
			.stack = c->key.stack,
			.tgid = c->key.tgid,
			.tid = c->key.tid,
			.start = c->key.start,
			.key = ON_ASPECT(ON_INSTRUCTIONS),
			.count = c->value.samples,
			.value = c->value.ns,
		};
		int r = try_row(a, SOURCE_ON_CPU, &row);

		if (r >= 0)
			continue;
		sum->stored -= MIN(c->value.samples, sum->stored);
		sum->lost[LOSS_OTHER] += c->value.samples;
		if (a->error == 0)
			a->error = r;
	}
}

uint32_t window_wait_key(struct adding *a, const struct slice_off_cpu *c)
{
	struct window *w = a->w;
	uint32_t *record = c->key.stack ? memo_find(&w->records, c->key.stack, 0) : NULL;
	uint32_t key = OFF_KEY(c->key.cause, c->key.task_state & 0xffff, 0);
	struct wait_place place;

	if (c->key.cause != OFF_BLOCKED)
		return key;
	if (!record || *record >= w->cap_places) {
		place = wait_classify(NULL, 0, CALL_NONE, c->key.task_state);
	} else {
		if (w->places[*record].kind == WAIT_UNKNOWN)
			w->places[*record] = resolve_wait(w, a->s, &a->s->stacks[*record],
							  c->key.task_state);
		place = w->places[*record];
	}
	return key | OFF_WAIT_KEY(place.kind, wait_is_idle(place, c->value.ns, c->value.events_q8));
}

/* Those who end the wait are told under the same key. Without memory they are told under one of their own. */
static void remember_wait(struct adding *a, const struct slice_off_cpu *c, uint32_t key)
{
	uint64_t who = (uint64_t)c->key.tid << 32 | c->key.task_state;

	if (a->s->n_wakes && c->key.cause == OFF_BLOCKED &&
	    !memo_find(&a->w->waits, c->key.stack, who))
		(void)memo_add(&a->w->waits, c->key.stack, who, key);
}

static void add_off_cpu(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_off_cpu; i++) {
		const struct slice_off_cpu *c = &a->s->off_cpu[i];
		uint32_t key = window_wait_key(a, c);

		remember_wait(a, c, key);
		window_add_row(a, SOURCE_OFF_CPU,
			       &(struct row){
				       .stack = c->key.stack,
				       .tgid = c->key.tgid,
				       .tid = c->key.tid,
				       .start = c->key.start,
				       .key = key,
				       .samples = c->value.samples,
				       .count = (c->value.events_q8 + 128) / 256,
				       .value = c->value.ns,
			       });
	}
}

/* Of its process: threads are not told apart. */
static int add_counters(struct adding *a, const struct slice_thread *t)
{
	struct columns *columns = &a->w->bucket->columns[SOURCE_ON_CPU];
	bool folded;
	int64_t series = resolve_series(a->w, t->tgid, 0, t->start, a->s->mono_end_ns, &folded);
	int r = series < 0 ? (int)series : 0;

	for (uint32_t k = 0; k < COUNTER_OF_THREADS && r == 0; k++)
		if (t->counters[k])
			r = columns_add(columns, (uint32_t)series, 0, ON_ASPECT(ON_COUNTERS) | k, 0,
					t->counters[k], 0, 0);
	return r;
}

static int try_thread(struct adding *a, const struct slice_thread *t)
{
	const struct {
		enum off_cause cause;
		uint64_t n, ns;
	} parts[] = {
		{ OFF_BLOCKED, t->blocked_n, t->blocked_ns },
		{ OFF_RUN_QUEUE, t->run_queue_n, t->run_queue_ns },
		{ OFF_PREEMPTED, t->preempted_n, t->preempted_ns },
	};
	struct columns *columns = &a->w->bucket->columns[SOURCE_OFF_CPU];
	bool folded;
	int64_t series = resolve_series(a->w, t->tgid, t->tid, t->start, a->s->mono_end_ns,
					&folded);
	int r = series < 0 ? (int)series : 0;

	for (size_t k = 0; k < ARRAY_SIZE(parts) && r == 0; k++)
		if (parts[k].n || parts[k].ns)
			r = columns_add(columns, (uint32_t)series, 0, OFF_KEY(parts[k].cause, 0, 1),
					0, parts[k].n, parts[k].ns, 0);
	if (r == 0)
		r = add_counters(a, t);
	if (r == 0 && folded)
		lose(a, SOURCE_OFF_CPU, LOSS_DICT_FULL, 1);
	return r;
}

/*
 * Threads that only wait may be very many. They leave a quarter of the series to those that do something, or a
 * crowd of sleepers would fold everything else into [other]. Totals are no events: one that is lost counts as
 * one that was seen and lost.
 */
static void add_threads(struct adding *a)
{
	a->w->series_limit = a->w->options.max_series / 4 * 3;
	for (size_t i = 0; i < a->s->n_threads; i++) {
		int r = try_thread(a, &a->s->threads[i]);

		if (r < 0) {
			a->s->source[SOURCE_OFF_CPU].sum.seen++;
			window_drop_row(a, SOURCE_OFF_CPU, 0, 0, r);
			lose(a, SOURCE_OFF_CPU, LOSS_OTHER, 1);
		}
	}
	a->w->series_limit = a->w->options.max_series;
}

static int try_syscall(struct adding *a, const struct slice_syscall *c)
{
	bool folded;
	int64_t series = resolve_series(a->w, c->key.tgid, 0, c->key.start, a->s->mono_end_ns,
					&folded);
	int r;

	if (series < 0)
		return (int)series;
	r = columns_add(&a->w->bucket->columns[SOURCE_SYSCALLS], (uint32_t)series, 0, c->key.call,
			0, c->calls, 0, 0);
	if (r == 0 && folded)
		lose(a, SOURCE_SYSCALLS, LOSS_DICT_FULL, c->calls);
	return r;
}

static void add_syscalls(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_syscalls; i++) {
		int r = try_syscall(a, &a->s->syscalls[i]);

		if (r < 0)
			window_drop_row(a, SOURCE_SYSCALLS, a->s->syscalls[i].calls, 0, r);
	}
}

static void add_accounting(struct window *w, const struct slice *s)
{
	struct bucket_meta *m = &w->bucket->meta;

	for (size_t i = 0; i < SOURCE_N; i++) {
		const struct account *a = &s->source[i].sum;
		struct accounting *to = &m->source[i];

		to->seen += a->seen;
		to->stored += a->stored;
		to->idle += a->idle;
		w->ns[i].stored += a->ns;
		w->ns[i].idle += a->idle_ns;
		w->ns[i].lost += a->lost_ns;
		for (size_t k = 0; k < LOSS_N; k++)
			to->lost[k] += a->lost[k];
	}
	for (size_t k = 0; k < LOSS_N; k++)
		if (!loss_keeps_weight((unsigned)k))
			w->bucket->instructions.lost += s->instructions_sum.lost[k];
	m->source[SOURCE_OFF_CPU].threshold_us = MAX(m->source[SOURCE_OFF_CPU].threshold_us,
						     s->threshold_ns / NSEC_PER_USEC);
	m->covered_ns += s->mono_end_ns - s->mono_start_ns;
	m->cpus = MAX(m->cpus, s->cpus_online);
}

static int merge_columns(struct bucket *b)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < PROFILE_TYPE_N; i++)
		r = columns_sort_merge(&b->columns[i]);
	return r;
}

/* No bucket can be opened: all that the slice holds is lost. */
static int drop_slice(struct slice *s, int error)
{
	for (size_t i = 0; i < SOURCE_N; i++) {
		struct account *a = &s->source[i].sum;

		a->lost[LOSS_OTHER] += a->stored;
		a->lost_ns += a->ns;
		a->stored = a->ns = 0;
	}
	s->source[SOURCE_OFF_CPU].sum.seen += s->n_threads;
	s->source[SOURCE_OFF_CPU].sum.lost[LOSS_OTHER] += s->n_threads;
	return error;
}

int window_add(struct window *w, struct slice *s, const struct bucket_meta *begin)
{
	struct adding a = { .w = w, .s = s };
	int r;

	if (!w->bucket) {
		r = bucket_new(&w->bucket);
		if (r < 0)
			return drop_slice(s, r);
		w->bucket->meta = *begin;
	}
	begin_slice(&a);
	/* What runs and works comes first, in case not all fits. */
	add_on_cpu(&a);
	add_instructions(&a);
	add_syscalls(&a);
	locks_add(&a);
	kernel_locks_add(&a);
	add_off_cpu(&a);
	wakers_add(&a);
	add_threads(&a);
	callers_add(&a);
	hardware_add(&a);
	r = calls_add(w, s);
	if (a.error == 0)
		a.error = r;
	add_accounting(w, s);
	/* Slices of a second or two repeat most of their rows: keep the open bucket small. */
	r = merge_columns(w->bucket);
	return a.error < 0 ? a.error : r;
}

/* ---- closing ----------------------------------------------------------------------------------- */

static uint64_t to_us(uint64_t ns)
{
	return (ns + NSEC_PER_USEC / 2) / NSEC_PER_USEC;
}

/* Calls of less than a microsecond took time, too. No wait is longer than all of them together: both are rounded alike. */
static uint64_t longest_us(enum profile_type t, uint64_t ns)
{
	return t == PROFILE_SYSCALLS ? (ns + NSEC_PER_USEC - 1) / NSEC_PER_USEC : to_us(ns);
}

/* What is measured becomes what is stored. */
static void settle(const struct window *w, struct bucket *b)
{
	const struct source_ns *ns = w->ns;

	calls_scale(b, &w->spans);
	wakers_scale(b, &w->wakes);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		struct columns *c = &b->columns[t];

		for (size_t i = 0; i < c->n; i++) {
			if (w->options.events || !row_is_time((enum profile_type)t, c->key[i]))
				continue;
			c->value[i] = to_us(c->value[i]);
			c->max[i] = longest_us((enum profile_type)t, c->max[i]);
		}
	}
	for (size_t i = 0; i < SOURCE_N; i++) {
		b->meta.source[i].stored_us = to_us(ns[i].stored);
		b->meta.source[i].idle_us = to_us(ns[i].idle);
		b->meta.source[i].lost_us = to_us(ns[i].lost);
	}
}

bool window_is_open(const struct window *w)
{
	return w->bucket != NULL;
}

int window_close(struct window *w, struct filled *ret)
{
	if (!w->bucket)
		return 1;
	/* Again, should it have failed: rows must be unique. */
	(void)merge_columns(w->bucket);
	settle(w, w->bucket);
	*ret = (struct filled){
		.bucket = TAKE_PTR(w->bucket),
		.n_keys = w->n_keys,
	};
	ret->binary_keys = TAKE_PTR(w->binary_keys);
	drop_open(w);
	return 0;
}

int window_snapshot(struct window *w, struct filled *ret)
{
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	_cleanup_free_ uint64_t *keys = NULL;
	int r;

	if (!w->bucket)
		return 1;
	r = bucket_copy(w->bucket, &b);
	if (r < 0)
		return r;
	if (w->n_keys > 0) {
		keys = new0(uint64_t, w->n_keys);
		if (!keys)
			return -ENOMEM;
		memcpy(keys, w->binary_keys, w->n_keys * sizeof(*keys));
	}
	settle(w, b);
	*ret = (struct filled){ .bucket = TAKE_PTR(b), .n_keys = w->n_keys };
	ret->binary_keys = TAKE_PTR(keys);
	return 0;
}

void window_stats(const struct window *w, struct window_stats *ret)
{
	*ret = w->stats;
}
