// SPDX-License-Identifier: GPL-2.0-or-later
/* types: the profile types that this host records. */
#include "ctl/command.h"
#include "ctl/json.h"
#include "ctl/text.h"

static void answer_json(const Sysprofd__V1__ProfileTypesResponse *m, struct strbuf *out)
{
	struct json j = { .out = out };

	json_object(&j);
	json_key(&j, "types");
	json_array(&j);
	for (size_t i = 0; i < m->n_types; i++) {
		json_object(&j);
		json_key(&j, "name");
		json_string(&j, m->types[i]->name);
		json_key(&j, "unit");
		json_string(&j, m->types[i]->unit);
		json_key(&j, "description");
		json_string(&j, m->types[i]->description);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

static int answer_text(const Sysprofd__V1__ProfileTypesResponse *m, struct strbuf *out)
{
	struct table_column columns[] = { { .head = "TYPE" },
					  { .head = "UNIT", .keep = 1 },
					  { .head = "WHAT IT HOLDS", .flexible = true } };
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	struct text text;

	text_init(&text, STDOUT_FILENO);
	for (size_t i = 0; i < m->n_types; i++) {
		table_cell(&t, m->types[i]->name);
		table_cell(&t, m->types[i]->unit);
		table_cell(&t, m->types[i]->description);
	}
	return table_print(&t, &text, out);
}

int command_types(const struct options *o, struct client *c)
{
	Sysprofd__V1__ProfileTypesRequest q = SYSPROFD__V1__PROFILE_TYPES_REQUEST__INIT;
	_cleanup_(strbuf_done) struct strbuf out = {};
	ProtobufCMessage *answer = NULL;
	int r = client_call(c, "ProfileTypes", &q.base,
			    &sysprofd__v1__profile_types_response__descriptor, &answer);

	if (r)
		return command_failed(c, r);
	if (o->json)
		answer_json((Sysprofd__V1__ProfileTypesResponse *)answer, &out);
	else if (answer_text((Sysprofd__V1__ProfileTypesResponse *)answer, &out) < 0)
		out.error = -ENOMEM;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}
