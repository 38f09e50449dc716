/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Units of work reported since the last bucket: added up by name and labels, put into the bucket when it closes. */
#pragma once

#include <pthread.h>

#include "model/profile.h"

#define WORK_ENTRIES_MAX 256 /* distinct (name, labels) per bucket */
#define WORK_TEXT_MAX 512 /* bytes of name and labels together */

struct work_entry {
	char *text; /* name{key="value",...}, keys in order */
	uint64_t count;
};

struct work {
	pthread_mutex_t lock;
	struct work_entry entries[WORK_ENTRIES_MAX];
	size_t n, n_plain; /* all, and those of peers without privilege */
	uint64_t refused;
};

void work_init(struct work *w);
void work_done(struct work *w);
/*
 * -EINVAL: a name or label that is empty, too long, or holds other than letters, digits, _ . : / -. -ENOSPC: no more
 * entries; peers without privilege have half of them.
 */
int work_add(struct work *w, const char *name, const char *const *labels, size_t n_labels,
	     uint64_t count, bool privileged);
uint64_t work_refused(struct work *w);
/* Moves all into the bucket; what there is no memory for stays for the next one. */
int work_take(struct work *w, struct bucket *b);
