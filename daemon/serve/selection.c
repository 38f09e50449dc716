// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests' common parts, checked and translated: selections, filters, types; and who we are. */
#include <sys/timex.h>
#include <systemd/sd-id128.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "serve/internal.h"

#define DEFAULT_RANGE_NS (300 * NSEC_PER_SEC)
#define FILTERS_MAX 256

void selection_release(struct selection *s)
{
	s->visibility = (struct visibility){};
	for (size_t i = 0; i < s->n_filters; i++)
		free(s->filters[i].glob);
	free(s->filters);
	*s = (struct selection){};
}

int filters_from_message(Sysprofd__V1__Filter *const *m, size_t n, struct selection *s,
			 struct rpc_error *e)
{
	if (n > FILTERS_MAX)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "at most %d filters", FILTERS_MAX);
	s->filters = new0(struct filter, n + 1);
	if (!s->filters)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct filter *f = &s->filters[s->n_filters];
		int key = filter_key_from_name(m[i]->key);

		if (key < 0)
			return rpc_fail(e, RPC_INVALID_ARGUMENT, "unknown filter key \"%s\"",
					m[i]->key);
		f->key = (enum filter_key)key;
		f->negate = m[i]->negate;
		f->glob = strdup(m[i]->glob);
		if (!f->glob)
			return -ENOMEM;
		s->n_filters++;
	}
	return 0;
}

static int one_type(Sysprofd__V1__ProfileType type, enum profile_type *ret, struct rpc_error *e)
{
	if ((int)type < 0 || (int)type > PROFILE_TYPE_N)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "unknown profile type %d", (int)type);
	*ret = type == 0 ? PROFILE_ON_CPU : (enum profile_type)(type - 1);
	return 0;
}

int types_from_message(Sysprofd__V1__ProfileType type, unsigned *ret, struct rpc_error *e)
{
	enum profile_type one;
	int r = one_type(type, &one, e);

	if (r < 0)
		return r;
	*ret = type == 0 ? (1U << PROFILE_TYPE_N) - 1 : 1U << one;
	return 0;
}

static int fill_selection(const Sysprofd__V1__Selection *m, struct selection *s,
			  struct rpc_error *e)
{
	const char *error = "";
	int r = one_type(m->type, &s->type, e);

	if (r < 0)
		return r;
	s->until_wall_ns = m->until_ns ?: wall_now_ns();
	s->from_wall_ns = m->from_ns;
	if (s->from_wall_ns == 0)
		s->from_wall_ns = s->until_wall_ns - MIN(s->until_wall_ns, DEFAULT_RANGE_NS);
	r = filters_from_message(m->filters, m->n_filters, s, e);
	if (r < 0)
		return r;
	if (selection_check(s, &error) < 0)
		return rpc_fail(e, RPC_INVALID_ARGUMENT, "selection: %s", error);
	return 0;
}

int selection_from_message(const Sysprofd__V1__Selection *m, const struct visibility *v,
			   struct selection *ret, struct rpc_error *e)
{
	static const Sysprofd__V1__Selection nothing = SYSPROFD__V1__SELECTION__INIT;
	struct selection s = { .visibility = *v };
	int r = fill_selection(m ?: &nothing, &s, e);

	if (r < 0) {
		selection_release(&s);
		return r;
	}
	*ret = s;
	return 0;
}

static bool clock_synchronized(void)
{
	struct timex t = {};

	return adjtimex(&t) != TIME_ERROR && !(t.status & STA_UNSYNC);
}

void host_info_init(struct host_info *h)
{
	char name[sizeof(h->name)] = "";
	sd_id128_t id;

	*h = (struct host_info){ .message = SYSPROFD__V1__HOST__INIT };
	/* A container image may have no machine id: the field stays empty then. */
	if (sd_id128_get_machine(&id) >= 0)
		sd_id128_to_string(id, h->machine_id);
	if (sd_id128_get_boot(&id) >= 0)
		sd_id128_to_string(id, h->boot_id);
	if (gethostname(name, sizeof(name) - 1) == 0)
		utf8_sanitize(h->name, sizeof(h->name), name, strlen(name));
	h->message.machine_id = h->machine_id;
	h->message.boot_id = h->boot_id;
	h->message.host_name = h->name;
	h->message.server_time_ns = wall_now_ns();
	h->message.clock_synchronized = clock_synchronized();
}
