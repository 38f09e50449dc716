/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the unwinder share: tables (install.c), processes and spaces (space.c). Under the lock. */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "base/index.h"
#include "unwind/pool.h"
#include "unwind/rules.h"
#include "unwind/unwinder.h"

enum installed_state {
	INSTALLED_WANTED, /* nobody works at it yet */
	INSTALLED_BUILDING,
	INSTALLED_READY,
	INSTALLED_LACKING, /* see lack */
};

/* A binary that somebody maps, with its table or without. */
struct installed {
	uint64_t binary;
	uint32_t id; /* in unwinder.tables */
	uint32_t refs; /* spaces that map it */
	enum installed_state state;
	enum unwind_lack lack;
	uint64_t retry_mono_ns; /* LACKING: to be wanted again then; 0: never */
	uint64_t used; /* unwinder.turn of the last sample */
	uint64_t file_size; /* of the file that the table was built from */
	uint32_t root;
	uint32_t *nodes;
	size_t n_nodes;
	uint16_t *rules;
	size_t n_rules;
	struct table_segment segments[TABLE_SEGMENTS_MAX];
	size_t n_segments;
	TAILQ_ENTRY(installed) link; /* wanted, or lacking */
};
TAILQ_HEAD(installed_list, installed);

struct region {
	uint64_t start, end, offset;
	struct installed *table; /* NULL: memory without a file */
};

/* One set of mappings, as any number of processes have it. */
struct space {
	uint64_t version;
	uint32_t id;
	uint32_t refs; /* processes */
	uint32_t number; /* for the memo: new whenever the nodes are */
	bool stale; /* a table came or went: nodes are to be made anew */
	struct region *regions;
	size_t n_regions;
	uint32_t nodes[1 + UNWIND_LISTS];
	size_t n_nodes; /* 0: not installed */
	bool deep;
	LIST_ENTRY(space) link;
	LIST_HEAD(, member) members;
};

/* A process. */
struct member {
	struct unwind_process_key key;
	uint32_t id;
	uint64_t used; /* unwinder.turn of the last sample */
	struct space *space;
	LIST_ENTRY(member) link;
};

struct unwinder {
	pthread_mutex_t lock;
	uint32_t processes_max;
	uint64_t memory_max;
	int processes_fd, files_fd, strangers_fd, young_fd, controls_fd;
	struct unwind_control *control; /* the map's memory */
	struct pool *pool;
	struct rules *rules;
	uint64_t turn; /* settlings so far: the clock of use */
	uint32_t last_number;

	struct installed **tables; /* by id; [0] unused */
	size_t n_tables, cap_tables;
	struct index by_binary;
	struct installed_list wanted, lacking;
	size_t n_lacking;
	size_t n_unclaimed; /* of the wanted: no installed process maps them */
	struct space **spaces; /* by id; [0] unused */
	size_t n_spaces, cap_spaces;
	struct index by_version;
	LIST_HEAD(, space) all_spaces;
	struct member **members; /* by id; [0] unused */
	size_t n_members, cap_members;
	uint32_t *free_members; /* numbers without a member */
	size_t n_free_members, cap_free_members;
	struct index by_process;
	struct file_slot *files; /* as they are in the map */
	size_t n_files, cap_files, oldest_file;

	void (*on_wish)(void *ctx);
	void *wish_ctx;
	uint64_t evicted, refused;
};

/* ---- install.c ------------------------------------------------------------------------------------------- */

/* The entry of a binary with a reference, wanted if it is new; NULL without memory. */
struct installed *installed_get(struct unwinder *u, uint64_t binary);
void installed_put(struct unwinder *u, struct installed *t);
struct installed *installed_find(struct unwinder *u, uint64_t binary);

/* ---- files.c ---------------------------------------------------------------------------------------------- */

#define UNWINDER_FILES_MAX 4096
#define STRANGERS_MAX 512 /* of one window; what does not fit is met again */

int files_new(struct unwinder *u);
void files_done(struct unwinder *u);
/* Processes that map this file find the table; or, without a root, that there is none. */
void files_add(struct unwinder *u, const struct installed *t, const struct unwind_file_key *key);
/* Before its nodes are given back. */
void files_forget(struct unwinder *u, const struct installed *t);

/* ---- space.c --------------------------------------------------------------------------------------------- */

/* All spaces that map it are to be made anew. */
void spaces_touch(struct unwinder *u, const struct installed *t);
/* Makes them anew. Unless what is installed is true, it goes also where there is no room for the new. */
void spaces_refresh(struct unwinder *u, bool old_is_true);
