// SPDX-License-Identifier: GPL-2.0-or-later
#include <elf.h>

#include "unwind/cfi.h"
#include "unwind/compile.h"
#include "unwind/image.h"

#define FRAME_BLOCKS \
	512 /* 4 MiB of .eh_frame: functions need not lie there in the order of their code */
#define CODE_BLOCKS 4
#define ENTRY_BYTES 64 /* of an entry point without a length */
#define LARGEST_PAGE 0x10000
#define ALIGNMENT_MAX 64 /* of functions */

struct compiler {
	struct image image;
	struct table_builder *builder;
	uint64_t base, end; /* virtual addresses of code */
	uint64_t done; /* rows are there up to this one */
	struct reader code; /* of the segment with this number */
	size_t code_load;
	struct cfi_counts counts;
};

static const struct unwind_rule no_rule, end_rule = { .cfa = UNWIND_END },
					 signal_rule = { .cfa = UNWIND_SIGNAL };

static int add_row(struct compiler *c, uint64_t vaddr, const struct unwind_rule *rule)
{
	return table_add_row(c->builder, (uint32_t)(vaddr - c->base), rule);
}

/* ---- code without call frame information ------------------------------------------------------- */

/* An address range in a gap, and what is known of it. */
struct island {
	uint64_t start, end;
	const struct unwind_rule *rule;
};

struct gap {
	uint64_t at, end; /* rows are there up to `at` */
};

static int add_island(struct compiler *c, struct gap *g, const struct island *i)
{
	uint64_t start = MAX(i->start, g->at), end = MIN(i->end, g->end);
	int r = 0;

	if (start >= end)
		return 0;
	if (start > g->at)
		r = add_row(c, g->at, &no_rule);
	if (r >= 0)
		r = add_row(c, start, i->rule);
	g->at = end;
	return r;
}

struct code_pattern {
	uint32_t machine;
	uint8_t bytes[10];
	uint8_t n;
};

/* The return from a signal handler. */
static const struct code_pattern sigreturns[] = {
	/* mov $15, %rax; syscall */
	{ EM_X86_64, { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 }, 9 },
	/* mov $15, %eax; syscall */
	{ EM_X86_64, { 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05 }, 7 },
	/* mov x8, #139; svc #0 */
	{ EM_AARCH64, { 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 }, 8 },
};
#define PATTERN_MIN 7

static int scan_chunk(struct compiler *c, struct gap *g, uint64_t vaddr, const uint8_t *code,
		      size_t n)
{
	const struct code_pattern *first;
	const uint8_t *end = code + n;

	for (const uint8_t *p = code; p; p = first ? code + (g->at - vaddr) : NULL) {
		const uint8_t *found = NULL;
		struct island i;
		int r;

		first = NULL;
		for (size_t k = 0; k < ARRAY_SIZE(sigreturns); k++) {
			const struct code_pattern *s = &sigreturns[k];
			const uint8_t *q = NULL;

			if (s->machine == c->image.machine)
				q = memmem(p, (size_t)(end - p), s->bytes, s->n);
			if (q && (!found || q < found)) {
				found = q;
				first = s;
			}
		}
		if (!first)
			break;
		/*
		 * The byte before it as well: the walker looks a return address up there, and that of a
		 * handler is the pattern's first byte.
		 */
		i = (struct island){ .start = vaddr + (uint64_t)(found - code) - 1,
				     .end = vaddr + (uint64_t)(found - code) + first->n,
				     .rule = &signal_rule };
		r = add_island(c, g, &i);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_code(struct compiler *c, uint64_t vaddr, const struct image_load **ret)
{
	for (size_t i = 0; i < c->image.n_loads; i++) {
		const struct image_load *l = &c->image.loads[i];

		if (vaddr < l->part.vaddr || vaddr - l->part.vaddr >= l->part.size)
			continue;
		*ret = l;
		if (c->code.blocks && c->code_load == i)
			return 0;
		reader_done(&c->code);
		c->code_load = i;
		return reader_init(&c->code, c->image.fd, l->part.offset, l->part.size,
				   CODE_BLOCKS);
	}
	return -EBADMSG;
}

/* Bytes that align what begins behind them; to read all code for their sake would be a waste. */
static bool is_padding(const struct gap *g)
{
	uint64_t alignment = MIN(g->end & -g->end, (uint64_t)ALIGNMENT_MAX);

	return g->end - g->at < MAX(alignment, (uint64_t)PATTERN_MIN);
}

static int scan_code(struct compiler *c, struct gap *g, uint64_t start, uint64_t end)
{
	const struct image_load *l;
	int r;

	for (uint64_t at = start; at < end && end - at >= PATTERN_MIN;) {
		size_t n = (size_t)MIN(end - at, (uint64_t)READER_BLOCK);
		const uint8_t *code;

		r = open_code(c, at, &l);
		if (r >= 0)
			r = reader_get(&c->code, at - l->part.vaddr, n, &code);
		if (r >= 0)
			r = scan_chunk(c, g, at, code, n);
		if (r < 0)
			return r;
		if (n == end - at)
			break;
		at = MAX(at + n - (sizeof(sigreturns[0].bytes) - 1), g->at);
	}
	return 0;
}

/* From g->at to `end`, without what is no code: segments may hold constants as well, and many. */
static int scan(struct compiler *c, struct gap *g, uint64_t end)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < c->image.n_code; i++) {
		const struct image_part *p = &c->image.code[i];

		r = scan_code(c, g, MAX(g->at, p->vaddr), MIN(end, p->vaddr + p->size));
	}
	return r;
}

/* Within one segment. */
static int fill_gap(struct compiler *c, uint64_t start, uint64_t end)
{
	struct gap g = { start, end };
	uint64_t entry = c->image.entry;
	int r = 0;

	if (!is_padding(&g)) {
		if (entry && entry >= start && entry < end) {
			struct island i = { entry, MIN(entry + ENTRY_BYTES, end), &end_rule };

			r = scan(c, &g, entry);
			if (r >= 0)
				r = add_island(c, &g, &i);
		}
		if (r >= 0)
			r = scan(c, &g, end);
	}
	if (r >= 0 && g.at < end)
		r = add_row(c, g.at, &no_rule);
	return r;
}

/* From what is done to this address, over segments and what lies between them. */
static int fill_to(struct compiler *c, uint64_t end)
{
	for (size_t i = 0; i < c->image.n_loads; i++) {
		const struct image_load *l = &c->image.loads[i];
		uint64_t from = MAX(c->done, l->part.vaddr);
		uint64_t to = MIN(end, l->part.vaddr + l->part.size);
		int r = 0;

		if (!l->executable || from > to)
			continue;
		/* The last function of the segment before ends there. */
		if (from > c->done)
			r = add_row(c, c->done, &no_rule);
		if (r >= 0)
			r = fill_gap(c, from, to);
		if (r < 0)
			return r;
		c->done = to;
	}
	return 0;
}

/* ---- functions --------------------------------------------------------------------------------- */

/* The part of it that lies in executable memory, and in which no function before it lies. */
static bool clip(const struct compiler *c, const struct cfi_function *f, struct island *ret)
{
	uint64_t start = MAX(f->start, c->done);

	for (size_t i = 0; i < c->image.n_loads; i++) {
		const struct image_part *p = &c->image.loads[i].part;

		if (!c->image.loads[i].executable || start < p->vaddr ||
		    start - p->vaddr >= p->size)
			continue;
		*ret = (struct island){ .start = start, .end = MIN(f->end, p->vaddr + p->size) };
		return ret->start < ret->end;
	}
	return false;
}

static int take_function(void *ctx, const struct cfi_function *f)
{
	struct compiler *c = ctx;
	struct island in;
	int r;

	if (!clip(c, f, &in))
		return 0;
	r = fill_to(c, in.start);
	for (size_t i = 0; r >= 0 && i < f->n; i++) {
		uint64_t start = MAX(f->start + f->rows[i].pc, in.start);
		uint64_t end = i + 1 < f->n ? f->start + f->rows[i + 1].pc : in.end;

		if (start < MIN(end, in.end))
			r = add_row(c, start, &f->rows[i].rule);
	}
	c->done = in.end;
	return r;
}

/* ---- sources ----------------------------------------------------------------------------------- */

/* Where .eh_frame_hdr says that .eh_frame begins. */
static bool find_eh_frame(const struct image *m, struct reader *header, struct image_part *ret)
{
	uint64_t vaddr;

	if (cfi_header_frames(header, m->frame_header.vaddr, &vaddr) < 0 ||
	    !image_part_at(m, vaddr, ret))
		return false;
	return true;
}

static int read_eh_frame(struct compiler *c)
{
	_cleanup_(reader_done) struct reader header = {}, frames = {};
	const struct image *m = &c->image;
	struct cfi_source s = { .machine = m->machine, .frames = &frames };
	struct image_part part = m->eh_frame;
	int r;

	if (m->frame_header.size) {
		r = reader_init(&header, m->fd, m->frame_header.offset, m->frame_header.size, 2);
		if (r < 0)
			return r;
		s.header = &header;
		s.header_vaddr = m->frame_header.vaddr;
		if (!part.size)
			s.unbounded = find_eh_frame(m, &header, &part);
	}
	if (!part.size || part.compressed)
		return 0;
	r = reader_init(&frames, m->fd, part.offset, part.size, FRAME_BLOCKS);
	if (r < 0)
		return r;
	s.vaddr = part.vaddr;
	return cfi_read(&s, take_function, c, &c->counts);
}

static int read_debug_frame(struct compiler *c)
{
	_cleanup_(reader_done) struct reader frames = {};
	_cleanup_free_ void *inflated = NULL;
	const struct image *m = &c->image;
	struct cfi_source s = { .machine = m->machine, .frames = &frames, .debug = true };
	size_t size;
	int r;

	if (!m->debug_frame.size)
		return 0;
	if (m->debug_frame.compressed) {
		r = image_inflate(m, &m->debug_frame, &inflated, &size);
		if (r >= 0)
			reader_init_memory(&frames, inflated, size);
	} else {
		r = reader_init(&frames, m->fd, m->debug_frame.offset, m->debug_frame.size,
				FRAME_BLOCKS);
	}
	/* A damaged one is like none. */
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	return cfi_read(&s, take_function, c, &c->counts);
}

/* ---- the file ---------------------------------------------------------------------------------- */

static int add_segments(struct compiler *c)
{
	const struct image *m = &c->image;
	bool found = false;
	int r;

	for (size_t i = 0; i < m->n_loads; i++) {
		const struct image_part *p = &m->loads[i].part;
		struct table_segment s;

		if (!m->loads[i].executable)
			continue;
		if (!found) {
			/* The mapping may begin with the page of a machine whose pages are large. */
			c->base = p->vaddr & ~(uint64_t)(LARGEST_PAGE - 1);
			c->done = p->vaddr;
			r = table_builder_new(m->machine, c->base, &c->builder);
			if (r < 0)
				return r;
		}
		found = true;
		c->end = p->vaddr + p->size;
		s = (struct table_segment){ p->offset, p->size, p->vaddr - c->base };
		/* Their order is that of the addresses: the loader relies on it as well. */
		r = table_add_segment(c->builder, &s);
		if (r < 0)
			return r == -EINVAL ? -EBADMSG : r;
	}
	return found ? 0 : -ENODATA;
}

static int compile(struct compiler *c, struct table **ret)
{
	struct table *t;
	int r = add_segments(c);

	if (r >= 0)
		r = read_eh_frame(c);
	if (r >= 0 && !c->counts.functions)
		r = read_debug_frame(c);
	if (r >= 0)
		r = fill_to(c, c->end);
	if (r >= 0)
		r = table_finish(c->builder, &t);
	if (r < 0)
		return r;
	t->functions = c->counts.functions;
	t->damaged = c->counts.damaged;
	*ret = t;
	return 0;
}

int table_compile(int fd, struct table **ret)
{
	_cleanup_free_ struct compiler *c = new0(struct compiler, 1);
	int r;

	if (!c)
		return -ENOMEM;
	r = image_open(fd, &c->image);
	if (r >= 0)
		r = compile(c, ret);
	reader_done(&c->code);
	table_builder_free(c->builder);
	return r;
}
