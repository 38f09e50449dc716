/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a helper begins: with nothing of the daemon's but one end of its socketpair. */
#pragma once

#include "helper/channel.h"

/*
 * how: "FD:BYTES", as helper/process.c writes it. Closes all other descriptors, makes the channel, and takes the name.
 * ret_memory: the limit, which is set by the helper itself: it may become another user.
 */
int helper_begin(const char *how, const char *name, size_t message_max, struct channel *ret,
		 uint64_t *ret_memory) _warn_unused_;
