// SPDX-License-Identifier: GPL-2.0-or-later
/* Mappings in the maps: which process maps what, as the walker finds it. */
#include <bpf/bpf.h>

#include "unwind/internal.h"

/* Settlings (windows of 2 s) without a sample after which a process may make room for another. */
#define IDLE_TURNS 30

/* ---- lists of mappings ---------------------------------------------------------------------------------- */

/*
 * Table pc of the mapping's first byte, where its table is known and shows this part of the file. Mappings are whole
 * pages: they begin before their segment, end behind it, and may show some of its neighbours, in whose pages it lies.
 */
static bool region_pc(const struct region *r, uint64_t *ret)
{
	const struct installed *t = r->table;
	uint64_t most = 0;

	for (size_t i = 0; i < t->n_segments; i++) {
		const struct table_segment *s = &t->segments[i];
		uint64_t from = MAX(r->offset, s->offset);
		uint64_t to = MIN(r->offset + (r->end - r->start), s->offset + s->size);

		if (to <= from || to - from <= most)
			continue;
		most = to - from;
		*ret = s->pc + r->offset - s->offset;
	}
	return most > 0;
}

static void fill_mapping(const struct region *r, struct unwind_mapping *m)
{
	uint64_t pc = 0;

	*m = (struct unwind_mapping){ .start = r->start, .end = r->end };
	if (!r->table)
		m->lack = UNWIND_LACK_CODE;
	else if (r->table->state == INSTALLED_LACKING)
		m->lack = r->table->lack;
	else if (!r->table->root)
		m->lack = UNWIND_LACK_PENDING;
	else if (!region_pc(r, &pc))
		m->lack = UNWIND_LACK_CFI;
	else
		m->root = r->table->root;
	m->delta = r->start - pc;
}

static int fill_list(struct unwinder *u, uint32_t node, const struct region *regions, size_t n)
{
	struct unwind_list *l = pool_at(u->pool, node);

	if (!l)
		return -ENOMEM;
	l->n = n;
	for (size_t i = 0; i < UNWIND_LIST; i++) {
		if (i < n)
			fill_mapping(&regions[i], &l->mapping[i]);
		else
			l->mapping[i] = (struct unwind_mapping){};
	}
	return 0;
}

static int fill_lists(struct unwinder *u, const struct space *s, const uint32_t *nodes, size_t n)
{
	struct unwind_lists *top = pool_at(u->pool, nodes[0]);

	if (!top)
		return -ENOMEM;
	top->n = n - 1;
	for (size_t i = 0; i + 1 < n; i++) {
		size_t first = i * UNWIND_LIST;
		int r;

		top->list[i].start = s->regions[first].start;
		top->list[i].node = nodes[i + 1];
		r = fill_list(u, nodes[i + 1], s->regions + first,
			      MIN(s->n_regions - first, (size_t)UNWIND_LIST));
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_nodes(struct unwinder *u, const struct space *s, uint32_t *nodes, size_t *ret_n)
{
	size_t lists = (s->n_regions + UNWIND_LIST - 1) / UNWIND_LIST,
	       n = lists > 1 ? lists + 1 : 1;
	int r = pool_take(u->pool, nodes, n);

	if (r < 0)
		return r;
	r = n == 1 ? fill_list(u, nodes[0], s->regions, s->n_regions) : fill_lists(u, s, nodes, n);
	if (r < 0)
		pool_give_back(u->pool, nodes, n);
	else
		*ret_n = n;
	return r;
}

/* ---- processes ------------------------------------------------------------------------------------------- */

/* The walker sees either the old mappings or the new ones. */
static int publish(struct unwinder *u, const struct space *s, const struct member *m)
{
	struct unwind_process value = {
		.node = s->nodes[0],
		.deep = s->deep,
		.space = s->number,
	};

	if (s->n_nodes == 0) {
		bpf_map_delete_elem(u->processes_fd, &m->key);
		return 0;
	}
	return bpf_map_update_elem(u->processes_fd, &m->key, &value, BPF_ANY) < 0 ? negative_errno()
										  : 0;
}

/*
 * Makes the nodes anew. Without room the old ones stay where they are still true; else its processes are unknown
 * meanwhile. It is tried again at each settling.
 */
static int space_refresh(struct unwinder *u, struct space *s, bool old_is_true)
{
	uint32_t nodes[1 + UNWIND_LISTS], old[1 + UNWIND_LISTS];
	size_t n = 0, n_old = s->n_nodes;
	struct member *m;
	int r = make_nodes(u, s, nodes, &n);

	s->stale = r < 0;
	u->refused += r < 0;
	if (r < 0 && old_is_true)
		return r;
	memcpy(old, s->nodes, sizeof(old));
	memcpy(s->nodes, nodes, n * sizeof(*nodes));
	s->n_nodes = n;
	s->deep = n > 1;
	s->number = ++u->last_number;
	LIST_FOREACH (m, &s->members, link)
		if (publish(u, s, m) < 0)
			u->refused++;
	pool_give_back(u->pool, old, n_old);
	return r;
}

void spaces_touch(struct unwinder *u, const struct installed *t)
{
	struct space *s;

	LIST_FOREACH (s, &u->all_spaces, link)
		for (size_t i = 0; i < s->n_regions && !s->stale; i++)
			s->stale = s->regions[i].table == t;
}

void spaces_refresh(struct unwinder *u, bool old_is_true)
{
	struct space *s;

	LIST_FOREACH (s, &u->all_spaces, link)
		if (s->stale)
			space_refresh(u, s, old_is_true);
}

/* ---- spaces ------------------------------------------------------------------------------------------------ */

static uint64_t hash_u64(uint64_t v)
{
	v *= 0x9e3779b97f4a7c15ULL;
	return v ^ v >> 29;
}

static bool version_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct unwinder *u = ctx;

	return u->spaces[id]->version == *(const uint64_t *)key;
}

static struct space *space_find(struct unwinder *u, uint64_t version)
{
	uint32_t id = index_find(&u->by_version, hash_u64(version), version_equal, u, &version);

	return id ? u->spaces[id] : NULL;
}

static void space_free(struct unwinder *u, struct space *s)
{
	if (s->id) {
		index_del(&u->by_version, hash_u64(s->version), s->id);
		u->spaces[s->id] = NULL;
		LIST_REMOVE(s, link);
	}
	pool_give_back(u->pool, s->nodes, s->n_nodes);
	for (size_t i = 0; s->regions && i < s->n_regions; i++)
		if (s->regions[i].table)
			installed_put(u, s->regions[i].table);
	free(s->regions);
	free(s);
}

static int fill_regions(struct unwinder *u, struct space *s, const struct unwinder_region *regions,
			size_t n)
{
	s->regions = new0(struct region, MAX(n, 1UL));
	if (!s->regions)
		return -ENOMEM;
	for (s->n_regions = 0; s->n_regions < n; s->n_regions++) {
		const struct unwinder_region *from = &regions[s->n_regions];
		struct region *to = &s->regions[s->n_regions];

		*to = (struct region){ from->start, from->end, from->offset, NULL };
		if (from->kind != UNWINDER_FILE)
			continue;
		to->table = installed_get(u, from->binary);
		if (!to->table)
			return -ENOMEM;
	}
	return 0;
}

static uint32_t new_space_id(struct unwinder *u)
{
	for (size_t i = 1; i < u->n_spaces; i++)
		if (!u->spaces[i])
			return (uint32_t)i;
	u->n_spaces = MAX(u->n_spaces, 1UL);
	if (ARRAY_GROW(u->spaces, u->cap_spaces, u->n_spaces + 1) < 0)
		return 0;
	return (uint32_t)u->n_spaces++;
}

static int space_new(struct unwinder *u, uint64_t version, const struct unwinder_region *regions,
		     size_t n, struct space **ret)
{
	struct space *s;
	int r;

	if (n > UNWIND_LIST * UNWIND_LISTS)
		return -E2BIG;
	s = new0(struct space, 1);
	if (!s)
		return -ENOMEM;
	s->version = version;
	LIST_INIT(&s->members);
	r = fill_regions(u, s, regions, n);
	if (r >= 0) {
		uint32_t id = new_space_id(u);

		r = id ? index_add(&u->by_version, hash_u64(version), id) : -ENOMEM;
		if (r >= 0) {
			s->id = id;
			u->spaces[id] = s;
			LIST_INSERT_HEAD(&u->all_spaces, s, link);
			r = space_refresh(u, s, false);
		}
	}
	if (r < 0) {
		space_free(u, s);
		return r;
	}
	*ret = s;
	return 0;
}

static void space_unref(struct unwinder *u, struct space *s)
{
	if (--s->refs == 0)
		space_free(u, s);
}

/* ---- members ----------------------------------------------------------------------------------------------- */

static uint64_t hash_key(const struct unwind_process_key *k)
{
	return hash_u64(k->start ^ (uint64_t)k->tgid << 40);
}

static bool key_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct unwinder *u = ctx;

	return memcmp(&u->members[id]->key, key, sizeof(struct unwind_process_key)) == 0;
}

static struct member *member_find(struct unwinder *u, uint32_t tgid, uint64_t start)
{
	struct unwind_process_key key = { .start = start, .tgid = tgid };
	uint32_t id = index_find(&u->by_process, hash_key(&key), key_equal, u, &key);

	return id ? u->members[id] : NULL;
}

static void member_free(struct unwinder *u, struct member *m)
{
	bpf_map_delete_elem(u->processes_fd, &m->key);
	index_del(&u->by_process, hash_key(&m->key), m->id);
	LIST_REMOVE(m, link);
	space_unref(u, m->space);
	u->members[m->id] = NULL;
	u->free_members[u->n_free_members++] = m->id;
	free(m);
}

static size_t member_count(const struct unwinder *u)
{
	return MAX(u->n_members, 1UL) - 1 - u->n_free_members;
}

/* One that no sample has met for a while goes. */
static bool member_make_room(struct unwinder *u)
{
	struct member *oldest = NULL;

	for (size_t i = 1; i < u->n_members; i++) {
		struct member *m = u->members[i];

		if (m && m->used + IDLE_TURNS < u->turn && (!oldest || m->used < oldest->used))
			oldest = m;
	}
	if (oldest)
		member_free(u, oldest);
	return oldest != NULL;
}

static uint32_t new_member_id(struct unwinder *u)
{
	if (u->n_free_members)
		return u->free_members[--u->n_free_members];
	u->n_members = MAX(u->n_members, 1UL);
	if (ARRAY_GROW(u->members, u->cap_members, u->n_members + 1) < 0 ||
	    ARRAY_GROW(u->free_members, u->cap_free_members, u->n_members + 1) < 0)
		return 0;
	return (uint32_t)u->n_members++;
}

static int member_new(struct unwinder *u, uint32_t tgid, uint64_t start, struct space *s)
{
	struct member *m;
	int r;

	if (member_count(u) >= u->processes_max && !member_make_room(u))
		return -E2BIG;
	m = new0(struct member, 1);
	if (!m)
		return -ENOMEM;
	m->key = (struct unwind_process_key){ .start = start, .tgid = tgid };
	m->used = u->turn;
	m->space = s;
	m->id = new_member_id(u);
	r = m->id ? index_add(&u->by_process, hash_key(&m->key), m->id) : -ENOMEM;
	if (r < 0) {
		if (m->id)
			u->free_members[u->n_free_members++] = m->id;
		free(m);
		return r;
	}
	u->members[m->id] = m;
	LIST_INSERT_HEAD(&s->members, m, link);
	s->refs++;
	r = publish(u, s, m);
	if (r < 0)
		member_free(u, m);
	return r;
}

static int member_move(struct unwinder *u, struct member *m, struct space *s)
{
	struct space *old = m->space;

	LIST_REMOVE(m, link);
	LIST_INSERT_HEAD(&s->members, m, link);
	m->space = s;
	s->refs++;
	space_unref(u, old);
	return publish(u, s, m);
}

/* ---- from outside -------------------------------------------------------------------------------------------- */

static int put(struct unwinder *u, uint32_t tgid, uint64_t start, uint64_t version,
	       const struct unwinder_region *regions, size_t n)
{
	struct member *m = member_find(u, tgid, start);
	struct space *s;
	int r = 0;

	if (m && m->space->version == version)
		return 0;
	s = space_find(u, version);
	if (!s)
		r = space_new(u, version, regions, n, &s);
	if (r < 0)
		return r;
	s->refs++;
	r = m ? member_move(u, m, s) : member_new(u, tgid, start, s);
	space_unref(u, s);
	return r;
}

int unwinder_put(struct unwinder *u, uint32_t tgid, uint64_t start, uint64_t version,
		 const struct unwinder_region *regions, size_t n)
{
	bool wish;
	int r;

	pthread_mutex_lock(&u->lock);
	r = put(u, tgid, start, version, regions, n);
	u->refused += r < 0;
	pool_unmap(u->pool);
	wish = !TAILQ_EMPTY(&u->wanted);
	pthread_mutex_unlock(&u->lock);
	if (wish && u->on_wish)
		u->on_wish(u->wish_ctx);
	return r;
}

uint64_t unwinder_version(struct unwinder *u, uint32_t tgid, uint64_t start)
{
	struct member *m;
	uint64_t version = 0;

	pthread_mutex_lock(&u->lock);
	m = member_find(u, tgid, start);
	if (m) {
		m->used = u->turn;
		version = m->space->version;
	}
	pthread_mutex_unlock(&u->lock);
	return version;
}

void unwinder_remove(struct unwinder *u, uint32_t tgid, uint64_t start)
{
	struct member *m;

	pthread_mutex_lock(&u->lock);
	m = member_find(u, tgid, start);
	if (m)
		member_free(u, m);
	pthread_mutex_unlock(&u->lock);
}

void unwinder_each(struct unwinder *u, unwinder_keep_fn keep, void *ctx)
{
	pthread_mutex_lock(&u->lock);
	for (size_t i = 1; i < u->n_members; i++) {
		struct member *m = u->members[i];

		if (m && !keep(ctx, m->key.tgid, m->key.start, m->space->version))
			member_free(u, m);
	}
	pthread_mutex_unlock(&u->lock);
}

bool unwinder_space(struct unwinder *u, uint32_t tgid, uint64_t start, struct unwind_process *ret)
{
	struct member *m;
	bool found;

	pthread_mutex_lock(&u->lock);
	m = member_find(u, tgid, start);
	found = m && m->space->n_nodes;
	if (found)
		*ret = (struct unwind_process){
			.node = m->space->nodes[0],
			.deep = m->space->deep,
			.space = m->space->number,
		};
	pthread_mutex_unlock(&u->lock);
	return found;
}
