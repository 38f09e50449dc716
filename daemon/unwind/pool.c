// SPDX-License-Identifier: GPL-2.0-or-later
#include "unwind/pool.h"

#include <sys/mman.h>

#include <bpf/bpf.h>

#define MAP_BYTES (UNWIND_NODES_PER_MAP * UNWIND_NODE_SIZE)
#define NO_SLOT UINT16_MAX

/* One map. Free slots form a list; slot 0 of the first map is never used, so that no node is number 0. */
struct part {
	int fd; /* -1: not made */
	void *memory; /* mapped, or NULL */
	uint16_t *next_free;
	uint16_t first_free;
	uint16_t used;
};

struct node_list {
	uint32_t *nodes;
	size_t n, cap;
};

struct pool {
	int fd;
	struct part *parts;
	size_t n_parts;
	size_t used; /* nodes */
	/* Freed since the last settling, and before it. */
	struct node_list young, old;
};

int pool_new(uint64_t limit, struct pool **ret)
{
	LIBBPF_OPTS(bpf_map_create_opts, inner, .map_flags = BPF_F_MMAPABLE);
	LIBBPF_OPTS(bpf_map_create_opts, outer);
	_cleanup_(pool_free_p) struct pool *p = new0(struct pool, 1);
	_cleanup_close_ int model = -1;

	if (!p)
		return -ENOMEM;
	p->fd = -1;
	p->n_parts = MAX(limit / MAP_BYTES, 1UL);
	p->parts = new0(struct part, p->n_parts);
	if (!p->parts)
		return -ENOMEM;
	for (size_t i = 0; i < p->n_parts; i++)
		p->parts[i].fd = -1;
	model = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_part", sizeof(uint32_t),
			       UNWIND_NODE_SIZE, UNWIND_NODES_PER_MAP, &inner);
	if (model < 0)
		return negative_errno();
	outer.inner_map_fd = model;
	p->fd = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "unwind_nodes", sizeof(uint32_t),
			       sizeof(uint32_t), p->n_parts, &outer);
	if (p->fd < 0)
		return negative_errno();
	*ret = TAKE_PTR(p);
	return 0;
}

static void part_unmap(struct part *q)
{
	if (q->memory)
		munmap(q->memory, MAP_BYTES);
	q->memory = NULL;
}

static void part_done(struct part *q)
{
	part_unmap(q);
	q->fd = close_fd(q->fd);
	free(q->next_free);
	q->next_free = NULL;
}

struct pool *pool_free(struct pool *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; p->parts && i < p->n_parts; i++)
		part_done(&p->parts[i]);
	free(p->parts);
	free(p->young.nodes);
	free(p->old.nodes);
	close_fd(p->fd);
	free(p);
	return NULL;
}

int pool_fd(const struct pool *p)
{
	return p->fd;
}

/* ---- parts ------------------------------------------------------------------------------------- */

static int part_make(struct pool *p, size_t i)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	struct part *q = &p->parts[i];
	uint32_t key = i;
	int r = 0;

	q->next_free = malloc(UNWIND_NODES_PER_MAP * sizeof(*q->next_free));
	if (!q->next_free)
		return -ENOMEM;
	q->fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_part", sizeof(uint32_t),
			       UNWIND_NODE_SIZE, UNWIND_NODES_PER_MAP, &opts);
	if (q->fd < 0 || bpf_map_update_elem(p->fd, &key, &q->fd, BPF_ANY) < 0)
		r = negative_errno();
	if (r < 0) {
		part_done(q);
		return r;
	}
	for (uint32_t s = 0; s < UNWIND_NODES_PER_MAP; s++)
		q->next_free[s] = s + 1 < UNWIND_NODES_PER_MAP ? s + 1 : NO_SLOT;
	q->first_free = i == 0; /* node 0 means none */
	q->used = 0;
	return 0;
}

static void part_drop(struct pool *p, size_t i)
{
	uint32_t key = i;

	/* Waits for a grace period; no walk can hold a node of it even so: they were settled. */
	if (bpf_map_delete_elem(p->fd, &key) == 0)
		part_done(&p->parts[i]);
}

static uint32_t take_one(struct pool *p)
{
	for (size_t i = 0; i < p->n_parts; i++) {
		struct part *q = &p->parts[i];
		uint16_t slot = q->first_free;

		if (q->fd < 0 || slot == NO_SLOT)
			continue;
		q->first_free = q->next_free[slot];
		q->used++;
		p->used++;
		return (uint32_t)i << UNWIND_SLOT_BITS | slot;
	}
	return 0;
}

static int grow(struct pool *p)
{
	for (size_t i = 0; i < p->n_parts; i++)
		if (p->parts[i].fd < 0)
			return part_make(p, i);
	return -ENOSPC;
}

static struct part *part_of(struct pool *p, uint32_t node)
{
	size_t i = node >> UNWIND_SLOT_BITS;

	if (!node || i >= p->n_parts || p->parts[i].fd < 0 ||
	    (node & ((1U << UNWIND_SLOT_BITS) - 1)) >= UNWIND_NODES_PER_MAP)
		return NULL;
	return &p->parts[i];
}

static void put_one(struct pool *p, uint32_t node)
{
	struct part *q = part_of(p, node);
	uint16_t slot = node & ((1U << UNWIND_SLOT_BITS) - 1);

	assert(q);
	q->next_free[slot] = q->first_free;
	q->first_free = slot;
	q->used--;
	p->used--;
	/* The first part stays: there is always something to be kept. */
	if (q->used == 0 && q != p->parts)
		part_drop(p, q - p->parts);
}

/* ---- nodes ------------------------------------------------------------------------------------- */

int pool_take(struct pool *p, uint32_t *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t node = take_one(p);
		int r = 0;

		if (!node) {
			r = grow(p);
			node = r == 0 ? take_one(p) : 0;
		}
		if (!node) {
			while (i > 0)
				put_one(p, ret[--i]);
			return r < 0 ? r : -ENOSPC;
		}
		ret[i] = node;
	}
	return 0;
}

void pool_give_back(struct pool *p, const uint32_t *nodes, size_t n)
{
	struct node_list *l = &p->young;

	/* Without memory for the list they are lost to the pool, which is better than to be read as something else. */
	if (n == 0 || ARRAY_GROW(l->nodes, l->cap, l->n + n) < 0)
		return;
	memcpy(l->nodes + l->n, nodes, n * sizeof(*nodes));
	l->n += n;
}

void pool_settle(struct pool *p)
{
	struct node_list empty = p->old;

	for (size_t i = 0; i < p->old.n; i++)
		put_one(p, p->old.nodes[i]);
	empty.n = 0;
	p->old = p->young;
	p->young = empty;
}

void *pool_at(struct pool *p, uint32_t node)
{
	struct part *q = part_of(p, node);

	if (!q)
		return NULL;
	if (!q->memory) {
		q->memory = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, q->fd, 0);
		if (q->memory == MAP_FAILED)
			q->memory = NULL;
	}
	if (!q->memory)
		return NULL;
	return (char *)q->memory +
	       (node & ((1U << UNWIND_SLOT_BITS) - 1)) * (size_t)UNWIND_NODE_SIZE;
}

void pool_unmap(struct pool *p)
{
	for (size_t i = 0; i < p->n_parts; i++)
		part_unmap(&p->parts[i]);
}

size_t pool_room(const struct pool *p)
{
	return p->n_parts * UNWIND_NODES_PER_MAP - 1 - p->used;
}

uint64_t pool_bytes(const struct pool *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->n_parts; i++)
		n += p->parts[i].fd >= 0;
	return n * MAP_BYTES;
}

uint64_t pool_limit(const struct pool *p)
{
	return p->n_parts * MAP_BYTES;
}

uint64_t pool_used(const struct pool *p)
{
	return p->used * (uint64_t)UNWIND_NODE_SIZE;
}
