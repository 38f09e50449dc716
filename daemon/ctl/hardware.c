// SPDX-License-Identifier: GPL-2.0-or-later
#include "ctl/hardware.h"

void hardware_json(struct json *j, Sysprofd__V1__HardwareCounter *const *hardware, size_t n,
		   const char *no_hardware)
{
	if (n == 0 && str_empty(no_hardware))
		return; /* the daemon has not said yet */
	json_key(j, "hardware");
	json_object(j);
	for (size_t i = 0; i < n; i++) {
		json_key(j, hardware[i]->name);
		json_string(j, str_empty(hardware[i]->absent) ? "counted" : hardware[i]->absent);
	}
	if (!str_empty(no_hardware)) {
		json_key(j, "none");
		json_string(j, no_hardware);
	}
	json_object_end(j);
}

void hardware_text(const struct text *t, Sysprofd__V1__HardwareCounter *const *hardware, size_t n,
		   const char *no_hardware, const char *what, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	const char *reason = "";

	if (!str_empty(no_hardware))
		strbuf_printf(&line, "no hardware counters: %s", no_hardware);
	for (size_t i = 0; i < n; i++) {
		const char *absent = hardware[i]->absent;

		if (str_empty(absent))
			continue;
		/* Mostly one reason is that of all. */
		if (line.len && streq(absent, reason))
			strbuf_printf(&line, ", %s", hardware[i]->name);
		else
			strbuf_printf(&line, "%s%s: %s", line.len ? "; " : what, absent,
				      hardware[i]->name);
		reason = absent;
	}
	if (line.len)
		text_wrap(t, line.data ?: "", 2, out);
}
