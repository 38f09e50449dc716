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

/*
 * Until when one map may be read; *for_all: until when all maps of a call, 0 before the first. Maps come last and have
 * little time: one that is large, or is written without end, costs nobody else his names. What is not read then is read
 * on with the next call.
 */
uint64_t jit_map_deadline(uint64_t *for_all, uint64_t deadline_mono_ns);
