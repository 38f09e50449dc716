/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A few threads for what may block or take long. A job is run by one of them and then finished on the main
 * thread. Jobs of peers without privilege never occupy the last thread of several, and wait in a queue of
 * their own, so that they cannot keep an administrator waiting.
 */
#pragma once

#include <systemd/sd-event.h>

#include "store/store.h"

struct worker;
struct worker_pool;

struct job {
	struct job *next;
	bool privileged;
	bool ran; /* false in done() when the pool was closed first */
	void (*run)(struct job *j, struct worker *w); /* on a worker thread */
	void (*done)(struct job *j); /* on the main thread, exactly once; owns the job */
};

int worker_pool_new(sd_event *event, unsigned n_threads, size_t max_queue,
		    const char *store_directory, struct worker_pool **ret);
/* Waits for the jobs that are running (cancel them first), finishes all others unrun. */
struct worker_pool *worker_pool_free(struct worker_pool *p);
DEFINE_CLEANUP(struct worker_pool *, worker_pool_free)

/* -EBUSY when the queue is full: the job stays the caller's. */
int worker_pool_submit(struct worker_pool *p, struct job *j);
/* For jobs that must not be refused, such as releasing what an earlier one took. Never fails. */
void worker_pool_submit_always(struct worker_pool *p, struct job *j);

/* The worker's own connection to the store; NULL when there is no store to read yet. */
struct store_reader *worker_reader(struct worker *w);
