// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of methods, and the handlers that ask the manager rather than history. */
#include <stdio.h>

#include "base/clock.h"
#include "serve/internal.h"

#define WORK_NAME_MAX 64
#define WORK_LABELS_MAX 8
#define WORK_VALUE_MAX 128

const struct method methods[] = {
	{ "Status", true, false, &sysprofd__v1__status_request__descriptor, method_status },
	{ "Stacks", true, false, &sysprofd__v1__stacks_request__descriptor, method_stacks },
	{ "ProfileTypes", true, false, &sysprofd__v1__profile_types_request__descriptor,
	  method_profile_types },
	{ "Labels", true, false, &sysprofd__v1__labels_request__descriptor, method_labels },
	{ "LabelValues", true, false, &sysprofd__v1__label_values_request__descriptor,
	  method_label_values },
	{ "Merge", true, false, &sysprofd__v1__merge_request__descriptor, method_merge },
	{ "Top", true, false, &sysprofd__v1__top_request__descriptor, method_top },
	{ "OffCpu", true, false, &sysprofd__v1__off_cpu_request__descriptor, method_off_cpu },
	{ "Locks", true, false, &sysprofd__v1__locks_request__descriptor, method_locks },
	{ "Syscalls", true, false, &sysprofd__v1__syscalls_request__descriptor, method_syscalls },
	{ "Counters", true, false, &sysprofd__v1__counters_request__descriptor, method_counters },
	{ "Series", true, false, &sysprofd__v1__series_request__descriptor, method_series },
	{ "ListBuckets", true, false, &sysprofd__v1__list_buckets_request__descriptor,
	  method_list_buckets },
	{ "PutWork", false, false, &sysprofd__v1__put_work_request__descriptor, method_put_work },
	{ "Watch", false, true, &sysprofd__v1__watch_request__descriptor, NULL, stream_open_watch },
	{ "Record", false, true, &sysprofd__v1__record_request__descriptor, NULL,
	  stream_open_record },
};
const size_t n_methods = ARRAY_SIZE(methods);
_Static_assert(ARRAY_SIZE(methods) <= METHOD_MAX, "METHOD_MAX");

const struct method *method_find(const char *name)
{
	for (size_t i = 0; i < n_methods; i++)
		if (streq(methods[i].name, name))
			return &methods[i];
	return NULL;
}

int method_status(struct call *c, struct worker *w)
{
	Sysprofd__V1__StatusResponse *m = malloc(sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	sysprofd__v1__status_response__init(m);
	r = c->server->ops->status(c->server->ops_ctx, m);
	if (r >= 0)
		r = call_reply(c, &m->base, &m->host);
	sysprofd__v1__status_response__free_unpacked(m, NULL);
	return r;
}

int method_stacks(struct call *c, struct worker *w)
{
	const Sysprofd__V1__StacksRequest *q = (const Sysprofd__V1__StacksRequest *)c->request;
	Sysprofd__V1__StacksResponse *m;
	int r;

	/* Which programs others run is not for everybody. */
	if (!c->peer->visibility.all)
		return rpc_fail(&c->error, RPC_PERMISSION_DENIED,
				"only root and the daemon's group may see the binaries of all");
	m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	sysprofd__v1__stacks_response__init(m);
	r = c->server->ops->stacks(c->server->ops_ctx, q->limit, m);
	if (r >= 0)
		r = call_reply(c, &m->base, &m->host);
	sysprofd__v1__stacks_response__free_unpacked(m, NULL);
	return r;
}

int method_profile_types(struct call *c, struct worker *w)
{
	static const char *const descriptions[PROFILE_TYPE_N] = {
		[PROFILE_ON_CPU] =
			"What ran on a CPU: sampled stacks, and the time they stand for.",
		[PROFILE_OFF_CPU] = "What waited, by cause: exact time per thread, stacks sampled.",
		[PROFILE_SYSCALLS] = "System calls: exact counts by number and errno.",
		[PROFILE_FUTEX] =
			"Waits for locks in user space: count, time and longest, by lock.",
	};
	Sysprofd__V1__ProfileTypesResponse m = SYSPROFD__V1__PROFILE_TYPES_RESPONSE__INIT;
	Sysprofd__V1__ProfileTypeInfo infos[PROFILE_TYPE_N], *types[PROFILE_TYPE_N];

	for (int i = 0; i < PROFILE_TYPE_N; i++) {
		sysprofd__v1__profile_type_info__init(&infos[i]);
		infos[i].type = (Sysprofd__V1__ProfileType)(i + 1);
		infos[i].name = (char *)profile_type_name((enum profile_type)i);
		infos[i].unit = (char *)profile_type_unit((enum profile_type)i);
		infos[i].description = (char *)descriptions[i];
		types[i] = &infos[i];
	}
	m.types = types;
	m.n_types = PROFILE_TYPE_N;
	return call_reply(c, &m.base, &m.host);
}

/* ---- PutWork ----------------------------------------------------------------------------------- */

/* [a-z_][a-z0-9_.-]*: what every system of metrics can take. */
static bool valid_name(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > WORK_NAME_MAX || !((*s >= 'a' && *s <= 'z') || *s == '_'))
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == n;
}

static bool valid_value(const char *s)
{
	if (strlen(s) > WORK_VALUE_MAX)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

static int add_label(char **labels, size_t *n, const char *key, const char *value)
{
	char *s;

	if (asprintf(&s, "%s=%s", key, value) < 0)
		return -ENOMEM;
	labels[(*n)++] = s;
	return 0;
}

static int work_labels(struct call *c, const Sysprofd__V1__PutWorkRequest *m, char **labels,
		       size_t *n)
{
	char uid[16];

	if (m->n_labels > WORK_LABELS_MAX)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "at most %d labels",
				WORK_LABELS_MAX);
	for (size_t i = 0; i < m->n_labels; i++) {
		const char *key = m->labels[i]->key, *value = m->labels[i]->value;

		if (!valid_name(key) || !valid_value(value))
			return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "bad label \"%s\"", key);
		/* The peer's own uid is the one label that cannot be made up. */
		if (streq(key, "uid") && !c->peer->visibility.all)
			return rpc_fail(&c->error, RPC_PERMISSION_DENIED,
					"the label \"uid\" is set by the server");
		if (add_label(labels, n, key, value) < 0)
			return -ENOMEM;
	}
	if (c->peer->visibility.all)
		return 0;
	snprintf(uid, sizeof(uid), "%u", c->peer->uid);
	return add_label(labels, n, "uid", uid);
}

int method_put_work(struct call *c, struct worker *w)
{
	const Sysprofd__V1__PutWorkRequest *m = (const Sysprofd__V1__PutWorkRequest *)c->request;
	Sysprofd__V1__PutWorkResponse response = SYSPROFD__V1__PUT_WORK_RESPONSE__INIT;
	char *labels[WORK_LABELS_MAX + 1];
	size_t n = 0;
	int r;

	if (!valid_name(m->name))
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT,
				"a name is [a-z_][a-z0-9_.-]*, at most %d characters",
				WORK_NAME_MAX);
	r = work_labels(c, m, labels, &n);
	if (r >= 0)
		r = c->server->ops->put_work(c->server->ops_ctx, m->name,
					     (const char *const *)labels, n, m->count,
					     m->time_ns ?: wall_now_ns(), c->peer->visibility.all);
	for (size_t i = 0; i < n; i++)
		free(labels[i]);
	if (r == -ENOSPC)
		return rpc_fail(&c->error, RPC_RESOURCE_EXHAUSTED, "too many series of work");
	if (r == -EINVAL)
		return rpc_fail(
			&c->error, RPC_INVALID_ARGUMENT,
			"values of labels are [A-Za-z0-9_.:/-]+, times are within a minute");
	if (r < 0)
		return r;
	return call_reply(c, &response.base, &response.host);
}
