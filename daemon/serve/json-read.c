// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Every value is stored in the message as soon as it is allocated, so that freeing the unfinished message
 * frees all of it whenever an error ends the reading.
 */
#include <math.h>
#include <stdio.h>

#include "serve/json-lex.h"
#include "serve/message.h"

#define FIELDS_MAX 256 /* of one message */
#define NUMBER_MAX 400 /* characters; the longest double has about 330 */

static int read_value(struct json_lexer *x, const ProtobufCFieldDescriptor *f, void *dst);
static int read_message(struct json_lexer *x, ProtobufCMessage *m);

struct integer {
	bool negative;
	uint64_t magnitude;
};

/* "12", "-3", "1e3", "5.0": an integer in any of JSON's forms. */
static int parse_integer(struct json_lexer *x, const char *s, struct integer *ret)
{
	struct integer v = {};
	const char *p = s;
	double real, whole;
	char *end;

	v.negative = *p == '-';
	p += v.negative;
	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned digit = (unsigned)(*p - '0');

		if (v.magnitude > (UINT64_MAX - digit) / 10)
			return json_fail(x, "an integer out of range");
		v.magnitude = v.magnitude * 10 + digit;
	}
	if (*p && p > s) {
		real = strtod(s, &end);
		if (*end || modf(real, &whole) != 0 || fabs(whole) > 9007199254740992.0)
			return json_fail(x, "an integer is expected");
		v.negative = whole < 0;
		v.magnitude = (uint64_t)fabs(whole);
	}
	*ret = v;
	return 0;
}

/* The text of a number that may stand in quotes. */
static int lex_number_text(struct json_lexer *x, struct strbuf *text)
{
	struct json_lexer inner;
	_cleanup_(strbuf_done) struct strbuf number = {};
	bool quoted = json_peek(x) == '"';
	int r = quoted ? json_lex_string(x, text) : json_lex_number(x, text);

	if (r < 0)
		return r;
	if (text->len > NUMBER_MAX)
		return json_fail(x, "a number is too long");
	if (!quoted)
		return 0;
	/* What stands in quotes has to be a number to its last byte, without white space. */
	inner = (struct json_lexer){ .p = text->data,
				     .end = text->data + text->len,
				     .begin = text->data,
				     .error = x->error };
	if (text->len == 0 || text->data[0] == ' ' || json_lex_number(&inner, &number) < 0 ||
	    inner.p != inner.end || number.len != text->len)
		return json_fail(x, "a number is expected");
	return 0;
}

static int read_signed(struct json_lexer *x, int64_t min, int64_t max, int64_t *ret)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	struct integer v = {};
	int r = lex_number_text(x, &text);

	if (r < 0)
		return r;
	r = parse_integer(x, text.data, &v);
	if (r < 0)
		return r;
	if (v.magnitude > (v.negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX))
		return json_fail(x, "an integer out of range");
	*ret = v.negative ? (int64_t)(0 - v.magnitude) : (int64_t)v.magnitude;
	if (*ret < min || *ret > max)
		return json_fail(x, "an integer out of range");
	return 0;
}

static int read_unsigned(struct json_lexer *x, uint64_t max, uint64_t *ret)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	struct integer v = {};
	int r = lex_number_text(x, &text);

	if (r < 0)
		return r;
	r = parse_integer(x, text.data, &v);
	if (r < 0)
		return r;
	if ((v.negative && v.magnitude) || v.magnitude > max)
		return json_fail(x, "an integer out of range");
	*ret = v.magnitude;
	return 0;
}

static int read_real(struct json_lexer *x, double max, double *ret)
{
	static const struct {
		const char *word;
		double value;
	} words[] = {
		{ "\"NaN\"", NAN },
		{ "\"Infinity\"", INFINITY },
		{ "\"-Infinity\"", -INFINITY },
	};
	_cleanup_(strbuf_done) struct strbuf text = {};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (json_take_word(x, words[i].word)) {
			*ret = words[i].value;
			return 0;
		}
	r = lex_number_text(x, &text);
	if (r < 0)
		return r;
	*ret = strtod(text.data, NULL);
	if (!(fabs(*ret) <= max))
		return json_fail(x, "a number out of range");
	return 0;
}

static int read_bool(struct json_lexer *x, protobuf_c_boolean *ret)
{
	if (json_take_word(x, "true"))
		*ret = 1;
	else if (json_take_word(x, "false"))
		*ret = 0;
	else
		return json_fail(x, "true or false is expected");
	return 0;
}

static int read_enum(struct json_lexer *x, const ProtobufCEnumDescriptor *d, int32_t *ret)
{
	_cleanup_(strbuf_done) struct strbuf name = {};
	const ProtobufCEnumValue *v;
	int64_t number = 0;
	int r;

	if (json_peek(x) != '"') {
		r = read_signed(x, INT32_MIN, INT32_MAX, &number);
		if (r == 0)
			*ret = (int32_t)number;
		return r;
	}
	r = json_lex_string(x, &name);
	if (r < 0)
		return r;
	v = protobuf_c_enum_descriptor_get_value_by_name(d, name.data ?: "");
	if (!v)
		return json_fail(x, "unknown name of an enum value");
	*ret = v->value;
	return 0;
}

static int read_string(struct json_lexer *x, char **ret)
{
	_cleanup_(strbuf_done) struct strbuf s = {};
	char *copy;
	int r = json_lex_string(x, &s);

	if (r < 0)
		return r;
	copy = strdup(s.data ?: "");
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	if (c == '/' || c == '_')
		return 63;
	return -1;
}

int json_decode_base64(const char *s, size_t len, uint8_t **ret, size_t *ret_len)
{
	uint32_t bits = 0;
	unsigned n_bits = 0;
	size_t n = 0;
	uint8_t *out;

	while (len > 0 && s[len - 1] == '=')
		len--;
	if (len % 4 == 1)
		return -EBADMSG;
	out = malloc(len / 4 * 3 + 3);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		int v = base64_digit(s[i]);

		if (v < 0) {
			free(out);
			return -EBADMSG;
		}
		bits = bits << 6 | (uint32_t)v;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			out[n++] = (uint8_t)(bits >> n_bits);
		}
	}
	*ret = out;
	*ret_len = n;
	return 0;
}

static int read_bytes(struct json_lexer *x, ProtobufCBinaryData *ret)
{
	_cleanup_(strbuf_done) struct strbuf s = {};
	int r = json_lex_string(x, &s);

	if (r < 0)
		return r;
	r = json_decode_base64(s.data ?: "", s.len, &ret->data, &ret->len);
	return r == -EBADMSG ? json_fail(x, "bad base64") : r;
}

static int read_submessage(struct json_lexer *x, const ProtobufCMessageDescriptor *d,
			   ProtobufCMessage **dst)
{
	ProtobufCMessage *m = malloc(d->sizeof_message);

	if (!m)
		return -ENOMEM;
	protobuf_c_message_init(d, m);
	*dst = m;
	return read_message(x, m);
}

static int read_value(struct json_lexer *x, const ProtobufCFieldDescriptor *f, void *dst)
{
	int64_t i = 0;
	uint64_t u = 0;
	double d = 0;
	int r;

	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		r = read_signed(x, INT32_MIN, INT32_MAX, &i);
		*(int32_t *)dst = (int32_t)i;
		return r;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		r = read_signed(x, INT64_MIN, INT64_MAX, &i);
		*(int64_t *)dst = i;
		return r;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		r = read_unsigned(x, UINT32_MAX, &u);
		*(uint32_t *)dst = (uint32_t)u;
		return r;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return read_unsigned(x, UINT64_MAX, dst);
	case PROTOBUF_C_TYPE_FLOAT:
		r = read_real(x, 3.4028234663852886e38, &d);
		*(float *)dst = (float)d;
		return r;
	case PROTOBUF_C_TYPE_DOUBLE:
		return read_real(x, 1.7976931348623157e308, dst);
	case PROTOBUF_C_TYPE_BOOL:
		return read_bool(x, dst);
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(x, f->descriptor, dst);
	case PROTOBUF_C_TYPE_STRING:
		return read_string(x, dst);
	case PROTOBUF_C_TYPE_BYTES:
		return read_bytes(x, dst);
	case PROTOBUF_C_TYPE_MESSAGE:
		return read_submessage(x, f->descriptor, dst);
	}
	return json_fail(x, "a field of unknown type");
}

/* Room for one more element, zeroed and counted; NULL without memory. */
static void *append_element(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	size_t *n = message_count(m, f), size = field_element_size(f);
	void **items = message_member(m, f);
	char *p = *items;

	/* Capacities are the powers of two, so that they need not be remembered. */
	if ((*n & (*n - 1)) == 0) {
		p = reallocarray(*items, *n ? *n * 2 : 1, size);
		if (!p)
			return NULL;
		*items = p;
	}
	p += *n * size;
	memset(p, 0, size);
	return p;
}

/*
 * An element counts from the moment it can be freed: pointers when they are set, all others at once. A
 * half-read submessage is set, so it counts as well.
 */
static void commit_element(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const void *p)
{
	if (!field_is_pointer(f) || *(void *const *)p)
		(*message_count(m, f))++;
}

static int read_array(struct json_lexer *x, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	int r;

	if (!json_take(x, '['))
		return json_fail(x, "an array is expected");
	if (json_take(x, ']'))
		return 0;
	for (;;) {
		void *p;

		r = json_count_element(x);
		if (r < 0)
			return r;
		p = append_element(m, f);
		if (!p)
			return -ENOMEM;
		r = read_value(x, f, p);
		commit_element(m, f, p);
		if (r < 0)
			return r;
		if (json_take(x, ']'))
			return 0;
		if (!json_take(x, ','))
			return json_fail(x, "',' is expected");
	}
}

/* A map's key stands in quotes whatever its type: it is read from a text of its own. */
static int read_map_key(struct json_lexer *x, const ProtobufCFieldDescriptor *f, void *dst)
{
	_cleanup_(strbuf_done) struct strbuf key = {};
	struct json_lexer inner;
	int r;

	if (f->type == PROTOBUF_C_TYPE_STRING)
		return read_string(x, dst);
	r = json_lex_string(x, &key);
	if (r < 0)
		return r;
	inner = (struct json_lexer){ .p = key.data ?: "", .error = x->error };
	inner.begin = inner.p;
	inner.end = inner.p + key.len;
	r = read_value(&inner, f, dst);
	if (r == 0 && inner.p != inner.end)
		return json_fail(x, "bad key of a map");
	return r;
}

static bool same_key(const ProtobufCFieldDescriptor *key, const ProtobufCMessage *a,
		     const ProtobufCMessage *b)
{
	const void *x = message_member(a, key), *y = message_member(b, key);

	if (key->type == PROTOBUF_C_TYPE_STRING)
		return streq(*(char *const *)x, *(char *const *)y);
	return memcmp(x, y, field_element_size(key)) == 0;
}

static int read_map_entry(struct json_lexer *x, ProtobufCMessage *m,
			  const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	const ProtobufCFieldDescriptor *key = &d->fields[0], *value = &d->fields[1];
	ProtobufCMessage *entry, **slot, **all;
	size_t n = *message_count(m, f);
	int r;

	if (n >= JSON_MAX_MAP)
		return json_fail(x, "too many entries in a map");
	slot = append_element(m, f);
	entry = slot ? malloc(d->sizeof_message) : NULL;
	if (!entry)
		return -ENOMEM;
	protobuf_c_message_init(d, entry);
	*slot = entry;
	commit_element(m, f, slot);
	r = read_map_key(x, key, message_member(entry, key));
	if (r < 0)
		return r;
	all = *(ProtobufCMessage ***)message_member(m, f);
	for (size_t i = 0; i < n; i++)
		if (same_key(key, all[i], entry))
			return json_fail(x, "a key of a map is given twice");
	if (!json_take(x, ':'))
		return json_fail(x, "':' is expected");
	return read_value(x, value, message_member(entry, value));
}

static int read_map(struct json_lexer *x, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	int r;

	if (!json_take(x, '{'))
		return json_fail(x, "an object is expected");
	if (json_take(x, '}'))
		return 0;
	for (;;) {
		r = json_count_element(x);
		if (r < 0)
			return r;
		r = read_map_entry(x, m, f);
		if (r < 0)
			return r;
		if (json_take(x, '}'))
			return 0;
		if (!json_take(x, ','))
			return json_fail(x, "',' is expected");
	}
}

static int read_singular(struct json_lexer *x, ProtobufCMessage *m,
			 const ProtobufCFieldDescriptor *f)
{
	void *dst = message_member(m, f);
	int r;

	if (field_is_oneof(f)) {
		if (*message_quantifier(m, f))
			return json_fail(x, "two members of a oneof");
		memset(dst, 0, field_element_size(f));
		r = read_value(x, f, dst);
		/* Freeing looks at the case: a member that holds memory must be named by it. */
		if (r == 0 || (field_is_pointer(f) && *(void **)dst))
			*message_quantifier(m, f) = f->id;
		return r;
	}
	r = read_value(x, f, dst);
	if (r == 0 && f->label == PROTOBUF_C_LABEL_OPTIONAL && !field_is_pointer(f))
		*message_quantifier(m, f) = 1;
	return r;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d,
						  const char *name)
{
	char json_name[128];

	for (unsigned i = 0; i < d->n_fields; i++) {
		field_json_name(&d->fields[i], json_name, sizeof(json_name));
		if (streq(name, json_name) || streq(name, d->fields[i].name))
			return &d->fields[i];
	}
	return NULL;
}

static int read_field(struct json_lexer *x, ProtobufCMessage *m, uint8_t *seen)
{
	_cleanup_(strbuf_done) struct strbuf name = {};
	const ProtobufCFieldDescriptor *f;
	size_t i;
	int r;

	r = json_count_element(x);
	if (r < 0)
		return r;
	r = json_lex_string(x, &name);
	if (r < 0)
		return r;
	if (!json_take(x, ':'))
		return json_fail(x, "':' is expected");
	f = find_field(m->descriptor, name.data ?: "");
	if (!f)
		return json_skip_value(x);
	i = (size_t)(f - m->descriptor->fields);
	if (seen[i / 8] & 1 << i % 8)
		return json_fail(x, "a field is given twice");
	seen[i / 8] |= (uint8_t)(1 << i % 8);
	if (json_take_word(x, "null"))
		return 0;
	if (f->label != PROTOBUF_C_LABEL_REPEATED)
		return read_singular(x, m, f);
	return field_is_map(m->descriptor, f) ? read_map(x, m, f) : read_array(x, m, f);
}

static int read_fields(struct json_lexer *x, ProtobufCMessage *m)
{
	uint8_t seen[FIELDS_MAX / 8] = {};
	int r;

	assert(m->descriptor->n_fields <= FIELDS_MAX);
	if (!json_take(x, '{'))
		return json_fail(x, "an object is expected");
	if (json_take(x, '}'))
		return 0;
	for (;;) {
		r = read_field(x, m, seen);
		if (r < 0)
			return r;
		if (json_take(x, '}'))
			return 0;
		if (!json_take(x, ','))
			return json_fail(x, "',' is expected");
	}
}

static int read_message(struct json_lexer *x, ProtobufCMessage *m)
{
	int r = json_enter(x);

	if (r < 0)
		return r;
	r = read_fields(x, m);
	json_leave(x);
	return r;
}

int json_read_message(const ProtobufCMessageDescriptor *d, const char *s, size_t len,
		      size_t max_elements, ProtobufCMessage **ret,
		      char error[static JSON_ERROR_MAX])
{
	struct json_lexer x = {
		.p = s, .end = s + len, .begin = s, .elements = max_elements, .error = error
	};
	ProtobufCMessage *m = NULL;
	int r = read_submessage(&x, d, &m);

	if (r == 0) {
		json_skip_space(&x);
		if (x.p != x.end)
			r = json_fail(&x, "something follows the message");
	}
	if (r < 0) {
		if (r == -ENOMEM)
			snprintf(error, JSON_ERROR_MAX, "out of memory");
		if (m)
			protobuf_c_message_free_unpacked(m, NULL);
		return r;
	}
	*ret = m;
	return 0;
}
