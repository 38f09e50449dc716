/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An open-addressing index from a 64-bit hash to a 32-bit id of something that lives in the caller's
 * own array. The index never sees the keys: the caller compares. Removal is by rebuilding, except for
 * index_del(), which shifts the run back. Not thread-safe.
 */
#pragma once

#include "base/util.h"

struct index_slot {
	uint64_t hash;
	uint32_t id; /* 0 = free */
};

struct index {
	struct index_slot *slots;
	size_t mask; /* number of slots - 1, or 0 when nothing is allocated */
	size_t n;
};

typedef bool (*index_equal_fn)(const void *ctx, uint32_t id, const void *key);

/* The id (>= 1) whose entry equals key, or 0. */
uint32_t index_find(const struct index *x, uint64_t hash, index_equal_fn equal, const void *ctx,
		    const void *key);
/* Makes room for n more, so that adding them moves nothing. */
int index_reserve(struct index *x, size_t n) _warn_unused_;
/* Adds id (>= 1); the caller knows that it is not there. */
int index_add(struct index *x, uint64_t hash, uint32_t id) _warn_unused_;
void index_del(struct index *x, uint64_t hash, uint32_t id);
void index_clear(struct index *x);
void index_done(struct index *x);
