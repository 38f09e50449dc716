// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When calls are counted, on hosts where counting each of them costs too much (syscall-counts=sampled).
 *
 * Every bucket is a round with one span (rounds.h), a tenth of it on average, in which calls are counted, timed and
 * sized; what was counted is scaled by the bucket's time over that of its span, both of which are measured
 * (window/calls.c). Between spans the program at the return of calls is detached, or, where another source needs it,
 * told not to count.
 *
 * The flag and the clock are not read in one step: a span is taken to begin and end in the middle of what it takes to
 * set the flag between two looks at the clock, which is right to some tens of nanoseconds unless the daemon is
 * interrupted just there.
 *
 * A call counts when it returns in a span. It is timed when it also began there: one that takes longer than what is left
 * of the span is not.
 */
#include "base/clock.h"
#include "collect/internal.h"
#include "collect/rounds.h"

struct counts {
	struct rounds rounds;
	bool timed; /* the latest span also had latency and sizes */
};

/* When that was. */
static uint64_t set_counting(struct collector *c, bool on)
{
	uint64_t before = mono_now_ns();

	__atomic_store_n(&c->skel->bss->counting, on, __ATOMIC_SEQ_CST);
	return before + (mono_now_ns() - before) / 2;
}

static int begin_span(struct collector *c)
{
	struct rounds *rounds = &c->counts->rounds;
	int r = hooks_attach_sys_exit(c);

	if (r < 0) {
		rounds_skip(rounds);
		return r;
	}
	rounds_open(rounds, set_counting(c, true));
	r = details_begin(c, &rounds->pieces[rounds->next]);
	c->counts->timed = c->skel->rodata->details_enabled && r == 0;
	return r;
}

static void end_span(struct collector *c)
{
	details_end(c);
	rounds_close(&c->counts->rounds, set_counting(c, false));
	hooks_detach_sys_exit(c);
}

int counts_poll(struct collector *c, uint64_t mono_ns)
{
	struct rounds *rounds = &c->counts->rounds;

	if (rounds_ended(rounds, mono_ns))
		end_span(c);
	return rounds_due(rounds, mono_ns) ? begin_span(c) : 0;
}

uint64_t counts_wake_ns(const struct collector *c)
{
	return rounds_next_ns(&c->counts->rounds);
}

/* What begins with the bucket begins here, not when the drain is over: the first moments of buckets are no exception. */
void counts_bucket_ends(struct collector *c)
{
	struct rounds *rounds = &c->counts->rounds;
	uint64_t now = mono_now_ns();

	if (rounds->open)
		end_span(c);
	rounds_begin(rounds, now, c->o.bucket_ns, COUNTED_SHARE, collector_random(c),
		     collector_random(c));
	(void)counts_poll(c, now);
}

void counts_drain(struct collector *c, struct slice *s)
{
	s->calls_sampled = true;
	s->counted_ns = rounds_take(&c->counts->rounds, s->mono_start_ns, s->mono_end_ns);
	s->span_ns = c->counts->timed ? s->counted_ns : 0;
	s->span_share = COUNTED_SHARE;
}

/* After the return of calls was attached, which showed that it can be. */
int counts_attach(struct collector *c)
{
	c->counts = new0(struct counts, 1);
	if (!c->counts)
		return -ENOMEM;
	rounds_init(&c->counts->rounds, mono_now_ns());
	hooks_detach_sys_exit(c);
	counts_bucket_ends(c);
	return 0;
}

void counts_free(struct collector *c)
{
	free(c->counts);
	c->counts = NULL;
}
