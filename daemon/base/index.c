// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/index.h"

uint32_t index_find(const struct index *x, uint64_t hash, index_equal_fn equal, const void *ctx,
		    const void *key)
{
	if (!x->slots)
		return 0;
	for (size_t i = hash & x->mask; x->slots[i].id; i = (i + 1) & x->mask)
		if (x->slots[i].hash == hash && equal(ctx, x->slots[i].id, key))
			return x->slots[i].id;
	return 0;
}

static void put(struct index *x, uint64_t hash, uint32_t id)
{
	size_t i = hash & x->mask;

	while (x->slots[i].id)
		i = (i + 1) & x->mask;
	x->slots[i] = (struct index_slot){ .hash = hash, .id = id };
}

/* At most 3/4 full: linear probing degrades quickly above that. */
static size_t capacity(size_t size)
{
	return size / 4 * 3;
}

int index_reserve(struct index *x, size_t n)
{
	struct index old = *x;
	size_t size = old.slots ? old.mask + 1 : 16;
	struct index_slot *slots;

	if (n > SIZE_MAX / sizeof(*slots) / 4 - old.n)
		return -ENOMEM;
	while (capacity(size) < old.n + n)
		size *= 2;
	if (old.slots && size == old.mask + 1)
		return 0;
	slots = new0(struct index_slot, size);
	if (!slots)
		return -ENOMEM;
	x->slots = slots;
	x->mask = size - 1;
	if (old.slots)
		for (size_t i = 0; i <= old.mask; i++)
			if (old.slots[i].id)
				put(x, old.slots[i].hash, old.slots[i].id);
	free(old.slots);
	return 0;
}

int index_add(struct index *x, uint64_t hash, uint32_t id)
{
	assert(id);
	if (!x->slots || x->n + 1 > capacity(x->mask + 1)) {
		int r = index_reserve(x, 1);

		if (r < 0)
			return r;
	}
	put(x, hash, id);
	x->n++;
	return 0;
}

void index_del(struct index *x, uint64_t hash, uint32_t id)
{
	size_t i, hole;

	if (!x->slots)
		return;
	for (i = hash & x->mask; x->slots[i].id != id || x->slots[i].hash != hash;
	     i = (i + 1) & x->mask)
		if (!x->slots[i].id)
			return;
	/* Pull later members of the run into the hole, as long as their home lies at or before it. */
	for (hole = i, i = (i + 1) & x->mask; x->slots[i].id; i = (i + 1) & x->mask) {
		size_t home = x->slots[i].hash & x->mask;

		if (((i - home) & x->mask) >= ((i - hole) & x->mask)) {
			x->slots[hole] = x->slots[i];
			hole = i;
		}
	}
	x->slots[hole] = (struct index_slot){};
	x->n--;
}

void index_clear(struct index *x)
{
	if (x->slots)
		memset(x->slots, 0, (x->mask + 1) * sizeof(*x->slots));
	x->n = 0;
}

void index_done(struct index *x)
{
	free(x->slots);
	*x = (struct index){};
}
