// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What comes in over the socket, and what the client reads: JSON, protobuf, gzip, profiles. An input is two
 * bytes, the message type and the form, and the bytes themselves. `make fuzz`; the seeds in tests/fuzz/messages are
 * replayed by tests/unit/test-fuzz.c.
 */
#include "export/wire.h"
#include "serve/answer.h"
#include "serve/json.h"
#include "serve/validate.h"

#define MAX_VALUES 4096
#define INFLATED_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
	&sysprofd__v1__top_request__descriptor,
	&sysprofd__v1__put_work_request__descriptor,
	&sysprofd__v1__profile__descriptor,
	&sysprofd__v1__record_request__descriptor,
};

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* What was read is written, read again, and is the same. */
static void check_json(const ProtobufCMessage *m)
{
	_cleanup_(strbuf_done) struct strbuf first = {}, second = {};
	char error[JSON_ERROR_MAX];
	ProtobufCMessage *again;

	json_write_message(m, &first);
	must(json_read_message(m->descriptor, first.data, first.len, MAX_VALUES, &again, error) ==
	     0);
	json_write_message(again, &second);
	must(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	protobuf_c_message_free_unpacked(again, NULL);
}

/* What a client could make a profile of can be sent on. */
static void check_profile(const Sysprofd__V1__Profile *m)
{
	Sysprofd__V1__Profile *packed;
	struct profile *p, *again;

	if (wire_profile_unpack(m, &p) < 0)
		return;
	must(wire_profile_pack(p, &packed) == 0);
	must(wire_profile_unpack(packed, &again) == 0);
	must(again->columns.n == p->columns.n);
	profile_free(again);
	wire_profile_free(packed);
	profile_free(p);
}

static void read_wire(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t size)
{
	_cleanup_(strbuf_done) struct strbuf json = {};
	ProtobufCMessage *m;
	const char *error;

	if (message_unpack(d, data, size, MAX_VALUES, &m, &error) < 0)
		return;
	json_write_message(m, &json);
	if (d == &sysprofd__v1__profile__descriptor)
		check_profile((const Sysprofd__V1__Profile *)m);
	protobuf_c_message_free_unpacked(m, NULL);
}

static void read_json(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t size)
{
	_cleanup_(strbuf_done) struct strbuf wire = {};
	char error[JSON_ERROR_MAX];
	ProtobufCMessage *m;

	if (json_read_message(d, (const char *)data, size, MAX_VALUES, &m, error) < 0)
		return;
	check_json(m);
	/* So that seeds of text are seeds of the other form too. */
	must(answer_encode(m, CODEC_PROTO, &wire) == 0);
	read_wire(d, (const uint8_t *)(wire.data ?: ""), wire.len);
	protobuf_c_message_free_unpacked(m, NULL);
}

static void read_gzip(const uint8_t *data, size_t size)
{
	_cleanup_(strbuf_done) struct strbuf out = {};

	if (answer_decompress(data, size, INFLATED_MAX, &out) == 0)
		must(out.len <= INFLATED_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const ProtobufCMessageDescriptor *d;

	if (size < 2)
		return 0;
	d = types[data[0] % ARRAY_SIZE(types)];
	switch (data[1] % 3) {
	case 0:
		read_json(d, data + 2, size - 2);
		break;
	case 1:
		read_wire(d, data + 2, size - 2);
		break;
	default:
		read_gzip(data + 2, size - 2);
	}
	return 0;
}
