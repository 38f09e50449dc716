// SPDX-License-Identifier: GPL-2.0-or-later
/* ProtoJSON both ways, and what the reader makes of hostile text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "serve/json.h"
#include "sysprofd/v1/profile.pb-c.h"

#define MAX_VALUES 4096

static int read_as(const ProtobufCMessageDescriptor *d, const char *s, size_t len,
		   ProtobufCMessage **ret, char *error)
{
	/* A copy of the exact size, so that a sanitizer sees every byte read beyond it. */
	char *exact = malloc(len + !len);
	int r;

	memcpy(exact, s, len);
	r = json_read_message(d, exact, len, MAX_VALUES, ret, error);
	free(exact);
	return r;
}

static void *read_ok(const ProtobufCMessageDescriptor *d, const char *s)
{
	char error[JSON_ERROR_MAX] = "";
	ProtobufCMessage *m = NULL;
	int r = read_as(d, s, strlen(s), &m, error);

	if (r < 0)
		fail_msg("%s: %s", s, error);
	return m;
}

static void expect_bad(const ProtobufCMessageDescriptor *d, const char *s, const char *why)
{
	char error[JSON_ERROR_MAX] = "";
	ProtobufCMessage *m = NULL;
	int r = read_as(d, s, strlen(s), &m, error);

	if (r >= 0)
		fail_msg("accepted: %s", s);
	assert_null(m);
	if (!strstr(error, why))
		fail_msg("%s: \"%s\" instead of \"%s\"", s, error, why);
}

static void expect_text(const ProtobufCMessageDescriptor *d, const char *in, const char *out)
{
	ProtobufCMessage *m = read_ok(d, in);
	struct strbuf b = {};

	json_write_message(m, &b);
	assert_string_equal(b.data, out);
	protobuf_c_message_free_unpacked(m, NULL);
	strbuf_done(&b);
}

#define TOP (&sysprofd__v1__top_request__descriptor)
#define SELECTION (&sysprofd__v1__selection__descriptor)
#define WORK (&sysprofd__v1__put_work_request__descriptor)
#define COVERAGE (&sysprofd__v1__coverage__descriptor)
#define HOST (&sysprofd__v1__host__descriptor)
#define SAMPLE (&sysprofd__v1__sample__descriptor)

static void test_round_trips(void **state)
{
	expect_text(TOP, "{}", "{}");
	expect_text(TOP, " { \"limit\" : 7 , \"by\" : \"DIMENSION_LOCK\" } ",
		    "{\"by\":\"DIMENSION_LOCK\",\"limit\":7}");
	/* Both spellings of a name, numbers for enums, strings for integers. */
	expect_text(TOP, "{\"page_token\":\"a\",\"by\":2,\"limit\":\"7\"}",
		    "{\"by\":\"DIMENSION_PROCESS\",\"limit\":7,\"pageToken\":\"a\"}");
	expect_text(TOP, "{\"by\":77}", "{\"by\":77}");
	expect_text(SELECTION, "{\"untilNs\":\"18446744073709551615\",\"fromNs\":9007199254740993}",
		    "{\"fromNs\":\"9007199254740993\",\"untilNs\":\"18446744073709551615\"}");
	expect_text(SELECTION, "{\"fromNs\":1e3,\"untilNs\":\"5.0\"}",
		    "{\"fromNs\":\"1000\",\"untilNs\":\"5\"}");
	expect_text(SELECTION,
		    "{\"filters\":[{\"key\":\"comm\",\"glob\":\"a*\"},{},{\"negate\":true}]}",
		    "{\"filters\":[{\"key\":\"comm\",\"glob\":\"a*\"},{},{\"negate\":true}]}");
	/* Defaults and null are left out. */
	expect_text(SELECTION, "{\"fromNs\":0,\"untilNs\":null,\"filters\":[]}", "{}");
	expect_text(TOP, "{\"selection\":{}}", "{\"selection\":{}}");
	expect_text(COVERAGE, "{\"rateHz\":0.1}", "{\"rateHz\":0.1}");
	expect_text(COVERAGE, "{\"rateHz\":\"NaN\"}", "{\"rateHz\":\"NaN\"}");
	expect_text(COVERAGE, "{\"rateHz\":\"-Infinity\"}", "{\"rateHz\":\"-Infinity\"}");
	expect_text(COVERAGE, "{\"rateHz\":\"1.5\"}", "{\"rateHz\":1.5}");
	expect_text(COVERAGE, "{\"rateHz\":-0.0}", "{\"rateHz\":-0}");
	expect_text(HOST, "{\"clockSynchronized\":true}", "{\"clockSynchronized\":true}");
	expect_text(HOST, "{\"clockSynchronized\":false}", "{}");
	expect_text(WORK, "{\"labels\":{\"a\":\"1\",\"b\":\"\"},\"count\":3}",
		    "{\"labels\":{\"a\":\"1\",\"b\":\"\"},\"count\":\"3\"}");
	expect_text(SAMPLE, "{\"errnoName\":1,\"exactTotal\":true}",
		    "{\"errnoName\":1,\"exactTotal\":true}");
}

static void test_strings(void **state)
{
	expect_text(HOST, "{\"hostName\":\"\\u0041\\n\\\"\\\\\\/\\b\"}",
		    "{\"hostName\":\"A\\n\\\"\\\\/\\u0008\"}");
	expect_text(HOST, "{\"hostName\":\"\\ud83d\\ude00 \xc3\xa9\"}",
		    "{\"hostName\":\"\xf0\x9f\x98\x80 \xc3\xa9\"}");
	expect_text(HOST, "{\"host\\u004eame\":\"x\"}", "{\"hostName\":\"x\"}");
	expect_bad(HOST, "{\"hostName\":\"\\ud83d\"}", "surrogate");
	expect_bad(HOST, "{\"hostName\":\"\\ud83d\\u0041\"}", "surrogate");
	expect_bad(HOST, "{\"hostName\":\"\\ude00\"}", "surrogate");
	expect_bad(HOST, "{\"hostName\":\"\\u0000\"}", "NUL");
	expect_bad(HOST, "{\"hostName\":\"\\u00g0\"}", "escape");
	expect_bad(HOST, "{\"hostName\":\"\\x\"}", "escape");
	expect_bad(HOST, "{\"hostName\":\"\n\"}", "control");
	expect_bad(HOST, "{\"hostName\":\"\xff\"}", "UTF-8");
	expect_bad(HOST, "{\"hostName\":\"\xed\xa0\x80\"}", "UTF-8");
	expect_bad(HOST, "{\"hostName\":\"\xc3\"}", "UTF-8");
	expect_bad(HOST, "{\"hostName\":\"abc", "end");
	expect_bad(HOST, "{\"hostName\":\"abc\\", "escape");
	expect_bad(HOST, "{\"hostName\":\"abc\\u12", "escape");
}

static void test_unknown_fields(void **state)
{
	expect_text(TOP,
		    "{\"later\":{\"a\":[1,2,{\"b\":null}],\"c\":\"\\u00e9\"},\"limit\":1,"
		    "\"also\":[true,false,-1.5e-7,[]]}",
		    "{\"limit\":1}");
	expect_bad(TOP, "{\"later\":{\"a\":}}", "number");
	expect_bad(TOP, "{\"later\":tru}", "number");
	expect_bad(TOP, "{\"later\":\"\\ud800\"}", "surrogate");
}

static void test_malformed(void **state)
{
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"}",
		"[]",
		"null",
		"1",
		"\"a\"",
		"{}{}",
		"{} x",
		"{,}",
		"{\"limit\"}",
		"{\"limit\":}",
		"{\"limit\":1,}",
		"{\"limit\":1 \"by\":2}",
		"{limit:1}",
		"{'limit':1}",
		"{\"limit\":01}",
		"{\"limit\":+1}",
		"{\"limit\":.5}",
		"{\"limit\":1.}",
		"{\"limit\":1e}",
		"{\"limit\":-}",
		"{\"limit\":0x10}",
		"{\"limit\":NaN}",
		"{\"limit\":1.5}",
		"{\"limit\":-1}",
		"{\"limit\":4294967296}",
		"{\"limit\":1e30}",
		"{\"limit\":\"\"}",
		"{\"limit\":\" 1\"}",
		"{\"limit\":\"1 \"}",
		"{\"limit\":\"1x\"}",
		"{\"limit\":true}",
		"{\"limit\":[1]}",
		"{\"limit\":{}}",
		"{\"by\":\"DIMENSION_NOSE\"}",
		"{\"by\":1.5}",
		"{\"by\":\"1\"}",
		"{\"selection\":[]}",
		"{\"selection\":\"\"}",
		"{\"selection\":{\"filters\":{}}}",
		"{\"selection\":{\"filters\":[1]}}",
		"{\"selection\":{\"filters\":[null]}}",
		"{\"selection\":{\"filters\":[{},]}}",
		"{\"selection\":{\"filters\":[{}",
		"{\"selection\":{\"fromNs\":18446744073709551616}}",
		"{\"selection\":{\"fromNs\":\"-1\"}}",
		"{\"pageToken\":1}",
		"{\"pageToken\":true}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		expect_bad(TOP, texts[i], "JSON, byte");
	expect_bad(HOST, "{\"clockSynchronized\":1}", "true or false");
	expect_bad(HOST, "{\"clockSynchronized\":\"true\"}", "true or false");
	expect_bad(COVERAGE, "{\"rateHz\":1e999}", "range");
	expect_bad(COVERAGE, "{\"rateHz\":Infinity}", "number");
	expect_bad(COVERAGE, "{\"rateHz\":\"inf\"}", "number");
}

static void test_given_twice(void **state)
{
	expect_bad(TOP, "{\"limit\":1,\"limit\":1}", "twice");
	expect_bad(TOP, "{\"pageToken\":\"\",\"page_token\":\"\"}", "twice");
	expect_bad(TOP, "{\"limit\":null,\"limit\":1}", "twice");
	expect_bad(WORK, "{\"labels\":{\"a\":\"1\",\"a\":\"2\"}}", "twice");
	/* Unknown fields are nobody's business. */
	expect_text(TOP, "{\"x\":1,\"x\":2}", "{}");
}

static void test_maps(void **state)
{
	struct strbuf b = {};

	expect_bad(WORK, "{\"labels\":[]}", "object");
	expect_bad(WORK, "{\"labels\":{1:\"a\"}}", "string");
	expect_bad(WORK, "{\"labels\":{\"a\":1}}", "string");
	expect_bad(WORK, "{\"labels\":{\"a\":null}}", "string");
	expect_bad(WORK, "{\"labels\":{\"a\"", "':'");
	strbuf_puts(&b, "{\"labels\":{");
	for (int i = 0; i <= JSON_MAX_MAP; i++)
		strbuf_printf(&b, "%s\"k%d\":\"\"", i ? "," : "", i);
	strbuf_puts(&b, "}}");
	expect_bad(WORK, b.data, "too many");
	strbuf_done(&b);
}

static void test_limits(void **state)
{
	char error[JSON_ERROR_MAX];
	ProtobufCMessage *m = NULL;
	struct strbuf b = {};

	/* Nested 10,000 deep, in a field that is skipped. */
	strbuf_puts(&b, "{\"x\":");
	for (int i = 0; i < 10000; i++)
		strbuf_putc(&b, '[');
	expect_bad(TOP, b.data, "deep");
	strbuf_reset(&b);
	for (int i = 0; i < 10000; i++)
		strbuf_puts(&b, "{\"selection\":");
	expect_bad(TOP, b.data, "deep");
	strbuf_reset(&b);
	/* A small element that would become a large one, very often. */
	strbuf_puts(&b, "{\"filters\":[{}");
	for (int i = 0; i < 20000; i++)
		strbuf_puts(&b, ",{}");
	strbuf_puts(&b, "]}");
	assert_int_equal(read_as(SELECTION, b.data, b.len, &m, error), -E2BIG);
	strbuf_reset(&b);
	strbuf_puts(&b, "{\"x\":[0");
	for (int i = 0; i < 20000; i++)
		strbuf_puts(&b, ",0");
	strbuf_puts(&b, "]}");
	assert_int_equal(read_as(SELECTION, b.data, b.len, &m, error), -E2BIG);
	strbuf_done(&b);
}

static void test_base64(void **state)
{
	static const struct {
		const char *in, *out;
	} good[] = {
		{ "", "" },
		{ "YQ==", "a" },
		{ "YQ", "a" },
		{ "YWI=", "ab" },
		{ "YWJj", "abc" },
		{ "-_-_", "\xfb\xff\xbf" },
		{ "+/+/", "\xfb\xff\xbf" },
	};
	static const char *const bad[] = { "Y", "YWJjZ", "Y!==", "YW Jj", "YQ=a" };
	uint8_t *data;
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(json_decode_base64(good[i].in, strlen(good[i].in), &data, &len),
				 0);
		assert_int_equal(len, strlen(good[i].out));
		assert_memory_equal(data, good[i].out, len);
		free(data);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(json_decode_base64(bad[i], strlen(bad[i]), &data, &len), -EBADMSG);
}

static void test_real_numbers(void **state)
{
	static const double values[] = { 0.1, 1.0 / 3, 1e300, 5e-324, 123456789.125, 19, 2e15 };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		Sysprofd__V1__Coverage m = SYSPROFD__V1__COVERAGE__INIT, *back;
		struct strbuf b = {};

		m.rate_hz = values[i];
		json_write_message(&m.base, &b);
		back = read_ok(COVERAGE, b.data);
		assert_true(back->rate_hz == values[i]);
		sysprofd__v1__coverage__free_unpacked(back, NULL);
		strbuf_done(&b);
	}
}

/* Every prefix and every change of one byte of a good text is read without harm. */
static void test_mutations(void **state)
{
	static const char text[] =
		"{\"selection\":{\"type\":\"PROFILE_TYPE_FUTEX\",\"fromNs\":\"12\",\"filters\":"
		"[{\"key\":\"comm\",\"glob\":\"\\u00e9*\",\"negate\":true},{}]},\"by\":3,"
		"\"limit\":5,\"pageToken\":\"x\",\"new\":[1,{\"a\":null}]}";
	static const char bytes[] = "\"\\{}[]:,0u\xff ";
	char error[JSON_ERROR_MAX], copy[sizeof(text)];

	for (size_t at = 0; at < sizeof(text); at++) {
		for (size_t i = 0; i < sizeof(bytes); i++) {
			ProtobufCMessage *m = NULL;

			memcpy(copy, text, sizeof(text));
			copy[at] = bytes[i];
			if (read_as(TOP, copy, sizeof(text) - 1, &m, error) == 0)
				protobuf_c_message_free_unpacked(m, NULL);
			m = NULL;
			if (read_as(TOP, copy, at, &m, error) == 0)
				protobuf_c_message_free_unpacked(m, NULL);
		}
	}
}

static void test_writing_is_bounded(void **state)
{
	Sysprofd__V1__Host m = SYSPROFD__V1__HOST__INIT;
	struct strbuf b = { .limit = 10 };

	m.host_name = (char *)"a name that is longer than the limit";
	json_write_message(&m.base, &b);
	assert_int_equal(strbuf_error(&b), -EFBIG);
	strbuf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_unknown_fields),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_given_twice),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_real_numbers),
		cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_writing_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
