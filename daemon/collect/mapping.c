// SPDX-License-Identifier: GPL-2.0-or-later
#include "collect/mapping.h"

/* Replaced mappings that are kept per image; beyond it the oldest goes early. */
#define PAST_MAX 4096

int image_new(struct binaries *b, struct image **ret)
{
	struct image *im = new0(struct image, 1);

	if (!im)
		return -ENOMEM;
	im->refs = 1;
	im->binaries = b;
	im->version = binaries_new_version(b);
	*ret = im;
	return 0;
}

struct image *image_ref(struct image *im)
{
	im->refs++;
	return im;
}

struct image *image_unref(struct image *im)
{
	if (!im || --im->refs > 0)
		return NULL;
	for (size_t i = 0; i < im->n; i++)
		object_unref(im->binaries, im->maps[i].object);
	for (size_t i = 0; i < im->n_past; i++)
		object_unref(im->binaries, im->past[i].m.object);
	free(im->maps);
	free(im->past);
	free(im);
	return NULL;
}

int image_own(struct image **im)
{
	_cleanup_(image_unref_p) struct image *copy = NULL;
	const struct image *from = *im;
	int r;

	if (from->refs == 1)
		return 0;
	r = image_new(from->binaries, &copy);
	if (r < 0)
		return r;
	r = ARRAY_GROW(copy->maps, copy->cap, from->n);
	if (r < 0)
		return r;
	/* The past stays with the elder: what the younger one shares of it ended before it was born. */
	for (size_t i = 0; i < from->n; i++) {
		copy->maps[i] = from->maps[i];
		object_ref(copy->maps[i].object);
	}
	copy->n = from->n;
	copy->version = from->version;
	image_unref(*im);
	*im = TAKE_PTR(copy);
	return 0;
}

/* ---- the past ------------------------------------------------------------------------------------------ */

/* Takes over the reference. Without memory the past is forgotten, nothing else. */
static void add_past(struct image *im, const struct mapping *m, uint64_t until)
{
	if (im->n_past >= PAST_MAX) {
		object_unref(im->binaries, im->past[0].m.object);
		memmove(im->past, im->past + 1, --im->n_past * sizeof(*im->past));
	}
	if (ARRAY_GROW(im->past, im->cap_past, im->n_past + 1) < 0) {
		object_unref(im->binaries, m->object);
		return;
	}
	im->past[im->n_past++] = (struct past_mapping){ .m = *m, .until_mono_ns = until };
}

void image_expire(struct image *im, uint64_t mono_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < im->n_past; i++) {
		if (im->past[i].until_mono_ns >= mono_ns)
			im->past[kept++] = im->past[i];
		else
			object_unref(im->binaries, im->past[i].m.object);
	}
	im->n_past = kept;
	if (kept == 0 && im->cap_past > 64) {
		free(im->past);
		im->past = NULL;
		im->cap_past = 0;
	}
}

/* ---- the present ---------------------------------------------------------------------------------------- */

/* Index of the first mapping that ends behind the address. */
static size_t first_ending_after(const struct image *im, uint64_t address)
{
	size_t lo = 0, hi = im->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (im->maps[mid].end > address)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static bool is_anonymous(const struct mapping *m)
{
	return m->object->kind == BINARY_ANON;
}

/* Whether `in` says about all addresses of `m` what `m` says. */
static bool same_content(const struct mapping *in, const struct mapping *m)
{
	if (in->object != m->object || in->start > m->start || in->end < m->end)
		return false;
	return is_anonymous(m) || m->offset - in->offset == m->start - in->start;
}

/* Replaces maps[at, at + n_old) by n_new others; references are the caller's business. */
static int splice(struct image *im, size_t at, size_t n_old, const struct mapping *with,
		  size_t n_new)
{
	int r = ARRAY_GROW(im->maps, im->cap, im->n - n_old + n_new);

	if (r < 0)
		return r;
	memmove(im->maps + at + n_new, im->maps + at + n_old,
		(im->n - at - n_old) * sizeof(*im->maps));
	memcpy(im->maps + at, with, n_new * sizeof(*with));
	im->n = im->n - n_old + n_new;
	im->version = binaries_new_version(im->binaries);
	return 0;
}

/*
 * JIT compilers turn page after page executable: neighbours are one mapping, whose first address stays the
 * origin of its offsets while it grows upwards. `lo` and `hi` are widened to what the union covers. The union is
 * as young as its last part: for the time before, image_find() looks for what was replaced, and then takes it.
 */
static void join_anonymous(const struct image *im, struct mapping *m, size_t *lo, size_t *hi)
{
	if (!is_anonymous(m))
		return;
	while (*lo > 0 && im->maps[*lo - 1].end == m->start &&
	       im->maps[*lo - 1].object == m->object)
		(*lo)--;
	while (*hi < im->n && im->maps[*hi].start == m->end && im->maps[*hi].object == m->object)
		(*hi)++;
	for (size_t i = *lo; i < *hi; i++) {
		const struct mapping *o = &im->maps[i];

		if (o->object != m->object)
			continue;
		if (o->start < m->start) {
			m->start = o->start;
			m->offset = o->offset;
		}
		m->end = MAX(m->end, o->end);
	}
}

/* The parts of the overlapped mappings [lo, hi) that stick out of m, around it: at most three in all. */
static size_t pieces_around(const struct image *im, size_t lo, size_t hi, const struct mapping *m,
			    struct mapping pieces[3])
{
	size_t n = 0;

	if (lo < hi && im->maps[lo].start < m->start) {
		pieces[n] = im->maps[lo];
		pieces[n++].end = m->start;
	}
	pieces[n++] = *m;
	if (lo < hi && im->maps[hi - 1].end > m->end) {
		pieces[n] = im->maps[hi - 1];
		pieces[n].offset += m->end - pieces[n].start;
		pieces[n++].start = m->end;
	}
	return n;
}

static int replace_range(struct image *im, uint32_t max, size_t lo, size_t hi,
			 const struct mapping *m, uint64_t mono_ns)
{
	_cleanup_free_ struct mapping *old = NULL;
	size_t n_old = hi - lo, n_new;
	struct mapping pieces[3];
	int r;

	n_new = pieces_around(im, lo, hi, m, pieces);
	if (im->n - n_old + n_new > MAX((size_t)max, im->n))
		return -ENOSPC;
	if (n_old > 0) {
		old = malloc(n_old * sizeof(*old));
		if (!old)
			return -ENOMEM;
		memcpy(old, im->maps + lo, n_old * sizeof(*old));
	}
	r = splice(im, lo, n_old, pieces, n_new);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n_new; i++)
		object_ref(pieces[i].object);
	for (size_t i = 0; i < n_old; i++) {
		/* What merely grew has no past of its own. */
		if (is_anonymous(m) && old[i].object == m->object)
			object_unref(im->binaries, old[i].object);
		else
			add_past(im, &old[i], mono_ns);
	}
	return 0;
}

static int add(struct image *im, uint32_t max, struct mapping *m)
{
	uint64_t mono_ns = m->from_mono_ns;
	size_t lo = first_ending_after(im, m->start), hi = lo;

	for (; hi < im->n && im->maps[hi].start < m->end; hi++) {
		if (same_content(&im->maps[hi], m))
			return 0;
		if (im->maps[hi].from_mono_ns > mono_ns) {
			object_ref(m->object);
			add_past(im, m, im->maps[hi].from_mono_ns);
			return 1;
		}
	}
	join_anonymous(im, m, &lo, &hi);
	return replace_range(im, max, lo, hi, m, mono_ns);
}

int image_add(struct image *im, uint32_t max, const struct mapping *m)
{
	struct mapping copy = *m;
	int r = m->start < m->end ? add(im, max, &copy) : -EINVAL;

	object_unref(im->binaries, m->object);
	return r;
}

/* ---- snapshots ------------------------------------------------------------------------------------------ */

int mapping_list_add(struct mapping_list *l, struct binaries *b, uint32_t max,
		     const struct mapping *m)
{
	struct mapping *last = l->n > 0 ? &l->maps[l->n - 1] : NULL;
	int r = 0;

	if (m->start >= m->end || (last && m->start < last->end))
		r = -EBADMSG;
	else if (last && is_anonymous(m) && last->object == m->object && last->end == m->start)
		last->end = m->end;
	else if (l->n >= max)
		r = -ENOSPC;
	else
		r = ARRAY_GROW(l->maps, l->cap, l->n + 1) ?: 1;
	if (r == 1) {
		l->maps[l->n++] = *m;
		return 0;
	}
	object_unref(b, m->object);
	return r;
}

void mapping_list_done(struct mapping_list *l, struct binaries *b)
{
	for (size_t i = 0; i < l->n; i++)
		object_unref(b, l->maps[i].object);
	free(l->maps);
	*l = (struct mapping_list){};
}

void image_replace(struct image *im, struct mapping_list *l, uint64_t mono_ns)
{
	struct mapping *old = im->maps;
	size_t n_old = im->n;

	for (size_t i = 0; i < l->n; i++) {
		size_t at = first_ending_after(im, l->maps[i].start);

		if (at < im->n && same_content(&im->maps[at], &l->maps[i]))
			l->maps[i].from_mono_ns = im->maps[at].from_mono_ns;
	}
	im->maps = l->maps;
	im->n = l->n;
	im->cap = l->cap;
	*l = (struct mapping_list){};
	im->version = im->n == n_old ? im->version : binaries_new_version(im->binaries);
	for (size_t i = 0; i < n_old; i++) {
		const struct mapping *now = image_find(im, UINT64_MAX, old[i].start);

		if (now && same_content(now, &old[i])) {
			object_unref(im->binaries, old[i].object);
		} else {
			add_past(im, &old[i], mono_ns);
			im->version = binaries_new_version(im->binaries);
		}
	}
	free(old);
}

/* ---- lookup --------------------------------------------------------------------------------------------- */

const struct mapping *image_find(const struct image *im, uint64_t mono_ns, uint64_t address)
{
	size_t at = first_ending_after(im, address);
	const struct mapping *now = at < im->n && im->maps[at].start <= address ? &im->maps[at]
										: NULL;

	if (now && now->from_mono_ns <= mono_ns)
		return now;
	for (size_t i = im->n_past; i > 0; i--) {
		const struct past_mapping *p = &im->past[i - 1];

		if (p->m.start <= address && address < p->m.end && p->m.from_mono_ns <= mono_ns &&
		    mono_ns < p->until_mono_ns)
			return &p->m;
	}
	return now;
}

size_t image_bytes(const struct image *im)
{
	return sizeof(*im) + im->cap * sizeof(*im->maps) + im->cap_past * sizeof(*im->past);
}
