/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The insides of the process table, shared by the files that make it up and by nobody else:
 *
 *   process.c      the table: generations, limits, expiry, labels
 *   snapshot.c     what /proc tells
 *   event.c        what side-band records tell
 *   thread-name.c  names of threads
 *   resolve.c      addresses
 *   jit.c          who makes code at run time
 *
 * Generations. Processes with one tgid form a chain, newest first. What is known of a start time is an
 * interval: /proc gives a clock tick (10 ms), a FORK record the moment just after; the first sample gives it
 * exactly. A sample (tgid, start) belongs to the generation whose interval holds its start.
 */
#pragma once

#include <sys/queue.h>

#include "collect/jit-map.h"
#include "collect/labels.h"
#include "collect/mapping.h"
#include "collect/names.h"
#include "collect/process.h"
#include "collect/sideband.h"

struct thread_name {
	uint32_t tid;
	struct name *name;
	uint64_t exit_mono_ns; /* 0: alive */
};

struct past_image {
	struct image *image;
	uint64_t from_mono_ns, until_mono_ns;
};

struct data_map {
	uint64_t start, end, offset;
	struct object *object; /* owned reference */
	bool shared;
};

struct process {
	struct process_table *table;
	uint32_t id;
	uint32_t older; /* id of the generation before, or 0 */
	uint32_t tgid, parent;
	uint64_t start_lo, start_hi; /* CLOCK_BOOTTIME, both included */
	uint64_t known_mono_ns; /* when it was found in /proc; 0: by its FORK record */
	uint64_t exit_mono_ns; /* 0: alive */
	uint64_t
		read_mono_ns; /* when its attributes were read from /proc, or inherited; 0: never */
	uint64_t scan; /* the last scan that saw it */

	bool kernel_thread;
	bool is_private;
	bool loaded; /* attributes and mappings are known, or can never be */
	bool multi_threaded; /* or maybe */
	bool leader_gone; /* the main thread ended, others run on */
	uint32_t uid;

	struct name *comm;
	struct name *exe;
	struct object *exe_object; /* owned */
	struct object
		*program; /* owned; where exe is the dynamic loader: what it was told to run */
	struct name *cgroup, *unit, *container, *pod, *namespace_;

	struct image *image;
	uint64_t image_mono_ns; /* since when */
	struct past_image *past;
	size_t n_past, cap_past;

	struct thread_name *threads; /* by tid */
	size_t n_threads, cap_threads;

	struct data_map *data;
	size_t n_data, cap_data;
	uint64_t data_mono_ns; /* when they were read; 0: they were not */
	uint64_t data_window; /* not again before */

	uint64_t jit_key; /* of the names of code that it makes; 0: none was seen */
	uint64_t jit_window; /* not to be looked after before */

	/* Resync on demand: not again before this window; the pause doubles while it finds nothing new. */
	uint64_t resync_window;
	uint32_t resync_pause;

	TAILQ_ENTRY(process)
	link; /* live: least recently sampled first; exited: in order of exit */
	TAILQ_ENTRY(process) load_link; /* not loaded */
	TAILQ_ENTRY(process) dirty_link; /* has something to expire */
	bool dirty;
};

TAILQ_HEAD(process_list, process);

struct process_table {
	struct process_options o;
	char *pods;
	int proc_fd;
	int64_t boottime_offset_ns; /* of our time namespace */
	uint64_t tick_ns;
	struct sideband *sideband;
	struct opener *opener;
	struct binaries *binaries;
	struct jit_maps *jit_maps;
	struct names names;

	struct process **items; /* [0] unused */
	size_t n, cap;
	uint32_t *unused;
	size_t n_unused, cap_unused;
	struct index by_tgid; /* to the newest generation */
	struct process_list live, exited, loading, dirty;
	size_t n_live, n_exited, n_thread_names;

	uint64_t now_mono_ns; /* of this poll */
	uint64_t mono_to_boot_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC */
	uint64_t scan;
	uint64_t window;
	bool rescan; /* records were lost */
	uint64_t rescan_mono_ns, rescan_took_ns;

	ksymbol_fn ksymbol;
	void *ksymbol_ctx;

	uint64_t resyncs, evicted, refused_mappings, dropped_images, refused_names;
};

/* ---- process.c ------------------------------------------------------------------------------------------ */

/* The newest generation, or NULL. */
struct process *table_newest(struct process_table *t, uint32_t tgid);
/* A new generation in its place in the chain, without any attribute. */
struct process *table_add(struct process_table *t, uint32_t tgid, uint64_t start_lo,
			  uint64_t start_hi);
/* Makes room for one more below the limit. Frees processes: no pointer to any may be held. */
void table_make_room(struct process_table *t);
void process_exit(struct process *p, uint64_t mono_ns);
void process_revive(struct process *p);
void process_set_loaded(struct process *p);
void process_set_unloaded(struct process *p); /* what is known must be compared with /proc */
void process_mark_dirty(struct process *p);
/* Takes the attributes and the image of another one: what fork does. */
void process_inherit(struct process *p, const struct process *from);
void process_set_object(struct process *p, struct object **slot,
			struct object *o); /* takes over o */
bool process_starts_at(const struct process *p, uint64_t start);
void process_clear_data(struct process *p);
const char *path_base_name(const char *path);

/* ---- snapshot.c ----------------------------------------------------------------------------------------- */

/* Creates what /proc lists and is not known, ends what it does not list any more. */
int snapshot_scan(struct process_table *t);
/* From /proc, if it is there with that start (0: any) and no other known one may be it; else NULL. */
struct process *snapshot_find(struct process_table *t, uint32_t tgid, uint64_t start);
/* Reads all that /proc knows: attributes and mappings. A process that has gone is given up. */
void snapshot_load(struct process *p);
/* Owner, cgroup, privacy again: now and then, and, cheaper, after an exec. */
void snapshot_refresh(struct process *p);
void snapshot_exec(struct process *p);
/* The mappings again. */
void snapshot_maps(struct process *p);
/* All mappings, data included, into p->data. */
void snapshot_data(struct process *p);
/* The directory of the process in /proc, or -errno. */
int snapshot_open(const struct process *p);
/* Whether /proc shows that threads besides the main one run. */
bool snapshot_has_threads(struct process *p);

/* ---- event.c --------------------------------------------------------------------------------------------- */

void event_apply(void *table, const struct sideband_event *e);
/* Whether a dynamic loader has this name, or comm. */
bool is_loader(const char *name);

/* ---- jit.c ------------------------------------------------------------------------------------------------ */

/* It has mapped this. */
void jit_mapped(struct process *p, const struct mapping *m);
void jit_exec(struct process *p);
/* The key by which its code may be named, or 0. */
uint64_t jit_key(struct process *p);
void jit_done(struct process *p);

/* ---- thread-name.c ----------------------------------------------------------------------------------- */

/* Takes a reference of its own. Above the limits the name is not kept, which is counted. */
void thread_set_name(struct process *p, uint32_t tid, struct name *name);
struct name *thread_get_name(struct process *p, uint32_t tid); /* borrowed, or NULL */
void thread_exit(struct process *p, uint32_t tid, uint64_t mono_ns);
bool threads_expire(struct process *p, uint64_t mono_ns); /* true when nothing is left to expire */
void threads_done(struct process *p);
