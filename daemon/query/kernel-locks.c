// SPDX-License-Identifier: GPL-2.0-or-later
/* Rows of futex's aspect FUTEX_KERNEL -> one row for each kind of lock and function that takes it. */
#include "query/kernel-locks.h"

#include "../bpf/sysprofd.h"
#include "query/internal.h"

struct kernel_lock_answer *kernel_lock_answer_free(struct kernel_lock_answer *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->n_rows; i++) {
		struct kernel_lock_row *row = &a->rows[i];

		for (size_t k = 0; k < row->n_waiters; k++)
			free(row->waiters[k].comm);
		for (size_t k = 0; k < row->n_stack; k++)
			free(row->stack[k]);
		free(row->waiters);
		free(row->stack);
		free(row->caller);
	}
	free(a->rows);
	profile_free(a->coverage);
	free(a);
	return NULL;
}

/* ---- who takes it ------------------------------------------------------------------------------------ */

bool kernel_function_locks(const char *function)
{
	static const char *const prefixes[] = {
		"mutex_lock",
		"__mutex_lock",
		"ww_mutex_lock",
		"__ww_mutex_lock",
		"down_",
		"__down_",
		"rwsem_",
		"rwbase_",
		"percpu_down_",
		"__percpu_down_",
		"percpu_rwsem_",
		"rt_mutex_",
		"__rt_mutex_",
		"rt_spin_lock",
		"rt_read_lock",
		"rt_write_lock",
		"rtlock_",
		"_raw_spin_lock",
		"_raw_read_lock",
		"_raw_write_lock",
		"raw_spin_rq_lock",
		"queued_",
		"native_queued_",
		"__pv_queued_",
		"resilient_",
		"do_raw_",
		"__raw_spin_",
		"__raw_callee_save___pv_queued_",
	};

	if (streq(function, "down") || streq(function, "__down"))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (str_skip_prefix(function, prefixes[i]))
			return true;
	return false;
}

/* The innermost frame that is none of these, as a stack that ends there; 0: there is none. */
static uint32_t caller_of(const struct dict *d, uint32_t stack)
{
	for (; stack; stack = d->stacks[stack].parent) {
		const struct frame *f = &d->frames[d->stacks[stack].frame];

		if (f->kind == FRAME_KERNEL && !kernel_function_locks(dict_str(d, f->name)))
			return stack;
	}
	return 0;
}

/* ---- adding up --------------------------------------------------------------------------------------- */

struct item {
	uint32_t kind;
	uint32_t caller; /* name */
	uint32_t stack; /* of which it is the leaf */
	uint32_t pid, comm;
	uint64_t start;
	uint64_t waits, ns, max_ns;
};

static int compare_ids(const uint64_t *a, const uint64_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int by_place(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;
	const uint64_t ka[] = { a->kind, a->caller, a->stack, a->pid, a->start, a->comm };
	const uint64_t kb[] = { b->kind, b->caller, b->stack, b->pid, b->start, b->comm };

	return compare_ids(ka, kb, ARRAY_SIZE(ka));
}

static int by_process(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;
	const uint64_t ka[] = { a->pid, a->start, a->comm }, kb[] = { b->pid, b->start, b->comm };

	return compare_ids(ka, kb, ARRAY_SIZE(ka));
}

static bool same_lock(const struct item *a, const struct item *b)
{
	return a->kind == b->kind && a->caller == b->caller;
}

/* Items of one kind and caller. */
struct run {
	struct item *items;
	size_t n;
	uint64_t waits, ns, max_ns;
};

static int longest_first(const void *pa, const void *pb)
{
	const struct run *a = pa, *b = pb;

	if (a->ns != b->ns)
		return a->ns > b->ns ? -1 : 1;
	if (a->waits != b->waits)
		return a->waits > b->waits ? -1 : 1;
	return by_place(a->items, b->items);
}

struct adding {
	const struct profile *p;
	uint32_t waiters; /* at most, of each row */
	struct item *items; /* by kind and caller */
	struct run *runs;
	size_t n_runs;
	uint64_t waits, ns; /* of all */
};

static int gather(struct adding *a)
{
	const struct columns *c = &a->p->columns;
	const struct dict *d = a->p->dict;

	a->items = new0(struct item, c->n + 1);
	a->runs = new0(struct run, c->n + 1);
	if (!a->items || !a->runs)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		const struct series *s = &d->series[c->series[i]];
		uint32_t at = caller_of(d, c->stack[i]);

		a->items[i] = (struct item){
			.kind = FUTEX_KEY_DETAIL(c->key[i]),
			.caller = at ? d->frames[d->stacks[at].frame].name : 0,
			.stack = at,
			.pid = s->pid,
			.comm = s->label[LABEL_COMM],
			.start = s->start,
			.waits = c->count[i],
			.ns = c->value[i],
			.max_ns = c->max[i],
		};
	}
	if (c->n > 1)
		qsort(a->items, c->n, sizeof(*a->items), by_place);
	for (size_t i = 0; i < c->n; i++) {
		struct item *item = &a->items[i];
		struct run *run = a->n_runs ? &a->runs[a->n_runs - 1] : NULL;

		if (!run || !same_lock(run->items, item)) {
			run = &a->runs[a->n_runs++];
			run->items = item;
		}
		run->n++;
		run->waits += item->waits;
		run->ns += item->ns;
		run->max_ns = MAX(run->max_ns, item->max_ns);
		a->waits += item->waits;
		a->ns += item->ns;
	}
	if (a->n_runs > 1)
		qsort(a->runs, a->n_runs, sizeof(*a->runs), longest_first);
	return 0;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* The stack with the longest waits; items of one stack follow each other. */
static uint32_t longest_stack(const struct run *run)
{
	uint64_t best_ns = 0, ns = 0;
	uint32_t best = run->items->stack;

	for (size_t i = 0; i < run->n; i++) {
		ns = i && run->items[i].stack == run->items[i - 1].stack ? ns + run->items[i].ns
									 : run->items[i].ns;
		if (ns > best_ns) {
			best_ns = ns;
			best = run->items[i].stack;
		}
	}
	return best;
}

static int fill_stack(const struct dict *d, uint32_t stack, struct kernel_lock_row *row)
{
	char buf[512];
	size_t n = 0;

	for (uint32_t at = stack; at; at = d->stacks[at].parent)
		n++;
	row->stack = new0(char *, n + 1);
	if (!row->stack)
		return -ENOMEM;
	for (uint32_t at = stack; at; at = d->stacks[at].parent) {
		char *s = strdup(query_frame_name(d, d->stacks[at].frame, buf, sizeof(buf)));

		if (!s)
			return -ENOMEM;
		row->stack[row->n_stack++] = s;
	}
	return 0;
}

static int longest_waiter_first(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;

	if (a->ns != b->ns)
		return a->ns > b->ns ? -1 : 1;
	return by_process(pa, pb);
}

/* Items become processes: nobody asks for their stacks any more. */
static int fill_waiters(const struct adding *a, struct run *run, struct kernel_lock_row *row)
{
	struct item *items = run->items;
	size_t n = 0, most;

	qsort(items, run->n, sizeof(*items), by_process);
	for (size_t i = 0; i < run->n; i++) {
		struct item *to = n ? &items[n - 1] : NULL;

		if (!to || by_process(to, &items[i])) {
			items[n++] = items[i];
			continue;
		}
		to->waits += items[i].waits;
		to->ns += items[i].ns;
		to->max_ns = MAX(to->max_ns, items[i].max_ns);
	}
	qsort(items, n, sizeof(*items), longest_waiter_first);
	most = MIN(n, (size_t)a->waiters);
	row->waiters = new0(struct kernel_waiter, most + 1);
	if (!row->waiters)
		return -ENOMEM;
	for (size_t i = 0; i < most; i++) {
		struct kernel_waiter *w = &row->waiters[row->n_waiters++];

		*w = (struct kernel_waiter){
			.comm = strdup(dict_str(a->p->dict, items[i].comm)),
			.pid = items[i].pid,
			.start = items[i].start,
			.waits = items[i].waits,
			.ns = items[i].ns,
			.max_ns = items[i].max_ns,
		};
		if (!w->comm)
			return -ENOMEM;
	}
	row->waiters_omitted = n - most;
	return 0;
}

static int fill_row(const struct adding *a, struct run *run, struct kernel_lock_row *row)
{
	int r;

	row->kind = kernel_lock_name(run->items->kind);
	row->waits = run->waits;
	row->ns = run->ns;
	row->max_ns = run->max_ns;
	row->caller = strdup(dict_str(a->p->dict, run->items->caller));
	r = row->caller ? fill_stack(a->p->dict, longest_stack(run), row) : -ENOMEM;
	return r < 0 ? r : fill_waiters(a, run, row);
}

static int explain(struct adding *a, uint32_t limit, struct kernel_lock_answer *ret)
{
	size_t most;
	int r = gather(a);

	if (r < 0)
		return r;
	most = MIN(a->n_runs, (size_t)limit);
	ret->rows = new0(struct kernel_lock_row, most + 1);
	if (!ret->rows)
		return -ENOMEM;
	for (; r == 0 && ret->n_rows < most; ret->n_rows++)
		r = fill_row(a, &a->runs[ret->n_rows], &ret->rows[ret->n_rows]);
	ret->omitted = a->n_runs - most;
	return r;
}

int query_kernel_locks(const struct query_source *src, const struct selection *sel, uint32_t limit,
		       uint32_t waiters, struct kernel_lock_answer **ret)
{
	static const struct projection wanted = { .series = PROJECT_ALL,
						  .stack = PROJECT_ALL,
						  .key = PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(kernel_lock_answer_free_p) struct kernel_lock_answer *a =
		new0(struct kernel_lock_answer, 1);
	struct adding adding = { .waiters = waiters };
	struct selection kernel = *sel;
	int r;

	if (!a)
		return -ENOMEM;
	kernel.type = PROFILE_FUTEX;
	kernel.aspects = 1U << FUTEX_KERNEL;
	r = merge_init(&m, &kernel, wanted);
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	if (r == 0) {
		adding.p = m.p;
		r = explain(&adding, limit, a);
	}
	free(adding.items);
	free(adding.runs);
	if (r < 0)
		return r;
	a->coverage = merge_take(&m);
	columns_done(&a->coverage->columns);
	a->coverage->total = adding.ns;
	a->coverage->samples = adding.waits;
	*ret = TAKE_PTR(a);
	return 0;
}
