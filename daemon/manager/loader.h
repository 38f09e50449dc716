/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes a collector on a thread of its own, since the kernel takes from a fifth of a second up to half a minute
 * to verify its programs, and cannot be interrupted. Whoever does not want to wait any more lets go of it: then
 * the thread frees what it made.
 */
#pragma once

#include "collect/collect.h"

struct loader;

int loader_start(const struct collect_options *o, struct loader **ret);
/* Readable when it has finished. */
int loader_fd(const struct loader *l);
/* Once it has finished: collector_new()'s result. */
int loader_take(struct loader *l, struct collector **ret, char **ret_why);
struct loader *loader_free(struct loader *l);
