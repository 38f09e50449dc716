// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <stdio.h>

#include "export/human.h"

/* Three significant digits. */
static const char *scaled(double v, const char *unit, char buf[static HUMAN_MAX])
{
	int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;

	snprintf(buf, HUMAN_MAX, "%.*f %s", digits, v, unit);
	return buf;
}

static const char *two_units(uint64_t major, const char *a, uint64_t minor, const char *b,
			     char buf[static HUMAN_MAX])
{
	if (minor)
		snprintf(buf, HUMAN_MAX, "%" PRIu64 " %s %" PRIu64 " %s", major, a, minor, b);
	else
		snprintf(buf, HUMAN_MAX, "%" PRIu64 " %s", major, a);
	return buf;
}

const char *human_duration(uint64_t ns, char buf[static HUMAN_MAX])
{
	uint64_t s = ns / NSEC_PER_SEC;

	if (ns == 0)
		return "0";
	if (ns < 1000) {
		snprintf(buf, HUMAN_MAX, "%" PRIu64 " ns", ns);
		return buf;
	}
	/* The bounds lie where the printed digits would read 1000. */
	if (ns < 999500)
		return scaled((double)ns / 1e3, "us", buf);
	if (ns < 999500000)
		return scaled((double)ns / 1e6, "ms", buf);
	if (s < 120)
		return scaled((double)ns / 1e9, "s", buf);
	if (s < 2 * 3600)
		return two_units(s / 60, "min", s % 60, "s", buf);
	if (s < 48 * 3600)
		return two_units(s / 3600, "h", s % 3600 / 60, "min", buf);
	return two_units(s / 86400, "d", s % 86400 / 3600, "h", buf);
}

const char *human_count(uint64_t n, char buf[static HUMAN_MAX])
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n), o = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			buf[o++] = ',';
		buf[o++] = digits[i];
	}
	buf[o] = 0;
	return buf;
}

const char *human_bytes(uint64_t n, char buf[static HUMAN_MAX])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)n;
	size_t u = 0;

	while (v >= 1000 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	if (u)
		return scaled(v, units[u], buf);
	snprintf(buf, HUMAN_MAX, "%" PRIu64 " B", n);
	return buf;
}

const char *human_share(double part, double whole, char buf[static HUMAN_MAX])
{
	double percent;

	if (!(whole > 0))
		return "-";
	percent = part / whole * 100;
	snprintf(buf, HUMAN_MAX, "%.*f %%", percent < 9.995 ? 2 : 1, percent);
	return buf;
}

const char *human_value(enum profile_type type, uint64_t value, char buf[static HUMAN_MAX])
{
	return type == PROFILE_SYSCALLS ? human_count(value, buf) : human_duration(value, buf);
}

const char *human_weight(const struct profile *p, uint64_t value, char buf[static HUMAN_MAX])
{
	return p->event ? human_count(value, buf) : human_value(p->type, value, buf);
}
