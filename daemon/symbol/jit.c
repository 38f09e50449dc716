// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/clock.h"
#include "symbol/jit.h"

#define MAPS_NS (500 * NSEC_PER_MSEC)
#define MAP_NS (200 * NSEC_PER_MSEC)

static int64_t memory_binary(struct dict *d, const char *name)
{
	struct binary b = { .kind = BINARY_ANON };
	int64_t id = dict_string(d, name);

	if (id < 0)
		return id;
	b.name = b.path = (uint32_t)id;
	return dict_binary(d, &b);
}

/* By any name: for a frame that has one already, the binary alone counts. */
static void settle(struct frame *f, int64_t binary, int64_t name)
{
	*f = (struct frame){
		.binary = (uint32_t)MAX(binary, (int64_t)0),
		.name = (uint32_t)MAX(name, (int64_t)0),
		.kind = FRAME_JIT,
		.flags = FRAME_NAMED,
	};
}

int jit_settle(struct dict *d)
{
	int64_t named = 0, nameless = 0, anon = 0;
	bool changed = false;

	for (size_t i = 1; i < d->n_frames; i++) {
		struct frame *f = &d->frames[i];

		if (f->kind != FRAME_JIT || !jit_has_map(&d->binaries[f->binary]))
			continue;
		if (!changed) {
			named = memory_binary(d, "[jit]");
			nameless = memory_binary(d, "[anon]");
			anon = dict_string(d, "[anon]");
		}
		changed = true;
		if (f->name)
			settle(f, named, f->name);
		else
			settle(f, nameless, anon);
	}
	if (!changed)
		return 0;
	d->repeats = true;
	dict_forget_indices(d);
	return named < 0 ? (int)named : nameless < 0 ? (int)nameless : (int)MIN(anon, (int64_t)0);
}

uint64_t jit_map_deadline(uint64_t *for_all, uint64_t deadline_mono_ns)
{
	uint64_t now = mono_now_ns();

	if (*for_all == 0)
		*for_all = now + MAPS_NS;
	return MIN(deadline_mono_ns, MIN(*for_all, now + MAP_NS));
}
