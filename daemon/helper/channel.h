/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One end of the socketpair between the symbolizer and its helper: protobuf messages, each preceded by its
 * length as a varint; a descriptor may travel with one. The other end is not trusted: lengths, the memory
 * of decoding, and what arrives beside a message are bounded. Not thread-safe.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/util.h"

#define CHANNEL_FOREVER UINT64_MAX
#define CHANNEL_DECODED_MAX (8U << 20) /* memory that decoded messages may hold */

struct channel {
	int fd; /* owned */
	size_t message_max; /* bytes of one message that is received */
	uint8_t *buf;
	size_t len, cap;
	int passed_fd; /* arrived and not handed over yet */
	size_t decoded; /* memory that decoded messages hold */
};

/* The descriptor is made non-blocking. c must not move afterwards. */
int channel_init(struct channel *c, int fd, size_t message_max);
void channel_done(struct channel *c);

/* -ETIMEDOUT after the deadline, when the stream is useless; -EPIPE when the other end is gone. */
int channel_send(struct channel *c, const ProtobufCMessage *m, int pass_fd,
		 uint64_t deadline_mono_ns);
/*
 * -ETIMEDOUT: nothing is lost, call again. -EPIPE: the other end is gone. -EMSGSIZE, -EBADMSG: it is not to
 * be spoken to any more. ret_fd: the descriptor that came along, or -1; free with channel_message_free().
 */
int channel_receive(struct channel *c, const ProtobufCMessageDescriptor *type,
		    uint64_t deadline_mono_ns, ProtobufCMessage **ret, int *ret_fd);
void channel_message_free(struct channel *c, ProtobufCMessage *m);
