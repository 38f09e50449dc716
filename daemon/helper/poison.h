/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Binaries that kill the helper or make it hang: two failures poison one for an hour. As many are remembered as fit,
 * the oldest is forgotten first. Not thread-safe.
 */
#pragma once

#include <stdatomic.h>

#include "base/util.h"

struct identity {
	uint64_t hash[2];
};

struct strike {
	struct identity binary;
	unsigned n;
	uint64_t mono_ns; /* of the latest */
};

#define STRIKES_MAX 1024

struct poison {
	struct strike strikes[STRIKES_MAX];
	size_t n, next;
	atomic_uint_fast64_t poisoned; /* readable at any time */
};

bool is_poisoned(struct poison *p, const struct identity *binary);
void poison_strike(struct poison *p, const struct identity *binary);
