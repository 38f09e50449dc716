// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/clock.h"
#include "helper/poison.h"

#define STRIKES_OUT 2
#define POISON_NS (3600 * NSEC_PER_SEC) /* then a binary is given another try */

static bool same(const struct identity *a, const struct identity *b)
{
	return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1];
}

static struct strike *find_strike(struct poison *p, const struct identity *binary)
{
	for (size_t i = 0; i < p->n; i++)
		if (same(&p->strikes[i].binary, binary))
			return &p->strikes[i];
	return NULL;
}

bool is_poisoned(struct poison *p, const struct identity *binary)
{
	struct strike *k = find_strike(p, binary);

	if (!k || k->n < STRIKES_OUT)
		return false;
	if (mono_now_ns() - k->mono_ns < POISON_NS)
		return true;
	k->n = 0;
	p->poisoned--;
	return false;
}

void poison_strike(struct poison *p, const struct identity *binary)
{
	struct strike *k = find_strike(p, binary);

	if (!k) {
		if (p->n < STRIKES_MAX) {
			k = &p->strikes[p->n++];
		} else {
			k = &p->strikes[p->next];
			p->next = (p->next + 1) % STRIKES_MAX;
			if (k->n >= STRIKES_OUT)
				p->poisoned--;
		}
		*k = (struct strike){ .binary = *binary };
	}
	k->mono_ns = mono_now_ns();
	if (++k->n == STRIKES_OUT)
		p->poisoned++;
}
