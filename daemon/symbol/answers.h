/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A bounded cache of symbol names by (binary, offset, kind). Two generations: when the young one holds half of
 * the limit it becomes the old one, and what the old one held and nobody asked for meanwhile is forgotten.
 * Not thread-safe.
 */
#pragma once

#include "base/index.h"
#include "base/util.h"

struct answer_key {
	uint64_t binary[2];
	uint64_t offset;
	uint32_t kind;
	uint32_t turn; /* 0: it holds for ever; compared as bytes, a key has no hole */
};

struct answer_entry {
	struct answer_key key;
	uint32_t name, system_name; /* into text; 0: none */
};

struct answer_generation {
	struct answer_entry *entries; /* [0] unused */
	size_t n, cap;
	char *text; /* [0] is NUL; equal strings are kept once */
	size_t n_text, cap_text;
	struct index by_key, by_text;
};

struct answers {
	uint64_t limit; /* bytes */
	struct answer_generation young, old;
};

void answers_init(struct answers *a, uint64_t limit);
void answers_done(struct answers *a);
uint64_t answers_bytes(const struct answers *a);

/* The strings are valid until the next call. An empty name is an answer too: no symbol there. */
bool answers_get(struct answers *a, const struct answer_key *key, const char **ret_name,
		 const char **ret_system_name);
int answers_put(struct answers *a, const struct answer_key *key, const char *name,
		const char *system_name);
