// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Waits for locks in user space, and the aspects that explain them: histograms, wakes, holders, crowds.
 *
 * A bucket tells LOCKS_PER_BUCKET locks apart: those with the longest waits of each slice come first, and all others
 * are one lock, "[other]", which has their waits and their time.
 */
#include "window/internal.h"

/* Waits of a slice for one word of one process. */
struct word {
	uint64_t start, address, ns;
	uint32_t tgid;
	bool shared;
};

static int compare_identity(const struct word *a, const struct word *b)
{
	if (a->tgid != b->tgid)
		return a->tgid < b->tgid ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->address == b->address ? 0 : a->address < b->address ? -1 : 1;
}

static int by_identity(const void *pa, const void *pb)
{
	return compare_identity(pa, pb);
}

static int by_time(const void *pa, const void *pb)
{
	const struct word *a = pa, *b = pb;

	if (a->ns != b->ns)
		return a->ns > b->ns ? -1 : 1;
	return compare_identity(a, b);
}

/* ---- which lock ---------------------------------------------------------------------------------- */

static int64_t other_lock(struct window *w)
{
	int64_t name = dict_string(w->bucket->dict, LOCK_OTHER);

	if (name < 0)
		return name;
	return dict_lock(w->bucket->dict, &(struct lock){ .name = (uint32_t)name, .flags = 2 });
}

static uint64_t who(const struct word *k)
{
	/* User addresses leave the upper bits free, a process has its start besides. */
	return k->address ^ (uint64_t)k->tgid << 42;
}

static int64_t lock_of(struct window *w, const struct word *k)
{
	uint32_t *known = k->address ? memo_find(&w->locks, k->start, who(k)) : NULL;
	int64_t id;
	int r;

	if (known)
		return *known;
	if (!k->address || w->bucket->dict->n_locks > LOCKS_PER_BUCKET) {
		w->stats.folded_locks++;
		return other_lock(w);
	}
	id = resolve_lock(w, k->tgid, k->start, k->address, k->shared);
	if (id < 0)
		return id;
	r = memo_add(&w->locks, k->start, who(k), (uint32_t)id);
	return r < 0 ? r : id;
}

/* Gives the locks of the slice their places, those that cost most first. */
static void rank(struct adding *a)
{
	size_t n = a->s->n_futex, words = 0;
	_cleanup_free_ struct word *k = new0(struct word, n + 1);

	/* Without memory for it they come as they are. */
	if (!k)
		return;
	for (size_t i = 0; i < n; i++) {
		const struct slice_futex *c = &a->s->futex[i];

		k[i] = (struct word){ .start = c->key.start,
				      .address = c->key.address,
				      .ns = c->value.ns,
				      .tgid = c->key.tgid,
				      .shared = c->key.flags & FUTEX_SHARED };
	}
	qsort(k, n, sizeof(*k), by_identity);
	for (size_t i = 0; i < n; i++) {
		if (words && compare_identity(&k[words - 1], &k[i]) == 0)
			k[words - 1].ns += k[i].ns;
		else
			k[words++] = k[i];
	}
	qsort(k, words, sizeof(*k), by_time);
	for (size_t i = 0; i < words && i < LOCKS_PER_BUCKET; i++) {
		int64_t r = lock_of(a->w, &k[i]);

		if (r < 0 && a->error == 0)
			a->error = (int)r;
	}
}

/* ---- rows ------------------------------------------------------------------------------------------ */

/* Of the process, without a stack. */
static void add_plain(struct adding *a, const struct word *k, int64_t lock, uint32_t key,
		      uint64_t count, uint64_t value, uint64_t max)
{
	bool folded;
	int64_t series = resolve_series(a->w, k->tgid, 0, k->start, a->s->mono_end_ns, &folded);
	int r = series < 0 ? (int)series
			   : columns_add(&a->w->bucket->columns[SOURCE_FUTEX], (uint32_t)series, 0,
					 key, (uint32_t)lock, count, value, max);

	if (r < 0 && a->error == 0)
		a->error = r;
}

static void add_histogram(struct adding *a, const struct word *k, int64_t lock,
			  const struct slice_futex *c)
{
	for (unsigned i = 0; i < FUTEX_BINS; i++)
		if (c->value.bins[i])
			add_plain(a, k, lock,
				  FUTEX_KEY(c->key.futex_class, 0) |
					  FUTEX_DETAIL(FUTEX_BIN_LOG2(i)) |
					  FUTEX_ASPECT(FUTEX_HISTOGRAM),
				  c->value.bins[i], 0, 0);
}

static void add_waits(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_futex; i++) {
		const struct slice_futex *c = &a->s->futex[i];
		struct word k = { .start = c->key.start,
				  .address = c->key.address,
				  .tgid = c->key.tgid,
				  .shared = c->key.flags & FUTEX_SHARED };
		int64_t lock = lock_of(a->w, &k);

		if (lock < 0) {
			window_drop_row(a, SOURCE_FUTEX, c->value.waits, 0, (int)lock);
			continue;
		}
		window_add_row(a, SOURCE_FUTEX,
			       &(struct row){
				       .stack = c->key.stack,
				       .tgid = c->key.tgid,
				       .tid = c->key.tid,
				       .start = c->key.start,
				       .key = FUTEX_KEY(c->key.futex_class, c->key.outcome),
				       .aux = (uint32_t)lock,
				       .samples = c->value.waits,
				       .count = c->value.waits,
				       .value = c->value.ns,
				       .max = c->value.max_ns,
			       });
		add_histogram(a, &k, lock, c);
	}
}

static void add_crowds(struct adding *a)
{
	for (size_t i = 0; i < a->s->n_locks; i++) {
		const struct slice_lock *c = &a->s->locks[i];
		const struct lock_window *v = &c->seen;
		struct word k = { .start = c->start,
				  .address = c->address,
				  .tgid = c->tgid,
				  .shared = c->flags & FUTEX_SHARED };
		uint32_t class = FUTEX_KEY(v->wake_class, 0);
		int64_t lock = lock_of(a->w, &k);

		if (lock < 0) {
			if (a->error == 0)
				a->error = (int)lock;
			continue;
		}
		if (v->wakes)
			add_plain(a, &k, lock, class | FUTEX_ASPECT(FUTEX_WAKES), v->wakes,
				  v->woken, 0);
		if (v->idle_wakes)
			add_plain(a, &k, lock,
				  class | FUTEX_DETAIL(WAKES_NOBODY) | FUTEX_ASPECT(FUTEX_WAKES),
				  v->idle_wakes, 0, 0);
		if (v->most > 1)
			add_plain(a, &k, lock, FUTEX_ASPECT(FUTEX_CROWD), v->met, 0, v->most);
	}
}

/* ---- where a holder is ------------------------------------------------------------------------------- */

/* The heaviest row of each thread, by its process's start and its ids. */
struct nearest {
	struct memo running, blocked;
};

static int note_nearest(struct memo *m, uint64_t start, uint64_t thread, uint32_t i, uint64_t ns,
			uint64_t (*ns_of)(const struct slice *s, uint32_t i), const struct slice *s)
{
	uint32_t *known = memo_find(m, start, thread);

	if (!known)
		return memo_add(m, start, thread, i);
	if (ns > ns_of(s, *known))
		*known = i;
	return 0;
}

static uint64_t on_cpu_ns(const struct slice *s, uint32_t i)
{
	return s->on_cpu[i].value.ns;
}

static uint64_t off_cpu_ns(const struct slice *s, uint32_t i)
{
	return s->off_cpu[i].value.ns;
}

static int find_nearest(const struct slice *s, struct nearest *ret)
{
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < s->n_on_cpu; i++) {
		const struct on_cpu_key *k = &s->on_cpu[i].key;

		r = note_nearest(&ret->running, k->start, (uint64_t)k->tgid << 32 | k->tid, i,
				 s->on_cpu[i].value.ns, on_cpu_ns, s);
	}
	for (uint32_t i = 0; r >= 0 && i < s->n_off_cpu; i++) {
		const struct off_cpu_key *k = &s->off_cpu[i].key;

		if (k->cause == OFF_BLOCKED)
			r = note_nearest(&ret->blocked, k->start, (uint64_t)k->tgid << 32 | k->tid,
					 i, s->off_cpu[i].value.ns, off_cpu_ns, s);
	}
	return r;
}

/*
 * A holder that was seen has no stack of that moment: where it spends most of the window is the best that is known,
 * on a CPU or blocked, as it was seen.
 */
static uint64_t nearest_stack(const struct slice *s, struct nearest *n, const struct lock_key *k)
{
	uint64_t thread = (uint64_t)k->tgid << 32 | k->tid;
	uint32_t *at;

	if (k->state == HOLDER_BLOCKED) {
		at = memo_find(&n->blocked, k->start, thread);
		return at ? s->off_cpu[*at].key.stack : STACK_ID_NONE;
	}
	at = memo_find(&n->running, k->start, thread);
	return at ? s->on_cpu[*at].key.stack : STACK_ID_NONE;
}

static uint32_t holder_key(struct adding *a, const struct lock_key *k)
{
	uint32_t *record = k->stack ? memo_find(&a->w->records, k->stack, 0) : NULL;
	const struct slice_stack *stack = record ? &a->s->stacks[*record] : NULL;
	uint32_t kind = WAIT_UNKNOWN;

	/* Only where it is the stack of the wait itself, not of the call that ended the hold. */
	if (k->state == HOLDER_BLOCKED && stack && stack->source == SOURCE_OFF_CPU)
		kind = resolve_wait(a->w, a->s, stack, 0).kind;
	return FUTEX_ASPECT(FUTEX_HOLDER) | FUTEX_DETAIL(HOLDER_DETAIL(k->state, kind));
}

static void add_samples(struct adding *a)
{
	struct nearest nearest = {};
	int r = a->s->n_lock_samples ? find_nearest(a->s, &nearest) : 0;

	if (r < 0 && a->error == 0)
		a->error = r;
	for (size_t i = 0; i < a->s->n_lock_samples; i++) {
		const struct lock_key *c = &a->s->lock_samples[i].key;
		const struct lock_value *v = &a->s->lock_samples[i].value;
		bool wake = c->aspect == LOCK_WAKE, look = c->aspect == LOCK_LOOK;
		struct word k = { .start = c->lock_start,
				  .address = c->address,
				  .tgid = c->lock_tgid,
				  .shared = c->flags & FUTEX_SHARED };
		int64_t lock = lock_of(a->w, &k);

		if (lock < 0) {
			if (a->error == 0)
				a->error = (int)lock;
			continue;
		}
		window_add_row(a, SOURCE_FUTEX,
			       &(struct row){
				       .stack = look && c->state != HOLDER_UNKNOWN
							? nearest_stack(a->s, &nearest, c)
							: c->stack,
				       .tgid = c->tgid,
				       .tid = c->tid,
				       .start = c->start,
				       .key = wake ? FUTEX_KEY(c->futex_class, 0) |
							      FUTEX_DETAIL(WAKES_SAMPLED) |
							      FUTEX_ASPECT(FUTEX_WAKES)
						   : holder_key(a, c),
				       .aux = (uint32_t)lock,
				       /* How often it was seen, or for how long. */
				       .count = wake || look ? v->n : 0,
				       .value = v->ns,
				       .max = v->max_ns,
			       });
	}
	memo_done(&nearest.running);
	memo_done(&nearest.blocked);
}

void locks_add(struct adding *a)
{
	rank(a);
	add_waits(a);
	add_crowds(a);
	add_samples(a);
	a->w->stats.lock_slots_short += a->s->lock_slots_short;
	a->w->stats.lock_samples_lost += a->s->lock_samples_lost;
}
