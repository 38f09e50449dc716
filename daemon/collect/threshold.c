// SPDX-License-Identifier: GPL-2.0-or-later
#include "collect/threshold.h"
#include "collect/internal.h"

#define THRESHOLD_NS (10 * NSEC_PER_MSEC)
#define THRESHOLD_LIMIT_NS UINT32_MAX /* the programs multiply with it */
/* Half of T makes at most twice the samples: that is to leave some room. */
#define SPENT_LITTLE 0.45
#define WALKS_MOST 0.75 /* of what may be walked: above that bursts find nothing left */
#define LOOKS_PER_WALK 8.0 /* to find that a stack is known */
/* An interrupt among the few waits that were timed is not to move T. */
#define NEWEST_WINDOW 0.25

void threshold_begin(struct threshold *t, const struct collect_options *o)
{
	t->ns = MIN(o->off_cpu_threshold_ns ?: THRESHOLD_NS, THRESHOLD_LIMIT_NS);
	t->kept_ns = 0;
}

/* Of the walks that the window had. */
static double walks_spent(const struct collect_options *o, const struct account *a,
			  double cpu_seconds)
{
	double limit = cpu_seconds * (o->walks_per_second ?: WALKS_PER_SECOND) * WALKS_MOST;

	return ((double)a->walked + (double)a->reused / LOOKS_PER_WALK) / limit;
}

/* Of the time that waits may take. */
static double budget_spent(struct threshold *t, const struct collect_options *o,
			   const struct account *a, double cpu_seconds)
{
	double limit_ns = cpu_seconds * NSEC_PER_SEC * o->cpu_budget * WAITS_OF_BUDGET, each_ns;

	if (a->timed) {
		each_ns = (double)a->timed_ns / (double)a->timed;
		t->kept_ns += (each_ns - t->kept_ns) * (t->kept_ns > 0 ? NEWEST_WINDOW : 1);
	}
	return limit_ns > 0 ? t->kept_ns * (double)(a->walked + a->reused) / limit_ns : 0;
}

void threshold_adapt(struct threshold *t, const struct collect_options *o, const struct slice *s)
{
	const struct account *a = &s->source[SOURCE_OFF_CPU].sum;
	double cpu_seconds = (double)(s->mono_end_ns - s->mono_start_ns) / NSEC_PER_SEC *
			     MAX(s->cpus_online, 1U);
	uint64_t least = o->off_cpu_threshold_ns ?: THRESHOLD_NS;
	uint64_t most = MAX(o->off_cpu_threshold_max_ns, least);
	double walks, time, spent;

	if (cpu_seconds <= 0)
		return;
	walks = walks_spent(o, a, cpu_seconds);
	time = budget_spent(t, o, a, cpu_seconds);
	spent = MAX(walks, time);
	if (a->lost[LOSS_SHED] || spent > 1)
		t->ns = MIN(t->ns * 2, most);
	else if (spent < SPENT_LITTLE)
		t->ns = MAX(t->ns / 2, least);
	t->ns = MIN(t->ns, THRESHOLD_LIMIT_NS);
}
