// SPDX-License-Identifier: GPL-2.0-or-later
/* The heaviest rows of a selection by one dimension, and what a dimension is. */
#include "../bpf/sysprofd.h"
#include "query/internal.h"

static const char *const dimension_names[DIMENSION_N] = {
	[BY_NONE] = "total",	[BY_FUNCTION] = "function", [BY_PROCESS] = "process",
	[BY_THREAD] = "thread", [BY_UNIT] = "unit",	    [BY_CONTAINER] = "container",
	[BY_POD] = "pod",	[BY_BINARY] = "binary",	    [BY_STACK] = "stack",
	[BY_CAUSE] = "cause",	[BY_SYSCALL] = "syscall",   [BY_LOCK] = "lock",
};

const char *dimension_name(enum dimension by)
{
	return (size_t)by < DIMENSION_N ? dimension_names[by] : NULL;
}

int dimension_from_name(const char *name)
{
	for (int i = BY_FUNCTION; i < DIMENSION_N; i++)
		if (streq(name, dimension_names[i]))
			return i;
	return -EINVAL;
}

int dimension_resolve(enum profile_type type, enum dimension by, enum dimension *ret_by,
		      const char **ret_error)
{
	const char *error = NULL;

	if ((unsigned)by >= DIMENSION_N)
		error = "there is no such dimension";
	else if (by == BY_CAUSE && type != PROFILE_OFF_CPU)
		error = "only off-cpu has causes";
	else if (by == BY_SYSCALL && type != PROFILE_SYSCALLS)
		error = "only syscalls are counted by system call";
	else if (by == BY_LOCK && type != PROFILE_FUTEX)
		error = "only futex has locks";
	else if (by == BY_THREAD && type == PROFILE_SYSCALLS)
		error = "syscalls are counted per process";
	if (error) {
		if (ret_error)
			*ret_error = error;
		return -EINVAL;
	}
	if (by == BY_NONE)
		by = type == PROFILE_SYSCALLS ? BY_SYSCALL : BY_FUNCTION;
	*ret_by = by;
	return 0;
}

struct facet facet_of_dimension(enum dimension by)
{
	static const struct facet facets[DIMENSION_N] = {
		[BY_NONE] = { FACET_ALL },
		[BY_FUNCTION] = { FACET_FUNCTION },
		[BY_PROCESS] = { FACET_PROCESS },
		[BY_THREAD] = { FACET_THREAD },
		[BY_UNIT] = { FACET_LABEL, LABEL_UNIT },
		[BY_CONTAINER] = { FACET_LABEL, LABEL_CONTAINER },
		[BY_POD] = { FACET_LABEL, LABEL_POD },
		[BY_BINARY] = { FACET_BINARY },
		[BY_STACK] = { FACET_STACK },
		[BY_CAUSE] = { FACET_CAUSE },
		[BY_SYSCALL] = { FACET_SYSCALL },
		[BY_LOCK] = { FACET_LOCK },
	};

	return facets[by];
}

struct projection facet_projection(struct facet f)
{
	switch (f.kind) {
	case FACET_ALL:
		return (struct projection){};
	case FACET_FUNCTION:
	case FACET_BINARY:
	case FACET_STACK:
		return (struct projection){ .stack = PROJECT_ALL };
	case FACET_CAUSE:
	case FACET_STATE:
	case FACET_WAIT:
	case FACET_IDLE:
	case FACET_SYSCALL:
	case FACET_ERRNO:
		return (struct projection){ .key = PROJECT_ALL };
	case FACET_LOCK:
		return (struct projection){ .aux = PROJECT_ALL };
	default:
		return (struct projection){ .series = PROJECT_ALL };
	}
}

/* ---- top ------------------------------------------------------------------------------------------------- */

struct top *top_free(struct top *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->n_rows; i++) {
		free(t->rows[i].name);
		free(t->rows[i].binary);
	}
	free(t->rows);
	profile_free(t->coverage);
	free(t);
	return NULL;
}

struct candidate {
	const struct group *g;
	char *name, *binary;
};

struct candidates {
	struct candidate *c;
	size_t n;
};

static void candidates_done(struct candidates *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->c[i].name);
		free(c->c[i].binary);
	}
	free(c->c);
}

static int descending(uint64_t a, uint64_t b)
{
	return a == b ? 0 : a > b ? -1 : 1;
}

/* Ties are ordered by what people see, so that the same data always gives the same page. */
static int compare_rest(const struct candidate *a, const struct candidate *b)
{
	int r = strcmp(a->name, b->name);

	r = r ?: strcmp(a->binary, b->binary);
	r = r ?: -descending(a->g->b, b->g->b);
	r = r ?: -descending(a->g->a, b->g->a);
	return r ?: -descending(a->g->c, b->g->c);
}

static int compare_self(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;

	return descending(a->g->self, b->g->self) ?:
	       descending(a->g->total, b->g->total) ?:
	       compare_rest(a, b);
}

static int compare_total(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;

	return descending(a->g->total, b->g->total) ?:
	       descending(a->g->self, b->g->self) ?:
	       compare_rest(a, b);
}

static int collect(const struct grouping *gr, struct candidates *ret)
{
	ret->c = new0(struct candidate, gr->groups.n + 1);
	if (!ret->c)
		return -ENOMEM;
	for (size_t i = 1; i < gr->groups.n; i++) {
		const struct group *g = &gr->groups.g[i];
		int r;

		/* Groups that filters or scaling left empty. */
		if (g->total == 0 && g->events == 0)
			continue;
		ret->c[ret->n].g = g;
		r = grouping_name(gr, g, NAME_NONE, &ret->c[ret->n].name, &ret->c[ret->n].binary);
		if (r < 0)
			return r;
		ret->n++;
	}
	return 0;
}

static int fill_rows(const struct grouping *gr, struct candidates *from, bool by_total,
		     size_t limit, struct top *t)
{
	uint64_t whole = gr->p->total;
	size_t n = limit ? MIN(limit, from->n) : from->n;

	qsort(from->c, from->n, sizeof(*from->c), by_total ? compare_total : compare_self);
	t->rows = new0(struct top_row, n + 1);
	if (!t->rows)
		return -ENOMEM;
	for (; t->n_rows < n; t->n_rows++) {
		struct candidate *c = &from->c[t->n_rows];
		struct top_row *row = &t->rows[t->n_rows];

		*row = (struct top_row){
			.name = TAKE_PTR(c->name),
			.binary = TAKE_PTR(c->binary),
			.self = c->g->self,
			.total = c->g->total,
			.events = gr->p->type == PROFILE_ON_CPU ? 0 : c->g->events,
			.errors = c->g->errors,
			.max = c->g->max,
		};
		grouping_identity(gr, c->g, &row->pid, &row->tid, &row->start);
		if (whole)
			row->share = (double)(by_total ? row->total : row->self) / (double)whole;
	}
	t->rows_omitted = from->n - n;
	return 0;
}

/* How exact the rows are, where calls were counted in spans of the time. */
static int fill_intervals(const struct merge *m, struct grouping *gr, const struct candidates *c,
			  struct top *t)
{
	_cleanup_free_ struct block_sums *sums = new0(struct block_sums, gr->groups.n + 1);
	const struct columns *columns = &gr->p->columns;

	if (!sums)
		return -ENOMEM;
	for (size_t i = 0; i < columns->n; i++) {
		uint32_t g;
		int r = grouping_of_row(gr, i, &g);

		if (r < 0)
			return r;
		block_sums_add(&sums[g], columns->aux[i], (double)columns->count[i]);
	}
	t->has_intervals = true;
	for (size_t i = 0; i < t->n_rows; i++)
		t->rows[i].within = estimate_interval(&m->blocks, &sums[c->c[i].g - gr->groups.g]);
	return 0;
}

static struct projection top_projection(enum profile_type type, struct facet f)
{
	struct projection p = facet_projection(f);

	/* Whether a call failed is in its key. */
	if (type == PROFILE_SYSCALLS)
		p.key = p.aux = PROJECT_ALL;
	return p;
}

static int make_top(struct merge *m, struct facet f, bool by_total, uint32_t limit, struct top *t)
{
	_cleanup_(grouping_done) struct grouping gr;
	_cleanup_(candidates_done) struct candidates c = {};
	int r;

	grouping_init(&gr, f, m->p);
	r = grouping_add(&gr, true);
	if (r == 0)
		r = collect(&gr, &c);
	if (r == 0)
		r = fill_rows(&gr, &c, by_total, limit, t);
	if (r == 0 && m->by_block)
		r = fill_intervals(m, &gr, &c, t);
	return r;
}

int query_top(const struct query_source *src, const struct selection *sel, enum dimension by,
	      bool by_total, uint32_t limit, struct top **ret)
{
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(top_free_p) struct top *t = NULL;
	struct selection asked;
	struct facet f;
	int r = dimension_resolve(sel->type, by, &by, NULL);

	if (r < 0)
		return r;
	f = facet_of_dimension(by);
	t = new0(struct top, 1);
	if (!t)
		return -ENOMEM;
	asked = *sel;
	if (sel->type == PROFILE_SYSCALLS && facet_of_stacks(f))
		asked.aspects = CALLS_WITH_STACKS;
	r = merge_init(&m, &asked, top_projection(sel->type, f));
	m.by_block = sel->type == PROFILE_SYSCALLS && !m.spreads;
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	if (r == 0)
		r = make_top(&m, f, by_total, limit, t);
	if (r < 0)
		return r;
	t->coverage = merge_take(&m);
	columns_done(&t->coverage->columns);
	*ret = TAKE_PTR(t);
	return 0;
}
