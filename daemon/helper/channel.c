// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "helper/channel.h"

#define PREFIX_MAX 5 /* varint of 32 bits */
#define KEPT_BUFFER 65536 /* a larger one is given back after use */

int channel_init(struct channel *c, int fd, size_t message_max)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return negative_errno();
	*c = (struct channel){ .fd = fd, .message_max = message_max, .passed_fd = -1 };
	return 0;
}

void channel_done(struct channel *c)
{
	close_fd(c->fd);
	close_fd(c->passed_fd);
	free(c->buf);
	*c = (struct channel){ .fd = -1, .passed_fd = -1 };
}

static int wait_ready(int fd, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = mono_now_ns();
		int timeout = -1, r;

		if (deadline != CHANNEL_FOREVER) {
			if (now >= deadline)
				return -ETIMEDOUT;
			/* Rounded up, so that the last millisecond is not a busy loop. */
			timeout = (int)MIN((deadline - now) / NSEC_PER_MSEC + 1, 60000ULL);
		}
		r = poll(&p, 1, timeout);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return negative_errno();
	}
}

static int send_some(int fd, const uint8_t *data, size_t len, int pass_fd)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {};
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (pass_fd >= 0) {
		struct cmsghdr *h;

		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &pass_fd, sizeof(int));
	}
	n = sendmsg(fd, &m, MSG_NOSIGNAL);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : negative_errno();
	return (int)n;
}

int channel_send(struct channel *c, const ProtobufCMessage *m, int pass_fd,
		 uint64_t deadline_mono_ns)
{
	size_t len = protobuf_c_message_get_packed_size(m), prefix = 0, at = 0;
	_cleanup_free_ uint8_t *buf = malloc(len + PREFIX_MAX);

	if (!buf)
		return -ENOMEM;
	if (len > INT32_MAX - PREFIX_MAX)
		return -EMSGSIZE;
	for (size_t v = len;; v >>= 7) {
		buf[prefix++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
		if (v <= 127)
			break;
	}
	len = prefix + protobuf_c_message_pack(m, buf + prefix);
	while (at < len) {
		int n = send_some(c->fd, buf + at, len - at, at ? -1 : pass_fd);

		if (n == -EAGAIN)
			n = wait_ready(c->fd, POLLOUT, deadline_mono_ns);
		else if (n > 0)
			at += (size_t)n;
		if (n < 0 && n != -EINTR)
			return n;
	}
	return 0;
}

/* Decoding takes memory from a budget: a message of empty sub-messages grows 36 times. */
struct block {
	size_t size;
	max_align_t data[];
};

static void *budget_alloc(void *ctx, size_t size)
{
	struct channel *c = ctx;
	struct block *b;

	if (size > CHANNEL_DECODED_MAX - c->decoded)
		return NULL;
	b = malloc(sizeof(*b) + size);
	if (!b)
		return NULL;
	c->decoded += size;
	b->size = size;
	return b->data;
}

static void budget_free(void *ctx, void *p)
{
	struct channel *c = ctx;
	struct block *b;

	if (!p)
		return;
	b = (struct block *)((char *)p - offsetof(struct block, data));
	c->decoded -= b->size;
	free(b);
}

static ProtobufCAllocator budget(struct channel *c)
{
	return (ProtobufCAllocator){ .alloc = budget_alloc,
				     .free = budget_free,
				     .allocator_data = c };
}

void channel_message_free(struct channel *c, ProtobufCMessage *m)
{
	ProtobufCAllocator a = budget(c);

	if (m)
		protobuf_c_message_free_unpacked(m, &a);
}

/* Keeps one descriptor; what arrives beyond is closed. */
static void take_descriptors(struct channel *c, struct msghdr *m)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (c->passed_fd < 0)
				c->passed_fd = fd;
			else
				close_fd(fd);
		}
	}
}

static int receive_some(struct channel *c, size_t want)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;
	int r;

	r = ARRAY_GROW(c->buf, c->cap, want);
	if (r < 0)
		return r;
	iov = (struct iovec){ .iov_base = c->buf + c->len, .iov_len = want - c->len };
	n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : negative_errno();
	take_descriptors(c, &m);
	if (!n)
		return -EPIPE;
	c->len += (size_t)n;
	return 0;
}

/* The length of the message and of its prefix: 1 when known, 0 when more bytes are needed. */
static int parse_prefix(const struct channel *c, size_t *ret_prefix, size_t *ret_len)
{
	uint64_t v = 0;

	for (size_t i = 0; i < PREFIX_MAX; i++) {
		if (i == c->len)
			return 0;
		v |= (uint64_t)(c->buf[i] & 127) << (7 * i);
		if (c->buf[i] & 128)
			continue;
		if (v > c->message_max)
			return -EMSGSIZE;
		*ret_prefix = i + 1;
		*ret_len = (size_t)v;
		return 1;
	}
	return -EBADMSG;
}

int channel_receive(struct channel *c, const ProtobufCMessageDescriptor *type,
		    uint64_t deadline_mono_ns, ProtobufCMessage **ret, int *ret_fd)
{
	size_t prefix = 0, len = 0;
	ProtobufCAllocator a = budget(c);
	ProtobufCMessage *m;

	for (;;) {
		int r = parse_prefix(c, &prefix, &len);

		if (r < 0)
			return r;
		if (r && c->len >= prefix + len)
			break;
		/* Byte by byte until the length is known: nothing of a next message is ever read. */
		r = receive_some(c, r ? prefix + len : c->len + 1);
		if (r == -EAGAIN)
			r = wait_ready(c->fd, POLLIN, deadline_mono_ns);
		if (r < 0 && r != -EINTR)
			return r;
	}
	m = protobuf_c_message_unpack(type, &a, len, c->buf + prefix);
	c->len = 0;
	if (c->cap > KEPT_BUFFER) {
		free(c->buf);
		c->buf = NULL;
		c->cap = 0;
	}
	if (!m)
		return -EBADMSG;
	*ret = m;
	*ret_fd = TAKE_FD(c->passed_fd);
	return 0;
}
