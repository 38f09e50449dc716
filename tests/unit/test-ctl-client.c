// SPDX-License-Identifier: GPL-2.0-or-later
/* What the client makes of good, bad and broken daemons: every way to fail has its exit code and sentence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ctl/client.h"
#include "fake-daemon.h"

static struct fake_daemon fake;

/* ---- unary ----------------------------------------------------------------------------------- */

static int call(const char *socket_path, char *error, size_t size, char **ret_version)
{
	_cleanup_(client_free_p) struct client *c = NULL;
	Sysprofd__V1__StatusRequest q = SYSPROFD__V1__STATUS_REQUEST__INIT;
	ProtobufCMessage *answer = NULL;
	int r;

	assert_int_equal(client_new(socket_path, &c), 0);
	r = client_call(c, "Status", &q.base, &sysprofd__v1__status_response__descriptor, &answer);
	snprintf(error, size, "%s", client_error(c));
	if (r == 0) {
		if (ret_version)
			*ret_version = strdup(((Sysprofd__V1__StatusResponse *)answer)->version);
		protobuf_c_message_free_unpacked(answer, NULL);
	} else {
		assert_null(answer);
		assert_true(strlen(error) > 0);
		assert_null(strchr(error, '\n'));
	}
	return r;
}

static void test_answer(void **state)
{
	Sysprofd__V1__StatusResponse m = SYSPROFD__V1__STATUS_RESPONSE__INIT;
	_cleanup_free_ char *version = NULL;
	unsigned char bytes[64];
	char error[256];
	size_t len;

	m.version = (char *)"1.2.3";
	len = sysprofd__v1__status_response__pack(&m, bytes);
	fake_answers(&fake, 200, "application/proto", bytes, len);
	for (fake.piece = 0; fake.piece < 2; fake.piece++) {
		free(version);
		assert_int_equal(call(fake.path, error, sizeof(error), &version), 0);
		assert_string_equal(version, "1.2.3");
	}
	fake.piece = 0;
	assert_non_null(
		strstr(fake.request.data, "POST /sysprofd.v1.ProfileService/Status HTTP/1.1\r\n"));
	assert_non_null(strstr(fake.request.data, "Content-Type: application/proto\r\n"));
	assert_non_null(strstr(fake.request.data, "Connect-Protocol-Version: 1\r\n"));
	assert_non_null(strstr(fake.request.data, "Connect-Timeout-Ms: "));
}

static void test_errors(void **state)
{
	static const struct {
		int status;
		const char *body;
		int exit;
		const char *part;
	} table[] = {
		{ 403, "{\"code\":\"permission_denied\",\"message\":\"own processes only\"}",
		  CTL_DENIED, "own processes only" },
		{ 401, "{\"code\":\"unauthenticated\"}", CTL_DENIED, "unauthenticated" },
		{ 403, "no json", CTL_DENIED, "not permitted" },
		{ 400, "{\"code\":\"invalid_argument\",\"message\":\"bad \\\"glob\\\"\"}",
		  CTL_USAGE, "bad \"glob\"" },
		{ 500, "{\"code\":\"internal\",\"message\":\"store failed\"}", CTL_FAILED,
		  "store failed" },
		{ 503, "{\"code\":\"unavailable\",\"message\":\"too many clients\"}", CTL_FAILED,
		  "too many clients" },
		{ 503, "", CTL_FAILED, "busy" },
		{ 404, "<html>404</html>", CTL_FAILED, "HTTP status 404" },
		{ 200, "\xff\xff\xff\xff", CTL_FAILED, "malformed" },
		{ 302, "", CTL_FAILED, "HTTP status 302" },
	};
	char error[256];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		fake_answers(&fake, table[i].status, "application/json", table[i].body,
			     strlen(table[i].body));
		assert_int_equal(call(fake.path, error, sizeof(error), NULL), table[i].exit);
		if (!strstr(error, table[i].part))
			print_message("%s\n", error);
		assert_non_null(strstr(error, table[i].part));
	}
}

/* Bytes that are no HTTP, an answer that stops in its middle, none at all. */
static void test_broken_daemons(void **state)
{
	static const char *const answers[] = {
		"",
		"garbage that is no HTTP\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200",
	};
	char error[256];

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		strbuf_reset(&fake.answer);
		strbuf_puts(&fake.answer, answers[i]);
		assert_int_equal(call(fake.path, error, sizeof(error), NULL), CTL_FAILED);
	}
}

static void test_no_daemon(void **state)
{
	char error[256], path[sizeof(fake.directory) + 8], longer[300];
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd;

	assert_int_equal(call("/nonexistent/api.sock", error, sizeof(error), NULL), CTL_NO_DAEMON);
	assert_non_null(strstr(error, "no daemon at /nonexistent/api.sock: No such file"));

	/* A file that is no socket, and a socket that nobody listens on any more. */
	snprintf(path, sizeof(path), "%s/file", fake.directory);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_int_equal(call(path, error, sizeof(error), NULL), CTL_NO_DAEMON);
	unlink(path);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
	assert_int_equal(call(path, error, sizeof(error), NULL), CTL_NO_DAEMON);
	assert_non_null(strstr(error, "refused"));
	unlink(path);

	memset(longer, 'x', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = 0;
	assert_int_equal(call(longer, error, sizeof(error), NULL), CTL_USAGE);
}

/* A socket behind a directory that we may not enter. Root may enter everything, so another uid tries. */
static void test_not_permitted(void **state)
{
	int status;
	pid_t pid;

	assert_int_equal(chmod(fake.directory, 0), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char error[256];

		if (getuid() == 0 && setuid(65534) < 0)
			_exit(99);
		_exit(call(fake.path, error, sizeof(error), NULL));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chmod(fake.directory, 0700), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), CTL_DENIED);
}

/* ---- streams --------------------------------------------------------------------------------- */

struct heard {
	size_t n;
	uint64_t sum;
	size_t stop_at; /* 0: never */
};

static int on_message(void *ctx, const ProtobufCMessage *message)
{
	struct heard *h = ctx;

	h->n++;
	h->sum += ((const Sysprofd__V1__WatchResponse *)message)->skipped;
	return h->n == h->stop_at ? 42 : 0;
}

static int stream(struct heard *h, char *error, size_t size)
{
	_cleanup_(client_free_p) struct client *c = NULL;
	Sysprofd__V1__WatchRequest q = SYSPROFD__V1__WATCH_REQUEST__INIT;
	int r;

	assert_int_equal(client_new(fake.path, &c), 0);
	r = client_stream(c, "Watch", &q.base, &sysprofd__v1__watch_response__descriptor, 10000,
			  on_message, h);
	snprintf(error, size, "%s", client_error(c));
	return r;
}

static void add_messages(struct strbuf *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		Sysprofd__V1__WatchResponse m = SYSPROFD__V1__WATCH_RESPONSE__INIT;
		unsigned char bytes[64];

		m.skipped = i;
		fake_frame(b, 0, bytes, sysprofd__v1__watch_response__pack(&m, bytes));
	}
}

static void test_stream(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	char error[256];

	add_messages(&b, 100);
	fake_frame(&b, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", b.data, b.len);
	for (fake.piece = 0; fake.piece < 4; fake.piece++) {
		struct heard h = {};

		assert_int_equal(stream(&h, error, sizeof(error)), 0);
		assert_int_equal(h.n, 100);
		assert_int_equal(h.sum, 4950);
	}
	fake.piece = 0;
	assert_non_null(strstr(fake.request.data, "Content-Type: application/connect+proto\r\n"));
	/* The request is in an envelope too: an empty message has five bytes. */
	assert_non_null(strstr(fake.request.data, "Content-Length: 5\r\n"));
}

static void test_stream_ends(void **state)
{
	static const struct {
		int flags;
		const char *body;
		int exit;
		const char *part;
	} table[] = {
		{ 2, "{\"error\":{\"code\":\"resource_exhausted\",\"message\":\"one at a time\"}}",
		  CTL_FAILED, "one at a time" },
		{ 2, "{\"error\":{\"code\":\"permission_denied\",\"message\":\"no\"}}", CTL_DENIED,
		  "no" },
		{ 2, "{\"metadata\":{}}", 0, "" },
		{ 2, "", 0, "" },
		{ 0, "\xff\xff\xff", CTL_FAILED, "malformed message" },
		{ 1, "compressed", CTL_FAILED, "malformed stream" },
		{ 0x82, "{}", CTL_FAILED, "malformed stream" },
	};
	char error[256];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(strbuf_done) struct strbuf b = {};
		struct heard h = {};

		add_messages(&b, 3);
		fake_frame(&b, table[i].flags, table[i].body, strlen(table[i].body));
		fake_answers(&fake, 200, "application/connect+proto", b.data, b.len);
		assert_int_equal(stream(&h, error, sizeof(error)), table[i].exit);
		assert_int_equal(h.n, 3);
		assert_non_null(strstr(error, table[i].part));
	}
}

static void test_stream_broken(void **state)
{
	_cleanup_(strbuf_done) struct strbuf early = {}, huge = {}, ok = {};
	struct heard h = {};
	char error[256];

	add_messages(&early, 2);
	fake_answers(&fake, 200, "application/connect+proto", early.data, early.len);
	assert_int_equal(stream(&h, error, sizeof(error)), CTL_FAILED);
	assert_non_null(strstr(error, "ended the stream early"));

	strbuf_add(&huge, "\x00\xff\xff\xff\xff", 5);
	fake_answers(&fake, 200, "application/connect+proto", huge.data, huge.len);
	assert_int_equal(stream(&h, error, sizeof(error)), CTL_FAILED);
	assert_non_null(strstr(error, "malformed stream"));

	fake_answers(&fake, 404, "text/plain", "no", 2);
	assert_int_equal(stream(&h, error, sizeof(error)), CTL_FAILED);

	/* The reader has had enough. */
	add_messages(&ok, 5);
	fake_frame(&ok, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", ok.data, ok.len);
	h = (struct heard){ .stop_at = 2 };
	assert_int_equal(stream(&h, error, sizeof(error)), 42);
	assert_int_equal(h.n, 2);
}

static int set_up(void **state)
{
	setenv("http_proxy", "http://127.0.0.1:1", 1); /* which must not matter */
	fake_start(&fake);
	return 0;
}

static int tear_down(void **state)
{
	fake_stop(&fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),	       cmocka_unit_test(test_errors),
		cmocka_unit_test(test_broken_daemons), cmocka_unit_test(test_no_daemon),
		cmocka_unit_test(test_not_permitted),  cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_ends),    cmocka_unit_test(test_stream_broken),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
