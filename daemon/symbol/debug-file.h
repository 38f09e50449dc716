/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the separate debug file of a binary may lie, as distributions and debuggers have agreed. The hints come out
 * of the binary, whose owner may be anybody: they make paths that are opened within its process' root, and what is
 * found there is believed only when the parser says that it belongs to the binary.
 */
#pragma once

#include <limits.h>

#include "base/util.h"

#define DEBUG_BUILD_ID_MAX 129

struct debug_hints {
	char build_id[DEBUG_BUILD_ID_MAX]; /* hexadecimal, or "" */
	char link[NAME_MAX + 1]; /* base name, or "" */
};

#define DEBUG_PLACES 4
#define DEBUG_PATHS_MAX (DEBUG_PLACES * PATH_MAX)

/* Writes the paths that the hints lead to, each with its NUL, in the order of preference. Returns how many. */
size_t debug_paths(const struct debug_hints *h, const char *binary_path,
		   char ret[static DEBUG_PATHS_MAX]);
