// SPDX-License-Identifier: GPL-2.0-or-later
#include <elf.h>

#include "unwind/gap.h"

#define CODE_BLOCKS 4
#define ENTRY_BYTES 64 /* of an entry point without a length */
#define ALIGNMENT_MAX 64 /* of functions */

static const struct unwind_rule no_rule, end_rule = { .cfa = UNWIND_END },
					 signal_rule = { .cfa = UNWIND_SIGNAL };

int gaps_add_row(struct gaps *g, uint64_t vaddr, const struct unwind_rule *rule)
{
	return table_add_row(g->builder, (uint32_t)(vaddr - g->base), rule);
}

/* A part of the gap about which something is known; then the gap begins behind it. */
static int add_island(struct gaps *g, struct gap *gap, uint64_t start, uint64_t end,
		      const struct unwind_rule *rule)
{
	int r = 0;

	start = MAX(start, gap->start);
	end = MIN(end, gap->end);
	if (start >= end)
		return 0;
	if (start > gap->start)
		r = gaps_add_row(g, gap->start, &no_rule);
	if (r >= 0)
		r = gaps_add_row(g, start, rule);
	gap->start = end;
	return r;
}

/* ---- reading code ------------------------------------------------------------------------------ */

static const struct image_part *find_load(const struct gaps *g, uint64_t vaddr, size_t *ret_number)
{
	for (size_t i = 0; i < g->image->n_loads; i++) {
		const struct image_load *l = &g->image->loads[i];

		if (!l->executable || vaddr < l->part.vaddr ||
		    vaddr - l->part.vaddr >= l->part.size)
			continue;
		*ret_number = i;
		return &l->part;
	}
	return NULL;
}

static int get_code(struct gaps *g, uint64_t vaddr, size_t n, const uint8_t **ret)
{
	size_t number;
	const struct image_part *p = find_load(g, vaddr, &number);

	if (!p)
		return -EBADMSG;
	if (!g->code.blocks || g->code_load != number) {
		int r;

		reader_done(&g->code);
		r = reader_init(&g->code, g->image->fd, p->offset, p->size, CODE_BLOCKS);
		if (r < 0)
			return r;
		g->code_load = number;
	}
	return reader_get(&g->code, vaddr - p->vaddr, n, ret);
}

/* ---- the return from a signal handler ---------------------------------------------------------- */

struct code_pattern {
	uint32_t machine;
	uint8_t bytes[10];
	uint8_t n;
};

static const struct code_pattern sigreturns[] = {
	/* mov $15, %rax; syscall */
	{ EM_X86_64, { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 }, 9 },
	/* mov $15, %eax; syscall */
	{ EM_X86_64, { 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05 }, 7 },
	/* mov x8, #139; svc #0 */
	{ EM_AARCH64, { 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 }, 8 },
};
#define PATTERN_MIN 7
#define PATTERN_MAX 9

static const struct code_pattern *find_sigreturn(uint32_t machine, const uint8_t *code, size_t n,
						 size_t *ret_at)
{
	const struct code_pattern *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(sigreturns); i++) {
		const struct code_pattern *s = &sigreturns[i];
		const uint8_t *q = NULL;

		if (s->machine == machine)
			q = memmem(code, n, s->bytes, s->n);
		if (q && (!first || (size_t)(q - code) < *ret_at)) {
			*ret_at = (size_t)(q - code);
			first = s;
		}
	}
	return first;
}

static int scan_chunk(struct gaps *g, struct gap *gap, uint64_t vaddr, const uint8_t *code,
		      size_t n)
{
	const struct code_pattern *s;
	size_t at = 0, found = 0;

	while ((s = find_sigreturn(g->image->machine, code + at, n - at, &found))) {
		int r;

		/*
		 * From the byte before it: the walker looks a return address up there, and that of a handler
		 * is the pattern's first byte.
		 */
		at += found;
		r = add_island(g, gap, vaddr + at - 1, vaddr + at + s->n, &signal_rule);
		if (r < 0)
			return r;
		at += s->n;
	}
	return 0;
}

static int scan_section(struct gaps *g, struct gap *gap, uint64_t start, uint64_t end)
{
	while (start < end && end - start >= PATTERN_MIN) {
		size_t n = (size_t)MIN(end - start, (uint64_t)READER_BLOCK);
		const uint8_t *code;
		int r = get_code(g, start, n, &code);

		if (r >= 0)
			r = scan_chunk(g, gap, start, code, n);
		if (r < 0)
			return r;
		if (n == end - start)
			break;
		/* One may begin here and end in the next chunk. */
		start = MAX(start + n - (PATTERN_MAX - 1), gap->start);
	}
	return 0;
}

/* Bytes that align what begins behind them; to read all code for their sake would be a waste. */
static bool is_padding(uint64_t start, uint64_t end)
{
	uint64_t alignment = MIN(end & -end, (uint64_t)ALIGNMENT_MAX);

	return end - start < MAX(alignment, (uint64_t)PATTERN_MIN);
}

/* Up to `end`, without what is no code: segments may hold constants as well, and many. */
static int scan(struct gaps *g, struct gap *gap, uint64_t end)
{
	int r = 0;

	if (gap->start >= end || is_padding(gap->start, end))
		return 0;
	for (size_t i = 0; r >= 0 && i < g->image->n_code; i++) {
		const struct image_part *p = &g->image->code[i];

		r = scan_section(g, gap, MAX(gap->start, p->vaddr), MIN(end, p->vaddr + p->size));
	}
	return r;
}

/* ---- what the linker and the C library's start files make -------------------------------------- */

#define STUB 16
#define STUB_MIN 8 /* bytes, of those that have no number to push */
#define USUAL .ra = UNWIND_AT_CFA, .ra_off = -8

/* What of it is known, row by row; the last one holds to the section's end. */
struct linkage {
	struct {
		uint32_t at;
		struct unwind_rule rule;
	} rows[3];
	size_t n;
};

static void add_stub(struct linkage *l, uint32_t at, struct unwind_rule rule)
{
	l->rows[l->n].at = at;
	l->rows[l->n++].rule = rule;
}

static bool begins(const uint8_t *code, const char *bytes, size_t n)
{
	return memcmp(code, bytes, n) == 0;
}

/* The number of the symbol is pushed at some point of a stub, and in the first stub one word more. */
static void know_x86_64(const uint8_t *code, struct linkage *l)
{
	static const struct unwind_rule called = { .cfa = UNWIND_SP, .cfa_off = 8, USUAL },
					pushed = { .cfa = UNWIND_SP, .cfa_off = 16, USUAL },
					pushed_two = { .cfa = UNWIND_SP, .cfa_off = 24, USUAL };
	static const struct unwind_rule lazy = { .cfa = UNWIND_PLT, .cfa_off = 11, USUAL },
					lazy_ibt = { .cfa = UNWIND_PLT, .cfa_off = 9, USUAL };
	uint32_t at = 0;

	/* push *GOT; jmp *GOT */
	if (begins(code, "\xff\x35", 2)) {
		add_stub(l, 0, pushed);
		add_stub(l, 6, pushed_two);
		at = STUB;
		code += at;
	}
	if (begins(code, "\xff\x25", 2) && code[6] == 0x68)
		add_stub(l, at, lazy);
	else if (begins(code, "\xf3\x0f\x1e\xfa\x68", 5))
		add_stub(l, at, lazy_ibt);
	else if (begins(code, "\xff\x25", 2) || begins(code, "\xf3\x0f\x1e\xfa\xff\x25", 6) ||
		 begins(code, "\xf3\x0f\x1e\xfa\xf2\xff\x25", 7))
		add_stub(l, at, called);
	else
		l->n = 0;
}

/* .init and .fini: a function, begun and ended by the C library's start files, that makes room for 8 bytes. */
static void know_frame(const uint8_t *code, size_t n, struct linkage *l)
{
	static const struct unwind_rule called = { .cfa = UNWIND_SP, .cfa_off = 8, USUAL },
					aligned = { .cfa = UNWIND_SP, .cfa_off = 16, USUAL };
	uint32_t at = begins(code, "\xf3\x0f\x1e\xfa", 4) ? 4 : 0;

	/* sub $8, %rsp; ...; add $8, %rsp; ret */
	if (n < at + 9 || !begins(code + at, "\x48\x83\xec\x08", 4) ||
	    !begins(code + n - 5, "\x48\x83\xc4\x08\xc3", 5))
		return;
	add_stub(l, 0, called);
	add_stub(l, at + 4, aligned);
	add_stub(l, (uint32_t)n - 1, called);
}

/* The first stub saves the link register; the others leave all as it is. */
static void know_arm64(const uint8_t *code, struct linkage *l)
{
	static const struct unwind_rule called = { .cfa = UNWIND_SP },
					saved = { .cfa = UNWIND_SP, .cfa_off = 16, USUAL };
	static const uint32_t bti = 0xd503245f, save = 0xa9bf7bf0; /* stp x16, x30, [sp, #-16]! */
	uint32_t words[2], at = 4;

	memcpy(words, code, sizeof(words));
	add_stub(l, 0, called);
	if (words[0] == bti) {
		words[0] = words[1];
		at += 4;
	}
	if (words[0] == save) {
		add_stub(l, at, saved);
		add_stub(l, 2 * STUB, called);
	} else if ((words[0] & 0x9f00001f) != 0x90000010) { /* adrp x16 */
		l->n = 0;
	}
}

static int fill_linkage(struct gaps *g, struct gap *gap, const struct image_part *p)
{
	struct linkage l = {};
	const uint8_t *code;
	int r = 0;

	if (p->size < STUB_MIN ||
	    get_code(g, p->vaddr, (size_t)MIN(p->size, 2ULL * STUB), &code) < 0)
		return 0;
	if (p->size < 2 * STUB && begins(code, "\xff\x35", 2))
		return 0;
	if (g->image->machine == EM_X86_64)
		know_x86_64(code, &l);
	else
		know_arm64(code, &l);
	if (!l.n && g->image->machine == EM_X86_64 && p->size <= 2 * STUB)
		know_frame(code, p->size, &l);
	for (size_t i = 0; r >= 0 && i < l.n; i++) {
		uint64_t end = i + 1 < l.n ? l.rows[i + 1].at : p->size;

		r = add_island(g, gap, p->vaddr + l.rows[i].at, p->vaddr + MIN(end, p->size),
			       &l.rows[i].rule);
	}
	return r;
}

/* ---- a gap ------------------------------------------------------------------------------------- */

/* The next linkage table that begins in the gap at or behind this address, and before `end`. */
static const struct image_part *next_linkage(const struct image *m, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < m->n_linkage; i++)
		if (m->linkage[i].vaddr >= start && m->linkage[i].vaddr < end)
			return &m->linkage[i];
	return NULL;
}

/* Up to the entry point, or the end. */
static int fill_before(struct gaps *g, struct gap *gap, uint64_t end)
{
	const struct image_part *p;
	uint64_t from = gap->start;
	int r = 0;

	while (r >= 0 && (p = next_linkage(g->image, from, end))) {
		r = scan(g, gap, p->vaddr);
		if (r >= 0)
			r = fill_linkage(g, gap, p);
		from = p->vaddr + 1;
	}
	return r < 0 ? r : scan(g, gap, end);
}

int gaps_fill(struct gaps *g, uint64_t start, uint64_t end)
{
	uint64_t entry = g->image->entry;
	struct gap gap = { start, end };
	int r = 0;

	if (entry && entry >= start && entry < end) {
		r = fill_before(g, &gap, entry);
		if (r >= 0)
			r = add_island(g, &gap, entry, entry + ENTRY_BYTES, &end_rule);
	}
	if (r >= 0)
		r = fill_before(g, &gap, end);
	if (r >= 0 && gap.start < end)
		r = gaps_add_row(g, gap.start, &no_rule);
	return r;
}
