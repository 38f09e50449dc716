/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of manager/ share. */
#pragma once

#include <pthread.h>
#include <systemd/sd-event.h>

#include "manager/archive.h"
#include "manager/config.h"
#include "manager/manager.h"
#include "manager/recorder.h"
#include "manager/work.h"
#include "serve/serve.h"
#include "symbol/symbolizer.h"

#define STORED_MAX 8

struct manager {
	struct manager_options options;
	struct config *config; /* at the start: names and paths do not change while running */
	uint64_t start_mono_ns;

	sd_event *event;
	struct symbolizer *symbolizer;
	struct archive *archive;
	struct recorder *recorder;
	struct server *server;
	struct work work;

	uint64_t watchdog_ns; /* 0: none wanted */

	/* Stored buckets on their way to live streams; filled by the archive thread. */
	pthread_mutex_t stored_lock;
	struct bucket *stored[STORED_MAX];
	size_t n_stored;
	uint64_t stored_dropped;
	int stored_fd; /* eventfd */
};

/* options.c: the configuration as each stage wants it */
void manager_recorder_options(struct manager *m, const struct config *c,
			      struct recorder_options *ret);
void manager_store_options(struct manager *m, const struct config *c, struct store_options *ret);
const char *manager_state_directory(const struct manager *m);

/* status.c */
int manager_status(void *ctx, Sysprofd__V1__StatusResponse *ret);
void manager_status_line(struct manager *m, char *buf, size_t size);

/* record.c, answer.c: what the server asks for, on its worker threads */
int manager_snapshot(void *ctx, struct recent *ret);
int manager_put_work(void *ctx, const char *name, const char *const *labels, size_t n_labels,
		     uint64_t count, uint64_t wall_ns);
int manager_record_start(void *ctx, double hz, const struct selection *sel,
			 struct record_session **ret, const char **ret_why);
int manager_record_read(void *ctx, struct record_session *s, uint64_t *ret_samples,
			uint64_t *ret_lost, struct profile **ret_profile);
void manager_record_free(void *ctx, struct record_session *s);
