// SPDX-License-Identifier: GPL-2.0-or-later
/* Records as the kernel writes them, and as it should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/sysmacros.h>

#include "collect/sideband.h"

struct record {
	uint8_t bytes[512] __attribute__((aligned(8)));
	size_t size;
};

static struct perf_event_header *header(struct record *r)
{
	return (void *)r->bytes;
}

static void put(struct record *r, const void *data, size_t len)
{
	memcpy(r->bytes + r->size, data, len);
	r->size += len;
}

static void put32(struct record *r, uint32_t v)
{
	put(r, &v, sizeof(v));
}

static void put64(struct record *r, uint64_t v)
{
	put(r, &v, sizeof(v));
}

/* Texts are padded with zeros to 8 bytes. */
static void put_text(struct record *r, const char *s)
{
	size_t len = strlen(s) + 1;

	put(r, s, len);
	while (len++ % 8)
		put(r, "", 1);
}

static void begin(struct record *r, uint32_t type, uint16_t misc)
{
	*r = (struct record){ .size = sizeof(struct perf_event_header) };
	header(r)->type = type;
	header(r)->misc = misc;
}

static void end(struct record *r, uint64_t time)
{
	put32(r, 1);
	put32(r, 2);
	put64(r, time);
	header(r)->size = (uint16_t)r->size;
}

static void test_task(void **state)
{
	struct sideband_event e;
	struct record r;

	begin(&r, PERF_RECORD_FORK, 0);
	put32(&r, 10), put32(&r, 20), put32(&r, 11), put32(&r, 21);
	put64(&r, 5);
	end(&r, 77);
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_int_equal(e.type, SIDEBAND_FORK);
	assert_int_equal(e.mono_ns, 77);
	assert_int_equal(e.pid, 10);
	assert_int_equal(e.parent, 20);
	assert_int_equal(e.tid, 11);
	assert_int_equal(e.parent_tid, 21);
	header(&r)->type = PERF_RECORD_EXIT;
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_int_equal(e.type, SIDEBAND_EXIT);
	assert_int_equal(sideband_parse(r.bytes, 32, &e), -EBADMSG);
}

static void test_comm(void **state)
{
	struct sideband_event e;
	struct record r;

	begin(&r, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
	put32(&r, 10), put32(&r, 11);
	put_text(&r, "a) \n(");
	end(&r, 77);
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_true(e.exec);
	assert_int_equal(e.text_len, 5);
	assert_memory_equal(e.text, "a) \n(", 5);
	/* A name that fills its field has no end of its own. */
	begin(&r, PERF_RECORD_COMM, 0);
	put32(&r, 10), put32(&r, 11);
	put(&r, "12345678", 8);
	end(&r, UINT64_MAX);
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_false(e.exec);
	assert_int_equal(e.text_len, 8);
}

static void mmap_record(struct record *r, uint16_t misc, const void *id, uint64_t len,
			const char *path)
{
	begin(r, PERF_RECORD_MMAP2, misc);
	put32(r, 10), put32(r, 11);
	put64(r, 0x7f0000000000), put64(r, len), put64(r, 0x2000);
	put(r, id, 24);
	put32(r, 5), put32(r, 2);
	put_text(r, path);
	end(r, 77);
}

static void test_mmap(void **state)
{
	uint8_t build_id[24] = { 20, 0, 0, 0, 0xab, 0xcd };
	uint64_t file[3] = { 0x103 | 3ULL << 32, 131, 1 };
	struct sideband_event e;
	struct record r;

	mmap_record(&r, PERF_RECORD_MISC_MMAP_BUILD_ID, build_id, 0x1000,
		    "/usr/lib/a.so (deleted)");
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_int_equal(e.start, 0x7f0000000000);
	assert_int_equal(e.len, 0x1000);
	assert_int_equal(e.offset, 0x2000);
	assert_int_equal(e.build_id_len, 20);
	assert_int_equal(e.build_id[1], 0xcd);
	assert_int_equal(e.ino, 0);
	assert_int_equal(e.text_len, strlen("/usr/lib/a.so"));
	mmap_record(&r, 0, file, 0x1000, "//anon");
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_int_equal(e.build_id_len, 0);
	assert_int_equal(e.dev, makedev(0x103, 3));
	assert_int_equal(e.ino, 131);
	/* More bytes than there are, no length, a length that wraps. */
	build_id[0] = 255;
	mmap_record(&r, PERF_RECORD_MISC_MMAP_BUILD_ID, build_id, 0x1000, "/x");
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
	assert_int_equal(e.build_id_len, 20);
	mmap_record(&r, 0, file, 0, "/x");
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), -EBADMSG);
	mmap_record(&r, 0, file, UINT64_MAX, "/x");
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), -EBADMSG);
}

/* With two listeners on a CPU the kernel gives the second one a record that is 16 bytes too long, and so on. */
static void test_ksymbol(void **state)
{
	struct sideband_event e;
	struct record r;

	for (size_t rubbish = 0; rubbish <= 64; rubbish += 16) {
		begin(&r, PERF_RECORD_KSYMBOL, 0);
		put64(&r, 0xffffffffc0001000), put32(&r, 0x80), put32(&r, 1 | 1 << 16);
		put_text(&r, "bpf_prog_0123456789abcdef_sample");
		end(&r, 77);
		memset(r.bytes + r.size, 0xee, rubbish);
		header(&r)->size = (uint16_t)(r.size += rubbish);
		assert_int_equal(sideband_time(r.bytes, r.size), 77);
		assert_int_equal(sideband_parse(r.bytes, r.size, &e), 0);
		assert_int_equal(e.mono_ns, 77);
		assert_true(e.gone);
		assert_int_equal(e.start, 0xffffffffc0001000);
		assert_int_equal(e.len, 0x80);
		assert_int_equal(e.text_len, strlen("bpf_prog_0123456789abcdef_sample"));
	}
}

static void test_lost(void **state)
{
	struct sideband_event e;
	struct record r;

	begin(&r, PERF_RECORD_LOST, 0);
	put64(&r, 1), put64(&r, 1234);
	end(&r, 77);
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 2);
	assert_int_equal(e.len, 1234);
	begin(&r, PERF_RECORD_THROTTLE, 0);
	end(&r, 77);
	assert_int_equal(sideband_parse(r.bytes, r.size, &e), 1);
	assert_int_equal(sideband_parse(r.bytes, 8, &e), -EBADMSG);
	assert_int_equal(sideband_time(r.bytes, 8), 0);
}

/* Whatever the bytes: no read outside, texts inside. The record lies at the end of its memory. */
static void test_random(void **state)
{
	static const uint32_t types[] = {
		PERF_RECORD_MMAP2, PERF_RECORD_COMM,	PERF_RECORD_FORK,
		PERF_RECORD_EXIT,  PERF_RECORD_KSYMBOL, PERF_RECORD_LOST
	};
	unsigned seed = 1;

	for (unsigned i = 0; i < 200000; i++) {
		size_t size = 8 + (size_t)rand_r(&seed) % 25 * 8;
		_cleanup_free_ uint64_t *words = malloc(size);
		struct perf_event_header *h = (void *)words;
		struct sideband_event e;

		assert_non_null(words);
		for (size_t k = 0; k < size / 8; k++)
			words[k] = (uint64_t)rand_r(&seed) << 32 | (uint64_t)rand_r(&seed);
		if (rand_r(&seed) % 2)
			h->type = types[(size_t)rand_r(&seed) % ARRAY_SIZE(types)];
		sideband_time(words, size);
		if (sideband_parse(words, size, &e) == 0 && e.text)
			assert_true(e.text + e.text_len <= (const char *)words + size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_task), cmocka_unit_test(test_comm),
		cmocka_unit_test(test_mmap), cmocka_unit_test(test_ksymbol),
		cmocka_unit_test(test_lost), cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
