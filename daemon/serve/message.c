// SPDX-License-Identifier: GPL-2.0-or-later
#include "serve/message.h"

size_t field_element_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_ENUM:
		return 4;
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	default:
		return 8;
	}
}

static char upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Drops underscores and capitalises what follows them; the first letter too when `first` is set. */
static void camel_case(const char *name, bool first, char *buf, size_t size)
{
	bool up = first;
	size_t n = 0;

	for (const char *p = name; *p && n + 1 < size; p++) {
		if (*p == '_') {
			up = true;
			continue;
		}
		buf[n++] = up ? upper(*p) : *p;
		up = false;
	}
	buf[n] = 0;
}

bool field_is_map(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *e = f->descriptor;
	char camel[128];
	const char *rest;

	if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
		return false;
	if (e->n_fields != 2 || !streq(e->fields[0].name, "key") ||
	    !streq(e->fields[1].name, "value"))
		return false;
	rest = str_skip_prefix(e->name, d->name);
	if (!rest || *rest != '.')
		return false;
	camel_case(f->name, true, camel, sizeof(camel));
	rest = str_skip_prefix(rest + 1, camel);
	return rest && streq(rest, "Entry");
}

void field_json_name(const ProtobufCFieldDescriptor *f, char *buf, size_t size)
{
	camel_case(f->name, false, buf, size);
}
