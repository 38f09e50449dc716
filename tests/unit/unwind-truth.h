/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One table against elfutils' interpreter. At every address where either changes its rules, and one byte behind, both
 * say where the caller's stack pointer, frame pointer and return address are, in a made-up machine whose registers and
 * memory are random numbers. What is not the same must be what the table says it does not know.
 */
#pragma once

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>

#include "unwind/compile.h"

#define GAP 16 /* bytes: what a table bridges */

/* ---- a machine --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9;
	return x ^ (x >> 32);
}

static uint64_t memory_at(uint64_t address)
{
	return mix(address + 1);
}

struct machine {
	unsigned sp, fp, ra, base;
	uint64_t reg[32];
};

static void randomize(struct machine *m, uint32_t number, uint64_t pc)
{
	*m = number == EM_AARCH64 ? (struct machine){ .sp = 31, .fp = 29, .ra = 30, .base = 19 }
				  : (struct machine){ .sp = 7, .fp = 6, .ra = 16, .base = 3 };
	for (unsigned i = 0; i < 32; i++)
		m->reg[i] = mix(pc * 32 + i) | 1;
	if (number == EM_X86_64)
		m->reg[m->ra] = pc;
}

struct caller {
	uint64_t cfa, fp, ra, base;
	bool fp_lost, base_lost, end, signal, unsupported, none;
};

/* ---- what elfutils says ------------------------------------------------------------------------ */

static uint64_t breg(const struct machine *m, uint64_t reg, uint64_t off)
{
	assert_true(reg < 32);
	return m->reg[reg] + off;
}

/* False: operations that no rule can say. */
static bool evaluate(const struct machine *m, const Dwarf_Op *ops, size_t n, uint64_t cfa,
		     uint64_t *ret, bool *ret_is_value)
{
	uint64_t stack[32] = {}, top;
	size_t depth = 0;

	*ret_is_value = false;
	for (size_t i = 0; i < n; i++) {
		uint8_t op = ops[i].atom;

		if (depth >= 30)
			return false;
		top = depth ? stack[depth - 1] : 0;
		if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
			stack[depth++] = breg(m, op - DW_OP_breg0, ops[i].number);
			continue;
		}
		if (op >= DW_OP_lit0 && op <= DW_OP_lit31) {
			stack[depth++] = op - DW_OP_lit0;
			continue;
		}
		switch (op) {
		case DW_OP_bregx:
			stack[depth++] = breg(m, ops[i].number, ops[i].number2);
			continue;
		case DW_OP_regx:
			stack[depth++] = breg(m, ops[i].number, 0);
			*ret_is_value = true;
			continue;
		case DW_OP_call_frame_cfa:
			stack[depth++] = cfa;
			continue;
		case DW_OP_const1u:
		case DW_OP_const1s:
		case DW_OP_const2u:
		case DW_OP_const2s:
		case DW_OP_const4u:
		case DW_OP_const4s:
		case DW_OP_constu:
		case DW_OP_consts:
			stack[depth++] = ops[i].number;
			continue;
		case DW_OP_stack_value:
			*ret_is_value = true;
			continue;
		default:
			break;
		}
		if (!depth)
			return false;
		switch (op) {
		case DW_OP_plus_uconst:
			stack[depth - 1] += ops[i].number;
			continue;
		case DW_OP_deref:
			stack[depth - 1] = memory_at(top);
			continue;
		default:
			break;
		}
		if (depth < 2)
			return false;
		depth--;
		switch (op) {
		case DW_OP_plus:
			stack[depth - 1] += top;
			break;
		case DW_OP_minus:
			stack[depth - 1] -= top;
			break;
		case DW_OP_mul:
			stack[depth - 1] *= top;
			break;
		case DW_OP_and:
			stack[depth - 1] &= top;
			break;
		case DW_OP_shl:
			stack[depth - 1] <<= top;
			break;
		case DW_OP_ge:
			stack[depth - 1] = (int64_t)stack[depth - 1] >= (int64_t)top;
			break;
		default:
			return false;
		}
	}
	*ret = depth ? stack[depth - 1] : 0;
	return depth;
}

/* The caller's register. False when it is not known, or not by what rules can say. */
static bool register_by_libdw(const struct machine *m, Dwarf_Frame *f, unsigned reg, uint64_t cfa,
			      uint64_t *ret, bool *ret_undefined)
{
	Dwarf_Op mem[3], *ops;
	bool is_value;
	size_t n;

	assert_int_equal(dwarf_frame_register(f, (int)reg, mem, &ops, &n), 0);
	*ret_undefined = !n && ops;
	if (!n) {
		*ret = m->reg[reg];
		return !ops;
	}
	if (!evaluate(m, ops, n, cfa, ret, &is_value))
		return false;
	if (!is_value)
		*ret = memory_at(*ret);
	return true;
}

static struct caller by_libdw(const struct machine *m, Dwarf_Frame *f)
{
	struct caller c = {};
	bool undefined, is_value;
	Dwarf_Op *ops;
	size_t n;

	assert_true(dwarf_frame_info(f, NULL, NULL, &c.signal) >= 0);
	if (c.signal)
		return c;
	c.unsupported = dwarf_frame_cfa(f, &ops, &n) != 0 || !n ||
			!evaluate(m, ops, n, 0, &c.cfa, &is_value);
	if (!register_by_libdw(m, f, m->ra, c.cfa, &c.ra, &undefined))
		c.unsupported = true;
	c.end = undefined;
	c.fp_lost = !register_by_libdw(m, f, m->fp, c.cfa, &c.fp, &undefined);
	c.base_lost = !register_by_libdw(m, f, m->base, c.cfa, &c.base, &undefined);
	/* Of rbx elfutils does not know that functions which say nothing of it leave it as it is (it names rax). */
	if (undefined)
		c.base_lost = false;
	return c;
}

/* ---- what the table says ----------------------------------------------------------------------- */

static uint64_t cfa_by_rule(const struct machine *m, const struct unwind_rule *r, uint64_t pc)
{
	uint64_t off = (uint64_t)r->cfa_off, add = (uint64_t)r->cfa_add, sp = m->reg[m->sp];

	switch (r->cfa) {
	case UNWIND_SP:
		return sp + off;
	case UNWIND_FP:
		return m->reg[m->fp] + off;
	case UNWIND_REG:
		return m->reg[r->cfa_add] + off;
	case UNWIND_FP_DEREF:
		return memory_at(m->reg[m->fp] + off) + add;
	case UNWIND_SP_DEREF:
		return memory_at(sp + off) + add;
	case UNWIND_PLT:
		return sp + 8 + ((pc & 15) >= off ? 8 : 0);
	case UNWIND_SP_R9:
		return memory_at(sp + m->reg[9] * 8 + off) + add;
	default:
		fail_msg("rule %u", r->cfa);
		return 0;
	}
}

static uint64_t register_by_rule(const struct machine *m, uint8_t where, int64_t off, unsigned reg,
				 uint64_t cfa)
{
	switch (where) {
	case UNWIND_AT_CFA:
		return memory_at(cfa + (uint64_t)off);
	case UNWIND_AT_FP:
		return memory_at(m->reg[m->fp] + (uint64_t)off);
	default:
		return m->reg[reg];
	}
}

static struct caller by_rule(const struct machine *m, const struct unwind_rule *r, uint64_t pc)
{
	struct caller c = { .signal = r->cfa == UNWIND_SIGNAL,
			    .end = r->cfa == UNWIND_END,
			    .none = r->cfa == UNWIND_NONE,
			    .unsupported = r->cfa == UNWIND_UNSUPPORTED };

	if (c.signal || c.end || c.none || c.unsupported)
		return c;
	c.cfa = cfa_by_rule(m, r, pc);
	if (r->ra == UNWIND_BESIDE_FP)
		c.ra = memory_at(c.cfa + (uint64_t)(int64_t)(r->fp_off + r->ra_off));
	else if (r->ra == UNWIND_IN_REG)
		c.ra = m->reg[r->ra_off];
	else
		c.ra = register_by_rule(m, r->ra, r->ra_off, m->ra, c.cfa);
	c.fp = register_by_rule(m, r->fp, r->fp_off, m->fp, c.cfa);
	c.fp_lost = r->fp == UNWIND_LOST;
	c.base = r->base ? memory_at(c.cfa + (uint64_t)(r->base * 8)) : m->reg[m->base];
	c.base_lost = r->base == UNWIND_BASE_LOST;
	return c;
}

/* ---- comparing --------------------------------------------------------------------------------- */

struct comparison {
	const struct table *t;
	Elf *elf;
	Dwarf_CFI *cfi, *debug_cfi;
	const char *name;
	uint64_t compared, unsupported, lost, bridged, special;
	uint64_t known_end; /* where the last function that elfutils knows ends */
};

static void differ(const struct comparison *x, uint64_t pc, const char *what)
{
	const struct unwind_rule *r = table_find(x->t, (uint32_t)(pc - x->t->base));

	fail_msg("%s at %lx: %s differs (cfa %u base %d off %d add %d, fp %u %d, ra %u %d)",
		 x->name, pc, what, r->cfa, r->base, r->cfa_off, r->cfa_add, r->fp, r->fp_off,
		 r->ra, r->ra_off);
}

static bool is_known_by_section(Elf *elf, uint64_t pc)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return false;
	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &s) && pc >= s.sh_addr && pc - s.sh_addr < s.sh_size &&
		    (strstr(elf_strptr(elf, names, s.sh_name), "plt") ||
		     strcmp(elf_strptr(elf, names, s.sh_name), ".init") == 0 ||
		     strcmp(elf_strptr(elf, names, s.sh_name), ".fini") == 0))
			return true;
	return false;
}

/* No function is known there: what the table says is the rule before a short gap, or known from the code. */
static void compare_gap(struct comparison *x, const struct unwind_rule *r, uint64_t pc)
{
	if (r->cfa == UNWIND_NONE)
		return;
	if (r->cfa == UNWIND_END || r->cfa == UNWIND_SIGNAL || is_known_by_section(x->elf, pc)) {
		x->special++;
		x->known_end = pc + 1;
		return;
	}
	x->bridged++;
	if (pc - x->known_end >= GAP)
		differ(x, pc, "a gap");
}

/* What each compiler makes: the CFA from a register, the return address at a distance from it. */
static bool is_plain(const struct machine *m, Dwarf_Frame *f)
{
	Dwarf_Op mem[3], *ops;
	size_t n;

	if (dwarf_frame_cfa(f, &ops, &n) != 0 || n != 1 || ops[0].atom != DW_OP_bregx)
		return false;
	assert_int_equal(dwarf_frame_register(f, (int)m->sp, mem, &ops, &n), 0);
	if (n != 2 || ops[0].atom != DW_OP_call_frame_cfa || ops[1].atom != DW_OP_stack_value)
		return false;
	assert_int_equal(dwarf_frame_register(f, (int)m->ra, mem, &ops, &n), 0);
	return n && n <= 2 && ops[0].atom == DW_OP_call_frame_cfa &&
	       ops[n - 1].atom != DW_OP_stack_value;
}

static void compare_at(struct comparison *x, Dwarf_Frame *f, uint64_t pc)
{
	const struct unwind_rule *r = table_find(x->t, (uint32_t)(pc - x->t->base));
	struct caller a, b;
	struct machine m;

	if (!f) {
		compare_gap(x, r, pc);
		return;
	}
	randomize(&m, x->t->machine, pc);
	a = by_libdw(&m, f);
	b = by_rule(&m, r, pc);
	x->compared++;
	if (a.signal != b.signal)
		differ(x, pc, "a signal frame");
	if (a.end != b.end)
		differ(x, pc, "the end");
	if (b.none)
		differ(x, pc, "that there is none");
	if (a.signal || a.end)
		return;
	if (b.unsupported) {
		x->unsupported++;
		if (is_plain(&m, f))
			differ(x, pc, "what is supported");
		return;
	}
	if (a.unsupported)
		differ(x, pc, "what is supported");
	if (a.cfa != b.cfa)
		differ(x, pc, "CFA");
	if (a.ra != b.ra)
		differ(x, pc, "the return address");
	if (b.fp_lost)
		x->lost++;
	else if (a.fp_lost || a.fp != b.fp)
		differ(x, pc, "the frame pointer");
	if (x->t->machine == EM_X86_64 && !b.base_lost && (a.base_lost || a.base != b.base))
		differ(x, pc, "the base register");
}

/* By .eh_frame, or what that leaves out by .debug_frame. */
static Dwarf_Frame *frame_at(const struct comparison *x, uint64_t pc, uint64_t *ret_end)
{
	Dwarf_Frame *f = NULL;
	Dwarf_Addr end;

	if ((!x->cfi || dwarf_cfi_addrframe(x->cfi, pc, &f) != 0) &&
	    (!x->debug_cfi || dwarf_cfi_addrframe(x->debug_cfi, pc, &f) != 0))
		return NULL;
	dwarf_frame_info(f, NULL, &end, NULL);
	*ret_end = end;
	return f;
}

/* Where the next row of the table begins. */
static uint64_t next_row(const struct table *t, uint64_t pc)
{
	const struct unwind_rule *r = table_find(t, (uint32_t)(pc - t->base));

	for (pc++; pc % 4096 && table_find(t, (uint32_t)(pc - t->base)) == r;)
		pc++;
	return pc;
}

static void compare_segment(struct comparison *x, uint64_t pc, uint64_t end)
{
	x->known_end = 0;
	while (pc < end) {
		uint64_t row_end = pc + 1;
		Dwarf_Frame *f = frame_at(x, pc, &row_end);

		compare_at(x, f, pc);
		if (f)
			x->known_end = row_end;
		free(f);
		row_end = MIN(row_end, next_row(x->t, pc));
		if (row_end > pc + 1) {
			uint64_t unused;

			f = frame_at(x, pc + 1, &unused);
			compare_at(x, f, pc + 1);
			free(f);
		}
		pc = row_end;
	}
}

static void compare_file(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ struct table *t = NULL;
	struct comparison x = { .name = path };
	const struct table_segment *s;
	Dwarf *dwarf;

	assert_true(fd >= 0);
	assert_int_equal(table_compile(fd, &t), 0);
	assert_int_equal(table_check(t, t->bytes), 0);
	assert_int_equal(t->damaged, 0);
	x.t = t;
	elf_version(EV_CURRENT);
	x.elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(x.elf);
	x.cfi = dwarf_getcfi_elf(x.elf);
	dwarf = dwarf_begin_elf(x.elf, DWARF_C_READ, NULL);
	x.debug_cfi = dwarf ? dwarf_getcfi(dwarf) : NULL;
	assert_true(x.cfi || x.debug_cfi);
	s = table_segments(t);
	for (uint32_t i = 0; i < t->n_segments; i++)
		compare_segment(&x, t->base + s[i].pc, t->base + s[i].pc + s[i].size);
	dwarf_cfi_end(x.cfi);
	dwarf_end(dwarf);
	elf_end(x.elf);
	print_message(
		"%s: %lu functions, %lu compared, %lu unsupported, frame pointer lost in %lu, "
		"bridged %lu, special %lu\n",
		path, (unsigned long)t->functions, x.compared, x.unsupported, x.lost, x.bridged,
		x.special);
	assert_true(x.compared > 0);
}
