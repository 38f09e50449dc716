// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rows in the answer's ids get the profile's units: off-CPU samples are scaled, microseconds become nanoseconds.
 *
 * Where a day has so many short-lived processes that even the sums are too many to hold, what has come in so far
 * is settled early and loses pid, tid, start and thread name, as history above 10 s does: the answer stays
 * complete, its totals exact, and processes are told apart by name. Only names without end are refused.
 */
#include "query/internal.h"

static void to_units(const struct profile *p, struct columns *c)
{
	for (size_t i = 0; i < c->n; i++) {
		if (p->type == PROFILE_SYSCALLS && row_aspect(p->type, c->key[i]) == CALL_COUNT)
			c->value[i] = c->count[i];
		if (!row_is_time(p->type, c->key[i]))
			continue;
		c->value[i] *= NSEC_PER_USEC;
		c->max[i] *= NSEC_PER_USEC;
	}
}

static int coarse_series(struct dict *d, uint32_t id, uint32_t *ret)
{
	struct series s = d->series[id];
	int64_t coarse;

	s.pid = s.tid = 0;
	s.start = 0;
	s.label[LABEL_THREAD] = 0;
	coarse = id ? dict_series(d, &s) : 0;
	if (coarse < 0)
		return (int)coarse;
	*ret = (uint32_t)coarse;
	return 0;
}

static int drop_processes(struct dict *d, enum profile_type type, struct columns *c)
{
	_cleanup_free_ uint32_t *coarse = new0(uint32_t, d->n_series);

	if (!coarse)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		uint32_t *to = &coarse[c->series[i]];
		int r = *to ? 0 : coarse_series(d, c->series[i], to);

		if (r < 0)
			return r;
		c->series[i] = *to;
		if (row_aux(type, c->key[i]) != AUX_SERIES)
			continue;
		to = &coarse[c->aux[i]];
		r = *to ? 0 : coarse_series(d, c->aux[i], to);
		if (r < 0)
			return r;
		c->aux[i] = *to;
	}
	return 0;
}

static int append_row(struct columns *to, const struct columns *from, size_t i)
{
	return columns_add(to, from->series[i], from->stack[i], from->key[i], from->aux[i],
			   from->count[i], from->value[i], from->max[i]);
}

static int append(struct columns *to, const struct columns *from)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < from->n; i++)
		r = append_row(to, from, i);
	return r;
}

/* What was asked for is the wait, whoever ended it. */
static bool wait_is_wanted(struct merge *m, uint32_t key, uint32_t stack)
{
	const struct matcher *x = &m->matcher;
	struct lens *l = &m->answer_lens;

	if (x->checks_stack && !lens_stack(l, query_waiting_stack(m->p->dict, stack)))
		return false;
	return !x->checks_state || lens_state(l, key);
}

/* Off-CPU rows of other aspects than the waits themselves, which are scaled without them. */
static int take_aside(struct merge *m, struct columns *ret)
{
	struct columns *c = &m->p->columns, waits = {};
	int r = lens_use(&m->answer_lens, m->p->dict);

	for (size_t i = 0; r == 0 && i < c->n; i++) {
		if (row_aspect(PROFILE_OFF_CPU, c->key[i]) == OFF_WAITS)
			r = append_row(&waits, c, i);
		else if (wait_is_wanted(m, c->key[i], c->stack[i]))
			r = append_row(ret, c, i);
	}
	columns_done(c);
	*c = waits;
	return r;
}

static int settle_off_cpu(struct merge *m)
{
	struct columns aside = {};
	int r = m->aspects == 1 ? 0 : take_aside(m, &aside);

	if (r == 0)
		r = off_cpu_scale(m->p, &m->answer_lens);
	to_units(m->p, &aside);
	if (r == 0)
		r = append(&m->p->columns, &aside);
	columns_done(&aside);
	return r;
}

/* What was flushed moves from p->columns to settled. */
static int settle(struct merge *m)
{
	struct profile *p = m->p;
	int r = m->flushes > 1 ? columns_sort_merge(&p->columns) : 0;

	if (r < 0)
		return r;
	if (p->type == PROFILE_OFF_CPU)
		r = settle_off_cpu(m);
	else if (m->spreads)
		r = callers_spread(p, &m->answer_lens);
	if (p->type != PROFILE_OFF_CPU)
		to_units(p, &p->columns);
	if (r == 0 && m->coarse)
		r = drop_processes(p->dict, p->type, &p->columns);
	if (r < 0)
		return r;
	m->flushes = 0;
	if (!m->coarse) {
		columns_done(&m->settled);
		m->settled = p->columns;
		p->columns = (struct columns){};
		return 0;
	}
	r = append(&m->settled, &p->columns);
	columns_empty(&p->columns);
	return r < 0 ? r : columns_sort_merge(&m->settled);
}

/* The processes that nothing names any more leave the dictionary. */
static int rebuild(struct merge *m)
{
	const struct dict *from = m->map.from;
	int r;

	m->p->columns = m->settled;
	m->settled = (struct columns){};
	r = profile_fold(m->p, 0);
	m->settled = m->p->columns;
	m->p->columns = (struct columns){};
	if (r < 0)
		return r;
	dict_map_done(&m->map);
	if (from)
		dict_map_init(&m->map, from, m->p->dict);
	lens_done(&m->answer_lens);
	lens_init(&m->answer_lens, &m->matcher);
	return 0;
}

int merge_coarsen(struct merge *m)
{
	int r;

	m->coarse = m->p->coarse = true;
	r = settle(m);
	if (r < 0)
		return r;
	if (m->settled.n > m->max_rows)
		return -E2BIG;
	columns_done(&m->p->columns);
	return m->keep_ids ? 0 : rebuild(m);
}

int merge_close(struct merge *m)
{
	struct profile *p = m->p;
	int r = merge_flush(m);

	if (r == 0)
		r = settle(m);
	if (r < 0)
		return r;
	columns_done(&p->columns);
	p->columns = m->settled;
	m->settled = (struct columns){};
	for (size_t i = 0; i < p->columns.n; i++) {
		if (row_aspect(p->type, p->columns.key[i]) != 0)
			continue;
		p->total += p->columns.value[i];
		p->samples += p->columns.count[i];
	}
	return 0;
}
