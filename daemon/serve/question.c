// SPDX-License-Identifier: GPL-2.0-or-later
#include "serve/question.h"

void free_table(void *p)
{
	void **table = *(void ***)p;

	if (table)
		free(table[0]);
	free(table);
}
int table_new(const ProtobufCMessageDescriptor *d, size_t n, void *ret)
{
	void **table = calloc(n + 1, sizeof(*table));
	char *block = calloc(n + 1, d->sizeof_message);

	if (!table || !block) {
		free(table);
		free(block);
		return -ENOMEM;
	}
	table[0] = block;
	for (size_t i = 0; i < n; i++) {
		table[i] = block + i * d->sizeof_message;
		protobuf_c_message_init(d, table[i]);
	}
	*(void ***)ret = table;
	return 0;
}

int check_limit(struct call *c, uint32_t asked, uint32_t otherwise, uint32_t max, const char *what,
		uint32_t *ret)
{
	if (asked > max)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "%s is at most %u", what, max);
	*ret = asked ?: otherwise;
	return 0;
}

int read_token(struct call *c, const char *token, uint32_t max, uint32_t *ret)
{
	uint64_t v = 0;

	for (const char *p = token; *p; p++)
		if (*p < '0' || *p > '9' || (v = v * 10 + (uint64_t)(*p - '0')) > max)
			return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "bad page_token \"%s\"",
					token);
	*ret = (uint32_t)v;
	return 0;
}

int question_begin(struct call *c, struct worker *w, const Sysprofd__V1__Selection *m,
		   struct selection *sel, struct source *src)
{
	int r = selection_from_message(m, &c->peer->visibility, sel, &c->error);

	return r < 0 ? r : source_open(src, c, w, sel->until_wall_ns);
}
