// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The few forms of DWARF expressions that compilers, linkers and assembly code use in call frame information. An
 * expression is brought into a normal form, constants folded into what they are added to, and compared with them.
 */
#include <elf.h>

#include "unwind/cfi-internal.h"

#define TERMS 9

enum term_kind { TERM_REGISTER, TERM_CONSTANT, TERM_ADD, TERM_DEREF, TERM_OPERATION };

struct term {
	enum term_kind kind;
	uint8_t operation;
	uint64_t reg;
	int64_t n;
};

/* In two's complement: what overflows is no address anyway. */
static int64_t sum(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static struct term constant(int64_t n)
{
	return (struct term){ .kind = TERM_CONSTANT, .n = n };
}

static struct term take_term(struct cursor *c)
{
	uint8_t op = take_u8(c);

	if (op >= DW_OP_breg0 && op <= DW_OP_breg31)
		return (struct term){ .kind = TERM_REGISTER,
				      .reg = op - DW_OP_breg0,
				      .n = take_sleb(c) };
	if (op >= DW_OP_lit0 && op <= DW_OP_lit31)
		return constant(op - DW_OP_lit0);
	switch (op) {
	case DW_OP_bregx: {
		uint64_t reg = take_uleb(c);

		return (struct term){ .kind = TERM_REGISTER, .reg = reg, .n = take_sleb(c) };
	}
	case DW_OP_const1u:
		return constant(take_u8(c));
	case DW_OP_const1s:
		return constant((int8_t)take_u8(c));
	case DW_OP_const2u:
		return constant((int64_t)take_fixed(c, 2));
	case DW_OP_const2s:
		return constant((int16_t)take_fixed(c, 2));
	case DW_OP_const4u:
		return constant((int64_t)take_fixed(c, 4));
	case DW_OP_const4s:
		return constant((int32_t)take_fixed(c, 4));
	case DW_OP_constu:
		return constant((int64_t)take_uleb(c));
	case DW_OP_consts:
		return constant(take_sleb(c));
	case DW_OP_plus_uconst:
		return (struct term){ .kind = TERM_ADD, .n = (int64_t)take_uleb(c) };
	case DW_OP_deref:
		return (struct term){ .kind = TERM_DEREF };
	default:
		return (struct term){ .kind = TERM_OPERATION, .operation = op };
	}
}

/* x c + -> x + c, and sums of sums. Returns how many terms are left. */
static size_t fold(struct term *t, size_t n)
{
	if (n >= 2 && t[n - 1].kind == TERM_OPERATION && t[n - 2].kind == TERM_CONSTANT &&
	    (t[n - 1].operation == DW_OP_plus || t[n - 1].operation == DW_OP_minus)) {
		int64_t by = t[n - 2].n;

		if (t[n - 1].operation == DW_OP_minus)
			by = (int64_t)(0 - (uint64_t)by);
		n--;
		t[n - 1] = (struct term){ .kind = TERM_ADD, .n = by };
	}
	if (n >= 2 && t[n - 1].kind == TERM_ADD &&
	    (t[n - 2].kind == TERM_REGISTER || t[n - 2].kind == TERM_ADD)) {
		t[n - 2].n = sum(t[n - 2].n, t[n - 1].n);
		n--;
	}
	return n;
}

/* 0 terms: none of the known forms. */
static size_t take_terms(struct cursor c, struct term *t)
{
	size_t n = 0;

	while (c.p < c.end) {
		if (n == TERMS)
			return 0;
		t[n++] = take_term(&c);
		n = fold(t, n);
	}
	return c.bad ? 0 : n;
}

static bool is_register(const struct term *t, uint64_t reg)
{
	return t->kind == TERM_REGISTER && t->reg == reg;
}

static bool is_constant(const struct term *t, int64_t n)
{
	return t->kind == TERM_CONSTANT && t->n == n;
}

static bool is_operation(const struct term *t, uint8_t operation)
{
	return t->kind == TERM_OPERATION && t->operation == operation;
}

/* Linkers: sp + 8 + ((ip & 15) >= 11) * 8, behind the push in a stub of the linkage table. */
static bool is_plt(const struct cfi_machine *m, const struct term *t, size_t n)
{
	return m->number == EM_X86_64 && n == 9 && is_register(&t[0], m->sp) && t[0].n == 8 &&
	       is_register(&t[1], m->ra) && !t[1].n && is_constant(&t[2], 15) &&
	       is_operation(&t[3], DW_OP_and) && t[4].kind == TERM_CONSTANT && t[4].n >= 0 &&
	       t[4].n <= 15 && is_operation(&t[5], DW_OP_ge) && is_constant(&t[6], 3) &&
	       is_operation(&t[7], DW_OP_shl) && is_operation(&t[8], DW_OP_plus);
}

/* OpenSSL's multi-block code: *(sp + n + r9 * 8) + add. */
static bool is_deref_r9(const struct cfi_machine *m, const struct term *t, size_t n)
{
	return m->number == EM_X86_64 && (n == 6 || (n == 7 && t[6].kind == TERM_ADD)) &&
	       is_register(&t[0], m->sp) && is_register(&t[1], 9) && !t[1].n &&
	       is_constant(&t[2], 8) && is_operation(&t[3], DW_OP_mul) &&
	       is_operation(&t[4], DW_OP_plus) && t[5].kind == TERM_DEREF;
}

struct cfa cfa_of_expression(const struct cfi_machine *m, struct cursor bytes)
{
	struct term t[TERMS + 1] = {};
	size_t n = take_terms(bytes, t);

	if (n == 1 && t[0].kind == TERM_REGISTER)
		return (struct cfa){ .kind = CFA_REGISTER, .reg = t[0].reg, .off = t[0].n };
	if ((n == 2 || (n == 3 && t[2].kind == TERM_ADD)) && t[0].kind == TERM_REGISTER &&
	    t[1].kind == TERM_DEREF)
		return (struct cfa){
			.kind = CFA_DEREF, .reg = t[0].reg, .off = t[0].n, .add = t[2].n
		};
	if (is_plt(m, t, n))
		return (struct cfa){ .kind = CFA_PLT, .off = t[4].n };
	if (is_deref_r9(m, t, n))
		return (struct cfa){ .kind = CFA_DEREF_R9, .off = t[0].n, .add = t[6].n };
	return (struct cfa){ .kind = CFA_OTHER };
}

struct where where_of_expression(struct cursor bytes)
{
	struct term t[TERMS + 1];

	if (take_terms(bytes, t) == 1 && t[0].kind == TERM_REGISTER)
		return (struct where){ .kind = WHERE_AT_REGISTER, .reg = t[0].reg, .off = t[0].n };
	return (struct where){ .kind = WHERE_OTHER };
}
