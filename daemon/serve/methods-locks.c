// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks: which ones hold the host up, and why. Worker thread. */
#include "query/locks.h"
#include "serve/lock-evidence.h"
#include "serve/question.h"

#define LOCKS 20
#define LOCKS_MAX 1000
#define STACKS 3
#define STACKS_MAX 100

static const char *holder_state_name(unsigned state)
{
	static const char *const names[] = { "", "running", "runnable", "blocked" };

	return state < ARRAY_SIZE(names) ? names[state] : "";
}

static void fill_stacks(Sysprofd__V1__LockStack **to, const struct lock_stacks *from)
{
	for (size_t i = 0; i < from->n; i++) {
		const struct lock_stack *s = &from->s[i];

		to[i]->stack = s->stack;
		to[i]->place = s->place;
		to[i]->comm = s->comm;
		to[i]->thread = s->thread;
		to[i]->pid = s->pid;
		to[i]->tid = s->tid;
		to[i]->count = s->count;
		to[i]->ns = s->ns;
		to[i]->max_ns = s->max_ns;
		to[i]->state = (char *)holder_state_name(s->state);
		to[i]->wait = s->state == LOCK_STATE_BLOCKED && s->wait
				      ? (char *)wait_kind_name(s->wait)
				      : (char *)"";
	}
}

static size_t count_bins(const struct lock_facts *f)
{
	size_t n = 0;

	for (int i = 0; i < LOCK_BINS; i++)
		n += f->bins[i] != 0;
	return n;
}

static void fill_bins(Sysprofd__V1__LockBin **to, const struct lock_facts *f)
{
	size_t n = 0;

	for (unsigned i = 0; i < LOCK_BINS; i++) {
		if (!f->bins[i])
			continue;
		to[n]->from_ns = i == LOCK_BIN_FIRST ? 0 : 1ULL << i;
		to[n]->until_ns = i == LOCK_BIN_LAST ? 0 : 2ULL << i;
		to[n++]->waits = f->bins[i];
	}
}

static void fill_facts(Sysprofd__V1__LockRow *m, const struct lock_facts *f)
{
	m->class_ = (char *)lock_class_name(f->lock_class);
	m->waits = f->waits;
	m->total_ns = f->total_ns;
	m->max_ns = f->max_ns;
	m->p50_ns = lock_percentile(f, 0.5);
	m->p99_ns = lock_percentile(f, 0.99);
	m->woken_waits = f->woken_waits;
	m->timed_out = f->timed_out;
	m->interrupted = f->interrupted;
	m->failed = f->failed;
	m->concurrent = f->most;
	m->met = f->met;
	m->wakes = f->wakes;
	m->woken = f->woken;
	m->idle_wakes = f->idle_wakes;
	m->seen_running = f->seen[LOCK_STATE_RUNNING];
	m->seen_runnable = f->seen[LOCK_STATE_RUNNABLE];
	m->seen_blocked = f->seen[LOCK_STATE_BLOCKED];
	m->seen_unknown = f->seen[LOCK_STATE_UNKNOWN];
	m->held_running_ns = f->held_ns[LOCK_STATE_RUNNING];
	m->held_runnable_ns = f->held_ns[LOCK_STATE_RUNNABLE];
	m->held_blocked_ns = f->held_ns[LOCK_STATE_BLOCKED];
}

/* Where the parts of rows come from: tables that are used up row by row. */
struct parts {
	Sysprofd__V1__LockStack **stacks;
	Sysprofd__V1__LockBin **bins;
};

static Sysprofd__V1__LockStack **take_stacks(struct parts *p, const struct lock_stacks *from,
					     size_t *ret_n)
{
	Sysprofd__V1__LockStack **to = p->stacks;

	fill_stacks(to, from);
	p->stacks += from->n;
	*ret_n = from->n;
	return to;
}

static int fill_row(Sysprofd__V1__LockRow *m, const struct lock_row *row, struct parts *p,
		    struct strbuf *evidence)
{
	m->lock = row->name;
	m->binary = row->binary;
	m->comm = row->comm;
	m->pid = row->pid;
	m->start_ns = row->start;
	m->shared = row->shared;
	m->verdict = (char *)lock_verdict_name(row->verdict);
	lock_evidence(&row->facts, row->verdict, evidence);
	if (strbuf_error(evidence) < 0)
		return -ENOMEM;
	m->evidence = evidence->data;
	fill_facts(m, &row->facts);
	fill_bins(p->bins, &row->facts);
	m->histogram = p->bins;
	m->n_histogram = count_bins(&row->facts);
	p->bins += m->n_histogram;
	m->waiters = take_stacks(p, &row->waiters, &m->n_waiters);
	m->holders = take_stacks(p, &row->holders, &m->n_holders);
	m->unlockers = take_stacks(p, &row->unlockers, &m->n_unlockers);
	return 0;
}

static void free_texts(struct strbuf **texts)
{
	for (struct strbuf *b = *texts; b && b->data; b++)
		strbuf_done(b);
	free(*texts);
}

static int reply_locks(struct call *c, const struct lock_answer *a)
{
	Sysprofd__V1__LocksResponse response = SYSPROFD__V1__LOCKS_RESPONSE__INIT;
	_cleanup_(wire_coverage_free_p) Sysprofd__V1__Coverage *coverage = NULL;
	_cleanup_table_ Sysprofd__V1__LockRow **rows = NULL;
	_cleanup_table_ Sysprofd__V1__LockStack **stacks = NULL;
	_cleanup_table_ Sysprofd__V1__LockBin **bins = NULL;
	_cleanup_(free_texts) struct strbuf *texts = new0(struct strbuf, a->n_rows + 1);
	size_t n_stacks = 0, n_bins = 0;
	struct parts parts;
	int r = texts ? wire_coverage_pack(a->coverage, &coverage) : -ENOMEM;

	for (size_t i = 0; i < a->n_rows; i++) {
		n_stacks += a->rows[i].waiters.n + a->rows[i].holders.n + a->rows[i].unlockers.n;
		n_bins += count_bins(&a->rows[i].facts);
	}
	if (r >= 0)
		r = table_new(&sysprofd__v1__lock_row__descriptor, a->n_rows, &rows);
	if (r >= 0)
		r = table_new(&sysprofd__v1__lock_stack__descriptor, n_stacks, &stacks);
	if (r >= 0)
		r = table_new(&sysprofd__v1__lock_bin__descriptor, n_bins, &bins);
	if (r < 0)
		return r;
	parts = (struct parts){ stacks, bins };
	for (size_t i = 0; i < a->n_rows && r >= 0; i++)
		r = fill_row(rows[i], &a->rows[i], &parts, &texts[i]);
	if (r < 0)
		return r;
	response.coverage = coverage;
	response.rows = rows;
	response.n_rows = a->n_rows;
	response.rows_omitted = a->omitted;
	return call_reply(c, &response.base, &response.host);
}

static int answer_locks(struct call *c, const struct source *src, const struct selection *sel,
			uint32_t limit, uint32_t stacks)
{
	_cleanup_(lock_answer_free_p) struct lock_answer *answer = NULL;
	int r = query_locks(&src->query, sel,
			    (struct lock_limits){ limit, stacks, c->answer.body.limit }, &answer);

	if (r == -EFBIG)
		return call_too_large(c);
	return r < 0 ? r : reply_locks(c, answer);
}

int method_locks(struct call *c, struct worker *w)
{
	const Sysprofd__V1__LocksRequest *m = (const Sysprofd__V1__LocksRequest *)c->request;
	_cleanup_selection_ struct selection sel = {};
	_cleanup_source_ struct source src = {};
	uint32_t limit, stacks;
	int r;

	r = check_limit(c, m->limit, LOCKS, LOCKS_MAX, "limit", &limit);
	if (r >= 0)
		r = check_limit(c, m->stacks, STACKS, STACKS_MAX, "stacks", &stacks);
	if (r >= 0)
		r = question_begin(c, w, m->selection, &sel, &src);
	if (r < 0)
		return r;
	return m->kernel ? answer_kernel_locks(c, &src, &sel, limit, stacks)
			 : answer_locks(c, &src, &sel, limit, stacks);
}
