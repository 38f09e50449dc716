// SPDX-License-Identifier: GPL-2.0-or-later
/* Tables in the maps: installed, thrown out when room is needed, wanted again. */
#include "base/clock.h"
#include "unwind/internal.h"

/* Settlings (windows of 2 s) that a table must have been unused before it may be thrown out. */
#define IDLE_TURNS 30
#define RETRY_NS (60 * NSEC_PER_SEC)
/* Binaries without a table that are remembered although no process maps them. */
#define LACKING_MAX 4096
/* Likewise of those that wait for theirs: anybody can run ever new files, faster than tables are built. */
#define UNCLAIMED_MAX 4096
/* What was thrown out is free two windows later. */
#define ROOM_NS (6 * NSEC_PER_SEC)

static uint64_t hash_binary(uint64_t key)
{
	return key * 0x9e3779b97f4a7c15ULL;
}

static bool binary_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct unwinder *u = ctx;

	return u->tables[id]->binary == *(const uint64_t *)key;
}

struct installed *installed_find(struct unwinder *u, uint64_t binary)
{
	uint32_t id = index_find(&u->by_binary, hash_binary(binary), binary_equal, u, &binary);

	return id ? u->tables[id] : NULL;
}

static uint32_t new_id(struct unwinder *u)
{
	for (size_t i = 1; i < u->n_tables; i++)
		if (!u->tables[i])
			return (uint32_t)i;
	u->n_tables = MAX(u->n_tables, 1UL);
	if (ARRAY_GROW(u->tables, u->cap_tables, u->n_tables + 1) < 0)
		return 0;
	return (uint32_t)u->n_tables++;
}

struct installed *installed_get(struct unwinder *u, uint64_t binary)
{
	struct installed *t = installed_find(u, binary);

	if (t) {
		if (t->refs++ == 0 && t->state == INSTALLED_WANTED)
			u->n_unclaimed--;
		return t;
	}
	t = new0(struct installed, 1);
	if (!t)
		return NULL;
	t->binary = binary;
	t->refs = 1;
	t->used = u->turn;
	t->id = new_id(u);
	if (!t->id || index_add(&u->by_binary, hash_binary(binary), t->id) < 0) {
		free(t);
		return NULL;
	}
	u->tables[t->id] = t;
	TAILQ_INSERT_TAIL(&u->wanted, t, link);
	return t;
}

/* ---- in the maps --------------------------------------------------------------------------------------- */

/* Gives back nodes and rules. `seen`: walks may have found it, and remember its rules. */
static void uninstall(struct unwinder *u, struct installed *t, bool seen)
{
	files_forget(u, t);
	if (seen)
		__atomic_fetch_add(&u->control->epoch, 1, __ATOMIC_SEQ_CST);
	pool_give_back(u->pool, t->nodes, t->n_nodes);
	for (size_t i = 0; i < t->n_rules; i++)
		rules_put(u->rules, t->rules[i]);
	free(t->nodes);
	free(t->rules);
	t->nodes = NULL;
	t->rules = NULL;
	t->n_nodes = t->n_rules = 0;
	t->root = 0;
}

static void unlack(struct unwinder *u, struct installed *t)
{
	TAILQ_REMOVE(&u->lacking, t, link);
	u->n_lacking--;
}

static void want(struct unwinder *u, struct installed *t)
{
	t->state = INSTALLED_WANTED;
	TAILQ_INSERT_TAIL(&u->wanted, t, link);
	u->n_unclaimed += t->refs == 0;
}

static void unwant(struct unwinder *u, struct installed *t)
{
	TAILQ_REMOVE(&u->wanted, t, link);
	u->n_unclaimed -= t->refs == 0;
}

static void installed_free(struct unwinder *u, struct installed *t)
{
	uninstall(u, t, t->root != 0);
	if (t->state == INSTALLED_WANTED)
		unwant(u, t);
	else if (t->state == INSTALLED_LACKING)
		unlack(u, t);
	index_del(&u->by_binary, hash_binary(t->binary), t->id);
	u->tables[t->id] = NULL;
	free(t);
}

void installed_put(struct unwinder *u, struct installed *t)
{
	/* All stay for the next process that maps it, until there is need for their room. */
	if (--t->refs > 0 || t->state != INSTALLED_WANTED)
		return;
	if (++u->n_unclaimed > UNCLAIMED_MAX) {
		installed_free(u, t);
		u->refused++;
	}
}

static void forget_one(struct unwinder *u)
{
	struct installed *t;

	TAILQ_FOREACH(t, &u->lacking, link)
	{
		if (t->refs > 0)
			continue;
		installed_free(u, t);
		return;
	}
}

static void lack(struct unwinder *u, struct installed *t, enum unwind_lack why, uint64_t retry_ns)
{
	/* Not t itself, which is still in use, and may be the only one that nobody maps. */
	if (u->n_lacking >= LACKING_MAX)
		forget_one(u);
	t->state = INSTALLED_LACKING;
	t->lack = why;
	t->retry_mono_ns = retry_ns ? mono_now_ns() + retry_ns : 0;
	TAILQ_INSERT_TAIL(&u->lacking, t, link);
	u->n_lacking++;
}

/* Lacking ones whose time has come are wanted again. */
static void retry(struct unwinder *u)
{
	uint64_t now = mono_now_ns();
	struct installed *t, *next;

	for (t = TAILQ_FIRST(&u->lacking); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (!t->retry_mono_ns || t->retry_mono_ns > now)
			continue;
		unlack(u, t);
		want(u, t);
	}
}

static void evict(struct unwinder *u, struct installed *t)
{
	u->evicted++;
	if (t->refs == 0) {
		installed_free(u, t);
		return;
	}
	/* First nobody refers to it any more. */
	t->root = 0;
	lack(u, t, UNWIND_LACK_MEMORY, RETRY_NS);
	spaces_touch(u, t);
	spaces_refresh(u, false);
	uninstall(u, t, true);
}

static bool is_idle(const struct unwinder *u, const struct installed *t)
{
	return t && t->state == INSTALLED_READY && t->used + IDLE_TURNS < u->turn;
}

static struct installed *longest_unused(struct unwinder *u)
{
	struct installed *oldest = NULL;

	for (size_t i = 1; i < u->n_tables; i++) {
		struct installed *t = u->tables[i];

		if (is_idle(u, t) && (!oldest || t->used < oldest->used))
			oldest = t;
	}
	return oldest;
}

static size_t idle_nodes(const struct unwinder *u)
{
	size_t n = 0;

	for (size_t i = 1; i < u->n_tables; i++)
		n += is_idle(u, u->tables[i]) ? u->tables[i]->n_nodes : 0;
	return n;
}

/*
 * Throws out what was not used lately until `nodes` will be free, in a while. False when there is not so much: then all
 * stays, or a table that fits nowhere would throw out the others each time that it is tried.
 */
static bool make_room(struct unwinder *u, size_t nodes)
{
	size_t room = pool_room(u->pool);
	struct installed *t;

	if (room + idle_nodes(u) < nodes)
		return false;
	while (room < nodes && (t = longest_unused(u))) {
		room += t->n_nodes;
		evict(u, t);
	}
	return room >= nodes;
}

/* Node numbers of the table become those of the maps. */
static uint32_t map_node(const struct installed *t, uint32_t number)
{
	return number ? t->nodes[number - 1] : 0;
}

static void copy_leaf(const struct installed *t, const struct unwind_leaf *from,
		      struct unwind_leaf *to)
{
	*to = *from;
	to->next = map_node(t, from->next);
	for (size_t g = 0; g < ARRAY_SIZE(to->group); g++)
		for (size_t i = 0; i < UNWIND_GROUP; i++)
			to->group[g].rule[i] = t->rules[from->group[g].rule[i]];
}

static void copy_index(const struct installed *t, const struct unwind_index *from,
		       struct unwind_index *to)
{
	for (size_t i = 0; i < ARRAY_SIZE(to->entry); i++)
		to->entry[i] = map_node(t, from->entry[i]);
}

static int copy_nodes(struct unwinder *u, struct installed *t, const struct table *from)
{
	for (uint32_t i = 1; i <= t->n_nodes; i++) {
		void *to = pool_at(u->pool, t->nodes[i - 1]);

		if (!to)
			return -ENOMEM;
		if (i <= from->n_leaves)
			copy_leaf(t, table_node(from, i), to);
		else
			copy_index(t, table_node(from, i), to);
	}
	return 0;
}

static int take_rules(struct unwinder *u, struct installed *t, const struct table *from)
{
	const struct unwind_rule *rules = table_rules(from);

	t->rules = new0(uint16_t, from->n_rules);
	if (!t->rules)
		return -ENOMEM;
	/* Rule 0 is none, and stays 0. */
	for (t->n_rules = 1; t->n_rules < from->n_rules; t->n_rules++) {
		int r = rules_get(u->rules, &rules[t->n_rules], &t->rules[t->n_rules]);

		if (r < 0)
			return r;
	}
	return 0;
}

static int install(struct unwinder *u, struct installed *t, const struct table *from)
{
	size_t n = (size_t)from->n_leaves + from->n_index;
	int r;

	t->nodes = new0(uint32_t, n);
	if (!t->nodes)
		return -ENOMEM;
	r = pool_take(u->pool, t->nodes, n);
	if (r == -ENOSPC && make_room(u, n))
		return -EAGAIN;
	if (r < 0)
		return r;
	t->n_nodes = n;
	r = take_rules(u, t, from);
	if (r >= 0)
		r = copy_nodes(u, t, from);
	if (r < 0)
		return r;
	t->n_segments = from->n_segments;
	memcpy(t->segments, table_segments(from), t->n_segments * sizeof(*t->segments));
	t->root = map_node(t, from->root & ~UNWIND_ROOT_DEEP) | (from->root & UNWIND_ROOT_DEEP);
	return 0;
}

/* ---- for the supplier ------------------------------------------------------------------------------------ */

uint64_t unwinder_next(struct unwinder *u)
{
	struct installed *t;
	uint64_t binary = 0;

	pthread_mutex_lock(&u->lock);
	retry(u);
	t = TAILQ_FIRST(&u->wanted);
	if (t) {
		unwant(u, t);
		t->state = INSTALLED_BUILDING;
		binary = t->binary;
	}
	pthread_mutex_unlock(&u->lock);
	return binary;
}

void unwinder_want(struct unwinder *u, uint64_t binary)
{
	struct installed *t;
	bool wish;

	pthread_mutex_lock(&u->lock);
	t = installed_get(u, binary);
	if (t)
		installed_put(u, t);
	wish = !TAILQ_EMPTY(&u->wanted);
	pthread_mutex_unlock(&u->lock);
	if (wish && u->on_wish)
		u->on_wish(u->wish_ctx);
}

void unwinder_answer(struct unwinder *u, uint64_t binary, const struct table *from,
		     const struct unwind_file_key *file, enum unwind_lack why, bool forever)
{
	struct installed *t;
	int r = 0;

	pthread_mutex_lock(&u->lock);
	t = installed_find(u, binary);
	if (t && t->state == INSTALLED_BUILDING) {
		uint64_t retry_ns = forever ? 0 : RETRY_NS;

		if (from)
			r = install(u, t, from);
		if (r < 0) {
			uninstall(u, t, false);
			u->refused += r != -EAGAIN;
			why = UNWIND_LACK_MEMORY;
			retry_ns = r == -EAGAIN ? ROOM_NS : RETRY_NS;
		}
		t->used = u->turn;
		if (from && r >= 0)
			t->state = INSTALLED_READY;
		else
			lack(u, t, why, retry_ns);
		t->file_size = file ? file->size : 0;
		if (t->root && file)
			files_add(u, t, file);
		spaces_touch(u, t);
		spaces_refresh(u, true);
		pool_unmap(u->pool);
	}
	pthread_mutex_unlock(&u->lock);
}
