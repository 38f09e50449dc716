// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Side-band records applied to the table, in the order of time. A fork inherits everything; an exec begins a
 * new image; both are complete knowledge, so that a process of 5 ms needs nothing from /proc.
 */
#include "base/utf8.h"
#include "collect/table.h"

/*
 * A child's start time is taken shortly before its FORK record is made. In between it may have been preempted,
 * not more.
 */
#define FORK_SLACK_NS NSEC_PER_SEC
/* Of a process that execs over and over within one window. */
#define PAST_IMAGES_MAX 64

/* The loaders that can be run as programs; also as their comm, which is cut after 15 bytes. */
bool is_loader(const char *name)
{
	return str_skip_prefix(name, "ld-linux") || str_skip_prefix(name, "ld-musl") ||
	       str_skip_prefix(name, "ld.so") || str_skip_prefix(name, "ld64.so") ||
	       str_skip_prefix(name, "ld-2.");
}

static uint64_t boot_time(const struct process_table *t, uint64_t mono_ns)
{
	return mono_ns + t->mono_to_boot_ns;
}

/* The process that a record of that time is about; created when records about its fork were lost. */
static struct process *process_at(struct process_table *t, uint32_t tgid, uint64_t mono_ns)
{
	struct process *p = table_newest(t, tgid);

	if (!p)
		return snapshot_find(t, tgid, 0);
	/* A record from before this generation: a predecessor has it, or nobody. */
	while (p && p->start_lo > boot_time(t, mono_ns))
		p = p->older ? t->items[p->older] : NULL;
	return p;
}

static void apply_thread_fork(struct process_table *t, const struct sideband_event *e)
{
	struct process *p = process_at(t, e->pid, e->mono_ns);
	struct name *name;

	if (!p)
		return;
	p->multi_threaded = true;
	name = thread_get_name(p, e->parent_tid);
	if (name)
		thread_set_name(p, e->tid, name);
}

/*
 * Whether p is the child that the record tells of: found in /proc before the record was read, or within the
 * time in which one number is not given out twice.
 */
static bool is_child(const struct process_table *t, const struct process *p,
		     const struct sideband_event *e)
{
	uint64_t hi = boot_time(t, e->mono_ns);

	if (p->start_lo > hi)
		return false;
	return p->known_mono_ns > e->mono_ns ||
	       (p->known_mono_ns && p->start_hi + FORK_SLACK_NS >= hi);
}

static struct process *add_child(struct process_table *t, const struct sideband_event *e,
				 struct process *before)
{
	uint64_t hi = boot_time(t, e->mono_ns), lo = hi > FORK_SLACK_NS ? hi - FORK_SLACK_NS : 0;

	if (before) {
		/* It cannot have started before the end of its predecessor, if that is known. */
		uint64_t end = before->exit_mono_ns ? boot_time(t, before->exit_mono_ns)
						    : before->start_hi + 1;

		process_exit(before, e->mono_ns);
		lo = MAX(lo, MIN(end, hi));
	}
	return table_add(t, e->pid, lo, hi);
}

static void apply_process_fork(struct process_table *t, const struct sideband_event *e)
{
	struct process *p = table_newest(t, e->pid), *parent;
	struct name *comm;

	if (p && is_child(t, p, e)) {
		p->parent = e->parent;
		return;
	}
	if (p && p->start_lo > boot_time(t, e->mono_ns))
		return; /* of a generation that is history already */
	parent = process_at(t, e->parent, e->mono_ns);
	/* What the parent is, its children are; they may be gone before anybody can look at them. */
	if (parent && !parent->loaded)
		snapshot_load(parent);
	p = add_child(t, e, p);
	if (!p)
		return;
	p->parent = e->parent;
	if (!parent)
		return;
	process_inherit(p, parent);
	p->read_mono_ns = t->now_mono_ns;
	/* A parent that is not known itself has nothing to give. */
	if (parent->exe || parent->kernel_thread)
		process_set_loaded(p);
	comm = thread_get_name(parent, e->parent_tid);
	if (comm)
		names_set(&t->names, &p->comm, name_ref(comm));
}

static void apply_fork(struct process_table *t, const struct sideband_event *e)
{
	if (e->pid == e->parent && e->tid != e->pid)
		apply_thread_fork(t, e);
	else if (e->pid == e->tid)
		apply_process_fork(t, e);
}

static void apply_exit(struct process_table *t, const struct sideband_event *e)
{
	struct process *p = table_newest(t, e->pid);

	if (!p || p->start_lo > boot_time(t, e->mono_ns))
		return;
	if (e->tid != e->pid) {
		thread_exit(p, e->tid, e->mono_ns);
		if (!p->leader_gone)
			return;
	}
	/* Threads may outlive the main one. */
	p->leader_gone = p->multi_threaded && snapshot_has_threads(p);
	if (!p->leader_gone)
		process_exit(p, e->mono_ns);
}

/* The image before stays for samples from before. */
static void begin_image(struct process *p, uint64_t mono_ns)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	if (p->n_past >= PAST_IMAGES_MAX) {
		image_unref(p->past[0].image);
		p->n_past--;
		memmove(p->past, p->past + 1, p->n_past * sizeof(*p->past));
		p->table->dropped_images++;
	}
	if (image_new(p->table->binaries, &im) < 0 ||
	    ARRAY_GROW(p->past, p->cap_past, p->n_past + 1) < 0) {
		p->table->rescan = true;
		return;
	}
	p->past[p->n_past++] = (struct past_image){ .image = p->image,
						    .from_mono_ns = p->image_mono_ns,
						    .until_mono_ns = mono_ns };
	p->image = TAKE_PTR(im);
	p->image_mono_ns = mono_ns;
	process_mark_dirty(p);
}

static void apply_exec(struct process *p, uint64_t mono_ns)
{
	/* An exec by another thread: the main one exited for it, and the process goes on. */
	process_revive(p);
	p->leader_gone = false;
	p->multi_threaded = false;
	p->kernel_thread = false;
	jit_exec(p);
	begin_image(p, mono_ns);
	names_set(&p->table->names, &p->exe, NULL);
	process_set_object(p, &p->exe_object, NULL);
	process_set_object(p, &p->program, NULL);
	process_clear_data(p);
	process_set_loaded(p);
	snapshot_exec(p);
}

static void apply_comm(struct process_table *t, const struct sideband_event *e)
{
	struct process *p = process_at(t, e->pid, e->mono_ns);
	struct name *name;

	if (!p)
		return;
	if (e->exec)
		apply_exec(p, e->mono_ns);
	name = names_get(&t->names, e->text, e->text_len);
	if (!name)
		return;
	if (e->tid != e->pid) {
		thread_set_name(p, e->tid, name);
		names_put(&t->names, name);
	} else {
		names_set(&t->names, &p->comm, name);
	}
}

/*
 * The kernel maps the executable first, then the loader, which maps the rest. The path is the record's: the
 * object may have been seen under another one.
 */
static void note_executable(struct process *p, struct object *o, const struct sideband_event *e)
{
	struct process_table *t = p->table;

	if (o->kind != BINARY_ELF)
		return;
	if (!p->exe)
		process_set_object(p, &p->exe_object, object_ref(o));
	else if (!p->program && p->exe_object && o != p->exe_object &&
		 is_loader(path_base_name(p->exe->s)))
		process_set_object(p, &p->program, object_ref(o));
	else
		return;
	names_set(&t->names, &p->exe, names_get(&t->names, e->text, e->text_len));
}

static void apply_mmap(struct process_table *t, const struct sideband_event *e)
{
	struct process *p = process_at(t, e->pid, e->mono_ns);
	struct sighting s = {
		.pid = e->pid,
		.pid_fd = -1,
		.start = e->start,
		.end = e->start + e->len,
		.path = e->text,
		.path_len = e->text_len,
		.dev = e->dev,
		.ino = e->ino,
		.build_id = e->build_id,
		.build_id_len = e->build_id_len,
		.mono_ns = t->now_mono_ns,
	};
	struct mapping m = { .start = s.start, .end = s.end, .from_mono_ns = e->mono_ns };

	if (!p)
		return;
	s.parent = p->parent;
	s.gone = p->exit_mono_ns != 0;
	m.object = binaries_see(t->binaries, &s);
	if (!m.object || image_own(&p->image) < 0) {
		object_unref(t->binaries, m.object);
		t->refused_mappings++;
		return;
	}
	note_executable(p, m.object, e);
	jit_mapped(p, &m);
	m.offset = m.object->kind == BINARY_ELF ? e->offset : 0;
	if (image_add(p->image, t->o.max_mappings, &m) < 0)
		t->refused_mappings++;
	process_mark_dirty(p);
}

static void apply_ksymbol(struct process_table *t, const struct sideband_event *e)
{
	char name[256];

	if (!t->ksymbol)
		return;
	utf8_sanitize(name, sizeof(name), e->text, e->text_len);
	t->ksymbol(t->ksymbol_ctx, e->start, (uint32_t)e->len, name, e->gone);
}

void event_apply(void *table, const struct sideband_event *e)
{
	struct process_table *t = table;

	/* 0 and -1 stand for processes that our pid namespace does not show. */
	if (e->type != SIDEBAND_KSYMBOL && (e->pid == 0 || e->pid > INT32_MAX))
		return;
	table_make_room(t);
	switch (e->type) {
	case SIDEBAND_FORK:
		apply_fork(t, e);
		break;
	case SIDEBAND_EXIT:
		apply_exit(t, e);
		break;
	case SIDEBAND_COMM:
		apply_comm(t, e);
		break;
	case SIDEBAND_MMAP:
		apply_mmap(t, e);
		break;
	case SIDEBAND_KSYMBOL:
		apply_ksymbol(t, e);
		break;
	}
}
