// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Off-CPU: exact totals meet weighted samples. How long each thread did not run, and why, is known exactly;
 * where it waited is known from samples, whose weights add up to about the same. For each thread and cause the
 * samples' weights are scaled so that they add up to the exact time of the selection, in integers.
 *
 *   - exact time without samples is a row of the marker [not sampled];
 *   - a thread without any exact total in the selection (they were lost: the accounting says how many) keeps
 *     the weights of its samples: an estimate is nearer to the truth than nothing.
 *
 * A thread is (pid, start, tid), not the series: a name that changes inside a bucket may leave totals and
 * samples with different labels.
 */
#include "../bpf/sysprofd.h"
#include "query/internal.h"

#define CAUSES 16 /* OFF_KEY has four bits for it */

static int remainder_compare(const void *pa, const void *pb)
{
	const struct remainder *a = pa, *b = pb;

	if (a->rest != b->rest)
		return a->rest > b->rest ? -1 : 1;
	return a->at < b->at ? -1 : 1;
}

void share_out(uint64_t total, const uint64_t *weights, size_t n, uint64_t *ret_shares,
	       struct remainder *scratch)
{
	unsigned __int128 sum = 0;
	uint64_t left = total;

	for (size_t i = 0; i < n; i++)
		sum += weights[i];
	for (size_t i = 0; i < n; i++) {
		unsigned __int128 product = (unsigned __int128)total * (sum ? weights[i] : 1);
		unsigned __int128 whole = sum ?: n;

		ret_shares[i] = (uint64_t)(product / whole);
		left -= ret_shares[i];
		/* Only the order matters: 64 bits are enough, since sums of weights fit them. */
		scratch[i] = (struct remainder){ (uint64_t)(product % whole), i };
	}
	if (left == 0)
		return;
	qsort(scratch, n, sizeof(*scratch), remainder_compare);
	for (size_t i = 0; i < n && left > 0; i++, left--)
		ret_shares[scratch[i].at]++;
}

/* ---- rows of one thread and cause ------------------------------------------------------------------------ */

struct scaling {
	const struct columns *in;
	struct columns out;
	struct lens *lens;
	uint32_t not_sampled; /* stack */
	uint32_t *thread; /* by series: the series that stands for its thread */
	bool *has_total; /* by thread */
	uint32_t *order; /* rows, those of one (thread, cause) together */
	uint64_t *weights, *shares, *counts; /* room for every row */
	struct remainder *scratch;
};

static void scaling_done(struct scaling *s)
{
	columns_done(&s->out);
	free(s->thread);
	free(s->has_total);
	free(s->order);
	free(s->weights);
	free(s->shares);
	free(s->counts);
	free(s->scratch);
}

static int emit(struct scaling *s, size_t row, uint64_t count, uint64_t ns)
{
	const struct matcher *m = s->lens->m;
	uint32_t key = s->in->key[row], stack = s->in->stack[row];

	if (count == 0 && ns == 0)
		return 0;
	if (OFF_KEY_TOTAL(key)) {
		key = OFF_KEY(OFF_KEY_CAUSE(key), OFF_STATE_UNKNOWN, 0);
		stack = s->not_sampled;
	}
	if (m->checks_stack && !lens_stack(s->lens, stack))
		return 0;
	if (m->checks_state && !lens_state(s->lens, key))
		return 0;
	return columns_add(&s->out, s->in->series[row], stack, key, 0, count, ns, 0);
}

/* Rows of order[from..until) that are totals come first in it; `samples` is where the others begin. */
static int scale_group(struct scaling *s, size_t from, size_t samples, size_t until)
{
	const struct columns *in = s->in;
	const uint32_t *rows = s->order;
	uint64_t exact_us = 0, exact_count = 0, sampled = 0;
	size_t n = until - samples;
	int r = 0;

	for (size_t i = from; i < samples; i++) {
		exact_us += in->value[rows[i]];
		exact_count += in->count[rows[i]];
	}
	for (size_t i = samples; i < until; i++)
		sampled += in->value[rows[i]];
	if (sampled == 0) {
		/* Nothing tells where this time went; samples of no length say nothing about it. */
		for (size_t i = from; r == 0 && i < samples; i++)
			r = emit(s, rows[i], in->count[rows[i]],
				 in->value[rows[i]] * NSEC_PER_USEC);
		return r;
	}
	for (size_t i = 0; i < n; i++)
		s->weights[i] = in->value[rows[samples + i]];
	share_out(exact_us * NSEC_PER_USEC, s->weights, n, s->shares, s->scratch);
	for (size_t i = 0; i < n; i++)
		s->weights[i] = in->count[rows[samples + i]];
	share_out(exact_count, s->weights, n, s->counts, s->scratch);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = emit(s, rows[samples + i], s->counts[i], s->shares[i]);
	return r;
}

static int keep_weights(struct scaling *s, size_t from, size_t until)
{
	const struct columns *in = s->in;
	int r = 0;

	for (size_t i = from; r == 0 && i < until; i++) {
		uint32_t row = s->order[i];

		r = emit(s, row, in->count[row], in->value[row] * NSEC_PER_USEC);
	}
	return r;
}

/* ---- which rows belong together ------------------------------------------------------------------------- */

static bool thread_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct series *a = &((const struct dict *)ctx)->series[id], *b = key;

	return a->pid == b->pid && a->tid == b->tid && a->start == b->start;
}

int query_threads(const struct dict *d, uint32_t *ret)
{
	struct index index = {};
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < d->n_series; i++) {
		const struct series *x = &d->series[i];
		uint64_t hash = query_mix((uint64_t)x->pid << 32 | x->tid, x->start);

		ret[i] = i;
		if (x->pid == 0) /* no single process */
			continue;
		ret[i] = index_find(&index, hash, thread_equal, d, x);
		if (ret[i] == 0) {
			ret[i] = i;
			r = index_add(&index, hash, i);
		}
	}
	index_done(&index);
	return r;
}

/* Counting sort by (thread, cause), totals before samples; rows that are equal in these keep their order. */
static size_t bin_of(const struct scaling *s, size_t row)
{
	uint32_t key = s->in->key[row];

	return ((size_t)s->thread[s->in->series[row]] * CAUSES + OFF_KEY_CAUSE(key)) * 2 +
	       (OFF_KEY_TOTAL(key) ? 0 : 1);
}

static int scale_all(struct scaling *s, size_t n_series)
{
	size_t n_bins = n_series * CAUSES * 2, n = s->in->n;
	_cleanup_free_ uint32_t *starts = new0(uint32_t, n_bins + 1);
	int r = 0;

	if (!starts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		starts[bin_of(s, i) + 1]++;
		s->has_total[s->thread[s->in->series[i]]] |= OFF_KEY_TOTAL(s->in->key[i]);
	}
	for (size_t i = 1; i <= n_bins; i++)
		starts[i] += starts[i - 1];
	for (size_t i = 0; i < n; i++)
		s->order[starts[bin_of(s, i)]++] = (uint32_t)i;
	/* Now starts[bin] is the end of the bin, and the start of the next. */
	for (size_t bin = 0; r == 0 && bin < n_bins; bin += 2) {
		size_t from = bin ? starts[bin - 1] : 0;

		if (from == starts[bin + 1])
			continue;
		if (s->has_total[bin / (CAUSES * 2)])
			r = scale_group(s, from, starts[bin], starts[bin + 1]);
		else
			r = keep_weights(s, from, starts[bin + 1]);
	}
	return r;
}

int query_not_sampled_stack(struct dict *d, uint32_t *ret_stack)
{
	int64_t id = dict_marker(d, MARKER_NOT_SAMPLED);

	if (id >= 0)
		id = dict_stack(d, 0, (uint32_t)id);
	if (id < 0)
		return (int)id;
	*ret_stack = (uint32_t)id;
	return 0;
}

int off_cpu_scale(struct profile *p, struct lens *l)
{
	_cleanup_(scaling_done) struct scaling s = { .in = &p->columns, .lens = l };
	size_t n = p->columns.n, n_series = p->dict->n_series;
	int r;

	if (n == 0)
		return 0;
	r = query_not_sampled_stack(p->dict, &s.not_sampled);
	if (r == 0)
		r = lens_use(l, p->dict);
	if (r < 0)
		return r;
	s.thread = new0(uint32_t, n_series);
	s.has_total = new0(bool, n_series);
	s.order = new0(uint32_t, n);
	s.weights = new0(uint64_t, n);
	s.shares = new0(uint64_t, n);
	s.counts = new0(uint64_t, n);
	s.scratch = new0(struct remainder, n);
	if (!s.thread || !s.has_total || !s.order || !s.weights || !s.shares || !s.counts ||
	    !s.scratch)
		return -ENOMEM;
	r = query_threads(p->dict, s.thread);
	if (r == 0)
		r = scale_all(&s, n_series);
	if (r < 0)
		return r;
	columns_done(&p->columns);
	p->columns = s.out;
	s.out = (struct columns){};
	return 0;
}
