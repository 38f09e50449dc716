/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The client's end of the socket: Connect over HTTP/1.1 (libcurl), protobuf both ways. What goes wrong comes
 * back as what sysprofctl shall exit with, and one sentence. What the daemon sends is bounded and checked for
 * its framing; its meaning is the callers' to check.
 */
#pragma once

#include "ctl/options.h"

#define CLIENT_ANSWER_MAX (256u << 20) /* of one message; the daemon's own limit is 64 MiB */
#define CLIENT_TIMEOUT_MS 60000 /* of a unary call; the daemon gives up after 30 s */
#define CLIENT_CONNECT_TIMEOUT_MS 5000

struct client;

int client_new(const char *socket_path, struct client **ret);
struct client *client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free)

/*
 * One call: 0 and the answer, to be freed with protobuf_c_message_free_unpacked(); or an enum ctl_exit, and
 * client_error() says why.
 */
int client_call(struct client *c, const char *method, const ProtobufCMessage *request,
		const ProtobufCMessageDescriptor *answer, ProtobufCMessage **ret);

/* Gets each message of a stream, which stays the client's. Anything but 0 ends the call and is its result. */
typedef int (*client_message_fn)(void *ctx, const ProtobufCMessage *message);
/* A call that is answered by a stream, to its end, or for timeout_ms. 0 when the daemon ended it well. */
int client_stream(struct client *c, const char *method, const ProtobufCMessage *request,
		  const ProtobufCMessageDescriptor *answer, long timeout_ms,
		  client_message_fn on_message, void *ctx);

const char *client_error(const struct client *c);
