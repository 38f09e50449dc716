// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <time.h>

#include "ctl/coverage.h"
#include "ctl/request.h"
#include "export/human.h"

#define GAPS_SHOWN 6 /* in text; JSON has all */

const char *local_time(uint64_t wall_ns, uint64_t beside_wall_ns, char buf[static LOCAL_TIME_MAX])
{
	time_t t = (time_t)(wall_ns / NSEC_PER_SEC), b = (time_t)(beside_wall_ns / NSEC_PER_SEC);
	struct tm tm, beside = {};
	bool same_day;

	if (!localtime_r(&t, &tm))
		return "?";
	same_day = beside_wall_ns && localtime_r(&b, &beside) && beside.tm_year == tm.tm_year &&
		   beside.tm_yday == tm.tm_yday;
	if (!strftime(buf, LOCAL_TIME_MAX, same_day ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm))
		return "?";
	return buf;
}

const char *local_zone(uint64_t wall_ns, char buf[static LOCAL_TIME_MAX])
{
	time_t t = (time_t)(wall_ns / NSEC_PER_SEC);
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(buf, LOCAL_TIME_MAX, "%Z", &tm))
		return "";
	return buf;
}

static void put_range(const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	char from[LOCAL_TIME_MAX], until[LOCAL_TIME_MAX], zone[LOCAL_TIME_MAX], covered[HUMAN_MAX];

	strbuf_printf(out, "%s to %s %s: ", local_time(c->from_ns, 0, from),
		      local_time(c->until_ns, c->from_ns, until), local_zone(c->from_ns, zone));
	if (c->covered_ns)
		strbuf_printf(out, "%s recorded", human_duration(c->covered_ns, covered));
	else
		strbuf_puts(out, "nothing recorded");
}

static void put_amount(const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	enum profile_type type = answer_type(c->type);
	static const char *const words[PROFILE_TYPE_N] = { "samples", "events", "calls", "waits" };
	char total[HUMAN_MAX], n[HUMAN_MAX];

	strbuf_printf(out, ", total %s%s", c->estimated ? "~" : "",
		      human_value(type, c->total, total));
	if (type == PROFILE_SYSCALLS)
		strbuf_puts(out, " calls");
	else
		strbuf_printf(out, " in %s %s", human_count(c->samples, n), words[type]);
	if (type == PROFILE_ON_CPU && c->covered_ns)
		strbuf_printf(out, ", %.2f CPUs busy", (double)c->total / (double)c->covered_ns);
	if (type == PROFILE_ON_CPU && c->rate_hz > 0)
		strbuf_printf(out, ", %g Hz per CPU", c->rate_hz);
	strbuf_printf(out, ", %s lost", human_count(c->lost, n));
}

uint64_t losses_text(Sysprofd__V1__Loss *const *losses, size_t n, bool folded, struct strbuf *out)
{
	uint64_t sum = 0;
	char buf[HUMAN_MAX];

	for (size_t i = 0; i < n; i++) {
		if (losses[i]->folded != folded || losses[i]->count == 0)
			continue;
		strbuf_printf(out, "%s%s %s", sum ? ", " : "", losses[i]->reason,
			      human_count(losses[i]->count, buf));
		sum += losses[i]->count;
	}
	return sum;
}

static void put_losses(const struct text *t, const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	for (int folded = 0; folded < 2; folded++) {
		_cleanup_(strbuf_done) struct strbuf line = {};

		strbuf_puts(&line, folded ? "counted, but not in full: " : "lost: ");
		if (losses_text(c->losses, c->n_losses, folded, &line))
			text_wrap(t, line.data ?: "", 2, out);
	}
}

static void put_estimated(const struct text *t, const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char counted[HUMAN_MAX], share[HUMAN_MAX];

	if (!c->estimated)
		return;
	strbuf_printf(&line,
		      "calls were counted in %s of this time (%s), drawn at random, and scaled: "
		      "numbers are estimates",
		      human_duration(c->counted_ns, counted),
		      human_share((double)c->counted_ns, (double)c->covered_ns, share));
	text_wrap(t, line.data ?: "", 2, out);
}

static void put_gaps(const struct text *t, const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	for (size_t i = 0; i < c->n_gaps; i++) {
		const Sysprofd__V1__Gap *g = c->gaps[i];
		char from[LOCAL_TIME_MAX], until[LOCAL_TIME_MAX];
		_cleanup_(strbuf_done) struct strbuf line = {};

		if (i == GAPS_SHOWN && c->n_gaps > GAPS_SHOWN + 1) {
			strbuf_printf(&line, "not recorded: %zu more gaps", c->n_gaps - i);
			text_wrap(t, line.data ?: "", 2, out);
			return;
		}
		strbuf_printf(&line, "not recorded: %s to %s (%s)",
			      local_time(g->from_ns, c->from_ns, from),
			      local_time(g->until_ns, c->from_ns, until), g->reason);
		text_wrap(t, line.data ?: "", 2, out);
	}
}

void coverage_text(const struct options *o, const struct text *t, const Sysprofd__V1__Coverage *c,
		   struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};

	strbuf_printf(&line, "%s ", command_name(o->command));
	options_describe(o, &line);
	text_wrap(t, line.data ?: "", 2, out);
	if (!c)
		return;
	strbuf_reset(&line);
	put_range(c, &line);
	put_amount(c, &line);
	text_wrap(t, line.data ?: "", 2, out);
	put_estimated(t, c, out);
	put_losses(t, c, out);
	put_gaps(t, c, out);
	if (c->processes_merged)
		text_wrap(t, "too many processes and threads to tell apart: shown by name only", 2,
			  out);
}

void coverage_empty_text(const struct text *t, const Sysprofd__V1__Coverage *c, struct strbuf *out)
{
	const char *text = "Not recorded: there is no data of this time.";

	if (c && c->covered_ns)
		text = "Idle: this time was recorded, and nothing in it matches the selection.";
	else if (c && !c->n_gaps && c->from_ns < c->until_ns)
		text = "No bucket starts in this time, and each belongs where it starts: ask for a "
		       "longer time (buckets cover 10 s, unless configured otherwise).";
	text_wrap(t, text, 2, out);
}

void coverage_json(struct json *j, const Sysprofd__V1__Coverage *c)
{
	static const Sysprofd__V1__Coverage none = SYSPROFD__V1__COVERAGE__INIT;
	enum profile_type type;

	c = c ?: &none;
	type = answer_type(c->type);
	json_key(j, "type");
	json_string(j, profile_type_name(type));
	json_key(j, "unit");
	json_string(j, profile_type_unit(type));
	json_key(j, "from");
	json_time(j, c->from_ns);
	json_key(j, "until");
	json_time(j, c->until_ns);
	json_key(j, "covered_seconds");
	json_double(j, (double)c->covered_ns / NSEC_PER_SEC);
	json_key(j, "gaps");
	json_array(j);
	for (size_t i = 0; i < c->n_gaps; i++) {
		json_object(j);
		json_key(j, "from");
		json_time(j, c->gaps[i]->from_ns);
		json_key(j, "until");
		json_time(j, c->gaps[i]->until_ns);
		json_key(j, "reason");
		json_string(j, c->gaps[i]->reason);
		json_object_end(j);
	}
	json_array_end(j);
	json_key(j, "rate_hz");
	json_double(j, c->rate_hz);
	if (type == PROFILE_SYSCALLS) {
		json_key(j, "exact");
		json_bool(j, !c->estimated);
		json_key(j, "counted_seconds");
		json_double(j, (double)c->counted_ns / NSEC_PER_SEC);
	}
	json_key(j, "total");
	json_unsigned(j, c->total);
	json_key(j, "samples");
	json_unsigned(j, c->samples);
	json_key(j, "lost");
	json_unsigned(j, c->lost);
	if (c->processes_merged) {
		json_key(j, "processes_merged");
		json_bool(j, true);
	}
}

void losses_json(struct json *j, const char *key, Sysprofd__V1__Loss *const *losses, size_t n,
		 bool folded)
{
	json_key(j, key);
	json_object(j);
	for (size_t i = 0; i < n; i++) {
		if (losses[i]->folded != folded)
			continue;
		json_key(j, losses[i]->reason);
		json_unsigned(j, losses[i]->count);
	}
	json_object_end(j);
}
