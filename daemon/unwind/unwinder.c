// SPDX-License-Identifier: GPL-2.0-or-later
/* The life of the unwinder, and its clock. */
#include <sys/mman.h>

#include <bpf/bpf.h>

#include "unwind/internal.h"

#define MEMORY_DEFAULT (64ULL << 20)
#define PROCESSES_DEFAULT 16384
#define YOUNG_MAX \
	1024 /* processes with noted mappings; those that began before them are known by then */

static int make_maps(struct unwinder *u)
{
	LIBBPF_OPTS(bpf_map_create_opts, mapped, .map_flags = BPF_F_MMAPABLE);
	void *memory;

	/* Preallocated: programs of perf events may use no other hash before 6.1. */
	u->processes_fd = bpf_map_create(BPF_MAP_TYPE_HASH, "unwind_process",
					 sizeof(struct unwind_process_key),
					 sizeof(struct unwind_process), u->processes_max, NULL);
	if (u->processes_fd < 0)
		return negative_errno();
	u->young_fd = bpf_map_create(BPF_MAP_TYPE_LRU_HASH, "unwind_young",
				     sizeof(struct unwind_process_key), sizeof(struct unwind_young),
				     YOUNG_MAX, NULL);
	if (u->young_fd < 0)
		return negative_errno();
	u->controls_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_control", sizeof(uint32_t),
					sizeof(struct unwind_control), 1, &mapped);
	if (u->controls_fd < 0)
		return negative_errno();
	memory = mmap(NULL, sizeof(*u->control), PROT_READ | PROT_WRITE, MAP_SHARED, u->controls_fd,
		      0);
	if (memory == MAP_FAILED)
		return negative_errno();
	u->control = memory;
	return 0;
}

int unwinder_new(const struct unwinder_options *o, struct unwinder **ret)
{
	_cleanup_(unwinder_free_p) struct unwinder *u = new0(struct unwinder, 1);
	int r;

	if (!u)
		return -ENOMEM;
	pthread_mutex_init(&u->lock, NULL);
	u->processes_fd = u->files_fd = u->strangers_fd = u->young_fd = u->controls_fd = -1;
	u->memory_max = o->memory_max ?: MEMORY_DEFAULT;
	u->processes_max = o->processes_max ?: PROCESSES_DEFAULT;
	TAILQ_INIT(&u->wanted);
	TAILQ_INIT(&u->lacking);
	LIST_INIT(&u->all_spaces);
	r = make_maps(u);
	if (r >= 0)
		r = files_new(u);
	if (r >= 0)
		r = pool_new(u->memory_max, &u->pool);
	if (r >= 0)
		r = rules_new(&u->rules);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(u);
	return 0;
}

struct unwinder *unwinder_free(struct unwinder *u)
{
	struct space *s;

	if (!u)
		return NULL;
	for (size_t i = 1; i < u->n_members; i++)
		free(u->members[i]);
	while ((s = LIST_FIRST(&u->all_spaces))) {
		LIST_REMOVE(s, link);
		free(s->regions);
		free(s);
	}
	for (size_t i = 1; i < u->n_tables; i++) {
		if (!u->tables[i])
			continue;
		free(u->tables[i]->nodes);
		free(u->tables[i]->rules);
		free(u->tables[i]);
	}
	free(u->members);
	free(u->free_members);
	free(u->spaces);
	free(u->tables);
	index_done(&u->by_binary);
	index_done(&u->by_version);
	index_done(&u->by_process);
	pool_free(u->pool);
	rules_free(u->rules);
	if (u->control)
		munmap(u->control, sizeof(*u->control));
	close_fd(u->processes_fd);
	files_done(u);
	close_fd(u->young_fd);
	close_fd(u->controls_fd);
	pthread_mutex_destroy(&u->lock);
	free(u);
	return NULL;
}

void unwinder_maps(const struct unwinder *u, struct unwinder_maps *ret)
{
	*ret = (struct unwinder_maps){
		.processes = u->processes_fd,
		.files = u->files_fd,
		.strangers = u->strangers_fd,
		.young = u->young_fd,
		.nodes = pool_fd(u->pool),
		.rules = rules_fd(u->rules),
		.controls = u->controls_fd,
	};
}

void unwinder_on_wish(struct unwinder *u, void (*fn)(void *ctx), void *ctx)
{
	u->on_wish = fn;
	u->wish_ctx = ctx;
}

void unwinder_used(struct unwinder *u, uint64_t binary)
{
	struct installed *t;

	pthread_mutex_lock(&u->lock);
	t = installed_find(u, binary);
	if (t)
		t->used = u->turn;
	pthread_mutex_unlock(&u->lock);
}

void unwinder_settle(struct unwinder *u)
{
	pthread_mutex_lock(&u->lock);
	u->turn++;
	pool_settle(u->pool);
	rules_settle(u->rules);
	/* Those for which there was no room. */
	spaces_refresh(u, true);
	pool_unmap(u->pool);
	pthread_mutex_unlock(&u->lock);
}

bool unwinder_node(struct unwinder *u, uint32_t node, void *ret)
{
	const void *at;

	pthread_mutex_lock(&u->lock);
	at = pool_at(u->pool, node);
	if (at)
		memcpy(ret, at, UNWIND_NODE_SIZE);
	pthread_mutex_unlock(&u->lock);
	return at != NULL;
}

bool unwinder_rule(struct unwinder *u, uint32_t rule, struct unwind_rule *ret)
{
	bool found;

	pthread_mutex_lock(&u->lock);
	found = rules_copy(u->rules, rule, ret) == 0;
	pthread_mutex_unlock(&u->lock);
	return found;
}

void unwinder_stats(struct unwinder *u, struct unwinder_stats *ret)
{
	struct unwinder_stats s = {};
	struct space *sp;

	pthread_mutex_lock(&u->lock);
	for (size_t i = 1; i < u->n_members; i++)
		s.processes += u->members[i] != NULL;
	LIST_FOREACH (sp, &u->all_spaces, link)
		s.spaces++;
	for (size_t i = 1; i < u->n_tables; i++) {
		const struct installed *t = u->tables[i];

		if (!t)
			continue;
		s.tables += t->state == INSTALLED_READY;
		s.wanted += t->state == INSTALLED_WANTED || t->state == INSTALLED_BUILDING;
		if (t->state == INSTALLED_LACKING)
			s.lacking[t->lack]++;
	}
	s.bytes = pool_bytes(u->pool);
	s.bytes_used = pool_used(u->pool);
	s.bytes_max = MAX(u->memory_max, pool_limit(u->pool));
	s.rules = rules_used(u->rules);
	s.evicted = u->evicted;
	s.refused = u->refused;
	pthread_mutex_unlock(&u->lock);
	*ret = s;
}
