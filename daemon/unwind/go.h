/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where stacks of Go programs end. Its .debug_frame describes the assembly code of the runtime as if that never left
 * its stack; what lies there once it has left it is no caller.
 */
#pragma once

#include "unwind/image.h"
#include "unwind/table.h"

#define GO_PLACES_MAX 32

struct go_places {
	struct {
		uint64_t vaddr;
		const struct unwind_rule *rule;
	} at[GO_PLACES_MAX];
	size_t n;
};

/* None in a program that is not Go's, or has no symbols. */
int go_read_places(const struct image *m, struct go_places *ret);
/* The rule of all of the function that begins there, or NULL. */
const struct unwind_rule *go_rule_at(const struct go_places *p, uint64_t vaddr);
