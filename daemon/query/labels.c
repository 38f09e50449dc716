// SPDX-License-Identifier: GPL-2.0-or-later
/* Which keys a selection has, and which values of one, so that a user or a dashboard can narrow it. */
#include "query/internal.h"

struct facet facet_of_key(enum filter_key key)
{
	static const struct facet facets[FILTER_KEY_N] = {
		[FILTER_COMM] = { FACET_LABEL, LABEL_COMM },
		[FILTER_EXE] = { FACET_LABEL, LABEL_EXE },
		[FILTER_PID] = { FACET_PID },
		[FILTER_TID] = { FACET_TID },
		[FILTER_THREAD] = { FACET_LABEL, LABEL_THREAD },
		[FILTER_UID] = { FACET_UID },
		[FILTER_UNIT] = { FACET_LABEL, LABEL_UNIT },
		[FILTER_CGROUP] = { FACET_LABEL, LABEL_CGROUP },
		[FILTER_CONTAINER] = { FACET_LABEL, LABEL_CONTAINER },
		[FILTER_POD] = { FACET_LABEL, LABEL_POD },
		[FILTER_NAMESPACE] = { FACET_LABEL, LABEL_NAMESPACE },
		[FILTER_BUILD_ID] = { FACET_LABEL, LABEL_BUILD_ID },
		[FILTER_BINARY] = { FACET_BINARY },
		[FILTER_FUNCTION] = { FACET_FUNCTION },
		[FILTER_CAUSE] = { FACET_CAUSE },
		[FILTER_SYSCALL] = { FACET_SYSCALL },
		[FILTER_ERRNO] = { FACET_ERRNO },
		[FILTER_LOCK] = { FACET_LOCK },
		[FILTER_STATE] = { FACET_STATE },
		[FILTER_WAIT] = { FACET_WAIT },
		[FILTER_IDLE] = { FACET_IDLE },
	};

	return facets[key];
}

/* Whether samples of the type can have the key at all. */
static bool has_key(enum profile_type type, enum filter_key key)
{
	switch (key) {
	case FILTER_BINARY:
	case FILTER_FUNCTION:
	case FILTER_TID:
	case FILTER_THREAD:
		return type != PROFILE_SYSCALLS;
	case FILTER_CAUSE:
	case FILTER_STATE:
	case FILTER_WAIT:
	case FILTER_IDLE:
		return type == PROFILE_OFF_CPU;
	case FILTER_SYSCALL:
	case FILTER_ERRNO:
		return type == PROFILE_SYSCALLS;
	case FILTER_LOCK:
		return type == PROFILE_FUTEX;
	default:
		return true;
	}
}

/* ---- values ------------------------------------------------------------------------------------------------ */

struct label_values *label_values_free(struct label_values *v)
{
	if (!v)
		return NULL;
	for (size_t i = 0; i < v->n; i++)
		free(v->values[i].value);
	free(v->values);
	free(v);
	return NULL;
}

static int value_compare(const void *pa, const void *pb)
{
	const struct label_value *a = pa, *b = pb;

	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	return strcmp(a->value, b->value);
}

static int name_compare(const void *pa, const void *pb)
{
	return strcmp(((const struct label_value *)pa)->value,
		      ((const struct label_value *)pb)->value);
}

static bool is_number(enum facet_kind kind)
{
	return kind == FACET_PID || kind == FACET_TID;
}

static int collect(const struct grouping *gr, struct label_values *v)
{
	v->values = new0(struct label_value, gr->groups.n + 1);
	if (!v->values)
		return -ENOMEM;
	for (size_t i = 1; i < gr->groups.n; i++) {
		const struct group *g = &gr->groups.g[i];
		_cleanup_free_ char *name = NULL, *binary = NULL;
		int r;

		/* pid and tid 0 stand for many. */
		if ((g->total == 0 && g->events == 0) || (is_number(gr->facet.kind) && g->b == 0))
			continue;
		r = grouping_name(gr, g, "", &name, &binary);
		if (r < 0)
			return r;
		if (*name)
			v->values[v->n++] = (struct label_value){ TAKE_PTR(name), g->total };
	}
	return 0;
}

/* Values that read the same are one: functions of one name in two binaries, locks of two processes. */
static void join_equal(struct label_values *v)
{
	size_t n = 0;

	qsort(v->values, v->n, sizeof(*v->values), name_compare);
	for (size_t i = 0; i < v->n; i++) {
		if (n > 0 && streq(v->values[n - 1].value, v->values[i].value)) {
			v->values[n - 1].total += v->values[i].total;
			free(v->values[i].value);
		} else {
			v->values[n++] = v->values[i];
		}
	}
	v->n = n;
}

static void cut(struct label_values *v, size_t offset, size_t limit)
{
	size_t n;

	offset = MIN(offset, v->n);
	n = MIN(limit, v->n - offset);
	v->omitted = v->n - offset - n;
	for (size_t i = 0; i < v->n; i++)
		if (i < offset || i >= offset + n)
			free(v->values[i].value);
	memmove(v->values, v->values + offset, n * sizeof(*v->values));
	v->n = n;
}

int query_label_values(const struct query_source *src, const struct selection *sel,
		       enum filter_key key, uint32_t offset, uint32_t limit,
		       struct label_values **ret)
{
	_cleanup_(grouping_done) struct grouping gr = {};
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(label_values_free_p) struct label_values *v = new0(struct label_values, 1);
	int r;

	if (!v)
		return -ENOMEM;
	if ((unsigned)key >= FILTER_KEY_N)
		return -EINVAL;
	r = merge_init(&m, sel, facet_projection(facet_of_key(key)));
	if (r < 0)
		return r;
	grouping_init(&gr, facet_of_key(key), m.p);
	if (has_key(sel->type, key)) {
		r = merge_run(&m, src);
		if (r == 0 && !sel->visibility.all)
			r = profile_hide_kernel(m.p);
		if (r == 0)
			r = grouping_add(&gr, true);
		if (r == 0)
			r = collect(&gr, v);
		if (r < 0)
			return r;
	}
	if (v->n > 0) {
		join_equal(v);
		qsort(v->values, v->n, sizeof(*v->values), value_compare);
		cut(v, offset, limit ?: UINT32_MAX);
	}
	*ret = TAKE_PTR(v);
	return 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------- */

static uint64_t bit(enum filter_key key)
{
	return 1ULL << key;
}

static uint64_t keys_of_series(const struct series *s)
{
	uint64_t keys = bit(FILTER_UID);

	for (int key = 0; key < FILTER_KEY_N; key++) {
		struct facet f = facet_of_key((enum filter_key)key);

		if (f.kind == FACET_LABEL && s->label[f.label])
			keys |= bit((enum filter_key)key);
	}
	return keys | (s->pid ? bit(FILTER_PID) : 0) | (s->tid ? bit(FILTER_TID) : 0);
}

static uint64_t keys_of_row(const struct profile *p, size_t row)
{
	const struct columns *c = &p->columns;
	const struct dict *d = p->dict;
	uint64_t keys = keys_of_series(&d->series[c->series[row]]);

	if (c->stack[row])
		keys |= bit(FILTER_FUNCTION);
	/* One binary on the path is enough; markers alone have none. */
	for (uint32_t i = c->stack[row]; i && !(keys & bit(FILTER_BINARY)); i = d->stacks[i].parent)
		keys |= d->frames[d->stacks[i].frame].binary ? bit(FILTER_BINARY) : 0;
	if (p->type == PROFILE_OFF_CPU)
		keys |= bit(FILTER_CAUSE) |
			(*off_state_name(OFF_KEY_STATE(c->key[row])) ? bit(FILTER_STATE) : 0) |
			(OFF_KEY_WAIT(c->key[row]) ? bit(FILTER_WAIT) : 0) |
			(OFF_KEY_IDLE(c->key[row]) ? bit(FILTER_IDLE) : 0);
	if (p->type == PROFILE_SYSCALLS)
		keys |= bit(FILTER_SYSCALL) | (c->key[row] & 0xfff ? bit(FILTER_ERRNO) : 0);
	if (c->aux[row])
		keys |= bit(FILTER_LOCK);
	return keys;
}

int query_labels(const struct query_source *src, const struct selection *sel, uint64_t *ret_keys)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	uint64_t keys = 0;
	int r = merge_init(&m, sel, all);

	if (r == 0)
		r = merge_run(&m, src);
	if (r < 0)
		return r;
	for (size_t i = 0; i < m.p->columns.n; i++)
		keys |= keys_of_row(m.p, i);
	*ret_keys = keys;
	return 0;
}
