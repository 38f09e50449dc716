/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Access to the members of protobuf-c messages by descriptor, shared by the JSON reader and writer. The
 * layout rules are those of protobuf-c 1.x: a quantifier (has_, n_, or the case of a oneof) and a member.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/util.h"

static inline void *message_member(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return (char *)m + f->offset;
}

/* n_X of a repeated field. */
static inline size_t *message_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return (size_t *)((char *)m + f->quantifier_offset);
}

/* X_case of a oneof, has_X of an optional scalar: both as wide as an int. */
static inline uint32_t *message_quantifier(const ProtobufCMessage *m,
					   const ProtobufCFieldDescriptor *f)
{
	return (uint32_t *)((char *)m + f->quantifier_offset);
}

static inline bool field_is_oneof(const ProtobufCFieldDescriptor *f)
{
	return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

static inline bool field_is_pointer(const ProtobufCFieldDescriptor *f)
{
	return f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE;
}

size_t field_element_size(const ProtobufCFieldDescriptor *f);

/* protobuf-c tells a map only by the name of the entry message that protoc makes for it. */
bool field_is_map(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f);

/* "max_nodes" -> "maxNodes", as protoc does. */
void field_json_name(const ProtobufCFieldDescriptor *f, char *buf, size_t size);
