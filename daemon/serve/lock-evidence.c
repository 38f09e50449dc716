// SPDX-License-Identifier: GPL-2.0-or-later
#include "serve/lock-evidence.h"

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

static void tell_holder(const struct lock_facts *f, const double shares[LOCK_STATES],
			struct strbuf *out)
{
	uint64_t held = f->held_ns[LOCK_STATE_RUNNING] + f->held_ns[LOCK_STATE_RUNNABLE] +
			f->held_ns[LOCK_STATE_BLOCKED];
	char run[HUMAN_MAX], queue[HUMAN_MAX], blocked[HUMAN_MAX], all[HUMAN_MAX];
	const char *kind = blocked_on(f);

	strbuf_printf(out, "the holder was blocked %s",
		      human_share(shares[LOCK_STATE_BLOCKED], 1, blocked));
	if (kind)
		strbuf_printf(out, " (%s)", kind);
	strbuf_printf(out, ", without a CPU %s, running %s",
		      human_share(shares[LOCK_STATE_RUNNABLE], 1, queue),
		      human_share(shares[LOCK_STATE_RUNNING], 1, run));
	if (held)
		strbuf_printf(out, " of %s in which others waited", human_duration(held, all));
	else
		strbuf_puts(out, " of the times when it was looked at");
}

static void tell_idle(const struct lock_facts *f, struct strbuf *out)
{
	char n[HUMAN_MAX], mean[HUMAN_MAX];

	if (f->waits == 0)
		strbuf_printf(out, "%s threads wait, and nobody woke one", human_count(f->most, n));
	else
		strbuf_printf(out, "%s waits of %s on average: there is no work",
			      human_count(f->waits, n),
			      human_duration(f->total_ns / f->waits, mean));
}

void lock_evidence(const struct lock_facts *f, enum lock_verdict v, struct strbuf *out)
{
	char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];
	double shares[LOCK_STATES];

	if (v == VERDICT_IDLE) {
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
		strbuf_printf(
			out,
			"%s waits of %s on average; who holds it is not known, see who unlocks",
			human_count(f->waits, a),
			human_duration(f->waits ? f->total_ns / f->waits : 0, b));
	}
}
