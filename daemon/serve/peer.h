/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who is at the other end, and what they may see: root and members of the configured group see everything,
 * anyone else the processes of their own uid and what access rules grant to groups they are in. Groups are those
 * that the peer's process had when it connected (SO_PEERGROUPS), as for files.
 */
#pragma once

#include <sys/types.h>

#include "query/query.h"
#include "serve/serve.h"

/* Names of groups resolved once: looking them up may ask the network. */
struct access_policy {
	gid_t admin_gid;
	bool has_admin_gid;
	struct access_grant {
		gid_t gid;
		char *unit;
	} * grants;
	size_t n_grants;
};
/* A group that does not exist grants nothing, and is named in the log. */
int access_policy_init(struct access_policy *a, const char *group, const struct access_rule *rules,
		       size_t n_rules);
void access_policy_done(struct access_policy *a);

/* Shared by a connection and the requests that outlive it. The count is the main thread's. */
struct peer {
	unsigned n_ref;
	uid_t uid;
	struct visibility visibility; /* units belong to the peer */
};
int peer_new(const struct access_policy *a, int fd, struct peer **ret);
/* For tests and for transports without credentials: what `uid` with these groups sees. */
int peer_new_from(const struct access_policy *a, uid_t uid, const gid_t *gids, size_t n_gids,
		  struct peer **ret);
struct peer *peer_ref(struct peer *p);
struct peer *peer_unref(struct peer *p);
DEFINE_CLEANUP(struct peer *, peer_unref)
