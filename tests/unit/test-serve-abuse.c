// SPDX-License-Identifier: GPL-2.0-or-later
/* Clients that hang, trickle, leave, lie and flood. SIGPIPE has its default action here: it would kill us. */
#include "serve-fixture.h"

#include <sys/resource.h>

static void put_text(int fd, const char *text)
{
	put(fd, text, strlen(text));
}

/* ---- places and deadlines ------------------------------------------------------------------------ */

#define CROWD 200

static void test_crowd_that_hangs(void **state)
{
	struct fixture *f = *state;
	int fds[CROWD], busy = 0, shed = 0, alive = 0;
	uint64_t start;
	struct reply r;

	for (int i = 0; i < CROWD; i++) {
		fds[i] = dial(f);
		put(fds[i], "P", 1);
	}
	start = mono_now_ns();
	post_json(f, "ProfileTypes", "{}", &r);
	/* All places may be taken by newcomers at this very moment; then "busy" came at once. */
	for (int i = 0; r.status == 503 && i < 5; i++) {
		reply_done(&r);
		usleep(100000);
		post_json(f, "ProfileTypes", "{}", &r);
	}
	assert_int_equal(r.status, 200);
	assert_true(mono_now_ns() - start < NSEC_PER_SEC);
	reply_done(&r);
	for (int i = 0; i < CROWD; i++) {
		if (readable(fds[i], 0)) {
			receive_reply(fds[i], &r);
			busy += r.status == 503 && r.complete && strstr(r.head, "Retry-After: 1");
			shed += r.status == 0;
			reply_done(&r);
		} else {
			alive++;
		}
		close(fds[i]);
	}
	/* Who had waited for longer than a tenth of a second had to make room, without a word. */
	assert_int_equal(busy + shed + alive, CROWD);
	assert_in_range(alive, 50, 64);
	assert_true(busy > 0);
	assert_alive(f);
}

static uint64_t cpu_of_server(struct fixture *f)
{
	struct timespec t;

	clock_gettime(f->cpu_clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void test_hanging_costs_nothing(void **state)
{
	struct fixture *f = *state;
	uint64_t before;
	int fds[60];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = dial(f);
		put(fds[i], "POST /x HTTP/1.1\r\nContent-Length: 10\r\n\r\nab", i % 42 + 1);
	}
	usleep(200000);
	before = cpu_of_server(f);
	usleep(1000000);
	assert_true(cpu_of_server(f) - before < 50 * NSEC_PER_MSEC);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* Whether the peer closed within the time; what it says before is dropped. */
static bool closes_within(int fd, int ms)
{
	uint64_t end = mono_now_ns() + (uint64_t)ms * NSEC_PER_MSEC;
	char buf[4096];

	while (mono_now_ns() < end)
		if (readable(fd, 20) && recv(fd, buf, sizeof(buf), 0) <= 0)
			return true;
	return false;
}

static int setup_hasty(void **state)
{
	struct fixture *f = fixture_new();

	f->options.request_timeout_ns = NSEC_PER_SEC;
	*state = f;
	return fixture_start(f);
}

/* A byte every 50 ms keeps a timeout that counts silence from ever passing. Ours is absolute. */
static void trickle(struct fixture *f, const char *request)
{
	uint64_t start = mono_now_ns();
	bool closed = false;
	int fd = dial(f);

	for (const char *p = request; *p && !closed; p++) {
		closed = send(fd, p, 1, MSG_NOSIGNAL) != 1 || closes_within(fd, 50);
		if (mono_now_ns() - start > 3 * NSEC_PER_SEC)
			break;
	}
	assert_true(closed);
	assert_in_range(mono_now_ns() - start, 800 * NSEC_PER_MSEC, 2500 * NSEC_PER_MSEC);
	close(fd);
}

static void test_trickle(void **state)
{
	trickle(*state, "POST /sysprofd.v1.ProfileService/Status HTTP/1.1\r\nHost: localhost-a-lon"
			"g-name-follows-here\r\n");
	trickle(*state, "POST /x HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	trickle(*state, "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
			"5\r\naaaaa\r\n5\r\naaaaa\r\n5\r\naaaaa\r\n5\r\naaaaa\r\n");
	assert_alive(*state);
}

static void test_idle_keep_alive_ends(void **state)
{
	int fd = dial(*state);
	struct reply r;

	send_post(fd, SERVICE "ProfileTypes", JSON, "{}", 2);
	receive_reply(fd, &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	assert_false(closes_within(fd, 500));
	assert_true(closes_within(fd, 1500));
	close(fd);
}

/* One byte at a time, but in time: the request is whole, and so is the answer. */
static void test_bytewise_delivery(void **state)
{
	static const char request[] = "POST " SERVICE "Status HTTP/1.1\r\nHost: a\r\n" JSON
				      "Content-Length: 2\r\nConnection: close\r\n\r\n{}";
	struct fixture *f = *state;
	struct strbuf all = {};
	int fd = dial(f);
	ssize_t n;
	char c;

	f->fake.big_counters = 2000;
	for (const char *p = request; *p; p++)
		assert_int_equal(send(fd, p, 1, MSG_NOSIGNAL), 1);
	while ((n = recv(fd, &c, 1, 0)) == 1)
		strbuf_putc(&all, c);
	assert_int_equal(n, 0);
	assert_true(all.len > 100000);
	assert_int_equal(all.data[all.len - 1], '}');
	strbuf_done(&all);
	close(fd);
	f->fake.big_counters = 0;
}

/* ---- leaving ------------------------------------------------------------------------------------- */

static void test_leaves_in_the_middle(void **state)
{
	struct fixture *f = *state;

	f->fake.big_counters = 200000; /* 10 MB and more */
	for (int i = 0; i < 5; i++) {
		char buf[1000];
		int fd = dial(f);

		send_post(fd, SERVICE "Status", JSON, "{}", 2);
		assert_true(recv(fd, buf, sizeof(buf), 0) > 0);
		close(fd);
	}
	f->fake.big_counters = 0;
	assert_alive(f);
}

static void test_leaves_while_it_runs(void **state)
{
	struct fixture *f = *state;
	struct server_stats before, after;

	server_stats(f->server, &before);
	f->fake.status_delay_ms = 300;
	for (int i = 0; i < 4; i++) {
		int fd = dial(f);

		send_post(fd, SERVICE "Status", JSON, "{}", 2);
		usleep(50000);
		close(fd);
	}
	usleep(100000);
	server_stats(f->server, &after);
	assert_int_equal(after.cancelled - before.cancelled, 4);
	assert_int_equal(after.connections, 0);
	f->fake.status_delay_ms = 0;
	assert_alive(f);
}

/* A client that has said all it wants to say may close its half and wait. */
static void test_half_closed(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	int fd = dial(f);

	f->fake.status_delay_ms = 200;
	send_post(fd, SERVICE "Status", JSON, "{}", 2);
	shutdown(fd, SHUT_WR);
	receive_reply(fd, &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	close(fd);
	f->fake.status_delay_ms = 0;
}

static void test_slow_reader_is_not_waited_for(void **state)
{
	struct fixture *f = *state;
	int fds[4];

	f->fake.big_counters = 20000; /* more than the sockets hold */
	for (int i = 0; i < 4; i++) {
		fds[i] = dial(f);
		send_post(fds[i], SERVICE "Status", JSON, "{}", 2);
	}
	usleep(500000);
	f->fake.big_counters = 0;
	assert_alive(f);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

static int setup_small_answers(void **state)
{
	struct fixture *f = fixture_new();

	f->options.max_answer_bytes = 1 << 20;
	*state = f;
	return fixture_start(f);
}

static void test_answers_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	int fd;

	f->fake.big_counters = 100000;
	post_json(f, "Status", "{}", &r);
	assert_int_equal(r.status, 429);
	assert_non_null(strstr(r.body.data, "1048576 bytes"));
	reply_done(&r);
	post(f, SERVICE "Status", PROTO, "", 0, &r);
	assert_int_equal(r.status, 429);
	reply_done(&r);
	/* All unread answers together are bounded too. */
	f->fake.big_counters = 8000;
	fd = dial(f);
	send_post(fd, SERVICE "Status", JSON, "{}", 2);
	assert_true(readable(fd, 2000));
	post_json(f, "Status", "{}", &r);
	assert_int_equal(r.status, 503);
	reply_done(&r);
	close(fd);
	usleep(100000);
	post_json(f, "Status", "{}", &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	f->fake.big_counters = 0;
}

/* ---- too much ------------------------------------------------------------------------------------ */

static void test_large_requests(void **state)
{
	struct fixture *f = *state;
	char *body = malloc(1 << 20);
	struct reply r;
	int fd;

	memset(body, ' ', 1 << 20);
	body[0] = '{';
	body[65535] = '}';
	post(f, SERVICE "Status", JSON, body, 65536, &r);
	assert_int_equal(r.status, 200);
	reply_done(&r);
	post(f, SERVICE "Status", JSON, body, 65537, &r);
	assert_int_equal(r.status, 429);
	assert_non_null(strstr(r.body.data, "65536 bytes"));
	reply_done(&r);
	post(f, SERVICE "Status", JSON "X-Long: yes\r\n", body, 1 << 20, &r);
	assert_int_equal(r.status, 429);
	reply_done(&r);
	/* Announced in vain, or not at all. */
	fd = dial(f);
	put_text(fd, "POST " SERVICE "Status HTTP/1.1\r\nHost: a\r\n" JSON
		     "Content-Length: 4294967295\r\n\r\n");
	receive_reply(fd, &r);
	assert_int_equal(r.status, 429);
	reply_done(&r);
	close(fd);
	fd = dial(f);
	put_text(fd, "POST " SERVICE "Status HTTP/1.1\r\nHost: a\r\n" JSON
		     "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 100; i++) {
		put(fd, "2000\r\n", 6);
		put(fd, body, 0x2000);
		put(fd, "\r\n", 2);
	}
	assert_true(closes_within(fd, 5000));
	close(fd);
	free(body);
	assert_alive(f);
}

static void test_large_headers(void **state)
{
	struct fixture *f = *state;
	struct strbuf b = {};
	int fd = dial(f);

	strbuf_puts(&b, "GET /metrics HTTP/1.1\r\nHost: a\r\n");
	for (int i = 0; i < 5000; i++)
		strbuf_printf(&b, "X-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", i);
	put(fd, b.data, b.len);
	assert_true(closes_within(fd, 5000));
	close(fd);
	strbuf_done(&b);
	assert_alive(f);
}

static void expect_end_frame(struct fixture *f, const void *body, size_t len, const char *text)
{
	struct reply r;

	post(f, SERVICE "Watch", STREAM_PROTO, body, len, &r);
	assert_int_equal(r.status, 200);
	assert_true(r.body.len > 5);
	assert_int_equal(r.body.data[0], 2);
	assert_non_null(strstr(r.body.data + 5, text));
	reply_done(&r);
}

static void test_lying_envelopes(void **state)
{
	struct fixture *f = *state;

	expect_end_frame(f, "", 0, "no envelope");
	expect_end_frame(f, "\0\0\0\0", 4, "no envelope");
	expect_end_frame(f, "\0\xff\xff\xff\xff", 5, "4294967295 bytes");
	expect_end_frame(f, "\0\x7f\xff\xff\xff\1", 6, "2147483647 bytes");
	expect_end_frame(f, "\0\0\0\0\0\1", 6, "0 bytes, 1 follow");
	expect_end_frame(f, "\1\0\0\0\1\1", 6, "Connect-Content-Encoding");
	expect_end_frame(f, "\2\0\0\0\0", 5, "flags 0x2");
	expect_end_frame(f, "\0\0\0\0\2\x12\x7f", 7, "length reaches beyond");
	expect_end_frame(f, "\0\0\0\0\2\x08\x63", 7, "unknown profile type 99");
}

static void test_deep_nesting(void **state)
{
	struct strbuf b = {};
	struct reply r;

	strbuf_puts(&b, "{\"x\":");
	for (int i = 0; i < 60000; i++)
		strbuf_putc(&b, '[');
	post(*state, SERVICE "Top", JSON, b.data, b.len, &r);
	assert_int_equal(r.status, 400);
	reply_done(&r);
	strbuf_done(&b);
}

static void test_random_bytes(void **state)
{
	struct fixture *f = *state;
	uint32_t x = 99;

	for (int i = 0; i < 300; i++) {
		char bytes[512];
		int fd = dial(f);

		for (size_t k = 0; k < sizeof(bytes); k++) {
			x = x * 1664525 + 1013904223;
			bytes[k] = (char)(x >> 24);
		}
		if (i % 2)
			send_post(fd, SERVICE "Merge", PROTO, bytes, sizeof(bytes));
		else
			put(fd, bytes, sizeof(bytes));
		close(fd);
	}
	usleep(100000);
	assert_alive(f);
}

static void test_queue_is_bounded(void **state)
{
	struct fixture *f = *state;
	int fds[60], n = 0;

	/* Two workers are busy; the rest wait, and none is lost. */
	f->fake.status_delay_ms = 20;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = dial(f);
		send_post(fds[i], SERVICE "Status", JSON, "{}", 2);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct reply r;

		receive_reply(fds[i], &r);
		n += r.status == 200;
		reply_done(&r);
		close(fds[i]);
	}
	f->fake.status_delay_ms = 0;
	assert_int_equal(n, ARRAY_SIZE(fds));
}

/* ---- streams ------------------------------------------------------------------------------------- */

static int open_watch(struct fixture *f)
{
	int fd = dial(f);

	send_post(fd, SERVICE "Watch", STREAM_JSON, "\0\0\0\0\2{}", 7);
	return fd;
}

static void test_watchers_leave(void **state)
{
	struct fixture *f = *state;
	struct server_stats st;
	int fds[20];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = open_watch(f);
	usleep(200000);
	publish(f, 3);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	publish(f, 3);
	usleep(300000);
	server_stats(f->server, &st);
	assert_int_equal(st.connections, 0);
	assert_alive(f);
}

static void test_slow_watcher_is_told(void **state)
{
	struct fixture *f = *state;
	struct input in = { .fd = open_watch(f) };
	bool told = false;
	struct reply r = {};

	assert_true(take_head(&in, &r));
	/* Far more than fits queue and socket. */
	for (int i = 0; i < 3000; i++) {
		publish(f, 1);
		usleep(200);
	}
	usleep(300000);
	/* It reads again: what waited, and then a bucket that says how many are missing. */
	for (int i = 0; i < 3000 && readable(in.fd, 500); i++)
		take_chunk(&in, &r);
	publish(f, 1);
	usleep(300000);
	while (readable(in.fd, 500))
		take_chunk(&in, &r);
	for (size_t i = 0; i + 10 < r.body.len && !told; i++)
		told = memcmp(r.body.data + i, "\"skipped\":", 10) == 0;
	assert_true(told);
	reply_done(&r);
	strbuf_done(&in.b);
	close(in.fd);
	assert_alive(f);
}

static void test_recorder_leaves(void **state)
{
	struct fixture *f = *state;
	const char body[] = "\0\0\0\0\16{\"seconds\":30}";
	int fds[3];

	for (int i = 0; i < 3; i++) {
		fds[i] = dial(f);
		send_post(fds[i], SERVICE "Record", STREAM_JSON, body, sizeof(body) - 1);
	}
	usleep(300000);
	assert_int_equal(f->fake.recordings, 3);
	assert_int_equal(f->fake.releases, 0);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	for (int i = 0; i < 200 && f->fake.releases < 3; i++)
		usleep(10000);
	assert_int_equal(f->fake.releases, 3);
}

/* Stopped in the middle of everything: nothing hangs, and a sanitizer finds nothing left. */
static void test_stops_when_busy(void **state)
{
	const char record[] = "\0\0\0\0\16{\"seconds\":30}";
	struct fixture *f = fixture_new();
	struct fake *fake = &f->fake;
	uint64_t start;
	int fds[8];

	assert_int_equal(fixture_start(f), 0);
	fake->status_delay_ms = 300;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = i == 0 ? open_watch(f) : dial(f);
		if (i == 1)
			send_post(fds[i], SERVICE "Record", STREAM_JSON, record,
				  sizeof(record) - 1);
		if (i > 2)
			send_post(fds[i], SERVICE "Status", JSON, "{}", 2);
	}
	put_text(fds[2], "GET /debug/pprof/profile?wait=1 HTTP/1.1\r\nHost: a\r\n\r\n");
	publish(f, 2);
	usleep(100000);
	start = mono_now_ns();
	fixture_stop(f);
	assert_true(mono_now_ns() - start < 2 * NSEC_PER_SEC);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* ---- the socket itself ---------------------------------------------------------------------------- */

static int try_start(struct fixture *f)
{
	int r = fixture_start(f);
	uint64_t one = 1;

	/* Started or not, the thread ends; what is left is the file, or its absence. */
	assert_int_equal(write(f->stop_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(f->thread, NULL);
	f->server = NULL;
	close(f->stop_fd);
	close(f->publish_fd);
	bucket_free(f->to_publish);
	return r;
}

static void test_socket_path(void **state)
{
	struct fixture *f = fixture_new(), *other = *state, *second;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char mine[sizeof(f->path)];
	struct stat st;
	int fd;

	/* A stale socket of an earlier run makes way. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(a.sun_path, f->path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	assert_int_equal(try_start(f), 0);
	/* And is gone behind us. */
	assert_int_equal(stat(f->path, &st), -1);
	/* Anything else does not. */
	fd = open(f->path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(try_start(f), -EEXIST);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(symlink("/etc/passwd", f->path), 0);
	assert_int_equal(try_start(f), -EEXIST);
	assert_int_equal(unlink(f->path), 0);
	/* Nor does a server that lives. */
	memcpy(mine, f->path, sizeof(mine));
	memcpy(f->path, other->path, sizeof(mine));
	assert_int_equal(try_start(f), -EADDRINUSE);
	assert_int_equal(stat(other->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666);
	assert_alive(other);
	/* What took the place of a socket of ours outlives us. */
	memcpy(f->path, mine, sizeof(mine));
	assert_int_equal(fixture_start(f), 0);
	second = fixture_new();
	memcpy(second->path, f->path, sizeof(mine));
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(fixture_start(second), 0);
	/* The directory goes with whom it was made for, who stops last. */
	rmdir(second->dir);
	memcpy(second->dir, f->dir, sizeof(f->dir));
	fixture_stop(f);
	assert_int_equal(stat(second->path, &st), 0);
	fixture_stop(second);
}

static void test_passed_descriptor(void **state)
{
	struct fixture *f = fixture_new();
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	strcpy(a.sun_path, f->path);
	f->options.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->options.listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f->options.listen_fd, 10), 0);
	assert_int_equal(fixture_start(f), 0);
	assert_alive(f);
	close(f->options.listen_fd);
	unlink(f->path);
	fixture_stop(f);
}

static void test_no_descriptors_left(void **state)
{
	struct fixture *f = *state;
	struct rlimit old, tight;
	int fds[16], n = 0, busy = 0;

	/* The client's ends are made first, for they count as well. */
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = (struct rlimit){ (rlim_t)fds[15] + 1, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };

		strcpy(a.sun_path, f->path);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		char buf[256];

		if (!readable(fds[i], 1000))
			continue;
		n++;
		busy += recv(fds[i], buf, sizeof(buf), 0) > 12 && memcmp(buf + 9, "503", 3) == 0;
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	assert_int_equal(n, ARRAY_SIZE(fds));
	assert_int_equal(busy, ARRAY_SIZE(fds));
	usleep(200000);
	assert_alive(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd_that_hangs),
		cmocka_unit_test(test_hanging_costs_nothing),
		cmocka_unit_test_setup_teardown(test_trickle, setup_hasty, teardown),
		cmocka_unit_test_setup_teardown(test_idle_keep_alive_ends, setup_hasty, teardown),
		cmocka_unit_test(test_bytewise_delivery),
		cmocka_unit_test(test_leaves_in_the_middle),
		cmocka_unit_test_setup_teardown(test_leaves_while_it_runs, setup, teardown),
		cmocka_unit_test(test_half_closed),
		cmocka_unit_test(test_slow_reader_is_not_waited_for),
		cmocka_unit_test_setup_teardown(test_answers_are_bounded, setup_small_answers,
						teardown),
		cmocka_unit_test(test_large_requests),
		cmocka_unit_test(test_large_headers),
		cmocka_unit_test(test_lying_envelopes),
		cmocka_unit_test(test_deep_nesting),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test_setup_teardown(test_queue_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_watchers_leave, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slow_watcher_is_told, setup_small_answers,
						teardown),
		cmocka_unit_test_setup_teardown(test_recorder_leaves, setup, teardown),
		cmocka_unit_test(test_stops_when_busy),
		cmocka_unit_test(test_socket_path),
		cmocka_unit_test(test_passed_descriptor),
		cmocka_unit_test_setup_teardown(test_no_descriptors_left, setup, teardown),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
