// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processes that make code at run time: they are known by an executable mapping without a file, or by that of a
 * jitdump file. Their maps are opened at once, as many of them do not live long.
 */
#include "collect/table.h"

/* Windows to wait when there are too many of them. */
#define PAUSE 32

/* The mapping that marks the file, as the jitdump specification wants it: jit-PID.dump. */
static bool is_dump(const struct mapping *m)
{
	const char *rest = m->object->kind == BINARY_ELF ? str_skip_prefix(m->object->name, "jit-")
							 : NULL;

	return rest && streq(rest + strspn(rest, "0123456789"), ".dump");
}

static const struct mapping *find_dump(const struct process *p)
{
	for (size_t i = 0; i < p->image->n; i++)
		if (is_dump(&p->image->maps[i]))
			return &p->image->maps[i];
	return NULL;
}

static void look_after(struct process *p)
{
	_cleanup_close_ int pid_fd = -1;
	struct process_table *t = p->table;
	const struct mapping *dump = find_dump(p);

	if (p->exit_mono_ns || p->kernel_thread || t->window < p->jit_window)
		return;
	p->jit_window = t->window + PAUSE;
	pid_fd = snapshot_open(p);
	if (pid_fd < 0)
		return;
	p->jit_key = jit_maps_add(t->jit_maps, &(struct jit_process){
						       .pid_fd = pid_fd,
						       .pid = p->tgid,
						       .uid = p->uid,
						       .dump_start = dump ? dump->start : 0,
						       .dump_end = dump ? dump->end : 0,
					       });
}

void jit_mapped(struct process *p, const struct mapping *m)
{
	bool dump = is_dump(m);

	if (!dump && m->object->kind != BINARY_ANON)
		return;
	if (!p->jit_key)
		look_after(p);
	if (p->jit_key && dump)
		jit_maps_look(p->table->jit_maps, p->jit_key, m->start, m->end);
}

/* The next program writes a map of its own, in the place of this one. */
void jit_exec(struct process *p)
{
	jit_done(p);
	p->jit_window = 0;
}

uint64_t jit_key(struct process *p)
{
	int has;

	if (!p->jit_key)
		look_after(p);
	if (!p->jit_key)
		return 0;
	has = jit_maps_has(p->table->jit_maps, p->jit_key);
	if (has < 0)
		p->jit_key = 0;
	return has > 0 ? p->jit_key : 0;
}

void jit_done(struct process *p)
{
	if (p->jit_key)
		jit_maps_release(p->table->jit_maps, p->jit_key);
	p->jit_key = 0;
}
