// SPDX-License-Identifier: GPL-2.0-or-later
#include "collect/walk.h"

/* One walk. The source that is shared with the kernel asks for its surroundings by name, so they are found here. */
struct host {
	const struct walk_begin *begin;
	struct scratch *scratch;
	uint64_t node[UNWIND_NODE_SIZE / 8]; /* the last one that was read */
};
static _Thread_local struct host *host;

#define WALK_FN static
#define WALK_CONST static const
#define WALK_UNROLL
#define unwinding (host->begin->tables != NULL)
#define user_ip_mask (host->begin->ip_mask)
#include "../bpf/walk.h"

static struct scratch *scratch_at(u32 slot)
{
	return host->scratch;
}

static const void *walk_node(u32 node)
{
	const struct walk_tables *t = host->begin->tables;

	return node && t && t->node(t->ctx, node, host->node) ? host->node : NULL;
}

static int walk_rule(u32 rule, struct unwind_rule *ret)
{
	const struct walk_tables *t = host->begin->tables;

	return t && t->rule(t->ctx, rule, ret) ? 0 : -1;
}

static int walk_read(void *to, u32 size, u64 from)
{
	return host->begin->read(host->begin->read_ctx, to, size, from);
}

static struct walk_memo *walk_memo(u64 hash)
{
	return NULL;
}

/* What is known of others is all that there is. */
static int walk_young(u32 slot)
{
	return 1;
}

void walk_stack(const struct walk_begin *w, struct walk_result *ret)
{
	struct scratch scratch = {};
	struct host h = { .begin = w, .scratch = &scratch };

	scratch.walk.ip = w->ip;
	scratch.walk.sp = w->sp;
	scratch.walk.fp = w->fp;
	scratch.walk.word = w->word;
	scratch.walk.space = w->space;
	scratch.walk.known = w->regs ? WALK_KNOWS_ALL : WALK_KNOWS_NONE;
	if (w->regs)
		memcpy(scratch.regs, w->regs, sizeof(scratch.regs));
	host = &h;
	walk_user(0);
	host = NULL;
	ret->n = scratch.rec.nr_user;
	ret->n_fp = scratch.rec.nr_fp;
	ret->end = scratch.rec.walk_end;
	memcpy(ret->ips, scratch.ips, ret->n * sizeof(*ret->ips));
}
