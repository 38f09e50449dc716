/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The socket: accepts, knows the peer, speaks HTTP (libmicrohttpd) and Connect, hands queries to a worker
 * thread with a store reader of its own, streams. Driven by the main sd-event loop. What only the manager
 * can do is behind serve_ops, whose functions may be called from the worker threads.
 */
#pragma once

#include <systemd/sd-event.h>

#include "model/hardware.h"
#include "model/profile.h"
#include "query/query.h"
#include "sysprofd/v1/profile.pb-c.h"

struct record_session; /* a burst in progress, the manager's */

/* What is not in the store yet: copies, for one query. */
#define RECENT_CLOSED_MAX 8
struct recent {
	struct bucket *closed[RECENT_CLOSED_MAX]; /* oldest first */
	size_t n_closed;
	struct bucket *open; /* or NULL */
};
static inline void recent_done(struct recent *r)
{
	for (size_t i = 0; i < r->n_closed; i++)
		bucket_free(r->closed[i]);
	bucket_free(r->open);
	*r = (struct recent){};
}

struct serve_ops {
	/*
	 * Closes the window that is open now, and returns named copies of the open bucket and of those on
	 * their way to the store (take this before the store is read: a bucket in both is counted once).
	 * Blocks for a few seconds at most; where the drain thread does not answer, there is no open one.
	 */
	int (*snapshot)(void *ctx, struct recent *ret);
	/* Fills everything but `host`; strings are malloc'ed as protobuf-c wants them. */
	int (*status)(void *ctx, Sysprofd__V1__StatusResponse *ret);
	/* Likewise; `limit` binaries at most. */
	int (*stacks)(void *ctx, uint32_t limit, Sysprofd__V1__StacksResponse *ret);
	/* Hardware counters that there are, and why others are not. */
	void (*hardware)(void *ctx, struct hardware_state *ret);
	/*
	 * Of an enum sample_event, or -1: the one that drives the history. -EBUSY with *ret_why (static): too
	 * many bursts, or over the budget. -EINVAL: a bad rate. -EOPNOTSUPP: the event cannot be sampled.
	 */
	int (*record_start)(void *ctx, double hz, int event, const struct selection *sel,
			    struct record_session **ret, const char **ret_why);
	/* Samples so far; with ret_profile the burst ends and its profile is handed over. */
	int (*record_read)(void *ctx, struct record_session *s, uint64_t *ret_samples,
			   uint64_t *ret_lost, struct profile **ret_profile);
	void (*record_free)(void *ctx, struct record_session *s); /* ends it if it still runs */
	int (*put_work)(void *ctx, const char *name, const char *const *labels, size_t n_labels,
			uint64_t count, uint64_t wall_ns,
			bool privileged); /* labels: "key=value"; -ENOSPC: too many series */
};

struct serve_options {
	const char *socket_path; /* bound and listened on unless a descriptor is passed */
	int listen_fd; /* from socket activation, or -1 */
	const char *store_directory;
	const char *version;
	uint32_t max_connections; /* 64; beyond: an immediate 503 */
	uint32_t max_request_bytes; /* 65,536 */
	uint64_t max_answer_bytes; /* 64 MiB */
	uint64_t request_timeout_ns; /* from accept or the last answer to the whole request: 10 s */
	uint64_t query_timeout_ns; /* 30 s, or less as Connect-Timeout-Ms says */
	uint32_t workers; /* 2 */
	const char *group; /* members see everything: "sysprofd" */
	/* [access] allow=group:dev unit=foo*.service: pairs */
	struct access_rule {
		char *group;
		char *unit;
	} * rules;
	size_t n_rules;
};

struct server;

int server_new(sd_event *event, const struct serve_options *o, const struct serve_ops *ops,
	       void *ctx, struct server **ret);
struct server *server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free)

/*
 * Who sees what from now on; connections that are open keep what they had. Making one looks up groups, which may
 * ask the network: on any thread.
 */
struct access_policy;
int access_policy_new(const char *group, const struct access_rule *rules, size_t n_rules,
		      struct access_policy **ret);
struct access_policy *access_policy_free(struct access_policy *a);
void server_set_access(struct server *s, struct access_policy *a); /* takes it over */

/* A bucket has closed and is named: live streams get it. Main thread. The bucket stays the caller's. */
void server_publish(struct server *s, const struct bucket *b);

struct server_stats {
	uint64_t connections, accepted, refused_busy, requests, errors, timeouts, cancelled;
	uint64_t request_us_sum;
};
void server_stats(const struct server *s, struct server_stats *ret);
