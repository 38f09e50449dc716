// SPDX-License-Identifier: GPL-2.0-or-later
/* Wire bytes that protobuf-c would accept, or choke on. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "serve/validate.h"
#include "sysprofd/v1/profile.pb-c.h"

#define MAX_VALUES 4096
#define TOP (&sysprofd__v1__top_request__descriptor)
#define SELECTION (&sysprofd__v1__selection__descriptor)
#define COVERAGE (&sysprofd__v1__coverage__descriptor)

static int unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t len)
{
	/* A copy of the exact size, so that a sanitizer sees every byte read beyond it. */
	uint8_t *exact = malloc(len + !len);
	ProtobufCMessage *m = NULL;
	const char *error = NULL;
	int r;

	memcpy(exact, data, len);
	r = message_unpack(d, exact, len, MAX_VALUES, &m, &error);
	free(exact);
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	assert_true((r < 0) == (error != NULL));
	assert_true((r < 0) == (m == NULL));
	return r;
}

#define UNPACK(d, bytes) unpack(d, bytes, sizeof(bytes) - 1)

static void test_good(void **state)
{
	assert_int_equal(unpack(TOP, "", 0), 0);
	assert_int_equal(UNPACK(TOP, "\x20\x05"), 0); /* limit */
	assert_int_equal(UNPACK(TOP, "\x0a\x00"), 0); /* an empty selection */
	assert_int_equal(UNPACK(TOP, "\x0a\x09\x22\x07\x0a\x02\xc3\xa9\x12\x01*"), 0);
	/* Unknown fields of every wire type. */
	assert_int_equal(UNPACK(TOP, "\xa0\x06\x01"), 0);
	assert_int_equal(UNPACK(TOP, "\xa1\x06"
				     "12345678"),
			 0);
	assert_int_equal(UNPACK(TOP, "\xa2\x06\x02\xff\xff"), 0);
	assert_int_equal(UNPACK(TOP, "\xa5\x06"
				     "1234"),
			 0);
	/* A double. */
	assert_int_equal(UNPACK(COVERAGE, "\x29\0\0\0\0\0\0\xf0\x3f"), 0);
	/* The largest number. */
	assert_int_equal(UNPACK(SELECTION, "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 0);
}

static void test_lengths(void **state)
{
	assert_int_equal(UNPACK(TOP, "\x0a"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x0a\x01"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x0a\xff\xff\xff\xff\x0f"), -EBADMSG); /* 0xffffffff */
	assert_int_equal(UNPACK(TOP, "\x0a\xff\xff\xff\xff\x07"), -EBADMSG); /* 2^31 - 1 */
	assert_int_equal(UNPACK(TOP, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\xa1\x06\x01"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\xa5\x06\x01"), -EBADMSG);
}

static void test_varints(void **state)
{
	assert_int_equal(UNPACK(TOP, "\x20"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x20\x80"), -EBADMSG);
	/* Eleven bytes, and ten that hold 65 bits. */
	assert_int_equal(UNPACK(TOP, "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), -EBADMSG);
}

static void test_tags(void **state)
{
	assert_int_equal(UNPACK(TOP, "\x02\x00"), -EBADMSG); /* field 0 */
	assert_int_equal(UNPACK(TOP, "\x26"), -EBADMSG); /* wire type 6 */
	assert_int_equal(UNPACK(TOP, "\x27"), -EBADMSG); /* wire type 7 */
	assert_int_equal(UNPACK(TOP, "\x0b\x0c"), -EBADMSG); /* a group */
	assert_int_equal(UNPACK(TOP, "\xf8\xff\xff\xff\x1f\x01"), -EBADMSG); /* field 2^30 - 1 */
	/* A selection that is a number, a limit that is a string, a string that is a number. */
	assert_int_equal(UNPACK(TOP, "\x08\x01"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x22\x01"
				     "a"),
			 -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x28\x01"), -EBADMSG);
}

static void test_strings(void **state)
{
	assert_int_equal(UNPACK(TOP, "\x2a\x01\xff"), -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x2a\x03"
				     "a\0b"),
			 -EBADMSG);
	assert_int_equal(UNPACK(TOP, "\x2a\x03\xed\xa0\x80"), -EBADMSG); /* a surrogate */
	assert_int_equal(UNPACK(TOP, "\x0a\x05\x22\x03\x0a\x01\xff"), -EBADMSG); /* deeper */
}

static void put_varint(struct strbuf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		strbuf_putc(b, (char)(v | 0x80));
	strbuf_putc(b, (char)v);
}

static void test_amplification(void **state)
{
	struct strbuf b = {};

	/* 60 KiB of empty filters. */
	for (int i = 0; i < 30000; i++)
		strbuf_add(&b, "\x22", 2);
	assert_int_equal(unpack(SELECTION, b.data, b.len), -E2BIG);
	/* Unknown fields are stored too. */
	strbuf_reset(&b);
	for (int i = 0; i < 20000; i++)
		strbuf_add(&b, "\xa0\x06\x01", 3);
	assert_int_equal(unpack(SELECTION, b.data, b.len), -E2BIG);
	strbuf_done(&b);
}

/* No message of ours is recursive, but the walk does not rely on that. */
static void test_nesting(void **state)
{
	ProtobufCMessageDescriptor d = { .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC };
	ProtobufCFieldDescriptor field = { .name = "self",
					   .id = 1,
					   .label = PROTOBUF_C_LABEL_OPTIONAL,
					   .type = PROTOBUF_C_TYPE_MESSAGE,
					   .descriptor = &d };
	_cleanup_(strbuf_done) struct strbuf b = {};
	const char *error = NULL;

	d.n_fields = 1;
	d.fields = &field;
	/* From the inside out. */
	for (int i = 0; i < 9000; i++) {
		struct strbuf outer = {};

		strbuf_putc(&outer, 0x0a);
		put_varint(&outer, b.len);
		if (b.len)
			strbuf_add(&outer, b.data, b.len);
		strbuf_done(&b);
		b = outer;
	}
	assert_int_equal(message_check(&d, (uint8_t *)b.data, b.len, 1 << 20, &error), -E2BIG);
	assert_string_equal(error, "nested too deeply");
}

static uint32_t next_random(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

/* What passes the check, the unpacker takes as well: its own word is the test. */
static void test_random_bytes(void **state)
{
	static const ProtobufCMessageDescriptor *const types[] = {
		&sysprofd__v1__top_request__descriptor,
		&sysprofd__v1__put_work_request__descriptor,
		&sysprofd__v1__profile__descriptor,
		&sysprofd__v1__coverage__descriptor,
	};
	uint32_t x = 12345;
	size_t good = 0;

	for (int i = 0; i < 100000; i++) {
		uint8_t bytes[48];
		size_t len = next_random(&x) % sizeof(bytes);

		for (size_t k = 0; k < len; k++)
			/* Small bytes, for they are tags, lengths and text more often than chance. */
			bytes[k] = (uint8_t)(next_random(&x) >> (next_random(&x) % 3 ? 27 : 24));
		good += unpack(types[i % 4], bytes, len) == 0;
	}
	assert_true(good > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_varints), cmocka_unit_test(test_tags),
		cmocka_unit_test(test_strings), cmocka_unit_test(test_amplification),
		cmocka_unit_test(test_nesting), cmocka_unit_test(test_random_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
