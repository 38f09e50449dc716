// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * GET /debug/pprof/profile?seconds=N: what pullers of Go programs ask. The last N seconds of history are
 * answered at once; with wait=1 the next N seconds are waited for. type= chooses another profile type.
 */
#include "base/clock.h"
#include "export/export.h"
#include "serve/internal.h"

#define SECONDS_DEFAULT "30"
#define SECONDS_MAX (7 * 86400)
#define WAIT_MAX 300
#define NODES_MAX 100000

static int make_profile(struct call *c, struct worker *w)
{
	struct selection sel = { .type = c->pprof.type,
				 .from_wall_ns = c->pprof.from_wall_ns,
				 .until_wall_ns = c->pprof.until_wall_ns,
				 .visibility = c->peer->visibility };
	_cleanup_(source_close) struct source src = {};
	_cleanup_(profile_free_p) struct profile *p = NULL;
	int r = source_open(&src, c, w, sel.until_wall_ns);

	if (r >= 0)
		r = query_merge(&src.query, &sel, NODES_MAX, &p);
	if (r >= 0)
		r = export_pprof(p, &c->answer.body);
	if (r >= 0)
		r = strbuf_error(&c->answer.body);
	return r;
}

static void run_pprof(struct call *c, struct worker *w)
{
	int r = make_profile(c, w);

	c->answer.status = MHD_HTTP_OK;
	c->answer.content_type = "application/octet-stream";
	c->answer.disposition = "attachment; filename=\"profile.pb.gz\"";
	if (r < 0)
		rpc_fail_errno(&c->error, r, "profile");
}

static void start(struct exchange *x, enum profile_type type, uint64_t from_wall_ns,
		  uint64_t until_wall_ns)
{
	struct call *c = call_new(x, run_pprof);
	struct rpc_error e = {};

	if (!c) {
		rpc_fail_errno(&e, -ENOMEM, "profile");
		exchange_fail(x, &e);
		return;
	}
	c->pprof = (struct pprof_request){ type, from_wall_ns, until_wall_ns };
	call_submit(c, x, mono_now_ns() + x->server->o.query_timeout_ns);
}

static int read_type(struct exchange *x, enum profile_type *ret, struct rpc_error *e)
{
	const char *name = http_argument(x, "type", NULL);
	int type = name ? profile_type_from_name(name) : PROFILE_ON_CPU;

	if (type < 0)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "unknown type \"%s\"", name);
	*ret = (enum profile_type)type;
	return 0;
}

static int read_seconds(struct exchange *x, uint64_t max, uint64_t *ret, struct rpc_error *e)
{
	const char *s = http_argument(x, "seconds", NULL) ?: SECONDS_DEFAULT;
	uint64_t v = 0;

	for (const char *p = s; *p && v <= max; p++) {
		if (*p < '0' || *p > '9')
			return rpc_fail(e, RPC_INVALID_ARGUMENT, "bad seconds \"%s\"", s);
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (v == 0 || v > max)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "seconds is 1 to %d", (int)max);
	*ret = v;
	return 0;
}

/* The wait is over: what it was for is in the history now. The range was fixed when it began. */
static int on_waited(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct exchange *x = userdata;
	struct pprof_request asked = x->pprof;

	x->delay = sd_event_source_disable_unref(x->delay);
	start(x, asked.type, asked.from_wall_ns, asked.until_wall_ns);
	return 0;
}

static int wait_for(struct exchange *x, uint64_t seconds)
{
	uint64_t end = mono_now_ns() + seconds * NSEC_PER_SEC;
	int r = sd_event_add_time(x->server->event, &x->delay, CLOCK_MONOTONIC, end / NSEC_PER_USEC,
				  1000, on_waited, x);

	if (r < 0)
		return r;
	x->state = EXCHANGE_RUNNING;
	exchange_suspend(x);
	return 0;
}

void pprof_begin(struct exchange *x)
{
	const char *wait = http_argument(x, "wait", NULL);
	bool waits = wait && streq(wait, "1");
	uint64_t now = wall_now_ns(), seconds;
	struct rpc_error e = {};
	enum profile_type type;
	int r = read_type(x, &type, &e);

	/* With a wait, its length is the client's choice and no latency. */
	x->metric = waits ? -1 : METRIC_PPROF;
	if (r >= 0)
		r = read_seconds(x, waits ? WAIT_MAX : SECONDS_MAX, &seconds, &e);
	if (r >= 0 && waits) {
		x->pprof = (struct pprof_request){ type, now, now + seconds * NSEC_PER_SEC };
		r = wait_for(x, seconds);
	} else if (r >= 0) {
		start(x, type, now - seconds * NSEC_PER_SEC, now);
	}
	if (r >= 0)
		return;
	rpc_fail_errno(&e, r, "profile");
	exchange_fail(x, &e);
}
