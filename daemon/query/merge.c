// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rows added up. Stored rows name ids of their day's dictionary; they are added up in cells under those ids and
 * translated into the answer's dictionary once, when the day is over. A day has a million rows and some ten
 * thousand cells, so a row must cost a look-up and no more: where the projection keeps one kind of id, the id
 * itself leads to the cell, otherwise a hash of the ids does.
 */
#include "../bpf/sysprofd.h"
#include "query/internal.h"

int merge_init(struct merge *m, const struct selection *sel, struct projection wanted)
{
	int r;

	*m = (struct merge){ .sel = sel, .projection = wanted, .max_rows = QUERY_MAX_ROWS };
	m->aspects = sel->aspects ?: 1;
	if (m->aspects != 1)
		m->projection.key |= aspect_mask(sel->type);
	r = matcher_init(&m->matcher, sel);
	if (r < 0)
		return r;
	lens_init(&m->lens, &m->matcher);
	lens_init(&m->answer_lens, &m->matcher);
	if (sel->type == PROFILE_OFF_CPU) {
		/* Scaling needs to know the thread and the cause, and filters that follow it what they ask. */
		m->projection.series = PROJECT_ALL;
		m->projection.key |= OFF_KEY(15, 0, 1);
		if (m->matcher.checks_stack)
			m->projection.stack = PROJECT_ALL;
		if (m->matcher.checks_state)
			m->projection.key = PROJECT_ALL;
	}
	if (m->aspects & 1U << CALL_STACKS && sel->type == PROFILE_SYSCALLS) {
		m->spreads = true;
		m->projection.key = PROJECT_ALL;
		m->projection.stack = PROJECT_ALL;
	}
	if (!m->projection.key && !m->projection.aux) {
		m->direct_series = m->projection.series && !m->projection.stack;
		m->direct_stack = m->projection.stack && !m->projection.series;
	}
	r = ARRAY_GROW(m->cells, m->cap_cells, 1);
	if (r < 0)
		return r;
	m->n_cells = 1;
	return profile_new(sel->type, &m->p);
}

void merge_done(struct merge *m)
{
	lens_done(&m->lens);
	lens_done(&m->answer_lens);
	matcher_done(&m->matcher);
	free(m->cells);
	free(m->slots);
	free(m->direct);
	dict_map_done(&m->map);
	columns_done(&m->settled);
	profile_free(m->p);
	*m = (struct merge){};
}

struct profile *merge_take(struct merge *m)
{
	return TAKE_PTR(m->p);
}

void columns_empty(struct columns *c)
{
	c->n = 0;
}

/* ---- cells ------------------------------------------------------------------------------------------ */

struct ids {
	uint32_t series, stack, key, aux;
};

static bool same_ids(const struct cell *c, struct ids i)
{
	return c->series == i.series && c->stack == i.stack && c->key == i.key && c->aux == i.aux;
}

static size_t slot_of(const struct merge *m, struct ids i)
{
	return query_mix((uint64_t)i.series << 32 | i.stack, (uint64_t)i.key << 32 | i.aux) &
	       (m->n_slots - 1);
}

static int grow_slots(struct merge *m)
{
	size_t n = m->n_slots ? m->n_slots * 2 : 1024;
	uint32_t *slots = new0(uint32_t, n);

	if (!slots)
		return -ENOMEM;
	free(m->slots);
	m->slots = slots;
	m->n_slots = n;
	for (uint32_t c = 1; c < m->n_cells; c++) {
		const struct cell *cell = &m->cells[c];
		size_t at =
			slot_of(m, (struct ids){ cell->series, cell->stack, cell->key, cell->aux });

		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = c;
	}
	return 0;
}

/* A new cell; the pointer says where its number is kept. */
static int add_cell(struct merge *m, struct ids i, uint32_t *place)
{
	int r;

	if (m->n_cells > m->max_rows)
		return -E2BIG;
	r = ARRAY_GROW(m->cells, m->cap_cells, m->n_cells + 1);
	if (r < 0)
		return r;
	m->cells[m->n_cells] =
		(struct cell){ .series = i.series, .stack = i.stack, .key = i.key, .aux = i.aux };
	*place = (uint32_t)m->n_cells++;
	return 0;
}

static int hashed_cell(struct merge *m, struct ids i, uint32_t *ret_cell)
{
	size_t at;
	int r;

	/* At most 3/4 full, whatever this call adds. */
	if (m->n_cells + 1 > m->n_slots / 4 * 3) {
		r = grow_slots(m);
		if (r < 0)
			return r;
	}
	for (at = slot_of(m, i); m->slots[at]; at = (at + 1) & (m->n_slots - 1))
		if (same_ids(&m->cells[m->slots[at]], i)) {
			*ret_cell = m->slots[at];
			return 0;
		}
	r = add_cell(m, i, &m->slots[at]);
	if (r < 0)
		return r;
	*ret_cell = m->slots[at];
	return 0;
}

/* ---- adding ------------------------------------------------------------------------------------------ */

static bool accepted(struct merge *m, struct ids i)
{
	const struct matcher *x = &m->matcher;
	struct lens *l = &m->lens;
	uint32_t lock = row_aux(m->sel->type, i.key) == AUX_LOCK ? i.aux : 0;

	if (x->checks_lock && !lens_lock(l, lock))
		return false;
	if (m->sel->filters_choose && row_aspect(m->sel->type, i.key) != 0)
		return lens_sees(l, i.series) && lens_lock_process(l, lock);
	if (x->checks_series && !lens_series(l, i.series))
		return false;
	if (x->checks_row && !lens_row(l, i.key))
		return false;
	/* These are scaled before stacks and states are asked for: see off_cpu_scale() and callers_spread(). */
	if (m->sel->type == PROFILE_OFF_CPU || m->spreads)
		return true;
	return (!x->checks_stack || lens_stack(l, i.stack)) &&
	       (!x->checks_state || lens_state(l, i.key));
}

int merge_leave(struct merge *m, const struct dict *d)
{
	int r;

	if (!m->map.from || m->map.from == d)
		return 0;
	r = merge_flush(m);
	dict_map_done(&m->map);
	lens_done(&m->lens);
	lens_init(&m->lens, &m->matcher);
	return r;
}

/* Makes m ready for ids of d. */
static int use_dict(struct merge *m, const struct dict *d)
{
	size_t n = m->direct_series ? d->n_series : m->direct_stack ? d->n_stacks : 0;
	int r;

	r = merge_leave(m, d);
	if (r < 0)
		return r;
	if (!m->map.from)
		dict_map_init(&m->map, d, m->p->dict);
	r = ARRAY_GROW(m->direct, m->cap_direct, n);
	return r < 0 ? r : lens_use(&m->lens, d);
}

static int find_cell(struct merge *m, struct ids i, uint32_t *ret_cell)
{
	uint32_t id = m->direct_series ? i.series : i.stack;
	int r = 0;

	if (!m->direct_series && !m->direct_stack)
		return hashed_cell(m, i, ret_cell);
	if (!m->direct[id])
		r = add_cell(m, i, &m->direct[id]);
	*ret_cell = m->direct[id];
	return r;
}

static uint32_t valid_aux(const struct merge *m, const struct dict *d, uint32_t key, uint32_t aux)
{
	switch (row_aux(m->sel->type, key)) {
	case AUX_LOCK:
		return aux < d->n_locks ? aux : 0;
	case AUX_SERIES:
		return aux < d->n_series && lens_sees(&m->lens, aux) ? aux : 0;
	case AUX_NONE:
		break;
	}
	return 0;
}

int merge_add(struct merge *m, const struct dict *d, const struct columns *c)
{
	enum profile_type type = m->sel->type;
	int r = use_dict(m, d);

	if (r < 0)
		return r;
	for (size_t n = 0; n < c->n; n++) {
		/* An id that names nothing can only come from a damaged store: the row counts, unnamed. */
		struct ids i = {
			.series = c->series[n] < d->n_series ? c->series[n] : 0,
			.stack = c->stack[n] < d->n_stacks ? c->stack[n] : 0,
			.key = c->key[n],
		};
		struct cell *cell;
		uint32_t at;

		if (!(m->aspects & 1U << row_aspect(type, i.key)))
			continue;
		i.aux = valid_aux(m, d, i.key, c->aux[n]);
		if (m->by_block && row_aspect(type, i.key) == CALL_COUNT)
			i.aux = m->block;
		/* The rest of such a row's stack is that of whom aux names. */
		if (row_aux(type, i.key) == AUX_SERIES && c->aux[n] && !i.aux)
			i.stack = query_waiting_stack(d, i.stack);
		if (!accepted(m, i))
			continue;
		i.series &= m->projection.series;
		i.stack &= m->projection.stack;
		i.key &= m->projection.key;
		i.aux &= m->projection.aux;
		r = find_cell(m, i, &at);
		if (r == -E2BIG)
			r = merge_flush(m) ?: find_cell(m, i, &at);
		if (r < 0)
			return r;
		cell = &m->cells[at];
		cell->count += c->count[n];
		cell->value += c->value[n];
		cell->max = MAX(cell->max, c->max[n]);
	}
	return 0;
}

/* ---- into the answer --------------------------------------------------------------------------------------- */

/* An element whose parts name nothing (a damaged store) becomes none. */
static int64_t or_none(int64_t mapped)
{
	return mapped == -EBADMSG ? 0 : mapped;
}

static int flush_cell(struct merge *m, const struct cell *cell)
{
	int64_t series = or_none(dict_map_series(&m->map, cell->series));
	int64_t stack = or_none(dict_map_stack(&m->map, cell->stack));
	int64_t aux = or_none(dict_map_aux(&m->map, m->sel->type, cell->key, cell->aux));

	if (series < 0 || stack < 0 || aux < 0)
		return (int)MIN(series, MIN(stack, aux));
	return columns_add(&m->p->columns, (uint32_t)series, (uint32_t)stack, cell->key,
			   (uint32_t)aux, cell->count, cell->value, cell->max);
}

int merge_flush(struct merge *m)
{
	int r = 0;

	if (m->n_cells == 1)
		return 0;
	for (size_t i = 1; r == 0 && i < m->n_cells; i++)
		r = flush_cell(m, &m->cells[i]);
	if (r < 0)
		return r;
	m->n_cells = 1;
	if (m->slots)
		memset(m->slots, 0, m->n_slots * sizeof(*m->slots));
	if (m->direct)
		memset(m->direct, 0, m->cap_direct * sizeof(*m->direct));
	m->flushes++;
	return m->p->columns.n > m->max_rows ? merge_coarsen(m) : 0;
}

static int on_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		     const struct columns *columns)
{
	struct merge *m = ctx;
	const struct accounting *a = &meta->source[m->sel->type];

	m->block = a->sampled
			   ? blocks_add(&m->blocks, meta->covered_ns, a->counted_us * NSEC_PER_USEC)
			   : 0;
	return merge_add(m, d, columns);
}

int merge_run(struct merge *m, const struct query_source *src)
{
	int r = query_scan(src, m, on_bucket, m);

	return r < 0 ? r : merge_close(m);
}

/*
 * Kernel addresses help those who attack it. Frames lose their offsets, and those without a name get that of
 * the kernel. Their identity is gone then, so no frame may be interned after this.
 */
int profile_hide_kernel(struct profile *p)
{
	struct dict *d = p->dict;

	for (size_t i = 1; i < d->n_frames; i++) {
		struct frame *f = &d->frames[i];

		if (f->kind != FRAME_KERNEL)
			continue;
		f->offset = 0;
		if (f->name == 0) {
			int64_t name = dict_string(d, "[kernel]");

			if (name < 0)
				return (int)name;
			f->name = (uint32_t)name;
		}
	}
	return 0;
}

int query_merge(const struct query_source *src, const struct selection *sel, uint32_t max_nodes,
		struct profile **ret)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	struct selection asked = *sel;
	int r;

	if (sel->type == PROFILE_SYSCALLS && !sel->aspects)
		asked.aspects = CALLS_WITH_STACKS;
	r = merge_init(&m, &asked, all);

	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0)
		r = profile_fold(m.p, max_nodes);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	if (r < 0)
		return r;
	*ret = merge_take(&m);
	return 0;
}

int query_bucket(const struct bucket *b, const struct selection *sel, struct profile **ret)
{
	/* The selection's range does not matter here: the bucket is the range. */
	struct selection whole = *sel;
	struct query_source src = { .open = b };

	whole.from_wall_ns = b->meta.start_wall_ns;
	whole.until_wall_ns = b->meta.start_wall_ns + MAX(b->meta.covered_ns, 1);
	return query_merge(&src, &whole, 0, ret);
}
