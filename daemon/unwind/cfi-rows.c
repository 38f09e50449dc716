// SPDX-License-Identifier: GPL-2.0-or-later
/* Runs call frame instructions, and says the rules that hold after them as the walker knows them. */
#include <elf.h>

#include "unwind/cfi-internal.h"

#define REMEMBERED 32 /* states on the stack; compilers nest no deeper than 1 or 2 */

/* Not in each version of dwarf.h. */
#define CFA_MIPS_ADVANCE_LOC8 0x1d
#define CFA_AARCH64_NEGATE_RA_STATE_WITH_PC 0x2c
#define CFA_AARCH64_NEGATE_RA_STATE 0x2d
#define CFA_GNU_ARGS_SIZE 0x2e
#define CFA_GNU_NEGATIVE_OFFSET_EXTENDED 0x2f

struct run {
	const struct cfi_cie *cie;
	struct cfi_rows *rows; /* NULL: a CIE's, which have no addresses */
	const uint8_t *origin; /* this byte has the address vaddr */
	uint64_t vaddr;
	uint64_t start, size; /* of the function */
	uint64_t at; /* from its start */
	struct cfi_state state;
	struct unwind_rule rule; /* of this state, unless that has changed */
	bool changed;
	struct cfi_state remembered[REMEMBERED];
	size_t n_remembered;
};

/* The bits of a LEB128 number, and how many: bits beyond 64 are dropped. *ret_last: its last byte. */
static uint64_t take_leb(struct cursor *c, unsigned *ret_bits, uint8_t *ret_last)
{
	uint64_t v = 0;
	uint8_t byte;
	unsigned shift = 0;

	do {
		byte = take_u8(c);
		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		shift = MIN(shift + 7, 64U);
	} while (byte & 0x80);
	*ret_bits = shift;
	*ret_last = byte;
	return v;
}

uint64_t take_long_uleb(struct cursor *c)
{
	unsigned bits;
	uint8_t last;

	return take_leb(c, &bits, &last);
}

int64_t take_sleb(struct cursor *c)
{
	unsigned bits;
	uint8_t last;
	uint64_t v = take_leb(c, &bits, &last);

	if (bits < 64 && last & 0x40)
		v |= ~0ULL << bits;
	return (int64_t)v;
}

/* ---- rules ------------------------------------------------------------------------------------- */

/* False: only a DWARF interpreter could follow this. */
static bool set_cfa(const struct cfi_machine *m, const struct cfa *c, struct unwind_rule *rule)
{
	if (c->off != (int32_t)c->off || c->add != (int16_t)c->add)
		return false;
	rule->cfa_off = (int32_t)c->off;
	rule->cfa_add = (int16_t)c->add;
	switch (c->kind) {
	case CFA_REGISTER:
		if (c->reg >= m->n_general)
			return false;
		rule->cfa = c->reg == m->sp ? UNWIND_SP : c->reg == m->fp ? UNWIND_FP : UNWIND_REG;
		if (rule->cfa == UNWIND_REG)
			rule->cfa_add = (int16_t)c->reg;
		return true;
	case CFA_DEREF:
		rule->cfa = c->reg == m->sp ? UNWIND_SP_DEREF : UNWIND_FP_DEREF;
		return c->reg == m->sp || c->reg == m->fp;
	case CFA_PLT:
		rule->cfa = UNWIND_PLT;
		return true;
	case CFA_DEREF_R9:
		rule->cfa = UNWIND_SP_R9;
		return true;
	case CFA_UNDEFINED:
	case CFA_OTHER:
		break;
	}
	return false;
}

/* In memory, relative to the CFA or to the frame pointer. False: neither. */
static bool set_place(const struct cfi_machine *m, const struct cfi_state *s, const struct where *w,
		      enum unwind_where *ret_where, int64_t *ret_off)
{
	if (w->kind == WHERE_AT_CFA) {
		*ret_where = UNWIND_AT_CFA;
		*ret_off = w->off;
		return true;
	}
	if (w->kind != WHERE_AT_REGISTER)
		return false;
	if (s->cfa.kind == CFA_REGISTER && s->cfa.reg == w->reg) {
		*ret_where = UNWIND_AT_CFA;
		*ret_off = (int64_t)((uint64_t)w->off - (uint64_t)s->cfa.off);
		return true;
	}
	*ret_where = UNWIND_AT_FP;
	*ret_off = w->off;
	return w->reg == m->fp;
}

static bool set_return_address(const struct cfi_cie *cie, const struct cfi_state *s,
			       struct unwind_rule *rule)
{
	const struct where *w = &s->where[TRACK_RA];
	enum unwind_where where;
	int64_t off;

	if (set_place(cie->machine, s, w, &where, &off)) {
		/* gcc's frames on arm64 begin with both: with large arrays far below the CFA. */
		if (off != (int16_t)off && where == UNWIND_AT_CFA && rule->fp == UNWIND_AT_CFA) {
			where = UNWIND_BESIDE_FP;
			off = (int64_t)((uint64_t)off - (uint64_t)rule->fp_off);
		}
		rule->ra = (uint8_t)where;
		rule->ra_off = (int16_t)off;
		return off == (int16_t)off;
	}
	/* Between two instructions, or, in vfork(), around a system call. */
	if (w->kind == WHERE_REGISTER && w->reg != cie->ra && w->reg < cie->machine->n_general) {
		rule->ra = UNWIND_IN_REG;
		rule->ra_off = (int16_t)w->reg;
		return true;
	}
	/* It stays in the link register, where there is one. */
	rule->ra = UNWIND_SAME;
	return cie->machine->number == EM_AARCH64 && cie->ra == cie->machine->ra &&
	       (w->kind == WHERE_UNSPECIFIED || w->kind == WHERE_SAME ||
		(w->kind == WHERE_REGISTER && w->reg == cie->ra));
}

static void set_frame_pointer(const struct cfi_machine *m, const struct cfi_state *s,
			      struct unwind_rule *rule)
{
	const struct where *w = &s->where[TRACK_FP];
	enum unwind_where where;
	int64_t off;

	if (set_place(m, s, w, &where, &off) && off == (int32_t)off) {
		rule->fp = (uint8_t)where;
		rule->fp_off = (int32_t)off;
	} else if (w->kind == WHERE_UNSPECIFIED || w->kind == WHERE_SAME ||
		   (w->kind == WHERE_REGISTER && w->reg == m->fp)) {
		rule->fp = UNWIND_SAME;
	} else {
		rule->fp = UNWIND_LOST;
	}
}

/* It matters to few: where only an expression finds it, it is lost. */
static void set_base(const struct cfi_state *s, struct unwind_rule *rule)
{
	const struct where *w = &s->where[TRACK_BASE];

	if (w->kind == WHERE_UNSPECIFIED || w->kind == WHERE_SAME)
		rule->base = UNWIND_BASE_SAME;
	else if (w->kind == WHERE_AT_CFA && w->off < 0 && w->off % 8 == 0 &&
		 w->off / 8 >= UNWIND_BASE_LOWEST)
		rule->base = (int8_t)(w->off / 8);
	else
		rule->base = UNWIND_BASE_LOST;
}

/* The caller's stack pointer is the CFA, or the walker knows nothing of it. */
static bool is_sp_usual(const struct where *w)
{
	return w->kind == WHERE_UNSPECIFIED || (w->kind == WHERE_VALUE && !w->off);
}

/*
 * Where the kernel's signal frame is described: x86-64 finds the stack pointer in its sigcontext, arm64 begins with the
 * frame record. The augmentation alone says less: functions that throw out of signal handlers have it too, and those that
 * change stacks (OCaml), with rules as any other.
 */
static bool is_kernel_frame(const struct cfi_cie *cie, const struct cfa *c)
{
	const struct cfi_machine *m = cie->machine;

	if (!cie->signal)
		return false;
	if (m->number == EM_X86_64)
		return c->kind == CFA_DEREF && c->reg == m->sp && c->off == 160 && !c->add;
	return c->kind == CFA_REGISTER && c->reg == m->fp && !c->off;
}

static struct unwind_rule rule_of(const struct cfi_cie *cie, const struct cfi_state *s)
{
	struct unwind_rule rule = {};

	if (is_kernel_frame(cie, &s->cfa))
		return (struct unwind_rule){ .cfa = UNWIND_SIGNAL };
	if (s->where[TRACK_RA].kind == WHERE_UNDEFINED)
		return (struct unwind_rule){ .cfa = UNWIND_END };
	set_frame_pointer(cie->machine, s, &rule);
	set_base(s, &rule);
	if (!set_cfa(cie->machine, &s->cfa, &rule) || !set_return_address(cie, s, &rule) ||
	    !is_sp_usual(&s->where[TRACK_SP]))
		return (struct unwind_rule){ .cfa = UNWIND_UNSUPPORTED };
	return rule;
}

static int add_row(struct run *x)
{
	struct cfi_rows *rows = x->rows;

	if (x->changed)
		x->rule = rule_of(x->cie, &x->state);
	x->changed = false;
	if (rows->n == rows->cap) {
		int r = ARRAY_GROW(rows->rows, rows->cap, rows->n + 1);

		if (r < 0)
			return r;
	}
	rows->rows[rows->n].pc = (uint32_t)x->at;
	rows->rows[rows->n++].rule = x->rule;
	return 0;
}

/* ---- instructions ------------------------------------------------------------------------------ */

/* What comes behind the end of the function is of no use, nor is what lies before: the address never falls. */
static int advance_to(struct run *x, uint64_t at)
{
	int r;

	if (!x->rows || at < x->at)
		return -EBADMSG;
	if (at == x->at || x->at >= x->size)
		return 0;
	r = add_row(x);
	x->at = at;
	return r;
}

/* May wrap, in a damaged file: then it falls, or is one wrong address more. */
static int advance(struct run *x, uint64_t delta)
{
	return advance_to(x, x->at + delta * x->cie->code_align);
}

static int set_loc(struct run *x, struct cursor *c)
{
	uint64_t vaddr = x->vaddr + (uint64_t)(c->p - x->origin);
	uint64_t to = take_encoded(c, x->cie->encoding, vaddr, 0);

	if (c->bad || to < x->start)
		return -EBADMSG;
	return advance_to(x, to - x->start);
}

/* To be changed. NULL: a register that nobody asks for. */
static struct where *place_of(struct run *x, uint64_t reg)
{
	struct where *w = x->state.where;

	if (reg == x->cie->ra)
		w += TRACK_RA;
	else if (reg == x->cie->machine->fp)
		w += TRACK_FP;
	else if (reg == x->cie->machine->sp)
		w += TRACK_SP;
	else if (reg == x->cie->machine->base)
		w += TRACK_BASE;
	else
		return NULL;
	x->changed = true;
	return w;
}

static void set_where(struct run *x, uint64_t reg, enum where_kind kind, int64_t off)
{
	struct where *w = place_of(x, reg);

	if (w)
		*w = (struct where){ .kind = kind, .off = off };
}

static int64_t factored(const struct run *x, int64_t off)
{
	return (int64_t)((uint64_t)off * (uint64_t)x->cie->data_align);
}

static void restore(struct run *x, uint64_t reg)
{
	struct where *w = place_of(x, reg);

	if (w)
		*w = x->cie->initial.where[w - x->state.where];
}

static struct cursor take_block(struct cursor *c)
{
	uint64_t n = take_uleb(c);
	const uint8_t *p = take_bytes(c, n);

	return (struct cursor){ .p = p, .end = p ? p + n : NULL };
}

/* The most frequent one by far: with each push and pop. */
static void set_cfa_offset(struct run *x, int64_t off)
{
	struct unwind_rule *rule = &x->rule;

	x->state.off = off;
	if (x->state.cfa.kind != CFA_REGISTER)
		return;
	x->state.cfa.off = off;
	if (!x->changed && off == (int32_t)off && rule->cfa >= UNWIND_SP &&
	    rule->cfa <= UNWIND_REG && x->state.where[TRACK_FP].kind != WHERE_AT_REGISTER &&
	    x->state.where[TRACK_RA].kind != WHERE_AT_REGISTER)
		rule->cfa_off = (int32_t)off;
	else
		x->changed = true;
}

static void set_cfa_register(struct run *x, uint64_t reg)
{
	x->state.reg = reg;
	x->state.cfa = (struct cfa){ .kind = CFA_REGISTER, .reg = reg, .off = x->state.off };
	x->changed = true;
}

/*
 * After an expression, a register alone takes the offset from before it, as in libgcc's unwinder: vectorised code of
 * libgcrypt relies on that. An offset alone leaves the expression in force.
 */
static void run_cfa(struct run *x, uint8_t op, struct cursor *c)
{
	switch (op) {
	case DW_CFA_def_cfa:
		set_cfa_register(x, take_uleb(c));
		set_cfa_offset(x, (int64_t)take_uleb(c));
		break;
	case DW_CFA_def_cfa_sf:
		set_cfa_register(x, take_uleb(c));
		set_cfa_offset(x, factored(x, take_sleb(c)));
		break;
	case DW_CFA_def_cfa_register:
		set_cfa_register(x, take_uleb(c));
		break;
	case DW_CFA_def_cfa_offset:
		set_cfa_offset(x, (int64_t)take_uleb(c));
		break;
	case DW_CFA_def_cfa_offset_sf:
		set_cfa_offset(x, factored(x, take_sleb(c)));
		break;
	default:
		x->state.cfa = cfa_of_expression(x->cie->machine, take_block(c));
		x->changed = true;
	}
}

static int run_register(struct run *x, uint8_t op, struct cursor *c)
{
	uint64_t reg = take_uleb(c);
	struct where *w = place_of(x, reg);

	switch (op) {
	case DW_CFA_offset_extended:
		set_where(x, reg, WHERE_AT_CFA, factored(x, (int64_t)take_uleb(c)));
		break;
	case DW_CFA_offset_extended_sf:
		set_where(x, reg, WHERE_AT_CFA, factored(x, take_sleb(c)));
		break;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		set_where(x, reg, WHERE_AT_CFA, factored(x, (int64_t)(0 - take_uleb(c))));
		break;
	case DW_CFA_val_offset:
		set_where(x, reg, WHERE_VALUE, factored(x, (int64_t)take_uleb(c)));
		break;
	case DW_CFA_val_offset_sf:
		set_where(x, reg, WHERE_VALUE, factored(x, take_sleb(c)));
		break;
	case DW_CFA_restore_extended:
		restore(x, reg);
		break;
	case DW_CFA_undefined:
		set_where(x, reg, WHERE_UNDEFINED, 0);
		break;
	case DW_CFA_same_value:
		set_where(x, reg, WHERE_SAME, 0);
		break;
	case DW_CFA_register: {
		uint64_t from = take_uleb(c);

		if (w)
			*w = (struct where){ .kind = WHERE_REGISTER, .reg = from };
		break;
	}
	case DW_CFA_expression: {
		struct cursor bytes = take_block(c);

		if (w && bytes.p)
			*w = where_of_expression(bytes);
		break;
	}
	case DW_CFA_val_expression:
		take_block(c);
		set_where(x, reg, WHERE_OTHER, 0);
		break;
	default:
		return -EBADMSG;
	}
	return 0;
}

static int run_extended(struct run *x, uint8_t op, struct cursor *c)
{
	switch (op) {
	case DW_CFA_nop:
		return 0;
	case DW_CFA_set_loc:
		return set_loc(x, c);
	case DW_CFA_advance_loc1:
		return advance(x, take_fixed(c, 1));
	case DW_CFA_advance_loc2:
		return advance(x, take_fixed(c, 2));
	case DW_CFA_advance_loc4:
		return advance(x, take_fixed(c, 4));
	case CFA_MIPS_ADVANCE_LOC8:
		return advance(x, take_fixed(c, 8));
	case DW_CFA_remember_state:
		if (x->n_remembered == REMEMBERED)
			return -EBADMSG;
		x->remembered[x->n_remembered++] = x->state;
		return 0;
	case DW_CFA_restore_state:
		if (!x->n_remembered)
			return -EBADMSG;
		x->state = x->remembered[--x->n_remembered];
		x->changed = true;
		return 0;
	case DW_CFA_def_cfa:
	case DW_CFA_def_cfa_sf:
	case DW_CFA_def_cfa_register:
	case DW_CFA_def_cfa_offset:
	case DW_CFA_def_cfa_offset_sf:
	case DW_CFA_def_cfa_expression:
		run_cfa(x, op, c);
		return 0;
	case CFA_GNU_ARGS_SIZE:
		take_uleb(c);
		return 0;
	case CFA_AARCH64_NEGATE_RA_STATE:
	case CFA_AARCH64_NEGATE_RA_STATE_WITH_PC:
		/* The walker strips the signature wherever it finds one. */
		return x->cie->machine->number == EM_AARCH64 ? 0 : -EBADMSG;
	default:
		return run_register(x, op, c);
	}
}

static int run_all(struct run *x, struct cursor *c)
{
	int r = 0;

	while (r >= 0 && !c->bad && c->p < c->end) {
		uint8_t op = take_u8(c), low = op & 0x3f;

		switch (op & 0xc0) {
		case DW_CFA_advance_loc:
			r = advance(x, low);
			break;
		case DW_CFA_offset:
			set_where(x, low, WHERE_AT_CFA, factored(x, (int64_t)take_uleb(c)));
			break;
		case DW_CFA_restore:
			restore(x, low);
			break;
		default:
			r = run_extended(x, op, c);
		}
	}
	return c->bad && r >= 0 ? -EBADMSG : r;
}

int cfi_run_cie(struct cfi_cie *cie, struct cursor instructions)
{
	struct run x = { .cie = cie };
	int r = run_all(&x, &instructions);

	if (r >= 0)
		cie->initial = x.state;
	return r;
}

int cfi_run_fde(const struct cfi_cie *cie, struct cursor instructions, uint64_t start,
		uint64_t size, uint64_t vaddr, struct cfi_rows *rows)
{
	struct run x;
	int r;

	/* Not the states to be remembered: there are many functions, and few remember. */
	x.cie = cie;
	x.rows = rows;
	x.origin = instructions.p;
	x.vaddr = vaddr;
	x.start = start;
	x.size = size;
	x.at = 0;
	x.state = cie->initial;
	x.changed = true;
	x.n_remembered = 0;
	rows->n = 0;
	r = run_all(&x, &instructions);
	if (r >= 0 && x.at < size)
		r = add_row(&x);
	return r;
}
