/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Hardware counters, as counters and status show them. */
#pragma once

#include "ctl/json.h"
#include "ctl/text.h"
#include "sysprofd/v1/profile.pb-c.h"

void hardware_json(struct json *j, Sysprofd__V1__HardwareCounter *const *hardware, size_t n,
		   const char *no_hardware);
/*
 * A line that says which ones are absent and why, or why there are none; nothing when there are all. `what` is put
 * before it.
 */
void hardware_text(const struct text *t, Sysprofd__V1__HardwareCounter *const *hardware, size_t n,
		   const char *no_hardware, const char *what, struct strbuf *out);
