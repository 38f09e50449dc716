/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The executable mappings of one program image, from an exec to the next.
 *
 * The present ones form a sorted array without overlaps. What was replaced stays in `past` with the time of
 * its end, so that a sample from before is resolved as it was, until image_expire(). munmap() is told by
 * nobody: a mapping ends when another one takes its place or a /proc snapshot does not show it.
 *
 * Images are shared between a process and its forks and copied when one of them changes
 * (image_own()). Not thread-safe.
 */
#pragma once

#include "base/util.h"
#include "collect/binary.h"

struct mapping {
	uint64_t start, end;
	uint64_t offset; /* in the file, or from the first address (anonymous memory, vdso) */
	uint64_t from_mono_ns;
	struct object *object; /* owned reference */
};

struct past_mapping {
	struct mapping m;
	uint64_t until_mono_ns;
};

struct image {
	uint32_t refs;
	uint64_t
		version; /* another one whenever the present changes; the same in copies until then */
	struct mapping *maps;
	size_t n, cap;
	struct past_mapping *past; /* in the order in which they ended */
	size_t n_past, cap_past;
	struct binaries *binaries;
};

int image_new(struct binaries *b, struct image **ret) _warn_unused_;
struct image *image_ref(struct image *im);
struct image *image_unref(struct image *im);
DEFINE_CLEANUP(struct image *, image_unref)
/* Makes *im the caller's alone. */
int image_own(struct image **im) _warn_unused_;

/*
 * Adds a mapping, taking over its reference in every case. It replaces what it overlaps, unless that is
 * newer; the same again changes nothing; anonymous neighbours grow together. -ENOSPC: it would take more
 * than `max` mappings. 1 when it is not part of the present: something newer lies there.
 */
int image_add(struct image *im, uint32_t max, const struct mapping *m) _warn_unused_;

/* A list of mappings as /proc shows them: in ascending order. */
struct mapping_list {
	struct mapping *maps;
	size_t n, cap;
};
/* Appends, taking over the reference in every case. Anonymous neighbours become one. */
int mapping_list_add(struct mapping_list *l, struct binaries *b, uint32_t max,
		     const struct mapping *m) _warn_unused_;
void mapping_list_done(struct mapping_list *l, struct binaries *b);

/*
 * Makes the list the present state and empties it. What is not in it ended at mono_ns; what was known
 * already keeps its beginning.
 */
void image_replace(struct image *im, struct mapping_list *l, uint64_t mono_ns);

/*
 * The mapping of an address at a time, or NULL. One that began later is still the best guess where nothing
 * was there before it: the beginning of a mapping found in /proc is not known.
 */
const struct mapping *image_find(const struct image *im, uint64_t mono_ns, uint64_t address);

/* Forgets what ended before the time. */
void image_expire(struct image *im, uint64_t mono_ns);

size_t image_bytes(const struct image *im);
