/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an unwinder has installed, for the walk on the host. */
#pragma once

#include "collect/walk.h"
#include "unwind/unwinder.h"

static bool find_space(void *ctx, uint32_t tgid, uint64_t start, struct unwind_process *ret)
{
	return unwinder_space(ctx, tgid, start, ret);
}

static bool read_node(void *ctx, uint32_t node, void *ret)
{
	return unwinder_node(ctx, node, ret);
}

static bool read_rule(void *ctx, uint32_t rule, struct unwind_rule *ret)
{
	return unwinder_rule(ctx, rule, ret);
}

static struct walk_tables tables_of(struct unwinder *u)
{
	return (struct walk_tables){
		.ctx = u, .space = find_space, .node = read_node, .rule = read_rule
	};
}
