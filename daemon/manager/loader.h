/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes what a new configuration needs on a thread of its own: a collector, since the kernel takes from a fifth of
 * a second up to half a minute to verify its programs, and the access policy, for which groups are looked up.
 * Whoever does not want to wait any more lets go of it: then the thread frees what it made.
 */
#pragma once

#include "collect/collect.h"
#include "manager/config.h"

struct loader;

/* Takes the configuration over, whatever the result. Without `o` no collector is made. */
int loader_start(struct config *c, const struct collect_options *o, struct loader **ret);
/* Readable when it has finished. */
int loader_fd(const struct loader *l);

struct loaded {
	struct config *config;
	struct collector *collector; /* or NULL */
	struct access_policy *access;
};
void loaded_done(struct loaded *l);
/* Once it has finished: all of it, or an error with *ret_why, NULL or to be freed. */
int loader_take(struct loader *l, struct loaded *ret, char **ret_why);
struct loader *loader_free(struct loader *l);
