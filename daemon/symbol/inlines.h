/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inlined functions and source lines of one bucket: collected frame by frame, then put into its stacks. A frame with
 * inlined functions stays, as the function that has the symbol; they follow it, towards the leaf, as frames of their
 * own at the same place (FRAME_INLINE).
 */
#pragma once

#include "model/profile.h"
#include "sysprofd/v1/helper.pb-c.h"

struct inlines_of {
	uint32_t first, n; /* in inlines.frames */
};

struct inlines {
	struct dict *dict;
	struct inlines_of *of; /* by frame */
	size_t cap_of;
	uint32_t *frames;
	size_t n, cap;
};

void inlines_init(struct inlines *i, struct dict *d);
void inlines_done(struct inlines *i);

/* What a parser says of a place, as a text without control characters but newlines, and back: for the frame. */
void inlines_write(const Sysprofd__V1__Place *p, struct strbuf *out);
int inlines_add(struct inlines *i, uint32_t frame, const char *text);

/* Puts them into the stacks of the bucket that the dictionary is of. It is as before when that fails. */
int inlines_expand(struct inlines *i, struct bucket *b);
