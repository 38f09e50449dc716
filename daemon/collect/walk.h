/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk of bpf/walk.h on the host: of the same tables, over memory that the caller reads. For threads that do not
 * run, and for tests.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"

/* The unwind tables, as whoever installs them (daemon/unwind) lends them to collectors. */
struct walk_tables {
	int processes, files, strangers, young, nodes, rules, controls; /* maps */
	void *ctx;
	/* What a process maps; false when that is not known. */
	bool (*space)(void *ctx, uint32_t tgid, uint64_t start, struct unwind_process *ret);
	bool (*node)(void *ctx, uint32_t node, void *ret);
	bool (*rule)(void *ctx, uint32_t rule, struct unwind_rule *ret);
};

/* Where a walk begins, and what it may read. */
struct walk_begin {
	uint64_t ip, sp, fp;
	const uint64_t *
		regs; /* all user registers (bpf/regs.h), or NULL when only those three are known */
	uint32_t word; /* size of a saved register: 8, or 4 */
	uint64_t ip_mask;
	const struct walk_tables *tables; /* NULL: by frame pointers alone */
	struct unwind_process space; /* node 0: not known */
	/* 0, or an error: the walk ends there. */
	int (*read)(void *ctx, void *to, uint32_t size, uint64_t from);
	void *read_ctx;
};

struct walk_result {
	uint64_t ips[MAX_USER_FRAMES]; /* leaf first */
	uint16_t n;
	uint16_t n_fp; /* steps that went by the frame pointer */
	uint8_t end; /* enum walk_end */
};
void walk_stack(const struct walk_begin *w, struct walk_result *ret);
