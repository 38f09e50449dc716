// SPDX-License-Identifier: GPL-2.0-or-later
/* The unwinder with real maps, and the walk on the host through what it installs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <bpf/bpf.h>

#include "../bpf/regs.h"
#include "base/clock.h"
#include "collect/walk.h"
#include "unwind/unwinder.h"
#include "unwinder-tables.h"

/* ---- a process that there is not ------------------------------------------------------------------- */

#define TGID 4711
#define START 99
#define BASE 0x400000UL /* where binaries are mapped */

struct walker {
	struct walk_tables tables;
	const uint64_t *regs; /* of the leaf, or NULL */
	uint64_t stack[4096];
};
#define STACK 0x7f0000000000UL

static int read_stack(void *ctx, void *to, uint32_t size, uint64_t from)
{
	struct walker *w = ctx;

	if (from < STACK || from + size > STACK + sizeof(w->stack))
		return -EFAULT;
	memcpy(to, (char *)w->stack + (from - STACK), size);
	return 0;
}

static void walk(struct unwinder *u, struct walker *w, uint64_t ip, uint64_t sp, uint64_t fp,
		 struct walk_result *ret)
{
	struct walk_begin b = {
		.ip = ip,
		.sp = STACK + sp * 8,
		.fp = fp ? STACK + fp * 8 : 0,
		.word = 8,
		.ip_mask = ~0UL,
		.regs = w->regs,
		.tables = &w->tables,
		.read = read_stack,
		.read_ctx = w,
	};

	w->tables = tables_of(u);
	find_space(u, TGID, START, &b.space);
	walk_stack(&b, ret);
}

static const struct unwind_rule none = {};

static struct unwind_rule by_sp(int cfa, int fp)
{
	return (struct unwind_rule){
		.cfa = UNWIND_SP,
		.cfa_off = cfa,
		.ra = UNWIND_AT_CFA,
		.ra_off = -8,
		.fp = fp ? UNWIND_AT_CFA : UNWIND_SAME,
		.fp_off = fp,
	};
}

static struct table *make_table(uint64_t bytes, void (*rows)(struct table_builder *b))
{
	_cleanup_(table_builder_free_p) struct table_builder *b = NULL;
	struct table_segment s = { .offset = 0x1000, .size = bytes, .pc = 0 };
	struct table *t = NULL;

	assert_int_equal(table_builder_new(62, 0x1000, &b), 0);
	assert_int_equal(table_add_segment(b, &s), 0);
	rows(b);
	assert_int_equal(table_finish(b, &t), 0);
	assert_int_equal(table_check(t, t->bytes), 0);
	return t;
}

static void add(struct table_builder *b, uint32_t pc, struct unwind_rule rule)
{
	assert_int_equal(table_add_row(b, pc, &rule), 0);
}

static void simple_rows(struct table_builder *b)
{
	struct unwind_rule end = { .cfa = UNWIND_END }, r9 = { .cfa = UNWIND_REG, .cfa_add = 9 };
	struct unwind_rule record = by_sp(800, -800);

	record.ra = UNWIND_BESIDE_FP;
	record.ra_off = 8;

	add(b, 0x100, end); /* _start */
	add(b, 0x200, by_sp(16, 0)); /* main: 8 bytes of its own */
	add(b, 0x300, by_sp(8, 0)); /* a leaf at its first instruction, */
	add(b, 0x301, by_sp(32, -16)); /* with its frame */
	add(b, 0x400, none); /* assembler without information */
	add(b, 0x500, r9);
	add(b, 0x600, by_sp(0x2000 * 8, 0)); /* beyond the stack */
	add(b, 0x680, record); /* as gcc has it on arm64: both lie at the lower end of the frame */
	add(b, 0x700, none);
}

static void put(struct unwinder *u, uint64_t version, const struct unwinder_region *r, size_t n)
{
	assert_int_equal(unwinder_put(u, TGID, START, version, r, n), 0);
}

static struct unwinder *make_unwinder(uint64_t memory_max)
{
	const struct unwinder_options o = { .memory_max = memory_max, .processes_max = 64 };
	struct unwinder *u = NULL;

	assert_int_equal(unwinder_new(&o, &u), 0);
	return u;
}

static void answer(struct unwinder *u, uint64_t binary, struct table *t)
{
	assert_int_equal(unwinder_next(u), binary);
	unwinder_answer(u, binary, t, NULL, UNWIND_LACK_CFI, true);
	free(t);
}

#define AT(pc) (BASE + (pc))

static void test_walks(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r[] = {
		{ BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE },
		{ 0x7fff00000000UL, 0x7fff00002000UL, 0, 0, UNWINDER_CODE },
	};
	struct walker w = {};
	struct walk_result x;

	/* Nobody knows the process: frame pointers, and never complete. */
	walk(u, &w, AT(0x310), 100, 0, &x);
	assert_int_equal(x.end, WALK_NO_PROCESS);
	assert_int_equal(x.n, 1);
	put(u, 1, r, 2);
	walk(u, &w, AT(0x310), 100, 0, &x);
	assert_int_equal(x.end, WALK_NO_TABLE);
	answer(u, 7, make_table(0x1000, simple_rows));
	assert_int_equal(unwinder_next(u), 0);

	/* leaf (32 bytes) <- main (16) <- _start */
	w.stack[102] = 0xf00; /* saved rbp */
	w.stack[103] = AT(0x250);
	w.stack[105] = AT(0x110);
	walk(u, &w, AT(0x310), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 3);
	assert_int_equal(x.n_fp, 0);
	assert_int_equal(x.ips[0], AT(0x310));
	assert_int_equal(x.ips[1], AT(0x250));
	assert_int_equal(x.ips[2], AT(0x110));

	/* At its first instruction: the row of that, not of the one before. */
	w.stack[100] = AT(0x250);
	w.stack[102] = AT(0x110);
	walk(u, &w, AT(0x300), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 3);
	/* A call that never returns at the end of main: the caller's row is that of the call. */
	w.stack[100] = AT(0x300);
	walk(u, &w, AT(0x300), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.ips[1], AT(0x300));

	/* Without a row, by the frame pointer, for this frame alone. */
	w.stack[110] = 0;
	w.stack[111] = AT(0x250);
	w.stack[113] = AT(0x110);
	walk(u, &w, AT(0x410), 100, 110, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 3);
	assert_int_equal(x.n_fp, 1);
	walk(u, &w, AT(0x410), 100, 0, &x);
	assert_int_equal(x.end, WALK_NO_ROW);
	/* Code made at run time in the middle. */
	w.stack[103] = 0x7fff00001000UL;
	walk(u, &w, AT(0x310), 100, 50, &x);
	assert_int_equal(x.n, 2);
	assert_int_equal(x.end, WALK_RUNTIME_CODE);
	w.stack[102] = STACK + 110 * 8;
	walk(u, &w, AT(0x310), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 4);

	w.stack[101] = AT(0x250);
	w.stack[201] = AT(0x110);
	walk(u, &w, AT(0x690), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 3);
	assert_int_equal(x.ips[1], AT(0x250));

	/* Where it must stop. */
	w.stack[103] = 0xdead0000;
	walk(u, &w, AT(0x310), 100, 50, &x);
	assert_int_equal(x.end, WALK_NO_MAPPING);
	assert_int_equal(x.n, 1);
	walk(u, &w, AT(0x510), 100, 50, &x);
	assert_int_equal(x.end, WALK_UNSUPPORTED); /* which register that is nobody told */
	walk(u, &w, AT(0x610), 100, 50, &x);
	assert_int_equal(x.end, WALK_READ_FAILED);
	walk(u, &w, 0xdead0000, 100, 50, &x);
	assert_int_equal(x.end, WALK_NO_MAPPING);
	assert_int_equal(x.n, 1);
}

#ifdef REGS_BASE
static void base_rows(struct table_builder *b)
{
	struct unwind_rule end = { .cfa = UNWIND_END }, saves = by_sp(32, -16),
			   loses = by_sp(16, 0),
			   trampoline = { .cfa = UNWIND_REG,
					  .cfa_add = 3,
					  .cfa_off = 16,
					  .ra = UNWIND_AT_CFA,
					  .ra_off = -8,
					  .base = -2 };

	saves.base = -3;
	loses.base = UNWIND_BASE_LOST;
	add(b, 0x100, end);
	add(b, 0x200, trampoline); /* as ld.so has it for lazy binding: its CFA hangs on rbx */
	add(b, 0x300, saves);
	add(b, 0x400, by_sp(16, 0));
	add(b, 0x500, loses);
	add(b, 0x600, none);
}

/* The base register through frames that save it and that do not use it. */
static void test_base_register(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r = { BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE };
	uint64_t regs[REGS_WORDS] = {};
	struct walker w = { .regs = regs };
	struct walk_result x;

	put(u, 1, &r, 1);
	answer(u, 7, make_table(0x1000, base_rows));
	/* 0x400 (16 bytes) <- 0x300 (32, saves it) <- trampoline <- end */
	w.stack[101] = AT(0x310);
	w.stack[103] = STACK + 200 * 8; /* rbx */
	w.stack[105] = AT(0x210);
	w.stack[201] = AT(0x110);
	walk(u, &w, AT(0x410), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 4);
	assert_int_equal(x.ips[3], AT(0x110));
	/* 0x400 <- trampoline: it is still in its register, which is known of the leaf. */
	w.stack[101] = AT(0x210);
	regs[REGS_BASE] = STACK + 200 * 8;
	walk(u, &w, AT(0x410), 100, 50, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 3);
	/* 0x500 loses it. */
	walk(u, &w, AT(0x510), 100, 50, &x);
	assert_int_equal(x.end, WALK_UNSUPPORTED);
	assert_int_equal(x.n, 2);
	/* Unknown registers are not taken for known ones. */
	w.regs = NULL;
	walk(u, &w, AT(0x410), 100, 50, &x);
	assert_int_equal(x.end, WALK_UNSUPPORTED);
	w.regs = regs;
	/* A frame pointer says nothing of it. */
	w.stack[110] = 0;
	w.stack[111] = AT(0x210);
	walk(u, &w, AT(0x610), 100, 110, &x);
	assert_int_equal(x.end, WALK_UNSUPPORTED);
	assert_int_equal(x.n, 2);
}

static void signal_rows(struct table_builder *b)
{
	struct unwind_rule sig = { .cfa = UNWIND_SIGNAL }, end = { .cfa = UNWIND_END },
			   reg = { .cfa = UNWIND_REG,
				   .cfa_add = 10,
				   .ra = UNWIND_AT_CFA,
				   .ra_off = -8 };

	add(b, 0x100, end);
	add(b, 0x200, by_sp(8, 0)); /* handler */
	add(b, 0x2ff,
	    sig); /* as libc has it: what is looked up for the handler's caller is the byte before */
	add(b, 0x310, none);
	add(b, 0x400, by_sp(8, 0)); /* interrupted at its very first instruction */
	add(b, 0x401, by_sp(800, 0));
	add(b, 0x500, reg); /* interrupted where the CFA is in r10 */
	add(b, 0x600, none);
}

/* What a signal interrupted: its registers are all known, and nothing is subtracted from its address. */
static void test_signal_frames(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r = { BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE };
	struct walker w = {};
	struct walk_result x;

	put(u, 1, &r, 1);
	answer(u, 7, make_table(0x1000, signal_rows));
	w.stack[10] = AT(0x300); /* the handler returns there */
	/* sp is then 11: sigcontext at +40: r8, r9, r10, ..., bp at 10, sp at 15, ip at 16 */
	w.stack[16 + 15] = STACK + 200 * 8;
	w.stack[16 + 16] = AT(0x400);
	w.stack[200] = AT(0x110);
	walk(u, &w, AT(0x210), 10, 0, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 4);
	assert_int_equal(x.ips[1], AT(0x301)); /* of both the byte before is meant */
	assert_int_equal(x.ips[2], AT(0x401));
	assert_int_equal(x.ips[3], AT(0x110));
	/* r10 holds the CFA; the handler ran on another stack, above. */
	w.stack[16 + 16] = AT(0x510);
	w.stack[16 + 2] = STACK + 6 * 8;
	w.stack[16 + 15] = STACK + 5 * 8;
	w.stack[5] = AT(0x110);
	walk(u, &w, AT(0x210), 10, 0, &x);
	assert_int_equal(x.end, WALK_COMPLETE);
	assert_int_equal(x.n, 4);
	assert_int_equal(x.ips[3], AT(0x110));
}
#else
static void link_rows(struct table_builder *b)
{
	add(b, 0x100, (struct unwind_rule){ .cfa = UNWIND_END });
	add(b, 0x200, none); /* as the vDSO */
	add(b, 0x300, by_sp(16, 0));
}

/* Code that nothing is known of, at the leaf: with a frame of its own, and without. */
static void test_link_register(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r = { BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE };
	static const struct {
		uint64_t lr, n, caller;
	} cases[] = {
		{ AT(0x310), 3, AT(0x310) }, /* it has none */
		{ AT(0x110), 2, AT(0x110) }, /* it has made the record */
		{ AT(0x220), 2, AT(0x110) }, /* what it called has returned there */
	};
	uint64_t regs[REGS_WORDS] = {};
	struct walker w = { .regs = regs };
	struct walk_result x;

	put(u, 1, &r, 1);
	answer(u, 7, make_table(0x1000, link_rows));
	w.stack[101] = AT(0x110); /* the caller's frame, 16 bytes from 100 on */
	w.stack[111] = AT(0x110); /* the frame record */
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		regs[REGS_LR] = cases[i].lr;
		walk(u, &w, AT(0x210), 100, 110, &x);
		assert_int_equal(x.end, WALK_COMPLETE);
		assert_int_equal(x.n, cases[i].n);
		assert_int_equal(x.ips[1], cases[i].caller);
	}
}
#endif

/* ---- many of all ------------------------------------------------------------------------------------- */

#define DENSE_BYTES (3 << 20)

static void dense_rows(struct table_builder *b)
{
	/* Pages with a few rows, with hundreds, and with more than a leaf holds; rules repeat. */
	for (uint32_t pc = 0, i = 0; pc < DENSE_BYTES; i++) {
		add(b, pc, by_sp(8 + 8 * (i % 300), 0));
		pc += (pc >> 12) % 7 == 3 ? 8 : (pc >> 12) % 7 == 5 ? 2 : 300;
	}
}

static struct unwind_rule installed_rule(struct unwinder *u, const struct unwind_process *p,
					 uint64_t ip)
{
	/* As the walker finds it: by reading nodes. */
	static struct unwind_list list;
	static struct unwind_index top, index;
	static struct unwind_leaf leaf;
	struct unwind_rule rule;
	uint32_t pc, node, i = 0;

	assert_true(unwinder_node(u, p->node, &list));
	assert_int_equal(list.n, 1);
	pc = ip - list.mapping[0].delta;
	assert_true(list.mapping[0].root & UNWIND_ROOT_DEEP);
	assert_true(unwinder_node(u, list.mapping[0].root & ~UNWIND_ROOT_DEEP, &top));
	assert_true(unwinder_node(u, top.entry[pc >> 20], &index));
	for (node = index.entry[pc >> 12 & 255];; node = leaf.next) {
		assert_true(unwinder_node(u, node, &leaf));
		if (!leaf.next || pc < leaf.next_pc)
			break;
	}
	while (i + 1 < leaf.rows && leaf.group[(i + 1) / 16].pc[(i + 1) % 16] <= pc - leaf.base)
		i++;
	assert_true(unwinder_rule(u, leaf.group[i / 16].rule[i % 16], &rule));
	return rule;
}

static void test_large_table(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r = { BASE, BASE + DENSE_BYTES, 0x1000, 7, UNWINDER_FILE };
	struct table *t = make_table(DENSE_BYTES, dense_rows);
	struct unwind_process p;
	struct walker w = {};
	struct walk_result x;

	put(u, 1, &r, 1);
	assert_int_equal(unwinder_next(u), 7);
	unwinder_answer(u, 7, t, NULL, 0, false);
	assert_true(unwinder_space(u, TGID, START, &p));
	for (int i = 0; i < 4096; i++)
		w.stack[i] = 0;
	for (uint32_t pc = 0; pc < DENSE_BYTES; pc += 101) {
		struct unwind_rule is = installed_rule(u, &p, AT(pc)), *want = &is;
		const struct unwind_rule *told = table_find(t, pc);

		assert_memory_equal(want, told, sizeof(*want));
		/* The walker reads the return address (0: complete) at the rule's CFA: one word off is another one. */
		w.stack[told->cfa_off / 8 - 1] = 0xdead0000;
		walk(u, &w, AT(pc), 0, 0, &x);
		assert_int_equal(x.end, WALK_NO_MAPPING);
		w.stack[told->cfa_off / 8 - 1] = 0;
		walk(u, &w, AT(pc), 0, 0, &x);
		assert_int_equal(x.end, WALK_COMPLETE);
	}
	free(t);
}

static void test_many_mappings(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	static struct unwinder_region r[UNWIND_LIST * UNWIND_LISTS + 1];
	const size_t counts[] = { 1, 31, 32, 33, 64, 65, 1000, 2048 };
	struct walker w = {};
	struct walk_result x;

	for (size_t i = 0; i < ARRAY_SIZE(r); i++)
		r[i] = (struct unwinder_region){ BASE + i * 0x10000, BASE + i * 0x10000 + 0x1000,
						 0x1000, 7, UNWINDER_FILE };
	for (size_t k = 0; k < ARRAY_SIZE(counts); k++) {
		put(u, 1 + k, r, counts[k]);
		if (k == 0)
			answer(u, 7, make_table(0x1000, simple_rows));
		for (size_t i = 0; i < counts[k]; i++) {
			w.stack[103] = r[i].start + 0x250;
			w.stack[105] = r[counts[k] - 1 - i].start + 0x110;
			walk(u, &w, r[i].start + 0x310, 100, 0, &x);
			assert_int_equal(x.end, WALK_COMPLETE);
			assert_int_equal(x.n, 3);
		}
		/* Behind and between. */
		w.stack[103] = r[counts[k] - 1].end + 1;
		walk(u, &w, r[0].start + 0x310, 100, 0, &x);
		assert_int_equal(x.end, WALK_NO_MAPPING);
		w.stack[103] = BASE;
		walk(u, &w, r[0].start + 0x310, 100, 0, &x);
		assert_int_equal(x.end, WALK_NO_MAPPING);
	}
	assert_int_equal(unwinder_put(u, TGID, START, 100, r, ARRAY_SIZE(r)), -E2BIG);
	/* The one before is as it was. */
	assert_int_equal(unwinder_version(u, TGID, START), ARRAY_SIZE(counts));
}

static void rows_of_100k(struct table_builder *b)
{
	for (uint32_t i = 0; i < 25000; i++)
		add(b, i * 16, by_sp(8 + 8 * (i & 1), 0));
}

static void tell(struct unwinder *u, const struct unwind_file_key *file, uint64_t address)
{
	struct unwind_stranger s = { .process = { .tgid = TGID, .start = START },
				     .address = address };
	struct unwinder_maps maps;

	unwinder_maps(u, &maps);
	assert_int_equal(bpf_map_update_elem(maps.strangers, file, &s, BPF_ANY), 0);
}

/* 0 when no table is known for the file. */
static uint32_t root_of(struct unwinder *u, const struct unwind_file_key *file)
{
	struct unwinder_maps maps;
	struct unwind_file f = {};

	unwinder_maps(u, &maps);
	return bpf_map_lookup_elem(maps.files, file, &f) == 0 ? f.root : 0;
}

#define A_FILE(number) (&(const struct unwind_file_key){ .ino = (number), .size = 9000 })

/* A binary is found in each file that it lies in, and in none when its table goes. */
static void test_files(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(2 << 20);
	struct unwinder_region r = { BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE };
	const struct unwind_file_key *a = A_FILE(1), *b = A_FILE(2);
	struct table *t = make_table(0x1000, simple_rows);
	struct unwind_file_key found;
	struct unwind_stranger s;

	assert_false(unwinder_stranger(u, &found, &s));
	put(u, 1, &r, 1);
	unwinder_file(u, 7, 0, b, 0);
	assert_int_equal(root_of(u, b), 0);
	assert_int_equal(unwinder_next(u), 7);
	unwinder_answer(u, 7, t, a, 0, false);
	free(t);
	assert_int_not_equal(root_of(u, a), 0);
	tell(u, b, BASE + 5);
	assert_true(unwinder_stranger(u, &found, &s));
	assert_memory_equal(&found, b, sizeof(found));
	assert_int_equal(s.address, BASE + 5);
	assert_false(unwinder_stranger(u, &found, &s));
	/* Somebody else's word, and another file in the place of the one that was met. */
	unwinder_file(u, 7, 1000, b, 0);
	found.size++;
	unwinder_file(u, 7, 0, &found, 0);
	assert_int_equal(root_of(u, b) + root_of(u, &found), 0);
	unwinder_file(u, 7, 1000, b, 1000);
	unwinder_file(u, 8, 0, a, 0); /* nobody knows that one */
	assert_int_equal(root_of(u, b), root_of(u, a));
	/* More files than there is room for: the oldest go. */
	for (uint64_t i = 0; i < 4096; i++)
		unwinder_file(u, 7, 0, A_FILE(100 + i), 0);
	assert_int_equal(root_of(u, a) + root_of(u, b), 0);
	assert_int_not_equal(root_of(u, A_FILE(100)), 0);
	unwinder_file(u, 7, 0, a, 0);
	assert_int_not_equal(root_of(u, a), 0);

	/* It is the longest unused when there is no more room. */
	unwinder_remove(u, TGID, START);
	for (r.binary = 11; root_of(u, a); r.binary++) {
		assert_true(r.binary < 100);
		for (int k = 0; k < 40; k++)
			unwinder_settle(u);
		r.end = BASE + 400000;
		assert_int_equal(unwinder_put(u, 1000, START, r.binary, &r, 1), 0);
		answer(u, r.binary, make_table(400000, rows_of_100k));
	}
	assert_int_equal(root_of(u, A_FILE(4195)), 0);
}

/* One process more than fit, each with a binary of its own: the longest unused goes, and comes back. */
static void test_budget(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(2 << 20);
	struct unwinder_stats s;
	struct unwinder_region r = { BASE, BASE + 400000, 0x1000, 0, UNWINDER_FILE };
	uint64_t binary, built = 0;

	for (uint32_t i = 1; i <= 24; i++) {
		r.binary = i;
		assert_int_equal(unwinder_put(u, 1000 + i, START, i, &r, 1), 0);
		for (int k = 0; k < 40; k++)
			unwinder_settle(u);
		while ((binary = unwinder_next(u))) {
			struct table *t = make_table(400000, rows_of_100k);

			unwinder_answer(u, binary, t, NULL, 0, false);
			built++;
			free(t);
		}
		unwinder_stats(u, &s);
		assert_true(s.bytes <= 2 << 20);
	}
	unwinder_stats(u, &s);
	assert_true(s.tables >= 4);
	assert_true(s.evicted >= 1);
	assert_true(s.lacking[UNWIND_LACK_MEMORY] >= 1);
	assert_int_equal(s.tables + s.lacking[UNWIND_LACK_MEMORY], 24);
	/* In use, none goes. */
	for (uint32_t i = 1; i <= 24; i++)
		unwinder_used(u, i);
	r.binary = 33;
	assert_int_equal(unwinder_put(u, 1033, START, 33, &r, 1), 0);
	answer(u, 33, make_table(400000, rows_of_100k));
	unwinder_stats(u, &s);
	assert_true(s.refused >= 1);
}

#define WIDE_BYTES 3800000

static void wide_rows(struct table_builder *b)
{
	for (uint32_t i = 0; i < WIDE_BYTES / 16; i++)
		add(b, i * 16, by_sp(8 + 8 * (i & 1), 0));
}

static unsigned known_processes(struct unwinder *u, unsigned n)
{
	struct unwinder_maps maps;
	unsigned known = 0;

	unwinder_maps(u, &maps);
	for (uint32_t i = 1; i <= n; i++) {
		struct unwind_process_key key = { .start = START, .tgid = i };
		struct unwind_process value;

		known += bpf_map_lookup_elem(maps.processes, &key, &value) == 0;
	}
	return known;
}

/* Not a node is free when the table goes that all map: they are unknown for a moment, not for good. */
static void test_full(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(1000); /* one map at least */
	struct unwinder_region r[] = {
		{ BASE, BASE + WIDE_BYTES, 0x1000, 7, UNWINDER_FILE },
		{ 2 * BASE, 2 * BASE + WIDE_BYTES, 0x1000, 8, UNWINDER_FILE },
	};
	struct unwinder_stats s;
	unsigned n = 0;

	unwinder_stats(u, &s);
	assert_int_equal(s.bytes_max, UNWIND_NODES_PER_MAP * UNWIND_NODE_SIZE);
	assert_int_equal(unwinder_put(u, 1, START, 1, r, 1), 0);
	answer(u, 7, make_table(WIDE_BYTES, wide_rows));
	for (n = 1; n < 64 && unwinder_put(u, n + 1, START, n + 1, r, 1) == 0; n++)
		;
	assert_in_range(n, 2, 62);
	assert_int_equal(known_processes(u, n), n);
	for (int k = 0; k < 40; k++)
		unwinder_settle(u);
	/* Another one is wanted, as large: what was not used for a minute makes room. */
	unwinder_want(u, 8);
	answer(u, 8, make_table(WIDE_BYTES, wide_rows));
	assert_true(known_processes(u, n) < n);
	for (int k = 0; k < 4; k++)
		unwinder_settle(u);
	assert_int_equal(known_processes(u, n), n);
}

static bool drop_all(void *ctx, uint32_t tgid, uint64_t start, uint64_t version)
{
	return false;
}

static void test_processes(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(0);
	struct unwinder_region r = { BASE, BASE + 0x1000, 0x1000, 7, UNWINDER_FILE };
	struct unwinder_maps maps;
	struct unwinder_stats s;
	struct unwind_process_key key = { .start = START, .tgid = 3 };
	struct unwind_process value, other;

	/* Forks share one set of mappings. */
	for (uint32_t i = 1; i <= 64; i++)
		assert_int_equal(unwinder_put(u, i, START, 5, &r, 1), 0);
	unwinder_stats(u, &s);
	assert_int_equal(s.processes, 64);
	assert_int_equal(s.spaces, 1);
	assert_int_equal(unwinder_put(u, 65, START, 5, &r, 1), -E2BIG);
	unwinder_maps(u, &maps);
	assert_int_equal(bpf_map_lookup_elem(maps.processes, &key, &value), 0);
	assert_int_not_equal(value.node, 0);

	/* Another set of mappings, another key for what caches hold. */
	assert_int_equal(unwinder_put(u, 3, START, 6, &r, 1), 0);
	assert_int_equal(bpf_map_lookup_elem(maps.processes, &key, &other), 0);
	assert_int_not_equal(value.space, other.space);
	assert_int_not_equal(value.node, other.node);
	unwinder_remove(u, 3, START);
	assert_true(bpf_map_lookup_elem(maps.processes, &key, &other) < 0);
	assert_int_equal(unwinder_version(u, 3, START), 0);

	/* Those whom no sample met for a minute make room. */
	assert_int_equal(unwinder_put(u, 65, START, 5, &r, 1), 0);
	for (int k = 0; k < 40; k++)
		unwinder_settle(u);
	assert_int_equal(unwinder_version(u, 4, START), 5);
	assert_int_equal(unwinder_put(u, 66, START, 5, &r, 1), 0);
	assert_int_equal(unwinder_version(u, 4, START), 5);
	unwinder_each(u, drop_all, NULL);
	unwinder_stats(u, &s);
	assert_int_equal(s.processes, 0);
	assert_int_equal(s.spaces, 0);
	unwinder_settle(u);
	unwinder_settle(u);
	unwinder_stats(u, &s);
	assert_int_equal(s.bytes_used, 0);
}

/* Who runs ever new binaries does not fill the memory with wishes; what lives is wanted all the same. */
static void test_wishes(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(2 << 20);
	struct unwinder_region r[] = {
		{ BASE, BASE + 0x1000, 0x1000, 7000, UNWINDER_FILE },
		{ BASE + 0x1000, BASE + 0x2000, 0x2000, 7000, UNWINDER_FILE },
	};
	struct unwinder_stats s;

	for (uint64_t binary = 1; binary <= 5000; binary++)
		unwinder_want(u, binary);
	unwinder_stats(u, &s);
	assert_int_equal(s.wanted, 4096);
	assert_int_equal(s.refused, 5000 - 4096);
	put(u, 1, r, ARRAY_SIZE(r));
	unwinder_stats(u, &s);
	assert_int_equal(s.wanted, 4097);
	unwinder_remove(u, TGID, START);
	unwinder_stats(u, &s);
	assert_int_equal(s.wanted, 4096);
	/* The first ones are built, and make room. */
	assert_int_equal(unwinder_next(u), 1);
	unwinder_want(u, 2);
	unwinder_want(u, 5001);
	unwinder_want(u, 5002);
	unwinder_stats(u, &s);
	assert_int_equal(s.wanted, 4097); /* one of them is being built */
	for (uint64_t binary = 2; binary <= 4096; binary++)
		assert_int_equal(unwinder_next(u), binary);
	assert_int_equal(unwinder_next(u), 5001);
	assert_int_equal(unwinder_next(u), 0);
}

/* All binaries without a table are mapped, but for the last one. */
static void test_lacking(void **state)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = make_unwinder(2 << 20);
	static struct unwinder_region r[UNWIND_LIST * UNWIND_LISTS];
	const struct unwind_file_key *file = A_FILE(1);
	uint64_t binary = 0;
	struct unwinder_stats s;

	for (uint32_t process = 1; process <= 2; process++) {
		for (size_t i = 0; i < ARRAY_SIZE(r); i++)
			r[i] = (struct unwinder_region){ BASE + i * 0x1000, BASE + (i + 1) * 0x1000,
							 0, ++binary, UNWINDER_FILE };
		assert_int_equal(unwinder_put(u, process, START, process, r, ARRAY_SIZE(r)), 0);
	}
	unwinder_want(u, ++binary);
	for (uint64_t next; (next = unwinder_next(u));) {
		/* That they are made anew for each is of no interest here. */
		if (next == 1 || next == binary - 1)
			unwinder_settle(u);
		unwinder_answer(u, next, NULL, file, UNWIND_LACK_CFI, true);
	}
	unwinder_stats(u, &s);
	assert_int_equal(s.lacking[UNWIND_LACK_CFI], binary);
	/* It makes room for the next. */
	unwinder_want(u, ++binary);
	assert_int_equal(unwinder_next(u), binary);
	unwinder_answer(u, binary, NULL, file, UNWIND_LACK_CFI, true);
	unwinder_stats(u, &s);
	assert_int_equal(s.lacking[UNWIND_LACK_CFI], binary - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walks),
#ifdef REGS_BASE
		cmocka_unit_test(test_signal_frames), cmocka_unit_test(test_base_register),
#else
		cmocka_unit_test(test_link_register),
#endif
		cmocka_unit_test(test_large_table),   cmocka_unit_test(test_many_mappings),
		cmocka_unit_test(test_files),	      cmocka_unit_test(test_budget),
		cmocka_unit_test(test_wishes),	      cmocka_unit_test(test_lacking),
		cmocka_unit_test(test_full),	      cmocka_unit_test(test_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
