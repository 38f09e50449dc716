/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the process table, which knows who maps what, and the unwinder, which installs it for the walks: processes
 * that were sampled are installed, and followed while they live. Belongs to the drain thread; only the tables are read
 * by other threads, and the supplier opens binaries in its own.
 */
#pragma once

#include "collect/collect.h"
#include "collect/process.h"
#include "unwind/supplier.h"

struct unwinding;

/* cache: directory for tables, made if it is not there; NULL: none. -errno: user stacks go by frame pointers. */
int unwinding_new(struct process_table *processes, const char *cache, uint64_t memory_max,
		  struct unwinding **ret);
struct unwinding *unwinding_free(struct unwinding *u);
DEFINE_CLEANUP(struct unwinding *, unwinding_free)

/* For collectors, valid as long as this. NULL is taken for none. */
const struct walk_tables *unwinding_tables(const struct unwinding *u);

/* After the process table was polled: what the installed ones map now, and which have gone. */
void unwinding_follow(struct unwinding *u);
/* After a window, whose grace period has passed: installs the processes of its stacks. */
void unwinding_see(struct unwinding *u, const struct slice *s);
/* Frames of these binaries were in samples. */
void unwinding_used(struct unwinding *u, const uint64_t *binaries, size_t n);

struct unwinding_state {
	bool running;
	struct unwinder_stats unwinder;
	struct supplier_stats supplier;
};
void unwinding_state(struct unwinding *u, struct unwinding_state *ret);
