// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Debug files from servers: a real debuginfod where there is one, and servers of the test's own that misbehave. This
 * program is the fetcher and the parser when it is executed with --fetcher or --symbol-helper.
 */
#include "elf-files.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "fetch/fetch.h"
#include "fetch/fetcher.h"
#include "parser/parser.h"
#include "symbol/symbolizer.h"

#define PATIENCE_NS (30 * NSEC_PER_SEC)
#define ID "1234567890abcdef1234567890abcdef12345678"

/* ---- a server ---------------------------------------------------------------------------------------- */

enum manners {
	SENDS, /* the file "served" */
	HAS_NOTHING,
	NEVER_ANSWERS,
	NEVER_ENDS, /* and does not say how much it will be */
	SAYS_TOO_MUCH,
	BREAKS_OFF,
	SENDS_ELSEWHERE, /* to a file of the client's */
};

static void send_text(int fd, const char *text)
{
	assert_true(write_full(fd, text, strlen(text)) == 0);
}

static void send_served(int fd)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	_cleanup_close_ int file = open_file("served", O_RDONLY);

	assert_true(read_fd(file, 1 << 24, &b) >= 0);
	dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", b.len);
	assert_int_equal(write_full(fd, b.data, b.len), 0);
}

static void answer(int fd, enum manners manners)
{
	static const char zeros[65536];
	char request[4096] = "";
	ssize_t n = read(fd, request, sizeof(request) - 1);

	if (n <= 0)
		return;
	if (manners != NEVER_ANSWERS &&
	    !str_skip_prefix(request, "GET /x/buildid/" ID "/debuginfo HTTP/1.1\r\n"))
		manners = HAS_NOTHING;
	switch (manners) {
	case SENDS:
		send_served(fd);
		break;
	case HAS_NOTHING:
		send_text(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
		break;
	case NEVER_ANSWERS:
		for (;;)
			pause();
	case NEVER_ENDS:
		send_text(fd, "HTTP/1.1 200 OK\r\n\r\n");
		while (write_full(fd, zeros, sizeof(zeros)) == 0)
			;
		break;
	case SAYS_TOO_MUCH:
		send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\nx");
		break;
	case BREAKS_OFF:
		send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx");
		break;
	case SENDS_ELSEWHERE:
		send_text(fd, "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n"
			      "Content-Length: 0\r\n\r\n");
		break;
	}
}

struct server {
	pid_t pid;
	char url[64];
};

static void server_start(struct server *s, enum manners manners)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%d/x/", ntohs(a.sin_port));
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid > 0) {
		close_fd(fd);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int c = accept(fd, NULL, NULL);

		answer(c, manners);
		close_fd(c);
	}
}

static void server_stop(struct server *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
}

/* ---- fetching ------------------------------------------------------------------------------------------ */

static struct fetch *fetch_from(const char *urls, uint64_t timeout_ns)
{
	char path[128];
	struct fetch_options o = {
		.urls = urls, .directory = path, .bytes_max = 4 << 20, .timeout_ns = timeout_ns
	};
	struct fetch *f;

	snprintf(path, sizeof(path), "%s/cache", dir);
	must(run("rm -rf cache"));
	assert_int_equal(fetch_new(&o, &f), 0);
	return f;
}

/* Nothing waits any more. */
static struct fetch_stats wait_for(struct fetch *f, uint64_t n)
{
	uint64_t deadline = mono_now_ns() + PATIENCE_NS;
	struct fetch_stats st;

	for (;;) {
		fetch_get_stats(f, &st);
		if (st.fetched + st.missing + st.failed >= n)
			return st;
		assert_true(mono_now_ns() < deadline);
		usleep(10000);
	}
}

/* The note of the build-id lies where pieces that are searched one by one meet. */
#define SERVED_BYTES ((1 << 20) + 4096)
static void write_served(void)
{
	static const uint8_t note[] =
		"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0\x12\x34\x56\x78\x90\xab\xcd\xef"
		"\x12\x34\x56\x78\x90\xab\xcd\xef\x12\x34\x56\x78";
	_cleanup_close_ int fd = -1;

	write_file("served", "");
	fd = open_file("served", O_RDWR);
	assert_int_equal(ftruncate(fd, SERVED_BYTES), 0);
	assert_int_equal(pwrite(fd, note, sizeof(note) - 1, (1 << 20) - 20), sizeof(note) - 1);
}

static void fetches(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	_cleanup_close_ int fd = -1, again = -1;
	struct fetch_stats st;
	struct server s, other;
	struct stat x, y;
	char urls[256];
	struct fetch *f;

	write_served();
	server_start(&s, SENDS);
	server_start(&other, HAS_NOTHING);
	snprintf(urls, sizeof(urls), " %s  %s ", other.url, s.url);
	f = fetch_from(urls, 0);
	assert_int_equal(fetch_open(f, "../../etc/passwd"), -EINVAL);
	assert_int_equal(fetch_open(f, ""), -EINVAL);
	assert_int_equal(fetch_open(f, ID), -EAGAIN);
	st = wait_for(f, 1);
	assert_int_equal(st.fetched, 1);
	assert_int_equal(st.pid, 0);
	fd = fetch_open(f, ID);
	assert_true(fd >= 0);
	assert_true(read_fd(fd, 2 << 20, &b) >= 0);
	assert_int_equal(b.len, SERVED_BYTES);
	/* Who has read it and opens it again sees that it is the same. */
	usleep(20000);
	again = fetch_open(f, ID);
	assert_int_equal(fstat(fd, &x), 0);
	assert_int_equal(fstat(again, &y), 0);
	assert_memory_equal(&x.st_ctim, &y.st_ctim, sizeof(x.st_ctim));
	/* That none has it is remembered. */
	assert_int_equal(fetch_open(f, "abcd"), -EAGAIN);
	assert_int_equal(wait_for(f, 2).missing, 1);
	assert_int_equal(fetch_open(f, "abcd"), -ENOENT);
	fetch_free(f);
	server_stop(&s);
	server_stop(&other);
}

static void misbehaving(void **state)
{
	static const enum manners cases[] = { NEVER_ANSWERS, NEVER_ENDS, SAYS_TOO_MUCH, BREAKS_OFF,
					      SENDS_ELSEWHERE };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool slow = cases[i] == NEVER_ANSWERS;
		struct server s;
		struct fetch *f;

		server_start(&s, cases[i]);
		f = fetch_from(s.url, slow ? NSEC_PER_SEC : PATIENCE_NS);
		assert_int_equal(fetch_open(f, ID), -EAGAIN);
		assert_int_equal(wait_for(f, 1).failed, 1);
		/* It is not asked again at once, and nothing is left. */
		assert_int_equal(fetch_open(f, ID), -EAGAIN);
		assert_int_equal(wait_for(f, 1).failed, 1);
		must(run("test -z \"$(ls cache)\""));
		fetch_free(f);
		server_stop(&s);
	}
}

/* Whoever waits for a server is not waited for. */
static void stops_at_once(void **state)
{
	struct fetch_stats st = {};
	uint64_t begin;
	struct server s;
	struct fetch *f;

	server_start(&s, NEVER_ANSWERS);
	f = fetch_from(s.url, 0);
	assert_int_equal(fetch_open(f, ID), -EAGAIN);
	for (begin = mono_now_ns(); !st.pid && mono_now_ns() < begin + PATIENCE_NS; usleep(10000))
		fetch_get_stats(f, &st);
	assert_true(st.pid > 0);
	begin = mono_now_ns();
	fetch_free(f);
	assert_true(mono_now_ns() - begin < 5 * NSEC_PER_SEC);
	server_stop(&s);
}

static void stops_before_a_start(void **state)
{
	uint64_t begin;
	struct server s;
	struct fetch *f;

	server_start(&s, NEVER_ANSWERS);
	f = fetch_from(s.url, 0);
	/* After each failure it is started later; after the seventh, 6.4 s. */
	for (unsigned i = 0; i < 7; i++) {
		struct fetch_stats st = {};
		char id[8];

		snprintf(id, sizeof(id), "%06x", i);
		assert_int_equal(fetch_open(f, id), -EAGAIN);
		for (begin = mono_now_ns(); !st.pid && mono_now_ns() < begin + PATIENCE_NS;
		     usleep(10000))
			fetch_get_stats(f, &st);
		assert_true(st.pid > 0);
		kill(st.pid, SIGKILL);
		assert_int_equal(wait_for(f, i + 1).failed, i + 1);
	}
	assert_int_equal(fetch_open(f, ID), -EAGAIN);
	begin = mono_now_ns();
	fetch_free(f);
	assert_true(mono_now_ns() - begin < 5 * NSEC_PER_SEC);
	server_stop(&s);
}

/* Who makes up build-ids cannot have servers asked without end, nor others forgotten. */
static void rare(void **state)
{
	struct fetch_options o = { .bytes_max = 4 << 20, .burst = 5 };
	char id[] = "00000000", path[128];
	struct fetch_stats st;
	struct server s;
	struct fetch *f;

	snprintf(path, sizeof(path), "%s/cache", dir);
	o.directory = path;
	server_start(&s, HAS_NOTHING);
	o.urls = s.url;
	assert_int_equal(fetch_new(&o, &f), 0);
	assert_int_equal(fetch_open(f, ID), -EAGAIN);
	assert_int_equal(wait_for(f, 1).missing, 1);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(id, sizeof(id), "%08x", i);
		assert_int_equal(fetch_open(f, id), -EAGAIN);
	}
	st = wait_for(f, 5);
	assert_true(st.missing < 8 && st.missing + st.refused >= 5000);
	assert_int_equal(fetch_open(f, ID), -ENOENT);
	fetch_free(f);
	server_stop(&s);
}

static void bounded(void **state)
{
	char id[] = "000000000000000000";
	struct fetch_stats st;
	struct server s;
	struct fetch *f;

	server_start(&s, NEVER_ANSWERS);
	f = fetch_from(s.url, 0);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(id, sizeof(id), "%016x", i);
		assert_int_equal(fetch_open(f, id), -EAGAIN);
	}
	fetch_get_stats(f, &st);
	assert_true(st.refused >= 100 - 65 && st.refused <= 100 - 64);
	fetch_free(f);
	server_stop(&s);
}

/* It can do nothing but speak to servers. */
static void has_nothing(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint64_t deadline = mono_now_ns() + PATIENCE_NS;
	struct fetch_stats st = {};
	struct server s;
	struct fetch *f;
	char path[64];

	server_start(&s, NEVER_ANSWERS);
	f = fetch_from(s.url, 0);
	assert_int_equal(fetch_open(f, ID), -EAGAIN);
	/* It needs a moment to give all up. */
	while (!b.len || !strstr(b.data, "CapEff:\t0000000000000000")) {
		assert_true(mono_now_ns() < deadline);
		usleep(10000);
		fetch_get_stats(f, &st);
		snprintf(path, sizeof(path), "/proc/%d/status", st.pid);
		strbuf_done(&b);
		if (read_file_at(AT_FDCWD, path, 65536, &b) < 0)
			continue; /* not yet */
	}
	assert_non_null(strstr(b.data, "CapBnd:\t0000000000000000"));
	assert_non_null(strstr(b.data, "NoNewPrivs:\t1"));
	if (getuid() == 0)
		assert_non_null(strstr(b.data, "Uid:\t65534\t65534\t65534\t65534"));
	fetch_free(f);
	server_stop(&s);
}

/* ---- names ----------------------------------------------------------------------------------------------- */

static int open_binary(void *ctx, uint64_t key)
{
	return open_file("prog", O_RDONLY);
}

static int open_fetched(void *ctx, const char *build_id)
{
	return fetch_open(ctx, build_id);
}

static void build(void)
{
	write_file("prog.c",
		   "static __attribute__((noinline)) int hidden(int x) { return x * 9; }\n"
		   "int known(int x) { return hidden(x) + 1; }\n");
	must(run("gcc -O1 -g -shared -fPIC -Wl,--build-id=0x" ID " prog.c -o full && strip -o prog "
		 "full && mkdir -p files && objcopy --only-keep-debug full files/prog.debug"));
}

struct naming {
	struct symbolizer *symbolizer;
	struct dict *dict;
	uint32_t binary;
};

static void naming_init(struct naming *n, struct fetch *f)
{
	struct symbolizer_options o = { .open_binary = open_binary,
					.open_fetched = open_fetched,
					.for_now_ns = 100 * NSEC_PER_MSEC,
					.open_ctx = f };

	*n = (struct naming){};
	assert_int_equal(symbolizer_new(&o, &n->symbolizer), 0);
	assert_int_equal(dict_new(&n->dict), 0);
}

static void naming_done(struct naming *n)
{
	symbolizer_free(n->symbolizer);
	dict_free(n->dict);
}

/* The dictionary outlives buckets, as that of the store. */
static const char *name_of_hidden(struct naming *n)
{
	_cleanup_close_ int fd = open_file("full", O_RDONLY);
	struct binary b = { .kind = BINARY_ELF, .ino = 1 };
	struct frame x = { .offset = to_offset(fd, nm_address("full", "hidden")) + 1,
			   .kind = FRAME_NATIVE };
	uint64_t keys[] = { 0, 1 };
	int64_t id;

	b.name = (uint32_t)dict_string(n->dict, "prog");
	x.binary = n->binary = n->binary ?: (uint32_t)dict_binary(n->dict, &b);
	id = dict_frame(n->dict, &x);
	assert_int_equal(
		symbolizer_name(n->symbolizer, n->dict, keys, 2, mono_now_ns() + PATIENCE_NS), 0);
	return dict_str(n->dict, n->dict->frames[id].name);
}

/* The first bucket does not wait; later ones have the name. */
static void expect_named(struct fetch *f, const char *name)
{
	uint64_t deadline = mono_now_ns() + PATIENCE_NS;
	struct naming n;

	naming_init(&n, f);
	assert_string_equal(name_of_hidden(&n), "");
	wait_for(f, 1);
	while (!streq(name_of_hidden(&n), name) && mono_now_ns() < deadline)
		usleep(20000);
	assert_string_equal(name_of_hidden(&n), name);
	naming_done(&n);
}

static void names(void **state)
{
	struct server s;
	struct fetch *f;

	build();
	must(run("cp files/prog.debug served"));
	server_start(&s, SENDS);
	f = fetch_from(s.url, 0);
	expect_named(f, "hidden");
	fetch_free(f);
	/* With another build-id it is not believed, and not kept. */
	must(run("gcc -O1 -g -shared -fPIC -Wl,--build-id=0xabcd prog.c -o served"));
	f = fetch_from(s.url, 0);
	expect_named(f, "");
	usleep(200000);
	expect_named(f, "");
	assert_int_equal(wait_for(f, 1).failed, 1);
	assert_int_equal(fetch_open(f, ID), -ENOENT);
	must(run("test -z \"$(ls cache)\""));
	fetch_free(f);
	server_stop(&s);
}

static void of_debuginfod(void **state)
{
	char command[512], url[64];
	uint64_t deadline;
	struct fetch *f;
	pid_t pid;
	/* Below the range of ports that are given out. */
	int port = 20000 + getpid() % 10000;

	if (system("command -v debuginfod >/dev/null") != 0) {
		print_message("left out: debuginfod\n");
		return;
	}
	build();
	snprintf(command, sizeof(command),
		 "cd %s && exec debuginfod -p %d -d :memory: -F -t 1 -g "
		 "3600 files >log 2>&1",
		 dir, port);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
	snprintf(command, sizeof(command), "curl -sfo /dev/null %s/buildid/" ID "/debuginfo", url);
	for (deadline = mono_now_ns() + PATIENCE_NS; system(command) != 0; usleep(100000))
		assert_true(mono_now_ns() < deadline);
	f = fetch_from(url, 0);
	expect_named(f, "hidden");
	assert_int_equal(fetch_open(f, "abcd"), -EAGAIN);
	assert_int_equal(wait_for(f, 2).missing, 1);
	fetch_free(f);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fetches),	 cmocka_unit_test(misbehaving),
		cmocka_unit_test(stops_at_once), cmocka_unit_test(bounded),
		cmocka_unit_test(has_nothing),	 cmocka_unit_test(names),
		cmocka_unit_test(of_debuginfod), cmocka_unit_test(stops_before_a_start),
		cmocka_unit_test(rare),
	};

	if (argc == 3 && streq(argv[1], "--fetcher"))
		return fetcher_main(argv[2]);
	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (system("command -v gcc nm strip objcopy >/dev/null") != 0) {
		print_message("SKIP: gcc and binutils are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
