// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>

#include "base/clock.h"
#include "export/caption.h"
#include "export/human.h"
#include "export/quotient.h"

#define GAPS_NAMED 4 /* of more gaps, the number is given */

static const char *sample_word(enum profile_type type)
{
	static const char *const words[PROFILE_TYPE_N] = { "samples", "events", "calls", "waits" };

	return words[type];
}

void caption_what(const struct profile *p, struct strbuf *out)
{
	char total[HUMAN_MAX], n[HUMAN_MAX], quotient[HUMAN_MAX];

	strbuf_printf(out, "%s: ", profile_type_name(p->type));
	if (p->event)
		strbuf_printf(out, "%s %s in %s samples", human_count(p->total, total),
			      profile_unit(p), human_count(p->samples, n));
	else if (p->type == PROFILE_SYSCALLS)
		strbuf_printf(out, "%s calls", human_count(p->total, total));
	else
		strbuf_printf(out, "%s in %s %s", human_duration(p->total, total),
			      human_count(p->samples, n), sample_word(p->type));
	if (p->instructions.sampled)
		strbuf_printf(out, ", %s instructions in %s, %s %s",
			      human_count(p->instructions.total, total),
			      human_count(p->instructions.samples, n),
			      quotient_of_profile(p, quotient), quotient_unit(p));
}

void caption_when(const struct profile *p, struct strbuf *out)
{
	char from[RFC3339_MAX], until[RFC3339_MAX], covered[HUMAN_MAX];

	strbuf_printf(out, "%s to %s, ", format_rfc3339(p->from_wall_ns, from),
		      format_rfc3339(p->until_wall_ns, until));
	if (p->covered_ns == 0)
		strbuf_puts(out, "not recorded");
	else
		strbuf_printf(out, "%s recorded", human_duration(p->covered_ns, covered));
	if (p->type == PROFILE_ON_CPU && p->rate_mhz)
		strbuf_printf(out, " at %g Hz per CPU", (double)p->rate_mhz / 1000);
}

static void add_losses(const struct profile *p, struct strbuf *out)
{
	char n[HUMAN_MAX];
	bool any = false;

	for (unsigned i = 0; i < LOSS_REASONS; i++) {
		if (!p->accounting.lost[i])
			continue;
		strbuf_printf(out, "%s%s %s", any ? ", " : "lost: ", loss_reason_name(i),
			      human_count(p->accounting.lost[i], n));
		any = true;
	}
	if (!any)
		strbuf_puts(out, "nothing lost");
	if (p->instructions.lost)
		strbuf_printf(out, "; samples of instructions lost: %s",
			      human_count(p->instructions.lost, n));
}

void caption_missing(const struct profile *p, struct strbuf *out)
{
	char from[RFC3339_MAX], until[RFC3339_MAX], n[HUMAN_MAX];

	add_losses(p, out);
	for (size_t i = 0; i < MIN(p->n_gaps, (size_t)GAPS_NAMED); i++)
		strbuf_printf(out, "; not recorded: %s to %s (%s)",
			      format_rfc3339(p->gaps[i].from_wall_ns, from),
			      format_rfc3339(p->gaps[i].until_wall_ns, until),
			      gap_reason_name(p->gaps[i].reason));
	if (p->n_gaps > GAPS_NAMED)
		strbuf_printf(out, "; %zu more gaps", p->n_gaps - GAPS_NAMED);
	if (p->truncated)
		strbuf_printf(out, "; %s stacks folded into [other]", human_count(p->omitted, n));
}
