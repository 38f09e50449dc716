/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How busy the host is by its own account: totals since it started, for differences. */
#pragma once

#include "model/profile.h"

struct load {
	uint64_t busy_us; /* of all CPUs, on anything but idling; 0 when it cannot be read */
	bool pressure_known;
	uint64_t pressure_us[PRESSURE_N];
};
void load_read(struct load *ret);
/* One file of /proc/pressure: the totals of its lines; false when it has no line "some". No "full": 0. */
bool pressure_parse(const char *text, uint64_t *ret_some_us, uint64_t *ret_full_us);
/* From `before` to `now`, into the bucket's metadata. */
void load_difference(const struct load *before, const struct load *now, struct bucket_meta *m);
