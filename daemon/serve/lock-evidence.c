// SPDX-License-Identifier: GPL-2.0-or-later
#include "serve/lock-evidence.h"

#include <stdio.h>

#include "export/human.h"

/* What a blocked holder waited for the longest, where that is known. */
static const char *blocked_on(const struct lock_facts *f)
{
	unsigned most = WAIT_UNKNOWN;

	for (unsigned i = WAIT_UNKNOWN + 1; i < WAIT_KIND_N; i++)
		if (f->wait_ns[i] > (most ? f->wait_ns[most] : 0))
			most = i;
	return most ? wait_kind_name(most) : NULL;
}

#define WORTH_TELLING 0.005

/* The states that matter, the main one first. */
static void tell_holder(const struct lock_facts *f, const double shares[LOCK_STATES],
			struct strbuf *out)
{
	static const char *const names[LOCK_STATES] = { "", "running", "without a CPU", "blocked" };
	uint64_t held = f->held_ns[LOCK_STATE_RUNNING] + f->held_ns[LOCK_STATE_RUNNABLE] +
			f->held_ns[LOCK_STATE_BLOCKED];
	bool told[LOCK_STATES] = { true };
	const char *kind = blocked_on(f), *between = "the holder was ";
	char text[HUMAN_MAX];

	for (;;) {
		int best = LOCK_STATE_UNKNOWN;

		for (int i = 1; i < LOCK_STATES; i++)
			if (!told[i] && shares[i] >= WORTH_TELLING &&
			    (!best || shares[i] > shares[best]))
				best = i;
		if (!best)
			break;
		told[best] = true;
		strbuf_printf(out, "%s%s", between, names[best]);
		if (best == LOCK_STATE_BLOCKED && kind)
			strbuf_printf(out, " (%s)", kind);
		strbuf_printf(out, " for %s", human_share(shares[best], 1, text));
		between = ", ";
	}
	if (held)
		strbuf_printf(out, " of %s in which others waited", human_duration(held, text));
	else
		strbuf_puts(out, " of the times when it was looked at");
}

#define TIMES_MAX (HUMAN_MAX + 6)

static const char *times(uint64_t n, char buf[static TIMES_MAX])
{
	char count[HUMAN_MAX];

	if (n == 1)
		return "once";
	snprintf(buf, TIMES_MAX, "%s times", human_count(n, count));
	return buf;
}

/* Nothing is known of what the holder does. */
static void tell_waits(const struct lock_facts *f, struct strbuf *out)
{
	uint64_t seen = f->seen[LOCK_STATE_RUNNING] + f->seen[LOCK_STATE_RUNNABLE] +
			f->seen[LOCK_STATE_BLOCKED];
	char n[TIMES_MAX], mean[HUMAN_MAX];

	strbuf_printf(out, "waited %s, %s on average; ", times(f->waits, n),
		      human_duration(f->waits ? f->total_ns / f->waits : 0, mean));
	if (seen)
		strbuf_printf(out, "who holds it was looked up %s, too rarely to tell why",
			      times(seen, n));
	else
		strbuf_puts(out, "who holds it is not known, see who wakes");
}

static void tell_idle(const struct lock_facts *f, struct strbuf *out)
{
	char n[TIMES_MAX], mean[HUMAN_MAX], share[HUMAN_MAX];

	if (f->lock_class == LOCK_CLASS_JOIN)
		strbuf_puts(out, "waits for the end of a thread");
	else if (f->lock_class == LOCK_CLASS_SCHEDULER)
		strbuf_puts(out, "a thread of the language's scheduler that has nothing to run");
	else if (f->waits == 0)
		strbuf_printf(out, "%s threads wait, and nobody woke one", human_count(f->most, n));
	else
		strbuf_printf(out,
			      "waited %s, %s on average, %s until time was up: there is no work",
			      times(f->waits, n), human_duration(f->total_ns / f->waits, mean),
			      human_share((double)f->timed_out, (double)f->waits, share));
}

void lock_evidence(const struct lock_facts *f, enum lock_verdict v, struct strbuf *out)
{
	char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];
	double shares[LOCK_STATES];

	if (f->others) {
		strbuf_printf(out, "locks beyond the %s of a bucket, together",
			      human_count(LOCKS_PER_BUCKET, a));
	} else if (v == VERDICT_IDLE) {
		tell_idle(f, out);
	} else if (v == VERDICT_HERD) {
		strbuf_printf(out,
			      "%s calls woke %s threads, and %s times one came back to wait where "
			      "others did",
			      human_count(f->wakes, a), human_count(f->woken, b),
			      human_count(f->met, c));
	} else if (lock_holder_shares(f, shares)) {
		tell_holder(f, shares, out);
	} else {
		tell_waits(f, out);
	}
}
