// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * System calls: the counts of a window are in the count map and in front of it, in each CPU's cache.
 */
#include <stdio.h>

#include "collect/internal.h"
#include "model/profile.h"

struct drain {
	struct slice *s;
	uint64_t calls;
};

static int add_calls(struct drain *d, const struct syscall_key *key, uint64_t calls)
{
	struct slice *s = d->s;
	int r = ARRAY_GROW(s->syscalls, s->cap_syscalls, s->n_syscalls + 1);

	if (r < 0)
		return r;
	s->syscalls[s->n_syscalls++] = (struct slice_syscall){ *key, calls };
	d->calls += calls;
	return 0;
}

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct syscall_key k;
	uint64_t calls;

	memcpy(&k, key, sizeof(k));
	memcpy(&calls, value, sizeof(calls));
	return add_calls(ctx, &k, calls);
}

static int drain_cache(struct drain *d, const struct call_cache *cache)
{
	int r = 0;

	d->s->source[SOURCE_SYSCALLS].sum.seen += cache->seen;
	for (size_t i = 0; i < CALL_LINES && r == 0; i++)
		if (cache->lines[i].calls)
			r = add_calls(d, &cache->lines[i].key, cache->lines[i].calls);
	return r;
}

static int drain_caches(struct collector *c, unsigned set, struct drain *d)
{
	_cleanup_free_ struct call_cache *caches = new0(struct call_cache, c->cpus_possible);
	int r, k;

	if (!caches)
		return -ENOMEM;
	r = read_per_cpu(c, c->skel->maps.call_caches, set, caches);
	if (r < 0)
		return r;
	for (unsigned cpu = 0; cpu < c->cpus_possible && r == 0; cpu++)
		r = drain_cache(d, &caches[cpu]);
	memset(caches, 0, c->cpus_possible * sizeof(*caches));
	k = write_per_cpu(c, c->skel->maps.call_caches, set, caches);
	return r < 0 ? r : k;
}

static int by_key(const void *pa, const void *pb)
{
	const struct syscall_key *a = &((const struct slice_syscall *)pa)->key;
	const struct syscall_key *b = &((const struct slice_syscall *)pb)->key;

	if (a->tgid != b->tgid)
		return a->tgid < b->tgid ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->call < b->call ? -1 : a->call > b->call;
}

/* The same call may come from several CPUs and from the map. */
static void merge(struct slice *s)
{
	struct slice_syscall *out = s->syscalls;

	if (!s->n_syscalls)
		return;
	qsort(s->syscalls, s->n_syscalls, sizeof(*s->syscalls), by_key);
	for (size_t i = 1; i < s->n_syscalls; i++) {
		if (by_key(out, &s->syscalls[i]) == 0)
			out->calls += s->syscalls[i].calls;
		else
			*++out = s->syscalls[i];
	}
	s->n_syscalls = out + 1 - s->syscalls;
}

static int syscalls_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct account *a = &s->source[SOURCE_SYSCALLS].sum;
	struct drain d = { .s = s };
	int r, k;

	r = drain_map(c, set ? c->skel->maps.syscalls_b : c->skel->maps.syscalls_a, drain_one, &d);
	k = drain_caches(c, set, &d);
	/* The programs count what they saw and what they lost; what is here is what they stored. */
	a->stored = a->seen;
	for (int i = 0; i < LOSS_N; i++)
		if (!loss_keeps_weight(i))
			a->stored -= MIN(a->lost[i], a->stored);
	slice_balance(s, SOURCE_SYSCALLS, d.calls);
	merge(s);
	r = r < 0 ? r : k;
	if (c->counts)
		counts_drain(c, s);
	k = callers_drain(c, set, s);
	r = r < 0 ? r : k;
	k = details_drain(c, set, s);
	return r < 0 ? r : k;
}

static int syscalls_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, 500, 16384, 65536);
	unsigned attempt = c->sources[SOURCE_SYSCALLS].attempt;
	struct sysprofd_bpf *skel = c->skel;
	int r;

	bool stacks = c->o.syscall_stacks > 0 && attempt == 0;
	bool details = c->o.syscall_details > 0 && attempt < 1U + (c->o.syscall_stacks > 0);

	/* First without stacks, then without what only latency and sizes need. */
	if (attempt > (unsigned)(c->o.syscall_details > 0) + (c->o.syscall_stacks > 0)) {
		source_off(c, SOURCE_SYSCALLS, "%s", c->sources[SOURCE_SYSCALLS].state.text);
		return 0;
	}
	r = hooks_use_sys_exit(c);
	if (r == 0)
		r = use_map(skel->maps.call_caches, 0);
	if (r == 0)
		r = use_map(skel->maps.syscalls_a, entries);
	if (r == 0)
		r = use_map(skel->maps.syscalls_b, entries);
	if (r == 0 && details)
		r = details_configure(c);
	if (r == 0 && stacks)
		r = callers_configure(c);
	skel->rodata->syscalls_enabled = true;
	skel->rodata->counts_sampled = c->o.sample_calls;
	use_program(skel->progs.syscall_thread_exit);
	if (c->hooks.classic)
		use_program(skel->progs.syscall_thread_exit_classic);
	return r;
}

static int attach_thread_exit(struct collector *c)
{
	struct sysprofd_bpf *skel = c->skel;
	bool classic = hooks_sys_exit_is_classic(c);
	struct bpf_link *link =
		bpf_program__attach(classic ? skel->progs.syscall_thread_exit_classic
					    : skel->progs.syscall_thread_exit);

	if (!link)
		return negative_errno();
	if (classic)
		skel->links.syscall_thread_exit_classic = link;
	else
		skel->links.syscall_thread_exit = link;
	return 0;
}

static int syscalls_attach(struct collector *c)
{
	struct source_state *state = &c->sources[SOURCE_SYSCALLS].state;
	int r = hooks_attach_sys_exit(c);

	if (r == 0)
		r = attach_thread_exit(c);
	if (r == 0)
		r = details_attach(c);
	if (r == 0 && c->o.sample_calls)
		r = counts_attach(c);
	if (r < 0)
		return r;
	snprintf(state->hook, sizeof(state->hook), "%s",
		 hooks_sys_exit_is_classic(c) ? "tracepoint" : "tp_btf");
	state->event_ns = c->hooks.call_ns;
	if (c->o.sample_calls) {
		state->share = COUNTED_SHARE;
		snprintf(state->text, sizeof(state->text),
			 "running (sampled: calls are counted in a tenth of the time, and scaled)");
	}
	if (c->o.syscall_details > 0 && !c->skel->rodata->details_enabled)
		snprintf(state->text, sizeof(state->text),
			 "running (latency and sizes are not measured: this kernel refuses the "
			 "program)");
	else if (c->o.syscall_stacks && !c->skel->rodata->caller_period)
		snprintf(state->text, sizeof(state->text),
			 "running (stacks are not taken: this kernel refuses the program)");
	if (c->hooks.no_tracefs)
		snprintf(state->text, sizeof(state->text),
			 "running (tracefs is not mounted: calls may be lost, counted as "
			 "recursion)");
	return 0;
}

/* A call whose begin was not stamped is counted all the same. */
static bool syscalls_counts(const struct collector *c, const struct bpf_program *p)
{
	const struct sysprofd_bpf *skel = c->skel;

	return p != skel->progs.syscall_enter && p != skel->progs.syscall_enter_classic &&
	       p != skel->progs.syscall_exec;
}

static int syscalls_poll(struct collector *c, uint64_t mono_ns)
{
	return c->counts ? counts_poll(c, mono_ns) : details_poll(c, mono_ns);
}

static uint64_t syscalls_wake_ns(const struct collector *c)
{
	return c->counts ? counts_wake_ns(c) : details_wake_ns(c);
}

static int syscalls_before_swap(struct collector *c, bool bucket_end, struct slice *s)
{
	if (c->counts && bucket_end)
		counts_bucket_ends(c);
	return 0;
}

/* A bucket of the fresh one begins. */
static int syscalls_hand_over(struct collector *old, struct collector *fresh)
{
	(void)syscalls_before_swap(old, true, NULL);
	return syscalls_before_swap(fresh, true, NULL);
}

static void syscalls_free(struct collector *c)
{
	details_free(c);
	counts_free(c);
}

const struct source_ops syscalls_ops = {
	.prefix = "syscall_",
	.configure = syscalls_configure,
	.attach = syscalls_attach,
	.poll = syscalls_poll,
	.wake_ns = syscalls_wake_ns,
	.counts = syscalls_counts,
	.before_swap = syscalls_before_swap,
	.hand_over = syscalls_hand_over,
	.drain = syscalls_drain,
	.free = syscalls_free,
};
