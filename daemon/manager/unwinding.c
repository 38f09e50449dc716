// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/unwinding.h"

#include <sys/stat.h>

#include "model/profile.h"
#include "symbol/vdso.h"

struct known {
	uint32_t tgid;
	uint64_t start;
};

#define DEALT 1024

struct unwinding {
	struct process_table *processes;
	struct unwinder *unwinder;
	struct supplier *supplier;
	struct walk_tables tables;
	uint64_t vdso; /* registry key, or 0; the supplier's thread reads it */
	/* Processes that this slice's stacks have led to, by hash: others may have taken the place of some. */
	struct known dealt[DEALT];
	/* Room that is used again. */
	struct known *changed;
	size_t n_changed, cap_changed;
	struct process_region *from;
	size_t cap_from;
	struct unwinder_region *regions;
	size_t cap_regions;
};

/* ---- for the walk on the host ------------------------------------------------------------------------- */

static bool find_space(void *ctx, uint32_t tgid, uint64_t start, struct unwind_process *ret)
{
	struct unwinding *u = ctx;

	return unwinder_space(u->unwinder, tgid, start, ret);
}

static bool read_node(void *ctx, uint32_t node, void *ret)
{
	struct unwinding *u = ctx;

	return unwinder_node(u->unwinder, node, ret);
}

static bool read_rule(void *ctx, uint32_t rule, struct unwind_rule *ret)
{
	struct unwinding *u = ctx;

	return unwinder_rule(u->unwinder, rule, ret);
}

const struct walk_tables *unwinding_tables(const struct unwinding *u)
{
	return u ? &u->tables : NULL;
}

/* ---- installing ---------------------------------------------------------------------------------------- */

static int install(struct unwinding *u, struct process *p, const struct known *k)
{
	size_t n = process_region_count(p);
	int r;

	r = ARRAY_GROW(u->from, u->cap_from, MAX(n, 1UL));
	if (r >= 0)
		r = ARRAY_GROW(u->regions, u->cap_regions, MAX(n, 1UL));
	if (r < 0)
		return r;
	process_regions(p, u->from);
	for (size_t i = 0; i < n; i++) {
		const struct process_region *f = &u->from[i];
		/* That of 32-bit processes lies below 4 GiB: it is another one, and they are walked without tables. */
		bool vdso = f->kind == BINARY_VDSO && f->end > 1ULL << 32;

		if (vdso)
			__atomic_store_n(&u->vdso, f->binary, __ATOMIC_RELAXED);
		u->regions[i] = (struct unwinder_region){
			.start = f->start,
			.end = f->end,
			.offset = f->offset,
			.binary = f->binary,
			.kind = f->kind == BINARY_ELF || vdso ? UNWINDER_FILE : UNWINDER_CODE,
		};
	}
	return unwinder_put(u->unwinder, k->tgid, k->start, process_version(p), u->regions, n);
}

/* It is gone, but what it ran may be run again. */
static void want(struct unwinding *u, struct process *p)
{
	size_t n = process_region_count(p);

	if (ARRAY_GROW(u->from, u->cap_from, MAX(n, 1UL)) < 0)
		return;
	process_regions(p, u->from);
	for (size_t i = 0; i < n; i++)
		if (u->from[i].kind == BINARY_ELF)
			unwinder_want(u->unwinder, u->from[i].binary);
}

/* What a process maps where it was met, or NULL: by now another file may lie there. */
static const struct process_region *region_at(struct unwinding *u, const struct unwind_stranger *s)
{
	struct process *p = process_known(u->processes, s->process.tgid, s->process.start);
	size_t n = p ? process_region_count(p) : 0;
	struct binary_ref then;
	uint64_t offset;

	if (!n || ARRAY_GROW(u->from, u->cap_from, n) < 0)
		return NULL;
	process_resolve(p, s->mono_ns, s->address, &then, &offset);
	process_regions(p, u->from);
	for (size_t i = 0; i < n; i++)
		if (s->address >= u->from[i].start && s->address < u->from[i].end)
			return u->from[i].binary == then.key ? &u->from[i] : NULL;
	return NULL;
}

/* One binary lies in many files: those that the walk met and did not know. */
static void introduce(struct unwinding *u)
{
	struct unwind_file_key file;
	struct unwind_stranger stranger;

	while (unwinder_stranger(u->unwinder, &file, &stranger)) {
		const struct process_region *at = region_at(u, &stranger);

		if (at)
			unwinder_file(u->unwinder, at->binary, at->author, &file, stranger.owner);
	}
}

static bool keep(void *ctx, uint32_t tgid, uint64_t start, uint64_t version)
{
	struct unwinding *u = ctx;
	struct process *p = process_known(u->processes, tgid, start);

	if (!p || !process_lives(p))
		return false;
	/* Without memory it is followed the next time. */
	if (process_version(p) != version &&
	    ARRAY_GROW(u->changed, u->cap_changed, u->n_changed + 1) >= 0)
		u->changed[u->n_changed++] = (struct known){ tgid, start };
	return true;
}

void unwinding_follow(struct unwinding *u)
{
	if (!u)
		return;
	u->n_changed = 0;
	unwinder_each(u->unwinder, keep, u);
	for (size_t i = 0; i < u->n_changed; i++) {
		const struct known *k = &u->changed[i];
		struct process *p = process_known(u->processes, k->tgid, k->start);

		/* What has no room is counted there, and walked as before. */
		if (p && install(u, p, k) < 0)
			unwinder_remove(u->unwinder, k->tgid, k->start);
	}
}

/* Many stacks are of one process, and what it maps may be much: it is not looked at for each. */
static bool is_first(struct unwinding *u, const struct known *k)
{
	uint64_t hash = (k->start ^ (uint64_t)k->tgid << 32) * 0x9e3779b97f4a7c15ULL;
	struct known *at = &u->dealt[hash >> 32 & (DEALT - 1)];
	bool first = at->tgid != k->tgid || at->start != k->start;

	*at = *k;
	return first;
}

void unwinding_see(struct unwinding *u, const struct slice *s)
{
	if (!u)
		return;
	unwinder_settle(u->unwinder);
	memset(u->dealt, 0, sizeof(u->dealt));
	for (size_t i = 0; i < s->n_stacks; i++) {
		const struct slice_stack *st = &s->stacks[i];
		struct known k = { st->tgid, st->start };
		struct process *p;

		if (!st->nr_user || !is_first(u, &k))
			continue;
		p = process_known(u->processes, k.tgid, k.start);
		if (!p || unwinder_version(u->unwinder, k.tgid, k.start) == process_version(p))
			continue;
		if (process_lives(p))
			(void)install(u, p, &k);
		else
			want(u, p);
	}
	introduce(u);
}

void unwinding_used(struct unwinding *u, const uint64_t *binaries, size_t n)
{
	for (size_t i = 0; u && i < n; i++)
		if (binaries[i])
			unwinder_used(u->unwinder, binaries[i]);
}

/* ---- building ------------------------------------------------------------------------------------------- */

/* On the supplier's thread. */
static int open_binary(void *ctx, uint64_t binary, bool *ret_vdso)
{
	struct unwinding *u = ctx;

	*ret_vdso = binary == __atomic_load_n(&u->vdso, __ATOMIC_RELAXED);
	if (*ret_vdso)
		return vdso_open();
	return process_table_open_binary(u->processes, binary);
}

int unwinding_new(struct process_table *processes, const char *cache, uint64_t memory_max,
		  struct unwinding **ret)
{
	const struct unwinder_options uo = { .memory_max = memory_max };
	_cleanup_(unwinding_free_p) struct unwinding *u = new0(struct unwinding, 1);
	struct supplier_options bo = { .open_binary = open_binary, .cache = cache };
	struct unwinder_maps maps;
	int r;

	if (!u)
		return -ENOMEM;
	u->processes = processes;
	r = unwinder_new(&uo, &u->unwinder);
	if (r < 0)
		return r;
	unwinder_maps(u->unwinder, &maps);
	u->tables = (struct walk_tables){
		.processes = maps.processes,
		.files = maps.files,
		.strangers = maps.strangers,
		.young = maps.young,
		.nodes = maps.nodes,
		.rules = maps.rules,
		.controls = maps.controls,
		.ctx = u,
		.space = find_space,
		.node = read_node,
		.rule = read_rule,
	};
	/* Without the directory tables are built anew after each start. */
	if (cache)
		(void)mkdir(cache, 0700);
	bo.unwinder = u->unwinder;
	bo.ctx = u;
	r = supplier_new(&bo, &u->supplier);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(u);
	return 0;
}

struct unwinding *unwinding_free(struct unwinding *u)
{
	if (!u)
		return NULL;
	supplier_free(u->supplier);
	unwinder_free(u->unwinder);
	free(u->changed);
	free(u->from);
	free(u->regions);
	free(u);
	return NULL;
}

void unwinding_state(struct unwinding *u, struct unwinding_state *ret)
{
	*ret = (struct unwinding_state){ .running = u != NULL };
	if (!u)
		return;
	unwinder_stats(u->unwinder, &ret->unwinder);
	supplier_stats(u->supplier, &ret->supplier);
}
