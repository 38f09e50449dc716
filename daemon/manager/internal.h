/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of manager/ share. */
#pragma once

#include <pthread.h>
#include <systemd/sd-event.h>

#include "fetch/fetch.h"
#include "manager/archive.h"
#include "manager/config.h"
#include "manager/loader.h"
#include "manager/manager.h"
#include "manager/recorder.h"
#include "manager/work.h"
#include "serve/serve.h"
#include "symbol/symbolizer.h"

#define STORED_MAX 8

/* The reload that is under way. */
struct reload {
	struct loader *loader; /* NULL: none */
	struct loaded loaded; /* what it made, until that is in force */
	struct recorder_options options;
	sd_event_source *source; /* of the loader's end */
	int replaced_fd; /* eventfd: the drain thread has left `result` */
	int result;
	bool again; /* another SIGHUP came meanwhile */
};

struct manager {
	struct manager_options options;
	struct config *config; /* at the start: names and paths do not change while running */
	struct config *reloaded; /* what the rest follows since the last reload, or NULL */
	uint64_t start_mono_ns;

	sd_event *event;
	struct fetch *fetch; /* or NULL */
	struct symbolizer *symbolizer;
	struct archive *archive;
	struct recorder *recorder;
	char *table_cache; /* directory */
	struct server *server;
	struct work work;
	struct reload reload;

	uint64_t watchdog_ns; /* 0: none wanted */

	/* Stored buckets on their way to live streams; filled by the archive thread. */
	pthread_mutex_t stored_lock;
	struct bucket *stored[STORED_MAX];
	size_t n_stored;
	uint64_t stored_dropped;
	int stored_fd; /* eventfd */
};

/* manager.c */
int manager_load_config(const struct manager_options *o, struct config **ret,
			struct strbuf *problems);
void manager_log_problems(const struct strbuf *problems);
void manager_log_sources(struct manager *m, const struct collect_options *o);

/* reload.c */
int manager_reload_init(struct manager *m);
int manager_reload(sd_event_source *s, const struct signalfd_siginfo *si, void *ctx);
void manager_reload_done(struct manager *m);

/* options.c: the configuration as each stage wants it */
void manager_recorder_options(struct manager *m, const struct config *c,
			      struct recorder_options *ret);
void manager_store_options(struct manager *m, const struct config *c, struct store_options *ret);
const char *manager_state_directory(const struct manager *m);

/* status.c */
void manager_hardware(void *ctx, struct hardware_state *ret);
int manager_stacks(void *ctx, uint32_t limit, Sysprofd__V1__StacksResponse *ret);
int manager_status(void *ctx, Sysprofd__V1__StatusResponse *ret);
void manager_status_line(struct manager *m, char *buf, size_t size);

/* record.c, answer.c: what the server asks for, on its worker threads */
int manager_snapshot(void *ctx, struct recent *ret);
int manager_put_work(void *ctx, const char *name, const char *const *labels, size_t n_labels,
		     uint64_t count, uint64_t wall_ns, bool privileged);
int manager_record_start(void *ctx, double hz, int event, const struct selection *sel,
			 struct record_session **ret, const char **ret_why);
int manager_record_read(void *ctx, struct record_session *s, uint64_t *ret_samples,
			uint64_t *ret_lost, struct profile **ret_profile);
void manager_record_free(void *ctx, struct record_session *s);
