// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * malloc fails at the Nth call, for all N: no crash, an error that says so, nothing left behind. The
 * allocator is replaced for the whole program, which a sanitizer's does not allow.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "export/wire.h"
#include "serve/answer.h"
#include "serve/json.h"
#include "serve/validate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACED 0
#else
#define REPLACED 1
#endif

static bool counting;
static long calls, fail_at, balance;

#if REPLACED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static bool fails(void)
{
	return counting && ++calls == fail_at;
}

static void *count(void *p)
{
	balance += counting && p;
	return p;
}

void *malloc(size_t size)
{
	return fails() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	void *q = fails() ? NULL : __libc_realloc(p, size);

	balance += counting && !p && q;
	return q;
}

void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? NULL : realloc(p, bytes);
}

void free(void *p)
{
	balance -= counting && p;
	__libc_free(p);
}
#endif

/* Runs fn with a failure at every point in turn; it returns 0 when nothing failed. */
static void for_all_failures(int (*fn)(void *arg), void *arg)
{
	int r = -1;

	for (fail_at = 1; r != 0; fail_at++) {
		calls = balance = 0;
		counting = true;
		r = fn(arg);
		counting = false;
		if (balance != 0)
			fail_msg("%ld blocks left after failure %ld", balance, fail_at);
		assert_true(r == 0 || calls >= fail_at);
		assert_true(fail_at < 10000);
	}
	/* Each allocation was the one to fail once. */
	assert_true(fail_at > 2);
}

static int read_json(void *arg)
{
	static const char text[] = "{\"name\":\"work\",\"labels\":{\"a\":\"1\",\"b\":\"\"},"
				   "\"count\":\"5\",\"more\":[{\"x\":\"y\"}]}";
	char error[JSON_ERROR_MAX];
	ProtobufCMessage *m;
	int r = json_read_message(&sysprofd__v1__put_work_request__descriptor, text, strlen(text),
				  100, &m, error);

	if (r == 0)
		protobuf_c_message_free_unpacked(m, NULL);
	return r;
}

static int read_json_array(void *arg)
{
	static const char text[] =
		"{\"filters\":[{\"key\":\"a\",\"glob\":\"b\"},{},{\"key\":\"c\"}]}";
	char error[JSON_ERROR_MAX];
	ProtobufCMessage *m;
	int r = json_read_message(&sysprofd__v1__selection__descriptor, text, strlen(text), 100, &m,
				  error);

	if (r == 0)
		protobuf_c_message_free_unpacked(m, NULL);
	return r;
}

static struct profile *make_profile(void)
{
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };
	struct series s = { .pid = 1 };
	struct profile *p;
	struct dict *d;

	assert_int_equal(profile_new(PROFILE_OFF_CPU, &p), 0);
	d = p->dict;
	f.name = (uint32_t)dict_string(d, "f");
	s.label[0] = (uint32_t)dict_string(d, "comm");
	assert_int_equal(columns_add(&p->columns, (uint32_t)dict_series(d, &s),
				     (uint32_t)dict_stack(d, 0, (uint32_t)dict_frame(d, &f)),
				     OFF_KEY(1, 1, 0), 0, 1, 2, 3),
			 0);
	assert_int_equal(ARRAY_GROW(p->gaps, p->cap_gaps, 1), 0);
	p->gaps[p->n_gaps++] = (struct gap){ 1, 2, GAP_STOPPED };
	p->accounting.lost[0] = 1;
	return p;
}

static int pack(void *arg)
{
	Sysprofd__V1__Profile *m;
	int r = wire_profile_pack(arg, &m);

	if (r == 0)
		wire_profile_free(m);
	return r;
}

static int unpack(void *arg)
{
	struct profile *p;
	int r = wire_profile_unpack(arg, &p);

	if (r == 0)
		profile_free(p);
	return r;
}

static int answer(void *arg)
{
	struct reply_format format = { .codec = CODEC_JSON, .gzip = true };
	struct strbuf b = {};
	int r = answer_frame(arg, format, &b);

	if (r == 0)
		answer_end_frame(NULL, &b);
	r = r ?: strbuf_error(&b);
	strbuf_done(&b);
	return r;
}

static void test_reading(void **state)
{
	if (!REPLACED)
		skip();
	for_all_failures(read_json, NULL);
	for_all_failures(read_json_array, NULL);
}

static void test_profiles(void **state)
{
	Sysprofd__V1__Profile *m;
	struct profile *p;

	if (!REPLACED)
		skip();
	p = make_profile();
	for_all_failures(pack, p);
	assert_int_equal(wire_profile_pack(p, &m), 0);
	for_all_failures(unpack, m);
	for_all_failures(answer, m);
	wire_profile_free(m);
	profile_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_profiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
