// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The buckets of a range: those of the store in order of sequence, then those that are only in memory. Beside
 * handing them on, this keeps the books of what the range covers.
 *
 * Stored metadata a little before and behind the range are looked at too: they tell whether the time between
 * an edge of the range and the next bucket is a gap or only belongs to a bucket that starts elsewhere.
 */
#include "query/internal.h"

#define LOOK_AROUND_NS (30 * NSEC_PER_SEC)

struct scan {
	const struct query_source *src;
	const struct selection *sel;
	struct merge *merge;
	struct profile *p; /* the merge's */
	store_scan_fn fn;
	void *ctx;
	bool *met; /* for src->closed, then src->open: met in the store, or as a closed one, already */
	bool any; /* a bucket was visited, in the range or beside it */
	bool used; /* one in the range was */
	bool beyond; /* one behind the range was */
	bool damage; /* the store could not read on behind the last one */
	struct bucket_meta last; /* the one with the latest end */
	uint64_t end; /* its end */
	unsigned __int128 rate_weight; /* rate times covered time */
};

/*
 * Drains are late by some milliseconds, so that a bucket may cover a little less than its length without
 * missing anything; what lies beyond a tenth did not get recorded.
 */
static uint64_t slack(const struct bucket_meta *meta)
{
	return MIN(meta->length_ns / 10, NSEC_PER_SEC / 2);
}

static uint64_t bucket_end(const struct bucket_meta *meta, bool open)
{
	if (open || meta->covered_ns + slack(meta) < meta->length_ns)
		return meta->start_wall_ns + meta->covered_ns;
	return meta->start_wall_ns + MAX(meta->length_ns, meta->covered_ns);
}

/* Adds the part of [from, until) that lies in the range, joined to the one before where they touch. */
static int add_gap(struct scan *s, uint64_t from, uint64_t until, enum gap_reason reason)
{
	struct profile *p = s->p;
	struct gap *before = p->n_gaps ? &p->gaps[p->n_gaps - 1] : NULL;
	int r;

	from = MAX(from, s->sel->from_wall_ns);
	until = MIN(until, s->sel->until_wall_ns);
	if (from >= until)
		return 0;
	if (before && before->reason == reason && before->until_wall_ns == from) {
		before->until_wall_ns = until;
		return 0;
	}
	r = ARRAY_GROW(p->gaps, p->cap_gaps, p->n_gaps + 1);
	if (r < 0)
		return r;
	p->gaps[p->n_gaps++] = (struct gap){ from, until, reason };
	return 0;
}

/* Why nothing lies between the last bucket (if any) and this one. The bucket itself knows best. */
static enum gap_reason gap_before(const struct scan *s, const struct bucket_meta *meta)
{
	if (s->damage)
		return GAP_DAMAGED;
	if (meta->gap != GAP_NONE)
		return (enum gap_reason)meta->gap;
	if (!s->any)
		return meta->seq > 1 ? GAP_STORE : GAP_NOT_RUNNING;
	if (!streq(s->last.boot_id, meta->boot_id))
		return GAP_NOT_RUNNING;
	/* A number that is missing was given out: the bucket was recorded, and is no longer there. */
	return meta->seq == s->last.seq + 1 ? GAP_STOPPED : GAP_STORE;
}

static int note_gap(struct scan *s, const struct bucket_meta *meta)
{
	uint64_t from = s->any ? s->end : s->sel->from_wall_ns;
	uint64_t least = meta->gap != GAP_NONE ? NSEC_PER_MSEC : slack(meta);

	if (meta->start_wall_ns <= from || meta->start_wall_ns - from <= least)
		return 0;
	return add_gap(s, from, meta->start_wall_ns, gap_before(s, meta));
}

/* Whether this type was recorded; a host may be idle, but then its collector was active. */
static bool recorded(enum profile_type type, const struct accounting *a,
		     const struct columns *columns)
{
	bool any = a->active || a->seen > 0;

	/* Rows of other aspects may come from another collector. */
	for (size_t i = 0; !any && i < columns->n; i++)
		any = row_aspect(type, columns->key[i]) == 0;
	return any;
}

static int use(struct scan *s, const struct dict *d, const struct bucket_meta *meta,
	       const struct columns *columns, uint64_t end)
{
	const struct accounting *a = &meta->source[s->sel->type];
	struct profile *p = s->p;

	p->from_wall_ns = s->used ? MIN(p->from_wall_ns, meta->start_wall_ns) : meta->start_wall_ns;
	p->until_wall_ns = s->used ? MAX(p->until_wall_ns, end) : end;
	s->used = true;
	if (!columns)
		return add_gap(s, meta->start_wall_ns, end, GAP_DAMAGED);
	if (a->sampled && !a->counted_us)
		return add_gap(s, meta->start_wall_ns, end, GAP_NOT_SAMPLED);
	if (!recorded(s->sel->type, a, columns))
		return add_gap(s, meta->start_wall_ns, end, GAP_NOT_RUNNING);
	p->covered_ns += meta->covered_ns;
	p->counted_ns += a->sampled ? a->counted_us * NSEC_PER_USEC : meta->covered_ns;
	s->rate_weight += (unsigned __int128)a->rate_mhz * meta->covered_ns;
	accounting_add(&p->accounting, a);
	return s->fn(s->ctx, d, meta, columns);
}

static int visit(struct scan *s, const struct dict *d, const struct bucket_meta *meta,
		 const struct columns *columns, bool open)
{
	uint64_t end = bucket_end(meta, open);
	/* Buckets beside the range come with dictionaries too: the store may drop the one before. */
	int r = merge_leave(s->merge, d);

	if (r < 0)
		return r;
	/* No bucket of its own: it stands for all that follow in a file whose pages are destroyed. */
	if (!columns && meta->length_ns == 0) {
		s->damage = true;
		return 0;
	}
	r = note_gap(s, meta);
	if (r < 0)
		return r;
	s->damage = false;
	if (!s->any || end > s->end) {
		s->end = end;
		s->last = *meta;
	}
	s->any = true;
	s->beyond |= meta->start_wall_ns >= s->sel->until_wall_ns;
	if (meta->start_wall_ns < s->sel->from_wall_ns ||
	    meta->start_wall_ns >= s->sel->until_wall_ns)
		return 0;
	return use(s, d, meta, columns, end);
}

static bool same_bucket(const struct bucket_meta *a, const struct bucket_meta *b)
{
	return a->start_wall_ns == b->start_wall_ns && streq(a->boot_id, b->boot_id);
}

/* `open` may have closed after it was copied, and then there is more in the other. */
static void meet(struct scan *s, const struct bucket_meta *meta)
{
	if (s->src->open)
		s->met[s->src->n_closed] |= same_bucket(&s->src->open->meta, meta);
}

static int on_stored(void *ctx, const struct dict *d, const struct bucket_meta *meta,
		     const struct columns *columns)
{
	struct scan *s = ctx;

	for (size_t i = 0; i < s->src->n_closed; i++)
		s->met[i] |= same_bucket(&s->src->closed[i]->meta, meta);
	meet(s, meta);
	return visit(s, d, meta, columns, false);
}

static int scan_store(struct scan *s)
{
	uint64_t from = s->sel->from_wall_ns, until = s->sel->until_wall_ns;

	if (!s->src->reader)
		return 0;
	from = from > LOOK_AROUND_NS ? from - LOOK_AROUND_NS : 0;
	until = until < UINT64_MAX - LOOK_AROUND_NS ? until + LOOK_AROUND_NS : UINT64_MAX;
	return store_reader_scan(s->src->reader, s->sel->type, from, until, s->src->cancelled,
				 on_stored, s);
}

static int scan_memory(struct scan *s)
{
	const struct query_source *src = s->src;

	for (size_t i = 0; i < src->n_closed + (src->open ? 1 : 0); i++) {
		bool open = i == src->n_closed;
		const struct bucket *b = open ? src->open : src->closed[i];
		int r;

		if (src->cancelled && __atomic_load_n(src->cancelled, __ATOMIC_RELAXED))
			return -ECANCELED;
		if (s->met[i])
			continue;
		if (!open)
			meet(s, &b->meta);
		r = visit(s, b->dict, &b->meta, &b->columns[s->sel->type], open);
		if (r != 0)
			return r;
	}
	return 0;
}

/*
 * Behind the last bucket. Up to the open bucket's end everything is known, and what comes later has not been
 * drained yet; without an open bucket, two buckets may be on their way.
 */
static int note_tail(struct scan *s)
{
	uint64_t until = s->sel->until_wall_ns;

	if (!s->any)
		return add_gap(s, s->sel->from_wall_ns, until,
			       s->damage ? GAP_DAMAGED : GAP_NOT_RUNNING);
	if (s->beyond || s->src->open || until <= s->end || until - s->end <= 2 * s->last.length_ns)
		return 0;
	return add_gap(s, s->end, until, s->damage ? GAP_DAMAGED : GAP_NOT_RUNNING);
}

int query_scan(const struct query_source *src, struct merge *m, store_scan_fn fn, void *ctx)
{
	const struct selection *sel = m->sel;
	struct profile *p = m->p;
	_cleanup_free_ bool *met = new0(bool, src->n_closed + 1);
	struct scan s = {
		.src = src, .sel = sel, .merge = m, .p = p, .fn = fn, .ctx = ctx, .met = met
	};
	int r;

	if (!met)
		return -ENOMEM;
	/* Without any bucket, the answer covers what was asked for, as a gap. */
	p->from_wall_ns = sel->from_wall_ns;
	p->until_wall_ns = sel->until_wall_ns;
	r = scan_store(&s);
	if (r == 0)
		r = scan_memory(&s);
	if (r == 0)
		r = note_tail(&s);
	if (r != 0)
		return r;
	/* A bucket's end is rounded up to where it should be, which may be some milliseconds from now. */
	if (s.used && src->now_wall_ns > p->from_wall_ns)
		p->until_wall_ns = MIN(p->until_wall_ns, src->now_wall_ns);
	if (p->covered_ns > 0)
		p->rate_mhz = (uint64_t)((s.rate_weight + p->covered_ns / 2) / p->covered_ns);
	return 0;
}
