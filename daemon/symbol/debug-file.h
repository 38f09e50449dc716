/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the separate debug file of a binary may lie, as distributions and debuggers have agreed. The hints come out
 * of the binary, whose owner may be anybody: they make paths that are opened within its process' root, and what is
 * found there is believed only when the parser says that it belongs to the binary.
 */
#pragma once

#include <limits.h>

#include "base/util.h"
#include "sysprofd/v1/helper.pb-c.h"

#define DEBUG_BUILD_ID_MAX 129

struct debug_hints {
	char build_id[DEBUG_BUILD_ID_MAX]; /* hexadecimal, or "" */
	char link[NAME_MAX + 1]; /* base name, or "" */
};

/* A file with a part of the DWARF, as the parser wants it. */
struct debug_part {
	Sysprofd__V1__WantedKind kind;
	uint64_t id;
	char *path, *directory; /* owned */
	char build_id[DEBUG_BUILD_ID_MAX];
};

#define DEBUG_PLACES 4
#define DEBUG_PATHS_MAX (DEBUG_PLACES * PATH_MAX)

/* Writes the paths that the hints lead to, each with its NUL, in the order of preference. Returns how many. */
size_t debug_paths(const struct debug_hints *h, const char *binary_path,
		   char ret[static DEBUG_PATHS_MAX]);
/* The same for a part of what is in the binary, or in its debug file: debug_path, "" without. */
size_t debug_part_paths(const struct debug_part *p, const char *binary_path, const char *debug_path,
			char ret[static DEBUG_PATHS_MAX]);
