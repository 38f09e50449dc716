/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A burst that samples two events: whether both programs load here and count. Included by kernel-check.c. */
#pragma once

/* Clocks stand in for the processor's counters: there are no such in most emulators. */
static void check_instructions(struct collect_options o)
{
	_cleanup_(collector_free_p) struct collector *c = NULL;
	_cleanup_(slice_free_p) struct slice *s = NULL;
	uint64_t until = mono_now_ns() + NSEC_PER_SEC;
	const struct account *a;
	char *why = NULL;
	int r;

	o.burst = o.software_counters = true;
	o.event = EVENT_CYCLES;
	r = collector_new(&o, &c, &why);
	while (r == 0 && mono_now_ns() < until) /* so that something runs */
		r = collector_poll(c);
	if (r == 0)
		r = collector_drain(c, false, &s);
	if (r < 0) {
		say(false, "instructions", "%s (%s)", why ?: "no reason given", strerror(-r));
		free(why);
		return;
	}
	a = &s->instructions_sum;
	say(s->n_on_cpu && s->n_instructions && a->seen == a->stored + a->idle, "instructions",
	    "seen=%lu stored=%lu beside %lu", a->seen, a->stored,
	    s->source[SOURCE_ON_CPU].sum.stored);
}
