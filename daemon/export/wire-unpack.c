// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The client's side: the message comes from a daemon, or from a file that claims to. Ids are translated, as
 * equal elements fall together in a dictionary; every index is checked; strings are made printable.
 */
#include <math.h>
#include <stdio.h>

#include "../bpf/sysprofd.h"
#include "base/utf8.h"
#include "export/wire.h"

#define WORD_MAX 64
#define ERRNO_MAX 4095
#define STATE_BITS 16

struct unpacking {
	const Sysprofd__V1__Profile *m;
	struct profile *p;
	uint32_t *strings, *binaries, *frames, *stacks, *series, *locks; /* message id -> dict id */
	/* Message string -> what it means as part of a key, + 1; 0: not looked up yet. */
	uint32_t *words;
};

static void unpacking_done(struct unpacking *u)
{
	free(u->strings);
	free(u->binaries);
	free(u->frames);
	free(u->stacks);
	free(u->series);
	free(u->locks);
	free(u->words);
	profile_free(u->p);
}

/* Index 0 is the zero value of every table, there or not. */
static bool valid(uint32_t id, size_t n)
{
	return id == 0 || id < n;
}

static int put(uint32_t *map, size_t i, int64_t id)
{
	if (id < 0)
		return (int)id;
	map[i] = (uint32_t)id;
	return 0;
}

static int unpack_strings(struct unpacking *u)
{
	_cleanup_free_ char *buf = NULL;
	size_t cap = 0;
	int r;

	for (size_t i = 1; i < u->m->n_strings; i++) {
		const char *s = u->m->strings[i];
		size_t len = strlen(s), n;

		/* A byte grows to at most the three of U+FFFD. */
		r = ARRAY_GROW(buf, cap, 3 * len + 1);
		if (r < 0)
			return r;
		n = utf8_sanitize(buf, 3 * len + 1, s, len);
		r = put(u->strings, i, dict_string_n(u->p->dict, buf, n));
		if (r < 0)
			return r;
	}
	return 0;
}

static int unpack_binaries(struct unpacking *u)
{
	for (size_t i = 1; i < u->m->n_binaries; i++) {
		const Sysprofd__V1__Binary *m = u->m->binaries[i];
		struct binary b = { .kind = (uint32_t)m->kind };
		int r;

		if (!valid(m->name, u->m->n_strings) || !valid(m->path, u->m->n_strings) ||
		    !valid(m->build_id, u->m->n_strings) || b.kind > BINARY_UNKNOWN)
			return -EBADMSG;
		b.name = u->strings[m->name];
		b.path = u->strings[m->path];
		b.build_id = u->strings[m->build_id];
		/* What told them apart in the daemon is not sent: their places do. */
		b.generation = i;
		r = put(u->binaries, i, dict_binary(u->p->dict, &b));
		if (r < 0)
			return r;
	}
	return 0;
}

static int unpack_frames(struct unpacking *u)
{
	for (size_t i = 1; i < u->m->n_frames; i++) {
		const Sysprofd__V1__Frame *m = u->m->frames[i];
		struct frame f = { .kind = (uint16_t)m->kind, .flags = FRAME_NAMED };
		int r;

		if (!valid(m->name, u->m->n_strings) || !valid(m->file, u->m->n_strings) ||
		    !valid(m->system_name, u->m->n_strings) ||
		    !valid(m->binary, u->m->n_binaries) || (uint32_t)m->kind > FRAME_MARKER)
			return -EBADMSG;
		f.flags |= m->inlined ? FRAME_INLINE : 0;
		f.binary = u->binaries[m->binary];
		f.name = u->strings[m->name];
		f.system_name = u->strings[m->system_name];
		f.file = u->strings[m->file];
		f.line = m->line;
		f.offset = m->offset;
		/*
		 * Who may not see kernel addresses gets names alone. Without their offsets the frames
		 * would all be one: their names tell them apart instead.
		 */
		if (f.kind == FRAME_KERNEL && f.offset == 0)
			f.offset = f.name;
		r = put(u->frames, i, dict_frame(u->p->dict, &f));
		if (r < 0)
			return r;
	}
	return 0;
}

static int unpack_stacks(struct unpacking *u)
{
	for (size_t i = 1; i < u->m->n_stacks; i++) {
		const Sysprofd__V1__Stack *m = u->m->stacks[i];
		int r;

		if (m->parent >= i || m->frame == 0 || !valid(m->frame, u->m->n_frames))
			return -EBADMSG;
		r = put(u->stacks, i,
			dict_stack(u->p->dict, u->stacks[m->parent], u->frames[m->frame]));
		if (r < 0)
			return r;
	}
	return 0;
}

static int unpack_series(struct unpacking *u)
{
	for (size_t i = 1; i < u->m->n_series; i++) {
		const Sysprofd__V1__SeriesLabels *m = u->m->series[i];
		const uint32_t labels[LABEL_N] = {
			[LABEL_COMM] = m->comm,		[LABEL_EXE] = m->exe,
			[LABEL_THREAD] = m->thread,	[LABEL_UNIT] = m->unit,
			[LABEL_CGROUP] = m->cgroup,	[LABEL_CONTAINER] = m->container,
			[LABEL_POD] = m->pod,		[LABEL_NAMESPACE] = m->namespace_,
			[LABEL_BUILD_ID] = m->build_id,
		};
		struct series s = {
			.pid = m->pid, .tid = m->tid, .uid = m->uid, .start = m->start_ns
		};
		int r;

		for (size_t l = 0; l < LABEL_N; l++) {
			if (!valid(labels[l], u->m->n_strings))
				return -EBADMSG;
			s.label[l] = u->strings[labels[l]];
		}
		s.flags = (m->kernel_thread ? (uint32_t)SERIES_KERNEL_THREAD : 0) |
			  (m->other ? (uint32_t)SERIES_OTHER : 0);
		r = put(u->series, i, dict_series(u->p->dict, &s));
		if (r < 0)
			return r;
	}
	return 0;
}

static int unpack_locks(struct unpacking *u)
{
	for (size_t i = 1; i < u->m->n_locks; i++) {
		const Sysprofd__V1__Lock *m = u->m->locks[i];
		struct lock l = { .flags = 2 | (m->shared ? 1 : 0),
				  .pid = m->pid,
				  .address = m->address,
				  .offset = m->offset };
		int r;

		if (!valid(m->name, u->m->n_strings) || !valid(m->binary, u->m->n_binaries))
			return -EBADMSG;
		l.name = u->strings[m->name];
		l.binary = u->binaries[m->binary];
		r = put(u->locks, i, dict_lock(u->p->dict, &l));
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- words back into numbers; one that this version does not know becomes `otherwise` ------------- */

static uint32_t find_word(const char *word, const char *(*name)(unsigned), unsigned n,
			  uint32_t otherwise)
{
	for (unsigned i = 0; i < n; i++)
		if (streq(name(i), word))
			return i;
	return otherwise;
}

static uint32_t find_state(const char *word)
{
	if (!*word)
		return OFF_STATE_UNKNOWN;
	if (streq(word, off_state_name(0)))
		return 0;
	if (streq(word, "I"))
		return 0x0402;
	for (unsigned bit = 0; bit < STATE_BITS; bit++)
		if (streq(word, off_state_name(1U << bit)))
			return 1U << bit;
	return 0;
}

static uint32_t find_errno(const char *word)
{
	char buf[WORD_MAX];

	for (unsigned e = 1; e <= ERRNO_MAX; e++)
		if (streq(errno_text(e, buf, sizeof(buf)), word))
			return e;
	return ERRNO_MAX;
}

static uint32_t find_abi(const char *word)
{
	if (str_skip_prefix(word, "compat:"))
		return SYSCALL_ABI_COMPAT;
	return str_skip_prefix(word, "x32:") ? SYSCALL_ABI_X32 : SYSCALL_ABI_NATIVE;
}

static uint32_t unpack_key(struct unpacking *u, const Sysprofd__V1__Sample *m)
{
	char **words = u->m->strings;

	switch (u->p->type) {
	case PROFILE_OFF_CPU:
		return OFF_KEY(find_word(words[m->cause], off_cause_name, 4, 0),
			       m->exact_total ? 0 : find_state(words[m->state]),
			       m->exact_total ? 1 : 0) |
		       OFF_WAIT_KEY(find_word(words[m->wait], wait_kind_name, WAIT_KIND_N, 0),
				    m->idle ? 1 : 0);
	case PROFILE_SYSCALLS:
		if (m->errno_name && !u->words[m->errno_name])
			u->words[m->errno_name] = find_errno(words[m->errno_name]) + 1;
		return SYSCALL_KEY(find_abi(words[m->syscall]),
				   MIN(m->syscall_number, SYSCALL_NR_INVALID),
				   m->errno_name ? u->words[m->errno_name] - 1 : 0);
	case PROFILE_FUTEX:
		return FUTEX_KEY(find_word(words[m->futex_class], futex_class_name, 8, 0),
				 find_word(words[m->outcome], futex_outcome_name, 8, 0));
	default:
		return 0;
	}
}

/* Of another aspect than the type's own, the key is all that the aspect says of it. */
static int unpack_sample(struct unpacking *u, const Sysprofd__V1__Sample *m, uint32_t aspect)
{
	const uint32_t words[] = { m->cause,	   m->state,   m->syscall, m->errno_name,
				   m->futex_class, m->outcome, m->wait };
	uint64_t value = u->p->type == PROFILE_SYSCALLS ? 0 : m->value;

	/* Unlike other ids, a word is looked up even when it is 0, so string 0 has to be there. */
	for (size_t w = 0; w < ARRAY_SIZE(words); w++)
		if (words[w] >= u->m->n_strings)
			return -EBADMSG;
	if (!valid(m->series, u->m->n_series) || !valid(m->stack, u->m->n_stacks) ||
	    !valid(m->lock, u->m->n_locks))
		return -EBADMSG;
	return columns_add(&u->p->columns, u->series[m->series], u->stacks[m->stack],
			   aspect ?: unpack_key(u, m), u->locks[m->lock], m->count, value, m->max);
}

static int unpack_samples(struct unpacking *u)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < u->m->n_samples; i++)
		r = unpack_sample(u, u->m->samples[i], 0);
	return r;
}

/* Beside an event alone they mean anything. */
static int unpack_instructions(struct unpacking *u)
{
	struct profile *p = u->p;
	int r = 0;

	if (!p->event)
		return 0;
	utf8_sanitize(p->instructions.why_not, sizeof(p->instructions.why_not),
		      u->m->no_instructions, strlen(u->m->no_instructions));
	p->instructions.sampled = u->m->instructions_sampled;
	p->instructions.lost = u->m->instructions_lost;
	for (size_t i = 0; r == 0 && i < u->m->n_instructions; i++)
		r = unpack_sample(u, u->m->instructions[i], ON_ASPECT(ON_INSTRUCTIONS));
	profile_sum_instructions(p);
	return r;
}

/* ---- coverage ---------------------------------------------------------------------------------- */

static enum gap_reason find_gap_reason(const char *word)
{
	for (int i = GAP_NONE; i <= GAP_NOT_SAMPLED; i++)
		if (streq(word, gap_reason_name((enum gap_reason)i)))
			return (enum gap_reason)i;
	return GAP_NOT_RUNNING;
}

static int unpack_gaps(struct profile *p, const Sysprofd__V1__Coverage *m)
{
	int r = ARRAY_GROW(p->gaps, p->cap_gaps, m->n_gaps);

	if (r < 0)
		return r;
	for (; p->n_gaps < m->n_gaps; p->n_gaps++)
		p->gaps[p->n_gaps] = (struct gap){
			.from_wall_ns = m->gaps[p->n_gaps]->from_ns,
			.until_wall_ns = m->gaps[p->n_gaps]->until_ns,
			.reason = find_gap_reason(m->gaps[p->n_gaps]->reason),
		};
	return 0;
}

static void unpack_losses(struct accounting *a, const Sysprofd__V1__Coverage *m)
{
	a->stored = m->samples;
	for (size_t i = 0; i < m->n_losses; i++) {
		unsigned reason = 0;

		while (reason < LOSS_REASONS &&
		       !streq(loss_reason_name(reason), m->losses[i]->reason))
			reason++;
		if (reason == LOSS_REASONS)
			reason = LOSS_OTHER;
		a->lost[reason] += m->losses[i]->count;
	}
	a->seen = a->stored + accounting_lost(a);
	a->active = true;
	a->sampled = m->estimated;
}

static int unpack_coverage(struct unpacking *u)
{
	const Sysprofd__V1__Coverage *m = u->m->coverage;
	struct profile *p;
	double rate_mhz;
	int r;

	if (!m || m->type < 1 || (int)m->type > PROFILE_TYPE_N)
		return -EBADMSG;
	r = profile_new((enum profile_type)(m->type - 1), &p);
	if (r == 0 && p->type == PROFILE_ON_CPU && sample_event_from_name(m->unit) > 0)
		p->event = (unsigned)sample_event_from_name(m->unit);
	if (r < 0)
		return r;
	u->p = p;
	r = unpack_gaps(p, m);
	if (r < 0)
		return r;
	unpack_losses(&p->accounting, m);
	rate_mhz = m->rate_hz * 1000;
	p->rate_mhz = rate_mhz >= 0 && rate_mhz < 1e12 ? (uint64_t)llround(rate_mhz) : 0;
	p->accounting.rate_mhz = p->rate_mhz;
	p->from_wall_ns = m->from_ns;
	p->until_wall_ns = m->until_ns;
	p->covered_ns = m->covered_ns;
	p->counted_ns = m->estimated ? m->counted_ns : m->covered_ns;
	p->total = m->total;
	p->samples = m->samples;
	p->coarse = m->processes_merged;
	p->truncated = u->m->truncated;
	p->omitted = u->m->omitted;
	return 0;
}

static int map_new(size_t n, uint32_t **ret)
{
	*ret = new0(uint32_t, n + 1);
	return *ret ? 0 : -ENOMEM;
}

static int unpack(struct unpacking *u)
{
	static int (*const steps[])(struct unpacking *) = {
		unpack_coverage, unpack_strings, unpack_binaries,
		unpack_frames,	 unpack_stacks,	 unpack_series,
		unpack_locks,	 unpack_samples, unpack_instructions,
	};

	if (map_new(u->m->n_strings, &u->strings) < 0 || map_new(u->m->n_strings, &u->words) < 0 ||
	    map_new(u->m->n_binaries, &u->binaries) < 0 ||
	    map_new(u->m->n_frames, &u->frames) < 0 || map_new(u->m->n_stacks, &u->stacks) < 0 ||
	    map_new(u->m->n_series, &u->series) < 0 || map_new(u->m->n_locks, &u->locks) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i](u);

		if (r < 0)
			return r;
	}
	return 0;
}

int wire_profile_unpack(const Sysprofd__V1__Profile *m, struct profile **ret)
{
	struct unpacking u = { .m = m };
	int r = unpack(&u);

	if (r == 0)
		*ret = TAKE_PTR(u.p);
	unpacking_done(&u);
	return r;
}
