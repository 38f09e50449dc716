/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options as messages. */
#pragma once

#include "ctl/options.h"

/* A selection that borrows from the options. Not copied: m points into it. */
struct request {
	Sysprofd__V1__Selection m;
	Sysprofd__V1__Filter *filters;
	Sysprofd__V1__Filter **pointers;
};

int request_init(struct request *r, const struct options *o);
void request_done(struct request *r);

Sysprofd__V1__ProfileType request_type(enum profile_type type);
/* The other way; a type from the future is taken as on-cpu. */
enum profile_type answer_type(Sysprofd__V1__ProfileType type);
