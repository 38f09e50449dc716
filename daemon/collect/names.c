// SPDX-License-Identifier: GPL-2.0-or-later
#include <xxhash.h>

#include "base/utf8.h"
#include "collect/names.h"

/* PATH_MAX bytes, each of which may become the three of U+FFFD. */
#define NAME_MAX_BYTES (3 * 4096)

struct lookup {
	const char *s;
	size_t len;
};

static bool name_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct names *ns = ctx;
	const struct lookup *l = key;
	const struct name *n = ns->items[id];

	return n->len == l->len && memcmp(n->s, l->s, l->len) == 0;
}

static uint32_t free_id(struct names *ns)
{
	if (ns->n_unused > 0)
		return ns->unused[--ns->n_unused];
	if (ns->n == 0)
		ns->n = 1;
	/* Room to give the id back is made now, so that names_put() cannot fail. */
	if (ns->n >= UINT32_MAX || ARRAY_GROW(ns->items, ns->cap, ns->n + 1) < 0 ||
	    ARRAY_GROW(ns->unused, ns->cap_unused, ns->n + 1) < 0)
		return 0;
	return (uint32_t)ns->n++;
}

static struct name *add(struct names *ns, uint64_t hash, const struct lookup *l)
{
	struct name *n = malloc(sizeof(*n) + l->len + 1);
	uint32_t id;

	if (!n)
		return NULL;
	id = free_id(ns);
	if (!id) {
		free(n);
		return NULL;
	}
	if (index_add(&ns->index, hash, id) < 0) {
		ns->unused[ns->n_unused++] = id;
		free(n);
		return NULL;
	}
	*n = (struct name){ .refs = 1, .id = id, .hash = hash, .len = l->len };
	memcpy(n->s, l->s, l->len);
	n->s[l->len] = 0;
	ns->items[id] = n;
	ns->bytes += sizeof(*n) + l->len + 1;
	return n;
}

struct name *names_get(struct names *ns, const char *s, size_t len)
{
	char clean[NAME_MAX_BYTES + 1];
	struct lookup l;
	uint64_t hash;
	uint32_t id;

	l.len = utf8_sanitize(clean, sizeof(clean), s, len);
	l.s = clean;
	hash = XXH3_64bits(l.s, l.len);
	id = index_find(&ns->index, hash, name_equal, ns, &l);
	return id ? name_ref(ns->items[id]) : add(ns, hash, &l);
}

struct name *name_ref(struct name *n)
{
	if (n)
		n->refs++;
	return n;
}

struct name *names_put(struct names *ns, struct name *n)
{
	if (!n || --n->refs > 0)
		return NULL;
	index_del(&ns->index, n->hash, n->id);
	ns->items[n->id] = NULL;
	ns->unused[ns->n_unused++] = n->id;
	ns->bytes -= sizeof(*n) + n->len + 1;
	free(n);
	return NULL;
}

void names_done(struct names *ns)
{
	for (size_t i = 1; i < ns->n; i++)
		free(ns->items[i]);
	free(ns->items);
	free(ns->unused);
	index_done(&ns->index);
	*ns = (struct names){};
}
