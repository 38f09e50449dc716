/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands that ask one question about a selection, and print the answer's rows below what they cover. */
#pragma once

#include "ctl/command.h"
#include "ctl/coverage.h"

struct printed {
	const char *method;
	const ProtobufCMessageDescriptor *answer;
	/* Each gets the answer's message. */
	void (*json)(const struct options *o, const void *answer, struct strbuf *out);
	int (*text)(const struct options *o, const void *answer, struct strbuf *out);
};

/* Asks `query`, whose selection is set at *selection; what sysprofctl exits with. */
int command_print(const struct options *o, struct client *c, const struct printed *p,
		  ProtobufCMessage *query, Sysprofd__V1__Selection **selection);

/* Above the rows: the command, and what was recorded. */
void text_begin(const struct options *o, const Sysprofd__V1__Coverage *coverage, struct text *ret,
		struct strbuf *out);
/* Below them: "and 12 more rows", unless it is none. */
void text_omitted(const struct text *t, uint64_t n, const char *what, struct strbuf *out);
