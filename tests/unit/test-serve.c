// SPDX-License-Identifier: GPL-2.0-or-later
/* The protocol as well-behaved clients speak it. */
#include "serve-fixture.h"

#include <zlib.h>

#include "export/wire.h"
#include "serve/answer.h"

static void test_status_json(void **state)
{
	struct reply r;
	char value[64];

	post_json(*state, "Status", "{}", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(reply_header(&r, "Content-Type", value, sizeof(value)),
			    "application/json");
	assert_non_null(strstr(r.body.data, "\"version\":\"1.2.3\""));
	assert_non_null(strstr(r.body.data, "\"uptimeSeconds\":1.5"));
	assert_non_null(strstr(r.body.data, "\"samples\":\"1234567890123\""));
	assert_non_null(strstr(r.body.data, "\"host\":{"));
	assert_non_null(strstr(r.body.data, "\"serverTimeNs\":\""));
	reply_done(&r);
}

static void test_status_proto(void **state)
{
	Sysprofd__V1__StatusResponse *m;
	struct reply r;

	post(*state, SERVICE "Status", PROTO "Connect-Protocol-Version: 1\r\n", "", 0, &r);
	assert_int_equal(r.status, 200);
	m = sysprofd__v1__status_response__unpack(NULL, r.body.len, (uint8_t *)r.body.data);
	assert_non_null(m);
	assert_string_equal(m->version, "1.2.3");
	assert_non_null(m->host);
	assert_int_equal(strlen(m->host->boot_id), 32);
	sysprofd__v1__status_response__free_unpacked(m, NULL);
	reply_done(&r);
}

static void test_keep_alive(void **state)
{
	int fd = dial(*state);
	struct reply r;

	for (int i = 0; i < 3; i++) {
		send_post(fd, SERVICE "ProfileTypes", JSON, "{}", 2);
		receive_reply(fd, &r);
		assert_int_equal(r.status, 200);
		assert_non_null(strstr(r.body.data, "PROFILE_TYPE_OFF_CPU"));
		reply_done(&r);
	}
	close(fd);
}

static void expect_error(struct fixture *f, const char *path, const char *headers, const char *body,
			 unsigned status, const char *text)
{
	struct reply r;

	post(f, path, headers, body, strlen(body), &r);
	assert_int_equal(r.status, status);
	if (text)
		assert_non_null(strstr(r.body.data, text));
	reply_done(&r);
}

static void test_errors(void **state)
{
	struct fixture *f = *state;

	expect_error(f, SERVICE "Nothing", JSON, "{}", 404, "\"code\":\"unimplemented\"");
	expect_error(f, "/elsewhere", JSON, "{}", 404, NULL);
	expect_error(f, SERVICE "Status", "Content-Type: text/plain\r\n", "{}", 415, NULL);
	expect_error(f, SERVICE "Status", "", "{}", 415, NULL);
	expect_error(f, SERVICE "Status", STREAM_JSON, "{}", 415, NULL);
	expect_error(f, SERVICE "Watch", JSON, "{}", 415, NULL);
	expect_error(f, SERVICE "Status", JSON, "{", 400, "\"code\":\"invalid_argument\"");
	expect_error(f, SERVICE "Status", JSON, "", 400, "invalid_argument");
	expect_error(f, SERVICE "Status", PROTO, "\xff", 400, "invalid_argument");
	expect_error(f, SERVICE "Status", JSON "Connect-Protocol-Version: 2\r\n", "{}", 400, NULL);
	expect_error(f, SERVICE "Status", JSON "Connect-Timeout-Ms: 1s\r\n", "{}", 400, NULL);
	expect_error(f, SERVICE "Status", JSON "Content-Encoding: br\r\n", "{}", 501,
		     "unimplemented");
	expect_error(f, SERVICE "Top", JSON, "{\"by\":99}", 400, "unknown dimension");
	expect_error(f, SERVICE "Top", JSON, "{\"limit\":10001}", 400, "at most 10000");
	expect_error(f, SERVICE "Top", JSON, "{\"pageToken\":\"x\"}", 400, "page_token");
	expect_error(f, SERVICE "Top", JSON, "{\"selection\":{\"filters\":[{\"key\":\"nose\"}]}}",
		     400, "nose");
	expect_error(f, SERVICE "Top", JSON, "{\"selection\":{\"fromNs\":\"5\",\"untilNs\":\"4\"}}",
		     400, "invalid_argument");
	expect_error(f, SERVICE "Merge", JSON, "{\"selection\":{\"type\":7}}", 400, "profile type");
	expect_error(f, SERVICE "Series", JSON, "{\"stepNs\":\"1\"}", 400, "step_ns");
	expect_error(f, SERVICE "LabelValues", JSON, "{\"name\":\"nose\"}", 400, "nose");
}

static void test_http_methods(void **state)
{
	char value[64];
	struct reply r;

	get(*state, SERVICE "PutWork", "", &r);
	assert_int_equal(r.status, 405);
	assert_string_equal(reply_header(&r, "Allow", value, sizeof(value)), "POST");
	reply_done(&r);
	post(*state, "/metrics", "", "", 0, &r);
	assert_int_equal(r.status, 405);
	reply_done(&r);
	get(*state, "/debug/pprof/heap", "", &r);
	assert_int_equal(r.status, 404);
	reply_done(&r);
}

static void test_top(void **state)
{
	struct reply r;

	post_json(*state, "Top", "{\"limit\":1}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"name\":\"beta\""));
	assert_non_null(strstr(r.body.data, "\"self\":\"70000000\""));
	assert_non_null(strstr(r.body.data, "\"nextPageToken\":\"1\""));
	assert_non_null(strstr(r.body.data, "\"unit\":\"nanoseconds\""));
	assert_null(strstr(r.body.data, "alpha"));
	reply_done(&r);
	post_json(*state, "Top", "{\"limit\":1,\"pageToken\":\"1\"}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"name\":\"alpha\""));
	assert_null(strstr(r.body.data, "\"name\":\"beta\""));
	reply_done(&r);
}

static void test_queries(void **state)
{
	struct reply r;

	post_json(*state, "Series", "{\"by\":\"DIMENSION_PROCESS\"}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"stepNs\":\"10000000000\""));
	assert_non_null(strstr(r.body.data, "\"points\":["));
	reply_done(&r);
	post_json(*state, "Labels", "{}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"comm\""));
	reply_done(&r);
	post_json(*state, "LabelValues", "{\"name\":\"comm\",\"limit\":1}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"value\":\"bob\""));
	assert_non_null(strstr(r.body.data, "\"nextPageToken\":\"1\""));
	reply_done(&r);
}

static struct profile *merge(struct fixture *f)
{
	Sysprofd__V1__MergeResponse *m;
	struct profile *p = NULL;
	struct reply r;

	post(f, SERVICE "Merge", PROTO, "", 0, &r);
	assert_int_equal(r.status, 200);
	m = sysprofd__v1__merge_response__unpack(NULL, r.body.len, (uint8_t *)r.body.data);
	assert_non_null(m);
	assert_int_equal(wire_profile_unpack(m->profile, &p), 0);
	sysprofd__v1__merge_response__free_unpacked(m, NULL);
	reply_done(&r);
	return p;
}

static void test_merge(void **state)
{
	struct profile *p = merge(*state);

	assert_int_equal(p->type, PROFILE_ON_CPU);
	assert_int_equal(p->samples, 100);
	assert_int_equal(p->total, 100000000);
	profile_free(p);
}

static void let_snapshot_age(void)
{
	usleep(600 * 1000);
}

static void test_snapshot_is_shared(void **state)
{
	struct fixture *f = *state;
	int before = f->fake.snapshots;

	let_snapshot_age();
	for (int i = 0; i < 20; i++)
		profile_free(merge(f));
	/* Twenty quick queries close the kernel's window a few times at most. */
	assert_in_range(f->fake.snapshots - before, 1, 10);
	/* A range that ended long ago needs none. */
	before = f->fake.snapshots;
	expect_error(f, SERVICE "Merge", JSON,
		     "{\"selection\":{\"fromNs\":\"1\",\"untilNs\":\"1000000000\"}}", 200, NULL);
	assert_int_equal(f->fake.snapshots, before);
}

static void test_snapshot_fails(void **state)
{
	struct fixture *f = *state;

	let_snapshot_age();
	f->fake.snapshot_fails = true;
	/* Not answered from the store alone: that would be a silent hole. */
	expect_error(f, SERVICE "Merge", JSON, "{}", 503, "newest samples");
	f->fake.snapshot_fails = false;
}

static void test_get_and_etag(void **state)
{
	const char *path = SERVICE "ProfileTypes?connect=v1&encoding=json&message=%7B%7D";
	char etag[64], header[128];
	struct reply r;

	get(*state, path, "", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(reply_header(&r, "ETag", etag, sizeof(etag)));
	reply_done(&r);
	snprintf(header, sizeof(header), "If-None-Match: %s\r\n", etag);
	get(*state, path, header, &r);
	assert_int_equal(r.status, 304);
	assert_int_equal(r.body.len, 0);
	reply_done(&r);
	/* "e30" is "{}" in unpadded base64. */
	get(*state, SERVICE "ProfileTypes?connect=v1&encoding=json&base64=1&message=e30", "", &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	get(*state, SERVICE "ProfileTypes?connect=v1&encoding=proto&message=", "", &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	get(*state, SERVICE "ProfileTypes?connect=v1&encoding=xml&message=", "", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
	get(*state, SERVICE "ProfileTypes?encoding=json", "", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
	get(*state, SERVICE "ProfileTypes?encoding=json&base64=1&message=!!", "", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
}

static void gzip(const void *data, size_t len, struct strbuf *out)
{
	z_stream z = {};
	char *p = strbuf_reserve(out, len + 64);

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, 0), Z_OK);
	z.next_in = (Bytef *)data;
	z.avail_in = (uInt)len;
	z.next_out = (Bytef *)p;
	z.avail_out = (uInt)len + 64;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	out->len += len + 64 - z.avail_out;
	deflateEnd(&z);
}

static void test_gzip(void **state)
{
	struct fixture *f = *state;
	struct strbuf packed = {}, plain = {};
	char *bomb = calloc(1, 10 << 20), value[64];
	struct reply r;

	gzip("{\"limit\":3}", 11, &packed);
	post(f, SERVICE "Top", JSON "Content-Encoding: gzip\r\n", packed.data, packed.len, &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);

	/* Ten megabytes of spaces in ten kilobytes. */
	memset(bomb, ' ', 10 << 20);
	strbuf_reset(&packed);
	gzip(bomb, 10 << 20, &packed);
	post(f, SERVICE "Top", JSON "Content-Encoding: gzip\r\n", packed.data, packed.len, &r);
	assert_int_equal(r.status, 429);
	assert_non_null(strstr(r.body.data, "resource_exhausted"));
	reply_done(&r);

	post(f, SERVICE "Top", JSON "Content-Encoding: gzip\r\n", "not gzip", 8, &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);

	f->fake.big_counters = 1000;
	post(f, SERVICE "Status", JSON "Accept-Encoding: br, gzip;q=0.5\r\n", "{}", 2, &r);
	f->fake.big_counters = 0;
	assert_int_equal(r.status, 200);
	assert_string_equal(reply_header(&r, "Content-Encoding", value, sizeof(value)), "gzip");
	assert_int_equal(answer_decompress(r.body.data, r.body.len, 1 << 20, &plain), 0);
	assert_true(r.body.len < plain.len / 4);
	assert_int_equal(plain.data[0], '{');
	reply_done(&r);
	free(bomb);
	strbuf_done(&packed);
	strbuf_done(&plain);
}

static void test_put_work(void **state)
{
	struct fixture *f = *state;
	struct reply r;

	post_json(f, "PutWork",
		  "{\"name\":\"requests\",\"count\":\"12\",\"labels\":{\"queue\":\"fast\"}}", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(f->fake.work, "requests 12 queue=fast");
	reply_done(&r);
	post_json(f, "PutWork", "{\"name\":\"Bad Name\"}", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
	post_json(f, "PutWork", "{\"name\":\"x\",\"labels\":{\"a b\":\"\"}}", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
}

static void test_list_buckets_without_store(void **state)
{
	expect_error(*state, SERVICE "ListBuckets", JSON, "{}", 503, "unavailable");
}

/* ---- ListBuckets, with a real store -------------------------------------------------------------- */

static int setup_store(void **state)
{
	struct fixture *f = fixture_new();
	struct store_options o = { .max_bytes = 64 << 20, .repack_buckets = 60 };
	struct store *store;

	snprintf(f->store, sizeof(f->store), "%s/store", f->dir);
	o.directory = f->options.store_directory = f->store;
	assert_int_equal(store_open(&o, &store), 0);
	for (uint64_t i = 0; i < 5; i++) {
		struct bucket *b = make_bucket((1000 + i * 10) * NSEC_PER_SEC);

		assert_int_equal(store_append(store, b), 0);
		bucket_free(b);
	}
	store_close(store);
	*state = f;
	return fixture_start(f);
}

static int teardown_store(void **state)
{
	struct fixture *f = *state;
	char command[160];

	snprintf(command, sizeof(command), "rm -r %s", f->store);
	assert_int_equal(system(command), 0);
	return teardown(state);
}

static Sysprofd__V1__ListBucketsResponse *list_buckets(struct fixture *f, const char *cursor,
						       uint32_t limit)
{
	Sysprofd__V1__ListBucketsRequest m = SYSPROFD__V1__LIST_BUCKETS_REQUEST__INIT;
	Sysprofd__V1__ListBucketsResponse *answer;
	uint8_t body[256];
	struct reply r;

	m.after_cursor = (char *)cursor;
	m.limit = limit;
	post(f, SERVICE "ListBuckets", PROTO, body,
	     sysprofd__v1__list_buckets_request__pack(&m, body), &r);
	assert_int_equal(r.status, 200);
	answer = sysprofd__v1__list_buckets_response__unpack(NULL, r.body.len,
							     (uint8_t *)r.body.data);
	assert_non_null(answer);
	reply_done(&r);
	return answer;
}

static void test_list_buckets(void **state)
{
	Sysprofd__V1__ListBucketsResponse *a;
	char cursor[128] = "";
	size_t n = 0;

	/* Two at a time, until there are none. */
	for (int i = 0; i < 4; i++) {
		a = list_buckets(*state, cursor, 2);
		assert_false(a->resync);
		assert_int_equal(a->n_buckets, i < 2 ? 2 : i == 2 ? 1 : 0);
		for (size_t k = 0; k < a->n_buckets; k++, n++) {
			assert_int_equal(a->buckets[k]->start_ns, (1000 + n * 10) * NSEC_PER_SEC);
			assert_int_equal(a->buckets[k]->n_profiles, 4);
			assert_int_equal(a->buckets[k]->profiles[0]->coverage->samples, 100);
		}
		snprintf(cursor, sizeof(cursor), "%s", a->next_cursor);
		sysprofd__v1__list_buckets_response__free_unpacked(a, NULL);
	}
	/* A cursor of another store: everything again, and the client is told. */
	a = list_buckets(*state, "00000000000000000000000000000000:3", 0);
	assert_true(a->resync);
	assert_int_equal(a->n_buckets, 5);
	sysprofd__v1__list_buckets_response__free_unpacked(a, NULL);
	expect_error(*state, SERVICE "ListBuckets", JSON, "{\"afterCursor\":\"x\"}", 400, "cursor");
	expect_error(*state, SERVICE "ListBuckets", JSON, "{\"afterCursor\":\"a:\"}", 400,
		     "cursor");
	expect_error(*state, SERVICE "ListBuckets", JSON, "{\"limit\":361}", 400, "360");
}

static void test_stored_history(void **state)
{
	struct reply r;

	post_json(*state, "Top",
		  "{\"selection\":{\"fromNs\":\"1000000000000\",\"untilNs\":\"1020000000000\"}}",
		  &r);
	assert_int_equal(r.status, 200);
	/* Two buckets of the five. */
	assert_non_null(strstr(r.body.data, "\"self\":\"140000000\""));
	reply_done(&r);
}

static void test_deadline(void **state)
{
	struct fixture *f = *state;
	uint64_t start = mono_now_ns();

	f->fake.status_delay_ms = 1000;
	expect_error(f, SERVICE "Status", JSON "Connect-Timeout-Ms: 100\r\n", "{}", 504,
		     "deadline_exceeded");
	assert_true(mono_now_ns() - start < 800 * NSEC_PER_MSEC);
	f->fake.status_delay_ms = 0;
}

static void test_metrics(void **state)
{
	struct reply r;
	char value[64];

	get(*state, "/metrics", "", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(reply_header(&r, "Content-Type", value, sizeof(value)),
			    "text/plain; version=0.0.4; charset=utf-8");
	assert_non_null(
		strstr(r.body.data, "\nsysprofd_samples_total{type=\"on-cpu\"} 1234567890123\n"));
	assert_non_null(strstr(r.body.data, "\nsysprofd_samples_lost_total{type=\"on-cpu\","
					    "reason=\"tick-skipped\"} 7\n"));
	assert_non_null(
		strstr(r.body.data, "\nsysprofd_unwind_errors_total{reason=\"limit\"} 3\n"));
	assert_non_null(strstr(r.body.data, "\nsysprofd_rpc_duration_seconds_count{method="));
	assert_non_null(strstr(r.body.data, "\nprocess_resident_memory_bytes "));
	assert_non_null(strstr(r.body.data, "\nsysprofd_user_stacks_total{end=\"complete\"} 21\n"));
	assert_non_null(strstr(r.body.data, "\nsysprofd_user_stacks_total{end=\"partial\"} 9\n"));
	assert_non_null(strstr(r.body.data, "{binary=\"/usr/bin/secret\",end=\"partial\"} 6\n"));
	reply_done(&r);
}

static void test_stacks(void **state)
{
	struct reply r;

	post_json(*state, "Stacks", "{}", &r);
	assert_int_equal(r.status, 200);
	assert_non_null(strstr(r.body.data, "\"/usr/bin/secret\""));
	assert_non_null(strstr(r.body.data, "\"no-row\""));
	reply_done(&r);
}

static void test_pprof(void **state)
{
	uint64_t start = mono_now_ns();
	struct reply r;

	get(*state, "/debug/pprof/profile?seconds=60", "", &r);
	assert_int_equal(r.status, 200);
	assert_true(mono_now_ns() - start < 5 * NSEC_PER_SEC);
	assert_memory_equal(r.body.data, "\x1f\x8b", 2);
	reply_done(&r);

	start = mono_now_ns();
	get(*state, "/debug/pprof/profile?seconds=1&wait=1", "", &r);
	assert_int_equal(r.status, 200);
	assert_true(mono_now_ns() - start >= 900 * NSEC_PER_MSEC);
	reply_done(&r);

	get(*state, "/debug/pprof/profile?seconds=0", "", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
	get(*state, "/debug/pprof/profile?type=heap", "", &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
}

/* ---- streams ------------------------------------------------------------------------------------- */

/* Takes one frame off the front of a body. */
static uint8_t take_frame(struct strbuf *b, const char **ret, uint32_t *ret_len)
{
	const uint8_t *p = (const uint8_t *)b->data;
	uint8_t flags;

	assert_true(b->len >= 5);
	flags = p[0];
	*ret_len = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	assert_true(b->len >= 5 + *ret_len);
	*ret = strndup(b->data + 5, *ret_len);
	memmove(b->data, b->data + 5 + *ret_len, b->len - 5 - *ret_len);
	b->len -= 5 + *ret_len;
	return flags;
}

static void expect_frame(struct strbuf *b, uint8_t flags, const char *text)
{
	const char *data;
	uint32_t len;

	assert_int_equal(take_frame(b, &data, &len), flags);
	if (text)
		assert_non_null(strstr(data, text));
	free((char *)data);
}

static void test_watch(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	int fd = dial(f);

	send_post(fd, SERVICE "Watch", STREAM_JSON "Connect-Timeout-Ms: 1500\r\n", "\0\0\0\0\2{}",
		  7);
	usleep(300000);
	publish(f, 1);
	usleep(200000);
	publish(f, 1);
	receive_reply(fd, &r);
	assert_int_equal(r.status, 200);
	assert_true(r.complete);
	expect_frame(&r.body, 0, "\"sequence\":\"42\"");
	expect_frame(&r.body, 0, "\"alpha\"");
	expect_frame(&r.body, 2, "{\"error\":{\"code\":\"deadline_exceeded\"");
	assert_int_equal(r.body.len, 0);
	reply_done(&r);
	/* The connection can be used again. */
	send_post(fd, SERVICE "ProfileTypes", JSON, "{}", 2);
	receive_reply(fd, &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	close(fd);
}

static void test_record(void **state)
{
	struct fixture *f = *state;
	const char body[] = "\0\0\0\0\17{\"seconds\":1.5}";
	struct reply r;

	post(f, SERVICE "Record", STREAM_JSON, body, sizeof(body) - 1, &r);
	assert_int_equal(r.status, 200);
	expect_frame(&r.body, 0, "\"samples\":\"100\"");
	expect_frame(&r.body, 0, "\"profile\":{");
	expect_frame(&r.body, 2, "{}");
	assert_int_equal(r.body.len, 0);
	reply_done(&r);
	for (int i = 0; i < 100 && f->fake.releases < f->fake.recordings; i++)
		usleep(10000);
	assert_int_equal(f->fake.recordings, f->fake.releases);
}

static void test_record_refused(void **state)
{
	const char busy[] = "\0\0\0\0\16{\"rateHz\":950}";
	const char bad[] = "\0\0\0\0\17{\"rateHz\":\"NaN\"}";
	struct reply r;

	post(*state, SERVICE "Record", STREAM_JSON, busy, sizeof(busy) - 1, &r);
	assert_int_equal(r.status, 200);
	expect_frame(&r.body, 2, "\"code\":\"resource_exhausted\",\"message\":\"over the budget\"");
	reply_done(&r);
	post(*state, SERVICE "Record", STREAM_JSON, bad, sizeof(bad) - 1, &r);
	assert_int_equal(r.status, 200);
	expect_frame(&r.body, 2, "\"code\":\"invalid_argument\"");
	reply_done(&r);
}

/* An event that this host does not have is refused with those that it has. */
static void test_record_event(void **state)
{
	const char absent[] = "\0\0\0\0\30{\"event\":\"cache-misses\"}";
	const char unknown[] = "\0\0\0\0\21{\"event\":\"ticks\"}";
	struct reply r;

	post(*state, SERVICE "Record", STREAM_JSON, absent, sizeof(absent) - 1, &r);
	expect_frame(&r.body, 2, "there is cpu-clock, cycles, instructions, branch-misses");
	reply_done(&r);
	post(*state, SERVICE "Record", STREAM_JSON, unknown, sizeof(unknown) - 1, &r);
	expect_frame(&r.body, 2, "expected one of cpu-clock, cycles, instructions, cache-misses");
	reply_done(&r);
}

/* ---- who sees what ------------------------------------------------------------------------------- */

/* What a process of another uid gets: runs in a child, 0 when everything was as it should be. */
static int look_as(struct fixture *f, uid_t uid)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct reply r;
		int bad = 0;

		if (setgid(uid) < 0 || setuid(uid) < 0)
			_exit(10);
		post_json(f, "Top", "{}", &r);
		bad |= r.status != 200;
		bad |= (strstr(r.body.data, "\"alpha\"") != NULL) != (uid == UID_ALICE) ? 2 : 0;
		bad |= (strstr(r.body.data, "\"beta\"") != NULL) != (uid == UID_BOB) ? 4 : 0;
		bad |= strstr(r.body.data, uid == UID_ALICE ? "\"30000000\"" : "\"70000000\"") ? 0
											       : 8;
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static void test_two_uids(void **state)
{
	struct reply r;

	need_root();
	assert_int_equal(look_as(*state, UID_ALICE), 0);
	assert_int_equal(look_as(*state, UID_BOB), 0);
	post_json(*state, "Top", "{}", &r);
	assert_non_null(strstr(r.body.data, "\"alpha\""));
	assert_non_null(strstr(r.body.data, "\"beta\""));
	reply_done(&r);
}

/* ---- curl ---------------------------------------------------------------------------------------- */

static void test_curl(void **state)
{
	struct fixture *f = *state;
	char command[512], out[64] = "";
	FILE *p;

	if (system("command -v curl >/dev/null 2>&1") != 0) {
		print_message("curl is not installed\n");
		skip();
	}
	snprintf(command, sizeof(command),
		 "curl -sS --compressed --unix-socket %s -H 'Content-Type: application/json' "
		 "-d '{}' http://localhost%sStatus | grep -c 1.2.3",
		 f->path, SERVICE);
	p = popen(command, "r");
	assert_non_null(p);
	assert_non_null(fgets(out, sizeof(out), p));
	assert_int_equal(pclose(p), 0);
	assert_string_equal(out, "1\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status_json),
		cmocka_unit_test(test_status_proto),
		cmocka_unit_test(test_keep_alive),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_http_methods),
		cmocka_unit_test(test_top),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_snapshot_is_shared),
		cmocka_unit_test(test_snapshot_fails),
		cmocka_unit_test(test_get_and_etag),
		cmocka_unit_test(test_gzip),
		cmocka_unit_test(test_put_work),
		cmocka_unit_test(test_list_buckets_without_store),
		cmocka_unit_test_setup_teardown(test_list_buckets, setup_store, teardown_store),
		cmocka_unit_test_setup_teardown(test_stored_history, setup_store, teardown_store),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_pprof),
		cmocka_unit_test(test_watch),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_record_refused),
		cmocka_unit_test(test_record_event),
		cmocka_unit_test(test_two_uids),
		cmocka_unit_test(test_curl),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
