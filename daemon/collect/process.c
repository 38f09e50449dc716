// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <time.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/table.h"

#define PROCESSES_DEFAULT 65536
#define MAPPINGS_DEFAULT 4096
#define FDS_DEFAULT 512
#define PODS_DEFAULT "/var/log/pods"
/* After lost records all of /proc is listed at most so often, and for at most 1 % of the time. */
#define RESCAN_PAUSE_NS NSEC_PER_SEC
#define RESCAN_PAUSE_SHARE 100
/* Processes that were there before us are read by and by, so that they may exit and still be known. */
#define LOADS_PER_POLL 64
#define LOADS_NS (2 * NSEC_PER_MSEC)
/* Users and cgroups of processes change without a record. */
#define REFRESH_YOUNG_NS (2 * NSEC_PER_SEC)
#define REFRESH_NS (60 * NSEC_PER_SEC)

/* ---- generations ---------------------------------------------------------------------------------------- */

static uint64_t hash_tgid(uint32_t tgid)
{
	return XXH3_64bits(&tgid, sizeof(tgid));
}

static bool tgid_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct process_table *t = ctx;

	return t->items[id]->tgid == *(const uint32_t *)key;
}

struct process *table_newest(struct process_table *t, uint32_t tgid)
{
	uint32_t id = index_find(&t->by_tgid, hash_tgid(tgid), tgid_equal, t, &tgid);

	return id ? t->items[id] : NULL;
}

static struct process *older_of(const struct process *p)
{
	return p->older ? p->table->items[p->older] : NULL;
}

bool process_starts_at(const struct process *p, uint64_t start)
{
	return p->start_lo <= start && start <= p->start_hi;
}

static uint32_t new_id(struct process_table *t)
{
	if (t->n_unused > 0)
		return t->unused[--t->n_unused];
	if (t->n == 0)
		t->n = 1;
	if (t->n >= UINT32_MAX || ARRAY_GROW(t->items, t->cap, t->n + 1) < 0 ||
	    ARRAY_GROW(t->unused, t->cap_unused, t->n + 1) < 0)
		return 0;
	return (uint32_t)t->n++;
}

/* Puts p into the chain of its tgid, before the first one that started earlier. */
static int chain(struct process_table *t, struct process *p)
{
	struct process *newer = NULL, *at = table_newest(t, p->tgid);
	uint64_t hash = hash_tgid(p->tgid);

	while (at && at->start_hi > p->start_hi) {
		newer = at;
		at = older_of(at);
	}
	p->older = at ? at->id : 0;
	if (newer) {
		newer->older = p->id;
		return 0;
	}
	if (at)
		index_del(&t->by_tgid, hash, at->id);
	return index_add(&t->by_tgid, hash, p->id);
}

static void unchain(struct process_table *t, struct process *p)
{
	struct process *at = table_newest(t, p->tgid);
	uint64_t hash = hash_tgid(p->tgid);

	if (at != p) {
		for (; at && at->older != p->id; at = older_of(at))
			;
		if (at)
			at->older = p->older;
		return;
	}
	index_del(&t->by_tgid, hash, p->id);
	/* The room that was just freed suffices: this cannot fail. */
	if (p->older && index_add(&t->by_tgid, hash, p->older) < 0)
		assert(false);
}

static void give_back(struct process_table *t, struct process *p)
{
	if (p->id) {
		t->items[p->id] = NULL;
		t->unused[t->n_unused++] = p->id;
	}
	image_unref(p->image);
	free(p);
}

struct process *table_add(struct process_table *t, uint32_t tgid, uint64_t start_lo,
			  uint64_t start_hi)
{
	struct process *p = new0(struct process, 1);
	bool ok;

	if (!p)
		return NULL;
	*p = (struct process){
		.table = t, .tgid = tgid, .start_lo = start_lo, .start_hi = start_hi
	};
	p->id = new_id(t);
	ok = p->id && image_new(t->binaries, &p->image) == 0;
	if (ok) {
		t->items[p->id] = p;
		ok = chain(t, p) == 0;
	}
	if (!ok) {
		give_back(t, p);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&t->live, p, link);
	TAILQ_INSERT_TAIL(&t->loading, p, load_link);
	t->n_live++;
	return p;
}

void process_set_loaded(struct process *p)
{
	if (p->loaded)
		return;
	p->loaded = true;
	TAILQ_REMOVE(&p->table->loading, p, load_link);
}

void process_set_unloaded(struct process *p)
{
	if (!p->loaded || p->exit_mono_ns || p->kernel_thread)
		return;
	p->loaded = false;
	TAILQ_INSERT_TAIL(&p->table->loading, p, load_link);
}

void process_mark_dirty(struct process *p)
{
	if (p->dirty)
		return;
	p->dirty = true;
	TAILQ_INSERT_TAIL(&p->table->dirty, p, dirty_link);
}

void process_exit(struct process *p, uint64_t mono_ns)
{
	struct process_table *t = p->table;

	if (p->exit_mono_ns)
		return;
	TAILQ_REMOVE(&t->live, p, link);
	TAILQ_INSERT_TAIL(&t->exited, p, link);
	t->n_live--;
	t->n_exited++;
	p->exit_mono_ns = MAX(mono_ns, (uint64_t)1);
	process_set_loaded(p);
}

void process_revive(struct process *p)
{
	struct process_table *t = p->table;

	if (!p->exit_mono_ns)
		return;
	TAILQ_REMOVE(&t->exited, p, link);
	TAILQ_INSERT_TAIL(&t->live, p, link);
	t->n_exited--;
	t->n_live++;
	p->exit_mono_ns = 0;
}

/* ---- attributes ------------------------------------------------------------------------------------------ */

void process_set_object(struct process *p, struct object **slot, struct object *o)
{
	object_unref(p->table->binaries, *slot);
	*slot = o;
}

const char *path_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void process_clear_data(struct process *p)
{
	for (size_t i = 0; i < p->n_data; i++)
		object_unref(p->table->binaries, p->data[i].object);
	free(p->data);
	p->data = NULL;
	p->n_data = p->cap_data = 0;
	p->data_mono_ns = 0;
}

void process_inherit(struct process *p, const struct process *from)
{
	struct names *ns = &p->table->names;

	names_set(ns, &p->comm, name_ref(from->comm));
	names_set(ns, &p->exe, name_ref(from->exe));
	names_set(ns, &p->cgroup, name_ref(from->cgroup));
	names_set(ns, &p->unit, name_ref(from->unit));
	names_set(ns, &p->container, name_ref(from->container));
	names_set(ns, &p->pod, name_ref(from->pod));
	names_set(ns, &p->namespace_, name_ref(from->namespace_));
	process_set_object(p, &p->exe_object,
			   from->exe_object ? object_ref(from->exe_object) : NULL);
	process_set_object(p, &p->program, from->program ? object_ref(from->program) : NULL);
	p->uid = from->uid;
	p->is_private = from->is_private;
	p->kernel_thread = from->kernel_thread;
	image_unref(p->image);
	p->image = image_ref(from->image);
}

static void clear_past(struct process *p)
{
	for (size_t i = 0; i < p->n_past; i++)
		image_unref(p->past[i].image);
	free(p->past);
	p->past = NULL;
	p->n_past = p->cap_past = 0;
}

static void process_free(struct process *p)
{
	struct process_table *t = p->table;
	struct name *names[] = { p->comm,      p->exe, p->cgroup,    p->unit,
				 p->container, p->pod, p->namespace_ };

	unchain(t, p);
	if (p->exit_mono_ns) {
		TAILQ_REMOVE(&t->exited, p, link);
		t->n_exited--;
	} else {
		TAILQ_REMOVE(&t->live, p, link);
		t->n_live--;
	}
	if (!p->loaded)
		TAILQ_REMOVE(&t->loading, p, load_link);
	if (p->dirty)
		TAILQ_REMOVE(&t->dirty, p, dirty_link);
	threads_done(p);
	jit_done(p);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		names_put(&t->names, names[i]);
	process_set_object(p, &p->exe_object, NULL);
	process_set_object(p, &p->program, NULL);
	process_clear_data(p);
	clear_past(p);
	give_back(t, p);
}

void table_make_room(struct process_table *t)
{
	while (t->n_live + t->n_exited >= t->o.max_processes) {
		struct process *p = TAILQ_FIRST(&t->exited);

		p = p ?: TAILQ_FIRST(&t->live);
		process_free(p);
		t->evicted++;
	}
}

/* ---- finding ---------------------------------------------------------------------------------------------- */

/* The idle tasks: one process that never ends. */
static struct process *add_idle(struct process_table *t)
{
	struct process *p = table_add(t, 0, 0, 0);

	if (!p)
		return NULL;
	p->kernel_thread = true;
	names_set(&t->names, &p->comm, names_get(&t->names, "swapper", 7));
	process_set_loaded(p);
	return p;
}

/* Neither known nor in /proc: it came and went while records were lost. */
static struct process *add_ghost(struct process_table *t, uint32_t tgid, uint64_t start)
{
	struct process *p = table_add(t, tgid, start, start);

	if (!p)
		return NULL;
	names_set(&t->names, &p->comm, names_get(&t->names, "[unknown]", 9));
	process_exit(p, t->now_mono_ns);
	return p;
}

static struct process *find_known(struct process_table *t, uint32_t tgid, uint64_t start)
{
	for (struct process *p = table_newest(t, tgid); p; p = older_of(p))
		if (process_starts_at(p, start))
			return p;
	return NULL;
}

struct process *process_find(struct process_table *t, uint32_t tgid, uint64_t start)
{
	struct process *p = find_known(t, tgid, start);

	if (!p && tgid == 0)
		p = add_idle(t);
	if (!p)
		p = snapshot_find(t, tgid, start) ?: add_ghost(t, tgid, start);
	if (!p)
		return NULL;
	p->start_lo = p->start_hi = start;
	if (!p->exit_mono_ns) {
		TAILQ_REMOVE(&t->live, p, link);
		TAILQ_INSERT_TAIL(&t->live, p, link);
	}
	return p;
}

struct process *process_known(struct process_table *t, uint32_t tgid, uint64_t start)
{
	struct process *p = find_known(t, tgid, start);

	return p && p->loaded ? p : NULL;
}

bool process_lives(const struct process *p)
{
	return !p->exit_mono_ns;
}

uint64_t process_version(const struct process *p)
{
	return p->image->version;
}

size_t process_region_count(const struct process *p)
{
	return p->image->n;
}

void process_regions(const struct process *p, struct process_region *ret)
{
	for (size_t i = 0; i < p->image->n; i++) {
		const struct mapping *m = &p->image->maps[i];

		ret[i] = (struct process_region){
			.start = m->start,
			.end = m->end,
			.offset = m->offset,
			.binary = m->object->key,
			.author = m->object->identity.author,
			.kind = m->object->kind,
		};
	}
}

static bool refresh_due(const struct process *p)
{
	uint64_t now = p->table->now_mono_ns, age = now - p->read_mono_ns;

	if (p->exit_mono_ns || p->kernel_thread)
		return false;
	/* Read when it was young: its manager may have moved it since. */
	if (p->start_hi + REFRESH_YOUNG_NS > p->read_mono_ns + p->table->mono_to_boot_ns)
		return age > REFRESH_YOUNG_NS;
	return age > REFRESH_NS;
}

void process_labels(struct process *p, struct process_labels *ret)
{
	const struct object *exe;

	if (!p->loaded)
		snapshot_load(p);
	else if (refresh_due(p))
		snapshot_refresh(p);
	exe = p->program ?: p->exe_object;
	*ret = (struct process_labels){
		.comm = name_str(p->comm),
		.exe = name_str(p->exe),
		.unit = name_str(p->unit),
		.cgroup = name_str(p->cgroup),
		.container = name_str(p->container),
		.pod = name_str(p->pod),
		.namespace_ = name_str(p->namespace_),
		.build_id = exe ? exe->build_id : "",
		.uid = p->uid,
		.kernel_thread = p->kernel_thread,
		.is_private = p->is_private || (p->exe_object && p->exe_object->privileged),
	};
	if (p->program && is_loader(ret->comm))
		ret->comm = path_base_name(ret->exe);
}

/* ---- time ------------------------------------------------------------------------------------------------ */

static uint64_t read_mono_to_boot(void)
{
	struct timespec mono, boot;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (uint64_t)(boot.tv_sec - mono.tv_sec) * NSEC_PER_SEC +
	       (uint64_t)(boot.tv_nsec - mono.tv_nsec);
}

static void load_some(struct process_table *t)
{
	struct process *p;

	for (unsigned n = 0; n < LOADS_PER_POLL && (p = TAILQ_FIRST(&t->loading)); n++) {
		snapshot_load(p);
		if (mono_now_ns() - t->now_mono_ns > LOADS_NS)
			return;
	}
}

static int rescan(struct process_table *t)
{
	uint64_t pause = MAX(RESCAN_PAUSE_NS, RESCAN_PAUSE_SHARE * t->rescan_took_ns);
	int r;

	if (!t->rescan || t->now_mono_ns - t->rescan_mono_ns < pause)
		return 0;
	t->rescan = false;
	t->rescan_mono_ns = t->now_mono_ns;
	t->resyncs++;
	r = snapshot_scan(t);
	t->rescan_took_ns = mono_now_ns() - t->rescan_mono_ns;
	return r;
}

int process_table_poll(struct process_table *t)
{
	int r = 0, scanned;

	t->now_mono_ns = mono_now_ns();
	t->mono_to_boot_ns = read_mono_to_boot();
	while (t->n_live + t->n_exited > t->o.max_processes)
		table_make_room(t);
	if (!t->scan)
		t->rescan = snapshot_scan(t) < 0;
	if (t->sideband)
		r = sideband_poll(t->sideband, event_apply, t);
	t->rescan |= r > 0;
	r = MIN(r, 0);
	t->now_mono_ns = mono_now_ns();
	scanned = rescan(t);
	load_some(t);
	return MIN(r, scanned);
}

static bool expire_one(struct process *p, uint64_t mono_ns)
{
	struct process_table *t = p->table;
	size_t kept = 0;
	bool done;

	for (size_t i = 0; i < p->n_past; i++) {
		if (p->past[i].until_mono_ns >= mono_ns)
			p->past[kept++] = p->past[i];
		else
			image_unref(p->past[i].image);
	}
	p->n_past = kept;
	if (kept == 0)
		clear_past(p);
	image_expire(p->image, mono_ns);
	done = threads_expire(p, mono_ns) && kept == 0 && p->image->n_past == 0;
	/* Lists of data mappings that nobody asks for any more. */
	if (p->data_mono_ns && t->now_mono_ns - p->data_mono_ns > 2 * REFRESH_NS)
		process_clear_data(p);
	return done && !p->data_mono_ns;
}

void process_table_expire(struct process_table *t, uint64_t mono_ns)
{
	struct process *p, *next;

	/* In order of exit, except for those that were found to have exited at some earlier time. */
	for (p = TAILQ_FIRST(&t->exited); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->exit_mono_ns < mono_ns)
			process_free(p);
	}
	for (p = TAILQ_FIRST(&t->dirty); p; p = next) {
		next = TAILQ_NEXT(p, dirty_link);
		if (expire_one(p, mono_ns)) {
			TAILQ_REMOVE(&t->dirty, p, dirty_link);
			p->dirty = false;
		}
	}
	binaries_trim(t->binaries);
	t->window++;
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static void set_options(struct process_table *t, const struct process_options *o)
{
	t->o = *o;
	t->o.proc = NULL;
	t->o.max_processes = o->max_processes ?: PROCESSES_DEFAULT;
	t->o.max_mappings = o->max_mappings ?: MAPPINGS_DEFAULT;
	t->o.max_fds = o->max_fds ?: FDS_DEFAULT;
	t->tick_ns = NSEC_PER_SEC / (uint64_t)MAX(sysconf(_SC_CLK_TCK), 1L);
	t->rescan_mono_ns = t->now_mono_ns = mono_now_ns();
	t->mono_to_boot_ns = read_mono_to_boot();
	t->window = 1;
}

static int read_time_namespace(struct process_table *t)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	int r = read_file_at(t->proc_fd, "self/timens_offsets", 4096, &text);

	if (r == -ENOENT)
		return 0; /* before 5.6 or without CONFIG_TIME_NS */
	if (r == 0 && text.data)
		t->boottime_offset_ns = proc_parse_boottime_offset(text.data);
	return r;
}

static int start(struct process_table *t, const struct process_options *o)
{
	struct binaries_options bo;
	int r = proc_open(o->proc ?: "/proc");

	if (r < 0)
		return r;
	t->proc_fd = r;
	bo = (struct binaries_options){ .proc_fd = r, .max_fds = t->o.max_fds };
	r = opener_new(o->opener_process, &bo.opener);
	if (r < 0)
		return r;
	t->opener = bo.opener;
	r = read_time_namespace(t);
	if (r >= 0)
		r = binaries_new(&bo, &t->binaries);
	if (r >= 0)
		r = jit_maps_new(t->opener, &t->jit_maps);
	/* Records before the list: what happens in between is told twice rather than never. */
	if (r >= 0 && o->side_band)
		r = sideband_new(&t->sideband);
	return r;
}

int process_table_new(const struct process_options *o, struct process_table **ret)
{
	_cleanup_(process_table_free_p) struct process_table *t = new0(struct process_table, 1);
	int r;

	if (!t)
		return -ENOMEM;
	t->proc_fd = -1;
	TAILQ_INIT(&t->live);
	TAILQ_INIT(&t->exited);
	TAILQ_INIT(&t->loading);
	TAILQ_INIT(&t->dirty);
	set_options(t, o);
	t->pods = strdup(o->pods ?: PODS_DEFAULT);
	if (!t->pods)
		return -ENOMEM;
	r = start(t, o);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(t);
	return 0;
}

struct process_table *process_table_free(struct process_table *t)
{
	if (!t)
		return NULL;
	for (size_t i = 1; i < t->n; i++)
		if (t->items[i])
			process_free(t->items[i]);
	sideband_free(t->sideband);
	jit_maps_free(t->jit_maps);
	binaries_free(t->binaries);
	opener_unref(t->opener);
	names_done(&t->names);
	index_done(&t->by_tgid);
	free(t->items);
	free(t->unused);
	free(t->pods);
	close_fd(t->proc_fd);
	free(t);
	return NULL;
}

int process_table_open_binary(struct process_table *t, uint64_t binary_key)
{
	return binary_key & JIT_MAP_KEY ? jit_maps_open(t->jit_maps, binary_key)
					: binaries_open(t->binaries, binary_key);
}

int process_table_open_debug_file(struct process_table *t, uint64_t binary_key, const char *paths,
				  size_t n, size_t *ret_which)
{
	return binaries_open_debug_file(t->binaries, binary_key, paths, n, ret_which);
}

void process_table_on_ksymbol(struct process_table *t, ksymbol_fn fn, void *ctx)
{
	t->ksymbol = fn;
	t->ksymbol_ctx = ctx;
}

void process_table_stats(const struct process_table *t, struct process_stats *ret)
{
	struct process_stats s = {
		.processes = t->n_live,
		.exited = t->n_exited,
		.side_band_lost = t->sideband ? sideband_lost(t->sideband) : 0,
		.resyncs = t->resyncs,
		.evicted_processes = t->evicted,
		.refused_mappings = t->refused_mappings,
		.dropped_images = t->dropped_images,
		.refused_names = t->refused_names,
		.bytes = t->names.bytes + t->n_thread_names * sizeof(struct thread_name),
	};
	struct opener_stats opener;
	struct binaries_stats b;

	binaries_stats(t->binaries, &b);
	opener_get_stats(t->opener, &opener);
	s.opener_pid = opener.pid;
	s.opener_failures = opener.failures;
	jit_maps_stats(t->jit_maps, &s.refused_maps, &s.hanging_maps);
	s.binaries = b.objects;
	s.fds = b.fds;
	s.bytes += b.bytes + (t->sideband ? sideband_bytes(t->sideband) : 0);
	for (size_t i = 1; i < t->n; i++) {
		const struct process *p = t->items[i];

		if (!p)
			continue;
		s.mappings += p->image->n;
		s.bytes += sizeof(*p) + p->cap_data * sizeof(*p->data) +
			   image_bytes(p->image) / p->image->refs;
	}
	*ret = s;
}
