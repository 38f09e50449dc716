// SPDX-License-Identifier: GPL-2.0-or-later
#include "query/off-cpu.h"

#include "../bpf/sysprofd.h"
#include "query/internal.h"

static void row_done(struct off_cpu_row *row)
{
	for (size_t i = 0; i < row->n_wakers; i++) {
		free(row->wakers[i].comm);
		free(row->wakers[i].thread);
		free(row->wakers[i].function);
	}
	free(row->wakers);
	free(row->comm);
	free(row->thread);
	free(row->unit);
}

struct off_cpu_answer *off_cpu_answer_free(struct off_cpu_answer *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->n_rows; i++)
		row_done(&a->rows[i]);
	free(a->rows);
	profile_free(a->coverage);
	free(a);
	return NULL;
}

/* ---- sums by thread, cause and kind --------------------------------------------------------------- */

#define KIND_KEY (OFF_KEY(15, 0, 0) | OFF_WAIT_KEY(31, 1))

struct sum {
	uint32_t thread; /* the series that stands for it */
	uint32_t key; /* under KIND_KEY */
	uint64_t count, value;
};

struct sums {
	struct sum *s;
	size_t n;
};

static int sum_compare(const void *pa, const void *pb)
{
	const struct sum *a = pa, *b = pb;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->key < b->key ? -1 : a->key > b->key;
}

static int heaviest_first(const void *pa, const void *pb)
{
	const struct sum *a = pa, *b = pb;

	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return sum_compare(pa, pb);
}

static int add_up(const struct profile *p, struct sums *ret)
{
	_cleanup_free_ uint32_t *thread = new0(uint32_t, p->dict->n_series);
	_cleanup_free_ struct sum *s = new0(struct sum, p->columns.n + 1);
	const struct columns *c = &p->columns;
	size_t n = 0;
	int r;

	if (!thread || !s)
		return -ENOMEM;
	r = query_threads(p->dict, thread);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++)
		s[i] = (struct sum){ thread[c->series[i]], c->key[i] & KIND_KEY, c->count[i],
				     c->value[i] };
	qsort(s, c->n, sizeof(*s), sum_compare);
	for (size_t i = 0; i < c->n; i++) {
		if (n > 0 && sum_compare(&s[n - 1], &s[i]) == 0) {
			s[n - 1].count += s[i].count;
			s[n - 1].value += s[i].value;
		} else {
			s[n++] = s[i];
		}
	}
	ret->s = TAKE_PTR(s);
	ret->n = n;
	return 0;
}

/* The totals of the answer; idle sums leave `sums` when they are folded. They are still sorted by thread. */
static void count_totals(struct off_cpu_answer *a, struct sums *sums, bool fold_idle)
{
	uint32_t idle_thread = UINT32_MAX;
	size_t kept = 0;

	for (size_t i = 0; i < sums->n; i++) {
		const struct sum *s = &sums->s[i];
		unsigned cause = OFF_KEY_CAUSE(s->key);

		if (OFF_KEY_IDLE(s->key)) {
			a->idle += s->value;
			a->idle_threads += s->thread != idle_thread;
			idle_thread = s->thread;
			if (fold_idle)
				continue;
		} else if (cause == OFF_RUN_QUEUE) {
			a->run_queue += s->value;
		} else if (cause == OFF_PREEMPTED) {
			a->preempted += s->value;
		} else {
			a->blocked += s->value;
		}
		sums->s[kept++] = *s;
	}
	sums->n = kept;
}

static char *copy_label(const struct dict *d, const struct series *s, enum label label)
{
	return strdup(dict_str(d, s->label[label]));
}

static int fill_row(const struct dict *d, const struct sum *s, struct off_cpu_row *row)
{
	const struct series *x = &d->series[s->thread];

	*row = (struct off_cpu_row){
		.comm = copy_label(d, x, LABEL_COMM),
		.thread = copy_label(d, x, LABEL_THREAD),
		.unit = copy_label(d, x, LABEL_UNIT),
		.pid = x->pid,
		.tid = x->tid,
		.start = x->start,
		.cause = OFF_KEY_CAUSE(s->key),
		.wait = OFF_KEY_WAIT(s->key),
		.idle = OFF_KEY_IDLE(s->key),
		.waits = s->count,
		.total = s->value,
	};
	return row->comm && row->thread && row->unit ? 0 : -ENOMEM;
}

static int fill_rows(const struct profile *p, const struct off_cpu_question *q,
		     struct off_cpu_answer *a)
{
	struct sums sums = {};
	size_t n = 0;
	int r = add_up(p, &sums);

	if (r == 0) {
		count_totals(a, &sums, q->fold_idle);
		qsort(sums.s, sums.n, sizeof(*sums.s), heaviest_first);
		n = q->limit ? MIN(q->limit, sums.n) : sums.n;
		a->omitted = sums.n - n;
		a->rows = new0(struct off_cpu_row, n + 1);
		r = a->rows ? 0 : -ENOMEM;
	}
	while (r == 0 && a->n_rows < n) {
		r = fill_row(p->dict, &sums.s[a->n_rows], &a->rows[a->n_rows]);
		a->n_rows++;
	}
	free(sums.s);
	return r;
}

/* ---- wakers ----------------------------------------------------------------------------------------- */

/* One waker of one row, with the stack by which it did most of it. */
struct wake {
	uint32_t row; /* index + 1 in the answer's rows, 0: of none that is shown */
	uint32_t waker; /* thread */
	uint32_t stack;
	uint64_t count, value;
};

static int wake_compare(const void *pa, const void *pb)
{
	const struct wake *a = pa, *b = pb;

	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	if (a->waker != b->waker)
		return a->waker < b->waker ? -1 : 1;
	return a->value > b->value ? -1 : a->value < b->value;
}

static int row_then_value(const void *pa, const void *pb)
{
	const struct wake *a = pa, *b = pb;

	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return a->waker < b->waker ? -1 : a->waker > b->waker;
}

struct row_key {
	const struct series *thread;
	uint32_t key;
};

static bool row_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct off_cpu_row *row = &((const struct off_cpu_answer *)ctx)->rows[id - 1];
	const struct row_key *k = key;

	return row->pid == k->thread->pid && row->tid == k->thread->tid &&
	       row->start == k->thread->start &&
	       (OFF_KEY(row->cause, 0, 0) | OFF_WAIT_KEY(row->wait, row->idle)) == k->key;
}

static uint64_t row_hash(uint32_t pid, uint32_t tid, uint64_t start, uint32_t key)
{
	return query_mix((uint64_t)pid << 32 | tid, start ^ (uint64_t)key << 32);
}

static int index_rows(const struct off_cpu_answer *a, struct index *index)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < a->n_rows; i++) {
		const struct off_cpu_row *row = &a->rows[i];
		uint32_t key = OFF_KEY(row->cause, 0, 0) | OFF_WAIT_KEY(row->wait, row->idle);

		if (row->pid)
			r = index_add(index, row_hash(row->pid, row->tid, row->start, key),
				      (uint32_t)i + 1);
	}
	return r;
}

/* The wakes of rows that are shown; those of one row and waker are one, sorted by row and weight. */
static int list_wakes(const struct profile *p, const struct off_cpu_answer *a, struct wake *wakes,
		      size_t *ret_n)
{
	_cleanup_free_ uint32_t *thread = new0(uint32_t, p->dict->n_series);
	_cleanup_(index_done) struct index index = {};
	const struct columns *c = &p->columns;
	size_t n = 0;
	int r = thread ? index_rows(a, &index) : -ENOMEM;

	if (r == 0)
		r = query_threads(p->dict, thread);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++) {
		struct row_key k = { &p->dict->series[c->series[i]], c->key[i] & KIND_KEY };
		uint32_t row = index_find(
			&index, row_hash(k.thread->pid, k.thread->tid, k.thread->start, k.key),
			row_equal, a, &k);

		wakes[i] = (struct wake){ row, thread[c->aux[i]], c->stack[i], c->count[i],
					  c->value[i] };
	}
	qsort(wakes, c->n, sizeof(*wakes), wake_compare);
	for (size_t i = 0; i < c->n; i++) {
		if (wakes[i].row == 0)
			continue;
		if (n > 0 && wakes[n - 1].row == wakes[i].row &&
		    wakes[n - 1].waker == wakes[i].waker) {
			wakes[n - 1].count += wakes[i].count;
			wakes[n - 1].value += wakes[i].value;
		} else {
			wakes[n++] = wakes[i];
		}
	}
	qsort(wakes, n, sizeof(*wakes), row_then_value);
	*ret_n = n;
	return 0;
}

/*
 * What a person would call the place: the innermost function of the program itself, beyond the C library's wrapper and
 * the kernel; of a stack without any, its leaf. The stack is the waker's part of one.
 */
static uint32_t telling_frame(const struct dict *d, uint32_t stack)
{
	uint32_t wait = query_waiting_stack(d, stack), user = 0, leaf;

	/* Nothing but the wait is known. */
	if (stack == 0 || wait == 0 || wait == stack)
		return 0;
	leaf = d->stacks[stack].frame;
	for (uint32_t i = stack; i > wait; i = d->stacks[i].parent < i ? d->stacks[i].parent : 0) {
		const struct frame *f = &d->frames[d->stacks[i].frame];

		if (f->kind == FRAME_KERNEL || f->kind == FRAME_MARKER)
			continue;
		if (!user)
			user = d->stacks[i].frame;
		if (!query_in_c_library(d, f))
			return d->stacks[i].frame;
	}
	return user ?: leaf;
}

static int fill_waker(const struct dict *d, const struct wake *w, uint64_t whole,
		      struct off_cpu_waker *ret)
{
	const struct series *x = &d->series[w->waker];
	uint32_t frame = telling_frame(d, w->stack);
	char buf[512] = "";

	*ret = (struct off_cpu_waker){
		.comm = copy_label(d, x, LABEL_COMM),
		.thread = copy_label(d, x, LABEL_THREAD),
		.function = strdup(frame ? query_frame_name(d, frame, buf, sizeof(buf)) : ""),
		.pid = x->pid,
		.tid = x->tid,
		.start = x->start,
		.waits = w->count,
		.time = w->value,
		.share = whole ? (double)w->value / (double)whole : 0,
	};
	return ret->comm && ret->thread && ret->function ? 0 : -ENOMEM;
}

static int fill_wakers(const struct profile *p, uint32_t limit, struct off_cpu_answer *a)
{
	_cleanup_free_ struct wake *wakes = new0(struct wake, p->columns.n + 1);
	size_t n = 0, until;
	int r = wakes ? list_wakes(p, a, wakes, &n) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i = until) {
		struct off_cpu_row *row = &a->rows[wakes[i].row - 1];
		uint64_t whole = 0;

		for (until = i; until < n && wakes[until].row == wakes[i].row; until++)
			whole += wakes[until].value;
		row->wakers = new0(struct off_cpu_waker, MIN(limit, until - i) + 1);
		r = row->wakers ? 0 : -ENOMEM;
		for (size_t k = i; r == 0 && k < until && row->n_wakers < limit; k++)
			r = fill_waker(p->dict, &wakes[k], whole, &row->wakers[row->n_wakers++]);
	}
	return r;
}

static int ask_wakers(const struct query_source *src, const struct selection *sel, uint32_t limit,
		      struct off_cpu_answer *a)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	struct selection wakes = *sel;
	int r;

	wakes.aspects = 1U << OFF_WAKES;
	r = merge_init(&m, &wakes, all);
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	return r < 0 ? r : fill_wakers(m.p, limit, a);
}

int query_off_cpu(const struct query_source *src, const struct selection *sel,
		  const struct off_cpu_question *q, struct off_cpu_answer **ret)
{
	static const struct projection wanted = { .series = PROJECT_ALL, .key = KIND_KEY };
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(off_cpu_answer_free_p) struct off_cpu_answer *a = new0(struct off_cpu_answer, 1);
	int r;

	if (!a)
		return -ENOMEM;
	r = merge_init(&m, sel, wanted);
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0)
		r = fill_rows(m.p, q, a);
	if (r == 0 && q->wakers && a->n_rows)
		r = ask_wakers(src, sel, q->wakers, a);
	if (r < 0)
		return r;
	a->coverage = merge_take(&m);
	columns_done(&a->coverage->columns);
	*ret = TAKE_PTR(a);
	return 0;
}
