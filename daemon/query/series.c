// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Values over time: the range is cut into steps at multiples of the step since the epoch, each step is merged
 * for itself, and its groups add to lines. Lines add up to the selection's total: functions have their own time
 * only, and what is beyond the limit is the line "[other]".
 *
 * What happened within a bucket is not known. Where steps are shorter than the buckets, longer ones are taken:
 * multiples of what was asked for.
 */
#include "query/internal.h"

#define DEFAULT_STEPS 60
#define BUCKET_NS (10 * NSEC_PER_SEC)
#define MAX_BUCKET_NS (3600 * NSEC_PER_SEC) /* longer ones can only come from a damaged store */
#define STEP_TOO_SHORT 1 /* ends the scan */

struct point {
	uint32_t group, step;
	uint64_t value;
};

struct stepping {
	struct merge merge;
	struct grouping groups;
	struct series_answer *answer;
	struct point *points;
	size_t n_points, cap_points;
	uint64_t *before; /* by group: its self before this step */
	size_t cap_before;
	size_t step; /* being merged */
	uint64_t longest_ns; /* of the buckets */
};

static void stepping_done(struct stepping *s)
{
	grouping_done(&s->groups);
	merge_done(&s->merge);
	free(s->points);
	free(s->before);
}

struct series_answer *series_answer_free(struct series_answer *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->n_lines; i++) {
		free(a->lines[i].name);
		free(a->lines[i].binary);
		free(a->lines[i].values);
	}
	free(a->lines);
	free(a->covered_ns);
	profile_free(a->coverage);
	free(a);
	return NULL;
}

/* ---- steps ------------------------------------------------------------------------------------------------ */

/* What was merged since the last step's end becomes points of this step. */
static int end_step(struct stepping *s)
{
	int r = merge_close(&s->merge);

	if (r == 0)
		r = grouping_add(&s->groups, false);
	columns_empty(&s->merge.p->columns);
	if (r == 0)
		r = ARRAY_GROW(s->before, s->cap_before, s->groups.groups.n);
	for (uint32_t g = 1; r == 0 && g < s->groups.groups.n; g++) {
		uint64_t self = s->groups.groups.g[g].self;

		if (self == s->before[g])
			continue;
		if (s->n_points >= QUERY_MAX_POINTS)
			return -E2BIG;
		r = ARRAY_GROW(s->points, s->cap_points, s->n_points + 1);
		if (r < 0)
			return r;
		s->points[s->n_points++] = (struct point){ g, (uint32_t)s->step,
							   self - s->before[g] };
		s->before[g] = self;
	}
	return r;
}

static int on_bucket(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		     const struct columns *columns)
{
	struct stepping *s = ctx;
	size_t step = (meta->start_wall_ns - s->answer->first_wall_ns) / s->answer->step_ns;

	if (meta->length_ns <= MAX_BUCKET_NS)
		s->longest_ns = MAX(s->longest_ns, meta->length_ns);
	if (s->longest_ns > s->answer->step_ns)
		return STEP_TOO_SHORT;
	if (step != s->step) {
		int r = end_step(s);

		if (r < 0)
			return r;
		s->step = step;
	}
	s->answer->covered_ns[step] += meta->covered_ns;
	return merge_add(&s->merge, d, columns);
}

static int lay_steps(const struct selection *sel, uint64_t step_ns, struct series_answer *a)
{
	uint64_t range = sel->until_wall_ns - sel->from_wall_ns;

	if (sel->until_wall_ns < sel->from_wall_ns)
		return -EINVAL;
	if (step_ns == 0)
		step_ns = MAX((range / DEFAULT_STEPS + BUCKET_NS - 1) / BUCKET_NS, 1) * BUCKET_NS;
	if (range / step_ns >= QUERY_MAX_STEPS)
		return -E2BIG;
	a->step_ns = step_ns;
	a->first_wall_ns = sel->from_wall_ns - sel->from_wall_ns % step_ns;
	/* An empty range has one step, in which nothing was recorded. */
	a->n_steps = range ? (sel->until_wall_ns - 1 - a->first_wall_ns) / step_ns + 1 : 1;
	a->covered_ns = new0(uint64_t, a->n_steps);
	return a->covered_ns ? 0 : -ENOMEM;
}

/* ---- lines ------------------------------------------------------------------------------------------------ */

static int group_compare(const void *pa, const void *pb, void *ctx)
{
	const struct group *g = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (g[a].self != g[b].self)
		return g[a].self > g[b].self ? -1 : 1;
	return a < b ? -1 : 1;
}

static int add_line(struct series_answer *a)
{
	struct series_line *line = &a->lines[a->n_lines];

	line->values = new0(uint64_t, a->n_steps);
	if (!line->values)
		return -ENOMEM;
	a->n_lines++;
	return 0;
}

static int add_other(struct series_answer *a)
{
	struct series_line *line = &a->lines[a->n_lines];
	int r = add_line(a);

	if (r < 0)
		return r;
	line->name = strdup(MARKER_OTHER);
	line->binary = strdup("");
	return line->name && line->binary ? 0 : -ENOMEM;
}

/* Lines for the heaviest groups; of_group tells the line of each, `limit` meaning [other]. */
static int make_lines(struct stepping *s, size_t limit, uint32_t *of_group)
{
	const struct group_table *t = &s->groups.groups;
	struct series_answer *a = s->answer;
	_cleanup_free_ uint32_t *order = new0(uint32_t, t->n + 1);
	size_t n = 0;
	int r = 0;

	if (!order)
		return -ENOMEM;
	for (uint32_t g = 1; g < t->n; g++)
		if (t->g[g].self)
			order[n++] = g;
	qsort_r(order, n, sizeof(*order), group_compare, t->g);
	limit = MIN(limit, n);
	a->lines = new0(struct series_line, limit + 1);
	if (!a->lines)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct group *g = &t->g[order[i]];
		struct series_line *line = &a->lines[i];
		uint32_t tid;
		uint64_t start;

		of_group[order[i]] = (uint32_t)MIN(i, limit);
		if (i >= limit)
			continue;
		r = add_line(a);
		if (r == 0)
			r = grouping_name(&s->groups, g, NAME_NONE, &line->name, &line->binary);
		if (r == 0)
			grouping_identity(&s->groups, g, &line->pid, &tid, &start);
	}
	a->omitted = n - limit;
	return r;
}

static int fill_lines(struct stepping *s, size_t limit)
{
	struct series_answer *a = s->answer;
	_cleanup_free_ uint32_t *of_group = new0(uint32_t, s->groups.groups.n + 1);
	int r;

	if (!of_group)
		return -ENOMEM;
	r = make_lines(s, limit, of_group);
	if (r == 0 && a->omitted)
		r = add_other(a);
	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n_points; i++) {
		const struct point *p = &s->points[i];
		struct series_line *line = &a->lines[of_group[p->group]];

		line->values[p->step] += p->value;
		line->total += p->value;
	}
	return 0;
}

/* STEP_TOO_SHORT: for a bucket as long as *ret_longest_ns. */
static int try_series(const struct query_source *src, const struct selection *sel, struct facet f,
		      uint64_t step_ns, uint32_t limit, struct series_answer **ret,
		      uint64_t *ret_longest_ns)
{
	_cleanup_(stepping_done) struct stepping s = {};
	_cleanup_(series_answer_free_p) struct series_answer *a = new0(struct series_answer, 1);
	struct selection asked = *sel;
	int r = a ? lay_steps(sel, step_ns, a) : -ENOMEM;

	if (sel->type == PROFILE_SYSCALLS && facet_of_stacks(f))
		asked.aspects = CALLS_WITH_STACKS;
	if (r == 0)
		r = merge_init(&s.merge, &asked, facet_projection(f));
	if (r < 0)
		return r;
	s.answer = a;
	s.merge.keep_ids = true;
	grouping_init(&s.groups, f, s.merge.p);
	r = query_scan(src, &s.merge, on_bucket, &s);
	if (r == STEP_TOO_SHORT)
		*ret_longest_ns = s.longest_ns;
	if (r == 0)
		r = end_step(&s);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(s.merge.p);
	if (r == 0)
		r = fill_lines(&s, limit ?: UINT32_MAX);
	if (r != 0)
		return r;
	a->coverage = merge_take(&s.merge);
	columns_done(&a->coverage->columns);
	*ret = TAKE_PTR(a);
	return 0;
}

int query_series(const struct query_source *src, const struct selection *sel, enum dimension by,
		 uint64_t step_ns, uint32_t limit, struct series_answer **ret)
{
	uint64_t longest = 0;
	int r = by == BY_NONE ? 0 : dimension_resolve(sel->type, by, &by, NULL);

	while (r == 0) {
		r = try_series(src, sel, facet_of_dimension(by), step_ns, limit, ret, &longest);
		if (r != STEP_TOO_SHORT)
			break;
		step_ns = step_ns ?: BUCKET_NS;
		step_ns = (longest + step_ns - 1) / step_ns * step_ns;
		r = 0;
	}
	return r;
}
