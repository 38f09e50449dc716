/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What every export says about itself: where it lies in time, what it adds up to, what it lost. */
#pragma once

#include "base/strbuf.h"
#include "model/profile.h"

/* "on-cpu: 3.21 s in 61 samples". */
void caption_what(const struct profile *p, struct strbuf *out);
/* "2026-11-30T01:00:00Z to 2026-11-30T01:05:00Z, 299 s recorded at 19 Hz". */
void caption_when(const struct profile *p, struct strbuf *out);
/* What is missing: "lost 12 (count-map-full 12); not recorded: ... (stopped)"; "nothing lost". */
void caption_missing(const struct profile *p, struct strbuf *out);
