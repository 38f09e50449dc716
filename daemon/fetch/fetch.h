/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Debug files from debuginfod servers, for who configured such. Nobody waits for them: what is not in the directory is
 * wished for, a thread has it fetched, each by a process of its own, and who asks again later finds it. That a server
 * does not have a file is remembered, and so is that it could not be asked, for a shorter time.
 *
 * Thread-safe.
 */
#pragma once

#include "base/clock.h"

#define FETCH_FILE_MAX (1ULL << 30) /* of one file, whatever the directory may hold */
#define FETCH_ID_MAX 64 /* hexadecimal digits of a build-id */

struct fetch_options {
	const char *urls; /* separated by blanks */
	const char *directory; /* created with the first file, in one that is there */
	uint64_t bytes_max; /* of all files; one may have half of that */
	uint64_t timeout_ns; /* for one file; 0: 2 min */
	uint64_t retry_ns; /* after a failure; 0: 10 min */
	unsigned burst; /* wishes that are taken at once; 0: 256 */
};

struct fetch;
int fetch_new(const struct fetch_options *o, struct fetch **ret);
/* Does not wait for a server. */
struct fetch *fetch_free(struct fetch *f);
DEFINE_CLEANUP(struct fetch *, fetch_free)

/* A descriptor. -EAGAIN: it may be there later. -ENOENT: no server has it. -EINVAL: no build-id. */
int fetch_open(struct fetch *f, const char *build_id) _warn_unused_;

struct fetch_stats {
	uint64_t fetched, missing, failed; /* files; failed: also what was something else */
	uint64_t refused; /* wishes, for too many were waiting, or came within an hour */
	int pid; /* 0: none runs */
};
void fetch_get_stats(struct fetch *f, struct fetch_stats *ret);
