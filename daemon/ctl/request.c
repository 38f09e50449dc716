// SPDX-License-Identifier: GPL-2.0-or-later
#include "ctl/request.h"

Sysprofd__V1__ProfileType request_type(enum profile_type type)
{
	return (Sysprofd__V1__ProfileType)(SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_ON_CPU +
					   (int)type);
}

enum profile_type answer_type(Sysprofd__V1__ProfileType type)
{
	int t = (int)type - SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_ON_CPU;

	return t >= 0 && t < PROFILE_TYPE_N ? (enum profile_type)t : PROFILE_ON_CPU;
}

int request_init(struct request *r, const struct options *o)
{
	*r = (struct request){ .m = SYSPROFD__V1__SELECTION__INIT };
	r->filters = new0(Sysprofd__V1__Filter, o->n_filters + 1);
	r->pointers = new0(Sysprofd__V1__Filter *, o->n_filters + 1);
	if (!r->filters || !r->pointers) {
		request_done(r);
		return -ENOMEM;
	}
	for (size_t i = 0; i < o->n_filters; i++) {
		r->filters[i] = (Sysprofd__V1__Filter)SYSPROFD__V1__FILTER__INIT;
		r->filters[i].key = o->filters[i].key;
		r->filters[i].glob = o->filters[i].glob;
		r->filters[i].negate = o->filters[i].negate;
		r->pointers[i] = &r->filters[i];
	}
	r->m.type = request_type(o->type);
	r->m.from_ns = MAX(o->since_wall_ns, (uint64_t)1); /* 0 would mean the daemon's default */
	r->m.until_ns = o->until_now ? 0 : MAX(o->until_wall_ns, (uint64_t)1);
	r->m.n_filters = o->n_filters;
	r->m.filters = r->pointers;
	return 0;
}

void request_done(struct request *r)
{
	free(r->filters);
	free(r->pointers);
	*r = (struct request){};
}
