// SPDX-License-Identifier: GPL-2.0-or-later
#include "unwind/rules.h"

#include <sys/mman.h>

#include <bpf/bpf.h>
#include <xxhash.h>

#include "base/index.h"

struct rules {
	int fd;
	struct unwind_rule *rules; /* the map's memory: 256 KiB */
	uint32_t *refs;
	struct index index;
	uint16_t *unused; /* a stack of numbers */
	size_t n_unused;
	uint16_t *young, *old; /* without references since the last settling, and before it */
	size_t n_young, n_old;
};

#define RULES_BYTES (UNWIND_RULES * sizeof(struct unwind_rule))

int rules_new(struct rules **ret)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	_cleanup_(rules_free_p) struct rules *r = new0(struct rules, 1);
	void *memory;

	if (!r)
		return -ENOMEM;
	r->fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_rules", sizeof(uint32_t),
			       sizeof(struct unwind_rule), UNWIND_RULES, &opts);
	if (r->fd < 0)
		return negative_errno();
	memory = mmap(NULL, RULES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (memory == MAP_FAILED)
		return negative_errno();
	r->rules = memory;
	r->refs = new0(uint32_t, UNWIND_RULES);
	r->unused = new0(uint16_t, UNWIND_RULES);
	r->young = new0(uint16_t, UNWIND_RULES);
	r->old = new0(uint16_t, UNWIND_RULES);
	if (!r->refs || !r->unused || !r->young || !r->old)
		return -ENOMEM;
	/* Lower numbers are handed out first. */
	for (uint32_t i = UNWIND_RULES - 1; i > 0; i--)
		r->unused[r->n_unused++] = (uint16_t)i;
	*ret = TAKE_PTR(r);
	return 0;
}

struct rules *rules_free(struct rules *r)
{
	if (!r)
		return NULL;
	if (r->rules)
		munmap(r->rules, RULES_BYTES);
	close_fd(r->fd);
	index_done(&r->index);
	free(r->refs);
	free(r->unused);
	free(r->young);
	free(r->old);
	free(r);
	return NULL;
}

int rules_fd(const struct rules *r)
{
	return r->fd;
}

static bool equal(const void *ctx, uint32_t id, const void *key)
{
	const struct rules *r = ctx;

	return memcmp(&r->rules[id], key, sizeof(struct unwind_rule)) == 0;
}

int rules_get(struct rules *r, const struct unwind_rule *rule, uint16_t *ret)
{
	uint64_t hash = XXH3_64bits(rule, sizeof(*rule));
	uint32_t id = index_find(&r->index, hash, equal, r, rule);
	int k;

	if (rule->cfa == UNWIND_NONE) {
		*ret = 0;
		return 0;
	}
	if (!id) {
		if (!r->n_unused)
			return -ENOSPC;
		id = r->unused[r->n_unused - 1];
		k = index_add(&r->index, hash, id);
		if (k < 0)
			return k;
		r->n_unused--;
		r->rules[id] = *rule;
	}
	r->refs[id]++;
	*ret = (uint16_t)id;
	return 0;
}

void rules_put(struct rules *r, uint16_t rule)
{
	if (!rule || --r->refs[rule] > 0)
		return;
	index_del(&r->index, XXH3_64bits(&r->rules[rule], sizeof(struct unwind_rule)), rule);
	r->young[r->n_young++] = rule;
}

void rules_settle(struct rules *r)
{
	uint16_t *empty = r->old;

	memcpy(r->unused + r->n_unused, r->old, r->n_old * sizeof(*r->old));
	r->n_unused += r->n_old;
	r->old = r->young;
	r->n_old = r->n_young;
	r->young = empty;
	r->n_young = 0;
}

int rules_copy(const struct rules *r, uint32_t rule, struct unwind_rule *ret)
{
	if (rule >= UNWIND_RULES)
		return -ENOENT;
	*ret = r->rules[rule];
	return 0;
}

uint32_t rules_used(const struct rules *r)
{
	return UNWIND_RULES - 1 - r->n_unused;
}
