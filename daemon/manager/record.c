// SPDX-License-Identifier: GPL-2.0-or-later
/* Bursts for clients: a session remembers what was asked for, the recorder does the rest. */
#include <ctype.h>

#include "base/clock.h"
#include "manager/internal.h"

#define MAX_TGIDS 64
#define NAMES_NS (5 * NSEC_PER_SEC)
#define LINES_NS (2 * NSEC_PER_SEC)

struct record_session {
	uint64_t id;
	int event;
	bool ended;
	struct selection selection;
};

static int copy_visibility(const struct visibility *from, struct visibility *ret)
{
	*ret = (struct visibility){ .all = from->all, .uid = from->uid };
	if (from->n_units == 0)
		return 0;
	ret->units = new0(char *, from->n_units);
	if (!ret->units)
		return -ENOMEM;
	for (; ret->n_units < from->n_units; ret->n_units++) {
		ret->units[ret->n_units] = strdup(from->units[ret->n_units]);
		if (!ret->units[ret->n_units])
			return -ENOMEM;
	}
	return 0;
}

static int copy_selection(const struct selection *from, struct selection *ret)
{
	int r = copy_visibility(&from->visibility, &ret->visibility);

	if (r < 0)
		return r;
	ret->type = PROFILE_ON_CPU;
	ret->aspects = 1U << ON_SAMPLES | 1U << ON_INSTRUCTIONS;
	ret->until_wall_ns = UINT64_MAX;
	if (from->n_filters == 0)
		return 0;
	ret->filters = new0(struct filter, from->n_filters);
	if (!ret->filters)
		return -ENOMEM;
	for (; ret->n_filters < from->n_filters; ret->n_filters++) {
		struct filter *f = &ret->filters[ret->n_filters];

		*f = from->filters[ret->n_filters];
		f->glob = strdup(f->glob);
		if (!f->glob)
			return -ENOMEM;
	}
	return 0;
}

/*
 * Where only given pids are asked for, the kernel side samples nothing else. 0: it has to sample everything, and
 * the selection picks afterwards.
 */
static size_t exact_pids(const struct selection *sel, uint32_t ret[MAX_TGIDS])
{
	size_t n = 0;

	for (size_t i = 0; i < sel->n_filters; i++) {
		const struct filter *f = &sel->filters[i];
		char *end;
		unsigned long pid;

		if (f->key != FILTER_PID || f->negate)
			continue;
		pid = strtoul(f->glob, &end, 10);
		if (!isdigit((unsigned char)f->glob[0]) || *end || pid == 0 || pid > INT32_MAX ||
		    n == MAX_TGIDS)
			return 0;
		ret[n++] = (uint32_t)pid;
	}
	return n;
}

int manager_record_start(void *ctx, double hz, int event, const struct selection *sel,
			 struct record_session **ret, const char **ret_why)
{
	struct manager *m = ctx;
	struct record_session *s;
	uint32_t tgids[MAX_TGIDS];
	int r;

	if (!(hz >= 1 && hz <= 997)) {
		*ret_why = "the rate must be between 1 and 997 Hz";
		return -EINVAL;
	}
	s = new0(struct record_session, 1);
	if (!s)
		return -ENOMEM;
	r = copy_selection(sel, &s->selection);
	if (r >= 0)
		r = recorder_burst_start(m->recorder, hz, event, tgids, exact_pids(sel, tgids),
					 sel->visibility.all, &s->id);
	s->event = event;
	if (r < 0) {
		if (r == -EOPNOTSUPP && event > 0)
			*ret_why = "the performance unit counts this event, but gives no "
				   "interrupts by which it could be sampled";
		if (r == -EBUSY)
			*ret_why = "as many recordings as max-bursts allows are running (the last "
				   "is for administrators)";
		s->ended = true;
		manager_record_free(m, s);
		return r;
	}
	*ret = s;
	return 0;
}

/* Somebody waits for this recording, and for nothing else: it gets what history does without. */
static void add_lines(struct manager *m, struct filled *f)
{
	_cleanup_(inlines_done) struct inlines lines;

	inlines_init(&lines, f->bucket->dict);
	symbolizer_lines(m->symbolizer, &lines, f->binary_keys, f->n_keys,
			 mono_now_ns() + LINES_NS);
	/* Without memory the stacks stay as they are. */
	(void)inlines_expand(&lines, f->bucket);
}

/* Queries take values of samples for microseconds and make nanoseconds of them. */
static void weigh_events(struct profile *p, int event)
{
	struct columns *c = &p->columns;

	p->event = (unsigned)event;
	p->total /= NSEC_PER_USEC;
	for (size_t i = 0; i < c->n; i++)
		if (row_is_time(PROFILE_ON_CPU, c->key[i]))
			c->value[i] /= NSEC_PER_USEC;
}

static int finish(struct manager *m, struct record_session *s, struct profile **ret)
{
	struct filled f = {};
	int r;

	s->ended = true;
	r = recorder_burst_end(m->recorder, s->id, &f);
	if (r > 0) /* not one window: an empty profile */
		return profile_new(PROFILE_ON_CPU, ret);
	if (r < 0)
		return r;
	symbolizer_name(m->symbolizer, f.bucket->dict, f.binary_keys, f.n_keys,
			mono_now_ns() + NAMES_NS);
	add_lines(m, &f);
	/* Those of some CPUs alone are no use. */
	if (!f.bucket->instructions.sampled)
		s->selection.aspects = 1U << ON_SAMPLES;
	r = query_bucket(f.bucket, &s->selection, ret);
	if (r >= 0 && s->event > 0)
		weigh_events(*ret, s->event);
	if (r >= 0) {
		(*ret)->instructions = f.bucket->instructions;
		profile_sum_instructions(*ret);
	}
	filled_done(&f);
	return r;
}

int manager_record_read(void *ctx, struct record_session *s, uint64_t *ret_samples,
			uint64_t *ret_lost, struct profile **ret_profile)
{
	struct manager *m = ctx;
	struct burst_progress p;
	int r;

	r = recorder_burst_read(m->recorder, s->id, &p);
	if (r < 0)
		return r;
	*ret_samples = p.samples;
	*ret_lost = p.lost;
	return ret_profile ? finish(m, s, ret_profile) : 0;
}

void manager_record_free(void *ctx, struct record_session *s)
{
	struct manager *m = ctx;

	if (!s)
		return;
	if (!s->ended)
		recorder_burst_end(m->recorder, s->id, NULL);
	selection_done(&s->selection);
	free(s);
}
