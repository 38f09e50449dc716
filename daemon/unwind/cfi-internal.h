/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the interpreter share. */
#pragma once

#include <dwarf.h>

#include "unwind/cfi.h"

/* ---- reading numbers: whatever would run out of the bytes gives 0 and sets `bad` -------------------- */

struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static inline const uint8_t *take_bytes(struct cursor *c, uint64_t n)
{
	const uint8_t *p = c->p;

	if (n > (uint64_t)(c->end - c->p)) {
		c->bad = true;
		c->p = c->end;
		return NULL;
	}
	c->p += n;
	return p;
}

/* Of 1, 2, 4 or 8 bytes. The machines of these files are little-endian, as are those that this runs on. */
static inline uint64_t take_fixed(struct cursor *c, unsigned size)
{
	const uint8_t *p = take_bytes(c, size);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, size);
	return v;
}

static inline uint8_t take_u8(struct cursor *c)
{
	return (uint8_t)take_fixed(c, 1);
}

uint64_t take_long_uleb(struct cursor *c);
int64_t take_sleb(struct cursor *c);

static inline uint64_t take_uleb(struct cursor *c)
{
	return c->p < c->end && *c->p < 0x80 ? *c->p++ : take_long_uleb(c);
}

/* ---- machines ---------------------------------------------------------------------------------- */

struct cfi_machine {
	uint32_t number; /* EM_* */
	uint8_t sp, fp, ra; /* DWARF's numbers of registers */
	uint8_t base; /* rbx; 0xff: none is followed */
	uint8_t n_general; /* those for integers have the numbers below */
};

/* ---- rules while a program runs ---------------------------------------------------------------- */

enum where_kind {
	WHERE_UNSPECIFIED = 0,
	WHERE_UNDEFINED,
	WHERE_SAME,
	WHERE_AT_CFA, /* *(CFA + off) */
	WHERE_VALUE, /* CFA + off */
	WHERE_AT_REGISTER, /* *(reg + off) */
	WHERE_REGISTER, /* reg */
	WHERE_OTHER /* known to a DWARF interpreter only */
};

struct where {
	enum where_kind kind;
	uint64_t reg;
	int64_t off;
};

enum cfa_kind {
	CFA_UNDEFINED = 0,
	CFA_REGISTER, /* reg + off */
	CFA_DEREF, /* *(reg + off) + add */
	CFA_PLT, /* sp + 8 + (ip & 15 >= off ? 8 : 0) */
	CFA_DEREF_R9, /* *(sp + r9 * 8 + off) + add */
	CFA_OTHER
};

struct cfa {
	enum cfa_kind kind;
	uint64_t reg;
	int64_t off, add;
};

enum { TRACK_FP, TRACK_RA, TRACK_SP, TRACK_BASE, TRACK_N };

struct cfi_state {
	struct cfa cfa;
	/* What was last said of register and offset: an expression changes only the rule, not these. */
	uint64_t reg;
	int64_t off;
	struct where where[TRACK_N];
};

/* What the functions of one compilation share. */
struct cfi_cie {
	const struct cfi_machine *machine;
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra;
	uint8_t encoding; /* of addresses */
	bool augmented; /* functions have augmentation data */
	bool signal;
	struct cfi_state initial;
};

/* ---- cfi-expression.c -------------------------------------------------------------------------- */

struct cfa cfa_of_expression(const struct cfi_machine *m, struct cursor bytes);
struct where where_of_expression(struct cursor bytes); /* the address where the register lies */

/* ---- cfi-rows.c -------------------------------------------------------------------------------- */

struct cfi_rows {
	struct cfi_row *rows;
	size_t n, cap;
};

/* Runs the instructions of a CIE: -EBADMSG when they are damaged. */
int cfi_run_cie(struct cfi_cie *cie, struct cursor instructions);
/* Of an FDE; vaddr is the address of the first of these instructions. */
int cfi_run_fde(const struct cfi_cie *cie, struct cursor instructions, uint64_t start,
		uint64_t size, uint64_t vaddr, struct cfi_rows *rows);

/* ---- cfi.c: an address in one of the encodings of .eh_frame; vaddr is that of c->p ---------------------- */

uint64_t take_encoded(struct cursor *c, uint8_t encoding, uint64_t vaddr, uint64_t data);
