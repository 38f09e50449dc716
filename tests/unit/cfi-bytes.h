/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Call frame information written byte by byte, and in words what the interpreter makes of it. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dwarf.h>
#include <elf.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "unwind/cfi.h"

#define FRAMES 0x500000 /* address of .eh_frame */
#define HEADER 0x4ff000
#define CODE 0x401000
#define SIZE 0x100

/* ---- writing sections -------------------------------------------------------------------------- */

struct bytes {
	uint8_t b[65536];
	size_t n;
};

#define B(...) ((const uint8_t[]){ __VA_ARGS__ }), sizeof((const uint8_t[]){ __VA_ARGS__ })

static void put(struct bytes *x, const void *p, size_t n)
{
	assert_true(x->n + n <= sizeof(x->b));
	memcpy(x->b + x->n, p, n);
	x->n += n;
}

static void put_number(struct bytes *x, uint64_t v, size_t size)
{
	put(x, &v, size);
}

static size_t begin_record(struct bytes *x)
{
	put_number(x, 0, 4);
	return x->n;
}

static void end_record(struct bytes *x, size_t body)
{
	uint32_t len;

	while ((x->n - body) % 4)
		put_number(x, DW_CFA_nop, 1);
	len = (uint32_t)(x->n - body);
	memcpy(x->b + body - 4, &len, 4);
}

/* rsp + 8, return address at CFA - 8. */
#define USUAL B(DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1)

/* `rest`: from the augmentation's length on; then the usual instructions. */
static size_t put_cie(struct bytes *x, const char *augmentation, const uint8_t *rest, size_t n_rest,
		      const uint8_t *instructions, size_t n)
{
	size_t start = x->n, body = begin_record(x);

	put_number(x, 0, 4);
	put(x, B(1));
	put(x, augmentation, strlen(augmentation) + 1);
	put(x, B(1, 0x78, 16));
	put(x, rest, n_rest);
	put(x, instructions, n);
	end_record(x, body);
	return start;
}

static size_t put_usual_cie(struct bytes *x)
{
	return put_cie(x, "zR", B(1, DW_EH_PE_pcrel | DW_EH_PE_sdata4), USUAL);
}

static size_t put_fde(struct bytes *x, size_t cie, uint64_t start, uint32_t size,
		      const uint8_t *instructions, size_t n)
{
	size_t at = x->n, body = begin_record(x);

	put_number(x, body - cie, 4);
	put_number(x, start - (FRAMES + x->n), 4);
	put_number(x, size, 4);
	put(x, B(0));
	put(x, instructions, n);
	end_record(x, body);
	return at;
}

/* ---- reading them ------------------------------------------------------------------------------ */

static void put_place(struct strbuf *s, const char *what, uint8_t where, int off)
{
	static const char *const names[] = { "same", "cfa", "fp", "lost", "beside", "r" };

	assert_true(where < ARRAY_SIZE(names));
	if (where == UNWIND_AT_CFA || where == UNWIND_AT_FP || where == UNWIND_BESIDE_FP)
		strbuf_printf(s, " %s=%s%+d", what, names[where], off);
	else if (where == UNWIND_IN_REG)
		strbuf_printf(s, " %s=r%d", what, off);
	else
		strbuf_printf(s, " %s=%s", what, names[where]);
}

static void put_cfa(struct strbuf *s, const struct unwind_rule *r)
{
	switch (r->cfa) {
	case UNWIND_SP:
		strbuf_printf(s, "sp%+d", r->cfa_off);
		break;
	case UNWIND_FP:
		strbuf_printf(s, "fp%+d", r->cfa_off);
		break;
	case UNWIND_REG:
		strbuf_printf(s, "r%u%+d", (unsigned)r->cfa_add, r->cfa_off);
		break;
	case UNWIND_FP_DEREF:
		strbuf_printf(s, "*(fp%+d)%+d", r->cfa_off, r->cfa_add);
		break;
	case UNWIND_SP_DEREF:
		strbuf_printf(s, "*(sp%+d)%+d", r->cfa_off, r->cfa_add);
		break;
	case UNWIND_PLT:
		strbuf_printf(s, "plt%+d", r->cfa_off);
		break;
	case UNWIND_SP_R9:
		strbuf_printf(s, "*(sp+r9*8%+d)%+d", r->cfa_off, r->cfa_add);
		break;
	default:
		fail_msg("rule %u", r->cfa);
	}
}

/* The usual return address is not said, nor a frame pointer that is unchanged. */
static void put_rule(struct strbuf *s, const struct unwind_rule *r)
{
	static const struct unwind_rule end = { .cfa = UNWIND_END },
					signal = { .cfa = UNWIND_SIGNAL },
					unsupported = { .cfa = UNWIND_UNSUPPORTED };

	if (memcmp(r, &end, sizeof(end)) == 0) {
		strbuf_puts(s, "end");
	} else if (memcmp(r, &signal, sizeof(signal)) == 0) {
		strbuf_puts(s, "signal");
	} else if (memcmp(r, &unsupported, sizeof(unsupported)) == 0) {
		strbuf_puts(s, "unsupported");
	} else {
		put_cfa(s, r);
		if (r->fp != UNWIND_SAME)
			put_place(s, "fp", r->fp, r->fp_off);
		if (r->ra != UNWIND_AT_CFA || r->ra_off != -8)
			put_place(s, "ra", r->ra, r->ra_off);
		if (r->base != UNWIND_BASE_SAME)
			put_place(s, "base", r->base < 0 ? UNWIND_AT_CFA : UNWIND_LOST,
				  r->base * 8);
	}
}

static int say_function(void *ctx, const struct cfi_function *f)
{
	struct strbuf *s = ctx;

	if (s->len)
		strbuf_puts(s, "\n");
	strbuf_printf(s, "%lx-%lx", f->start, f->end);
	for (size_t i = 0; i < f->n; i++) {
		assert_true(i ? f->rows[i].pc > f->rows[i - 1].pc : !f->rows[i].pc);
		assert_true(f->start + f->rows[i].pc < f->end);
		strbuf_printf(s, " %x:", f->rows[i].pc);
		put_rule(s, &f->rows[i].rule);
	}
	return 0;
}

static struct cfi_counts counts;

static int read_source(const struct cfi_source *s, struct strbuf *said)
{
	counts = (struct cfi_counts){};
	return cfi_read(s, 1, say_function, said, &counts);
}

/* In memory of exactly this size, so that a sanitizer sees what lies behind. */
static const char *say_frames(const void *data, size_t size, uint32_t machine, bool debug)
{
	static struct strbuf said;
	_cleanup_free_ uint8_t *copy = malloc(size + !size);
	_cleanup_(reader_done) struct reader r = {};
	struct cfi_source s = { .machine = machine, .frames = &r, .vaddr = FRAMES, .debug = debug };

	memcpy(copy, data, size);
	reader_init_memory(&r, copy, size);
	strbuf_done(&said);
	assert_int_equal(read_source(&s, &said), 0);
	return said.len ? said.data : "";
}

static const char *say(const struct bytes *x)
{
	return say_frames(x->b, x->n, EM_X86_64, false);
}

static const char *say_instructions(const uint8_t *instructions, size_t n)
{
	static struct bytes x;
	size_t cie;

	x.n = 0;
	cie = put_usual_cie(&x);
	put_fde(&x, cie, CODE, SIZE, instructions, n);
	return say(&x);
}

#define EXPECT(expected, ...) \
	assert_string_equal(say_instructions(B(__VA_ARGS__)), "401000-401100 " expected)
#define EXPECT_DAMAGED(...)                                                \
	do {                                                               \
		assert_string_equal(say_instructions(B(__VA_ARGS__)), ""); \
		assert_int_equal(counts.damaged, 1);                       \
	} while (0)
#define ADVANCE(n) (DW_CFA_advance_loc | (n))
#define OFFSET(reg) (DW_CFA_offset | (reg))
#define RESTORE(reg) (DW_CFA_restore | (reg))
