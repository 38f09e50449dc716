/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One exchange after another with a parser, a process that reads files of strangers: a request, the wait for its answer,
 * and what becomes of a parser that gives none. A request that a deadline leaves behind stays under way; only
 * reply_timeout_ns after it was sent the parser counts as hung. Files that killed it or made it hang are poisoned.
 *
 * Not thread-safe, but for the counters.
 */
#pragma once

#include "helper/limits.h"
#include "helper/poison.h"
#include "helper/process.h"
#include "sysprofd/v1/helper.pb-c.h"

/* What travels with a request; descriptors stay the caller's. */
struct exchange_files {
	int file, debug; /* -1: none */
	struct exchange_part {
		int fd;
		uint64_t id; /* of wanted_files */
	} parts[HELPER_PARTS_MAX];
	size_t n_parts;
};

struct exchange {
	struct helper_process parser;
	struct poison poison;
	uint64_t reply_timeout_ns;
	bool active; /* a request is under way */
	struct identity file; /* that it is about */
	uint64_t last_id, sent_mono_ns;
	unsigned extensions; /* of its time */
	atomic_uint_fast64_t requests, crashes, timeouts;
	atomic_int pid; /* 0: none runs */
};

/* memory: RLIMIT_AS of the parser. */
void exchange_init(struct exchange *e, uint64_t memory, uint64_t reply_timeout_ns);
/* Stops the parser; the next request starts another one. */
void exchange_done(struct exchange *e);

/*
 * Sends a request about a file, none being under way; q->id is set. A parser that died idle is replaced once, at
 * nobody's expense.
 */
int exchange_send(struct exchange *e, const struct identity *file, Sysprofd__V1__ParseRequest *q,
		  const struct exchange_files *files, uint64_t deadline_mono_ns);
/*
 * -ETIMEDOUT: the deadline came first, the request stays under way. Other errors: there will be no answer. To be
 * followed by exchange_end().
 */
int exchange_receive(struct exchange *e, uint64_t deadline_mono_ns,
		     Sysprofd__V1__ParseResponse **ret, int *ret_fd);
/* What the answer was worth: -EREMOTEIO is the file's fault, other errors are the parser's, which is killed. */
void exchange_end(struct exchange *e, Sysprofd__V1__ParseResponse *m, int error);
