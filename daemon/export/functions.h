/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A profile by function. */
#pragma once

#include "export/quotient.h"
#include "export/tree.h"

struct function_row {
	const struct flame_label *function;
	uint64_t self, total;
	struct event_pair pair; /* of self */
};

struct functions {
	struct flame_tree *tree; /* which the rows borrow from, as it does from the profile */
	struct function_row *rows; /* most self first */
	size_t n_rows;
};
/* A function that calls itself counts once in a total. */
int functions_new(const struct profile *p, struct functions *ret) _warn_unused_;
void functions_done(struct functions *f);
