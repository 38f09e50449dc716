// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What /proc tells about processes. Everything about one of them is read through one descriptor of its
 * directory, whose start time is compared first: the rest cannot belong to another process then.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"
#include "collect/table.h"

#define LINK_MAX_BYTES 4200
#define CGROUP_LIMIT 65536
/* Data mappings listed per process, for locks. */
#define DATA_MAPS_MAX 16384
/*
 * How far memory without a file that adjoins a binary's writable mapping is taken for its .bss. It may just as
 * well be somebody's heap; the symbol stage, which knows how much memory the file has, decides.
 */
#define BSS_MAX (4 << 20)

/* ---- start times ------------------------------------------------------------------------------------------ */

/* What a start in clock ticks says. The kernel adds the reader's time namespace before it rounds down. */
static void tick_interval(const struct process_table *t, uint64_t ticks, uint64_t *ret_lo,
			  uint64_t *ret_hi)
{
	int64_t lo = (int64_t)(ticks * t->tick_ns) - t->boottime_offset_ns;

	*ret_lo = (uint64_t)MAX(lo, (int64_t)0);
	*ret_hi = (uint64_t)MAX(lo + (int64_t)t->tick_ns - 1, (int64_t)0);
}

static bool overlaps(const struct process *p, uint64_t lo, uint64_t hi)
{
	return p->start_lo <= hi && lo <= p->start_hi;
}

/* The directory of the process, if it is still the same one. */
static int open_same(const struct process *p, struct proc_stat *ret)
{
	_cleanup_close_ int fd = proc_open_pid(p->table->proc_fd, p->tgid);
	struct proc_stat st;
	uint64_t lo, hi;
	int r;

	if (fd < 0)
		return fd;
	r = proc_read_stat(fd, &st);
	if (r < 0)
		return r;
	tick_interval(p->table, st.start_ticks, &lo, &hi);
	if (!overlaps(p, lo, hi))
		return -ESRCH;
	*ret = st;
	return TAKE_FD(fd);
}

int snapshot_open(const struct process *p)
{
	struct proc_stat st;

	return open_same(p, &st);
}

/* ---- attributes ------------------------------------------------------------------------------------------- */

static struct name *get(struct process *p, const char *s)
{
	return names_get(&p->table->names, s, strlen(s));
}

static void set_name(struct process *p, struct name **slot, const char *s)
{
	names_set(&p->table->names, slot, *s ? get(p, s) : NULL);
}

static void set_cgroup(struct process *p, const struct cgroup_labels *l)
{
	char namespace_[LABEL_MAX] = "", pod[LABEL_MAX] = "";
	struct name *cgroup = get(p, l->cgroup);

	/* The usual case: as before, or as its parent. */
	if (cgroup && cgroup == p->cgroup) {
		names_put(&p->table->names, cgroup);
		return;
	}
	names_set(&p->table->names, &p->cgroup, cgroup);
	set_name(p, &p->unit, l->unit);
	set_name(p, &p->container, l->container);
	/* Without the log directory the pod is known by its uid. */
	if (l->pod_uid[0] && pod_find(p->table->pods, l->pod_uid, namespace_, pod) < 0)
		memcpy(pod, l->pod_uid, sizeof(pod));
	set_name(p, &p->pod, pod);
	set_name(p, &p->namespace_, namespace_);
}

static void read_cgroup(struct process *p, int pid_fd)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	struct cgroup_labels l;

	if (read_file_at(pid_fd, "cgroup", CGROUP_LIMIT, &text) < 0 || !text.data)
		return;
	cgroup_labels_from_text(text.data, text.len, &l);
	set_cgroup(p, &l);
}

/* The files of whoever exits, having no memory any more, belong to root, dumpable or not. */
static void read_owner(struct process *p, int pid_fd, bool exiting)
{
	struct proc_status st;
	bool is_private;

	if (proc_read_status(pid_fd, &st, &is_private) < 0)
		return;
	p->uid = st.uid;
	if (exiting)
		p->is_private |= st.uid != st.euid;
	else
		p->is_private = is_private && !p->kernel_thread;
}

static void read_comm(struct process *p, const struct proc_stat *st)
{
	size_t len = st->comm_len;

	/* A worker's name goes on with what it works on, which changes all the time. */
	if (st->kernel_thread && len > 8 && memcmp(st->comm, "kworker/", 8) == 0) {
		const char *more = memchr(st->comm, '-', len) ?: memchr(st->comm, '+', len);

		len = more ? (size_t)(more - st->comm) : len;
	}
	names_set(&p->table->names, &p->comm, names_get(&p->table->names, st->comm, len));
}

static void refresh(struct process *p, int pid_fd, const struct proc_stat *st)
{
	read_owner(p, pid_fd, st->exiting);
	/* Whoever exits is shown in the root of version 1 hierarchies. */
	if (!st->exiting || !p->cgroup)
		read_cgroup(p, pid_fd);
	p->read_mono_ns = p->table->now_mono_ns;
}

void snapshot_refresh(struct process *p)
{
	struct proc_stat st;
	_cleanup_close_ int pid_fd = open_same(p, &st);

	/* When it is gone, what is known is the last word. */
	if (pid_fd >= 0)
		refresh(p, pid_fd, &st);
}

/*
 * Happens for every exec, so that it is one file: the owner of the file tells whether anything but the cgroup
 * can have changed.
 */
void snapshot_exec(struct process *p)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	_cleanup_close_ int fd = -1;
	struct cgroup_labels l;
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "%u/cgroup", p->tgid);
	fd = openat(p->table->proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || read_fd(fd, CGROUP_LIMIT, &text) < 0 || !text.data)
		return;
	cgroup_labels_from_text(text.data, text.len, &l);
	/* Another owner, or the root cgroup: it may be exiting, or really so. */
	if (p->is_private || st.st_uid != p->uid ||
	    (streq(l.cgroup, "/") && !streq(name_str(p->cgroup), "/"))) {
		snapshot_refresh(p);
		return;
	}
	set_cgroup(p, &l);
	p->read_mono_ns = p->table->now_mono_ns;
}

/* ---- mappings ----------------------------------------------------------------------------------------------- */

static int first_other(void *ctx, uint32_t tid)
{
	uint32_t *t = ctx;

	if (tid == *t)
		return 0;
	*t = tid;
	return 1;
}

/*
 * The directory to read memory through: that of a living thread when the main one has gone, for a zombie has
 * no memory. Takes over pid_fd.
 */
static int memory_fd(const struct process *p, const struct proc_stat *st, int pid_fd)
{
	uint32_t tid = p->tgid;

	if (st->state != 'Z' || st->threads < 2 ||
	    proc_each_pid(pid_fd, "task", first_other, &tid) != 1)
		return pid_fd;
	close_fd(pid_fd);
	return proc_open_pid(p->table->proc_fd, tid);
}

struct reading {
	struct process *p;
	int pid_fd;
	uint64_t mono_ns; /* when it began */
	struct mapping_list list;
	/* The executable, as the link says, and what else may be meant when that is a loader. */
	char exe[LINK_MAX_BYTES];
	size_t exe_len;
	struct object *exe_object, *program; /* owned */
	struct name *program_path; /* owned */
};

static struct object *see(const struct reading *rd, const struct proc_map *m)
{
	struct sighting s = {
		.pid = rd->p->tgid,
		.parent = rd->p->parent,
		.pid_fd = rd->pid_fd,
		.shared = m->shared && !m->exec,
		.start = m->start,
		.end = m->end,
		.path = m->path,
		.path_len = m->path_len,
		.dev = m->dev,
		.ino = m->ino,
		.mono_ns = rd->mono_ns,
	};

	return binaries_see(rd->p->table->binaries, &s);
}

/* The object that lies there already, so that a second look costs no system call. */
static struct object *known(const struct process *p, const struct proc_map *m)
{
	const struct mapping *now = image_find(p->image, UINT64_MAX, m->start);
	const struct object *o = now ? now->object : NULL;

	if (!o || now->end < m->end || o->kind != BINARY_ELF || o->identity.ino != m->ino ||
	    o->identity.dev != m->dev || now->offset + (m->start - now->start) != m->offset)
		return NULL;
	return object_ref(now->object);
}

/*
 * What a dynamic loader was told to run: the mapped file that is no library by its name. Its command line would
 * say it, but that is memory of the process, which may never answer.
 */
static void note_program(struct reading *rd, const struct proc_map *m, struct object *o)
{
	if (o->kind != BINARY_ELF)
		return;
	if (m->path_len == rd->exe_len && memcmp(m->path, rd->exe, rd->exe_len) == 0) {
		if (!rd->exe_object)
			rd->exe_object = object_ref(o);
	} else if (!rd->program && !memmem(m->path, m->path_len, ".so", 3)) {
		rd->program = object_ref(o);
		rd->program_path = names_get(&rd->p->table->names, m->path, m->path_len);
	}
}

/* Keeps what note_program() found. */
static void set_program(struct reading *rd)
{
	struct process *p = rd->p;
	struct process_table *t = p->table;
	struct name *exe = rd->exe_len ? names_get(&t->names, rd->exe, rd->exe_len) : NULL;
	bool loader = exe && is_loader(path_base_name(exe->s)) && rd->program && rd->program_path;

	process_set_object(p, &p->exe_object, TAKE_PTR(rd->exe_object));
	process_set_object(p, &p->program, loader ? TAKE_PTR(rd->program) : NULL);
	names_set(&t->names, &p->exe, loader ? name_ref(rd->program_path) : name_ref(exe));
	names_put(&t->names, exe);
}

static int add_executable(void *ctx, const struct proc_map *m)
{
	struct reading *rd = ctx;
	struct process_table *t = rd->p->table;
	struct mapping new = { .start = m->start, .end = m->end, .from_mono_ns = rd->mono_ns };

	if (!m->exec)
		return 0;
	/* Bounded work: what the list has no room for is not looked at. */
	if (rd->list.n < t->o.max_mappings)
		new.object = known(rd->p, m) ?: see(rd, m);
	if (!new.object) {
		t->refused_mappings++;
		return 0;
	}
	note_program(rd, m, new.object);
	new.offset = new.object->kind == BINARY_ELF ? m->offset : 0;
	if (mapping_list_add(&rd->list, t->binaries, t->o.max_mappings, &new) < 0)
		t->refused_mappings++;
	return 0;
}

static void reading_done(struct reading *rd)
{
	struct process_table *t = rd->p->table;

	mapping_list_done(&rd->list, t->binaries);
	object_unref(t->binaries, rd->exe_object);
	object_unref(t->binaries, rd->program);
	names_put(&t->names, rd->program_path);
}

static void read_maps(struct process *p, int pid_fd)
{
	_cleanup_(reading_done) struct reading rd = { .p = p,
						      .pid_fd = pid_fd,
						      .mono_ns = mono_now_ns() };

	if (proc_read_link(pid_fd, "exe", rd.exe, sizeof(rd.exe), &rd.exe_len) == 0)
		proc_strip_deleted(rd.exe, &rd.exe_len);
	/* 0 mappings: its memory has gone, and what is known of it is all there will be. */
	if (proc_each_map(pid_fd, add_executable, &rd) <= 0 || image_own(&p->image) < 0)
		return;
	image_replace(p->image, &rd.list, rd.mono_ns);
	set_program(&rd);
	process_mark_dirty(p);
}

static void load(struct process *p, int pid_fd, const struct proc_stat *st)
{
	int fd;

	p->kernel_thread = st->kernel_thread;
	p->multi_threaded |= st->threads > 1;
	read_comm(p, st);
	refresh(p, pid_fd, st);
	fd = memory_fd(p, st, TAKE_FD(pid_fd));
	if (fd >= 0 && !p->kernel_thread)
		read_maps(p, fd);
	close_fd(fd);
}

void snapshot_load(struct process *p)
{
	struct proc_stat st;
	int pid_fd = open_same(p, &st);

	process_set_loaded(p);
	if (pid_fd >= 0)
		load(p, pid_fd, &st);
	else if (pid_fd == -ENOENT || pid_fd == -ESRCH)
		process_exit(p, p->table->now_mono_ns);
}

void snapshot_maps(struct process *p)
{
	struct proc_stat st;
	int pid_fd = open_same(p, &st);

	if (pid_fd < 0)
		return;
	pid_fd = memory_fd(p, &st, pid_fd);
	if (pid_fd >= 0)
		read_maps(p, pid_fd);
	close_fd(pid_fd);
}

bool snapshot_has_threads(struct process *p)
{
	struct proc_stat st;
	_cleanup_close_ int pid_fd = open_same(p, &st);

	return pid_fd >= 0 && st.threads > 1;
}

/* ---- data ----------------------------------------------------------------------------------------------------- */

static int add_data(struct process *p, const struct data_map *m)
{
	struct data_map *last = p->n_data > 0 ? &p->data[p->n_data - 1] : NULL;

	/* Neighbours that are one thing: a file's segments, memory whose protection differs. */
	if (last && last->end == m->start && last->object == m->object &&
	    last->shared == m->shared &&
	    (m->object->kind == BINARY_ANON ||
	     m->offset - last->offset == m->start - last->start)) {
		last->end = m->end;
		object_unref(p->table->binaries, m->object);
		return 0;
	}
	if (p->n_data >= DATA_MAPS_MAX || (last && m->start < last->end) ||
	    ARRAY_GROW(p->data, p->cap_data, p->n_data + 1) < 0) {
		object_unref(p->table->binaries, m->object);
		p->table->refused_mappings++;
		return 0;
	}
	p->data[p->n_data++] = *m;
	return 0;
}

/* Most files with data have code as well, which is known already. */
static struct object *known_file(const struct process *p, const struct proc_map *m)
{
	for (size_t i = 0; m->ino && i < p->image->n; i++) {
		struct object *o = p->image->maps[i].object;

		if (o->kind == BINARY_ELF && o->identity.ino == m->ino && o->identity.dev == m->dev)
			return object_ref(o);
	}
	return NULL;
}

static int add_data_map(void *ctx, const struct proc_map *m)
{
	struct reading *rd = ctx;
	struct process *p = rd->p;
	struct data_map new = { .start = m->start, .end = m->end, .shared = m->shared };
	const struct data_map *last = p->n_data > 0 ? &p->data[p->n_data - 1] : NULL;

	/* Nobody waits for a word that nobody can change. */
	if (!m->write && !m->shared)
		return 0;
	/* .bss lies behind .data, in memory without a file. */
	if (last && m->path_len == 0 && last->end == m->start && last->object->kind == BINARY_ELF &&
	    !last->shared && m->end - m->start <= BSS_MAX) {
		new.object = object_ref(last->object);
		new.offset = last->offset + (last->end - last->start);
		return add_data(p, &new);
	}
	new.object = known_file(p, m) ?: see(rd, m);
	if (!new.object) {
		p->table->refused_mappings++;
		return 0;
	}
	new.offset = new.object->kind == BINARY_ELF ? m->offset : 0;
	return add_data(p, &new);
}

void snapshot_data(struct process *p)
{
	struct reading rd = { .p = p, .mono_ns = mono_now_ns() };
	struct proc_stat st;
	int pid_fd = open_same(p, &st);

	if (pid_fd < 0)
		return;
	rd.pid_fd = memory_fd(p, &st, pid_fd);
	if (rd.pid_fd < 0)
		return;
	process_clear_data(p);
	proc_each_map(rd.pid_fd, add_data_map, &rd);
	close_fd(rd.pid_fd);
	p->data_mono_ns = MAX(p->table->now_mono_ns, (uint64_t)1);
	process_mark_dirty(p);
}

/* ---- the list of processes --------------------------------------------------------------------------------------- */

/* Nothing runs there any more, and no record will tell of its end again. */
static bool is_dead(const struct proc_stat *st)
{
	return (st->state == 'Z' || st->state == 'X') && st->threads < 2;
}

static struct process *add_new(struct process_table *t, const struct proc_stat *st, uint64_t lo,
			       uint64_t hi)
{
	struct process *p = table_add(t, st->pid, lo, hi);

	if (!p)
		return NULL;
	p->known_mono_ns = mono_now_ns();
	p->kernel_thread = st->kernel_thread;
	p->multi_threaded = true; /* for all we know */
	read_comm(p, st);
	return p;
}

static struct process *add_from_stat(struct process_table *t, const struct proc_stat *st)
{
	struct process *p, *before = table_newest(t, st->pid);
	uint64_t lo, hi;

	tick_interval(t, st->start_ticks, &lo, &hi);
	if (before && overlaps(before, lo, hi)) {
		p = before;
	} else {
		if (before)
			process_exit(before, t->now_mono_ns);
		p = add_new(t, st, lo, hi);
	}
	if (!p)
		return NULL;
	p->scan = t->scan;
	if (is_dead(st))
		process_exit(p, t->now_mono_ns);
	else
		process_revive(p);
	return p;
}

static int scan_one(void *ctx, uint32_t pid)
{
	struct process_table *t = ctx;
	_cleanup_close_ int pid_fd = proc_open_pid(t->proc_fd, pid);
	struct proc_stat st;
	struct process *p;

	if (pid_fd < 0 || proc_read_stat(pid_fd, &st) < 0 || st.pid != pid)
		return 0;
	table_make_room(t);
	p = add_from_stat(t, &st);
	if (!p)
		return -ENOMEM;
	return 0;
}

int snapshot_scan(struct process_table *t)
{
	struct process *p, *next;
	int r;

	t->scan++;
	r = proc_each_pid(t->proc_fd, ".", scan_one, t);
	if (r < 0)
		return r;
	for (p = TAILQ_FIRST(&t->live); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->scan != t->scan && p->tgid != 0)
			process_exit(p, t->now_mono_ns);
		else if (t->scan > 1)
			process_set_unloaded(p);
	}
	return 0;
}

struct process *snapshot_find(struct process_table *t, uint32_t tgid, uint64_t start)
{
	_cleanup_close_ int pid_fd = proc_open_pid(t->proc_fd, tgid);
	const struct process *newest = table_newest(t, tgid);
	struct proc_stat st;
	uint64_t lo, hi;

	if (pid_fd < 0 || proc_read_stat(pid_fd, &st) < 0)
		return NULL;
	tick_interval(t, st.start_ticks, &lo, &hi);
	if (start && (start < lo || start > hi))
		return NULL;
	/* Two of one number within a tick: which of them is there cannot be told. */
	if (start && newest && overlaps(newest, lo, hi) && newest->start_lo == newest->start_hi &&
	    newest->start_lo != start)
		return NULL;
	return add_from_stat(t, &st);
}
