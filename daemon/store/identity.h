/* SPDX-License-Identifier: GPL-2.0-or-later */
/* store.id: what must outlive every day file. Written whole, by rename. */
#pragma once

#include "base/util.h"

#define STORE_UUID_MAX 33

struct identity {
	char uuid[STORE_UUID_MAX]; /* 32 lower-case hexadecimal digits */
	uint64_t
		next_seq; /* numbers below were given out; perhaps some more since this was written, */
	uint64_t reserved_seq; /* but none from here on */
	uint64_t trusted_wall_ns; /* how far retention believes the clock */
};

int identity_new(struct identity *ret) _warn_unused_;
/* -ENOENT, -EBADMSG for anything that we would not have written. */
int identity_load(int directory_fd, struct identity *ret) _warn_unused_;
int identity_save(int directory_fd, const struct identity *id) _warn_unused_;
