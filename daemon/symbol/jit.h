/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames of code that was made at run time. Their addresses are used again by other code, so a frame is known by one
 * only until it was named: until then its binary is anonymous memory of a process that tells names, told by the key of
 * its map in `ino`. Afterwards it is known by its name, "[jit]" being the binary of all that have one.
 */
#pragma once

#include "model/profile.h"

static inline bool jit_has_map(const struct binary *b)
{
	return b->kind == BINARY_ANON && b->ino;
}

/* What was named, and what will not be: no address is left. Equal frames may then have several ids. */
int jit_settle(struct dict *d);
