/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What protobuf-c does not check. Its unpacker accepts invalid UTF-8, cuts strings at a NUL, recurses as deep
 * as the message is nested, and turns one byte of message into a hundred of memory. So the wire bytes are
 * walked first, without allocating: depth, number of values, strings, lengths.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/util.h"

#define WIRE_MAX_DEPTH 16

/*
 * -EBADMSG for malformed bytes, -E2BIG for more than max_values fields and elements or too deep a nesting;
 * *ret_error (static) then says what.
 */
int message_check(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t len,
		  size_t max_values, const char **ret_error);

/* Checks, then unpacks. Free with protobuf_c_message_free_unpacked(m, NULL). */
int message_unpack(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t len,
		   size_t max_values, ProtobufCMessage **ret, const char **ret_error);
