// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Local times are resolved by asking which UTC offsets are in force around them and checking each: this needs
 * no knowledge of the zone's rules, and finds the two moments of a repeated hour and the none of a missing one.
 */
#include <ctype.h>
#include <time.h>

#include "ctl/time.h"

#define WALL_MAX_NS ((uint64_t)INT64_MAX)
#define HOUR 3600
#define DAY (24 * HOUR)
#define OFFSETS_MAX 8
/* Offsets lie within +-26 h, date line changes included. */
#define SEARCH (36 * HOUR)
#define SEARCH_STEP (6 * HOUR)
/* How far back a time of day is looked for: one that a change of clocks took away exists the day before. */
#define DAYS_BACK 3

/* ---- numbers --------------------------------------------------------------------------------- */

/* Reads exactly n digits. */
static bool take_digits(const char **s, int n, int *ret)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if (!isdigit((unsigned char)(*s)[i]))
			return false;
		v = v * 10 + ((*s)[i] - '0');
	}
	*s += n;
	*ret = v;
	return true;
}

static bool take_char(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

/* What follows a decimal point, as a part of unit. */
static int take_fraction(const char **s, uint64_t unit, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)**s))
		return -EINVAL;
	for (; isdigit((unsigned char)**s); (*s)++) {
		unit /= 10;
		v += unit * (uint64_t)(**s - '0');
	}
	*ret = v;
	return 0;
}

/* Digits, and perhaps a fraction, times unit. */
static int take_number(const char **s, uint64_t unit, uint64_t *ret)
{
	uint64_t v = 0, fraction = 0;
	int r;

	if (!isdigit((unsigned char)**s))
		return -EINVAL;
	for (; isdigit((unsigned char)**s); (*s)++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(**s - '0'), &v))
			return -ERANGE;
	if (__builtin_mul_overflow(v, unit, &v))
		return -ERANGE;
	if (take_char(s, '.')) {
		r = take_fraction(s, unit, &fraction);
		if (r < 0)
			return r;
	}
	return __builtin_add_overflow(v, fraction, ret) ? -ERANGE : 0;
}

/* ---- durations ------------------------------------------------------------------------------- */

static const struct unit {
	const char *name;
	uint64_t seconds; /* 0: milliseconds */
} units[] = {
	{ "ms", 0 },	  { "msec", 0 },     { "s", 1 },	  { "sec", 1 },
	{ "second", 1 },  { "seconds", 1 },  { "m", 60 },	  { "min", 60 },
	{ "minute", 60 }, { "minutes", 60 }, { "h", HOUR },	  { "hr", HOUR },
	{ "hour", HOUR }, { "hours", HOUR }, { "d", DAY },	  { "day", DAY },
	{ "days", DAY },  { "w", 7 * DAY },  { "week", 7 * DAY }, { "weeks", 7 * DAY },
};

/* The unit that s begins with, in ns; 0: none. */
static uint64_t take_unit(const char **s)
{
	size_t n = 0;

	while (isalpha((unsigned char)(*s)[n]))
		n++;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strlen(units[i].name) == n && strncmp(units[i].name, *s, n) == 0) {
			*s += n;
			return units[i].seconds ? units[i].seconds * NSEC_PER_SEC : NSEC_PER_MSEC;
		}
	return 0;
}

/* One or more of number and unit, to the end: "1h30min", "1h 30min". */
static int parse_span(const char *s, uint64_t *ret)
{
	uint64_t sum = 0, v;

	do {
		const char *number = s;
		uint64_t unit;
		int r;

		s += strspn(s, "0123456789.");
		unit = take_unit(&s);
		if (!unit)
			return -EINVAL;
		r = take_number(&number, unit, &v);
		if (r < 0)
			return r;
		if (!isalpha((unsigned char)*number))
			return -EINVAL;
		if (__builtin_add_overflow(sum, v, &sum))
			return -ERANGE;
		s += strspn(s, " ");
	} while (*s);
	*ret = sum;
	return 0;
}

int duration_parse(const char *s, uint64_t *ret_ns)
{
	const char *end = s;
	uint64_t ns;
	int r = take_number(&end, NSEC_PER_SEC, &ns);

	if (r >= 0 && *end)
		r = parse_span(s, &ns);
	if (r < 0)
		return r;
	if (ns == 0)
		return -ERANGE;
	*ret_ns = ns;
	return 0;
}

/* ---- local time ------------------------------------------------------------------------------ */

/* The fields of tm as if they were UTC: a scale on which local times can be compared. */
static int64_t as_utc(const struct tm *tm)
{
	struct tm copy = *tm;

	return timegm(&copy);
}

static int64_t local_of(int64_t t)
{
	time_t time = (time_t)t;
	struct tm tm;

	return localtime_r(&time, &tm) ? as_utc(&tm) : t;
}

/* The moments at which local clocks show `local`, ascending: none, one, or two. */
static size_t moments_of(int64_t local, int64_t ret[static OFFSETS_MAX])
{
	size_t n = 0;

	for (int64_t around = local - SEARCH; around <= local + SEARCH; around += SEARCH_STEP) {
		int64_t t = local - (local_of(around) - around);
		bool known = local_of(t) != local;
		size_t at = n;

		for (size_t i = 0; i < n; i++)
			known |= ret[i] == t;
		if (known || n == OFFSETS_MAX)
			continue;
		for (; at > 0 && ret[at - 1] > t; at--)
			ret[at] = ret[at - 1];
		ret[at] = t;
		n++;
	}
	return n;
}

/* The first moment at which local clocks show `local` or later; for a time that its day lacks. */
static int64_t moment_after_gap(int64_t local)
{
	int64_t low = local - SEARCH, high = local + SEARCH;

	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;

		if (local_of(middle) >= local)
			high = middle;
		else
			low = middle;
	}
	return high;
}

static int64_t moment_of(int64_t local)
{
	int64_t found[OFFSETS_MAX];

	return moments_of(local, found) ? found[0] : moment_after_gap(local);
}

static int to_wall_ns(int64_t seconds, uint64_t fraction_ns, uint64_t *ret)
{
	uint64_t ns;

	if (seconds < 0 || __builtin_mul_overflow((uint64_t)seconds, NSEC_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, fraction_ns, &ns) || ns > WALL_MAX_NS)
		return -ERANGE;
	*ret = ns;
	return 0;
}

/* ---- the forms ------------------------------------------------------------------------------- */

struct clock_time {
	int hour, minute, second;
	uint64_t fraction_ns;
};

static int64_t clock_seconds(const struct clock_time *c)
{
	return c->hour * HOUR + c->minute * 60 + c->second;
}

/* "14:00", "14:00:05", "14:00:05.25"; without colons where basic is set. */
static int take_clock(const char **s, bool basic, struct clock_time *ret)
{
	struct clock_time c = {};
	bool seconds;
	int r;

	if (!take_digits(s, 2, &c.hour) || (!basic && !take_char(s, ':')) ||
	    !take_digits(s, 2, &c.minute))
		return -EINVAL;
	seconds = basic ? isdigit((unsigned char)**s) : take_char(s, ':');
	if (seconds && !take_digits(s, 2, &c.second))
		return -EINVAL;
	if (seconds && take_char(s, '.')) {
		r = take_fraction(s, NSEC_PER_SEC, &c.fraction_ns);
		if (r < 0)
			return r;
	}
	/* 24:00 is ISO's name for the end of a day. */
	if (c.minute > 59 || c.second > 59 || clock_seconds(&c) > DAY ||
	    (clock_seconds(&c) == DAY && c.fraction_ns))
		return -ERANGE;
	*ret = c;
	return 0;
}

/* The local midnight of the day that lies `days` after now's, on the scale of as_utc(). */
static int64_t local_midnight(uint64_t now_wall_ns, int days)
{
	int64_t local = local_of((int64_t)(now_wall_ns / NSEC_PER_SEC));

	return local - local % DAY + (int64_t)days * DAY;
}

static int parse_relative(const char *s, uint64_t now, uint64_t *ret)
{
	uint64_t ns;
	int r = parse_span(s, &ns);

	if (r < 0)
		return r;
	if (ns > now)
		return -ERANGE;
	*ret = now - ns;
	return 0;
}

/* What stands behind "today" and "yesterday": nothing, or a time of day. */
static int parse_day(const char *rest, uint64_t now, int days, uint64_t *ret)
{
	int64_t midnight = local_midnight(now, days);
	struct clock_time c = {};
	int r;

	if (*rest) {
		if (*rest != ' ')
			return -EINVAL;
		rest += strspn(rest, " ");
		r = take_clock(&rest, false, &c);
		if (r < 0)
			return r;
		if (*rest)
			return -EINVAL;
	}
	return to_wall_ns(moment_of(midnight + clock_seconds(&c)), c.fraction_ns, ret);
}

/* The latest moment not after now at which local clocks showed this time. */
static int parse_clock(const char *s, uint64_t now, uint64_t *ret)
{
	struct clock_time c;
	int r = take_clock(&s, false, &c);

	if (r < 0)
		return r;
	if (*s)
		return -EINVAL;
	for (int day = 0; day >= -DAYS_BACK; day--) {
		int64_t found[OFFSETS_MAX];
		size_t n = moments_of(local_midnight(now, day) + clock_seconds(&c), found);
		uint64_t ns;

		while (n-- > 0)
			if (to_wall_ns(found[n], c.fraction_ns, &ns) == 0 && ns <= now) {
				*ret = ns;
				return 0;
			}
	}
	return -ERANGE;
}

static int parse_epoch(const char *s, uint64_t *ret)
{
	uint64_t ns;
	int r = take_number(&s, NSEC_PER_SEC, &ns);

	if (r < 0)
		return r;
	if (*s)
		return -EINVAL;
	if (ns > WALL_MAX_NS)
		return -ERANGE;
	*ret = ns;
	return 0;
}

/* "Z", "UTC", "+01:00", "+0100", "+01"; *ret_local is set where none is given. */
static int parse_offset(const char *s, bool *ret_local, int64_t *ret_offset)
{
	int sign = *s == '-' ? -1 : 1, hours, minutes = 0;

	*ret_local = *s == 0;
	*ret_offset = 0;
	if (*ret_local || streq(s, "Z") || streq(s, "z") || streq(s, " UTC") || streq(s, "UTC"))
		return 0;
	if (*s != '+' && *s != '-')
		return -EINVAL;
	s++;
	if (!take_digits(&s, 2, &hours))
		return -EINVAL;
	if (*s) {
		take_char(&s, ':');
		if (!take_digits(&s, 2, &minutes) || *s)
			return -EINVAL;
	}
	if (hours > 23 || minutes > 59)
		return -ERANGE;
	*ret_offset = sign * (hours * HOUR + minutes * 60);
	return 0;
}

/* "2026-11-30" or "20261130", as local midnight on the scale of as_utc(). */
static int take_date(const char **s, bool *ret_basic, int64_t *ret_midnight)
{
	struct tm tm = {}, check;
	time_t t;
	bool basic;

	if (!take_digits(s, 4, &tm.tm_year))
		return -EINVAL;
	basic = **s != '-';
	if ((!basic && !take_char(s, '-')) || !take_digits(s, 2, &tm.tm_mon) ||
	    (!basic && !take_char(s, '-')) || !take_digits(s, 2, &tm.tm_mday))
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	t = (time_t)as_utc(&tm);
	/* timegm() takes February 30th for March 2nd. */
	if (!gmtime_r(&t, &check) || check.tm_mday != tm.tm_mday || check.tm_mon != tm.tm_mon)
		return -ERANGE;
	*ret_basic = basic;
	*ret_midnight = t;
	return 0;
}

static int parse_iso(const char *s, uint64_t *ret)
{
	struct clock_time c = {};
	int64_t local, offset = 0;
	bool basic, is_local = true;
	int r = take_date(&s, &basic, &local);

	if (r < 0)
		return r;
	if (*s) {
		if (*s != 'T' && *s != 't' && *s != ' ')
			return -EINVAL;
		s++;
		r = take_clock(&s, basic, &c);
		if (r >= 0)
			r = parse_offset(s, &is_local, &offset);
		if (r < 0)
			return r;
	}
	local += clock_seconds(&c);
	return to_wall_ns(is_local ? moment_of(local) : local - offset, c.fraction_ns, ret);
}

int time_parse(const char *s, uint64_t now_wall_ns, uint64_t *ret_wall_ns)
{
	const char *rest;

	if (streq(s, "now")) {
		*ret_wall_ns = now_wall_ns;
		return 0;
	}
	if (*s == '-')
		return parse_relative(s + 1, now_wall_ns, ret_wall_ns);
	if (*s == '@')
		return parse_epoch(s + 1, ret_wall_ns);
	rest = str_skip_prefix(s, "today");
	if (rest)
		return parse_day(rest, now_wall_ns, 0, ret_wall_ns);
	rest = str_skip_prefix(s, "yesterday");
	if (rest)
		return parse_day(rest, now_wall_ns, -1, ret_wall_ns);
	if (strlen(s) > 2 && s[2] == ':')
		return parse_clock(s, now_wall_ns, ret_wall_ns);
	return parse_iso(s, ret_wall_ns);
}
