/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A daemon that says what a test tells it to, for tests of the client: one thread, one connection after
 * another, each answered with the same bytes. The last request is kept.
 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/strbuf.h"

struct fake_daemon {
	char directory[32];
	char path[64];
	int listen_fd, stop[2];
	pthread_t thread;
	struct strbuf answer; /* raw HTTP */
	size_t piece; /* written so many bytes at a time; 0: all at once */
	struct strbuf request;
};

/* Whether the whole request has come: a head, and as much body as it says. */
static bool fake_request_complete(const struct strbuf *b)
{
	const char *end = b->data ? strstr(b->data, "\r\n\r\n") : NULL;
	const char *length = b->data ? strcasestr(b->data, "content-length:") : NULL;

	return end && (!length || length > end ||
		       b->len >= (size_t)(end + 4 - b->data) + strtoul(length + 15, NULL, 10));
}

static void fake_serve(struct fake_daemon *d, int fd)
{
	char block[4096];
	size_t piece = d->piece ? d->piece : d->answer.len;
	ssize_t n;

	strbuf_reset(&d->request);
	while (!fake_request_complete(&d->request) && (n = read(fd, block, sizeof(block))) > 0)
		strbuf_add(&d->request, block, (size_t)n);
	for (size_t at = 0; at < d->answer.len; at += piece)
		if (send(fd, d->answer.data + at, MIN(piece, d->answer.len - at), MSG_NOSIGNAL) < 0)
			return;
}

static void *fake_run(void *arg)
{
	struct fake_daemon *d = arg;
	struct pollfd fds[] = { { .fd = d->listen_fd, .events = POLLIN },
				{ .fd = d->stop[0], .events = POLLIN } };

	while (poll(fds, 2, -1) > 0 && !fds[1].revents) {
		_cleanup_close_ int fd = accept(d->listen_fd, NULL, NULL);

		if (fd >= 0)
			fake_serve(d, fd);
	}
	return NULL;
}

static void fake_start(struct fake_daemon *d)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	*d = (struct fake_daemon){ .directory = "/tmp/fake-daemon-XXXXXX" };
	assert_non_null(mkdtemp(d->directory));
	snprintf(d->path, sizeof(d->path), "%s/api.sock", d->directory);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", d->path);
	d->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(d->listen_fd >= 0);
	assert_int_equal(bind(d->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(d->listen_fd, 8), 0);
	assert_int_equal(pipe(d->stop), 0);
	assert_int_equal(pthread_create(&d->thread, NULL, fake_run, d), 0);
}

static void fake_stop(struct fake_daemon *d)
{
	assert_int_equal(write(d->stop[1], "", 1), 1);
	pthread_join(d->thread, NULL);
	close(d->listen_fd);
	close(d->stop[0]);
	close(d->stop[1]);
	unlink(d->path);
	rmdir(d->directory);
	strbuf_done(&d->answer);
	strbuf_done(&d->request);
}

/* The daemon answers the next calls so. */
static void fake_answers(struct fake_daemon *d, int status, const char *type, const void *body,
			 size_t len)
{
	strbuf_reset(&d->answer);
	strbuf_printf(&d->answer,
		      "HTTP/1.1 %d Whatever\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		      "Connection: close\r\n\r\n",
		      status, type, len);
	strbuf_add(&d->answer, body, len);
}

/* One frame of a stream. */
static inline void fake_frame(struct strbuf *b, int flags, const void *data, size_t len)
{
	const unsigned char head[] = { (unsigned char)flags, (unsigned char)(len >> 24),
				       (unsigned char)(len >> 16), (unsigned char)(len >> 8),
				       (unsigned char)len };

	strbuf_add(b, head, sizeof(head));
	strbuf_add(b, data, len);
}
