// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The walk of user stacks with everything made up: registers, memory, mappings, nodes and rules are bytes of the input,
 * used over and over. Whatever they are, it ends, and within its record.
 */
#include "collect/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t size;
	uint64_t reads;
};

/* Bytes from a place that depends on what is asked for. */
static void fill(struct input *in, uint64_t key, void *to, size_t n)
{
	uint8_t *p = to;
	size_t at = (size_t)(key * 0x9e3779b97f4a7c15ULL % in->size);

	for (size_t i = 0; i < n; i++)
		p[i] = in->data[(at + i) % in->size];
}

static bool read_node(void *ctx, uint32_t node, void *ret)
{
	fill(ctx, node, ret, UNWIND_NODE_SIZE);
	return node % 7 != 1;
}

static bool read_rule(void *ctx, uint32_t rule, struct unwind_rule *ret)
{
	fill(ctx, rule + 1, ret, sizeof(*ret));
	ret->cfa %= UNWIND_CFA_N + 1;
	return rule < UNWIND_RULES;
}

static int read_memory(void *ctx, void *to, uint32_t size, uint64_t from)
{
	struct input *in = ctx;

	in->reads++;
	if (from % 13 == 0)
		return -EFAULT;
	fill(in, from & ~7ULL, to, size);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	const struct walk_tables tables = { .ctx = &in, .node = read_node, .rule = read_rule };
	uint64_t regs[64] = {};
	struct walk_begin w = {
		.ip_mask = ~0ULL,
		.read = read_memory,
		.read_ctx = &in,
	};
	struct walk_result r;

	if (size < 16)
		return 0;
	fill(&in, 1, regs, sizeof(regs));
	w.ip = regs[0] & 0xffffffffffffULL;
	w.sp = regs[1];
	w.fp = regs[2];
	w.word = data[0] & 1 ? 8 : 4;
	w.regs = data[0] & 2 ? regs : NULL;
	w.tables = data[0] & 4 ? NULL : &tables;
	w.space.node = data[1];
	w.space.deep = data[2] & 1;
	walk_stack(&w, &r);
	/* Two readings a frame, one more for the signal's. */
	if (r.n > MAX_USER_FRAMES || r.end >= WALK_END_N || in.reads > 4 * (MAX_USER_FRAMES + 1))
		abort();
	return 0;
}
