// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "ctl/time.h"

struct row {
	const char *zone, *now, *text, *expected; /* expected: UTC, "invalid" or "range" */
};

static const struct row rows[] = {
	/* relative */
	{ "UTC", "2026-11-30T12:00:00Z", "now", "2026-11-30T12:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-30s", "2026-11-30T11:59:30Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5min", "2026-11-30T11:55:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5m", "2026-11-30T11:55:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-1h30min", "2026-11-30T10:30:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-1h 30min", "2026-11-30T10:30:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-1.5h", "2026-11-30T10:30:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-250ms", "2026-11-30T11:59:59.750Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-2d", "2026-11-28T12:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-1w", "2026-11-23T12:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "-30", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-min", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5 min", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5min3", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5.5.5s", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-5fortnights", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "-99999999999999999999s", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "-100000d", "range" },
	/* days */
	{ "UTC", "2026-11-30T12:00:00Z", "today", "2026-11-30T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "today 14:00", "2026-11-30T14:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterday", "2026-11-29T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterday 14:00", "2026-11-29T14:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterday  14:00:05", "2026-11-29T14:00:05Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterday 24:00", "2026-11-30T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterday14:00", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "yesterdays", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "today 25:00", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "today 14", "invalid" },
	{ "UTC", "2026-01-01T00:30:00Z", "yesterday 14:00", "2025-12-31T14:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T16:00:00Z", "today", "2026-11-30T15:00:00Z" },
	{ "America/New_York", "2026-11-30T02:00:00Z", "today 01:00", "2026-11-29T06:00:00Z" },
	/* the latest such moment not in the future */
	{ "UTC", "2026-11-30T12:00:00Z", "11:59", "2026-11-30T11:59:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:00", "2026-11-30T12:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:01", "2026-11-29T12:01:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "23:50", "2026-11-29T23:50:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:00:00.5", "2026-11-29T12:00:00.500Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "00:00", "2026-11-30T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "24:00", "2026-11-30T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:60", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "1:30", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:3", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "12:30pm", "invalid" },
	/* epoch */
	{ "UTC", "2026-11-30T12:00:00Z", "@0", "1970-01-01T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "@1700000000", "2023-11-14T22:13:20Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "@1700000000.25", "2023-11-14T22:13:20.250Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "@", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "@-5", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "@1e9", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "@99999999999", "range" },
	/* ISO 8601 */
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30", "2026-11-29T15:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30T14:00", "2026-11-30T05:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30 14:00:05", "2026-11-30T05:00:05Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30T14:00Z", "2026-11-30T14:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30 14:00 UTC", "2026-11-30T14:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30T14:00:00.125+01:00",
	  "2026-11-30T13:00:00.125Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30T14:00:00-0530",
	  "2026-11-30T19:30:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "2026-11-30T14:00:00+02", "2026-11-30T12:00:00Z" },
	{ "Asia/Tokyo", "2026-11-30T12:00:00Z", "20261130T140005Z", "2026-11-30T14:00:05Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-11-30T24:00", "2026-12-01T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "2024-02-29", "2024-02-29T00:00:00Z" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-02-29", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-13-01", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-00-10", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "1969-12-31", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "2400-01-01", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-11-30T", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-11-30T14", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-11-30T14:00+1", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026-11-30T14:00:00+25:00", "range" },
	{ "UTC", "2026-11-30T12:00:00Z", "2026/11/30", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "tomorrow", "invalid" },
	{ "UTC", "2026-11-30T12:00:00Z", "Now", "invalid" },

	/* Clocks are put forward: Berlin, 2026-03-29, 02:00 becomes 03:00 (01:00 UTC). */
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "today", "2026-03-28T23:00:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "today 01:59", "2026-03-29T00:59:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "today 02:30", "2026-03-29T01:00:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "today 03:00", "2026-03-29T01:00:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "2026-03-29T02:30", "2026-03-29T01:00:00Z" },
	/* A time of day must have existed. */
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "02:30", "2026-03-28T01:30:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "03:00", "2026-03-29T01:00:00Z" },
	{ "Europe/Berlin", "2026-03-29T10:00:00Z", "23:50", "2026-03-28T22:50:00Z" },
	/* The day before by the calendar, not by 24 hours. */
	{ "Europe/Berlin", "2026-03-30T10:00:00Z", "yesterday", "2026-03-28T23:00:00Z" },
	{ "Europe/Berlin", "2026-03-30T10:00:00Z", "-1d", "2026-03-29T10:00:00Z" },
	{ "Europe/Berlin", "2026-03-29T22:30:00Z", "yesterday 14:00", "2026-03-29T12:00:00Z" },

	/* Clocks are put back: Berlin, 2026-10-25, 03:00 becomes 02:00 (01:00 UTC): 02:30 is 00:30 and 01:30 UTC. */
	{ "Europe/Berlin", "2026-10-25T10:00:00Z", "today", "2026-10-24T22:00:00Z" },
	{ "Europe/Berlin", "2026-10-25T10:00:00Z", "today 02:30", "2026-10-25T00:30:00Z" },
	{ "Europe/Berlin", "2026-10-25T10:00:00Z", "02:30", "2026-10-25T01:30:00Z" },
	{ "Europe/Berlin", "2026-10-25T01:15:00Z", "02:30", "2026-10-25T00:30:00Z" },
	{ "Europe/Berlin", "2026-10-25T00:45:00Z", "02:30", "2026-10-25T00:30:00Z" },
	{ "Europe/Berlin", "2026-10-25T00:15:00Z", "02:30", "2026-10-24T00:30:00Z" },
	{ "Europe/Berlin", "2026-10-25T10:00:00Z", "2026-10-25T02:30+01:00",
	  "2026-10-25T01:30:00Z" },
	{ "Europe/Berlin", "2026-10-26T10:00:00Z", "yesterday", "2026-10-24T22:00:00Z" },
	/* Half an hour: Lord Howe, 2026-04-05, 02:00 becomes 01:30 (15:00 UTC the day before). */
	{ "Australia/Lord_Howe", "2026-04-05T03:00:00Z", "01:45", "2026-04-04T15:15:00Z" },
	{ "Australia/Lord_Howe", "2026-04-05T03:00:00Z", "today 01:45", "2026-04-04T14:45:00Z" },
	/* A day that begins at 01:00: Sao Paulo, 2018-11-04. */
	{ "America/Sao_Paulo", "2018-11-04T12:00:00Z", "today", "2018-11-04T03:00:00Z" },
	{ "America/Sao_Paulo", "2018-11-05T12:00:00Z", "yesterday", "2018-11-04T03:00:00Z" },
	/* A day that never was: Apia, 2011-12-30. */
	{ "Pacific/Apia", "2011-12-31T10:30:00Z", "2011-12-30T12:00", "2011-12-30T10:00:00Z" },
	{ "Pacific/Apia", "2011-12-30T22:00:00Z", "23:00", "2011-12-30T09:00:00Z" },
	/* A zone behind Greenwich by many hours, ahead by many. */
	{ "Pacific/Kiritimati", "2026-11-30T09:59:00Z", "today", "2026-11-29T10:00:00Z" },
	{ "Pacific/Pago_Pago", "2026-11-30T10:59:00Z", "today", "2026-11-29T11:00:00Z" },
};

static uint64_t utc(const char *s)
{
	struct tm tm = {};
	const char *rest = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	unsigned ms = 0;

	assert_non_null(rest);
	if (*rest == '.')
		assert_int_equal(sscanf(rest, ".%3uZ", &ms), 1);
	return (uint64_t)timegm(&tm) * NSEC_PER_SEC + ms * NSEC_PER_MSEC;
}

static void test_times(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char buf[RFC3339_MAX];
		uint64_t t = 4711;
		const char *got;
		int r;

		setenv("TZ", rows[i].zone, 1);
		tzset();
		r = time_parse(rows[i].text, utc(rows[i].now), &t);
		got = r == -EINVAL ? "invalid" : r == -ERANGE ? "range" : format_rfc3339(t, buf);
		if (r < 0)
			assert_true(t == 4711);
		if (!streq(got, rows[i].expected))
			print_message("%s in %s at %s\n", rows[i].text, rows[i].zone, rows[i].now);
		assert_string_equal(got, rows[i].expected);
	}
}

/* At any moment of a year with changes of clocks: never in the future, never older than needed. */
static void test_clock_is_latest(void **state)
{
	static const char *const zones[] = { "Europe/Berlin", "America/New_York",
					     "Australia/Lord_Howe", "Asia/Kolkata" };

	for (size_t z = 0; z < ARRAY_SIZE(zones); z++) {
		setenv("TZ", zones[z], 1);
		tzset();
		for (int i = 0; i < 4000; i++) {
			uint64_t now = utc("2026-01-01T00:00:07Z") +
				       (uint64_t)i * 7919 * NSEC_PER_SEC,
				 t;
			char text[16];
			struct tm tm;

			snprintf(text, sizeof(text), "%02d:%02d", i % 24, i * 7 % 60);
			assert_int_equal(time_parse(text, now, &t), 0);
			assert_true(t <= now);
			/* At most one day, two where the time was skipped, and the hour that was added. */
			assert_true(now - t <= 49 * 3600 * NSEC_PER_SEC);
			assert_non_null(localtime_r(&(time_t){ (time_t)(t / NSEC_PER_SEC) }, &tm));
			assert_int_equal(tm.tm_hour, i % 24);
			assert_int_equal(tm.tm_min, i * 7 % 60);
		}
	}
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns; /* 0: refused */
	} table[] = {
		{ "10", 10 * NSEC_PER_SEC },
		{ "0.5", NSEC_PER_SEC / 2 },
		{ "10s", 10 * NSEC_PER_SEC },
		{ "5min", 300 * NSEC_PER_SEC },
		{ "1h30min", 5400 * NSEC_PER_SEC },
		{ "250ms", 250 * NSEC_PER_MSEC },
		{ "0", 0 },
		{ "0s", 0 },
		{ "-5s", 0 },
		{ "", 0 },
		{ "s", 0 },
		{ "5x", 0 },
		{ "1.", 0 },
		{ ".5", 0 },
		{ "99999999999999", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		uint64_t ns = 0;
		int r = duration_parse(table[i].text, &ns);

		assert_true(table[i].ns ? r == 0 : r < 0);
		assert_true(ns == table[i].ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_clock_is_latest),
		cmocka_unit_test(test_durations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
