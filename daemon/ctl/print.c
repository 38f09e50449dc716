// SPDX-License-Identifier: GPL-2.0-or-later
#include "ctl/print.h"
#include "ctl/request.h"
#include "export/human.h"

int command_print(const struct options *o, struct client *c, const struct printed *p,
		  ProtobufCMessage *query, Sysprofd__V1__Selection **selection)
{
	_cleanup_(strbuf_done) struct strbuf out = {};
	_cleanup_(request_done) struct request request = {};
	ProtobufCMessage *answer = NULL;
	int r;

	if (request_init(&request, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	*selection = &request.m;
	r = client_call(c, p->method, query, p->answer, &answer);
	if (r)
		return command_failed(c, r);
	if (o->json)
		p->json(o, answer, &out);
	else if (p->text(o, answer, &out) < 0)
		out.error = -ENOMEM;
	protobuf_c_message_free_unpacked(answer, NULL);
	return text_output(&out);
}

void text_begin(const struct options *o, const Sysprofd__V1__Coverage *coverage, struct text *ret,
		struct strbuf *out)
{
	text_init(ret, STDOUT_FILENO);
	coverage_text(o, ret, coverage, out);
	strbuf_putc(out, '\n');
}

void text_omitted(const struct text *t, uint64_t n, const char *what, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf line = {};
	char buf[HUMAN_MAX];

	if (n == 0)
		return;
	strbuf_printf(&line, "and %s more %s", human_count(n, buf), what);
	text_line(t, STYLE_DIM, line.data ?: "", out);
}
