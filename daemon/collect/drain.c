// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Closing a window: flip, grace period, then everything of the idle set.
 *
 * Programs read the window's number once, at their begin; after a grace period no program that read the old
 * one is still running, so what is drained is final and the set can be left empty. membarrier() is no
 * substitute. Ring buffer records carry their window's number, as those of the next window already arrive.
 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "collect/internal.h"

#define BATCH 4096

struct slice *slice_free(struct slice *s)
{
	if (!s)
		return NULL;
	free(s->stacks);
	free(s->ips);
	free(s->on_cpu);
	free(s->instructions);
	free(s->off_cpu);
	free(s->wakes);
	free(s->syscalls);
	free(s->details);
	free(s->callers);
	free(s->futex);
	free(s->locks);
	free(s->lock_samples);
	free(s->kernel_locks);
	free(s->threads);
	free(s->hardware);
	free(s);
	return NULL;
}

/* ---- hash maps ------------------------------------------------------------------------------------ */

/* Takes what one batch returned. After the first error of `each` the rest is dropped. */
static int take_batch(const char *keys, size_t key_size, const char *values, size_t value_size,
		      uint32_t n, drain_fn each, void *ctx)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = each(ctx, keys + i * key_size, values + i * value_size);
	return r;
}

/* One pass over the map with room for `room` entries; -ENOSPC when a hash bucket holds more than that. */
static int drain_pass(struct collector *c, const struct bpf_map *map, uint32_t room, drain_fn each,
		      void *ctx, int *first)
{
	size_t key_size = bpf_map__key_size(map), value_size = bpf_map__value_size(map);
	_cleanup_free_ char *keys = malloc(room * key_size), *values = malloc(room * value_size);
	uint32_t in = 0, out = 0, n;
	void *from = NULL;
	int r;

	if (!keys || !values)
		return -ENOMEM;
	do {
		n = room;
		undisturbed_begin(c);
		r = bpf_map_lookup_and_delete_batch(bpf_map__fd(map), from, &out, keys, values, &n,
						    NULL);
		undisturbed_end(c);
		if (r < 0 && errno != ENOENT)
			return negative_errno();
		if (*first == 0)
			*first = take_batch(keys, key_size, values, value_size, n, each, ctx);
		in = out;
		from = &in;
	} while (r == 0);
	return 0;
}

int drain_map(struct collector *c, const struct bpf_map *map, drain_fn each, void *ctx)
{
	uint32_t max = bpf_map__max_entries(map), room = MIN(max, BATCH);
	int first = 0, r;

	while ((r = drain_pass(c, map, room, each, ctx, &first)) == -ENOSPC && room < max)
		room = MIN(max, room * 2);
	return r < 0 ? r : first;
}

/* ---- accounting ----------------------------------------------------------------------------------- */

void account_add(struct account *sum, const struct account *a)
{
	sum->seen += a->seen;
	sum->stored += a->stored;
	sum->idle += a->idle;
	sum->idle_ns += a->idle_ns;
	sum->walked += a->walked;
	sum->reused += a->reused;
	sum->timed += a->timed;
	sum->timed_ns += a->timed_ns;
	sum->ns += a->ns;
	sum->lost_ns += a->lost_ns;
	for (int i = 0; i < LOSS_N; i++)
		sum->lost[i] += a->lost[i];
}

int read_per_cpu(struct collector *c, const struct bpf_map *map, uint32_t key, void *values)
{
	int r;

	undisturbed_begin(c);
	r = bpf_map_lookup_elem(bpf_map__fd(map), &key, values);
	undisturbed_end(c);
	return r < 0 ? negative_errno() : 0;
}

int write_per_cpu(struct collector *c, const struct bpf_map *map, uint32_t key, const void *values)
{
	int r;

	undisturbed_begin(c);
	r = bpf_map_update_elem(bpf_map__fd(map), &key, values, BPF_ANY);
	undisturbed_end(c);
	return r < 0 ? negative_errno() : 0;
}

static int drain_accounts(struct collector *c, unsigned set, struct slice *s)
{
	for (int i = 0; i < SOURCE_N; i++) {
		uint32_t key = set * SOURCE_N + i;
		int r = read_per_cpu(c, c->skel->maps.accounts, key, c->accounts);

		if (r < 0)
			return r;
		if (c->sources[i].on && source_ops_of(i)->correct)
			source_ops_of(i)->correct(c, c->accounts);
		for (unsigned cpu = 0; cpu < c->cpus_possible; cpu++)
			account_add(&s->source[i].sum, &c->accounts[cpu]);
		memset(c->accounts, 0, c->cpus_possible * sizeof(*c->accounts));
		r = write_per_cpu(c, c->skel->maps.accounts, key, c->accounts);
		if (r < 0)
			return r;
	}
	return 0;
}

void account_misses(struct account *a, struct program_misses *m)
{
	struct bpf_prog_info info = {};
	uint32_t size = sizeof(info);
	uint64_t n;

	if (bpf_obj_get_info_by_fd(bpf_program__fd(m->program), &info, &size) < 0)
		return;
	n = info.recursion_misses - m->misses;
	m->misses = info.recursion_misses;
	a->lost[LOSS_RECURSION] += n;
	a->seen += n;
}

static void drain_misses(struct collector *c, struct slice *s)
{
	for (size_t i = 0; i < c->n_misses; i++)
		account_misses(&s->source[c->misses[i].source].sum, &c->misses[i]);
}

void account_balance(struct account *a, uint64_t drained)
{
	if (drained < a->stored)
		a->lost[LOSS_OTHER] += a->stored - drained;
	else
		a->seen += drained - a->stored;
	a->stored = drained;
}

void slice_balance(struct slice *s, enum source source, uint64_t drained)
{
	account_balance(&s->source[source].sum, drained);
}

/* ---- the window ------------------------------------------------------------------------------------ */

static void wait_for_grace(struct collector *c)
{
	const struct timespec long_enough = { .tv_nsec = 200 * NSEC_PER_MSEC };
	uint32_t slot = 0;
	int r;

	undisturbed_begin(c);
	r = bpf_map_update_elem(c->grace_fd, &slot, &c->grace_slot_fd, BPF_ANY);
	undisturbed_end(c);
	if (r == 0)
		return;
	/* No memory to rewrite the slot: many times the longest grace period that was seen. */
	nanosleep(&long_enough, NULL);
}

/* A source that failed goes on; what it could not give is booked as lost, and status shows why. */
static void note_failure(struct collector *c, enum source i, const char *what, int r)
{
	struct source_run *run = &c->sources[i];

	if (r < 0)
		snprintf(run->failure, sizeof(run->failure), "the last window's %s failed: %s",
			 what, strerror(-r));
}

static void drain_sources(struct collector *c, unsigned set, struct slice *s)
{
	for (int i = 0; i < SOURCE_N; i++) {
		const struct source_ops *ops = source_ops_of(i);

		if (c->sources[i].on && ops->drain)
			note_failure(c, i, "drain", ops->drain(c, set, s));
	}
}

static void before_swap(struct collector *c, enum source i, bool bucket_end, struct slice *s)
{
	const struct source_ops *ops = source_ops_of(i);

	if (c->sources[i].on && ops->before_swap)
		note_failure(c, i, "walk of waits", ops->before_swap(c, bucket_end, s));
}

static uint32_t count_online(void)
{
	_cleanup_(cpu_set_done) struct cpu_set online = {};

	if (cpu_set_read("/sys/devices/system/cpu/online", 1 << 16, &online) < 0)
		return 0;
	return cpu_set_count(&online);
}

static struct slice *new_slice(struct collector *c)
{
	struct slice *s = new0(struct slice, 1);

	if (!s)
		return NULL;
	for (int i = 0; i < SOURCE_N; i++)
		c->sources[i].failure[0] = 0;
	s->window = c->window;
	s->mono_start_ns = c->window_mono_ns;
	s->cpus_online = count_online();
	return s;
}

static void set_window(struct collector *c, uint32_t window)
{
	__atomic_store_n(&c->skel->bss->window, window, __ATOMIC_RELEASE);
}

/*
 * Once the window is flipped the slice is handed out whatever fails: what is missing of it is booked as lost,
 * and the programs and the daemon agree on which window is open.
 */
static void finish_drain(struct collector *c, struct slice *s)
{
	unsigned set = s->window & 1;
	int r;

	ring_take(c, s);
	r = drain_accounts(c, set, s);
	for (int i = 0; i < SOURCE_N; i++)
		note_failure(c, i, "accounting", r);
	drain_sources(c, set, s);
	note_failure(c, SOURCE_ON_CPU, "counters", hardware_drain(c, set, s));
	drain_misses(c, s);
}

int collector_drain(struct collector *c, bool bucket_end, struct slice **ret)
{
	struct slice *s = new_slice(c);

	if (!s)
		return -ENOMEM;
	for (int i = 0; i < SOURCE_N; i++)
		before_swap(c, i, bucket_end, s);
	set_window(c, c->window + 1);
	s->mono_end_ns = c->window_mono_ns = mono_now_ns();
	wait_for_grace(c);
	/* Stacks that could not be read are missed by their counts. */
	(void)ring_consume(c);
	finish_drain(c, s);
	*ret = s;
	return 0;
}

/* ---- from one collector to the next ---------------------------------------------------------------- */

static void before_hand_over(struct collector *old, struct slice *last, struct collector *fresh,
			     struct slice *twice)
{
	for (int i = 0; i < SOURCE_N; i++) {
		const struct source_ops *ops = source_ops_of(i);

		if (old->sources[i].on && fresh->sources[i].on && ops->hand_over) {
			note_failure(old, i, "walk of waits", ops->hand_over(old, fresh));
			continue;
		}
		before_swap(old, i, true, last);
		before_swap(fresh, i, false, twice);
	}
}

int collector_hand_over(struct collector *old, struct collector *fresh, struct slice **ret)
{
	_cleanup_(slice_free_p) struct slice *last = new_slice(old), *twice = new_slice(fresh);

	if (!last || !twice)
		return -ENOMEM;
	before_hand_over(old, last, fresh, twice);
	/* The page is there then: nothing but an interrupt comes between the two stores that count. */
	set_window(fresh, fresh->window);
	set_window(old, old->window + 1);
	set_window(fresh, fresh->window + 1);
	last->mono_end_ns = twice->mono_end_ns = mono_now_ns();
	old->window_mono_ns = fresh->window_mono_ns = last->mono_end_ns;
	wait_for_grace(old);
	/* What the rings bring from here on is told by the new one alone. */
	(void)ring_consume(old);
	(void)ring_consume(fresh);
	finish_drain(old, last);
	finish_drain(fresh, twice);
	*ret = TAKE_PTR(last);
	return 0;
}
