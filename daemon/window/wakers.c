// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who ended waits. A row's stack is that of the thread that waited, from its root to its leaf, then the marker
 * MARKER_WOKEN, and above it the stack of the waker, from its root as well.
 */
#include "window/internal.h"

#define WAKER_FRAMES (MAX_USER_FRAMES + MAX_KERNEL_FRAMES + 1)

static int64_t push_marker(struct window *w, uint32_t parent, const char *name)
{
	int64_t frame = dict_marker(w->bucket->dict, name);

	return frame < 0 ? frame : dict_stack(w->bucket->dict, parent, (uint32_t)frame);
}

/* A stack of the slice in the bucket's dictionary. */
static int64_t find_stack(struct adding *a, uint64_t id)
{
	struct window *w = a->w;
	uint32_t *record = id ? memo_find(&w->records, id, 0) : NULL;
	bool folded;

	if (record)
		return resolve_stack(w, a->s, &a->s->stacks[*record], &folded);
	return push_marker(w, 0, "[no stack]");
}

/* The frames of `top`, root first, on those of `stack`. */
static int64_t put_on_top(struct window *w, uint32_t stack, uint32_t top)
{
	struct dict *d = w->bucket->dict;
	uint32_t frames[WAKER_FRAMES];
	int64_t id = stack;
	size_t n = 0;

	for (; top && n < WAKER_FRAMES; top = d->stacks[top].parent)
		frames[n++] = d->stacks[top].frame;
	while (n > 0 && id >= 0)
		id = dict_stack(d, (uint32_t)id, frames[--n]);
	return id;
}

static bool dict_is_full(const struct window *w)
{
	return w->bucket->dict->n_stacks > w->options.max_stacks ||
	       w->bucket->dict->bytes > w->options.max_bytes;
}

/* `by` is an interrupt where that is no stack. */
static int64_t join(struct adding *a, uint32_t waits, bool interrupt, uint64_t by)
{
	int64_t stack, top;

	if (dict_is_full(a->w))
		return push_marker(a->w, 0, "[other]");
	stack = push_marker(a->w, waits, MARKER_WOKEN);
	if (stack < 0)
		return stack;
	if (interrupt)
		return push_marker(a->w, (uint32_t)stack, "[interrupt]");
	top = find_stack(a, by);
	return top < 0 ? top : put_on_top(a->w, (uint32_t)stack, (uint32_t)top);
}

/*
 * A soft interrupt is the work of the thread that serves it when that asked for it, as one that sends to its own host
 * does. Should another interrupt have come meanwhile, it is nobody's.
 */
static bool is_interrupt(struct adding *a, const struct wake_key *k)
{
	uint32_t *record;

	if (k->flags & WAKER_INTERRUPT)
		return true;
	if (!(k->flags & WAKER_SERVED))
		return false;
	record = k->by_stack ? memo_find(&a->w->records, k->by_stack, 0) : NULL;
	return !record || !resolve_own_work(a->w, a->s, &a->s->stacks[*record]);
}

static uint32_t key_of(struct adding *a, const struct slice_wake *wake)
{
	const struct wake_key *k = &wake->key;
	uint32_t *known = memo_find(&a->w->waits, k->stack, (uint64_t)k->tid << 32 | k->task_state);
	struct slice_off_cpu wait = {
		.key = { .stack = k->stack, .cause = OFF_BLOCKED, .task_state = k->task_state },
		.value = { .events_q8 = wake->value.events_q8, .ns = wake->value.ns },
	};

	return OFF_ASPECT(OFF_WAKES) | (known ? *known : window_wait_key(a, &wait));
}

static int add_wake(struct adding *a, const struct slice_wake *wake)
{
	const struct wake_key *k = &wake->key;
	const struct wake_value *v = &wake->value;
	struct columns *c = &a->w->bucket->columns[PROFILE_OFF_CPU];
	bool interrupt = is_interrupt(a, k), folded;
	uint64_t until = a->s->mono_end_ns;
	int64_t series = resolve_series(a->w, k->tgid, k->tid, k->start, until, &folded);
	int64_t stack = series < 0 ? series : find_stack(a, k->stack), by = 0;

	if (stack >= 0)
		stack = join(a, (uint32_t)stack, interrupt, k->by_stack);
	if (stack >= 0 && !interrupt)
		by = resolve_series(a->w, k->by_tgid, k->by_tid, k->by_start, until, &folded);
	if (stack < 0 || by < 0)
		return (int)MIN(stack, by);
	return columns_add(c, (uint32_t)series, (uint32_t)stack, key_of(a, wake), (uint32_t)by,
			   (v->events_q8 + 128) / 256, v->ns, v->max_ns);
}

/* They explain waits that are counted already: one that is lost counts as one that was seen and lost. */
void wakers_add(struct adding *a)
{
	const struct slice *s = a->s;
	struct call_spans *spans = &a->w->wakes;

	spans->covered_ns += s->mono_end_ns - s->mono_start_ns;
	spans->span_ns += s->wake_span_ns;
	if (s->wake_span_share > 0)
		spans->share = s->wake_span_share;
	for (size_t i = 0; i < s->n_wakes; i++) {
		int r = add_wake(a, &s->wakes[i]);

		if (r >= 0)
			continue;
		a->s->source[SOURCE_OFF_CPU].sum.seen++;
		window_drop_row(a, SOURCE_OFF_CPU, 0, 0, r);
		a->s->source[SOURCE_OFF_CPU].sum.lost[LOSS_OTHER]++;
	}
}

void wakers_scale(struct bucket *b, const struct call_spans *spans)
{
	struct columns *c = &b->columns[PROFILE_OFF_CPU];
	double by = spans_weight(spans);

	for (size_t i = 0; i < c->n; i++) {
		if (row_aspect(PROFILE_OFF_CPU, c->key[i]) != OFF_WAKES)
			continue;
		c->count[i] = (uint64_t)((double)c->count[i] * by + 0.5);
		c->value[i] = (uint64_t)((double)c->value[i] * by + 0.5);
	}
}
