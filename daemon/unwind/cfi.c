// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The records of .eh_frame and .debug_frame. The functions' order comes from the table in .eh_frame_hdr, which linkers
 * sort; where that is missing or wrong, all records are read once and sorted here.
 */
#include <elf.h>
#include <stdlib.h>

#include "unwind/cfi-internal.h"

#define RECORD_MAX (1U << 20) /* bytes; the longest known have some 10 thousand */
#define FUNCTIONS_MAX (1U << 20) /* that are sorted: 16 MiB */
#define CIES 64 /* that are kept; linkers merge them to a few */
#define WORK 8 /* times the section's size: records may overlap, and not many times */

static_assert(32 <= TABLE_REGISTERS, "of the machine that has most");
static const struct cfi_machine machines[] = {
	{ .number = EM_X86_64, .sp = 7, .fp = 6, .ra = 16, .base = 3, .n_general = 16 },
	{ .number = EM_AARCH64, .sp = 31, .fp = 29, .ra = 30, .base = 0xff, .n_general = 32 },
};

struct kept_cie {
	const struct cfi_source *source;
	uint64_t offset;
	int error; /* that reading it gave */
	struct cfi_cie cie;
};

/* Of an FDE. With several sources the offset's highest bits say which. */
struct place {
	uint64_t start, offset;
};
#define OFFSET_BITS 62

struct cfi {
	const struct cfi_source *sources;
	size_t n_sources;
	const struct cfi_source *s; /* the one that is read now */
	const struct cfi_machine *machine;
	struct kept_cie kept[CIES];
	struct cfi_rows rows;
	struct cfi_counts counts;
	uint64_t work; /* bytes that may still be interpreted */
};

struct record {
	uint64_t offset, end; /* in the section: of the length, and behind the record */
	uint64_t body; /* behind the identifier */
	uint64_t id; /* 0: a CIE, otherwise the offset of the CIE plus 1 */
};

struct fde {
	struct record record;
	const struct cfi_cie *cie;
	uint64_t start, size;
	struct cursor instructions;
	uint64_t vaddr; /* of the instructions */
};

/* ---- numbers ----------------------------------------------------------------------------------- */

static uint64_t take_value(struct cursor *c, uint8_t encoding)
{
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
	case DW_EH_PE_signed:
		return take_fixed(c, 8);
	case DW_EH_PE_uleb128:
		return take_uleb(c);
	case DW_EH_PE_sleb128:
		return (uint64_t)take_sleb(c);
	case DW_EH_PE_udata2:
		return take_fixed(c, 2);
	case DW_EH_PE_sdata2:
		return (uint64_t)(int64_t)(int16_t)take_fixed(c, 2);
	case DW_EH_PE_udata4:
		return take_fixed(c, 4);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int64_t)(int32_t)take_fixed(c, 4);
	default:
		c->bad = true;
		return 0;
	}
}

uint64_t take_encoded(struct cursor *c, uint8_t encoding, uint64_t vaddr, uint64_t data)
{
	uint64_t v;

	if (encoding == DW_EH_PE_aligned) {
		take_bytes(c, -vaddr & 7);
		return take_fixed(c, 8);
	}
	v = take_value(c, encoding);
	/* What lies behind a pointer is known at run time only. */
	if (encoding & DW_EH_PE_indirect)
		c->bad = true;
	switch (encoding & 0x70) {
	case DW_EH_PE_absptr:
		return v;
	case DW_EH_PE_pcrel:
		return vaddr + v;
	case DW_EH_PE_datarel:
		c->bad |= !data;
		return data + v;
	default:
		c->bad = true;
		return 0;
	}
}

/* ---- records ----------------------------------------------------------------------------------- */

/*
 * The record at this offset. -ENOENT: a zero where a length should be. -EBADMSG leaves *ret_end untouched when it is
 * not known where the next one begins.
 */
static int read_record(const struct cfi *x, uint64_t offset, struct record *ret, uint64_t *ret_end)
{
	const struct cfi_source *s = x->s;
	uint64_t left = s->frames->size - MIN(offset, s->frames->size), length, id_at;
	unsigned id_size = 4;
	struct cursor c = {};
	int r = reader_get(s->frames, offset, (size_t)MIN(left, 20ULL), &c.p);

	if (r < 0)
		return r;
	c.end = c.p + MIN(left, 20ULL);
	length = take_fixed(&c, 4);
	id_at = offset + 4;
	if (length == UINT32_MAX) {
		length = take_fixed(&c, 8);
		id_at += 8;
		/* An identifier in .eh_frame has 4 bytes in any case. */
		id_size = s->debug ? 8 : 4;
	}
	if (c.bad)
		return -EBADMSG;
	if (!length)
		return -ENOENT;
	if (length > s->frames->size - id_at)
		return -EBADMSG;
	*ret_end = id_at + length;
	*ret = (struct record){ .offset = offset, .end = id_at + length, .body = id_at + id_size };
	ret->id = take_fixed(&c, id_size);
	if (c.bad || length < id_size || length > RECORD_MAX)
		return -EBADMSG;
	if (s->debug) {
		bool is_cie = ret->id == (id_size == 8 ? UINT64_MAX : UINT32_MAX);

		ret->id = is_cie ? 0 : ret->id + 1;
	} else if (ret->id) {
		/* From the identifier back to the CIE. */
		if (ret->id > id_at)
			return -EBADMSG;
		ret->id = id_at - ret->id + 1;
	}
	return 0;
}

static int open_record(struct cfi *x, const struct record *record, struct cursor *ret)
{
	size_t len = (size_t)(record->end - record->body);
	int r;

	if (len > x->work)
		return -EFBIG;
	x->work -= len;
	*ret = (struct cursor){};
	r = reader_get(x->s->frames, record->body, len, &ret->p);
	if (r < 0)
		return r;
	ret->end = ret->p + len;
	return 0;
}

/* ---- CIEs -------------------------------------------------------------------------------------- */

/* Skips an address whose value is of no interest. */
static void skip_encoded(struct cursor *c, uint8_t encoding, uint64_t vaddr)
{
	if (encoding == DW_EH_PE_omit)
		return;
	if (encoding == DW_EH_PE_aligned)
		take_encoded(c, encoding, vaddr, 0);
	else
		take_value(c, encoding);
}

static int take_augmentation(struct cfi_cie *cie, const char *letters, struct cursor *c,
			     uint64_t vaddr)
{
	struct cursor data;
	uint64_t len;

	if (letters[0] != 'z')
		return letters[0] ? -EBADMSG : 0;
	cie->augmented = true;
	len = take_uleb(c);
	vaddr -= (uint64_t)(c->end - c->p); /* now that of c->p, as vaddr was of the end */
	data.p = take_bytes(c, len);
	if (!data.p)
		return -EBADMSG;
	data.end = data.p + len;
	data.bad = false;
	for (const char *l = letters + 1; *l; l++) {
		const uint8_t *before = data.p;

		switch (*l) {
		case 'R':
			cie->encoding = take_u8(&data);
			break;
		case 'L':
			take_u8(&data);
			break;
		case 'P':
			take_u8(&data);
			if (!data.bad)
				skip_encoded(&data, *before, vaddr + 1);
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* signs return addresses with the other key */
		case 'G': /* tags its stack */
			break;
		default:
			/* Unknown, but its length is not: what was understood so far holds. */
			return data.bad ? -EBADMSG : 0;
		}
		vaddr += (uint64_t)(data.p - before);
	}
	return data.bad ? -EBADMSG : 0;
}

static int parse_cie(struct cfi *x, const struct record *record, struct cfi_cie *ret)
{
	struct cfi_cie cie = { .machine = x->machine };
	const char *letters;
	struct cursor c;
	uint8_t version;
	int r = open_record(x, record, &c);

	if (r < 0)
		return r;
	version = take_u8(&c);
	letters = (const char *)c.p;
	if (c.bad || !memchr(c.p, '\0', (size_t)(c.end - c.p)))
		return -EBADMSG;
	take_bytes(&c, strlen(letters) + 1);
	if (streq(letters, "eh")) {
		take_fixed(&c, 8);
		letters = "";
	}
	if (version >= 4 && (take_u8(&c) != 8 || take_u8(&c) != 0))
		return -EBADMSG;
	cie.code_align = take_uleb(&c);
	cie.data_align = take_sleb(&c);
	cie.ra = version == 1 ? take_u8(&c) : take_uleb(&c);
	if (c.bad || (version != 1 && version != 3 && version != 4))
		return -EBADMSG;
	r = take_augmentation(&cie, letters, &c, x->s->vaddr + record->end);
	if (r < 0)
		return r;
	r = cfi_run_cie(&cie, c);
	if (r >= 0)
		*ret = cie;
	return r;
}

static int find_cie(struct cfi *x, uint64_t offset, const struct cfi_cie **ret)
{
	struct kept_cie *k = &x->kept[(offset / 4 + (size_t)(x->s - x->sources)) % CIES];
	struct record record;
	uint64_t end;
	int r;

	if (k->source != x->s || k->offset != offset) {
		k->offset = offset;
		k->source = x->s;
		r = read_record(x, offset, &record, &end);
		if (r >= 0)
			r = record.id ? -EBADMSG : parse_cie(x, &record, &k->cie);
		k->error = r == -ENOENT ? -EBADMSG : r;
	}
	*ret = &k->cie;
	return k->error;
}

/* ---- FDEs -------------------------------------------------------------------------------------- */

static int parse_fde(struct cfi *x, const struct record *record, struct fde *ret)
{
	uint64_t vaddr = x->s->vaddr + record->body;
	struct fde fde = { .record = *record };
	const uint8_t *first;
	struct cursor c;
	int r = find_cie(x, record->id - 1, &fde.cie);

	/* The CIE first: its bytes are gone when others are asked for. */
	if (r >= 0)
		r = open_record(x, record, &c);
	if (r < 0)
		return r;
	first = c.p;
	fde.start = take_encoded(&c, fde.cie->encoding, vaddr, 0);
	fde.size = take_value(&c, fde.cie->encoding & 0x0f);
	if (fde.cie->augmented)
		take_bytes(&c, take_uleb(&c));
	if (c.bad || fde.size > UINT32_MAX || fde.start > UINT64_MAX - fde.size)
		return -EBADMSG;
	fde.vaddr = vaddr + (uint64_t)(c.p - first);
	fde.instructions = c;
	*ret = fde;
	return 0;
}

/* What is damaged is counted; only other errors are returned. */
static int count_damage(struct cfi *x, int error)
{
	if (error != -EBADMSG && error != -ENOENT)
		return error;
	x->counts.damaged++;
	return 0;
}

static int take_function(struct cfi *x, uint64_t offset, uint64_t start, cfi_take_fn take,
			 void *ctx)
{
	struct cfi_function f;
	struct record record;
	struct fde fde = {};
	uint64_t end;
	int r = read_record(x, offset, &record, &end);

	if (r >= 0)
		r = record.id ? parse_fde(x, &record, &fde) : -EBADMSG;
	if (r >= 0 && fde.start != start)
		r = -EBADMSG;
	if (r >= 0 && !fde.size)
		return 0;
	if (r >= 0)
		r = cfi_run_fde(fde.cie, fde.instructions, fde.start, fde.size, fde.vaddr,
				&x->rows);
	if (r < 0)
		return count_damage(x, r);
	x->counts.functions++;
	f = (struct cfi_function){
		.start = fde.start,
		.end = fde.start + fde.size,
		.rows = x->rows.rows,
		.n = x->rows.n,
	};
	return take(ctx, &f);
}

/* ---- by .eh_frame_hdr -------------------------------------------------------------------------- */

struct header {
	uint64_t frames; /* address of .eh_frame */
	uint64_t table; /* offset of the first entry */
	uint64_t n;
};

#define HEADER_ENTRY 8
#define HEADER_ENCODING (DW_EH_PE_datarel | DW_EH_PE_sdata4) /* all linkers use this one */

/* A table without entries when it has none that can be used. */
static int read_header(struct reader *r, uint64_t vaddr, struct header *ret)
{
	size_t len = (size_t)MIN(r->size, 24ULL);
	uint8_t version, pointer, count, table;
	struct header h = {};
	const uint8_t *first;
	struct cursor c = {};
	int q = reader_get(r, 0, len, &c.p);

	if (q < 0)
		return q;
	first = c.p;
	c.end = c.p + len;
	version = take_u8(&c);
	pointer = take_u8(&c);
	count = take_u8(&c);
	table = take_u8(&c);
	h.frames = take_encoded(&c, pointer, vaddr + 4, vaddr);
	if (c.bad || version != 1)
		return -EBADMSG;
	if (table == HEADER_ENCODING && count != DW_EH_PE_omit)
		h.n = take_encoded(&c, count, vaddr + (uint64_t)(c.p - first), vaddr);
	h.table = (uint64_t)(c.p - first);
	if (c.bad || h.n > (r->size - h.table) / HEADER_ENTRY)
		h.n = 0;
	*ret = h;
	return 0;
}

int cfi_header_frames(struct reader *header, uint64_t vaddr, uint64_t *ret)
{
	struct header h;
	int r = read_header(header, vaddr, &h);

	if (r >= 0)
		*ret = h.frames;
	return r;
}

/* Where the i-th function starts, and its FDE. */
static int read_entry(const struct cfi *x, const struct header *h, uint64_t i, struct place *ret)
{
	const struct cfi_source *s = x->s;
	struct cursor c = {};
	uint64_t fde;
	int r = reader_get(s->header, h->table + i * HEADER_ENTRY, HEADER_ENTRY, &c.p);

	if (r < 0)
		return r;
	c.end = c.p + HEADER_ENTRY;
	ret->start = s->header_vaddr + take_value(&c, DW_EH_PE_sdata4);
	fde = s->header_vaddr + take_value(&c, DW_EH_PE_sdata4);
	ret->offset = fde - s->vaddr;
	return ret->offset < s->frames->size ? 0 : -EBADMSG;
}

static int check_header(const struct cfi *x, struct header *ret)
{
	struct place last = {}, place = {};
	int r;

	if (!x->s->header)
		return -EBADMSG;
	r = read_header(x->s->header, x->s->header_vaddr, ret);
	if (r >= 0 && !ret->n)
		r = -EBADMSG;
	for (uint64_t i = 0; r >= 0 && i < ret->n; i++) {
		r = read_entry(x, ret, i, &place);
		if (r >= 0 && place.start < last.start)
			r = -EBADMSG;
		last = place;
	}
	return r;
}

static int read_by_header(struct cfi *x, const struct header *h, cfi_take_fn take, void *ctx)
{
	struct place last = {}, place;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < h->n; i++) {
		r = read_entry(x, h, i, &place);
		if (r == 0 && (!i || place.start != last.start))
			r = take_function(x, place.offset, place.start, take, ctx);
		last = place;
	}
	return r;
}

/* ---- by sorting -------------------------------------------------------------------------------- */

struct places {
	struct place *places;
	size_t n, cap;
};

static int add_place(struct cfi *x, const struct record *record, struct places *p)
{
	struct fde fde;
	int r;

	if (!record->id)
		return 0;
	r = parse_fde(x, record, &fde);
	if (r < 0)
		return count_damage(x, r);
	if (p->n == FUNCTIONS_MAX)
		return -EFBIG;
	r = ARRAY_GROW(p->places, p->cap, p->n + 1);
	if (r >= 0)
		p->places[p->n++] = (struct place){ fde.start,
						    record->offset | (uint64_t)(x->s - x->sources)
									     << OFFSET_BITS };
	return r;
}

static int collect_source(struct cfi *x, struct places *p)
{
	for (uint64_t at = 0; at < x->s->frames->size;) {
		uint64_t end = UINT64_MAX;
		struct record record;
		int r = read_record(x, at, &record, &end);

		if (r == -ENOENT) {
			/* Some linkers leave one between the parts. */
			if (x->s->unbounded)
				break;
			at += 4;
			continue;
		}
		r = r < 0 ? count_damage(x, r) : add_place(x, &record, p);
		if (r < 0)
			return r;
		at = end;
	}
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	if (p->start != q->start)
		return p->start < q->start ? -1 : 1;
	return p->offset < q->offset ? -1 : p->offset > q->offset;
}

static int collect(struct cfi *x, struct places *p)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->n_sources; i++) {
		x->s = &x->sources[i];
		r = collect_source(x, p);
	}
	if (r == 0 && p->n)
		qsort(p->places, p->n, sizeof(p->places[0]), by_start);
	return r;
}

static int read_by_sorting(struct cfi *x, cfi_take_fn take, void *ctx)
{
	struct places p = {};
	int r = collect(x, &p);

	for (size_t i = 0; r == 0 && i < p.n; i++) {
		uint64_t offset = p.places[i].offset;

		x->s = &x->sources[offset >> OFFSET_BITS];
		r = take_function(x, offset & ((1ULL << OFFSET_BITS) - 1), p.places[i].start, take,
				  ctx);
	}
	free(p.places);
	return r;
}

/* ------------------------------------------------------------------------------------------------ */

int cfi_read(const struct cfi_source *s, size_t n, cfi_take_fn take, void *ctx,
	     struct cfi_counts *ret)
{
	_cleanup_free_ struct cfi *x = new0(struct cfi, 1);
	struct header header;
	int r;

	assert(n && n <= CFI_SOURCES_MAX);
	if (!x)
		return -ENOMEM;
	x->s = x->sources = s;
	x->n_sources = n;
	for (size_t i = 0; i < n; i++)
		x->work += WORK * s[i].frames->size;
	for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
		if (machines[i].number == s->machine)
			x->machine = &machines[i];
	if (!x->machine)
		return -EINVAL;
	/* A header orders one source only. */
	r = n == 1 ? check_header(x, &header) : -EBADMSG;
	if (r >= 0)
		r = read_by_header(x, &header, take, ctx);
	else if (r == -EBADMSG)
		r = read_by_sorting(x, take, ctx);
	free(x->rows.rows);
	if (r == 0)
		*ret = x->counts;
	return r;
}
