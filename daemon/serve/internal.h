/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How the parts of serve fit together.
 *
 *   listen.c    accepts, sheds, refuses; owns struct connection; deadlines
 *   http.c      libmicrohttpd's callbacks; owns struct exchange, one request and its answer
 *   connect.c   the Connect protocol: an exchange becomes a call or a stream
 *   call.c      work on a worker thread that makes one answer
 *   methods.c   the table of methods and their handlers
 *   stream.c    answers of many frames; watch.c and record.c are the two kinds
 *
 * Threads: all of it is the main thread's, except a call (or another job) between submission and done(), which is
 * the worker's: then the main thread only sets `cancelled`. What a worker reads of struct server never
 * changes after server_new(), or has the lock of the snapshot.
 *
 * libmicrohttpd runs as an epoll descriptor inside the sd-event loop. While a call runs, its connection is
 * suspended, and the server watches the socket itself for the client's leaving.
 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <systemd/sd-event.h>

#include "base/log.h"
#include "serve/answer.h"
#include "serve/peer.h"
#include "serve/serve.h"
#include "serve/worker.h"

#define REQUEST_MAX_VALUES 4096 /* fields and elements of one request */
#define QUEUE_MAX 64 /* calls that wait for a worker, of each rank */

struct server;
struct exchange;
struct call;
struct stream;
struct method;

/* ---- connections ------------------------------------------------------------------------------- */

struct connection {
	struct connection *prev, *next;
	struct server *server;
	int fd; /* libmicrohttpd's: valid until it reports the connection closed */
	bool started; /* libmicrohttpd has taken it */
	bool shed; /* is being closed and no longer counts */
	struct peer *peer;
	struct exchange *exchange; /* NULL: between requests */
	uint64_t waiting_since_mono_ns; /* for a whole request; 0: has one */
	uint64_t deadline_mono_ns; /* UINT64_MAX: none */
	sd_event_source *hangup; /* enabled while suspended */
};

int listener_open(struct server *s);
void listener_close(struct server *s);
struct connection *connection_find(struct server *s, int fd);
void connection_free(struct connection *c);
void connection_close(struct connection *c); /* libmicrohttpd will notice and free it */
void connection_set_deadline(struct connection *c, uint64_t deadline_mono_ns);
/* The connection waits for a request from now on. */
void connection_wait(struct connection *c);
/* Tells when the client goes away, for as long as libmicrohttpd does not look. */
void connection_watch(struct connection *c, bool on);

/* ---- exchanges --------------------------------------------------------------------------------- */

struct pprof_request {
	enum profile_type type;
	uint64_t from_wall_ns, until_wall_ns;
};

enum exchange_state {
	EXCHANGE_RECEIVING,
	EXCHANGE_RUNNING, /* suspended; `call` or a timer will answer */
	EXCHANGE_READY, /* `answer` can be sent */
	EXCHANGE_STREAMING,
	EXCHANGE_SENT,
	EXCHANGE_GONE, /* to be closed */
};

struct exchange {
	struct server *server;
	struct connection *connection;
	struct MHD_Connection *mhd;
	enum exchange_state state;
	bool suspended;
	bool is_get, is_post;
	char path[128]; /* cut: no route is that long */
	struct strbuf body;
	size_t discarded; /* bytes of a body that is too long */
	uint64_t start_mono_ns;
	int metric; /* which histogram, or -1 */
	struct call *call;
	struct stream *stream;
	sd_event_source *delay; /* pprof with wait=1: */
	struct pprof_request pprof; /* what is asked when it is over */
	struct answer answer;
	size_t held; /* bytes of the answer on its way */
};

/* The largest answer that the peer gets. */
uint64_t answer_limit(const struct server *s, const struct peer *p);
/* Counts bytes on their way to the peer, which were *held up to now. */
void answer_hold(struct server *s, const struct peer *p, size_t *held, size_t bytes);

int http_start(struct server *s);
void http_stop(struct server *s);
/* Lets libmicrohttpd run soon, outside of its own callbacks. */
void http_kick(struct server *s);
const char *http_header(struct exchange *x, const char *name);
bool accepts_gzip(const char *header);
const char *http_argument(struct exchange *x, const char *name, size_t *ret_len);
/* The answer in x->answer is complete. */
void exchange_ready(struct exchange *x);
void exchange_fail(struct exchange *x, const struct rpc_error *e);
void exchange_suspend(struct exchange *x);
void exchange_resume(struct exchange *x);
/* The client left, or the deadline passed. */
void exchange_hangup(struct exchange *x);
void exchange_expired(struct exchange *x);

/* ---- routes ------------------------------------------------------------------------------------ */

#define SERVICE_PATH "/sysprofd.v1.ProfileService/"

void connect_begin(struct exchange *x, const char *method_name);
void metrics_begin(struct exchange *x);
void pprof_begin(struct exchange *x);

/* ---- calls ------------------------------------------------------------------------------------- */

/*
 * What histogram an exchange counts in: a method of the table (its index), or one of those behind it.
 */
#define METHOD_MAX 16
enum { METRIC_METRICS = METHOD_MAX, METRIC_PPROF, METRIC_N };

#define DURATION_BUCKETS 11
extern const double duration_bounds[DURATION_BUCKETS]; /* seconds */

struct duration_histogram {
	uint64_t buckets[DURATION_BUCKETS + 1];
	uint64_t sum_us;
};
void duration_add(struct duration_histogram *h, uint64_t us);

struct call {
	struct job job;
	struct server *server;
	struct exchange *exchange; /* NULL: nobody waits any more */
	struct peer *peer;
	const struct method *method; /* NULL for what is no method */
	ProtobufCMessage *request; /* of the method's type */
	struct reply_format format;
	bool cancelled; /* set by the main thread, atomically; polled by queries */
	void (*run)(struct call *c, struct worker *w);
	struct pprof_request pprof;
	struct duration_histogram *durations; /* METRIC_N of them: a copy for /metrics */
	char if_none_match[64];
	struct answer answer;
	struct rpc_error error;
};

/* The exchange's peer asks; frees itself when done. */
struct call *call_new(struct exchange *x, void (*run)(struct call *, struct worker *));
void call_free(struct call *c);
/* Suspends the exchange and queues the call; answers "busy" when the queue is full. Takes the call. */
void call_submit(struct call *c, struct exchange *x, uint64_t deadline_mono_ns);
void call_cancel(struct call *c);

/* ---- methods ----------------------------------------------------------------------------------- */

struct method {
	const char *name;
	bool read_only; /* NO_SIDE_EFFECTS: GET is allowed */
	bool server_stream;
	const ProtobufCMessageDescriptor *request;
	/* Unary: makes c->answer, with call_reply(). -errno, with c->error set or not. Worker thread. */
	int (*handle)(struct call *c, struct worker *w);
	/* Streams: starts one that answers x. Takes the request. Main thread. */
	int (*open)(struct exchange *x, ProtobufCMessage *request, struct reply_format format,
		    struct stream **ret, struct rpc_error *e);
};
extern const struct method methods[];
extern const size_t n_methods;
const struct method *method_find(const char *name);

/*
 * Encodes the response as the call's answer. *host (a field of it) is filled in meanwhile; an ETag is made
 * of everything but it, since it tells the time.
 */
int call_reply(struct call *c, ProtobufCMessage *response, Sysprofd__V1__Host **host);
/* Says that the answer would pass its limit, and returns the error. */
int call_too_large(struct call *c);

/* Who we are, for every answer. The message points into the structure. */
struct host_info {
	Sysprofd__V1__Host message;
	char machine_id[33], boot_id[33], name[256];
};
void host_info_init(struct host_info *h);

int selection_from_message(const Sysprofd__V1__Selection *m, const struct visibility *v,
			   struct selection *ret, struct rpc_error *e);
int filters_from_message(Sysprofd__V1__Filter *const *m, size_t n, struct selection *s,
			 struct rpc_error *e);
/* Frees the filters; what is visible is the peer's. */
void selection_release(struct selection *s);

/* bucket as a message, of the types in the mask; free with bucket_message_free(). */
struct bucket_message {
	Sysprofd__V1__Work *work;
	Sysprofd__V1__Bucket message;
	char boot_id[BOOT_ID_LEN + 1];
	struct profile *profiles[PROFILE_TYPE_N];
	Sysprofd__V1__Profile *packed[PROFILE_TYPE_N];
};
int bucket_message_new(const struct bucket *b, unsigned types, const struct selection *s,
		       struct bucket_message **ret);
struct bucket_message *bucket_message_free(struct bucket_message *m);
DEFINE_CLEANUP(struct bucket_message *, bucket_message_free)
int types_from_message(Sysprofd__V1__ProfileType type, unsigned *ret, struct rpc_error *e);

int method_status(struct call *c, struct worker *w);
int method_stacks(struct call *c, struct worker *w);
int method_profile_types(struct call *c, struct worker *w);
int method_put_work(struct call *c, struct worker *w);
int method_list_buckets(struct call *c, struct worker *w);
int method_labels(struct call *c, struct worker *w);
int method_label_values(struct call *c, struct worker *w);
int method_merge(struct call *c, struct worker *w);
int method_top(struct call *c, struct worker *w);
int method_off_cpu(struct call *c, struct worker *w);
int method_locks(struct call *c, struct worker *w);
int method_syscalls(struct call *c, struct worker *w);
int method_counters(struct call *c, struct worker *w);
int method_series(struct call *c, struct worker *w);

/* ---- the source of queries ----------------------------------------------------------------------- */

/* A snapshot that several queries share: taken anew when it is older than this. */
#define SNAPSHOT_MAX_AGE_NS (500 * NSEC_PER_MSEC)

struct snapshot;
void snapshot_unref(struct snapshot *n);
struct source {
	struct query_source query;
	struct snapshot *snapshot;
};
/* Reads the store, and what is not in it yet when the range comes near now. */
int source_open(struct source *src, struct call *c, struct worker *w, uint64_t until_wall_ns);
void source_close(struct source *src);
/* What was open is closed now: the next query needs a new snapshot. Does not block. */
void snapshot_drop(struct server *s);

/* ---- streams ------------------------------------------------------------------------------------- */

/*
 * A stream is shared by its exchange, libmicrohttpd's response and at most one job: each holds a reference. The
 * frames wait in a queue that the kind of stream fills; the content reader empties it.
 */
struct stream_kind {
	/* There is room in the queue, or a job ended: go on. Not called once the stream is closed. */
	void (*kick)(struct stream *t);
	/* The client is gone, or the last frame is queued. Idempotent. */
	void (*close)(struct stream *t);
	void (*free)(struct stream *t); /* of what the kind has; the stream is part of it */
};

#define STREAM_FRAMES 2 /* that wait to be sent */

struct stream {
	struct stream *prev, *next;
	const struct stream_kind *kind;
	unsigned n_ref;
	struct server *server;
	struct exchange *exchange; /* NULL: gone */
	struct peer *peer;
	struct reply_format format;
	uint64_t deadline_mono_ns; /* Connect-Timeout-Ms */
	uint64_t stalled_since_mono_ns; /* frames wait and the client does not read; 0: no */
	bool closed; /* nothing more will be queued */
	size_t n_frames, offset; /* offset: of the first frame, how much is sent */
	struct strbuf frames[STREAM_FRAMES + 1]; /* one more for the end */
	size_t held;
};

int stream_init(struct stream *t, const struct stream_kind *kind, struct exchange *x,
		struct reply_format format);
struct stream *stream_ref(struct stream *t);
struct stream *stream_unref(struct stream *t);
/* Room for another message, in frames and in the server's budget for answers. */
bool stream_has_room(const struct stream *t);
/* Takes the frame's bytes. */
void stream_queue(struct stream *t, struct strbuf *frame);
/* Queues the last frame; error may be NULL. */
void stream_end(struct stream *t, const struct rpc_error *error);

int stream_open_watch(struct exchange *x, ProtobufCMessage *request, struct reply_format format,
		      struct stream **ret, struct rpc_error *e);
int stream_open_record(struct exchange *x, ProtobufCMessage *request, struct reply_format format,
		       struct stream **ret, struct rpc_error *e);
/* Sends the answer of x from the stream; deadline: Connect-Timeout-Ms, or UINT64_MAX. */
void stream_begin(struct stream *t, struct exchange *x, uint64_t deadline_mono_ns);
/* The client left: what the stream holds is released. */
void stream_hangup(struct stream *t);
/* Its deadline passed: either it ends with an error, or the client does not read. */
void stream_expired(struct stream *t);
void watch_publish(struct server *s, const struct bucket *b);
/* Jobs that did not fit the queue may fit now. */
void streams_kick(struct server *s);

/* ---- the server ---------------------------------------------------------------------------------- */

struct refusals;

struct server {
	sd_event *event;
	struct serve_options o; /* strings are owned */
	const struct serve_ops *ops;
	void *ops_ctx;
	struct access_policy policy;
	struct worker_pool *pool;

	struct MHD_Daemon *mhd;
	sd_event_source *mhd_io, *mhd_defer;

	int listen_fd, reserve_fd;
	ino_t bound_ino; /* of our socket at the path, ours to unlink; 0: there is none */
	sd_event_source *accept_io, *accept_pause;
	struct refusals *refusals;
	struct connection *connections;
	size_t n_connections; /* that are not shed */
	sd_event_source *deadline_timer;
	uint64_t next_deadline_mono_ns;

	struct stream *streams;
	uint64_t held_bytes
		[2]; /* answers on their way: to peers that see everything [1], to others [0] */

	pthread_mutex_t snapshot_lock;
	struct snapshot *snapshot;

	struct duration_histogram durations[METRIC_N];
	struct {
		_Atomic uint64_t accepted, refused_busy, requests, errors, timeouts, cancelled,
			request_us_sum, connections;
	} stats;
	struct log_ratelimit log_accept, log_query;
};
