// SPDX-License-Identifier: GPL-2.0-or-later
/* Bursts: on-CPU sampling at another rate with programs and maps of its own, beside the history. */
#include <stdio.h>

#include "base/clock.h"
#include "manager/recorder-internal.h"

/* Loading the programs takes the verifier some 100 ms; beside 100 threads on each CPU 100 times as long. */
#define START_TIMEOUT_NS (60 * NSEC_PER_SEC)
#define CALL_TIMEOUT_NS (5 * NSEC_PER_SEC)
/* The longest burst, and some time to fetch it. */
#define LIFE_NS (330 * NSEC_PER_SEC)

static void burst_done(struct burst *b)
{
	window_free(b->window);
	collector_free(b->collector);
}

static void remove_burst(struct recorder *r, size_t i)
{
	burst_done(&r->bursts[i]);
	r->bursts[i] = r->bursts[--r->n_bursts];
}

void bursts_free(struct recorder *r)
{
	while (r->n_bursts > 0)
		remove_burst(r, r->n_bursts - 1);
	free(r->bursts);
	r->bursts = NULL;
}

static int drain_burst(struct recorder *r, struct burst *b)
{
	_cleanup_(slice_free_p) struct slice *s = NULL;
	struct bucket_meta begin = { .start_wall_ns = wall_now_ns() };
	int result = collector_drain(b->collector, false, &s);

	if (result < 0)
		return result;
	begin.start_wall_ns -= s->mono_end_ns - s->mono_start_ns;
	memcpy(begin.boot_id, r->boot_id, sizeof(begin.boot_id));
	result = window_add(b->window, s, &begin);
	b->progress.samples += s->source[SOURCE_ON_CPU].sum.stored;
	for (unsigned i = 0; i < LOSS_N; i++)
		if (!loss_keeps_weight(i))
			b->progress.lost += s->source[SOURCE_ON_CPU].sum.lost[i];
	return result;
}

void bursts_drain(struct recorder *r)
{
	uint64_t now = mono_now_ns();

	for (size_t i = 0; i < r->n_bursts;) {
		if (now > r->bursts[i].deadline_mono_ns) {
			remove_burst(r, i);
			continue;
		}
		collector_poll(r->bursts[i].collector);
		/* An error here is this burst's alone: its totals say what is missing. */
		if (drain_burst(r, &r->bursts[i]) < 0)
			r->bursts[i].progress.lost++;
		i++;
	}
}

/* ---- calls -------------------------------------------------------------------------------------- */

struct burst_call {
	struct call call;
	double hz;
	int event; /* enum sample_event, or -1: the recorder's */
	bool privileged;
	uint32_t *tgids;
	size_t n_tgids;
	uint64_t id;
	struct burst_progress progress;
	bool want_result;
	struct filled filled;
};

static void free_burst_call(struct call *call)
{
	struct burst_call *c = (struct burst_call *)call;

	filled_done(&c->filled);
	free(c->tgids);
	free(c);
}

/* The last place is an administrator's, unless it is the only one. */
static bool has_room(const struct recorder *r, bool privileged)
{
	size_t max = r->options.max_bursts, plain = 0;

	for (size_t i = 0; i < r->n_bursts; i++)
		plain += !r->bursts[i].privileged;
	return r->n_bursts < max && (privileged || max == 1 || plain + 1 < max);
}

static int run_start(struct recorder *r, struct call *call)
{
	struct burst_call *c = (struct burst_call *)call;
	struct collect_options o = r->options.collect;
	struct window_options w = r->options.window;
	_cleanup_free_ char *why = NULL;
	struct burst b = {};
	int result;

	if (!has_room(r, c->privileged))
		return -EBUSY;
	result = ARRAY_GROW(r->bursts, r->cap_bursts, r->n_bursts + 1);
	if (result < 0)
		return result;
	o.burst = true;
	o.on_cpu_hz = c->hz;
	if (c->event >= 0) {
		o.on_cpu_cycles = false;
		o.event = (enum sample_event)c->event;
		w.events = o.event != EVENT_CPU_CLOCK;
	}
	o.only_tgids = c->tgids;
	o.n_only_tgids = c->n_tgids;
	result = collector_new(&o, &b.collector, &why);
	if (result >= 0)
		result = window_new(&w, r->processes, r->kallsyms, &b.window);
	if (result < 0) {
		burst_done(&b);
		return result;
	}
	b.id = c->id = ++r->next_burst_id;
	b.privileged = c->privileged;
	b.deadline_mono_ns = mono_now_ns() + LIFE_NS;
	r->bursts[r->n_bursts++] = b;
	return 0;
}

static struct burst *find_burst(struct recorder *r, uint64_t id)
{
	for (size_t i = 0; i < r->n_bursts; i++)
		if (r->bursts[i].id == id)
			return &r->bursts[i];
	return NULL;
}

static void undo_start(struct recorder *r, struct call *call)
{
	struct burst *b = find_burst(r, ((struct burst_call *)call)->id);

	if (b)
		remove_burst(r, (size_t)(b - r->bursts));
}

static int run_read(struct recorder *r, struct call *call)
{
	struct burst_call *c = (struct burst_call *)call;
	struct burst *b = find_burst(r, c->id);

	if (!b)
		return -ENOENT;
	c->progress = b->progress;
	return 0;
}

/* Where they are not wanted nothing is to be said of them. */
static void copy_instructions(const struct source_state *s, int event, struct instructions *ret)
{
	snprintf(ret->why_not, sizeof(ret->why_not), "%s", s->no_instructions);
	ret->sampled = event > EVENT_CPU_CLOCK && event != EVENT_INSTRUCTIONS && !*ret->why_not;
}

static int run_end(struct recorder *r, struct call *call)
{
	struct burst_call *c = (struct burst_call *)call;
	struct burst *b = find_burst(r, c->id);
	int result = 0;

	if (!b)
		return -ENOENT;
	if (c->want_result) {
		process_table_poll(r->processes);
		result = drain_burst(r, b);
		if (result >= 0)
			result = window_close(b->window, &c->filled);
		if (result == 0) {
			struct accounting *a = &c->filled.bucket->meta.source[SOURCE_ON_CPU];
			struct source_state s;

			collector_source_state(b->collector, SOURCE_ON_CPU, &s);
			a->active = true;
			copy_instructions(&s, c->event, &c->filled.bucket->instructions);
			a->rate_mhz = (uint64_t)(s.rate_hz * 1000 + 0.5);
			c->filled.bucket->meta.length_ns = c->filled.bucket->meta.covered_ns;
		}
	}
	remove_burst(r, (size_t)(b - r->bursts));
	return result;
}

static struct burst_call *new_call(int (*fn)(struct recorder *r, struct call *c), uint64_t id)
{
	struct burst_call *c = new0(struct burst_call, 1);

	if (!c)
		return NULL;
	c->call.fn = fn;
	c->call.free = free_burst_call;
	c->id = id;
	return c;
}

int recorder_burst_start(struct recorder *r, double hz, int event, const uint32_t *tgids,
			 size_t n_tgids, bool privileged, uint64_t *ret_id)
{
	struct burst_call *c = new_call(run_start, 0);
	int result;

	if (!c)
		return -ENOMEM;
	c->call.undo = undo_start;
	c->hz = hz;
	c->event = event;
	c->privileged = privileged;
	if (n_tgids > 0) {
		c->tgids = new0(uint32_t, n_tgids);
		if (!c->tgids) {
			free_burst_call(&c->call);
			return -ENOMEM;
		}
		memcpy(c->tgids, tgids, n_tgids * sizeof(*tgids));
		c->n_tgids = n_tgids;
	}
	result = recorder_call(r, &c->call, START_TIMEOUT_NS);
	if (result == -ETIME)
		return result;
	if (result == 0)
		*ret_id = c->id;
	free_burst_call(&c->call);
	return result;
}

int recorder_burst_read(struct recorder *r, uint64_t id, struct burst_progress *ret)
{
	struct burst_call *c = new_call(run_read, id);
	int result;

	if (!c)
		return -ENOMEM;
	result = recorder_call(r, &c->call, CALL_TIMEOUT_NS);
	if (result == -ETIME)
		return result;
	if (result == 0)
		*ret = c->progress;
	free_burst_call(&c->call);
	return result;
}

int recorder_burst_end(struct recorder *r, uint64_t id, struct filled *ret)
{
	struct burst_call *c = new_call(run_end, id);
	int result;

	if (!c)
		return -ENOMEM;
	c->call.needed = true;
	c->want_result = ret != NULL;
	result = recorder_call(r, &c->call, CALL_TIMEOUT_NS);
	if (result == -ETIME)
		return result;
	if (result == 0 && ret) {
		*ret = c->filled;
		c->filled = (struct filled){};
	}
	free_burst_call(&c->call);
	return result;
}
