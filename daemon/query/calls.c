// SPDX-License-Identifier: GPL-2.0-or-later
#include "query/calls.h"

#include "../bpf/sysprofd.h"
#include "query/internal.h"

_Static_assert(CALL_BINS == DETAIL_BINS, "bins");

#define ERRNOS 4096

static void row_done(struct call_row *row)
{
	for (size_t i = 0; i < row->n_parts; i++)
		free(row->parts[i].name);
	free(row->name);
	free(row->unit);
}

struct calls_answer *calls_answer_free(struct calls_answer *a)
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

/* ---- estimates --------------------------------------------------------------------------------------- */

static double bin_floor(unsigned bin)
{
	return bin ? (double)(1ULL << (bin - 1)) : 0;
}

uint64_t call_quantile(const struct call_measure *m, double q)
{
	double all = 0, before = 0, at;

	for (unsigned i = 0; i < CALL_BINS; i++)
		all += m->bins[i];
	for (unsigned i = 0; i < CALL_BINS; i++) {
		if (m->bins[i] <= 0 || before + m->bins[i] < q * all) {
			before += m->bins[i];
			continue;
		}
		at = bin_floor(i) * (1 + (q * all - before) / m->bins[i]);
		return MIN((uint64_t)at, m->max);
	}
	return m->max;
}

/* Adds what was measured of one kind of call, scaled to the number of such calls that there were. */
static void add_measure(struct call_measure *to, const struct call_measure *m, uint64_t exact)
{
	double weighted = 0, by;

	for (unsigned i = 0; i < CALL_BINS; i++)
		weighted += m->bins[i];
	if (weighted <= 0)
		return;
	by = exact ? (double)exact / weighted : 1;
	for (unsigned i = 0; i < CALL_BINS; i++)
		to->bins[i] += m->bins[i] * by;
	to->total += m->total * by;
	to->max = MAX(to->max, m->max);
	to->measured += m->measured;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

/* A row of the profile, and what it is sorted by. */
struct item {
	uint32_t group; /* process, call, or errno */
	uint32_t call; /* without errno and aspect */
	uint32_t row;
};

struct call_group {
	size_t from, until; /* items */
	uint64_t calls;
};

struct asking {
	const struct profile *p;
	const struct blocks *blocks;
	enum calls_by by;
	struct item *items;
	struct call_group *groups;
	size_t n_groups;
	uint64_t *by_errno; /* of the group at hand */
};

static void asking_done(struct asking *a)
{
	free(a->items);
	free(a->groups);
	free(a->by_errno);
}

static int item_compare(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;

	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->call != b->call)
		return a->call < b->call ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static int most_calls_first(const void *pa, const void *pb)
{
	const struct call_group *a = pa, *b = pb;

	if (a->calls != b->calls)
		return a->calls > b->calls ? -1 : 1;
	return a->from < b->from ? -1 : a->from > b->from;
}

static int list_items(struct asking *a)
{
	const struct columns *c = &a->p->columns;
	_cleanup_free_ uint32_t *process = new0(uint32_t, a->p->dict->n_series);
	int r;

	a->items = new0(struct item, c->n + 1);
	a->groups = new0(struct call_group, c->n + 1);
	a->by_errno = new0(uint64_t, ERRNOS);
	if (!process || !a->items || !a->groups || !a->by_errno)
		return -ENOMEM;
	r = query_threads(a->p->dict, process);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++) {
		uint32_t key = c->key[i] & ~aspect_mask(PROFILE_SYSCALLS),
			 call = key & ~(ERRNOS - 1U);

		a->items[i] = (struct item){
			.group = a->by == CALLS_BY_SYSCALL   ? call
				 : a->by == CALLS_BY_PROCESS ? process[c->series[i]]
							     : SYSCALL_KEY_ERRNO(key),
			.call = call,
			.row = (uint32_t)i,
		};
	}
	qsort(a->items, c->n, sizeof(*a->items), item_compare);
	return 0;
}

static bool is_count(const struct asking *a, const struct item *i)
{
	return row_aspect(PROFILE_SYSCALLS, a->p->columns.key[i->row]) == CALL_COUNT;
}

/* Calls of a row, or of all, by the blocks that they were counted in. */
struct sums {
	struct block_sums calls, errors;
};

static void add_count(struct sums *s, const struct columns *c, uint32_t row)
{
	block_sums_add(&s->calls, c->aux[row], (double)c->count[row]);
	if (SYSCALL_KEY_ERRNO(c->key[row]))
		block_sums_add(&s->errors, c->aux[row], (double)c->count[row]);
}

static void list_groups(struct asking *a, struct calls_answer *answer)
{
	const struct columns *c = &a->p->columns;
	struct sums sums = {};

	for (size_t i = 0; i < c->n; i++) {
		struct call_group *g;

		if (i == 0 || a->items[i - 1].group != a->items[i].group)
			a->groups[a->n_groups++].from = i;
		g = &a->groups[a->n_groups - 1];
		g->until = i + 1;
		if (!is_count(a, &a->items[i]))
			continue;
		g->calls += c->count[a->items[i].row];
		add_count(&sums, c, a->items[i].row);
		answer->calls += c->count[a->items[i].row];
		if (SYSCALL_KEY_ERRNO(c->key[a->items[i].row]))
			answer->errors += c->count[a->items[i].row];
	}
	answer->calls_within = estimate_interval(a->blocks, &sums.calls);
	answer->errors_within = estimate_interval(a->blocks, &sums.errors);
	qsort(a->groups, a->n_groups, sizeof(*a->groups), most_calls_first);
	/* Such as were measured in a bucket that does not count them. */
	while (a->n_groups > 0 && a->groups[a->n_groups - 1].calls == 0)
		a->n_groups--;
}

static int add_part(struct call_row *row, const char *name, uint64_t calls)
{
	size_t at = row->n_parts;
	char *copy;

	while (at > 0 && row->parts[at - 1].calls < calls)
		at--;
	if (at == CALL_PARTS)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (row->n_parts == CALL_PARTS)
		free(row->parts[--row->n_parts].name);
	memmove(&row->parts[at + 1], &row->parts[at], (row->n_parts - at) * sizeof(*row->parts));
	row->parts[at] = (struct call_part){ copy, calls };
	row->n_parts++;
	return 0;
}

static void take_detail(struct call_measure *m, const struct columns *c, uint32_t row)
{
	m->bins[CALL_KEY_BIN(c->key[row]) % CALL_BINS] += (double)c->count[row];
	m->total += (double)c->value[row];
	m->max = MAX(m->max, c->max[row]);
}

/* Items [from, until) are those of one call. */
static int add_call(struct asking *a, struct call_row *row, size_t from, size_t until)
{
	const struct columns *c = &a->p->columns;
	struct call_measure latency = {}, bytes = {};
	uint64_t calls = 0, errors = 0;
	char buf[64];

	for (size_t i = from; i < until; i++) {
		uint32_t at = a->items[i].row, err = SYSCALL_KEY_ERRNO(c->key[at]);

		switch (row_aspect(PROFILE_SYSCALLS, c->key[at])) {
		case CALL_COUNT:
			calls += c->count[at];
			errors += err ? c->count[at] : 0;
			a->by_errno[err] += c->count[at];
			break;
		case CALL_LATENCY:
			take_detail(&latency, c, at);
			break;
		case CALL_BYTES:
			take_detail(&bytes, c, at);
			break;
		case CALL_BASIS:
			latency.measured += c->count[at];
			bytes.measured += c->value[at];
			break;
		}
	}
	row->calls += calls;
	row->errors += errors;
	add_measure(&row->latency, &latency, calls);
	add_measure(&row->bytes, &bytes, calls - errors);
	return a->by == CALLS_BY_ERRNO
		       ? add_part(row, syscall_text(a->items[from].call, buf, sizeof(buf)), calls)
		       : 0;
}

/* The errnos of the group at hand, which are forgotten. */
static int take_errnos(struct asking *a, struct call_row *row)
{
	char buf[32];
	int r = 0;

	for (unsigned e = 1; r == 0 && a->by != CALLS_BY_ERRNO && e < ERRNOS; e++)
		if (a->by_errno[e])
			r = add_part(row, errno_text(e, buf, sizeof(buf)), a->by_errno[e]);
	memset(a->by_errno, 0, ERRNOS * sizeof(*a->by_errno));
	return r;
}

static int name_row(const struct asking *a, const struct item *i, struct call_row *row)
{
	const struct dict *d = a->p->dict;
	const struct series *s = &d->series[i->group];
	char buf[64];

	switch (a->by) {
	case CALLS_BY_PROCESS:
		row->name = strdup(dict_str(d, s->label[LABEL_COMM]));
		row->unit = strdup(dict_str(d, s->label[LABEL_UNIT]));
		row->pid = s->pid;
		row->start = s->start;
		break;
	case CALLS_BY_ERRNO:
		row->name = strdup(i->group ? errno_text(i->group, buf, sizeof(buf)) : "ok");
		row->unit = strdup("");
		break;
	default:
		row->name = strdup(syscall_text(i->group, buf, sizeof(buf)));
		row->unit = strdup("");
	}
	return row->name && row->unit ? 0 : -ENOMEM;
}

static void fill_intervals(const struct asking *a, const struct call_group *g, struct call_row *row)
{
	struct sums sums = {};

	for (size_t i = g->from; i < g->until; i++)
		if (is_count(a, &a->items[i]))
			add_count(&sums, &a->p->columns, a->items[i].row);
	row->calls_within = estimate_interval(a->blocks, &sums.calls);
	row->errors_within = estimate_interval(a->blocks, &sums.errors);
}

static int fill_row(struct asking *a, const struct call_group *g, struct call_row *row)
{
	double tiny = 0;
	size_t until;
	int r = name_row(a, &a->items[g->from], row);

	for (size_t i = g->from; r == 0 && i < g->until; i = until) {
		for (until = i; until < g->until && a->items[until].call == a->items[i].call;)
			until++;
		r = add_call(a, row, i, until);
	}
	if (r == 0)
		r = take_errnos(a, row);
	fill_intervals(a, g, row);
	for (unsigned i = 0; i < CALL_BINS && 1ULL << i <= TINY_BYTES; i++)
		tiny += row->bytes.bins[i];
	row->tiny = (uint64_t)(tiny + 0.5);
	return r;
}

static int fill_rows(const struct merge *m, enum calls_by by, uint32_t limit,
		     struct calls_answer *answer)
{
	_cleanup_(asking_done) struct asking a = { .p = m->p, .by = by, .blocks = &m->blocks };
	size_t n;
	int r = list_items(&a);

	if (r < 0)
		return r;
	list_groups(&a, answer);
	n = limit ? MIN(limit, a.n_groups) : a.n_groups;
	answer->omitted = a.n_groups - n;
	answer->rows = new0(struct call_row, n + 1);
	if (!answer->rows)
		return -ENOMEM;
	while (r == 0 && answer->n_rows < n) {
		r = fill_row(&a, &a.groups[answer->n_rows], &answer->rows[answer->n_rows]);
		answer->n_rows++;
	}
	return r;
}

int query_calls(const struct query_source *src, const struct selection *sel, enum calls_by by,
		uint32_t limit, struct calls_answer **ret)
{
	const struct projection wanted = { .series = by == CALLS_BY_PROCESS ? PROJECT_ALL : 0,
					   .key = PROJECT_ALL,
					   .aux = PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(calls_answer_free_p) struct calls_answer *a = new0(struct calls_answer, 1);
	struct selection asked = *sel;
	int r;

	if (!a)
		return -ENOMEM;
	/* How long calls took is not told apart by how they ended. */
	asked.aspects = by == CALLS_BY_ERRNO ? 1U << CALL_COUNT
					     : 1U << CALL_COUNT | 1U << CALL_LATENCY |
						       1U << CALL_BYTES | 1U << CALL_BASIS;
	r = merge_init(&m, &asked, wanted);
	m.by_block = true;
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0)
		r = fill_rows(&m, by, limit, a);
	if (r < 0)
		return r;
	a->estimated = m.p->accounting.sampled;
	a->coverage = merge_take(&m);
	columns_done(&a->coverage->columns);
	*ret = TAKE_PTR(a);
	return 0;
}
