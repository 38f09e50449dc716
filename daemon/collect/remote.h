/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User stacks of other processes' threads that do not run, read through /proc/TID/mem.
 *
 * Reading foreign memory may wait for whoever backs it (a FUSE server, a swap device), so it is done by a
 * thread of its own that the caller need not wait for. Pages that are not resident are left alone: looking at
 * a sleeper must not bring its memory back. What was read counts only if the thread is found in the same
 * wait afterwards; that is the caller's to check.
 */
#pragma once

#include "collect/walk.h"

struct remote_stack {
	uint32_t tgid, tid;
	uint64_t start; /* of the process */
	uint64_t ip, sp, fp; /* user registers */
	uint32_t word; /* size of a saved register: 8 or 4 */
	uint32_t tag; /* the caller's */
	/* Result */
	uint64_t *ips; /* leaf first */
	uint16_t n;
	uint16_t n_fp; /* steps that went by the frame pointer */
	uint8_t end; /* enum walk_end; WALK_PENDING: memory could not be opened */
};

struct remote_options {
	const char *proc;
	uint64_t ip_mask;
	const struct walk_tables *tables; /* lent; NULL: by frame pointers alone */
};

/* Walks in the calling thread. */
void remote_stacks_read(const struct remote_options *o, struct remote_stack *stacks, size_t n);

struct remote_reader;
int remote_reader_new(const struct remote_options *o, struct remote_reader **ret);
/* Does not wait for a reader that hangs. */
struct remote_reader *remote_reader_free(struct remote_reader *r);
DEFINE_CLEANUP(struct remote_reader *, remote_reader_free)

/*
 * Reads for at most timeout_ns. *ret_done stacks from the front have a result, to which the caller then owns
 * the ips. -EBUSY while an earlier reading hangs.
 */
int remote_reader_run(struct remote_reader *r, struct remote_stack *stacks, size_t n,
		      uint64_t timeout_ns, size_t *ret_done);
