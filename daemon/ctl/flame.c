// SPDX-License-Identifier: GPL-2.0-or-later
/* flame: all stacks of a selection, in a file. */
#include "ctl/command.h"
#include "ctl/file.h"
#include "ctl/request.h"
#include "ctl/text.h"

/* For programs to read, all of it; a picture has as many nodes as the daemon thinks right. */
#define DATA_NODES 1000000

int command_flame(const struct options *o, struct client *c)
{
	Sysprofd__V1__MergeRequest q = SYSPROFD__V1__MERGE_REQUEST__INIT;
	_cleanup_(request_done) struct request selection = {};
	ProtobufCMessage *answer = NULL;
	Sysprofd__V1__MergeResponse *m;
	int r;

	if (request_init(&selection, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	q.selection = &selection.m;
	q.wakers = o->wakers;
	q.max_nodes = o->format == EXPORT_SVG || o->format == EXPORT_HTML ? 0 : DATA_NODES;
	r = client_call(c, "Merge", &q.base, &sysprofd__v1__merge_response__descriptor, &answer);
	if (r)
		return command_failed(c, r);
	m = (Sysprofd__V1__MergeResponse *)answer;
	r = file_write_profile(o, m->profile, m->host);
	protobuf_c_message_free_unpacked(answer, NULL);
	return r;
}
