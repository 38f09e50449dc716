// SPDX-License-Identifier: GPL-2.0-or-later
#include "ctl/interval.h"

#include <stdio.h>

void interval_ends_json(struct json *j, const char *low, const char *high,
			const Sysprofd__V1__CallInterval *within)
{
	json_put_unsigned(j, low, within->low);
	json_key(j, high);
	if (within->unbounded)
		json_null(j);
	else
		json_unsigned(j, within->high);
}

void interval_json(struct json *j, const Sysprofd__V1__CallInterval *within)
{
	json_key(j, "exact");
	json_bool(j, !within);
	if (within)
		interval_ends_json(j, "low", "high", within);
}

const char *interval_text(uint64_t n, const Sysprofd__V1__CallInterval *within, bool utf8,
			  char buf[static HUMAN_MAX])
{
	char share[HUMAN_MAX];
	uint64_t below, above;

	if (!within)
		return "";
	if (within->unbounded)
		return "?";
	below = n > within->low ? n - within->low : 0;
	above = within->high > n ? within->high - n : 0;
	snprintf(buf, HUMAN_MAX, "%s%s", utf8 ? "\u00b1" : "+-",
		 n ? human_share((double)MAX(below, above), (double)n, share) : "0");
	return buf;
}

const char *estimate_text(uint64_t n, const Sysprofd__V1__CallInterval *within,
			  char buf[static HUMAN_MAX])
{
	char count[HUMAN_MAX];

	snprintf(buf, HUMAN_MAX, "%s%s", within ? "~" : "", human_count(n, count));
	return buf;
}
