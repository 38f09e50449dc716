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
	memo_clear(&w->binaries);
}

struct window *window_free(struct window *w)
{
	if (!w)
		return NULL;
	drop_open(w);
	memo_done(&w->binaries);
	memo_done(&w->series);
	memo_done(&w->stacks);
	memo_done(&w->records);
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

static int begin_slice(struct window *w, const struct slice *s)
{
	memo_clear(&w->series);
	memo_clear(&w->stacks);
	memo_clear(&w->records);
	for (size_t i = 0; i < s->n_stacks; i++) {
		int r;

		if (memo_find(&w->records, s->stacks[i].id, 0))
			continue;
		r = memo_add(&w->records, s->stacks[i].id, 0, (uint32_t)i);
		if (r < 0)
			return r;
	}
	return 0;
}

static void lose(struct window *w, enum source source, enum loss reason, uint64_t n)
{
	w->bucket->meta.source[source].lost[reason] += n;
}

/* One row with a stack: series and stack are resolved, what had to be folded or is missing is counted. */
static int add_row(struct window *w, const struct slice *s, enum source source, uint64_t stack_id,
		   uint32_t tgid, uint32_t tid, uint64_t start, uint32_t key, uint32_t aux,
		   uint64_t samples, uint64_t count, uint64_t value, uint64_t max)
{
	bool series_folded, stack_folded = false;
	int64_t series = resolve_series(w, tgid, tid, start, s->mono_end_ns, &series_folded);
	uint32_t *record = stack_id ? memo_find(&w->records, stack_id, 0) : NULL;
	int64_t stack;

	if (series < 0)
		return (int)series;
	if (record) {
		stack = resolve_stack(w, s, &s->stacks[*record], &stack_folded);
	} else {
		/* STACK_ID_NONE was counted by its reason in the kernel. */
		if (stack_id)
			lose(w, source, LOSS_STACK_MISSING, samples);
		stack = dict_marker(w->bucket->dict, "[no stack]");
		if (stack > 0)
			stack = dict_stack(w->bucket->dict, 0, (uint32_t)stack);
	}
	if (stack < 0)
		return (int)stack;
	if (series_folded || stack_folded)
		lose(w, source, LOSS_DICT_FULL, samples);
	return columns_add(&w->bucket->columns[source], (uint32_t)series, (uint32_t)stack, key, aux,
			   count, value, max);
}

static int add_on_cpu(struct window *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_on_cpu; i++) {
		const struct slice_on_cpu *c = &s->on_cpu[i];
		int r = add_row(w, s, SOURCE_ON_CPU, c->key.stack, c->key.tgid, c->key.tid,
				c->key.start, 0, 0, c->value.samples, c->value.samples, c->value.ns,
				0);

		if (r < 0)
			return r;
	}
	return 0;
}

static int add_off_cpu(struct window *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_off_cpu; i++) {
		const struct slice_off_cpu *c = &s->off_cpu[i];
		uint32_t key = OFF_KEY(c->key.cause, c->key.task_state & 0xffff, 0);
		int r = add_row(w, s, SOURCE_OFF_CPU, c->key.stack, c->key.tgid, c->key.tid,
				c->key.start, key, 0, c->value.samples,
				(c->value.events_q8 + 128) / 256, c->value.ns, 0);

		if (r < 0)
			return r;
	}
	return 0;
}

static int add_threads(struct window *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_threads; i++) {
		const struct slice_thread *t = &s->threads[i];
		const struct {
			enum off_cause cause;
			uint64_t n, ns;
		} parts[] = {
			{ OFF_BLOCKED, t->blocked_n, t->blocked_ns },
			{ OFF_RUN_QUEUE, t->run_queue_n, t->run_queue_ns },
			{ OFF_PREEMPTED, t->preempted_n, t->preempted_ns },
		};
		bool folded;
		int64_t series = resolve_series(w, t->tgid, t->tid, t->start, s->mono_end_ns,
						&folded);

		if (series < 0)
			return (int)series;
		if (folded)
			lose(w, SOURCE_OFF_CPU, LOSS_DICT_FULL, 1);
		for (size_t k = 0; k < ARRAY_SIZE(parts); k++) {
			int r;

			if (!parts[k].n && !parts[k].ns)
				continue;
			r = columns_add(&w->bucket->columns[SOURCE_OFF_CPU], (uint32_t)series, 0,
					OFF_KEY(parts[k].cause, 0, 1), 0, parts[k].n, parts[k].ns,
					0);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int add_syscalls(struct window *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_syscalls; i++) {
		const struct slice_syscall *c = &s->syscalls[i];
		bool folded;
		int64_t series = resolve_series(w, c->key.tgid, 0, c->key.start, s->mono_end_ns,
						&folded);
		int r;

		if (series < 0)
			return (int)series;
		if (folded)
			lose(w, SOURCE_SYSCALLS, LOSS_DICT_FULL, c->calls);
		r = columns_add(&w->bucket->columns[SOURCE_SYSCALLS], (uint32_t)series, 0,
				c->key.call, 0, c->calls, 0, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_futex(struct window *w, const struct slice *s)
{
	for (size_t i = 0; i < s->n_futex; i++) {
		const struct slice_futex *c = &s->futex[i];
		int64_t lock = resolve_lock(w, c->key.tgid, c->key.start, c->key.address,
					    c->key.flags & FUTEX_SHARED);
		int r;

		if (lock < 0)
			return (int)lock;
		r = add_row(w, s, SOURCE_FUTEX, c->key.stack, c->key.tgid, c->key.tid, c->key.start,
			    FUTEX_KEY(c->key.futex_class, c->key.outcome), (uint32_t)lock,
			    c->value.waits, c->value.waits, c->value.ns, c->value.max_ns);
		if (r < 0)
			return r;
	}
	return 0;
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
	m->source[SOURCE_OFF_CPU].threshold_us = MAX(m->source[SOURCE_OFF_CPU].threshold_us,
						     s->threshold_ns / NSEC_PER_USEC);
	m->covered_ns += s->mono_end_ns - s->mono_start_ns;
	m->cpus = MAX(m->cpus, s->cpus_online);
}

int window_add(struct window *w, const struct slice *s, const struct bucket_meta *begin)
{
	int r;

	if (!w->bucket) {
		r = bucket_new(&w->bucket);
		if (r < 0)
			return r;
		w->bucket->meta = *begin;
	}
	r = begin_slice(w, s);
	if (r >= 0)
		r = add_on_cpu(w, s);
	if (r >= 0)
		r = add_off_cpu(w, s);
	if (r >= 0)
		r = add_threads(w, s);
	if (r >= 0)
		r = add_syscalls(w, s);
	if (r >= 0)
		r = add_futex(w, s);
	/* Slices of a second or two repeat most of their rows: keep the open bucket small. */
	for (size_t i = 0; r >= 0 && i < PROFILE_TYPE_N; i++)
		r = columns_sort_merge(&w->bucket->columns[i]);
	add_accounting(w, s);
	return r;
}

/* ---- closing ----------------------------------------------------------------------------------- */

static uint64_t to_us(uint64_t ns)
{
	return (ns + NSEC_PER_USEC / 2) / NSEC_PER_USEC;
}

static void round_to_us(struct bucket *b, const struct source_ns ns[SOURCE_N])
{
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		struct columns *c = &b->columns[t];

		for (size_t i = 0; t != PROFILE_SYSCALLS && i < c->n; i++) {
			c->value[i] = to_us(c->value[i]);
			c->max[i] = to_us(c->max[i]);
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
	round_to_us(w->bucket, w->ns);
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
	round_to_us(b, w->ns);
	*ret = (struct filled){ .bucket = TAKE_PTR(b), .n_keys = w->n_keys };
	ret->binary_keys = TAKE_PTR(keys);
	return 0;
}

void window_stats(const struct window *w, struct window_stats *ret)
{
	*ret = w->stats;
}
