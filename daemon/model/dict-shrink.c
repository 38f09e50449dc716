// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A dictionary without what nobody uses any more, in place: elements move down, strings change their owner
 * only. That costs a pass over the arrays, where a second dictionary would cost every string again.
 */
#include "model/profile.h"

int dict_shrink_init(struct dict_shrink *s, const struct dict *d)
{
	*s = (struct dict_shrink){
		.string = new0(uint32_t, d->n_strings),
		.binary = new0(uint32_t, d->n_binaries),
		.frame = new0(uint32_t, d->n_frames),
		.stack = new0(uint32_t, d->n_stacks),
		.series = new0(uint32_t, d->n_series),
		.lock = new0(uint32_t, d->n_locks),
	};
	if (s->string && s->binary && s->frame && s->stack && s->series && s->lock)
		return 0;
	dict_shrink_done(s);
	return -ENOMEM;
}

void dict_shrink_done(struct dict_shrink *s)
{
	free(s->string);
	free(s->binary);
	free(s->frame);
	free(s->stack);
	free(s->series);
	free(s->lock);
	*s = (struct dict_shrink){};
}

/* Whatever is marked marks what it refers to. Users come before what they use. */
static void mark_references(const struct dict *d, struct dict_shrink *s)
{
	for (size_t i = d->n_stacks - 1; i > 0; i--)
		if (s->stack[i])
			s->stack[d->stacks[i].parent] = s->frame[d->stacks[i].frame] = 1;
	for (size_t i = 1; i < d->n_frames; i++) {
		const struct frame *f = &d->frames[i];

		if (s->frame[i])
			s->binary[f->binary] = s->string[f->name] = s->string[f->system_name] =
				s->string[f->file] = 1;
	}
	for (size_t i = 1; i < d->n_series; i++)
		for (size_t l = 0; s->series[i] && l < LABEL_N; l++)
			s->string[d->series[i].label[l]] = 1;
	for (size_t i = 1; i < d->n_locks; i++)
		if (s->lock[i])
			s->binary[d->locks[i].binary] = s->string[d->locks[i].name] = 1;
	for (size_t i = 1; i < d->n_binaries; i++) {
		const struct binary *b = &d->binaries[i];

		if (s->binary[i])
			s->string[b->name] = s->string[b->path] = s->string[b->build_id] = 1;
	}
}

static void move_strings(struct dict *d, uint32_t *ids)
{
	size_t n = 1;

	ids[0] = 0;
	for (size_t i = 1; i < d->n_strings; i++) {
		if (!ids[i]) {
			d->bytes -= strlen(d->strings[i]) + 1;
			free(d->strings[i]);
			continue;
		}
		ids[i] = (uint32_t)n;
		d->strings[n++] = d->strings[i];
	}
	d->n_strings = n;
}

/* Elements move down; marks become ids. */
#define MOVE(d, items, ids)                                   \
	do {                                                  \
		size_t _n = 1;                                \
		(ids)[0] = 0;                                 \
		for (size_t i = 1; i < (d)->n_##items; i++) { \
			if (!(ids)[i])                        \
				continue;                     \
			(ids)[i] = (uint32_t)_n;              \
			(d)->items[_n++] = (d)->items[i];     \
		}                                             \
		(d)->n_##items = _n;                          \
	} while (0)

static void rename_references(struct dict *d, const struct dict_shrink *s)
{
	for (size_t i = 1; i < d->n_binaries; i++) {
		struct binary *b = &d->binaries[i];

		b->name = s->string[b->name];
		b->path = s->string[b->path];
		b->build_id = s->string[b->build_id];
	}
	for (size_t i = 1; i < d->n_frames; i++) {
		struct frame *f = &d->frames[i];

		f->binary = s->binary[f->binary];
		f->name = s->string[f->name];
		f->system_name = s->string[f->system_name];
		f->file = s->string[f->file];
	}
	for (size_t i = 1; i < d->n_stacks; i++) {
		d->stacks[i].parent = s->stack[d->stacks[i].parent];
		d->stacks[i].frame = s->frame[d->stacks[i].frame];
	}
	for (size_t i = 1; i < d->n_series; i++)
		for (size_t l = 0; l < LABEL_N; l++)
			d->series[i].label[l] = s->string[d->series[i].label[l]];
	for (size_t i = 1; i < d->n_locks; i++) {
		d->locks[i].binary = s->binary[d->locks[i].binary];
		d->locks[i].name = s->string[d->locks[i].name];
	}
}

void dict_shrink(struct dict *d, struct dict_shrink *s)
{
	mark_references(d, s);
	move_strings(d, s->string);
	MOVE(d, binaries, s->binary);
	MOVE(d, frames, s->frame);
	MOVE(d, stacks, s->stack);
	MOVE(d, series, s->series);
	MOVE(d, locks, s->lock);
	rename_references(d, s);
	dict_forget_indices(d);
}
