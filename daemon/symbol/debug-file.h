/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the separate debug file of a binary may lie, as distributions and debuggers have agreed. The hints come out
 * of the binary, whose owner may be anybody: they make paths that are opened within its process' root, and what is
 * found there is believed only when the parser says that it belongs to the binary.
 */
#pragma once

#include <limits.h>

#include "base/util.h"

struct debug_hints {
	char build_id[129]; /* hexadecimal, or "" */
	char link[NAME_MAX + 1]; /* base name, or "" */
};

#define DEBUG_PLACES 4

/* The path of place 0, 1, ...; false: these hints do not lead there. */
bool debug_place(const struct debug_hints *h, const char *binary_path, unsigned place,
		 char ret[static PATH_MAX]);
