// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Blobs, streams, samples, metadata: what goes in comes out, and no damage gets through or does harm. Random
 * data is made from a fixed seed; a failure repeats.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store/columns.h"
#include "store/crc32c.h"

static uint64_t state = 88172645463325252ULL;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Numbers of every length, small ones and repeated ones too. */
static uint64_t odd_number(unsigned flavour)
{
	switch (flavour) {
	case 0:
		return next_random() >> next_random() % 64;
	case 1:
		return next_random() % 200;
	case 2:
		return 1000000 + next_random() % 3000;
	case 3:
		return next_random() % 50 ? 7 : UINT64_MAX;
	case 4:
		return UINT64_MAX - next_random() % 3;
	default:
		return next_random();
	}
}

/* ---- checksum ---- */

static void test_crc(void **st)
{
	uint8_t data[301];

	/* RFC 3720, B.4, and the check value of the Rocksoft model. */
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	memset(data, 0, 32);
	assert_int_equal(crc32c(0, data, 32), 0x8a9136aa);
	memset(data, 0xff, 32);
	assert_int_equal(crc32c(0, data, 32), 0x62a8ab43);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)next_random();
	for (size_t n = 0; n <= sizeof(data); n++) {
		assert_int_equal(crc32c(0, data, n), crc32c_portable(0, data, n));
		assert_int_equal(crc32c(crc32c(0, data, n / 3), data + n / 3, n - n / 3),
				 crc32c(0, data, n));
	}
}

/* ---- streams ---- */

static const uint64_t key[] = { 17, 4 };

static void seal(struct blob_writer *w, enum blob_content content, struct strbuf *out)
{
	assert_int_equal(blob_seal(w, content, key, ARRAY_SIZE(key), out), 0);
}

static void round_trip_stream(const uint64_t *v, size_t n)
{
	_cleanup_(blob_writer_done) struct blob_writer w = {};
	_cleanup_(blob_reader_done) struct blob_reader r = {};
	_cleanup_(strbuf_done) struct strbuf blob = {};
	_cleanup_free_ uint64_t *out = new0(uint64_t, n + 1);
	_cleanup_free_ uint32_t *narrow = new0(uint32_t, n + 1), *to = new0(uint32_t, n + 1);
	struct blob_in in;
	bool fits = true;

	blob_begin(&w);
	for (size_t k = 0; k < 3; k++)
		put_stream(&w, v, n);
	seal(&w, CONTENT_SAMPLES, &blob);
	assert_int_equal(
		blob_open(&r, CONTENT_SAMPLES, key, ARRAY_SIZE(key), blob.data, blob.len, &in), 0);
	assert_int_equal(get_stream64(&in, out, n), 0);
	assert_memory_equal(out, v, n * sizeof(*v));
	for (size_t i = 0; i < n; i++) {
		to[i] = (uint32_t)(n - 1 - i);
		fits &= v[i] <= UINT32_MAX;
	}
	assert_int_equal(get_stream64_to(&in, out, n, to), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(out[n - 1 - i], v[i]);
	assert_int_equal(get_stream32(&in, narrow, n), fits ? 0 : -EBADMSG);
	for (size_t i = 0; fits && i < n; i++)
		assert_int_equal(narrow[i], v[i]);
	assert_ptr_equal(in.p, in.end);
}

static void test_streams(void **st)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 5000 };
	static const uint64_t edges[] = { 0,	      UINT64_MAX, 0,   1,  1ULL << 63,
					  1ULL << 56, 1ULL << 57, 255, 256 };
	uint64_t *v = new0(uint64_t, 5000);

	round_trip_stream(edges, ARRAY_SIZE(edges));
	for (unsigned flavour = 0; flavour < 6; flavour++)
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			for (size_t i = 0; i < sizes[s]; i++)
				v[i] = odd_number(flavour);
			round_trip_stream(v, sizes[s]);
			/* Ascending: differences. */
			for (size_t i = 1; i < sizes[s]; i++)
				v[i] = v[i - 1] + v[i] % 1000;
			round_trip_stream(v, sizes[s]);
		}
	/* Every length of mantissa at every bit position. */
	for (size_t i = 0; i < 5000; i++)
		v[i] = next_random() >> (i * 7 % 64);
	round_trip_stream(v, 5000);
	free(v);
}

static void test_stream_nonsense(void **st)
{
	uint8_t bytes[64 + BLOB_PADDING];
	uint64_t out[64];
	uint32_t narrow[64], to[64];

	for (uint32_t i = 0; i < 64; i++)
		to[i] = 63 - i;
	for (size_t round = 0; round < 200000; round++) {
		size_t len = next_random() % 65, n = next_random() % 65;
		struct blob_in in = { .p = bytes, .end = bytes + len }, again;

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(next_random() >> next_random() % 60);
		if (len > 0 && round % 2)
			bytes[0] = (uint8_t)(round / 2 % 3 | (round % 16 < 8 ? STREAM_DELTA : 0));
		again = in;
		if (get_stream64(&in, out, n) >= 0)
			assert_true(in.p <= in.end);
		in = again;
		(void)!get_stream32(&in, narrow, n);
		in = again;
		(void)!get_stream64_to(&in, out, n, to);
	}
}

static void test_varint(void **st)
{
	static const uint64_t values[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX };
	static const uint8_t too_long[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					    0xff, 0xff, 0xff, 0xff, 0xff, 0 };
	static const uint8_t too_large[] = { 0xff, 0xff, 0xff, 0xff, 0xff,
					     0xff, 0xff, 0xff, 0xff, 0x02 };
	struct blob_in in;
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		_cleanup_(strbuf_done) struct strbuf b = {};

		put_varint(&b, values[i]);
		in = (struct blob_in){ (uint8_t *)b.data, (uint8_t *)b.data + b.len };
		assert_int_equal(get_varint(&in, UINT64_MAX, &v), 0);
		assert_int_equal(v, values[i]);
		assert_ptr_equal(in.p, in.end);
		in = (struct blob_in){ (uint8_t *)b.data, (uint8_t *)b.data + b.len - 1 };
		assert_int_equal(get_varint(&in, UINT64_MAX, &v), -EBADMSG);
		if (values[i] > 0) {
			in = (struct blob_in){ (uint8_t *)b.data, (uint8_t *)b.data + b.len };
			assert_int_equal(get_varint(&in, values[i] - 1, &v), -EBADMSG);
		}
	}
	in = (struct blob_in){ too_long, too_long + sizeof(too_long) };
	assert_int_equal(get_varint(&in, UINT64_MAX, &v), -EBADMSG);
	in = (struct blob_in){ too_large, too_large + sizeof(too_large) };
	assert_int_equal(get_varint(&in, UINT64_MAX, &v), -EBADMSG);
}

/* ---- samples ---- */

static void random_columns(struct columns *c, size_t n, unsigned flavour)
{
	*c = (struct columns){};
	for (size_t i = 0; i < n; i++)
		assert_int_equal(columns_add(c, (uint32_t)(1 + next_random() % 20),
					     (uint32_t)(next_random() % (flavour ? 5000 : 1)),
					     flavour == 2 ? (uint32_t)next_random()
							  : (uint32_t)(next_random() % 3),
					     flavour ? (uint32_t)(next_random() % 2) : 0,
					     odd_number(flavour % 3), odd_number((flavour + 1) % 6),
					     odd_number((flavour + 2) % 6)),
				 0);
	assert_int_equal(columns_sort_merge(c), 0);
}

static void assert_same_columns(const struct columns *a, const struct columns *b)
{
	assert_int_equal(a->n, b->n);
	for (size_t i = 0; i < a->n; i++) {
		assert_int_equal(a->series[i], b->series[i]);
		assert_int_equal(a->stack[i], b->stack[i]);
		assert_int_equal(a->key[i], b->key[i]);
		assert_int_equal(a->aux[i], b->aux[i]);
		assert_int_equal(a->count[i], b->count[i]);
		assert_int_equal(a->value[i], b->value[i]);
		assert_int_equal(a->max[i], b->max[i]);
	}
}

static void round_trip_samples(struct samples *s, const struct columns *const *buckets, size_t n)
{
	_cleanup_(blob_writer_done) struct blob_writer w = {};
	_cleanup_(blob_reader_done) struct blob_reader r = {};
	_cleanup_(strbuf_done) struct strbuf blob = {};
	struct blob_in in;

	blob_begin(&w);
	assert_int_equal(samples_put(&w, buckets, n), 0);
	seal(&w, CONTENT_SAMPLES, &blob);
	assert_int_equal(
		blob_open(&r, CONTENT_SAMPLES, key, ARRAY_SIZE(key), blob.data, blob.len, &in), 0);
	assert_int_equal(samples_get(&in, s), 0);
	assert_int_equal(s->n_buckets, n);
	for (size_t i = 0; i < n; i++) {
		struct columns window = samples_bucket(s, i);

		assert_int_equal(s->damaged[i], !buckets[i]);
		if (buckets[i])
			assert_same_columns(&window, buckets[i]);
		else
			assert_int_equal(window.n, 0);
	}
}

static void test_samples(void **st)
{
	_cleanup_(samples_done) struct samples
		s = {}; /* reused from one to the next, as readers do */

	for (size_t round = 0; round < 200; round++) {
		size_t n = 1 + next_random() % (round % 3 ? 60 : 3);
		struct columns columns[60];
		const struct columns *buckets[60];

		for (size_t i = 0; i < n; i++) {
			random_columns(&columns[i], next_random() % (round % 10 ? 40 : 400),
				       (unsigned)(round % 4));
			buckets[i] = next_random() % 20 ? &columns[i] : NULL;
		}
		round_trip_samples(&s, buckets, n);
		for (size_t i = 0; i < n; i++)
			columns_done(&columns[i]);
	}
}

/* Payloads that are wrong behind a right checksum. */
static void test_samples_nonsense(void **st)
{
	_cleanup_(samples_done) struct samples s = {};
	_cleanup_(blob_writer_done) struct blob_writer w = {};
	struct columns columns[4];
	const struct columns *buckets[4];
	_cleanup_free_ uint8_t *copy = NULL;
	struct blob_in in;
	size_t len, accepted = 0;

	for (size_t i = 0; i < 4; i++) {
		random_columns(&columns[i], 30, 1);
		buckets[i] = &columns[i];
	}
	blob_begin(&w);
	assert_int_equal(samples_put(&w, buckets, 4), 0);
	len = w.payload.len;
	copy = malloc(len + BLOB_PADDING);
	for (size_t round = 0; round < 20000; round++) {
		memcpy(copy, w.payload.data, len);
		memset(copy + len, 0, BLOB_PADDING);
		for (size_t k = next_random() % 3 + 1; k > 0; k--)
			copy[next_random() % len] = (uint8_t)next_random();
		in = (struct blob_in){ copy, copy + (round % 4 ? len : next_random() % len) };
		if (samples_get(&in, &s) < 0)
			continue;
		accepted++;
		/* What is accepted is in order and within bounds. */
		for (size_t b = 0; b < s.n_buckets; b++) {
			struct columns c = samples_bucket(&s, b);

			for (size_t i = 1; i < c.n; i++)
				assert_true(c.series[i - 1] <= c.series[i]);
		}
		assert_int_equal(s.first[s.n_buckets], s.rows.n);
	}
	assert_true(accepted > 0);
	for (size_t i = 0; i < 4; i++)
		columns_done(&columns[i]);
}

/* ---- metadata ---- */

static void random_meta(struct bucket_meta *m, uint64_t seq)
{
	memset(m, 0, sizeof(*m));
	m->seq = seq;
	strcpy(m->boot_id, "0123456789abcdeffedcba9876543210");
	m->start_wall_ns = odd_number(2) * 1000000;
	m->length_ns = 10 * NSEC_PER_SEC;
	m->covered_ns = odd_number(0);
	m->cpus = (uint32_t)odd_number(1);
	m->gap = (uint32_t)(next_random() % 5);
	m->busy_us = odd_number(0);
	m->pressure_known = next_random() % 2;
	for (size_t i = 0; i < PRESSURE_N; i++)
		m->pressure_us[i] = odd_number(i);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		struct accounting *a = &m->source[t];

		*a = (struct accounting){ .seen = odd_number(0),
					  .stored = odd_number(1),
					  .idle = odd_number(3),
					  .stored_us = odd_number(0),
					  .idle_us = odd_number(5),
					  .lost_us = odd_number(1),
					  .rate_mhz = 19000,
					  .threshold_us = odd_number(0),
					  .active = next_random() % 2,
					  .sampled = next_random() % 2,
					  .counted_us = odd_number(1) };
		for (size_t l = 0; l < LOSS_REASONS; l++)
			a->lost[l] = next_random() % 4 ? 0 : odd_number(0);
	}
}

static void assert_same_meta(const struct bucket_meta *a, const struct bucket_meta *b)
{
	assert_int_equal(a->seq, b->seq);
	assert_string_equal(a->boot_id, b->boot_id);
	assert_int_equal(a->start_wall_ns, b->start_wall_ns);
	assert_int_equal(a->length_ns, b->length_ns);
	assert_int_equal(a->covered_ns, b->covered_ns);
	assert_int_equal(a->cpus, b->cpus);
	assert_int_equal(a->gap, b->gap);
	assert_int_equal(a->busy_us, b->busy_us);
	assert_int_equal(a->pressure_known, b->pressure_known);
	assert_memory_equal(a->pressure_us, b->pressure_us, sizeof(a->pressure_us));
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		const struct accounting *x = &a->source[t], *y = &b->source[t];

		assert_int_equal(x->seen, y->seen);
		assert_int_equal(x->stored, y->stored);
		assert_int_equal(x->idle, y->idle);
		assert_memory_equal(x->lost, y->lost, sizeof(x->lost));
		assert_int_equal(x->stored_us, y->stored_us);
		assert_int_equal(x->idle_us, y->idle_us);
		assert_int_equal(x->lost_us, y->lost_us);
		assert_int_equal(x->rate_mhz, y->rate_mhz);
		assert_int_equal(x->threshold_us, y->threshold_us);
		assert_int_equal(x->active, y->active);
		assert_int_equal(x->sampled, y->sampled);
		assert_int_equal(x->counted_us, y->counted_us);
	}
}

static void test_meta(void **st)
{
	static const size_t sizes[] = { 1, 2, 60 };
	_cleanup_(blob_writer_done) struct blob_writer w = {};
	_cleanup_(blob_reader_done) struct blob_reader r = {};
	struct bucket_meta metas[60], out[60];
	struct blob_in in;

	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		_cleanup_(strbuf_done) struct strbuf blob = {};
		size_t n = sizes[k];

		for (size_t i = 0; i < n; i++)
			random_meta(&metas[i], 100 + i * 2);
		metas[0].boot_id[0] = k == 0 ? 0 : '0'; /* none */
		blob_begin(&w);
		assert_int_equal(meta_put(&w, metas, n), 0);
		seal(&w, CONTENT_META, &blob);
		assert_int_equal(blob_open(&r, CONTENT_META, key, 2, blob.data, blob.len, &in), 0);
		assert_int_equal(meta_get(&r, &in, out, n), 0);
		for (size_t i = 0; i < n; i++)
			assert_same_meta(&metas[i], &out[i]);
		assert_int_equal(blob_open(&r, CONTENT_META, key, 2, blob.data, blob.len, &in), 0);
		assert_int_equal(meta_get(&r, &in, out, n == 1 ? 2 : n - 1), -EBADMSG);
	}
}

/* Every truncation and every flipped bit of an envelope is seen, and so is a blob under a foreign key. */
static void test_damage(void **st)
{
	_cleanup_(blob_writer_done) struct blob_writer w = {};
	_cleanup_(blob_reader_done) struct blob_reader r = {};
	_cleanup_(strbuf_done) struct strbuf blob = {};
	uint64_t other[] = { 17, 5 }, v[400];
	struct blob_in in;

	for (size_t compressible = 0; compressible < 2; compressible++) {
		for (size_t i = 0; i < ARRAY_SIZE(v); i++)
			v[i] = compressible ? i % 7 : next_random();
		strbuf_reset(&blob);
		blob_begin(&w);
		put_stream(&w, v, ARRAY_SIZE(v));
		seal(&w, CONTENT_DICT, &blob);
		for (size_t len = 0; len < blob.len; len++)
			assert_int_equal(blob_open(&r, CONTENT_DICT, key, 2, blob.data, len, &in),
					 -EBADMSG);
		for (size_t bit = 0; bit < blob.len * 8; bit++) {
			blob.data[bit / 8] ^= (char)(1 << bit % 8);
			assert_int_equal(blob_open(&r, CONTENT_DICT, key, 2, blob.data, blob.len,
						   &in),
					 -EBADMSG);
			blob.data[bit / 8] ^= (char)(1 << bit % 8);
		}
		assert_int_equal(blob_open(&r, CONTENT_DICT, other, 2, blob.data, blob.len, &in),
				 -EBADMSG);
		assert_int_equal(blob_open(&r, CONTENT_META, key, 2, blob.data, blob.len, &in),
				 -EBADMSG);
		assert_int_equal(blob_open(&r, CONTENT_DICT, key, 2, blob.data, blob.len, &in), 0);
	}
	assert_int_equal(blob_open(&r, CONTENT_DICT, key, 2, NULL, 0, &in), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_stream_nonsense),
		cmocka_unit_test(test_varint),
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_samples_nonsense),
		cmocka_unit_test(test_meta),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
