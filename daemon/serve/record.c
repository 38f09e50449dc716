// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Record: a burst. Starting, reading and ending it are short jobs, so that no worker is tied up while it
 * lasts; a timer asks for progress once a second. Whatever happens, the burst is released by a job, since
 * that may block.
 */
#include <math.h>

#include "base/clock.h"
#include "export/wire.h"
#include "serve/internal.h"

#define RATE_DEFAULT 99.0
#define RATE_MAX 997.0
#define SECONDS_DEFAULT 10.0
#define SECONDS_MAX 300.0
#define PROGRESS_NS NSEC_PER_SEC

enum record_step {
	RECORD_START,
	RECORD_RUNNING, /* between jobs */
	RECORD_PROGRESS,
	RECORD_FINISH,
	RECORD_RELEASE,
	RECORD_OVER,
};

struct record {
	struct stream stream; /* first */
	struct job job;
	bool busy; /* the job is under way */
	enum record_step step;
	struct selection selection;
	double hz;
	int event; /* enum sample_event, or -1 */
	uint64_t duration_ns, start_mono_ns;
	bool progress_due;
	sd_event_source *timer;

	/* The job's. */
	struct record_session *session;
	struct strbuf frame;
	struct rpc_error error;
};

static struct record *record_of(struct job *j)
{
	return (struct record *)((char *)j - offsetof(struct record, job));
}

static int encode(struct record *c, uint64_t samples, uint64_t lost, const struct profile *p)
{
	Sysprofd__V1__RecordResponse response = SYSPROFD__V1__RECORD_RESPONSE__INIT;
	struct host_info info;
	int r = p ? wire_profile_pack(p, &response.profile) : 0;

	if (r < 0)
		return r;
	host_info_init(&info);
	response.elapsed_seconds = (double)(mono_now_ns() - c->start_mono_ns) / NSEC_PER_SEC;
	response.samples = samples;
	response.lost = lost;
	response.host = &info.message;
	r = answer_frame(&response.base, c->stream.format, &c->frame);
	wire_profile_free(response.profile);
	return r;
}

static int start(struct record *c)
{
	struct server *s = c->stream.server;
	const char *why = NULL;
	int r = s->ops->record_start(s->ops_ctx, c->hz, c->event, &c->selection, &c->session, &why);

	if (r < 0 && why)
		return rpc_fail(&c->error,
				r == -EBUSY	   ? RPC_RESOURCE_EXHAUSTED
				: r == -EOPNOTSUPP ? RPC_FAILED_PRECONDITION
						   : RPC_INVALID_ARGUMENT,
				"%s", why);
	c->start_mono_ns = mono_now_ns();
	return r;
}

static int read_session(struct record *c, bool finish)
{
	struct server *s = c->stream.server;
	struct profile *p = NULL;
	uint64_t samples = 0, lost = 0;
	int r = s->ops->record_read(s->ops_ctx, c->session, &samples, &lost, finish ? &p : NULL);

	/* How busy others are is nothing to those who do not see them; losses are the host's, as everywhere. */
	if (!c->selection.visibility.all)
		samples = p ? p->samples : 0;
	if (r >= 0)
		r = encode(c, samples, lost, p);
	profile_free(p);
	return r;
}

static void release(struct record *c)
{
	struct server *s = c->stream.server;

	if (c->session)
		s->ops->record_free(s->ops_ctx, c->session);
	c->session = NULL;
}

static void on_run(struct job *j, struct worker *w)
{
	struct record *c = record_of(j);
	int r = 0;

	switch (c->step) {
	case RECORD_START:
		r = start(c);
		break;
	case RECORD_PROGRESS:
	case RECORD_FINISH:
		r = read_session(c, c->step == RECORD_FINISH);
		break;
	default:
		release(c);
	}
	if (r < 0)
		rpc_fail_errno(&c->error, r, "Record");
}

static void on_done(struct job *j);

static void submit(struct record *c, enum record_step step)
{
	c->step = step;
	c->busy = true;
	c->frame = (struct strbuf){ .limit = answer_limit(c->stream.server, c->stream.peer) };
	c->job = (struct job){ .privileged = c->stream.peer->visibility.all,
			       .run = on_run,
			       .done = on_done };
	stream_ref(&c->stream);
	worker_pool_submit_always(c->stream.server->pool, &c->job);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct record *c = userdata;

	c->progress_due = true;
	c->stream.kind->kick(&c->stream);
	return 0;
}

static int arm_timer(struct record *c)
{
	uint64_t now = mono_now_ns(), end = c->start_mono_ns + c->duration_ns;
	uint64_t next = MIN(now + PROGRESS_NS, MAX(end, now));
	int r;

	if (!c->timer) {
		return sd_event_add_time(c->stream.server->event, &c->timer, CLOCK_MONOTONIC,
					 next / NSEC_PER_USEC, 1000, on_timer, c);
	}
	r = sd_event_source_set_time(c->timer, next / NSEC_PER_USEC);
	return r < 0 ? r : sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

static void fail(struct record *c)
{
	if (c->error.code != RPC_OK)
		stream_end(&c->stream, &c->error);
}

static void step_done(struct record *c)
{
	enum record_step step = c->step;

	c->step = RECORD_RUNNING;
	if (step == RECORD_RELEASE) {
		c->step = RECORD_OVER;
		return;
	}
	if (c->error.code == RPC_OK && step != RECORD_START)
		stream_queue(&c->stream, &c->frame);
	strbuf_done(&c->frame);
	if (c->error.code == RPC_OK && step == RECORD_FINISH)
		stream_end(&c->stream, NULL);
	if (c->error.code == RPC_OK && !c->stream.closed && arm_timer(c) < 0)
		rpc_set_error(&c->error, RPC_INTERNAL, "no timer");
	fail(c);
}

static void on_done(struct job *j)
{
	struct record *c = record_of(j);
	struct server *s = c->stream.server;

	c->busy = false;
	if (j->ran) {
		step_done(c); /* may submit the next step */
	} else {
		/* The pool is closed: nothing else will run, so the burst is released here. */
		release(c);
		c->step = RECORD_OVER;
		rpc_set_error(&c->error, RPC_UNAVAILABLE, "the server is shutting down");
		fail(c);
	}
	if (c->stream.closed && !c->busy && c->step == RECORD_RUNNING)
		submit(c, RECORD_RELEASE);
	stream_unref(&c->stream);
	streams_kick(s);
}

static void record_kick(struct stream *t)
{
	struct record *c = (struct record *)t;

	if (c->busy)
		return;
	if (c->step == RECORD_START) {
		submit(c, RECORD_START);
	} else if (c->step == RECORD_RUNNING && c->progress_due && stream_has_room(t)) {
		bool over = mono_now_ns() >= c->start_mono_ns + c->duration_ns;

		c->progress_due = false;
		submit(c, over ? RECORD_FINISH : RECORD_PROGRESS);
	}
}

static void record_close(struct stream *t)
{
	struct record *c = (struct record *)t;

	c->timer = sd_event_source_disable_unref(c->timer);
	/* While a job is under way, its end sees to the release. */
	if (!c->busy && c->step == RECORD_RUNNING)
		submit(c, RECORD_RELEASE);
}

static void record_free(struct stream *t)
{
	struct record *c = (struct record *)t;

	sd_event_source_disable_unref(c->timer);
	selection_release(&c->selection);
	free(c);
}

static const struct stream_kind record_kind = {
	.kick = record_kick,
	.close = record_close,
	.free = record_free,
};

/* 0 stands for the default. Written so that NaN fails. */
static int choose(double asked, double otherwise, double min, double max, const char *what,
		  double *ret, struct rpc_error *e)
{
	*ret = asked == 0 ? otherwise : asked;
	if (*ret >= min && *ret <= max)
		return 0;
	return rpc_fail(e, RPC_INVALID_ARGUMENT, "%s is %g to %g", what, min, max);
}

/* A peer without privilege records once at a time. */
static bool is_recording(const struct server *s, const struct peer *p)
{
	for (const struct stream *t = s->streams; t; t = t->next)
		if (t->kind == &record_kind && t->peer->uid == p->uid &&
		    ((const struct record *)t)->step != RECORD_OVER)
			return true;
	return false;
}

/* An event that is not there is refused with those that are. */
static int choose_event(struct server *s, const char *name, int *ret, struct rpc_error *e)
{
	_cleanup_(strbuf_done) struct strbuf there = {};
	struct hardware_state h = {};
	int event = *name ? sample_event_from_name(name) : -1;

	*ret = event;
	if (*name && event < 0) {
		for (int i = 0; i < EVENT_N; i++)
			strbuf_printf(&there, "%s%s", i ? ", " : "",
				      sample_event_name((enum sample_event)i));
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "event %s: expected one of %s", name,
				there.data ?: "");
	}
	if (event <= EVENT_CPU_CLOCK)
		return 0;
	s->ops->hardware(s->ops_ctx, &h);
	if (!h.error[sample_event_kind((enum sample_event)event)])
		return 0;
	strbuf_puts(&there, sample_event_name(EVENT_CPU_CLOCK));
	for (int i = 1; i < EVENT_N; i++)
		if (!h.error[sample_event_kind((enum sample_event)i)])
			strbuf_printf(&there, ", %s", sample_event_name((enum sample_event)i));
	return rpc_fail(e, RPC_FAILED_PRECONDITION, "no %s here: %s; there is %s", name,
			hardware_absent(h.error[sample_event_kind((enum sample_event)event)]),
			there.data ?: "");
}

static int fill(struct record *c, struct exchange *x, const Sysprofd__V1__RecordRequest *m,
		struct rpc_error *e)
{
	struct peer *p = x->connection->peer;
	const char *error = "";
	double seconds;
	int r = choose(m->rate_hz, RATE_DEFAULT, 1, RATE_MAX, "rate_hz", &c->hz, e);

	if (r >= 0)
		r = choose(m->seconds, SECONDS_DEFAULT, 0.1, SECONDS_MAX, "seconds", &seconds, e);
	if (r >= 0)
		r = choose_event(x->server, m->event, &c->event, e);
	if (r >= 0)
		r = filters_from_message(m->filters, m->n_filters, &c->selection, e);
	if (r < 0)
		return r;
	c->duration_ns = (uint64_t)(seconds * NSEC_PER_SEC);
	c->selection.visibility = p->visibility;
	c->selection.until_wall_ns = UINT64_MAX;
	if (selection_check(&c->selection, &error) < 0)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "filters: %s", error);
	if (!p->visibility.all && is_recording(x->server, p))
		return rpc_fail(e, RPC_RESOURCE_EXHAUSTED,
				"one recording at a time for users without privilege");
	return 0;
}

int stream_open_record(struct exchange *x, ProtobufCMessage *request, struct reply_format format,
		       struct stream **ret, struct rpc_error *e)
{
	struct record *c = new0(struct record, 1);
	int r = c ? fill(c, x, (const Sysprofd__V1__RecordRequest *)request, e) : -ENOMEM;

	protobuf_c_message_free_unpacked(request, NULL);
	if (r < 0) {
		if (c)
			selection_release(&c->selection);
		free(c);
		return r;
	}
	r = stream_init(&c->stream, &record_kind, x, format);
	*ret = &c->stream;
	return r;
}
