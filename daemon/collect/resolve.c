// SPDX-License-Identifier: GPL-2.0-or-later
/* Addresses of a process at a time. Called for every frame of every new stack: no allocation on the way. */
#include "collect/table.h"

/* Windows to wait before /proc is read again for a process whose unknown addresses it did not explain. */
#define RESYNC_PAUSE_MAX 32
#define DATA_TTL_NS (60 * NSEC_PER_SEC)

static void set_unknown(struct binary_ref *ret)
{
	*ret = (struct binary_ref){
		.path = "", .name = "[unknown]", .build_id = "", .kind = BINARY_UNKNOWN
	};
}

static void set_object(const struct object *o, struct binary_ref *ret)
{
	*ret = (struct binary_ref){
		.key = o->key,
		.path = o->path,
		.name = o->name,
		.build_id = o->build_id,
		.kind = o->kind,
	};
	/* The registry's own identities of memory are nobody's device and inode. */
	if (o->identity.build_id_len) {
		ret->generation = o->identity.author;
	} else if (o->kind == BINARY_ELF) {
		ret->dev = o->identity.dev;
		ret->ino = o->identity.ino;
		ret->generation = o->identity.generation;
	}
}

/* The program image that ran at the time, or NULL when that was dropped. */
static const struct image *image_at(const struct process *p, uint64_t mono_ns)
{
	if (mono_ns < p->image_mono_ns)
		for (size_t i = 0; i < p->n_past; i++)
			if (mono_ns < p->past[i].until_mono_ns)
				return mono_ns >= p->past[i].from_mono_ns ? p->past[i].image : NULL;
	return p->image;
}

static const struct mapping *find(const struct process *p, uint64_t mono_ns, uint64_t address)
{
	const struct image *im = image_at(p, mono_ns);

	return im ? image_find(im, mono_ns, address) : NULL;
}

static bool may_resync(const struct process *p)
{
	return !p->exit_mono_ns && p->table->window >= p->resync_window;
}

/* Most unknown addresses are no code at all, but what a walk without frame pointers took for it. */
static const struct mapping *find_after_resync(struct process *p, uint64_t mono_ns,
					       uint64_t address)
{
	struct process_table *t = p->table;
	const struct mapping *m;

	snapshot_maps(p);
	t->resyncs++;
	m = find(p, mono_ns, address);
	p->resync_pause = m ? 1 : MIN(MAX(p->resync_pause, 1U) * 2, (uint32_t)RESYNC_PAUSE_MAX);
	p->resync_window = t->window + p->resync_pause;
	return m;
}

void process_resolve(struct process *p, uint64_t mono_ns, uint64_t address, struct binary_ref *ret,
		     uint64_t *ret_offset)
{
	const struct mapping *m;

	if (p->kernel_thread) {
		set_unknown(ret);
		*ret_offset = address;
		return;
	}
	if (!p->loaded)
		snapshot_load(p);
	m = find(p, mono_ns, address);
	if (!m && may_resync(p))
		m = find_after_resync(p, mono_ns, address);
	if (!m) {
		set_unknown(ret);
		*ret_offset = address;
		return;
	}
	set_object(m->object, ret);
	*ret_offset = address - m->start + m->offset;
	/* The map is that of the present program. */
	if (m->object->kind == BINARY_ANON && mono_ns >= p->image_mono_ns) {
		ret->ino = jit_key(p);
		ret->key = ret->ino ?: ret->key;
	}
}

static const struct data_map *find_data(const struct process *p, uint64_t address)
{
	size_t lo = 0, hi = p->n_data;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->data[mid].end > address)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < p->n_data && p->data[lo].start <= address ? &p->data[lo] : NULL;
}

/*
 * The list costs a read of all of /proc/PID/maps. It is kept over windows and read again for an address that
 * it does not cover, at most once a window, and when it has become old.
 */
void process_resolve_data(struct process *p, uint64_t address, struct binary_ref *ret,
			  uint64_t *ret_offset, bool *ret_shared)
{
	struct process_table *t = p->table;
	const struct data_map *m = find_data(p, address);
	bool wanted = !m || t->now_mono_ns - p->data_mono_ns > DATA_TTL_NS;

	if (wanted && t->window >= p->data_window && !p->exit_mono_ns && !p->kernel_thread) {
		p->data_window = t->window + 1;
		snapshot_data(p);
		m = find_data(p, address);
	}
	if (!m) {
		set_unknown(ret);
		*ret_offset = address;
		*ret_shared = false;
		return;
	}
	set_object(m->object, ret);
	*ret_offset = address - m->start + m->offset;
	*ret_shared = m->shared;
}
