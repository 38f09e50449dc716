// SPDX-License-Identifier: GPL-2.0-or-later
/* The interpreter on bytes that are written here: each instruction, each form of records, and damage. */
#include "cfi-bytes.h"

/* ---- instructions ------------------------------------------------------------------------------ */

static void advancing(void **state)
{
	EXPECT("0:sp+8", DW_CFA_nop);
	EXPECT("0:sp+8 1:sp+16", ADVANCE(1), DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8 ff:sp+16", DW_CFA_advance_loc1, 0xff, DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8 f0:sp+16", DW_CFA_advance_loc2, 0xf0, 0, DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8 f0:sp+16", DW_CFA_advance_loc4, 0xf0, 0, 0, 0, DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8 20:sp+16", 0x1d, 0x20, 0, 0, 0, 0, 0, 0, 0, DW_CFA_def_cfa_offset, 16);
	/* No step: no row. Behind the end: neither. Equal rules: the table merges them. */
	EXPECT("0:sp+16", DW_CFA_advance_loc, DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8 5:sp+8", ADVANCE(5), DW_CFA_def_cfa_offset, 8);
	EXPECT("0:sp+8", DW_CFA_advance_loc2, 0, 1, DW_CFA_def_cfa_offset, 16);
	EXPECT("0:sp+8", DW_CFA_advance_loc4, 0xff, 0xff, 0xff, 0xff, DW_CFA_def_cfa_offset, 16,
	       ADVANCE(1), DW_CFA_def_cfa_offset, 24);
	/* Around all addresses. */
	EXPECT_DAMAGED(0x1d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1d, 0xff, 0xff, 0xff,
		       0xff, 0xff, 0xff, 0xff, 0xff);
}

static void setting_location(void **state)
{
	struct bytes x = {};
	size_t cie = put_usual_cie(&x), operand = x.n + 4 + 4 + 4 + 4 + 1 + 1;
	uint32_t to = CODE + 0x33 - (FRAMES + (uint32_t)operand), back = to - 0x34;

	put_fde(&x, cie, CODE, SIZE,
		B(DW_CFA_set_loc, (uint8_t)to, (uint8_t)(to >> 8), (uint8_t)(to >> 16),
		  (uint8_t)(to >> 24), DW_CFA_def_cfa_offset, 16));
	assert_string_equal(say(&x), "401000-401100 0:sp+8 33:sp+16");
	memcpy(x.b + operand, &back, 4);
	assert_string_equal(say(&x), "");
	assert_int_equal(counts.damaged, 1);
}

static void cfa(void **state)
{
	EXPECT("0:fp+16", DW_CFA_def_cfa, 6, 16);
	EXPECT("0:r10+0", DW_CFA_def_cfa, 10, 0);
	EXPECT("0:r15+0", DW_CFA_def_cfa, 15, 0);
	EXPECT("0:unsupported", DW_CFA_def_cfa, 17, 0); /* xmm0 */
	EXPECT("0:fp+8", DW_CFA_def_cfa_register, 6);
	EXPECT("0:sp+1000208", DW_CFA_def_cfa_offset, 0x90, 0x86, 0x3d);
	EXPECT("0:unsupported", DW_CFA_def_cfa_offset, 0x80, 0x80, 0x80, 0x80, 0x08);
	EXPECT("0:sp+16", DW_CFA_def_cfa_offset_sf, 0x7e);
	EXPECT("0:sp-8", DW_CFA_def_cfa_offset_sf, 1);
	EXPECT("0:fp+24", DW_CFA_def_cfa_sf, 6, 0x7d);
	EXPECT("0:sp+8", 0x2e, 16); /* the size of arguments */
	/* As libgcc has it: an expression leaves register and offset as they are. */
	EXPECT("0:*(sp+40)+56 1:sp+8 2:sp+48", DW_CFA_def_cfa_expression, 5, DW_OP_breg7, 40,
	       DW_OP_deref, DW_OP_plus_uconst, 56, ADVANCE(1), DW_CFA_def_cfa_register, 7,
	       ADVANCE(1), DW_CFA_def_cfa_offset, 48);
	EXPECT("0:*(fp+8)+0 1:fp+16", DW_CFA_def_cfa_expression, 3, DW_OP_breg6, 8, DW_OP_deref,
	       DW_CFA_def_cfa_offset, 16, ADVANCE(1), DW_CFA_def_cfa_register, 6);
}

static void registers(void **state)
{
	EXPECT("0:sp+8 fp=cfa-16", OFFSET(6), 2);
	EXPECT("0:sp+8 fp=cfa-16", DW_CFA_offset_extended, 6, 2);
	EXPECT("0:sp+8 fp=cfa+16", DW_CFA_offset_extended_sf, 6, 0x7e);
	EXPECT("0:sp+8 fp=cfa+16", 0x2f, 6, 2);
	EXPECT("0:sp+8 fp=cfa-16 1:sp+8", OFFSET(6), 2, ADVANCE(1), RESTORE(6));
	EXPECT("0:sp+8 fp=cfa-16 1:sp+8", OFFSET(6), 2, ADVANCE(1), DW_CFA_restore_extended, 6);
	EXPECT("0:sp+8 fp=cfa-16 1:sp+8", OFFSET(6), 2, ADVANCE(1), DW_CFA_same_value, 6);
	EXPECT("0:sp+8 fp=lost", DW_CFA_undefined, 6);
	EXPECT("0:sp+8 fp=lost", DW_CFA_val_offset, 6, 2);
	EXPECT("0:sp+8 fp=lost", DW_CFA_val_offset_sf, 6, 2);
	EXPECT("0:sp+8 fp=lost", DW_CFA_register, 6, 3);
	EXPECT("0:sp+8", DW_CFA_register, 6, 6);
	EXPECT("0:sp+8 base=cfa-64 1:sp+8 base=lost", OFFSET(3), 8, ADVANCE(1), OFFSET(3), 9);
	EXPECT("0:r3+16 base=cfa-16", DW_CFA_def_cfa, 3, 16, OFFSET(3), 2);
	EXPECT("0:sp+8 ra=cfa-16", OFFSET(16), 2);
	EXPECT("0:end", DW_CFA_undefined, 16);
	EXPECT("0:sp+8 ra=r1", DW_CFA_register, 16, 1);
	EXPECT("0:unsupported", DW_CFA_register, 16, 17);
	EXPECT("0:unsupported", DW_CFA_same_value, 16);
	EXPECT("0:unsupported", DW_CFA_val_offset, 16, 1);
	/* Too far for a rule, but for what lies beside the frame pointer. */
	EXPECT("0:unsupported", OFFSET(16), 0x80, 0x80, 1);
	EXPECT("0:sp+8 fp=cfa-131080 ra=beside+8", OFFSET(16), 0x80, 0x80, 1, OFFSET(6), 0x81, 0x80,
	       1);
	/* The stack pointer is the CFA; another one cannot be said. */
	EXPECT("0:sp+8", DW_CFA_val_offset, 7, 0);
	EXPECT("0:unsupported", DW_CFA_val_offset, 7, 1);
	EXPECT("0:unsupported", OFFSET(7), 1);
	/* Registers that nobody asks for. */
	EXPECT("0:sp+8", OFFSET(13), 3, OFFSET(12), 4, DW_CFA_undefined, 0x80, 0x01, RESTORE(13),
	       DW_CFA_register, 13, 2, DW_CFA_val_expression, 13, 1, DW_OP_nop, DW_CFA_expression,
	       13, 1, DW_OP_nop);
}

static void remembering(void **state)
{
	uint8_t deep[20001];

	EXPECT("0:sp+8 1:fp+16 fp=cfa-16 2:sp+8", DW_CFA_remember_state, ADVANCE(1), DW_CFA_def_cfa,
	       6, 16, OFFSET(6), 2, ADVANCE(1), DW_CFA_restore_state);
	EXPECT("0:sp+8 1:sp+16 2:sp+24 3:sp+16 4:sp+8", DW_CFA_remember_state, ADVANCE(1),
	       DW_CFA_def_cfa_offset, 16, DW_CFA_remember_state, ADVANCE(1), DW_CFA_def_cfa_offset,
	       24, ADVANCE(1), DW_CFA_restore_state, ADVANCE(1), DW_CFA_restore_state);
	EXPECT_DAMAGED(DW_CFA_restore_state);
	memset(deep, DW_CFA_remember_state, 10000);
	memset(deep + 10000, DW_CFA_restore_state, 10001);
	assert_string_equal(say_instructions(deep, sizeof(deep)), "");
	assert_int_equal(counts.damaged, 1);
}

static void unknown_instructions(void **state)
{
	/* What was understood before one is not kept: it may mean anything for it. */
	for (int op = 0x17; op < 0x40; op++) {
		if (op == 0x1d || op == 0x2e || op == 0x2f)
			continue;
		EXPECT_DAMAGED(ADVANCE(1), DW_CFA_def_cfa_offset, 16, (uint8_t)op, 0, 0);
	}
	/* These end with the record. */
	EXPECT_DAMAGED(DW_CFA_advance_loc4, 0, 0);
	EXPECT_DAMAGED(DW_CFA_def_cfa, 0x87, 0x80);
	EXPECT_DAMAGED(DW_CFA_expression, 6, 100, DW_OP_breg6);
	EXPECT_DAMAGED(DW_CFA_def_cfa_expression, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		       0xff, 0xff, 0xff, 0x7f);
}

/* ---- expressions ------------------------------------------------------------------------------- */

#define CFA_IS(...) DW_CFA_def_cfa_expression, sizeof((const uint8_t[]){ __VA_ARGS__ }), __VA_ARGS__

static void expressions(void **state)
{
	EXPECT("0:sp+16", CFA_IS(DW_OP_breg7, 16));
	EXPECT("0:r10-8", CFA_IS(DW_OP_breg10, 0x78));
	EXPECT("0:sp+24", CFA_IS(DW_OP_breg7, 16, DW_OP_lit8, DW_OP_plus));
	EXPECT("0:sp+8", CFA_IS(DW_OP_bregx, 7, 16, DW_OP_const1u, 8, DW_OP_minus));
	EXPECT("0:*(fp-8)+0", CFA_IS(DW_OP_breg6, 0x78, DW_OP_deref));
	EXPECT("0:*(sp+40)+8", CFA_IS(DW_OP_breg7, 40, DW_OP_deref, DW_OP_plus_uconst, 8));
	EXPECT("0:*(sp+40)+8",
	       CFA_IS(DW_OP_breg7, 32, DW_OP_plus_uconst, 8, DW_OP_deref, DW_OP_lit8, DW_OP_plus));
	EXPECT("0:unsupported", CFA_IS(DW_OP_breg10, 0x78, DW_OP_deref));
	EXPECT("0:unsupported", CFA_IS(DW_OP_breg7, 0, DW_OP_deref, DW_OP_deref));
	EXPECT("0:*(sp+r9*8+8)+8", CFA_IS(DW_OP_breg7, 8, DW_OP_breg9, 0, DW_OP_lit8, DW_OP_mul,
					  DW_OP_plus, DW_OP_deref, DW_OP_plus_uconst, 8));
	EXPECT("0:plt+11", CFA_IS(DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and,
				  DW_OP_lit11, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus));
	EXPECT("0:plt+10", CFA_IS(DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and,
				  DW_OP_lit10, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus));
	EXPECT("0:unsupported", CFA_IS(DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit7, DW_OP_and,
				       DW_OP_lit11, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus));
	EXPECT("0:unsupported", CFA_IS(DW_OP_lit0, DW_OP_lit0, DW_OP_lit0, DW_OP_lit0, DW_OP_lit0,
				       DW_OP_lit0, DW_OP_lit0, DW_OP_lit0, DW_OP_lit0, DW_OP_lit0));
	EXPECT("0:unsupported", DW_CFA_def_cfa_expression, 0);
	EXPECT("0:unsupported", CFA_IS(DW_OP_breg7));
	EXPECT("0:unsupported", CFA_IS(DW_OP_breg7, 0, DW_OP_deref, DW_OP_const4u, 0, 0, 1, 0,
				       DW_OP_plus)); /* too far for a rule */
	/* Where registers lie. */
	EXPECT("0:*(fp-8)+0 fp=fp+0", CFA_IS(DW_OP_breg6, 0x78, DW_OP_deref), DW_CFA_expression, 6,
	       2, DW_OP_breg6, 0);
	EXPECT("0:sp+8 fp=cfa+8", DW_CFA_expression, 6, 2, DW_OP_breg7, 16);
	EXPECT("0:sp+8 ra=cfa+8", DW_CFA_expression, 16, 2, DW_OP_breg7, 16);
	EXPECT("0:sp+8 ra=fp+8", DW_CFA_expression, 16, 2, DW_OP_breg6, 8);
	EXPECT("0:r10+0 fp=cfa-16", DW_CFA_def_cfa, 10, 0, DW_CFA_expression, 6, 2, DW_OP_breg10,
	       0x70);
	EXPECT("0:sp+8 fp=lost", DW_CFA_expression, 6, 2, DW_OP_breg3, 0);
	EXPECT("0:sp+8 fp=lost", DW_CFA_val_expression, 6, 2, DW_OP_breg6, 0);
	EXPECT("0:unsupported", DW_CFA_expression, 16, 2, DW_OP_breg3, 0);
	EXPECT("0:unsupported", DW_CFA_val_expression, 16, 2, DW_OP_breg3, 0);
}

/* ---- records ----------------------------------------------------------------------------------- */

static const char *say_cie(const char *augmentation, const uint8_t *rest, size_t n)
{
	struct bytes x = {};
	size_t cie = put_cie(&x, augmentation, rest, n, USUAL);

	put_fde(&x, cie, CODE, SIZE, B(DW_CFA_nop));
	return say(&x);
}

static void augmentations(void **state)
{
	static const uint8_t here = DW_EH_PE_pcrel | DW_EH_PE_sdata4;
	const char *usual = "401000-401100 0:sp+8";

	assert_string_equal(say_cie("zR", B(1, here)), usual);
	assert_string_equal(say_cie("zRS", B(1, here)), usual);
	assert_string_equal(say_cie("zRB", B(1, here)), usual);
	assert_string_equal(say_cie("zPLR", B(7, DW_EH_PE_indirect | here, 1, 2, 3, 4, here, here)),
			    usual);
	assert_string_equal(
		say_cie("zPR", B(12, DW_EH_PE_absptr, 1, 2, 3, 4, 5, 6, 7, 8, here, 0, 0)), usual);
	assert_string_equal(say_cie("zPR", B(2, DW_EH_PE_omit, here)), usual);
	/* What is unknown has a length. */
	assert_string_equal(say_cie("zRQ", B(3, here, 7, 7)), usual);
	assert_string_equal(say_cie("Q", B(0)), "");
	assert_string_equal(say_cie("zR", B(0)), "");
	assert_string_equal(say_cie("zR", B(100, here)), "");
	assert_string_equal(say_cie("zR", B(1, DW_EH_PE_omit)), "");
	assert_string_equal(say_cie("zR", B(1, DW_EH_PE_indirect | here)), "");
	assert_string_equal(say_cie("zR", B(1, DW_EH_PE_datarel | DW_EH_PE_sdata4)), "");
}

static const char *say_signal(uint32_t machine, const uint8_t *instructions, size_t n)
{
	struct bytes x = {};
	size_t cie = put_cie(&x, "zRS", B(1, DW_EH_PE_pcrel | DW_EH_PE_sdata4), USUAL);

	put_fde(&x, cie, CODE, SIZE, instructions, n);
	return say_frames(x.b, x.n, machine, false);
}

/* The kernel's, and functions that only say that they are interrupted. */
static void signal_frames(void **state)
{
	const char *kernel = "401000-401100 0:signal";

	assert_string_equal(say_signal(EM_X86_64, B(CFA_IS(DW_OP_breg7, 0xa0, 1, DW_OP_deref))),
			    kernel);
	assert_string_equal(say_signal(EM_X86_64, B(CFA_IS(DW_OP_breg7, 0x20, DW_OP_deref))),
			    "401000-401100 0:*(sp+32)+0");
	assert_string_equal(say_signal(EM_X86_64, B(DW_CFA_def_cfa_offset, 16)),
			    "401000-401100 0:sp+16");
	assert_string_equal(say_signal(EM_X86_64, B(DW_CFA_undefined, 16)), "401000-401100 0:end");
	assert_string_equal(say_signal(EM_AARCH64, B(DW_CFA_def_cfa, 29, 0, OFFSET(29), 0)),
			    kernel);
	assert_string_equal(say_signal(EM_AARCH64, B(DW_CFA_def_cfa, 31, 16, OFFSET(16), 1)),
			    "401000-401100 0:sp+16");
}

static const char *say_encoded(uint8_t encoding, const uint8_t *address, size_t n)
{
	struct bytes x = {};
	size_t cie = put_cie(&x, "zR", B(1, encoding), USUAL), body = begin_record(&x);

	put_number(&x, body - cie, 4);
	put(&x, address, n);
	put(&x, B(0));
	end_record(&x, body);
	return say(&x);
}

static void encodings(void **state)
{
	const char *usual = "401000-401100 0:sp+8";

	assert_string_equal(say_encoded(DW_EH_PE_absptr,
					B(0, 0x10, 0x40, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)),
			    usual);
	assert_string_equal(say_encoded(DW_EH_PE_udata4, B(0, 0x10, 0x40, 0, 0, 1, 0, 0)), usual);
	assert_string_equal(say_encoded(DW_EH_PE_uleb128, B(0x80, 0xa0, 0x80, 2, 0x80, 2)), usual);
	assert_string_equal(say_encoded(DW_EH_PE_sleb128, B(0x80, 0xa0, 0x80, 2, 0x80, 2)), usual);
	assert_string_equal(say_encoded(DW_EH_PE_udata2, B(0, 0x10, 0, 1)), "1000-1100 0:sp+8");
	assert_string_equal(say_encoded(DW_EH_PE_sdata8,
					B(0, 0x10, 0x40, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)),
			    usual);
	/* Sizes have no sign, and no function is that long. */
	assert_string_equal(say_encoded(DW_EH_PE_udata8,
					B(0, 0x10, 0x40, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0)),
			    "");
	assert_string_equal(say_encoded(DW_EH_PE_udata4, B(0, 0x10, 0x40, 0, 0, 0, 0, 0)), "");
	assert_int_equal(counts.damaged, 0); /* an empty one */
	assert_string_equal(say_encoded(0x07, B(0, 0, 0, 0, 0, 0, 0, 0)), "");
	assert_string_equal(say_encoded(DW_EH_PE_textrel, B(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1)),
			    "");
}

static void debug_frame(void **state)
{
	/* Version 4, and 64-bit lengths: the CIE's identifier is all ones. */
	static const uint8_t cie4[] = { 20,
					0,
					0,
					0,
					0xff,
					0xff,
					0xff,
					0xff,
					4,
					0,
					8,
					0,
					1,
					0x78,
					16,
					DW_CFA_def_cfa,
					7,
					8,
					DW_CFA_offset | 16,
					1,
					0,
					0,
					0,
					0 };
	static const uint8_t fde4[] = { 20, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x40, 0,
					0,  0, 0, 0, 0, 1, 0, 0, 0, 0,	  0,	0 };
	static const uint8_t cie8[] = { 0xff,
					0xff,
					0xff,
					0xff,
					20,
					0,
					0,
					0,
					0,
					0,
					0,
					0,
					0xff,
					0xff,
					0xff,
					0xff,
					0xff,
					0xff,
					0xff,
					0xff,
					3,
					0,
					1,
					0x78,
					16,
					DW_CFA_def_cfa,
					7,
					8,
					DW_CFA_offset | 16,
					1,
					0,
					0 };
	static const uint8_t fde8[] = { 0xff, 0xff, 0xff, 0xff, 24, 0, 0, 0, 0, 0,    0,    0,
					0,    0,    0,	  0,	0,  0, 0, 0, 0, 0x10, 0x40, 0,
					0,    0,    0,	  0,	0,  1, 0, 0, 0, 0,    0,    0 };
	const char *usual = "401000-401100 0:sp+8";
	struct bytes x = {};

	put(&x, cie4, sizeof(cie4));
	put(&x, fde4, sizeof(fde4));
	assert_string_equal(say_frames(x.b, x.n, EM_X86_64, true), usual);
	x.b[10] = 4; /* size of an address */
	assert_string_equal(say_frames(x.b, x.n, EM_X86_64, true), "");
	x.n = 0;
	put(&x, cie8, sizeof(cie8));
	put(&x, fde8, sizeof(fde8));
	assert_string_equal(say_frames(x.b, x.n, EM_X86_64, true), usual);
}

static void long_lengths(void **state)
{
	struct bytes x = {};
	size_t cie = put_usual_cie(&x), id;

	/* In .eh_frame the identifier keeps its 4 bytes. */
	put(&x, B(0xff, 0xff, 0xff, 0xff, 16, 0, 0, 0, 0, 0, 0, 0));
	id = x.n;
	put_number(&x, id - cie, 4);
	put_number(&x, CODE - (FRAMES + x.n), 4);
	put_number(&x, SIZE, 4);
	put(&x, B(0, 0, 0, 0));
	assert_string_equal(say(&x), "401000-401100 0:sp+8");
}

static void order(void **state)
{
	struct bytes x = {};
	size_t cie = put_usual_cie(&x);

	/* By address, whatever the order of records; zeros between them end nothing. */
	put_fde(&x, cie, CODE + 0x200, SIZE, B(DW_CFA_nop));
	put_number(&x, 0, 4);
	put_fde(&x, cie, CODE, SIZE, B(DW_CFA_def_cfa_offset, 16));
	put_fde(&x, cie, CODE, SIZE, B(DW_CFA_def_cfa_offset, 24));
	assert_string_equal(say(&x), "401000-401100 0:sp+16\n401000-401100 0:sp+24\n"
				     "401200-401300 0:sp+8");
	assert_int_equal(counts.functions, 3);
}

static void arm64(void **state)
{
	struct bytes x = {};
	size_t cie;

	cie = put_cie(&x, "zR", B(1, DW_EH_PE_pcrel | DW_EH_PE_sdata4), B(DW_CFA_def_cfa, 31, 0));
	x.b[cie + 4 + 4 + 1 + 3] = 4; /* addresses count instructions */
	x.b[cie + 4 + 4 + 1 + 3 + 2] = 30;
	put_fde(&x, cie, CODE, SIZE,
		B(ADVANCE(1), 0x2d, ADVANCE(1), DW_CFA_def_cfa_offset, 32, OFFSET(29), 4,
		  OFFSET(30), 3, ADVANCE(1), DW_CFA_def_cfa_register, 29, ADVANCE(4),
		  DW_CFA_remember_state, DW_CFA_def_cfa, 31, 0, RESTORE(29), RESTORE(30), 0x2c,
		  ADVANCE(1), DW_CFA_restore_state));
	put_fde(&x, cie, CODE + 0x200, SIZE,
		B(DW_CFA_undefined, 30, ADVANCE(1), DW_CFA_register, 30, 9));
	assert_string_equal(
		say_frames(x.b, x.n, EM_AARCH64, false),
		"401000-401100 0:sp+0 ra=same 4:sp+0 ra=same 8:sp+32 fp=cfa-32 ra=cfa-24 "
		"c:fp+32 fp=cfa-32 ra=cfa-24 1c:sp+0 ra=same "
		"20:fp+32 fp=cfa-32 ra=cfa-24\n401200-401300 0:end 4:sp+0 ra=r9");
}

/* ---- .eh_frame_hdr ----------------------------------------------------------------------------- */

struct sections {
	struct bytes frames, header;
	size_t fde[3];
};

static void put_sections(struct sections *s)
{
	size_t cie;

	memset(s, 0, sizeof(*s));
	cie = put_usual_cie(&s->frames);
	s->fde[2] = put_fde(&s->frames, cie, CODE + 0x200, SIZE, B(DW_CFA_def_cfa_offset, 32));
	s->fde[0] = put_fde(&s->frames, cie, CODE, SIZE, B(DW_CFA_nop));
	s->fde[1] = put_fde(&s->frames, cie, CODE + 0x100, SIZE, B(DW_CFA_def_cfa_offset, 16));
	put(&s->header, B(1, DW_EH_PE_pcrel | DW_EH_PE_sdata4, DW_EH_PE_udata4,
			  DW_EH_PE_datarel | DW_EH_PE_sdata4));
	put_number(&s->header, FRAMES - (HEADER + 4), 4);
	put_number(&s->header, 3, 4);
	for (size_t i = 0; i < 3; i++) {
		put_number(&s->header, CODE + i * 0x100 - HEADER, 4);
		put_number(&s->header, FRAMES + s->fde[i] - HEADER, 4);
	}
}

static const char *say_sections(const struct sections *x)
{
	static struct strbuf said;
	_cleanup_(reader_done) struct reader frames = {}, header = {};
	struct cfi_source s = { .machine = EM_X86_64,
				.frames = &frames,
				.vaddr = FRAMES,
				.header = &header,
				.header_vaddr = HEADER };
	uint64_t at;

	reader_init_memory(&frames, x->frames.b, x->frames.n);
	reader_init_memory(&header, x->header.b, x->header.n);
	strbuf_done(&said);
	assert_int_equal(read_source(&s, &said), 0);
	if (x->header.b[0] == 1) {
		assert_int_equal(cfi_header_frames(&header, HEADER, &at), 0);
		assert_int_equal(at, FRAMES);
	}
	return said.len ? said.data : "";
}

static void header(void **state)
{
	static const char all[] =
		"401000-401100 0:sp+8\n401100-401200 0:sp+16\n401200-401300 0:sp+32";
	struct sections x;
	uint32_t n = 2;

	put_sections(&x);
	assert_string_equal(say_sections(&x), all);
	/* It is the header that was used: what it leaves out is left out. */
	memcpy(x.header.b + 8, &n, 4);
	assert_string_equal(say_sections(&x), "401000-401100 0:sp+8\n401100-401200 0:sp+16");
	n = 1000000;
	memcpy(x.header.b + 8, &n, 4);
	assert_string_equal(say_sections(&x), all);
	put_sections(&x);
	x.header.b[0] = 2;
	assert_string_equal(say_sections(&x), all);
	put_sections(&x);
	x.header.b[3] = DW_EH_PE_omit;
	assert_string_equal(say_sections(&x), all);
	/* The second function lies before the first. */
	put_sections(&x);
	memset(x.header.b + 12 + 8, 0, 4);
	assert_string_equal(say_sections(&x), all);
	/* An FDE outside. */
	put_sections(&x);
	memset(x.header.b + 12 + 8 + 4, 0x7f, 4);
	assert_string_equal(say_sections(&x), all);
	/* An FDE of another function. */
	put_sections(&x);
	x.header.b[12 + 8]++;
	assert_string_equal(say_sections(&x), "401000-401100 0:sp+8\n401200-401300 0:sp+32");
	assert_int_equal(counts.damaged, 1);
	/* A CIE in place of an FDE. */
	put_sections(&x);
	n = FRAMES - HEADER;
	memcpy(x.header.b + 12 + 4, &n, 4);
	assert_string_equal(say_sections(&x), "401100-401200 0:sp+16\n401200-401300 0:sp+32");
	assert_int_equal(counts.damaged, 1);
}

/* ---- damage ------------------------------------------------------------------------------------ */

static void truncated(void **state)
{
	struct bytes x = {};
	size_t cie = put_usual_cie(&x), first, last = 0;

	first = put_fde(&x, cie, CODE, SIZE,
			B(ADVANCE(1), DW_CFA_def_cfa_offset, 16, OFFSET(6), 2));
	put_fde(&x, cie, CODE + 0x100, SIZE, B(ADVANCE(1), DW_CFA_def_cfa_offset, 16));
	for (size_t n = 0; n <= x.n; n++) {
		say_frames(x.b, n, EM_X86_64, false);
		assert_true(counts.functions >= last);
		last = counts.functions;
		if (n <= first)
			assert_int_equal(last, 0);
	}
	assert_int_equal(last, 2);
}

static void wrong_numbers(void **state)
{
	static const uint32_t values[] = { 0,	       1,	   3,	       4,
					   0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff };
	struct bytes x = {}, y;
	size_t cie = put_usual_cie(&x), fde;

	fde = put_fde(&x, cie, CODE, SIZE, B(DW_CFA_nop));
	put_fde(&x, cie, CODE + 0x100, SIZE, B(DW_CFA_nop));
	/* Lengths and identifiers of each record. */
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		const size_t places[] = { cie, cie + 4, fde, fde + 4 };

		for (size_t k = 0; k < ARRAY_SIZE(places); k++) {
			y = x;
			memcpy(y.b + places[k], &values[i], 4);
			say(&y);
			assert_true(counts.functions <= 2);
		}
	}
	/* A CIE that is an FDE, and one behind the section. */
	y = x;
	memcpy(y.b + fde + 4, (const uint32_t[]){ 4 }, 4);
	assert_string_equal(say(&y), "401100-401200 0:sp+8");
	assert_int_equal(counts.damaged, 1);
}

/* Each byte with each of some values. */
static void changed_bytes(void **state)
{
	static const uint8_t values[] = { 0, 1, 2, 0x0f, 0x16, 0x40, 0x7f, 0x80, 0xff };
	struct sections x;

	put_sections(&x);
	for (size_t i = 0; i < x.frames.n; i++)
		for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
			uint8_t old = x.frames.b[i];

			x.frames.b[i] = values[k];
			say_sections(&x);
			say(&x.frames);
			x.frames.b[i] = old;
		}
	assert_int_equal(counts.damaged, 0);
}

/* A header may name one record a million times, under other addresses; records may lie within others. */
static void bounded_work(void **state)
{
	static struct bytes x, h;
	static const uint8_t nops[40000];
	_cleanup_(reader_done) struct reader frames = {}, head = {};
	_cleanup_(strbuf_done) struct strbuf said = {};
	struct cfi_source s = { .machine = EM_X86_64,
				.frames = &frames,
				.vaddr = FRAMES,
				.header = &head,
				.header_vaddr = HEADER };
	size_t cie, fde;

	cie = put_usual_cie(&x);
	fde = put_fde(&x, cie, CODE, SIZE, nops, sizeof(nops));
	put(&h, B(1, DW_EH_PE_udata4, DW_EH_PE_udata4, DW_EH_PE_datarel | DW_EH_PE_sdata4));
	put_number(&h, FRAMES, 4);
	put_number(&h, 6000, 4);
	for (uint32_t i = 0; i < 6000; i++) {
		put_number(&h, CODE + i - HEADER, 4);
		put_number(&h, FRAMES + fde - HEADER, 4);
	}
	reader_init_memory(&frames, x.b, x.n);
	reader_init_memory(&head, h.b, h.n);
	assert_int_equal(read_source(&s, &said), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(advancing),	 cmocka_unit_test(setting_location),
		cmocka_unit_test(cfa),		 cmocka_unit_test(registers),
		cmocka_unit_test(remembering),	 cmocka_unit_test(unknown_instructions),
		cmocka_unit_test(expressions),	 cmocka_unit_test(augmentations),
		cmocka_unit_test(signal_frames), cmocka_unit_test(encodings),
		cmocka_unit_test(debug_frame),	 cmocka_unit_test(long_lengths),
		cmocka_unit_test(order),	 cmocka_unit_test(arm64),
		cmocka_unit_test(header),	 cmocka_unit_test(truncated),
		cmocka_unit_test(wrong_numbers), cmocka_unit_test(changed_bytes),
		cmocka_unit_test(bounded_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
