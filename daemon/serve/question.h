/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What methods that put a question to history have in common. Worker threads. */
#pragma once

#include "export/wire.h"
#include "serve/internal.h"

static inline void release_selection(struct selection *s)
{
	selection_release(s);
}
#define _cleanup_selection_ _cleanup_(release_selection)
#define _cleanup_source_ _cleanup_(source_close)
DEFINE_CLEANUP(Sysprofd__V1__Profile *, wire_profile_free)
DEFINE_CLEANUP(Sysprofd__V1__Coverage *, wire_coverage_free)

/* Pointers to n messages in one block, to be filled; freed as _cleanup_table_. */
int table_new(const ProtobufCMessageDescriptor *d, size_t n, void *ret);
void free_table(void *p);
#define _cleanup_table_ _cleanup_(free_table)

/* `asked`, or `otherwise` for 0; more than max is the caller's error, in which `what` is named. */
int check_limit(struct call *c, uint32_t asked, uint32_t otherwise, uint32_t max, const char *what,
		uint32_t *ret);
/* Tokens are opaque to clients, and to us the number of rows that came before. */
int read_token(struct call *c, const char *token, uint32_t max, uint32_t *ret);
static inline void fill_interval(Sysprofd__V1__CallInterval *m, const struct interval *from)
{
	m->low = from->low;
	m->unbounded = from->high == UINT64_MAX;
	m->high = m->unbounded ? 0 : from->high;
}

/* kernel-locks.c: what Locks answers when it is asked for those of the kernel. */
int answer_kernel_locks(struct call *c, const struct source *src, const struct selection *sel,
			uint32_t limit, uint32_t waiters);
/* The selection as the peer may ask it, and where the answer comes from. */
int question_begin(struct call *c, struct worker *w, const Sysprofd__V1__Selection *m,
		   struct selection *sel, struct source *src);
