/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which hardware counters there are; their rows are ON_COUNTERS (profile.h). */
#pragma once

#include <stdbool.h>

#define HARDWARE_KINDS 6 /* as many as HARDWARE_COUNTERS of bpf/sysprofd.h */

struct hardware_state {
	bool counted; /* one of them at least */
	int error[HARDWARE_KINDS]; /* why there is none; 0: it is there */
	char why[192]; /* when none is counted: why, in one sentence */
};

const char *hardware_name(unsigned kind); /* "cycles", ... */
/* Of an error of hardware_state: "not a counter of this processor", ...; "" for 0. */
const char *hardware_absent(int error);
