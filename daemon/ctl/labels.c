// SPDX-License-Identifier: GPL-2.0-or-later
/* labels: the keys that occur in a selection, or the values of one, heaviest first. */
#include "ctl/command.h"
#include "ctl/json.h"
#include "ctl/request.h"
#include "ctl/text.h"
#include "export/human.h"

#define ALL_VALUES 1000 /* where no -n is given */

static int keys_out(const struct options *o, const Sysprofd__V1__LabelsResponse *m,
		    struct strbuf *out)
{
	struct json j = { .out = out };

	if (!o->json) {
		struct text text;

		text_init(&text, STDOUT_FILENO);
		for (size_t i = 0; i < m->n_names; i++)
			text_line(&text, STYLE_PLAIN, m->names[i], out);
		if (m->n_names == 0)
			text_line(&text, STYLE_PLAIN,
				  "No labels: nothing was recorded in this selection.", out);
		return 0;
	}
	json_object(&j);
	json_key(&j, "labels");
	json_array(&j);
	for (size_t i = 0; i < m->n_names; i++)
		json_string(&j, m->names[i]);
	json_array_end(&j);
	json_object_end(&j);
	strbuf_putc(out, '\n');
	return 0;
}

static void values_json(const struct options *o, const Sysprofd__V1__LabelValuesResponse *m,
			struct strbuf *out)
{
	struct json j = { .out = out };

	json_object(&j);
	json_key(&j, "label");
	json_string(&j, o->operand);
	json_key(&j, "type");
	json_string(&j, profile_type_name(o->type));
	json_key(&j, "unit");
	json_string(&j, profile_type_unit(o->type));
	json_key(&j, "values");
	json_array(&j);
	for (size_t i = 0; i < m->n_values; i++) {
		json_object(&j);
		json_key(&j, "value");
		json_string(&j, m->values[i]->value);
		json_key(&j, "total");
		json_unsigned(&j, m->values[i]->total);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_key(&j, "more");
	json_bool(&j, !str_empty(m->next_page_token));
	json_object_end(&j);
	strbuf_putc(out, '\n');
}

static int values_out(const struct options *o, const Sysprofd__V1__LabelValuesResponse *m,
		      struct strbuf *out)
{
	struct table_column columns[] = { { .head = "TOTAL", .right = true },
					  { .head = "VALUE", .flexible = true } };
	_cleanup_(table_done) struct table t = { .columns = columns,
						 .n_columns = ARRAY_SIZE(columns) };
	struct text text;
	char buf[HUMAN_MAX];
	int r;

	if (o->json) {
		values_json(o, m, out);
		return 0;
	}
	text_init(&text, STDOUT_FILENO);
	for (size_t i = 0; i < m->n_values; i++) {
		table_cell(&t, human_value(o->type, m->values[i]->total, buf));
		table_cell(&t, m->values[i]->value);
	}
	r = table_print(&t, &text, out);
	if (r >= 0 && !str_empty(m->next_page_token))
		text_line(&text, STYLE_DIM, "and more: ask with a larger -n", out);
	return r;
}

static int ask(const struct options *o, struct client *c, Sysprofd__V1__Selection *selection,
	       ProtobufCMessage **ret)
{
	Sysprofd__V1__LabelsRequest keys = SYSPROFD__V1__LABELS_REQUEST__INIT;
	Sysprofd__V1__LabelValuesRequest values = SYSPROFD__V1__LABEL_VALUES_REQUEST__INIT;

	if (!o->operand) {
		keys.selection = selection;
		return client_call(c, "Labels", &keys.base,
				   &sysprofd__v1__labels_response__descriptor, ret);
	}
	values.selection = selection;
	values.name = (char *)o->operand;
	values.limit = o->rows_given ? o->rows : ALL_VALUES;
	return client_call(c, "LabelValues", &values.base,
			   &sysprofd__v1__label_values_response__descriptor, ret);
}

int command_labels(const struct options *o, struct client *c)
{
	_cleanup_(request_done) struct request selection = {};
	_cleanup_(strbuf_done) struct strbuf out = {};
	ProtobufCMessage *answer = NULL;
	int r;

	if (request_init(&selection, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	r = ask(o, c, &selection.m, &answer);
	if (r)
		return command_failed(c, r);
	r = o->operand ? values_out(o, (Sysprofd__V1__LabelValuesResponse *)answer, &out)
		       : keys_out(o, (Sysprofd__V1__LabelsResponse *)answer, &out);
	if (r < 0)
		out.error = r;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}
