/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The nodes of bpf/unwind.h: one pool of equal pieces in array maps of 1 MiB, which are made when they are needed and
 * given back when they are empty. Nodes are written through a mapping, without bpf(2), during which a CPU takes no
 * samples. What is freed may still be read by a walk: it is used anew only after two pool_settle(), between which a
 * grace period must have passed.
 *
 * Not thread-safe.
 */
#pragma once

#include "../bpf/sysprofd.h"
#include "base/util.h"

struct pool;

/* limit: bytes of nodes, rounded down to whole maps, of which there is always one. -EPERM and other errors of bpf(2). */
int pool_new(uint64_t limit, struct pool **ret);
struct pool *pool_free(struct pool *p);
DEFINE_CLEANUP(struct pool *, pool_free)

int pool_fd(const struct pool *p); /* of the map of maps */

/* n nodes, or none of them: -ENOSPC beyond the limit, -ENOMEM. They hold anything. */
int pool_take(struct pool *p, uint32_t *ret, size_t n) _warn_unused_;
void pool_give_back(struct pool *p, const uint32_t *nodes, size_t n);
/* A node's memory until pool_unmap(); NULL without memory for the mapping, or when there is no such node. */
void *pool_at(struct pool *p, uint32_t node);
/* Mapped pages would count as the daemon's memory beside the map's. */
void pool_unmap(struct pool *p);
void pool_settle(struct pool *p);

size_t pool_room(const struct pool *p); /* nodes that may still be taken */
uint64_t pool_bytes(const struct pool *p); /* of the maps */
uint64_t pool_limit(const struct pool *p); /* of the maps; one at least */
uint64_t pool_used(const struct pool *p); /* of the nodes that are taken */
