/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interned, reference-counted strings: comm, thread names and paths of ten thousand processes are a few
 * hundred distinct ones. Every name is sanitised (base/utf8.h) when it enters. Not thread-safe.
 */
#pragma once

#include "base/index.h"
#include "base/util.h"

struct name {
	uint32_t refs;
	uint32_t id;
	uint64_t hash;
	size_t len;
	char s[];
};

struct names {
	struct index index;
	struct name **items; /* [0] unused */
	size_t n, cap;
	uint32_t *unused; /* ids to use again */
	size_t n_unused, cap_unused;
	size_t bytes;
};

/* The name for these bytes, with a reference for the caller; NULL without memory. */
struct name *names_get(struct names *ns, const char *s, size_t len);
struct name *name_ref(struct name *n); /* NULL gives NULL */
struct name *names_put(struct names *ns, struct name *n); /* NULL is fine; returns NULL */
void names_done(struct names *ns);

static inline const char *name_str(const struct name *n)
{
	return n ? n->s : "";
}

/* Takes over `n` in place of *slot. */
static inline void names_set(struct names *ns, struct name **slot, struct name *n)
{
	names_put(ns, *slot);
	*slot = n;
}
