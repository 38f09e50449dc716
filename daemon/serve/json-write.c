// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "serve/json.h"
#include "serve/message.h"

#define FIELD_NAME_MAX 128

void json_write_string(const char *s, size_t len, struct strbuf *out)
{
	size_t start = 0;

	strbuf_putc(out, '"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
			continue;
		strbuf_add(out, s + start, i - start);
		start = i + 1;
		switch (c) {
		case '"':
			strbuf_puts(out, "\\\"");
			break;
		case '\\':
			strbuf_puts(out, "\\\\");
			break;
		case '\n':
			strbuf_puts(out, "\\n");
			break;
		case '\r':
			strbuf_puts(out, "\\r");
			break;
		case '\t':
			strbuf_puts(out, "\\t");
			break;
		default:
			strbuf_printf(out, "\\u%04x", c);
		}
	}
	strbuf_add(out, s + start, len - start);
	strbuf_putc(out, '"');
}

static void write_base64(const ProtobufCBinaryData *b, struct strbuf *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	strbuf_putc(out, '"');
	for (size_t i = 0; i < b->len; i += 3) {
		size_t n = MIN(b->len - i, (size_t)3);
		uint32_t v = (uint32_t)b->data[i] << 16;
		char quad[4];

		if (n > 1)
			v |= (uint32_t)b->data[i + 1] << 8;
		if (n > 2)
			v |= b->data[i + 2];
		quad[0] = digits[v >> 18];
		quad[1] = digits[v >> 12 & 63];
		quad[2] = n > 1 ? digits[v >> 6 & 63] : '=';
		quad[3] = n > 2 ? digits[v & 63] : '=';
		strbuf_add(out, quad, sizeof(quad));
	}
	strbuf_putc(out, '"');
}

/* The shortest of the usual forms that reads back as the same value. */
static void write_real(double v, bool is_float, struct strbuf *out)
{
	char buf[40];

	if (isnan(v)) {
		strbuf_puts(out, "\"NaN\"");
		return;
	}
	if (isinf(v)) {
		strbuf_puts(out, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
		return;
	}
	for (int digits = is_float ? 6 : 15; digits <= 17; digits++) {
		double back;

		snprintf(buf, sizeof(buf), "%.*g", digits, v);
		back = strtod(buf, NULL);
		if (is_float ? (float)back == (float)v : back == v)
			break;
	}
	strbuf_puts(out, buf);
}

static void write_enum(const ProtobufCEnumDescriptor *d, int value, struct strbuf *out)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);

	if (v)
		strbuf_printf(out, "\"%s\"", v->name);
	else
		strbuf_printf(out, "%d", value);
}

static void write_value(const ProtobufCFieldDescriptor *f, const void *p, struct strbuf *out)
{
	const char *s;

	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		strbuf_printf(out, "%" PRId32, *(const int32_t *)p);
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		strbuf_printf(out, "%" PRIu32, *(const uint32_t *)p);
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		strbuf_printf(out, "\"%" PRId64 "\"", *(const int64_t *)p);
		break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		strbuf_printf(out, "\"%" PRIu64 "\"", *(const uint64_t *)p);
		break;
	case PROTOBUF_C_TYPE_FLOAT:
		write_real((double)*(const float *)p, true, out);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		write_real(*(const double *)p, false, out);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		strbuf_puts(out, *(const protobuf_c_boolean *)p ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_ENUM:
		write_enum(f->descriptor, *(const int32_t *)p, out);
		break;
	case PROTOBUF_C_TYPE_STRING:
		s = *(char *const *)p ?: "";
		json_write_string(s, strlen(s), out);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		write_base64(p, out);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		/* Only the value of a map entry can be missing here. */
		if (*(ProtobufCMessage *const *)p)
			json_write_message(*(ProtobufCMessage *const *)p, out);
		else
			strbuf_puts(out, "{}");
		break;
	}
}

static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	static const char zeros[sizeof(ProtobufCBinaryData)];
	const void *p = message_member(m, f);

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return *message_count(m, f) > 0;
	if (field_is_oneof(f))
		return *message_quantifier(m, f) == f->id;
	if (f->label == PROTOBUF_C_LABEL_REQUIRED)
		return true;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return *(void *const *)p;
	if (f->type == PROTOBUF_C_TYPE_STRING && f->label == PROTOBUF_C_LABEL_NONE)
		return !str_empty(*(char *const *)p);
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return *(void *const *)p && *(void *const *)p != f->default_value;
	if (f->label == PROTOBUF_C_LABEL_OPTIONAL)
		return *message_quantifier(m, f);
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return ((const ProtobufCBinaryData *)p)->len > 0;
	return memcmp(p, zeros, field_element_size(f)) != 0;
}

/* JSON keys are strings whatever the type of the map's key is. */
static void write_map_key(const ProtobufCFieldDescriptor *f, const void *p, struct strbuf *out)
{
	bool quoted = f->type == PROTOBUF_C_TYPE_STRING ||
		      (f->type != PROTOBUF_C_TYPE_BOOL && field_element_size(f) == 8);

	if (!quoted)
		strbuf_putc(out, '"');
	write_value(f, p, out);
	if (!quoted)
		strbuf_putc(out, '"');
}

static void write_repeated(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
			   struct strbuf *out)
{
	bool map = field_is_map(m->descriptor, f);
	const char *items = *(char *const *)message_member(m, f);
	size_t size = field_element_size(f);

	strbuf_putc(out, map ? '{' : '[');
	for (size_t i = 0, n = *message_count(m, f); i < n && !strbuf_error(out); i++) {
		const void *p = items + i * size;

		if (i)
			strbuf_putc(out, ',');
		if (map) {
			const ProtobufCMessage *entry = *(ProtobufCMessage *const *)p;
			const ProtobufCFieldDescriptor *kv = entry->descriptor->fields;

			write_map_key(&kv[0], message_member(entry, &kv[0]), out);
			strbuf_putc(out, ':');
			write_value(&kv[1], message_member(entry, &kv[1]), out);
		} else {
			write_value(f, p, out);
		}
	}
	strbuf_putc(out, map ? '}' : ']');
}

void json_write_message(const ProtobufCMessage *m, struct strbuf *out)
{
	bool first = true;

	strbuf_putc(out, '{');
	for (unsigned i = 0; i < m->descriptor->n_fields && !strbuf_error(out); i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		char name[FIELD_NAME_MAX];

		if (!is_set(m, f))
			continue;
		field_json_name(f, name, sizeof(name));
		strbuf_printf(out, "%s\"%s\":", first ? "" : ",", name);
		first = false;
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			write_repeated(m, f, out);
		else
			write_value(f, message_member(m, f), out);
	}
	strbuf_putc(out, '}');
}
