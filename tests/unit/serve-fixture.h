/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A real server on a socket in a temporary directory, its event loop in a thread; the manager behind it is
 * fake. And a client made of plain system calls, which can misbehave.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "../bpf/sysprofd.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "serve/serve.h"

#define UID_ALICE 54321
#define UID_BOB 54322
#define PATIENCE_MS 10000

struct fake {
	_Atomic int status_delay_ms;
	_Atomic int big_counters; /* so many counters in Status: a large answer */
	_Atomic int snapshots, recordings, releases, works;
	_Atomic bool snapshot_fails;
	char work[256];
};

struct fixture {
	struct fake fake;
	struct serve_options options;
	char dir[64], path[96], store[96];
	pthread_t thread;
	int stop_fd, publish_fd;
	struct server *server;
	struct bucket *to_publish;
	_Atomic int start_result; /* 1: not yet */
	clockid_t cpu_clock;
};

/* ---- what the manager would do ------------------------------------------------------------------- */

static inline uint32_t ok_id(int64_t id)
{
	assert_true(id >= 0);
	return (uint32_t)id;
}

static inline void add_process(struct bucket *b, uint32_t pid, uint32_t uid, const char *comm,
			       const char *function, uint64_t samples)
{
	struct dict *d = b->dict;
	struct binary bin = { .name = ok_id(dict_string(d, "prog")),
			      .path = ok_id(dict_string(d, "/usr/bin/prog")),
			      .build_id = ok_id(dict_string(d, "deadbeef")),
			      .kind = BINARY_ELF };
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };
	struct series s = { .pid = pid, .tid = pid, .uid = uid, .start = 1000 };
	uint32_t root, leaf, series;

	f.binary = ok_id(dict_binary(d, &bin));
	f.name = ok_id(dict_string(d, "main"));
	f.offset = 0x1000;
	root = ok_id(dict_stack(d, 0, ok_id(dict_frame(d, &f))));
	f.name = ok_id(dict_string(d, function));
	f.offset = 0x2000 + pid;
	leaf = ok_id(dict_stack(d, root, ok_id(dict_frame(d, &f))));
	s.label[LABEL_COMM] = ok_id(dict_string(d, comm));
	s.label[LABEL_UNIT] = ok_id(dict_string(d, uid == UID_BOB ? "bob.service" : "a.service"));
	series = ok_id(dict_series(d, &s));
	assert_int_equal(columns_add(&b->columns[PROFILE_ON_CPU], series, leaf, 0, 0, samples,
				     samples * 1000, 0),
			 0);
	assert_int_equal(columns_add(&b->columns[PROFILE_SYSCALLS], series, 0,
				     SYSCALL_KEY(0, 39, 0), 0, samples * 10, 0, 0),
			 0);
}

static inline struct bucket *make_bucket(uint64_t start_wall_ns)
{
	struct bucket *b;

	assert_int_equal(bucket_new(&b), 0);
	strcpy(b->meta.boot_id, "0123456789abcdef0123456789abcdef");
	b->meta.start_wall_ns = start_wall_ns;
	b->meta.length_ns = b->meta.covered_ns = 10 * NSEC_PER_SEC;
	b->meta.cpus = 2;
	for (int i = 0; i < PROFILE_TYPE_N; i++)
		b->meta.source[i].active = true;
	add_process(b, 100, UID_ALICE, "alice", "alpha", 30);
	add_process(b, 200, UID_BOB, "bob", "beta", 70);
	return b;
}

static inline int fake_snapshot(void *ctx, struct recent *ret)
{
	struct fake *f = ctx;

	f->snapshots++;
	if (f->snapshot_fails)
		return -ETIME;
	ret->open = make_bucket((wall_now_ns() - NSEC_PER_SEC) / NSEC_PER_SEC * NSEC_PER_SEC);
	return 0;
}

static inline Sysprofd__V1__Loss *make_loss(const char *reason, uint64_t count)
{
	Sysprofd__V1__Loss *l = malloc(sizeof(*l));

	sysprofd__v1__loss__init(l);
	l->reason = strdup(reason);
	l->count = count;
	return l;
}

static inline void fake_hardware(void *ctx, struct hardware_state *ret)
{
	*ret = (struct hardware_state){ .counted = true };
	ret->error[sample_event_kind(EVENT_CACHE_MISSES)] = -ENOENT;
}

static inline int fake_status(void *ctx, Sysprofd__V1__StatusResponse *ret)
{
	struct fake *f = ctx;
	int n = f->big_counters;

	if (f->status_delay_ms)
		usleep((useconds_t)f->status_delay_ms * 1000);
	ret->version = strdup("1.2.3");
	ret->uptime_seconds = 1.5;
	ret->n_collectors = 1;
	ret->collectors = malloc(sizeof(*ret->collectors));
	ret->collectors[0] = malloc(sizeof(**ret->collectors));
	sysprofd__v1__collector_status__init(ret->collectors[0]);
	ret->collectors[0]->name = strdup("on-cpu");
	ret->collectors[0]->state = strdup("running");
	ret->collectors[0]->samples = 1234567890123;
	ret->collectors[0]->n_lost = 1;
	ret->collectors[0]->lost = malloc(sizeof(*ret->collectors[0]->lost));
	ret->collectors[0]->lost[0] = make_loss("tick-skipped", 7);
	ret->n_counters = (size_t)n + 2;
	ret->counters = malloc(ret->n_counters * sizeof(*ret->counters));
	ret->counters[0] = make_loss("walk-limit", 3);
	ret->counters[1] = make_loss("frames-unnamed", 5);
	for (int i = 0; i < n; i++)
		ret->counters[2 + i] = make_loss("a counter with a name of forty characters", 1);
	return 0;
}

static inline int fake_stacks(void *ctx, uint32_t limit, Sysprofd__V1__StacksResponse *ret)
{
	Sysprofd__V1__BinaryStacks *b = malloc(sizeof(*b));

	sysprofd__v1__binary_stacks__init(b);
	b->binary = strdup("/usr/bin/secret");
	b->samples = 10;
	b->complete = 4;
	b->n_partial = 1;
	b->partial = malloc(sizeof(*b->partial));
	b->partial[0] = make_loss("no-row", 6);
	ret->n_binaries = 1;
	ret->binaries = malloc(sizeof(*ret->binaries));
	ret->binaries[0] = b;
	ret->samples = 30;
	ret->complete = 21;
	return 0;
}

struct record_session {
	uint64_t n;
};

static inline int fake_record_start(void *ctx, double hz, int event, const struct selection *sel,
				    struct record_session **ret, const char **ret_why)
{
	struct fake *f = ctx;

	if (hz > 900) {
		*ret_why = "over the budget";
		return -EBUSY;
	}
	f->recordings++;
	*ret = calloc(1, sizeof(**ret));
	return 0;
}

static inline int fake_record_read(void *ctx, struct record_session *s, uint64_t *ret_samples,
				   uint64_t *ret_lost, struct profile **ret_profile)
{
	s->n += 100;
	*ret_samples = s->n;
	*ret_lost = 1;
	if (ret_profile) {
		struct bucket *b = make_bucket(NSEC_PER_SEC);
		struct selection sel = { .visibility.all = true, .until_wall_ns = UINT64_MAX };

		assert_int_equal(query_bucket(b, &sel, ret_profile), 0);
		bucket_free(b);
	}
	return 0;
}

static inline void fake_record_free(void *ctx, struct record_session *s)
{
	struct fake *f = ctx;

	f->releases++;
	free(s);
}

static inline int fake_put_work(void *ctx, const char *name, const char *const *labels,
				size_t n_labels, uint64_t count, uint64_t wall_ns, bool privileged)
{
	struct fake *f = ctx;
	size_t n = (size_t)snprintf(f->work, sizeof(f->work), "%s %llu", name,
				    (unsigned long long)count);

	for (size_t i = 0; i < n_labels; i++)
		n += (size_t)snprintf(f->work + n, sizeof(f->work) - n, " %s", labels[i]);
	f->works++;
	return 0;
}

static const struct serve_ops fake_ops = {
	.snapshot = fake_snapshot,
	.status = fake_status,
	.hardware = fake_hardware,
	.stacks = fake_stacks,
	.record_start = fake_record_start,
	.record_read = fake_record_read,
	.record_free = fake_record_free,
	.put_work = fake_put_work,
};

/* ---- the server's thread ------------------------------------------------------------------------- */

static inline int on_stop(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	return sd_event_exit(sd_event_source_get_event(source), 0);
}

static inline int on_publish(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct fixture *f = userdata;
	uint64_t n;

	if (read(fd, &n, sizeof(n)) == sizeof(n))
		while (n-- > 0)
			server_publish(f->server, f->to_publish);
	return 0;
}

static inline void *server_main(void *arg)
{
	struct fixture *f = arg;
	sd_event *event = NULL;
	int r;

	pthread_getcpuclockid(pthread_self(), &f->cpu_clock);
	r = sd_event_new(&event);
	if (r >= 0)
		r = sd_event_add_io(event, NULL, f->stop_fd, EPOLLIN, on_stop, f);
	if (r >= 0)
		r = sd_event_add_io(event, NULL, f->publish_fd, EPOLLIN, on_publish, f);
	if (r >= 0)
		r = server_new(event, &f->options, &fake_ops, &f->fake, &f->server);
	f->start_result = r < 0 ? r : 0;
	if (r >= 0)
		sd_event_loop(event);
	server_free(f->server);
	sd_event_unref(event);
	return NULL;
}

static inline struct fixture *fixture_new(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->dir, "/tmp/test-serve-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(chmod(f->dir, 0755), 0);
	snprintf(f->path, sizeof(f->path), "%s/api.sock", f->dir);
	f->options = (struct serve_options){
		.socket_path = f->path,
		.listen_fd = -1,
		.version = "1.2.3",
		.max_connections = 64,
		.max_request_bytes = 65536,
		.max_answer_bytes = 64 << 20,
		.request_timeout_ns = 10 * NSEC_PER_SEC,
		.query_timeout_ns = 30 * NSEC_PER_SEC,
		.workers = 2,
		.group = "",
	};
	return f;
}

static inline int fixture_start(struct fixture *f)
{
	f->start_result = 1;
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	f->publish_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->to_publish = make_bucket(1000 * NSEC_PER_SEC);
	f->to_publish->meta.seq = 42;
	assert_int_equal(pthread_create(&f->thread, NULL, server_main, f), 0);
	while (f->start_result == 1)
		usleep(1000);
	return f->start_result;
}

static inline void fixture_stop(struct fixture *f)
{
	uint64_t one = 1;

	assert_int_equal(write(f->stop_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(f->thread, NULL);
	close(f->stop_fd);
	close(f->publish_fd);
	bucket_free(f->to_publish);
	rmdir(f->dir);
	free(f);
}

static inline void publish(struct fixture *f, uint64_t n)
{
	assert_int_equal(write(f->publish_fd, &n, sizeof(n)), sizeof(n));
}

static inline int setup(void **state)
{
	struct fixture *f = fixture_new();

	*state = f;
	return fixture_start(f);
}

static inline int teardown(void **state)
{
	fixture_stop(*state);
	return 0;
}

/* ---- the client ---------------------------------------------------------------------------------- */

static inline int dial(struct fixture *f)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(a.sun_path, f->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static inline bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0;
}

static inline void put(int fd, const void *data, size_t len)
{
	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(fd, (const char *)data + sent, len - sent, MSG_NOSIGNAL);

		/* The server may have answered and closed before it had read everything. */
		if (n <= 0)
			return;
		sent += (size_t)n;
	}
}

struct reply {
	unsigned status; /* 0: none came */
	char *head;
	struct strbuf body; /* chunks joined */
	bool complete;
};

static inline void reply_done(struct reply *r)
{
	free(r->head);
	strbuf_done(&r->body);
}

/* The value of a header of the reply, up to its line's end, or NULL. */
static inline const char *reply_header(const struct reply *r, const char *name, char *buf,
				       size_t size)
{
	char needle[64];
	const char *p;

	snprintf(needle, sizeof(needle), "\n%s: ", name);
	p = r->head ? strcasestr(r->head, needle) : NULL;
	if (!p)
		return NULL;
	p += strlen(needle);
	snprintf(buf, size, "%.*s", (int)strcspn(p, "\r\n"), p);
	return buf;
}

/* Bytes that came but are not consumed yet. */
struct input {
	int fd;
	struct strbuf b;
};

static inline bool fill(struct input *in, size_t want)
{
	while (in->b.len < want) {
		char buf[65536];
		ssize_t n;

		if (!readable(in->fd, PATIENCE_MS))
			return false;
		n = recv(in->fd, buf, sizeof(buf), 0);
		if (n <= 0)
			return false;
		strbuf_add(&in->b, buf, (size_t)n);
	}
	return true;
}

static inline void consume(struct input *in, size_t n)
{
	memmove(in->b.data, in->b.data + n, in->b.len - n + 1);
	in->b.len -= n;
}

static inline bool take_line(struct input *in, char *line, size_t size)
{
	char *nl;

	while (!(nl = in->b.len ? memchr(in->b.data, '\n', in->b.len) : NULL))
		if (!fill(in, in->b.len + 1))
			return false;
	snprintf(line, size, "%.*s", (int)(nl - in->b.data), in->b.data);
	consume(in, (size_t)(nl - in->b.data) + 1);
	return true;
}

static inline bool take_head(struct input *in, struct reply *r)
{
	struct strbuf head = {};
	char line[1024];

	while (take_line(in, line, sizeof(line))) {
		strbuf_puts(&head, line);
		strbuf_putc(&head, '\n');
		if (streq(line, "\r") || !*line) {
			r->head = strbuf_take(&head, NULL);
			return sscanf(r->head, "HTTP/1.%*c %u", &r->status) == 1;
		}
	}
	strbuf_done(&head);
	return false;
}

/* One chunk is appended to the body; false at the end or when the connection breaks. */
static inline bool take_chunk(struct input *in, struct reply *r)
{
	char line[64];
	size_t n;

	if (!take_line(in, line, sizeof(line)))
		return false;
	n = strtoul(line, NULL, 16);
	if (!fill(in, n + 2))
		return false;
	strbuf_add(&r->body, in->b.data, n);
	consume(in, n + 2);
	r->complete = n == 0;
	return n > 0;
}

static inline void receive_reply(int fd, struct reply *r)
{
	struct input in = { .fd = fd };
	char value[64];

	*r = (struct reply){};
	if (take_head(&in, r)) {
		if (reply_header(r, "Transfer-Encoding", value, sizeof(value))) {
			while (take_chunk(&in, r))
				;
		} else if (reply_header(r, "Content-Length", value, sizeof(value))) {
			size_t n = strtoul(value, NULL, 10);

			r->complete = fill(&in, n);
			strbuf_add(&r->body, in.b.data ?: "", MIN(n, in.b.len));
		} else {
			r->complete = true;
		}
	}
	strbuf_done(&in.b);
}

static inline void send_post(int fd, const char *path, const char *headers, const void *body,
			     size_t len)
{
	struct strbuf b = {};

	strbuf_printf(&b, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n",
		      path, headers, len);
	strbuf_add(&b, body, len);
	put(fd, b.data, b.len);
	strbuf_done(&b);
}

#define SERVICE "/sysprofd.v1.ProfileService/"
#define JSON "Content-Type: application/json\r\n"
#define PROTO "Content-Type: application/proto\r\n"
#define STREAM_PROTO "Content-Type: application/connect+proto\r\n"
#define STREAM_JSON "Content-Type: application/connect+json\r\n"

static inline void post(struct fixture *f, const char *path, const char *headers, const void *body,
			size_t len, struct reply *r)
{
	int fd = dial(f);

	send_post(fd, path, headers, body, len);
	receive_reply(fd, r);
	close(fd);
}

static inline void post_json(struct fixture *f, const char *method, const char *json,
			     struct reply *r)
{
	char path[128];

	snprintf(path, sizeof(path), SERVICE "%s", method);
	post(f, path, JSON, json, strlen(json), r);
}

static inline void get(struct fixture *f, const char *path, const char *headers, struct reply *r)
{
	struct strbuf b = {};
	int fd = dial(f);

	strbuf_printf(&b, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers);
	put(fd, b.data, b.len);
	receive_reply(fd, r);
	close(fd);
	strbuf_done(&b);
}

/* The server still answers, and soon. */
/* Only root can become somebody else. */
static inline void need_root(void)
{
	if (getuid() == 0)
		return;
	print_message("needs root, to become somebody else\n");
	skip();
}

static inline void assert_alive(struct fixture *f)
{
	uint64_t start = mono_now_ns();
	struct reply r;

	post_json(f, "ProfileTypes", "{}", &r);
	assert_int_equal(r.status, 200);
	assert_true(mono_now_ns() - start < 5 * NSEC_PER_SEC);
	reply_done(&r);
}
