// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Samples and metadata as streams. Samples of many buckets are kept by tuple (series, stack, key, aux), each
 * stored once with the buckets that it occurs in; decoding spreads the rows back over their buckets with
 * loops that have no branch per row, because a day's query decodes a million of them.
 */
#include <ctype.h>

#include "store/columns.h"

/* ---- samples ----------------------------------------------------------------------------------- */

void samples_done(struct samples *s)
{
	free(s->first);
	free(s->damaged);
	columns_done(&s->rows);
	columns_done(&s->tuples);
	free(s->tuple_of);
	free(s->place);
	free(s->scratch);
	*s = (struct samples){};
}

struct columns samples_bucket(const struct samples *s, size_t bucket)
{
	size_t first = s->first[bucket];

	return (struct columns){
		.n = s->first[bucket + 1] - first,
		.series = s->rows.series + first,
		.stack = s->rows.stack + first,
		.key = s->rows.key + first,
		.aux = s->rows.aux + first,
		.count = s->rows.count + first,
		.value = s->rows.value + first,
		.max = s->rows.max + first,
	};
}

/* Room for n rows without keeping the old ones. */
static int columns_room(struct columns *c, size_t n)
{
	if (n <= c->cap)
		return 0;
	columns_done(c);
	c->series = malloc(n * sizeof(*c->series));
	c->stack = malloc(n * sizeof(*c->stack));
	c->key = malloc(n * sizeof(*c->key));
	c->aux = malloc(n * sizeof(*c->aux));
	c->count = malloc(n * sizeof(*c->count));
	c->value = malloc(n * sizeof(*c->value));
	c->max = malloc(n * sizeof(*c->max));
	if (!c->series || !c->stack || !c->key || !c->aux || !c->count || !c->value || !c->max) {
		columns_done(c);
		return -ENOMEM;
	}
	c->cap = n;
	return 0;
}

static int samples_room(struct samples *s, size_t buckets, size_t tuples, size_t rows)
{
	int r;

	if (ARRAY_GROW(s->first, s->cap_first, buckets + 1) < 0 ||
	    ARRAY_GROW(s->damaged, s->cap_damaged, buckets) < 0 ||
	    ARRAY_GROW(s->tuple_of, s->cap_tuple_of, rows) < 0 ||
	    ARRAY_GROW(s->place, s->cap_place, rows) < 0 ||
	    ARRAY_GROW(s->scratch, s->cap_scratch, MAX(MAX(buckets, tuples), rows)) < 0)
		return -ENOMEM;
	/* One more than needed: empty columns still have addresses. */
	r = columns_room(&s->tuples, tuples + 1);
	return r < 0 ? r : columns_room(&s->rows, rows + 1);
}

static int get_damaged(struct blob_in *in, struct samples *s)
{
	int r = get_stream64(in, s->scratch, s->n_buckets);

	for (size_t i = 0; i < s->n_buckets && r >= 0; i++) {
		if (s->scratch[i] > 1)
			return -EBADMSG;
		s->damaged[i] = (uint8_t)s->scratch[i];
	}
	return r;
}

/*
 * Which tuple each row belongs to. First the rows where another tuple begins, then their running sum: a loop
 * over the rows of each tuple would mispredict its end at every tuple.
 */
static int get_tuple_of(struct blob_in *in, struct samples *s, size_t tuples, size_t rows)
{
	uint64_t row = 0;
	uint32_t tuple = 0;
	int r = get_stream64(in, s->scratch, tuples);

	if (r < 0)
		return r;
	if (rows > 0)
		memset(s->tuple_of, 0, rows * sizeof(*s->tuple_of));
	for (size_t t = 0; t < tuples; t++) {
		if (row >= rows || s->scratch[t] >= rows - row)
			return -EBADMSG;
		s->tuple_of[row] = t > 0;
		row += s->scratch[t] + 1;
	}
	if (row != rows)
		return -EBADMSG;
	for (size_t i = 0; i < rows; i++)
		s->tuple_of[i] = tuple += s->tuple_of[i];
	return 0;
}

/* From distances to the bucket of each row, counting the rows of each bucket in first[bucket + 1]. */
static int get_buckets(struct blob_in *in, struct samples *s, size_t rows)
{
	uint32_t previous = UINT32_MAX;
	uint64_t bucket = 0, n = s->n_buckets;
	int r = get_stream32(in, s->place, rows);

	if (r < 0)
		return r;
	memset(s->first, 0, (n + 1) * sizeof(*s->first));
	for (size_t i = 0; i < rows; i++) {
		uint64_t same = -(uint64_t)(s->tuple_of[i] == previous);

		bucket = s->place[i] + ((bucket + 1) & same);
		if (bucket >= n)
			return -EBADMSG;
		previous = s->tuple_of[i];
		s->place[i] = (uint32_t)bucket;
		s->first[bucket + 1]++;
	}
	return 0;
}

/* From the bucket of each row to its place among all rows. Tuples ascend, so each bucket stays sorted. */
static void place_rows(struct samples *s, size_t rows)
{
	uint64_t *next = s->scratch;

	for (size_t i = 0; i < s->n_buckets; i++) {
		next[i] = s->first[i];
		s->first[i + 1] += s->first[i];
	}
	for (size_t i = 0; i < rows; i++)
		s->place[i] = (uint32_t)next[s->place[i]]++;
}

/* Two columns at a time: the places are read once for both. */
static void spread(const struct samples *s, size_t rows, const uint32_t *restrict from_a,
		   uint32_t *restrict to_a, const uint32_t *restrict from_b,
		   uint32_t *restrict to_b)
{
	const uint32_t *restrict tuple_of = s->tuple_of, *restrict place = s->place;

	for (size_t i = 0; i < rows; i++) {
		to_a[place[i]] = from_a[tuple_of[i]];
		to_b[place[i]] = from_b[tuple_of[i]];
	}
}

static bool all_zero(const uint32_t *v, size_t n)
{
	uint32_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= v[i];
	return any == 0;
}

static void spread_tuples(struct samples *s, size_t tuples, size_t rows)
{
	const struct columns *t = &s->tuples;

	spread(s, rows, t->series, s->rows.series, t->stack, s->rows.stack);
	if (all_zero(t->key, tuples) && all_zero(t->aux, tuples)) {
		/* on-cpu */
		memset(s->rows.key, 0, rows * sizeof(*s->rows.key));
		memset(s->rows.aux, 0, rows * sizeof(*s->rows.aux));
		return;
	}
	spread(s, rows, t->key, s->rows.key, t->aux, s->rows.aux);
}

/* The order of tuples is part of the format: what readers get is sorted, whatever the bytes. */
static int check_order(const struct columns *t, size_t tuples)
{
	unsigned bad = 0;

	for (size_t i = 1; i < tuples; i++) {
		uint64_t a = (uint64_t)t->series[i - 1] << 32 | t->stack[i - 1];
		uint64_t b = (uint64_t)t->series[i] << 32 | t->stack[i];
		uint64_t c = (uint64_t)t->key[i - 1] << 32 | t->aux[i - 1];
		uint64_t d = (uint64_t)t->key[i] << 32 | t->aux[i];

		bad |= !(a < b || (a == b && c < d));
	}
	return bad ? -EBADMSG : 0;
}

/* From distances within a series and within a stack. Nonsense may wrap around; check_order() finds it. */
static void make_absolute(struct columns *t, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		bool same_series = t->series[i] == t->series[i - 1];

		t->stack[i] += same_series ? t->stack[i - 1] : 0;
		t->key[i] += same_series && t->stack[i] == t->stack[i - 1] ? t->key[i - 1] : 0;
	}
}

static int get_tuples(struct blob_in *in, struct columns *t, size_t n)
{
	int r = get_stream32(in, t->series, n);

	if (r >= 0)
		r = get_stream32(in, t->stack, n);
	if (r >= 0)
		r = get_stream32(in, t->key, n);
	if (r >= 0)
		r = get_stream32(in, t->aux, n);
	if (r < 0)
		return r;
	make_absolute(t, n);
	return check_order(t, n);
}

int samples_get(struct blob_in *in, struct samples *s)
{
	uint64_t buckets, tuples, rows;
	int r;

	if (get_varint(in, SAMPLES_MAX_BUCKETS, &buckets) < 0 || buckets == 0 ||
	    get_varint(in, SAMPLES_MAX_ROWS, &tuples) < 0 ||
	    get_varint(in, SAMPLES_MAX_ROWS, &rows) < 0 || tuples > rows)
		return -EBADMSG;
	r = samples_room(s, buckets, tuples, rows);
	if (r < 0)
		return r;
	s->n_buckets = buckets;
	r = get_damaged(in, s);
	if (r >= 0)
		r = get_tuples(in, &s->tuples, tuples);
	if (r >= 0)
		r = get_tuple_of(in, s, tuples, rows);
	if (r >= 0)
		r = get_buckets(in, s, rows);
	if (r < 0)
		return r;
	place_rows(s, rows);
	spread_tuples(s, tuples, rows);
	r = get_stream64_to(in, s->rows.count, rows, s->place);
	if (r >= 0)
		r = get_stream64_to(in, s->rows.value, rows, s->place);
	if (r >= 0)
		r = get_stream64_to(in, s->rows.max, rows, s->place);
	if (r < 0)
		return r;
	s->rows.n = rows;
	return in->p == in->end ? 0 : -EBADMSG;
}

/* One row on its way into a pack: sorted by tuple, then bucket. */
struct packed_row {
	uint64_t place, what; /* series and stack; key and aux */
	uint64_t count, value, max;
	uint32_t bucket;
	bool begins; /* the first of its tuple */
};

static int packed_row_compare(const void *pa, const void *pb)
{
	const struct packed_row *a = pa, *b = pb;

	if (a->place != b->place)
		return a->place < b->place ? -1 : 1;
	if (a->what != b->what)
		return a->what < b->what ? -1 : 1;
	return a->bucket < b->bucket ? -1 : a->bucket > b->bucket;
}

static size_t fill_rows(struct packed_row *rows, const struct columns *const *buckets, size_t n)
{
	size_t k = 0, tuples = 0;

	for (size_t b = 0; b < n; b++) {
		const struct columns *c = buckets[b];

		for (size_t i = 0; c && i < c->n; i++)
			rows[k++] = (struct packed_row){
				.place = (uint64_t)c->series[i] << 32 | c->stack[i],
				.what = (uint64_t)c->key[i] << 32 | c->aux[i],
				.count = c->count[i],
				.value = c->value[i],
				.max = c->max[i],
				.bucket = (uint32_t)b,
			};
	}
	if (n > 1)
		qsort(rows, k, sizeof(*rows), packed_row_compare);
	for (size_t i = 0; i < k; i++) {
		rows[i].begins = i == 0 || rows[i].place != rows[i - 1].place ||
				 rows[i].what != rows[i - 1].what;
		tuples += rows[i].begins;
	}
	return tuples;
}

/* Tuples ascend: within a series the distance of stacks is never negative, within a stack that of keys. */
static uint64_t relative_stack(const struct packed_row *rows, size_t i)
{
	bool same = i > 0 && rows[i].place >> 32 == rows[i - 1].place >> 32;

	return (uint32_t)rows[i].place - (same ? (uint32_t)rows[i - 1].place : 0);
}

static uint64_t relative_key(const struct packed_row *rows, size_t i)
{
	bool same = i > 0 && rows[i].place == rows[i - 1].place;

	return (rows[i].what >> 32) - (same ? rows[i - 1].what >> 32 : 0);
}

/* A stream with one number per row, or per tuple where `each` is false. */
#define PUT_ROWS(w, rows, n, each, expression)                               \
	do {                                                                 \
		size_t _k = 0;                                               \
		for (size_t i = 0; i < (n); i++)                             \
			if ((each) || (rows)[i].begins)                      \
				(w)->numbers[_k++] = (uint64_t)(expression); \
		put_stream((w), (w)->numbers, _k);                           \
	} while (0)

static void put_tuple_sizes(struct blob_writer *w, const struct packed_row *rows, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		if (rows[i].begins)
			w->numbers[k++] = 0;
		else
			w->numbers[k - 1]++;
	}
	put_stream(w, w->numbers, k);
}

int samples_put(struct blob_writer *w, const struct columns *const *buckets, size_t n)
{
	_cleanup_free_ struct packed_row *rows = NULL;
	size_t n_rows = 0, tuples;

	assert(n > 0 && n <= SAMPLES_MAX_BUCKETS);
	for (size_t i = 0; i < n; i++)
		n_rows += buckets[i] ? buckets[i]->n : 0;
	if (n_rows > SAMPLES_MAX_ROWS)
		return -E2BIG;
	rows = malloc((n_rows + 1) * sizeof(*rows));
	if (!rows || ARRAY_GROW(w->numbers, w->cap_numbers, MAX(n_rows, n)) < 0)
		return -ENOMEM;
	tuples = fill_rows(rows, buckets, n);
	put_varint(&w->payload, n);
	put_varint(&w->payload, tuples);
	put_varint(&w->payload, n_rows);
	for (size_t i = 0; i < n; i++)
		w->numbers[i] = !buckets[i];
	put_stream(w, w->numbers, n);
	PUT_ROWS(w, rows, n_rows, false, rows[i].place >> 32);
	PUT_ROWS(w, rows, n_rows, false, relative_stack(rows, i));
	PUT_ROWS(w, rows, n_rows, false, relative_key(rows, i));
	PUT_ROWS(w, rows, n_rows, false, (uint32_t)rows[i].what);
	put_tuple_sizes(w, rows, n_rows);
	PUT_ROWS(w, rows, n_rows, true,
		 rows[i].begins ? rows[i].bucket : rows[i].bucket - rows[i - 1].bucket - 1);
	PUT_ROWS(w, rows, n_rows, true, rows[i].count);
	PUT_ROWS(w, rows, n_rows, true, rows[i].value);
	PUT_ROWS(w, rows, n_rows, true, rows[i].max);
	return strbuf_error(&w->payload);
}

/* ---- metadata ---------------------------------------------------------------------------------- */

/*
 * The order of fields on disk. New ones are added at the end of each list, so that files of both ages can be
 * read; reasons of loss follow enum loss.
 */
enum bucket_field {
	BUCKET_SEQ,
	BUCKET_BOOT_HIGH,
	BUCKET_BOOT_LOW,
	BUCKET_START,
	BUCKET_LENGTH,
	BUCKET_COVERED,
	BUCKET_CPUS,
	BUCKET_GAP,
	BUCKET_BUSY,
	BUCKET_PRESSURE_KNOWN,
	BUCKET_PRESSURE, /* PRESSURE_N fields, in the order of enum pressure */
	BUCKET_FIELDS = BUCKET_PRESSURE + PRESSURE_N
};

enum source_field {
	SOURCE_SEEN,
	SOURCE_STORED,
	SOURCE_IDLE,
	SOURCE_STORED_US,
	SOURCE_IDLE_US,
	SOURCE_LOST_US,
	SOURCE_RATE,
	SOURCE_THRESHOLD,
	SOURCE_ACTIVE,
	SOURCE_SAMPLED,
	SOURCE_COUNTED,
	SOURCE_FIELDS
};

static uint64_t boot_half(const char *hex)
{
	char half[17] = {};

	memcpy(half, hex, 16);
	return strtoull(half, NULL, 16);
}

/* A boot id that is not 32 digits is stored as 0, and 0 is read as none. */
static void boot_numbers(const char *boot_id, uint64_t *ret_high, uint64_t *ret_low)
{
	bool valid = strnlen(boot_id, BOOT_ID_LEN + 1) == BOOT_ID_LEN;

	for (size_t i = 0; valid && i < BOOT_ID_LEN; i++)
		valid = isxdigit((unsigned char)boot_id[i]);
	*ret_high = valid ? boot_half(boot_id) : 0;
	*ret_low = valid ? boot_half(boot_id + 16) : 0;
}

static void boot_text(char *boot_id, uint64_t high, uint64_t low)
{
	static const char digits[] = "0123456789abcdef";

	boot_id[0] = 0;
	if (!high && !low)
		return;
	for (size_t i = 0; i < 16; i++) {
		boot_id[i] = digits[high >> (60 - i * 4) & 15];
		boot_id[16 + i] = digits[low >> (60 - i * 4) & 15];
	}
	boot_id[BOOT_ID_LEN] = 0;
}

static uint64_t bucket_number(const struct bucket_meta *m, unsigned field)
{
	uint64_t high, low;

	if (field >= BUCKET_PRESSURE && field < BUCKET_FIELDS)
		return m->pressure_us[field - BUCKET_PRESSURE];
	switch ((enum bucket_field)field) {
	case BUCKET_SEQ:
		return m->seq;
	case BUCKET_BOOT_HIGH:
	case BUCKET_BOOT_LOW:
		boot_numbers(m->boot_id, &high, &low);
		return field == BUCKET_BOOT_HIGH ? high : low;
	case BUCKET_START:
		return m->start_wall_ns;
	case BUCKET_LENGTH:
		return m->length_ns;
	case BUCKET_COVERED:
		return m->covered_ns;
	case BUCKET_CPUS:
		return m->cpus;
	case BUCKET_GAP:
		return m->gap;
	case BUCKET_BUSY:
		return m->busy_us;
	case BUCKET_PRESSURE_KNOWN:
		return m->pressure_known;
	case BUCKET_PRESSURE:
	case BUCKET_FIELDS:
		break;
	}
	return 0;
}

static uint64_t source_number(const struct accounting *a, unsigned field)
{
	switch ((enum source_field)field) {
	case SOURCE_SEEN:
		return a->seen;
	case SOURCE_STORED:
		return a->stored;
	case SOURCE_IDLE:
		return a->idle;
	case SOURCE_STORED_US:
		return a->stored_us;
	case SOURCE_IDLE_US:
		return a->idle_us;
	case SOURCE_LOST_US:
		return a->lost_us;
	case SOURCE_RATE:
		return a->rate_mhz;
	case SOURCE_THRESHOLD:
		return a->threshold_us;
	case SOURCE_ACTIVE:
		return a->active;
	case SOURCE_SAMPLED:
		return a->sampled;
	case SOURCE_COUNTED:
		return a->counted_us;
	case SOURCE_FIELDS:
		break;
	}
	return 0;
}

#define PUT_METAS(w, n, expression)                     \
	do {                                            \
		for (size_t i = 0; i < (n); i++)        \
			(w)->numbers[i] = (expression); \
		put_stream((w), (w)->numbers, (n));     \
	} while (0)

int meta_put(struct blob_writer *w, const struct bucket_meta *metas, size_t n)
{
	if (ARRAY_GROW(w->numbers, w->cap_numbers, n) < 0)
		return -ENOMEM;
	put_varint(&w->payload, n);
	put_varint(&w->payload, BUCKET_FIELDS);
	put_varint(&w->payload, PROFILE_TYPE_N);
	put_varint(&w->payload, SOURCE_FIELDS);
	put_varint(&w->payload, LOSS_REASONS);
	for (unsigned f = 0; f < BUCKET_FIELDS; f++)
		PUT_METAS(w, n, bucket_number(&metas[i], f));
	for (size_t s = 0; s < PROFILE_TYPE_N; s++) {
		for (unsigned f = 0; f < SOURCE_FIELDS; f++)
			PUT_METAS(w, n, source_number(&metas[i].source[s], f));
		for (size_t l = 0; l < LOSS_REASONS; l++)
			PUT_METAS(w, n, metas[i].source[s].lost[l]);
	}
	return strbuf_error(&w->payload);
}

static int set_bucket_number(struct bucket_meta *m, unsigned field, uint64_t v, uint64_t *boot_high)
{
	if (field >= BUCKET_PRESSURE && field < BUCKET_FIELDS) {
		m->pressure_us[field - BUCKET_PRESSURE] = v;
		return 0;
	}
	switch ((enum bucket_field)field) {
	case BUCKET_SEQ:
		m->seq = v;
		break;
	case BUCKET_BOOT_HIGH:
		*boot_high = v;
		break;
	case BUCKET_BOOT_LOW:
		boot_text(m->boot_id, *boot_high, v);
		break;
	case BUCKET_START:
		m->start_wall_ns = v;
		break;
	case BUCKET_LENGTH:
		m->length_ns = v;
		break;
	case BUCKET_COVERED:
		m->covered_ns = v;
		break;
	case BUCKET_CPUS:
	case BUCKET_GAP:
		if (v > UINT32_MAX)
			return -EBADMSG;
		*(field == BUCKET_CPUS ? &m->cpus : &m->gap) = (uint32_t)v;
		break;
	case BUCKET_BUSY:
		m->busy_us = v;
		break;
	case BUCKET_PRESSURE_KNOWN:
		m->pressure_known = v != 0;
		break;
	case BUCKET_PRESSURE:
	case BUCKET_FIELDS:
		break;
	}
	return 0;
}

static void set_source_number(struct accounting *a, unsigned field, uint64_t v)
{
	switch ((enum source_field)field) {
	case SOURCE_SEEN:
		a->seen = v;
		break;
	case SOURCE_STORED:
		a->stored = v;
		break;
	case SOURCE_IDLE:
		a->idle = v;
		break;
	case SOURCE_STORED_US:
		a->stored_us = v;
		break;
	case SOURCE_IDLE_US:
		a->idle_us = v;
		break;
	case SOURCE_LOST_US:
		a->lost_us = v;
		break;
	case SOURCE_RATE:
		a->rate_mhz = v;
		break;
	case SOURCE_THRESHOLD:
		a->threshold_us = v;
		break;
	case SOURCE_ACTIVE:
		a->active = v != 0;
		break;
	case SOURCE_SAMPLED:
		a->sampled = v != 0;
		break;
	case SOURCE_COUNTED:
		a->counted_us = v;
		break;
	case SOURCE_FIELDS:
		break;
	}
}

/* Numbers of fields that a file may have: what later versions could add, no more. */
#define META_MAX_FIELDS 256

struct meta_shape {
	uint64_t bucket_fields, sources, source_fields, reasons;
};

static int get_bucket_fields(struct blob_reader *r, struct blob_in *in, struct meta_shape shape,
			     struct bucket_meta *metas, uint64_t *boot_high, size_t n)
{
	int e;

	for (unsigned f = 0; f < shape.bucket_fields; f++) {
		e = get_stream64(in, r->numbers, n);
		for (size_t i = 0; i < n && e >= 0; i++)
			e = set_bucket_number(&metas[i], f, r->numbers[i], &boot_high[i]);
		if (e < 0)
			return e;
	}
	return 0;
}

static int get_source_fields(struct blob_reader *r, struct blob_in *in, struct meta_shape shape,
			     struct bucket_meta *metas, unsigned source, size_t n)
{
	unsigned fields = (unsigned)(shape.source_fields + shape.reasons);

	for (unsigned f = 0; f < fields; f++) {
		unsigned reason = f - (unsigned)shape.source_fields;
		int e = get_stream64(in, r->numbers, n);

		if (e < 0)
			return e;
		if (source >= PROFILE_TYPE_N)
			continue;
		for (size_t i = 0; i < n; i++) {
			struct accounting *a = &metas[i].source[source];

			if (f < shape.source_fields)
				set_source_number(a, f, r->numbers[i]);
			else if (reason < LOSS_REASONS)
				a->lost[reason] = r->numbers[i];
		}
	}
	return 0;
}

int meta_get(struct blob_reader *r, struct blob_in *in, struct bucket_meta *metas, size_t n)
{
	_cleanup_free_ uint64_t *boot_high = new0(uint64_t, n);
	struct meta_shape shape;
	uint64_t count;
	int e;

	if (!boot_high || ARRAY_GROW(r->numbers, r->cap_numbers, n) < 0)
		return -ENOMEM;
	if (get_varint(in, SAMPLES_MAX_BUCKETS, &count) < 0 || count != n ||
	    get_varint(in, META_MAX_FIELDS, &shape.bucket_fields) < 0 ||
	    get_varint(in, META_MAX_FIELDS, &shape.sources) < 0 ||
	    get_varint(in, META_MAX_FIELDS, &shape.source_fields) < 0 ||
	    get_varint(in, META_MAX_FIELDS, &shape.reasons) < 0)
		return -EBADMSG;
	memset(metas, 0, n * sizeof(*metas));
	e = get_bucket_fields(r, in, shape, metas, boot_high, n);
	for (unsigned s = 0; s < shape.sources && e >= 0; s++)
		e = get_source_fields(r, in, shape, metas, s, n);
	if (e < 0)
		return e;
	return in->p == in->end ? 0 : -EBADMSG;
}
