// SPDX-License-Identifier: GPL-2.0-or-later
#include "collect/threads.h"

static uint64_t key_hash(uint32_t tid, uint64_t thread_start)
{
	uint64_t h = (thread_start ^ (uint64_t)tid << 32 ^ tid) * 0x9e3779b97f4a7c15ULL;

	return h ^ h >> 29;
}

struct key {
	uint64_t thread_start;
	uint32_t tid;
};

static bool key_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct thread *th = (const struct thread *)ctx + id;
	const struct key *k = key;

	return th->tid == k->tid && th->thread_start == k->thread_start;
}

static uint32_t find(const struct thread_table *t, uint32_t tid, uint64_t thread_start)
{
	const struct key k = { .thread_start = thread_start, .tid = tid };

	return index_find(&t->by_key, key_hash(tid, thread_start), key_equal, t->threads, &k);
}

struct thread *thread_find(const struct thread_table *t, uint32_t tid, uint64_t thread_start)
{
	uint32_t id = find(t, tid, thread_start);

	return id ? &t->threads[id] : NULL;
}

static uint32_t take_number(struct thread_table *t)
{
	if (t->n_free)
		return t->free[--t->n_free];
	if (t->n > (t->max ?: THREADS_DEFAULT) ||
	    ARRAY_GROW(t->threads, t->cap, MAX(t->n, 1U) + 1) < 0)
		return 0;
	if (!t->n)
		t->n = 1;
	/* Room to give every number back: dropping must not fail. */
	if (ARRAY_GROW(t->free, t->cap_free, t->n) < 0)
		return 0;
	return t->n++;
}

struct thread *thread_get(struct thread_table *t, const struct thread_record *rec)
{
	uint32_t id = find(t, rec->tid, rec->thread_start);
	struct thread *th;

	if (id)
		return &t->threads[id];
	id = take_number(t);
	if (!id)
		goto refused;
	th = &t->threads[id];
	*th = (struct thread){
		.thread_start = rec->thread_start,
		.tid = rec->tid,
		.now_mono_ns = rec->now_mono_ns,
		/* The kernel's totals begin with its life or with ours. */
		.allowance_ns = UINT64_MAX,
	};
	if (rec->thread_start < t->since_boot_ns)
		memcpy(th->told.counters, rec->counters, sizeof(rec->counters));
	if (index_add(&t->by_key, key_hash(th->tid, th->thread_start), id) == 0)
		return th;
	t->free[t->n_free++] = id;
refused:
	t->refused++;
	return NULL;
}

bool thread_keep_stack(struct thread_table *t, struct thread *th, uint64_t since_ns,
		       struct remote_stack *s)
{
	size_t bytes = s->n * sizeof(*s->ips);

	thread_forget_stack(t, th);
	if (t->stack_bytes + bytes > THREAD_STACK_BYTES_MAX) {
		free(TAKE_PTR(s->ips));
		return false;
	}
	t->stack_bytes += bytes;
	th->stack = TAKE_PTR(s->ips);
	th->n_stack = s->n;
	th->stack_fp = s->n_fp;
	th->stack_end = s->end;
	th->stack_since_ns = since_ns;
	return true;
}

void thread_forget_stack(struct thread_table *t, struct thread *th)
{
	t->stack_bytes -= th->n_stack * sizeof(*th->stack);
	free(th->stack);
	th->stack = NULL;
	th->n_stack = 0;
	th->stack_since_ns = 0;
	th->stack_confirmed = false;
}

static void drop(struct thread_table *t, uint32_t id)
{
	struct thread *th = &t->threads[id];

	index_del(&t->by_key, key_hash(th->tid, th->thread_start), id);
	thread_forget_stack(t, th);
	*th = (struct thread){};
	t->free[t->n_free++] = id;
}

void thread_drop(struct thread_table *t, uint32_t tid, uint64_t thread_start)
{
	uint32_t id = find(t, tid, thread_start);

	if (id)
		drop(t, id);
}

void thread_reading_begin(struct thread_table *t)
{
	t->reading++;
}

void thread_reading_end(struct thread_table *t)
{
	for (uint32_t id = 1; id < t->n; id++)
		if (t->threads[id].tid && t->reading - t->threads[id].seen >= 2)
			drop(t, id);
}

size_t thread_table_count(const struct thread_table *t)
{
	return t->n ? t->n - 1 - t->n_free : 0;
}

void thread_table_done(struct thread_table *t)
{
	for (size_t i = 1; i < t->n; i++)
		free(t->threads[i].stack);
	free(t->threads);
	free(t->free);
	index_done(&t->by_key);
	*t = (struct thread_table){};
}

/* ---- differences ----------------------------------------------------------------------------------- */

/* The totals of a record, the wait in progress included. */
static void totals_of(const struct thread_record *rec, struct thread_told *ret)
{
	uint64_t yield = MIN(rec->yield_ns, rec->preempted_ns);
	uint64_t yields = MIN(rec->yield_n, rec->preempted_n);
	uint64_t now = 0;

	*ret = (struct thread_told){
		.off_ns = rec->off_ns,
		.queue_ns = rec->run_delay_ns,
		.preempted_ns = rec->preempted_ns - yield,
		.yield_ns = yield,
		.off_n = rec->off_n,
		.preempted_n = rec->preempted_n - yields,
		.yield_n = yields,
	};
	if (!(rec->state & THREAD_OFF_CPU) || rec->now_mono_ns < rec->since_mono_ns)
		return;
	now = rec->now_mono_ns - rec->since_mono_ns;
	switch (rec->state >> 8 & 0xff) {
	case OFF_BLOCKED:
		ret->off_ns += now;
		break;
	case OFF_RUN_QUEUE:
		ret->yield_ns += now;
		break;
	case OFF_PREEMPTED:
		ret->preempted_ns += now;
		break;
	}
}

/* What is new in a total, at most *left, which it uses up; remembered in *told. */
static uint64_t take(uint64_t total, uint64_t *told, uint64_t *left)
{
	uint64_t d = total > *told ? MIN(total - *told, *left) : 0;

	*told += d;
	*left -= d;
	return d;
}

static uint64_t take_count(uint64_t total, uint64_t *told)
{
	uint64_t unlimited = UINT64_MAX;

	return take(total, told, &unlimited);
}

bool thread_tell(struct thread *th, const struct thread_record *rec, struct slice_thread *ret)
{
	struct thread_told v, *told = &th->told;
	struct slice_thread d = {
		.start = rec->start,
		.thread_start = rec->thread_start,
		.tgid = rec->tgid,
		.tid = rec->tid,
	};
	uint64_t off, queued, yields, counted = 0, left = th->allowance_ns;

	totals_of(rec, &v);
	if (left != UINT64_MAX && rec->now_mono_ns > th->now_mono_ns)
		left += rec->now_mono_ns - th->now_mono_ns;
	off = take(v.off_ns, &told->off_ns, &left);
	d.preempted_ns = take(v.preempted_ns, &told->preempted_ns, &left);
	yields = take(v.yield_ns, &told->yield_ns, &left);
	/* The delay is known when the thread runs: of a wait over several windows it comes all at once. */
	th->allowance_ns = th->allowance_ns == UINT64_MAX ? 0 : left;
	th->now_mono_ns = MAX(th->now_mono_ns, rec->now_mono_ns);
	left = off;
	queued = take(v.queue_ns, &told->queue_ns, &left);
	d.blocked_ns = off - queued;
	d.run_queue_ns = queued + yields;
	d.blocked_n = take_count(v.off_n, &told->off_n);
	d.preempted_n = take_count(v.preempted_n, &told->preempted_n);
	/* Everyone who was woken has waited for a CPU, however shortly. */
	d.run_queue_n = d.blocked_n + take_count(v.yield_n, &told->yield_n);
	for (int i = 0; i < COUNTER_OF_THREADS; i++) {
		d.counters[i] = take_count(rec->counters[i], &told->counters[i]);
		counted |= d.counters[i];
	}
	if (!(d.blocked_ns | d.run_queue_ns | d.preempted_ns | d.blocked_n | d.preempted_n |
	      d.run_queue_n | counted))
		return false;
	*ret = d;
	return true;
}
