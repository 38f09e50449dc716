// SPDX-License-Identifier: GPL-2.0-or-later
/* record: a burst of on-CPU samples, in a file. Progress is shown on a terminal; Ctrl-C ends it, no file. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/command.h"
#include "ctl/file.h"
#include "ctl/request.h"
#include "ctl/text.h"
#include "export/human.h"

#define DEFAULT_SECONDS 10 /* the daemon's */
#define GRACE_SECONDS 60 /* for the profile to be made and named */

struct recording {
	const struct options *o;
	double seconds;
	bool terminal;
	bool got_profile;
	int written; /* what came of writing it, told already */
};

static void show_progress(const struct recording *rec, const Sysprofd__V1__RecordResponse *m)
{
	char n[HUMAN_MAX], lost[HUMAN_MAX];

	if (!rec->terminal)
		return;
	fprintf(stderr, "\r%.0f of %.0f s", m->elapsed_seconds, rec->seconds);
	/* Who does not see everything is not told before the end. */
	if (m->samples)
		fprintf(stderr, ", %s samples, %s lost", human_count(m->samples, n),
			human_count(m->lost, lost));
	fputs(" \x1b[K", stderr);
	fflush(stderr);
}

static int on_message(void *ctx, const ProtobufCMessage *message)
{
	const Sysprofd__V1__RecordResponse *m = (const Sysprofd__V1__RecordResponse *)message;
	struct recording *rec = ctx;

	if (!m->profile) {
		show_progress(rec, m);
		return 0;
	}
	if (rec->terminal)
		fputs("\r\x1b[K", stderr);
	rec->got_profile = true;
	rec->written = file_write_profile(rec->o, m->profile, m->host);
	return rec->written;
}

int command_record(const struct options *o, struct client *c)
{
	Sysprofd__V1__RecordRequest q = SYSPROFD__V1__RECORD_REQUEST__INIT;
	_cleanup_(request_done) struct request selection = {};
	struct recording rec = { .o = o,
				 .seconds = o->seconds > 0 ? o->seconds : DEFAULT_SECONDS,
				 .terminal = isatty(STDERR_FILENO) };
	int r;

	if (request_init(&selection, o) < 0) {
		complain("out of memory");
		return CTL_FAILED;
	}
	q.rate_hz = o->rate_hz;
	if (o->event)
		q.event = (char *)o->event;
	q.seconds = rec.seconds;
	q.n_filters = selection.m.n_filters;
	q.filters = selection.m.filters;
	r = client_stream(c, "Record", &q.base, &sysprofd__v1__record_response__descriptor,
			  (long)((rec.seconds + GRACE_SECONDS) * 1000), on_message, &rec);
	if (rec.written)
		return rec.written;
	if (r)
		return command_failed(c, r);
	if (!rec.got_profile) {
		complain("the daemon recorded, but sent no profile");
		return CTL_FAILED;
	}
	return CTL_ANSWERED;
}
