// SPDX-License-Identifier: GPL-2.0-or-later
#include <elf.h>

#include "unwind/cfi.h"
#include "unwind/compile.h"
#include "unwind/gap.h"
#include "unwind/go.h"

#define FRAME_BLOCKS 512 /* 4 MiB: after BOLT, .eh_frame is not in the order of the code */
#define LARGEST_PAGE 0x10000

struct compiler {
	struct image image;
	struct gaps gaps; /* what adds the rows */
	uint64_t end; /* of the code */
	uint64_t done; /* rows are there up to this virtual address */
	struct cfi_counts counts;
	struct go_places go;
};

static const struct unwind_rule no_rule;

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
			r = gaps_add_row(&c->gaps, c->done, &no_rule);
		if (r >= 0)
			r = gaps_fill(&c->gaps, from, to);
		if (r < 0)
			return r;
		c->done = to;
	}
	return 0;
}

/* ---- functions --------------------------------------------------------------------------------- */

/* The part of it that lies in executable memory, and in which no function before it lies. */
static bool clip(const struct compiler *c, const struct cfi_function *f, struct gap *ret)
{
	uint64_t start = MAX(f->start, c->done);

	for (size_t i = 0; i < c->image.n_loads; i++) {
		const struct image_part *p = &c->image.loads[i].part;

		if (!c->image.loads[i].executable || start < p->vaddr ||
		    start - p->vaddr >= p->size)
			continue;
		*ret = (struct gap){ .start = start, .end = MIN(f->end, p->vaddr + p->size) };
		return ret->start < ret->end;
	}
	return false;
}

static int add_rows(struct compiler *c, const struct cfi_function *f, const struct gap *in)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < f->n; i++) {
		uint64_t start = MAX(f->start + f->rows[i].pc, in->start);
		uint64_t end = i + 1 < f->n ? f->start + f->rows[i + 1].pc : in->end;

		if (start < MIN(end, in->end))
			r = gaps_add_row(&c->gaps, start, &f->rows[i].rule);
	}
	return r;
}

static int take_function(void *ctx, const struct cfi_function *f)
{
	const struct unwind_rule *known;
	struct compiler *c = ctx;
	struct gap in;
	int r;

	if (!clip(c, f, &in))
		return 0;
	known = go_rule_at(&c->go, f->start);
	/* From the byte before it, as in a gap. */
	if (known && known->cfa == UNWIND_SIGNAL && in.start > c->done)
		in.start--;
	r = fill_to(c, in.start);
	if (r >= 0)
		r = known ? gaps_add_row(&c->gaps, in.start, known) : add_rows(c, f, &in);
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

/* What is read from, and where; there may be none. */
struct sources {
	struct cfi_source s[CFI_SOURCES_MAX];
	size_t n;
	struct reader header, eh_frame, debug_frame;
	void *inflated;
};

static void sources_done(struct sources *x)
{
	reader_done(&x->header);
	reader_done(&x->eh_frame);
	reader_done(&x->debug_frame);
	free(x->inflated);
}

static int open_eh_frame(const struct image *m, struct sources *x)
{
	struct cfi_source s = { .machine = m->machine, .frames = &x->eh_frame };
	struct image_part part = m->eh_frame;
	int r;

	if (m->frame_header.size) {
		r = reader_init(&x->header, m->fd, m->frame_header.offset, m->frame_header.size, 2);
		if (r < 0)
			return r;
		s.header = &x->header;
		s.header_vaddr = m->frame_header.vaddr;
		if (!part.size)
			s.unbounded = find_eh_frame(m, &x->header, &part);
	}
	if (!part.size || part.compressed)
		return 0;
	r = reader_init(&x->eh_frame, m->fd, part.offset, part.size, FRAME_BLOCKS);
	if (r < 0)
		return r;
	s.vaddr = part.vaddr;
	x->s[x->n++] = s;
	return 0;
}

/* Of what .eh_frame does not describe: Go's code, and C that was compiled without unwind tables. */
static int open_debug_frame(const struct image *m, struct sources *x)
{
	const struct image_part *p = &m->debug_frame;
	size_t size;
	int r;

	if (!p->size)
		return 0;
	if (p->compressed) {
		r = image_inflate(m, p, &x->inflated, &size);
		if (r >= 0)
			reader_init_memory(&x->debug_frame, x->inflated, size);
	} else {
		r = reader_init(&x->debug_frame, m->fd, p->offset, p->size, FRAME_BLOCKS);
	}
	/* A damaged one is like none. */
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	x->s[x->n++] = (struct cfi_source){ .machine = m->machine,
					    .frames = &x->debug_frame,
					    .debug = true };
	return 0;
}

static int read_functions(struct compiler *c)
{
	_cleanup_(sources_done) struct sources x = {};
	int r = open_eh_frame(&c->image, &x);

	if (r >= 0)
		r = open_debug_frame(&c->image, &x);
	if (r < 0 || !x.n)
		return r;
	return cfi_read(x.s, x.n, take_function, c, &c->counts);
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
			c->gaps.base = p->vaddr & ~(uint64_t)(LARGEST_PAGE - 1);
			c->done = p->vaddr;
			r = table_builder_new(m->machine, c->gaps.base, &c->gaps.builder);
			if (r < 0)
				return r;
		}
		found = true;
		c->end = p->vaddr + p->size;
		s = (struct table_segment){ p->offset, p->size, p->vaddr - c->gaps.base };
		/* Their order is that of the addresses: the loader relies on it as well. */
		r = table_add_segment(c->gaps.builder, &s);
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
		r = go_read_places(&c->image, &c->go);
	if (r >= 0)
		r = read_functions(c);
	if (r >= 0)
		r = fill_to(c, c->end);
	if (r >= 0)
		r = table_finish(c->gaps.builder, &t);
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
	c->gaps.image = &c->image;
	r = image_open(fd, &c->image);
	if (r >= 0)
		r = compile(c, ret);
	reader_done(&c->gaps.code);
	table_builder_free(c->gaps.builder);
	return r;
}
