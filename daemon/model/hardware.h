/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which hardware counters there are; their rows are ON_COUNTERS (profile.h). */
#pragma once

#include <stdbool.h>

/* What drives samples. Values are those of the configuration's on-cpu-event. */
enum sample_event {
	EVENT_CPU_CLOCK = 0,
	EVENT_CYCLES,
	EVENT_INSTRUCTIONS,
	EVENT_CACHE_MISSES,
	EVENT_BRANCH_MISSES,
	EVENT_N
};
const char *sample_event_name(enum sample_event event); /* "cpu-clock", "cache-misses", ... */
int sample_event_from_name(const char *name); /* enum sample_event or -EINVAL */
/* Which hardware counter it is: the kind of hardware_name(); not of cpu-clock. */
unsigned sample_event_kind(enum sample_event event);

#define HARDWARE_KINDS 6 /* as many as HARDWARE_COUNTERS of bpf/sysprofd.h */

struct hardware_state {
	bool counted; /* one of them at least */
	int error[HARDWARE_KINDS]; /* why there is none; 0: it is there */
	char why[192]; /* when none is counted: why, in one sentence */
};

const char *hardware_name(unsigned kind); /* "cycles", ... */
/* Of an error of hardware_state: "not a counter of this processor", ...; "" for 0. */
const char *hardware_absent(int error);
