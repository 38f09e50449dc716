// SPDX-License-Identifier: GPL-2.0-or-later
#include <grp.h>
#include <sys/socket.h>

#include "base/log.h"
#include "serve/peer.h"

#define GROUPS_MAX 65536 /* NGROUPS_MAX of the kernel */
#define GROUP_BUFFER_MAX (1 << 20)

/* 0, -ENOENT, or what the name service answered. */
static int find_group(const char *name, gid_t *ret)
{
	_cleanup_free_ char *buf = NULL;
	struct group g, *found = NULL;

	for (size_t size = 1024; size <= GROUP_BUFFER_MAX; size *= 4) {
		int r;

		free(buf);
		buf = malloc(size);
		if (!buf)
			return -ENOMEM;
		r = getgrnam_r(name, &g, buf, size, &found);
		if (r == ERANGE)
			continue;
		if (r)
			return -r;
		if (!found)
			return -ENOENT;
		*ret = g.gr_gid;
		return 0;
	}
	return -ERANGE;
}

static bool knows_group(const char *name, gid_t *ret)
{
	int r = find_group(name, ret);

	if (r < 0)
		log_info("socket: group %s grants nothing: %s", name,
			 r == -ENOENT ? "it does not exist" : strerrordesc_np(-r));
	return r == 0;
}

void access_policy_done(struct access_policy *a)
{
	for (size_t i = 0; i < a->n_grants; i++)
		free(a->grants[i].unit);
	free(a->grants);
	*a = (struct access_policy){};
}

int access_policy_init(struct access_policy *a, const char *group, const struct access_rule *rules,
		       size_t n_rules)
{
	*a = (struct access_policy){};
	if (!str_empty(group))
		a->has_admin_gid = knows_group(group, &a->admin_gid);
	if (n_rules > 0) {
		a->grants = new0(struct access_grant, n_rules);
		if (!a->grants)
			return -ENOMEM;
	}
	for (size_t i = 0; i < n_rules; i++) {
		struct access_grant *g = &a->grants[a->n_grants];

		if (!knows_group(rules[i].group, &g->gid))
			continue;
		g->unit = strdup(rules[i].unit);
		if (!g->unit) {
			access_policy_done(a);
			return -ENOMEM;
		}
		a->n_grants++;
	}
	return 0;
}

int access_policy_new(const char *group, const struct access_rule *rules, size_t n_rules,
		      struct access_policy **ret)
{
	struct access_policy *a = new0(struct access_policy, 1);
	int r;

	if (!a)
		return -ENOMEM;
	r = access_policy_init(a, group, rules, n_rules);
	if (r < 0) {
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

struct access_policy *access_policy_free(struct access_policy *a)
{
	if (!a)
		return NULL;
	access_policy_done(a);
	free(a);
	return NULL;
}

static bool has_gid(const gid_t *gids, size_t n, gid_t gid)
{
	for (size_t i = 0; i < n; i++)
		if (gids[i] == gid)
			return true;
	return false;
}

int peer_new_from(const struct access_policy *a, uid_t uid, const gid_t *gids, size_t n_gids,
		  struct peer **ret)
{
	_cleanup_(peer_unref_p) struct peer *p = new0(struct peer, 1);
	struct visibility *v;

	if (!p)
		return -ENOMEM;
	p->n_ref = 1;
	p->uid = uid;
	v = &p->visibility;
	v->uid = uid;
	v->all = uid == 0 || (a->has_admin_gid && has_gid(gids, n_gids, a->admin_gid));
	if (!v->all && a->n_grants > 0) {
		v->units = new0(char *, a->n_grants);
		if (!v->units)
			return -ENOMEM;
	}
	for (size_t i = 0; !v->all && i < a->n_grants; i++) {
		if (!has_gid(gids, n_gids, a->grants[i].gid))
			continue;
		v->units[v->n_units] = strdup(a->grants[i].unit);
		if (!v->units[v->n_units])
			return -ENOMEM;
		v->n_units++;
	}
	*ret = TAKE_PTR(p);
	return 0;
}

int peer_new(const struct access_policy *a, int fd, struct peer **ret)
{
	_cleanup_free_ gid_t *gids = NULL;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	size_t n;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return negative_errno();
	/* The kernel says how many there are when they do not fit. */
	for (len = 64 * sizeof(gid_t);;) {
		socklen_t have = len;

		free(gids);
		gids = malloc(len + sizeof(gid_t));
		if (!gids)
			return -ENOMEM;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, gids, &len) == 0)
			break;
		if (errno != ERANGE || len <= have || len > GROUPS_MAX * sizeof(gid_t))
			return negative_errno();
	}
	n = len / sizeof(gid_t);
	gids[n++] = cred.gid;
	return peer_new_from(a, cred.uid, gids, n, ret);
}

struct peer *peer_ref(struct peer *p)
{
	p->n_ref++;
	return p;
}

struct peer *peer_unref(struct peer *p)
{
	if (!p || --p->n_ref > 0)
		return NULL;
	for (size_t i = 0; i < p->visibility.n_units; i++)
		free(p->visibility.units[i]);
	free(p->visibility.units);
	free(p);
	return NULL;
}
