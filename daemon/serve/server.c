// SPDX-License-Identifier: GPL-2.0-or-later
#include "serve/internal.h"

static void options_done(struct serve_options *o)
{
	free((char *)o->socket_path);
	free((char *)o->store_directory);
	free((char *)o->version);
}

static int copy_string(const char *from, const char **to)
{
	*to = NULL;
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

/* The group and the rules are resolved into the policy, and not kept. */
static int options_copy(const struct serve_options *from, struct serve_options *to)
{
	*to = *from;
	to->group = NULL;
	to->rules = NULL;
	to->n_rules = 0;
	to->socket_path = to->store_directory = to->version = NULL;
	if (copy_string(from->socket_path, &to->socket_path) < 0 ||
	    copy_string(from->store_directory, &to->store_directory) < 0 ||
	    copy_string(from->version, &to->version) < 0)
		return -ENOMEM;
	return 0;
}

struct server *server_free(struct server *s)
{
	if (!s)
		return NULL;
	/* Exchanges first: they cancel their calls, which the pool then waits for. */
	http_stop(s);
	listener_close(s);
	worker_pool_free(s->pool);
	snapshot_unref(s->snapshot);
	pthread_mutex_destroy(&s->snapshot_lock);
	access_policy_done(&s->policy);
	options_done(&s->o);
	sd_event_unref(s->event);
	free(s);
	return NULL;
}

static int start(struct server *s, const struct serve_options *o)
{
	int r = options_copy(o, &s->o);

	if (r < 0)
		return r;
	r = access_policy_init(&s->policy, o->group, o->rules, o->n_rules);
	if (r < 0)
		return r;
	r = worker_pool_new(s->event, MAX(s->o.workers, 1U), QUEUE_MAX, s->o.store_directory,
			    &s->pool);
	if (r < 0)
		return r;
	r = http_start(s);
	return r < 0 ? r : listener_open(s);
}

int server_new(sd_event *event, const struct serve_options *o, const struct serve_ops *ops,
	       void *ctx, struct server **ret)
{
	_cleanup_(server_free_p) struct server *s = new0(struct server, 1);
	int r;

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->snapshot_lock, NULL);
	s->event = sd_event_ref(event);
	s->ops = ops;
	s->ops_ctx = ctx;
	s->listen_fd = s->reserve_fd = -1;
	s->o.listen_fd = -1;
	s->log_accept.interval_ns = s->log_query.interval_ns = 60 * NSEC_PER_SEC;
	r = start(s, o);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

void server_set_access(struct server *s, struct access_policy *a)
{
	access_policy_done(&s->policy);
	s->policy = *a;
	free(a);
}

void server_publish(struct server *s, const struct bucket *b)
{
	snapshot_drop(s);
	watch_publish(s, b);
}

void server_stats(const struct server *s, struct server_stats *ret)
{
	*ret = (struct server_stats){
		.connections = s->stats.connections,
		.accepted = s->stats.accepted,
		.refused_busy = s->stats.refused_busy,
		.requests = s->stats.requests,
		.errors = s->stats.errors,
		.timeouts = s->stats.timeouts,
		.cancelled = s->stats.cancelled,
		.request_us_sum = s->stats.request_us_sum,
	};
}
