// SPDX-License-Identifier: GPL-2.0-or-later
/* Hardware counters of processes: a row for each that counted, and one for what they rest on. */
#include "../bpf/sysprofd.h"
#include "window/internal.h"

static int add_counter(struct columns *c, int64_t series, uint32_t counter, uint64_t n, uint64_t ns)
{
	return columns_add(c, (uint32_t)series, 0, ON_ASPECT(ON_COUNTERS) | counter, 0, n, ns, 0);
}

static int add_process(struct adding *a, const struct slice_hardware *p)
{
	struct columns *c = &a->w->bucket->columns[SOURCE_ON_CPU];
	bool folded;
	int64_t series = resolve_series(a->w, p->key.tgid, 0, p->key.start, a->s->mono_end_ns,
					&folded);
	int r = series < 0 ? (int)series
			   : add_counter(c, series, COUNTER_SPANS, p->value.spans, p->value.ns);

	for (uint32_t i = 0; i < HARDWARE_COUNTERS && r == 0; i++)
		if (p->value.counters[i].ns)
			r = add_counter(c, series, COUNTER_CYCLES + i, p->value.counters[i].n,
					p->value.counters[i].ns);
	return r;
}

void hardware_add(struct adding *a)
{
	a->w->stats.hardware_lost += a->s->hardware_lost;
	for (size_t i = 0; i < a->s->n_hardware; i++) {
		int r = add_process(a, &a->s->hardware[i]);

		a->w->stats.hardware_lost += r != 0;
		if (r < 0 && a->error == 0)
			a->error = r;
	}
}
