// SPDX-License-Identifier: GPL-2.0-or-later
/* Rows of all aspects of futex -> one row for each lock. */
#include "query/locks.h"

#include "../bpf/sysprofd.h"
#include "base/strbuf.h"
#include "query/internal.h"

#define LOCK_FRAMES 12 /* nearest to the leaf, in which a lock's kind shows */

_Static_assert((int)LOCK_STATE_RUNNING == HOLDER_RUNNING &&
		       (int)LOCK_STATE_RUNNABLE == HOLDER_RUNNABLE &&
		       (int)LOCK_STATE_BLOCKED == HOLDER_BLOCKED,
	       "states of holders");
_Static_assert(FUTEX_BIN_LOG2(0) == LOCK_BIN_FIRST &&
		       FUTEX_BIN_LOG2(FUTEX_BINS - 1) == LOCK_BIN_LAST,
	       "bins of histograms");

static void stacks_done(struct lock_stacks *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->s[i].stack);
		free(l->s[i].place);
		free(l->s[i].comm);
		free(l->s[i].thread);
	}
	free(l->s);
}

struct lock_answer *lock_answer_free(struct lock_answer *a)
{
	if (!a)
		return NULL;
	for (size_t i = 0; i < a->n_rows; i++) {
		struct lock_row *row = &a->rows[i];

		free(row->name);
		free(row->binary);
		free(row->comm);
		stacks_done(&row->waiters);
		stacks_done(&row->holders);
		stacks_done(&row->unlockers);
	}
	free(a->rows);
	profile_free(a->coverage);
	free(a);
	return NULL;
}

/* ---- adding up --------------------------------------------------------------------------------------- */

enum role { WAITER, HOLDER, UNLOCKER, ROLE_N };

/* A row that has something to say about who: sorted, equal ones are added up. */
struct person {
	uint32_t lock, role, series, stack, detail;
	uint32_t path; /* of the stack: the functions on it */
	uint64_t heaviest; /* of the row whose stack it is */
	uint64_t count, ns, max_ns;
	bool nowhere; /* the stack was not taken */
};

struct sum {
	uint32_t lock;
	struct lock_facts facts;
	uint64_t class_ns[LOCK_CLASS_N]; /* of waits, by what their stacks say */
	uint64_t class_wakes[LOCK_CLASS_N];
	uint32_t series; /* of the longest waits */
	uint64_t series_ns;
	bool two_words; /* it is one of two, if a condition variable */
	bool chosen; /* by waits or by a crowd that the filters accept */
	enum lock_verdict verdict;
};

struct adding {
	const struct profile *p;
	struct lens *lens;
	struct sum *sums; /* by lock */
	struct person *people;
	size_t n, cap;
	struct grouping paths;
	uint8_t *classes; /* of stacks, + 1: 0 is not known yet; and whether it is a TWO_WORDS */
	struct lock_limits limits;
	size_t bytes; /* of stacks in the answer */
};

#define TWO_WORDS 0x80

static enum lock_class class_of_stack(struct adding *a, uint32_t stack, bool *ret_two_words)
{
	const struct dict *d = a->p->dict;
	enum lock_class c = LOCK_CLASS_UNKNOWN;
	uint32_t at = a->classes[stack] ? 0 : stack;
	bool two = false;

	for (int i = 0; at && i < LOCK_FRAMES; i++) {
		const struct frame *f = &d->frames[d->stacks[at].frame];

		if (f->name) {
			c = lock_class_along(c, dict_str(d, f->name));
			two |= lock_has_two_words(dict_str(d, f->name));
		}
		at = d->stacks[at].parent;
	}
	if (!a->classes[stack])
		a->classes[stack] = (uint8_t)((c + 1) |
					      (two && c == LOCK_CLASS_CONDVAR ? TWO_WORDS : 0));
	*ret_two_words = a->classes[stack] & TWO_WORDS;
	return (enum lock_class)((a->classes[stack] & ~TWO_WORDS) - 1);
}

static bool has_stack(const struct dict *d, uint32_t stack)
{
	const struct frame *f = &d->frames[d->stacks[stack].frame];

	return stack && (f->kind != FRAME_MARKER || d->stacks[stack].parent ||
			 !streq(dict_str(d, f->name), MARKER_NO_STACK));
}

static int add_person(struct adding *a, size_t row, enum role role, uint32_t detail)
{
	const struct columns *c = &a->p->columns;
	int r = ARRAY_GROW(a->people, a->cap, a->n + 1);

	if (r < 0)
		return r;
	a->people[a->n++] = (struct person){
		.lock = c->aux[row],
		.role = role,
		/* Many wait, in many threads alike. */
		.series = role == HOLDER ? c->series[row] : 0,
		.stack = c->stack[row],
		.detail = detail,
		.path = a->paths.of_stack[c->stack[row]],
		.heaviest = role == UNLOCKER ? c->count[row] : c->value[row],
		.count = c->count[row],
		.ns = c->value[row],
		.max_ns = c->max[row],
		.nowhere = !has_stack(a->p->dict, c->stack[row]),
	};
	return 0;
}

static void add_outcome(struct lock_facts *f, unsigned outcome, uint64_t n)
{
	switch (outcome) {
	case FUTEX_WOKEN:
		f->woken_waits += n;
		break;
	case FUTEX_TIMED_OUT:
		f->timed_out += n;
		break;
	case FUTEX_INTERRUPTED:
		f->interrupted += n;
		break;
	default:
		f->failed += n;
	}
}

static int add_wait(struct adding *a, struct sum *s, size_t row)
{
	const struct columns *c = &a->p->columns;
	bool two_words;
	enum lock_class class = class_of_stack(a, c->stack[row], &two_words);
	struct lock_facts *f = &s->facts;

	/* Only mutexes inherit priorities. */
	if (class == LOCK_CLASS_UNKNOWN && FUTEX_KEY_CLASS(c->key[row]) == FUTEX_CLASS_LOCK_PI)
		class = LOCK_CLASS_MUTEX;
	s->class_ns[class] += c->value[row];
	s->two_words |= two_words;
	s->chosen |= c->count[row] != 0;
	f->waits += c->count[row];
	f->total_ns += c->value[row];
	f->max_ns = MAX(f->max_ns, c->max[row]);
	add_outcome(f, FUTEX_KEY_OUTCOME(c->key[row]), c->count[row]);
	if (c->value[row] >= s->series_ns) {
		s->series_ns = c->value[row];
		s->series = c->series[row];
	}
	return add_person(a, row, WAITER, 0);
}

static int add_wake(struct adding *a, struct sum *s, size_t row)
{
	const struct columns *c = &a->p->columns;
	bool two_words;

	switch (FUTEX_KEY_DETAIL(c->key[row])) {
	case WAKES_NOBODY:
		s->facts.idle_wakes += c->count[row];
		return 0;
	case WAKES_SAMPLED:
		s->class_wakes[class_of_stack(a, c->stack[row], &two_words)] += c->count[row];
		return add_person(a, row, UNLOCKER, 0);
	default:
		s->facts.wakes += c->count[row];
		s->facts.woken += c->value[row];
		return 0;
	}
}

static bool is_other(const struct dict *d, uint32_t lock)
{
	const struct lock *l = &d->locks[lock];

	return !l->binary && !l->pid && !l->address && streq(dict_str(d, l->name), LOCK_OTHER);
}

static int add_holder(struct adding *a, struct sum *s, size_t row)
{
	const struct columns *c = &a->p->columns;
	uint32_t detail = FUTEX_KEY_DETAIL(c->key[row]);
	unsigned state = HOLDER_DETAIL_STATE(detail), wait = HOLDER_DETAIL_WAIT(detail);

	/* Of one of the others. */
	if (state >= LOCK_STATES || s->facts.others)
		return 0;
	s->facts.seen[state] += c->count[row];
	s->facts.held_ns[state] += c->value[row];
	if (state == LOCK_STATE_BLOCKED)
		s->facts.wait_ns[wait] += c->value[row];
	return state == LOCK_STATE_UNKNOWN ? 0 : add_person(a, row, HOLDER, detail);
}

/*
 * Who waits for longer than the range has a crowd there and no wait. What it knows is the process: not which thread
 * it was, nor where.
 */
static void add_crowd(struct adding *a, struct sum *s, size_t row)
{
	const struct columns *c = &a->p->columns;
	const struct matcher *m = a->lens->m;

	s->facts.met += c->count[row];
	s->facts.most = MAX(s->facts.most, c->max[row]);
	s->chosen |= c->max[row] >= 2 && !m->checks_stack && lens_series(a->lens, c->series[row]) &&
		     lens_row(a->lens, c->key[row]) && lens_state(a->lens, c->key[row]);
}

static int add_row(struct adding *a, size_t row)
{
	const struct columns *c = &a->p->columns;
	struct sum *s = &a->sums[c->aux[row]];

	s->lock = c->aux[row];
	s->facts.others = is_other(a->p->dict, s->lock);
	if (!s->series)
		s->series = c->series[row];
	switch (row_aspect(PROFILE_FUTEX, c->key[row])) {
	case FUTEX_WAITS:
		return add_wait(a, s, row);
	case FUTEX_HISTOGRAM:
		s->facts.bins[FUTEX_KEY_DETAIL(c->key[row]) % LOCK_BINS] += c->count[row];
		return 0;
	case FUTEX_WAKES:
		return add_wake(a, s, row);
	case FUTEX_HOLDER:
		return add_holder(a, s, row);
	case FUTEX_CROWD:
		add_crowd(a, s, row);
		return 0;
	default:
		return 0;
	}
}

static int compare_people(const void *pa, const void *pb)
{
	const struct person *a = pa, *b = pb;
	const uint32_t ka[] = { a->lock, a->role, a->path, a->series, a->detail };
	const uint32_t kb[] = { b->lock, b->role, b->path, b->series, b->detail };

	for (size_t i = 0; i < ARRAY_SIZE(ka); i++)
		if (ka[i] != kb[i])
			return ka[i] < kb[i] ? -1 : 1;
	return 0;
}

static void merge_people(struct adding *a)
{
	size_t n = 0;

	if (a->n > 1)
		qsort(a->people, a->n, sizeof(*a->people), compare_people);
	for (size_t i = 0; i < a->n; i++) {
		struct person *to = n ? &a->people[n - 1] : NULL;

		if (!to || compare_people(to, &a->people[i])) {
			a->people[n++] = a->people[i];
			continue;
		}
		if (a->people[i].heaviest > to->heaviest) {
			to->heaviest = a->people[i].heaviest;
			to->stack = a->people[i].stack;
		}
		to->count += a->people[i].count;
		to->ns += a->people[i].ns;
		to->max_ns = MAX(to->max_ns, a->people[i].max_ns);
	}
	a->n = n;
}

/* ---- the answer --------------------------------------------------------------------------------------- */

static int compare_weight(const void *pa, const void *pb)
{
	const struct person *a = pa, *b = pb;

	/* What does not say where says least. */
	if (a->nowhere != b->nowhere)
		return a->nowhere ? 1 : -1;
	if (a->ns != b->ns && a->role != UNLOCKER)
		return a->ns > b->ns ? -1 : 1;
	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return compare_people(a, b);
}

#define PLACE_FRAMES 4

/* What every program has between its own functions and the kernel, and above its first one. */
static bool is_plumbing(const struct dict *d, const struct frame *f)
{
	return f->kind == FRAME_KERNEL || f->kind == FRAME_MARKER || query_in_c_library(d, f) ||
	       (f->name && lock_class_of(dict_str(d, f->name)) != LOCK_CLASS_UNKNOWN);
}

static void place_text(const struct dict *d, uint32_t stack, struct strbuf *out)
{
	char buf[512];
	int n = 0;

	for (uint32_t at = stack; at && n < PLACE_FRAMES; at = d->stacks[at].parent) {
		uint32_t frame = d->stacks[at].frame;

		if (is_plumbing(d, &d->frames[frame])) {
			if (n)
				break;
			continue;
		}
		strbuf_printf(out, "%s%s", n++ ? " < " : "",
			      query_frame_name(d, frame, buf, sizeof(buf)));
	}
}

static int fill_stack(struct adding *a, const struct person *p, struct lock_stack *ret)
{
	const struct dict *d = a->p->dict;
	const struct series *s = &d->series[p->series];
	_cleanup_(strbuf_done) struct strbuf text = {}, place = {};

	strbuf_puts(&text, "");
	strbuf_puts(&place, "");
	if (!p->nowhere) {
		stack_text(d, p->stack, &text);
		place_text(d, p->stack, &place);
	}
	if (strbuf_error(&text) < 0 || strbuf_error(&place) < 0)
		return -ENOMEM;
	/* Who could not be answered anyway need not be worked for to the end. */
	a->bytes += text.len;
	if (a->limits.bytes && a->bytes > a->limits.bytes)
		return -EFBIG;
	*ret = (struct lock_stack){
		.stack = strbuf_take(&text, NULL),
		.place = strbuf_take(&place, NULL),
		.comm = strdup(dict_str(d, s->label[LABEL_COMM])),
		.thread = strdup(dict_str(d, s->label[LABEL_THREAD])),
		.pid = s->pid,
		.tid = s->tid,
		.count = p->count,
		.ns = p->ns,
		.max_ns = p->max_ns,
		.state = HOLDER_DETAIL_STATE(p->detail),
		.wait = HOLDER_DETAIL_WAIT(p->detail),
	};
	return ret->comm && ret->thread ? 0 : -ENOMEM;
}

/* The heaviest of the people of one lock and role, which are those at *at. */
static int fill_stacks(struct adding *a, uint32_t lock, enum role role, size_t *at, uint32_t limit,
		       struct lock_stacks *ret)
{
	struct person *p = &a->people[*at];
	size_t n = 0, most;

	while (*at + n < a->n && p[n].lock == lock && p[n].role == role)
		n++;
	*at += n;
	most = MIN(n, limit);
	if (n == 0)
		return 0;
	qsort(p, n, sizeof(*p), compare_weight);
	ret->s = new0(struct lock_stack, most);
	if (!ret->s)
		return -ENOMEM;
	for (; ret->n < most; ret->n++) {
		int r = fill_stack(a, &p[ret->n], &ret->s[ret->n]);

		if (r < 0) {
			ret->n++;
			return r;
		}
	}
	ret->omitted = n - most;
	return 0;
}

/* Stacks that say nothing, or were not taken, say nothing against what others say. */
static enum lock_class heaviest(const uint64_t by_class[static LOCK_CLASS_N])
{
	int best = LOCK_CLASS_UNKNOWN;

	for (int i = 1; i < LOCK_CLASS_N; i++)
		if (by_class[i] > (best ? by_class[best] : 0))
			best = i;
	return (enum lock_class)best;
}

static enum lock_class class_of(const struct sum *s)
{
	enum lock_class c = s->facts.others ? LOCK_CLASS_UNKNOWN : heaviest(s->class_ns);

	/* musl's waits cannot be unwound, but who unlocks is seen in the function that does it. */
	return c || s->facts.others ? c : heaviest(s->class_wakes);
}

/* ---- locks of several words ------------------------------------------------------------------------ */

/* glibc's condition variables have two words that are waited for in turn, beside each other. */
static uint64_t place_of_word(const struct lock *l)
{
	return l->address ?: l->offset;
}

static void add_sum(struct sum *to, const struct sum *from)
{
	struct lock_facts *f = &to->facts;
	const struct lock_facts *g = &from->facts;

	f->waits += g->waits;
	f->total_ns += g->total_ns;
	f->max_ns = MAX(f->max_ns, g->max_ns);
	f->woken_waits += g->woken_waits;
	f->timed_out += g->timed_out;
	f->interrupted += g->interrupted;
	f->failed += g->failed;
	for (int i = 0; i < LOCK_BINS; i++)
		f->bins[i] += g->bins[i];
	f->met += g->met;
	f->most = MAX(f->most, g->most);
	f->wakes += g->wakes;
	f->woken += g->woken;
	f->idle_wakes += g->idle_wakes;
	for (int i = 0; i < LOCK_STATES; i++) {
		f->seen[i] += g->seen[i];
		f->held_ns[i] += g->held_ns[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(f->wait_ns); i++)
		f->wait_ns[i] += g->wait_ns[i];
	for (int i = 0; i < LOCK_CLASS_N; i++)
		to->class_ns[i] += from->class_ns[i];
	to->chosen |= from->chosen;
}

/* Children of one process have their locks at the same addresses. */
struct word {
	uint64_t pair; /* the place of the first of the two */
	uint32_t pid, binary;
	uint32_t lock;
};

static int compare_pairs(const struct word *a, const struct word *b)
{
	if (a->pair != b->pair)
		return a->pair < b->pair ? -1 : 1;
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->binary == b->binary ? 0 : a->binary < b->binary ? -1 : 1;
}

static int compare_words(const void *pa, const void *pb)
{
	const struct word *a = pa, *b = pb;

	return compare_pairs(a, b) ?: a->lock < b->lock ? -1 : a->lock > b->lock;
}

/* Of the words of one condition variable the first one stands for both. */
static int join_words(struct adding *a)
{
	const struct dict *d = a->p->dict;
	_cleanup_free_ struct word *words = new0(struct word, d->n_locks + 1);
	_cleanup_free_ uint32_t *whole = new0(uint32_t, d->n_locks + 1);
	size_t n = 0;

	if (!words || !whole)
		return -ENOMEM;
	for (uint32_t i = 1; i < d->n_locks; i++) {
		const struct lock *l = &d->locks[i];

		whole[i] = i;
		if (a->sums[i].two_words && class_of(&a->sums[i]) == LOCK_CLASS_CONDVAR)
			words[n++] = (struct word){ place_of_word(l) & ~4ULL, l->pid, l->binary,
						    i };
	}
	if (n > 1)
		qsort(words, n, sizeof(*words), compare_words);
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n && compare_pairs(&words[i], &words[k]) == 0; k++) {
			uint32_t x = words[i].lock, y = words[k].lock;

			if (whole[x] != x || whole[y] != y ||
			    place_of_word(&d->locks[x]) != (place_of_word(&d->locks[y]) ^ 4))
				continue;
			add_sum(&a->sums[x], &a->sums[y]);
			a->sums[y] = (struct sum){};
			whole[y] = x;
		}
	for (size_t i = 0; i < a->n; i++)
		a->people[i].lock = whole[a->people[i].lock];
	return 0;
}

static size_t first_person(const struct adding *a, uint32_t lock)
{
	size_t low = 0, high = a->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (a->people[mid].lock < lock)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int fill_row(struct adding *a, const struct sum *s, uint32_t stacks, struct lock_row *row)
{
	const struct dict *d = a->p->dict;
	const struct lock *l = &d->locks[s->lock];
	size_t at = first_person(a, s->lock);
	char buf[512];
	int r;

	row->facts = s->facts;
	row->verdict = s->verdict;
	row->name = strdup(s->lock ? lock_text(d, s->lock, buf, sizeof(buf)) : "[unknown]");
	row->binary = strdup(l->binary < d->n_binaries ? dict_str(d, d->binaries[l->binary].name)
						       : "");
	row->comm = strdup(s->facts.others ? ""
					   : dict_str(d, d->series[s->series].label[LABEL_COMM]));
	row->shared = l->flags & 1;
	row->pid = l->pid;
	row->start = l->pid ? d->series[s->series].start : 0;
	if (!row->name || !row->binary || !row->comm)
		return -ENOMEM;
	r = fill_stacks(a, s->lock, WAITER, &at, stacks, &row->waiters);
	if (r == 0)
		r = fill_stacks(a, s->lock, HOLDER, &at, stacks, &row->holders);
	if (r == 0)
		r = fill_stacks(a, s->lock, UNLOCKER, &at, stacks, &row->unlockers);
	return r;
}

static int compare_sums(const void *pa, const void *pb)
{
	const struct sum *a = pa, *b = pb;
	bool idle_a = a->verdict == VERDICT_IDLE, idle_b = b->verdict == VERDICT_IDLE;

	if (idle_a != idle_b)
		return idle_a ? 1 : -1;
	if (a->facts.total_ns != b->facts.total_ns)
		return a->facts.total_ns > b->facts.total_ns ? -1 : 1;
	if (a->facts.most != b->facts.most)
		return a->facts.most > b->facts.most ? -1 : 1;
	return a->lock < b->lock ? -1 : a->lock > b->lock;
}

/* Moves what is to be shown to the front. A lock that nobody waits for is none: it was only woken. */
static size_t choose(struct adding *a, size_t n)
{
	size_t chosen = 0;

	for (size_t i = 0; i < n; i++) {
		struct sum *s = &a->sums[i];

		if (!s->chosen)
			continue;
		s->facts.lock_class = class_of(s);
		s->verdict = lock_judge(&s->facts);
		a->sums[chosen++] = *s;
	}
	if (chosen > 1)
		qsort(a->sums, chosen, sizeof(*a->sums), compare_sums);
	return chosen;
}

static int make_answer(struct adding *a, struct lock_answer *ret)
{
	size_t n;
	int r;

	grouping_init(&a->paths, (struct facet){ .kind = FACET_STACK }, a->p);
	r = grouping_add(&a->paths, false);
	for (size_t i = 0; r == 0 && i < a->p->columns.n; i++)
		r = add_row(a, i);
	if (r == 0)
		r = join_words(a);
	if (r < 0)
		return r;
	merge_people(a);
	n = choose(a, a->p->dict->n_locks);
	ret->rows = new0(struct lock_row, MIN(n, a->limits.locks) + 1);
	if (!ret->rows)
		return -ENOMEM;
	for (; r == 0 && ret->n_rows < MIN(n, a->limits.locks); ret->n_rows++)
		r = fill_row(a, &a->sums[ret->n_rows], a->limits.stacks, &ret->rows[ret->n_rows]);
	ret->omitted = n - MIN(n, a->limits.locks);
	return r;
}

static int explain(const struct profile *p, struct lens *lens, struct lock_limits limits,
		   struct lock_answer *ret)
{
	struct adding a = { .p = p,
			    .lens = lens,
			    .limits = limits,
			    .sums = new0(struct sum, p->dict->n_locks + 1),
			    .classes = new0(uint8_t, p->dict->n_stacks + 1) };
	int r = a.sums && a.classes ? lens_use(lens, p->dict) : -ENOMEM;

	if (r == 0)
		r = make_answer(&a, ret);
	grouping_done(&a.paths);
	free(a.sums);
	free(a.classes);
	free(a.people);
	return r;
}

int query_locks(const struct query_source *src, const struct selection *sel,
		struct lock_limits limits, struct lock_answer **ret)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(merge_done) struct merge m = {};
	_cleanup_(lock_answer_free_p) struct lock_answer *a = new0(struct lock_answer, 1);
	struct selection whole = *sel;
	int r;

	if (!a)
		return -ENOMEM;
	whole.type = PROFILE_FUTEX;
	whole.aspects = 1U << FUTEX_WAITS | 1U << FUTEX_HISTOGRAM | 1U << FUTEX_WAKES |
			1U << FUTEX_HOLDER | 1U << FUTEX_CROWD;
	whole.filters_choose = true;
	r = merge_init(&m, &whole, all);
	if (r == 0)
		r = merge_run(&m, src);
	if (r == 0 && !sel->visibility.all)
		r = profile_hide_kernel(m.p);
	if (r == 0)
		r = explain(m.p, &m.answer_lens, limits, a);
	if (r < 0)
		return r;
	a->coverage = merge_take(&m);
	columns_done(&a->coverage->columns);
	*ret = TAKE_PTR(a);
	return 0;
}
