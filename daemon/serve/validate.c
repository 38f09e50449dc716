// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/utf8.h"
#include "serve/validate.h"

struct scan {
	size_t values; /* still allowed */
	unsigned depth;
	const char *error;
};

struct span {
	const uint8_t *p, *end;
};

static int fail(struct scan *s, int r, const char *what)
{
	s->error = what;
	return r;
}

/* protobuf-c reads at most ten bytes; the tenth may hold one bit only. */
static int take_varint(struct scan *s, struct span *in, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b;

		if (in->p >= in->end)
			return fail(s, -EBADMSG, "a varint is cut off");
		b = *in->p++;
		if (shift == 63 && b > 1)
			return fail(s, -EBADMSG, "a varint is too long");
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return fail(s, -EBADMSG, "a varint is too long");
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d, uint64_t id)
{
	size_t lo = 0, hi = d->n_fields;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->fields[mid].id == id)
			return &d->fields[mid];
		if (d->fields[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static unsigned wire_type_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

static int count_values(struct scan *s, size_t n)
{
	if (n > s->values)
		return fail(s, -E2BIG, "too many values");
	s->values -= n;
	return 0;
}

/* Repeated scalars in one length-prefixed field. */
static int scan_packed(struct scan *s, const ProtobufCFieldDescriptor *f, struct span in)
{
	unsigned wire = wire_type_of(f->type);
	size_t size = wire == PROTOBUF_C_WIRE_TYPE_32BIT ? 4 : 8;
	uint64_t v;
	int r;

	if (wire != PROTOBUF_C_WIRE_TYPE_VARINT) {
		if ((size_t)(in.end - in.p) % size)
			return fail(s, -EBADMSG, "a packed field is cut off");
		return count_values(s, (size_t)(in.end - in.p) / size);
	}
	while (in.p < in.end) {
		r = count_values(s, 1);
		if (r < 0)
			return r;
		r = take_varint(s, &in, &v);
		if (r < 0)
			return r;
	}
	return 0;
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *d, struct span in);

static int scan_delimited(struct scan *s, const ProtobufCFieldDescriptor *f, struct span in)
{
	int r;

	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		if (s->depth >= WIRE_MAX_DEPTH)
			return fail(s, -E2BIG, "nested too deeply");
		s->depth++;
		r = scan_message(s, f->descriptor, in);
		s->depth--;
		return r;
	case PROTOBUF_C_TYPE_STRING:
		if (!utf8_valid((const char *)in.p, (size_t)(in.end - in.p)))
			return fail(s, -EBADMSG, "a string is not valid UTF-8, or holds a NUL");
		return 0;
	case PROTOBUF_C_TYPE_BYTES:
		return 0;
	default:
		if (f->label != PROTOBUF_C_LABEL_REPEATED)
			return fail(s, -EBADMSG, "a field has the wrong wire type");
		return scan_packed(s, f, in);
	}
}

static int skip_fixed(struct scan *s, struct span *in, size_t size)
{
	if ((size_t)(in->end - in->p) < size)
		return fail(s, -EBADMSG, "a fixed-width value is cut off");
	in->p += size;
	return 0;
}

static int scan_field(struct scan *s, const ProtobufCFieldDescriptor *f, unsigned wire,
		      struct span *in)
{
	uint64_t v;
	int r;

	if (f && wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED && wire != wire_type_of(f->type))
		return fail(s, -EBADMSG, "a field has the wrong wire type");
	switch (wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		return take_varint(s, in, &v);
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		return skip_fixed(s, in, 8);
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		return skip_fixed(s, in, 4);
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		r = take_varint(s, in, &v);
		if (r < 0)
			return r;
		if (v > (size_t)(in->end - in->p))
			return fail(s, -EBADMSG, "a length reaches beyond the end");
		in->p += v;
		return f ? scan_delimited(s, f, (struct span){ in->p - v, in->p }) : 0;
	default:
		return fail(s, -EBADMSG, "a group, or an unknown wire type");
	}
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *d, struct span in)
{
	while (in.p < in.end) {
		uint64_t tag;
		int r = count_values(s, 1);

		if (r < 0)
			return r;
		r = take_varint(s, &in, &tag);
		if (r < 0)
			return r;
		if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
			return fail(s, -EBADMSG, "a field number out of range");
		r = scan_field(s, find_field(d, tag >> 3), (unsigned)tag & 7, &in);
		if (r < 0)
			return r;
	}
	return 0;
}

int message_check(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t len,
		  size_t max_values, const char **ret_error)
{
	struct scan s = { .values = max_values };
	int r;

	if (len == 0)
		return 0;
	r = scan_message(&s, d, (struct span){ data, data + len });
	if (r < 0)
		*ret_error = s.error;
	return r;
}

int message_unpack(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t len,
		   size_t max_values, ProtobufCMessage **ret, const char **ret_error)
{
	static const uint8_t nothing[1];
	ProtobufCMessage *m;
	int r = message_check(d, data, len, max_values, ret_error);

	if (r < 0)
		return r;
	m = protobuf_c_message_unpack(d, NULL, len, len ? data : nothing);
	if (!m) {
		*ret_error = "the message cannot be unpacked";
		return -EBADMSG;
	}
	*ret = m;
	return 0;
}
