// SPDX-License-Identifier: GPL-2.0-or-later
/* Envelope, streams and tables; format.h describes the bytes. */
#include <endian.h>
#include <math.h>
#include <zstd.h>

#include "store/blob.h"
#include "store/crc32c.h"

#define ZSTD_LEVEL 3

/* ---- envelope ---------------------------------------------------------------------------------- */

void blob_writer_done(struct blob_writer *w)
{
	ZSTD_freeCCtx(w->zstd);
	strbuf_done(&w->payload);
	free(w->cuts);
	free(w->numbers);
	*w = (struct blob_writer){};
}

void blob_reader_done(struct blob_reader *r)
{
	ZSTD_freeDCtx(r->zstd);
	free(r->payload);
	free(r->numbers);
	*r = (struct blob_reader){};
}

void blob_begin(struct blob_writer *w)
{
	strbuf_reset(&w->payload);
	w->n_cuts = 0;
}

static void put_le32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static uint32_t get_le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

static uint32_t checksum(const uint64_t *key, size_t n_key, const uint8_t *blob, size_t len)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < n_key; i++) {
		uint64_t k = htole64(key[i]);

		crc = crc32c(crc, &k, sizeof(k));
	}
	crc = crc32c(crc, blob, 4);
	return crc32c(crc, blob + 8, len - 8);
}

/* One frame, a block for each stretch between cuts. The size, or 0 when it did not fit in cap. */
static size_t compress(struct blob_writer *w, uint8_t *to, size_t cap)
{
	ZSTD_outBuffer out = { .dst = to, .size = cap };
	size_t from = 0;

	ZSTD_CCtx_reset(w->zstd, ZSTD_reset_session_only);
	if (ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(w->zstd, w->payload.len)))
		return 0;
	for (size_t i = 0; i <= w->n_cuts; i++) {
		size_t end = i < w->n_cuts ? w->cuts[i] : w->payload.len;
		ZSTD_inBuffer in = { .src = w->payload.data + from, .size = end - from };
		size_t left = ZSTD_compressStream2(w->zstd, &out, &in,
						   i < w->n_cuts ? ZSTD_e_flush : ZSTD_e_end);

		if (left != 0)
			return 0;
		from = end;
	}
	return out.pos;
}

static int writer_prepare(struct blob_writer *w)
{
	if (w->zstd)
		return 0;
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd)
		return -ENOMEM;
	ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
	ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_contentSizeFlag, 0);
	return 0;
}

int blob_seal(struct blob_writer *w, enum blob_content content, const uint64_t *key, size_t n_key,
	      struct strbuf *out)
{
	size_t raw = w->payload.len, size;
	uint8_t *p;
	int r;

	r = strbuf_error(&w->payload);
	if (r < 0)
		return r;
	if (raw > BLOB_MAX_RAW)
		return -E2BIG;
	r = writer_prepare(w);
	if (r < 0)
		return r;
	p = (uint8_t *)strbuf_reserve(out, BLOB_HEADER + raw);
	if (!p)
		return strbuf_error(out);
	size = compress(w, p + BLOB_HEADER, raw);
	p[0] = BLOB_VERSION;
	p[1] = size > 0 ? BLOB_ZSTD : BLOB_RAW;
	p[2] = (uint8_t)content;
	p[3] = 0;
	put_le32(p + 8, (uint32_t)raw);
	if (size == 0) {
		size = raw;
		if (raw > 0)
			memcpy(p + BLOB_HEADER, w->payload.data, raw);
	}
	put_le32(p + 4, checksum(key, n_key, p, BLOB_HEADER + size));
	out->len += BLOB_HEADER + size;
	out->data[out->len] = 0;
	return 0;
}

static int reader_room(struct blob_reader *r, size_t need)
{
	uint8_t *p;

	if (!r->zstd) {
		r->zstd = ZSTD_createDCtx();
		if (!r->zstd)
			return -ENOMEM;
	}
	if (need <= r->cap_payload)
		return 0;
	p = malloc(need);
	if (!p)
		return -ENOMEM;
	free(r->payload);
	r->payload = p;
	r->cap_payload = need;
	return 0;
}

int blob_open(struct blob_reader *r, enum blob_content content, const uint64_t *key, size_t n_key,
	      const void *data, size_t len, struct blob_in *ret_in)
{
	const uint8_t *p = data;
	uint32_t raw;
	int e;

	if (!p || len < BLOB_HEADER || p[0] != BLOB_VERSION || p[2] != content || p[3] != 0)
		return -EBADMSG;
	if (get_le32(p + 4) != checksum(key, n_key, p, len))
		return -EBADMSG;
	raw = get_le32(p + 8);
	if (raw > BLOB_MAX_RAW)
		return -EBADMSG;
	e = reader_room(r, (size_t)raw + BLOB_PADDING);
	if (e < 0)
		return e;
	if (p[1] == BLOB_RAW) {
		if (len - BLOB_HEADER != raw)
			return -EBADMSG;
		memcpy(r->payload, p + BLOB_HEADER, raw);
	} else if (p[1] == BLOB_ZSTD) {
		if (ZSTD_decompressDCtx(r->zstd, r->payload, raw, p + BLOB_HEADER,
					len - BLOB_HEADER) != raw)
			return -EBADMSG;
	} else {
		return -EBADMSG;
	}
	memset(r->payload + raw, 0, BLOB_PADDING);
	*ret_in = (struct blob_in){ .p = r->payload, .end = r->payload + raw };
	return 0;
}

/* ---- numbers ----------------------------------------------------------------------------------- */

void put_varint(struct strbuf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		strbuf_putc(b, (char)(v | 0x80));
	strbuf_putc(b, (char)v);
}

int get_varint(struct blob_in *in, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t c;

		if (in->p >= in->end)
			return -EBADMSG;
		c = *in->p++;
		if (shift == 63 && c > 1)
			return -EBADMSG;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			if (v > max)
				return -EBADMSG;
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

static inline uint64_t zigzag(uint64_t difference)
{
	return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t unzigzag(uint64_t v)
{
	return v >> 1 ^ -(v & 1);
}

static inline unsigned bit_length(uint64_t v)
{
	return v ? 64 - (unsigned)__builtin_clzll(v) : 0;
}

/* The ways to write a stream, and what each would take after entropy coding. */
struct stream_plan {
	bool constant, delta;
	enum stream_mode mode;
	uint64_t base; /* STREAM_BITS */
	uint64_t mantissa_bits;
	double cost; /* bits */
};

/* What n symbols of this distribution take at best. */
static double histogram_bits(const uint32_t *histogram, size_t n_symbols, size_t n)
{
	double bits = 0;

	for (size_t i = 0; i < n_symbols; i++)
		if (histogram[i] > 0)
			bits += histogram[i] * log2((double)n / histogram[i]);
	return bits;
}

/* v[i] as it would be written: a difference or not. */
#define STREAM_VALUE(v, i, delta) ((delta) ? zigzag((v)[i] - ((i) > 0 ? (v)[(i)-1] : 0)) : (v)[i])

static struct stream_plan plan_one(const uint64_t *v, size_t n, bool delta)
{
	struct stream_plan plan = { .delta = delta, .base = UINT64_MAX, .mode = STREAM_BITS };
	uint32_t lengths[65] = {}, bytes[256] = {};
	uint64_t max = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t x = STREAM_VALUE(v, i, delta);

		max = MAX(max, x);
		plan.base = MIN(plan.base, x);
		bytes[x & 255]++;
	}
	if (max < 256) {
		plan.mode = STREAM_BYTES;
		plan.cost = histogram_bits(bytes, ARRAY_SIZE(bytes), n);
		return plan;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned len = bit_length(STREAM_VALUE(v, i, delta) - plan.base);

		lengths[len]++;
		plan.mantissa_bits += len > 0 ? len - 1 : 0;
	}
	plan.cost = histogram_bits(lengths, ARRAY_SIZE(lengths), n) + (double)plan.mantissa_bits;
	return plan;
}

static struct stream_plan plan_stream(const uint64_t *v, size_t n)
{
	struct stream_plan plain, delta;
	size_t same = 1;

	while (same < n && v[same] == v[0])
		same++;
	if (same >= n)
		return (struct stream_plan){ .constant = true };
	plain = plan_one(v, n, false);
	delta = plan_one(v, n, true);
	return delta.cost < plain.cost ? delta : plain;
}

/* Bits are written from the least significant of each byte upwards. */
struct bit_writer {
	uint8_t *p;
	unsigned __int128 pending;
	unsigned n;
};

static inline void put_bits(struct bit_writer *w, uint64_t bits, unsigned n)
{
	w->pending |= (unsigned __int128)bits << w->n;
	for (w->n += n; w->n >= 8; w->n -= 8) {
		*w->p++ = (uint8_t)w->pending;
		w->pending >>= 8;
	}
}

static void put_mantissas(uint8_t *p, size_t n, const uint64_t *v, const struct stream_plan *plan)
{
	struct bit_writer w = { .p = p };

	for (size_t i = 0; i < n; i++) {
		uint64_t x = STREAM_VALUE(v, i, plan->delta) - plan->base;
		unsigned len = bit_length(x);

		if (len > 1)
			put_bits(&w, x ^ 1ULL << (len - 1), len - 1);
	}
	if (w.n > 0)
		*w.p = (uint8_t)w.pending;
}

/* Blocks below this size pay more for their own statistics than they save. */
#define CUT_MIN 512

static void cut(struct blob_writer *w)
{
	size_t last = w->n_cuts > 0 ? w->cuts[w->n_cuts - 1] : 0;

	if (w->payload.len - last < CUT_MIN)
		return;
	/* Without memory there is one block more: larger, not wrong. */
	if (ARRAY_GROW(w->cuts, w->cap_cuts, w->n_cuts + 1) < 0)
		return;
	w->cuts[w->n_cuts++] = w->payload.len;
}

void put_stream(struct blob_writer *w, const uint64_t *v, size_t n)
{
	struct stream_plan plan = plan_stream(v, n);
	size_t mantissas = (plan.mantissa_bits + 7) / 8;
	uint8_t *p;

	if (plan.constant) {
		strbuf_putc(&w->payload, STREAM_CONST);
		put_varint(&w->payload, n > 0 ? v[0] : 0);
		return;
	}
	if (n >= CUT_MIN)
		cut(w);
	strbuf_putc(&w->payload, (char)(plan.mode | (plan.delta ? STREAM_DELTA : 0)));
	if (plan.mode == STREAM_BITS)
		put_varint(&w->payload, plan.base);
	p = (uint8_t *)strbuf_reserve(&w->payload, n);
	if (!p)
		return;
	for (size_t i = 0; i < n; i++) {
		uint64_t x = STREAM_VALUE(v, i, plan.delta);

		p[i] = plan.mode == STREAM_BITS ? (uint8_t)bit_length(x - plan.base) : (uint8_t)x;
	}
	w->payload.len += n;
	if (mantissas > 0) {
		cut(w);
		p = (uint8_t *)strbuf_reserve(&w->payload, mantissas);
		if (!p)
			return;
		put_mantissas(p, n, v, &plan);
		w->payload.len += mantissas;
	}
	cut(w);
}

static inline uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return le64toh(v);
}

/* Where the numbers go: a column of 4 or 8 bytes, in order or by a table of places. */
struct sink {
	void *out;
	const uint32_t *to;
	bool spread, wide;
};

/* Inlined with a constant sink shape, so that each loop below is specialised. Collects high bits in *high. */
static inline __attribute__((always_inline)) void put_sink(struct sink s, size_t i, uint64_t v,
							   uint64_t *high)
{
	size_t at = s.spread ? s.to[i] : i;

	if (s.wide) {
		((uint64_t *)s.out)[at] = v;
	} else {
		*high |= v;
		((uint32_t *)s.out)[at] = (uint32_t)v;
	}
}

static inline __attribute__((always_inline)) int get_const(struct blob_in *in, size_t n,
							   struct sink s, uint64_t *high)
{
	uint64_t v;
	int r = get_varint(in, UINT64_MAX, &v);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		put_sink(s, i, v, high);
	return 0;
}

static inline __attribute__((always_inline)) int get_bytes(struct blob_in *in, size_t n, bool delta,
							   struct sink s, uint64_t *high)
{
	const uint8_t *p = in->p;
	uint64_t sum = 0;

	if ((size_t)(in->end - p) < n)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		sum = delta ? sum + unzigzag(p[i]) : p[i];
		put_sink(s, i, sum, high);
	}
	in->p = p + n;
	return 0;
}

/* How many bits the mantissas have; false when a length is impossible. *ret_max: the longest number. */
static bool sum_lengths(const uint8_t *lengths, size_t n, uint64_t *ret_bits, unsigned *ret_max)
{
	uint64_t sum = 0;
	unsigned max = 0;

	for (size_t i = 0; i < n; i++) {
		sum += lengths[i] - (lengths[i] != 0);
		max = MAX(max, lengths[i]);
	}
	*ret_bits = sum;
	*ret_max = max;
	return max <= 64;
}

/* The n (at most 63) bits at this position. Needs padding behind the last byte. */
static inline __attribute__((always_inline)) uint64_t load_bits(const uint8_t *p, uint64_t at,
								unsigned n, bool longest)
{
	uint64_t low = load64(p + at / 8) >> at % 8;

	/* The byte behind those eight; shifted twice, since 64 is not a shift. */
	if (longest)
		low |= (uint64_t)p[at / 8 + 8] << 1 << (63 - at % 8);
	return low & ((1ULL << n) - 1);
}

/* No bounds inside the loop: the caller has checked the sum, and a load ends within the padding. */
static inline __attribute__((always_inline)) void get_mantissas(const uint8_t *lengths,
								const uint8_t *p, uint64_t base,
								size_t n, bool longest, bool delta,
								struct sink s, uint64_t *high)
{
	uint64_t at = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned some = lengths[i] != 0, mantissa = lengths[i] - some;
		uint64_t v = (uint64_t)some << mantissa | load_bits(p, at, mantissa, longest);

		at += mantissa;
		sum = delta ? sum + unzigzag(base + v) : base + v;
		put_sink(s, i, sum, high);
	}
}

static inline __attribute__((always_inline)) int get_bits(struct blob_in *in, size_t n, bool delta,
							  struct sink s, uint64_t *high)
{
	const uint8_t *lengths, *p;
	uint64_t base, bits;
	unsigned max;

	if (get_varint(in, UINT64_MAX, &base) < 0 || (size_t)(in->end - in->p) < n)
		return -EBADMSG;
	lengths = in->p;
	p = lengths + n;
	if (!sum_lengths(lengths, n, &bits, &max) || (uint64_t)(in->end - p) < (bits + 7) / 8)
		return -EBADMSG;
	if (max <= 57)
		get_mantissas(lengths, p, base, n, false, delta, s, high);
	else
		get_mantissas(lengths, p, base, n, true, delta, s, high);
	in->p = p + (bits + 7) / 8;
	return 0;
}

static inline __attribute__((always_inline)) int get_stream(struct blob_in *in, size_t n,
							    struct sink s)
{
	uint64_t high = 0;
	int r;

	if (in->p >= in->end)
		return -EBADMSG;
	switch (*in->p++) {
	case STREAM_CONST:
		r = get_const(in, n, s, &high);
		break;
	case STREAM_BYTES:
		r = get_bytes(in, n, false, s, &high);
		break;
	case STREAM_BYTES | STREAM_DELTA:
		r = get_bytes(in, n, true, s, &high);
		break;
	case STREAM_BITS:
		r = get_bits(in, n, false, s, &high);
		break;
	case STREAM_BITS | STREAM_DELTA:
		r = get_bits(in, n, true, s, &high);
		break;
	default:
		return -EBADMSG;
	}
	return r < 0 ? r : high > UINT32_MAX ? -EBADMSG : 0;
}

int get_stream64(struct blob_in *in, uint64_t *out, size_t n)
{
	return get_stream(in, n, (struct sink){ .out = out, .wide = true });
}

int get_stream32(struct blob_in *in, uint32_t *out, size_t n)
{
	return get_stream(in, n, (struct sink){ .out = out, .wide = false });
}

int get_stream64_to(struct blob_in *in, uint64_t *out, size_t n, const uint32_t *to)
{
	return get_stream(in, n,
			  (struct sink){ .out = out, .to = to, .spread = true, .wide = true });
}

/* ---- tables ------------------------------------------------------------------------------------ */

static uint64_t load_field(const uint8_t *p, unsigned size)
{
	switch (size) {
	case 1:
		return *p;
	case 2: {
		uint16_t v;

		memcpy(&v, p, 2);
		return v;
	}
	case 4: {
		uint32_t v;

		memcpy(&v, p, 4);
		return v;
	}
	default: {
		uint64_t v;

		assert(size == 8);
		memcpy(&v, p, 8);
		return v;
	}
	}
}

static int store_field(uint8_t *p, unsigned size, uint64_t v)
{
	if (size < 8 && v >> size * 8)
		return -EBADMSG;
	switch (size) {
	case 1:
		*p = (uint8_t)v;
		break;
	case 2:
		memcpy(p, &(uint16_t){ (uint16_t)v }, 2);
		break;
	case 4:
		memcpy(p, &(uint32_t){ (uint32_t)v }, 4);
		break;
	default:
		assert(size == 8);
		memcpy(p, &v, 8);
	}
	return 0;
}

int put_table(struct blob_writer *w, const struct table_field *fields, size_t n_fields,
	      const void *rows, size_t stride, size_t n)
{
	if (ARRAY_GROW(w->numbers, w->cap_numbers, n) < 0)
		return -ENOMEM;
	for (size_t f = 0; f < n_fields; f++) {
		const uint8_t *p = (const uint8_t *)rows + fields[f].offset;

		for (size_t i = 0; i < n; i++, p += stride)
			w->numbers[i] = load_field(p, fields[f].size);
		put_stream(w, w->numbers, n);
	}
	return 0;
}

int get_table(struct blob_reader *r, struct blob_in *in, const struct table_field *fields,
	      size_t n_fields, void *rows, size_t stride, size_t n)
{
	if (ARRAY_GROW(r->numbers, r->cap_numbers, n) < 0)
		return -ENOMEM;
	for (size_t f = 0; f < n_fields; f++) {
		uint8_t *p = (uint8_t *)rows + fields[f].offset;
		int e = get_stream64(in, r->numbers, n);

		for (size_t i = 0; i < n && e >= 0; i++, p += stride)
			e = store_field(p, fields[f].size, r->numbers[i]);
		if (e < 0)
			return e;
	}
	return 0;
}
