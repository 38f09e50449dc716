// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stored buckets, oldest first, after a cursor. A cursor is "<store uuid>:<sequence>"; one of another store
 * is answered from the oldest bucket on, with resync set. Worker threads, except bucket messages, which
 * streams make as well.
 */
#include <inttypes.h>
#include <stdio.h>

#include "export/wire.h"
#include "serve/internal.h"

#define LIST_BUCKETS 60
#define LIST_BUCKETS_MAX 360
#define LIST_BYTES \
	(8 << 20) /* an answer ends behind the bucket that exceeds this: the cursor goes on */
#define UUID_MAX 64

struct bucket_message *bucket_message_free(struct bucket_message *m)
{
	if (!m)
		return NULL;
	for (int i = 0; i < PROFILE_TYPE_N; i++) {
		wire_profile_free(m->packed[i]);
		profile_free(m->profiles[i]);
	}
	for (size_t i = 0; i < m->message.n_work; i++)
		free(m->work[i].name);
	free(m->work);
	free(m->message.work);
	free(m);
	return NULL;
}

/* packed[] holds the profiles that are there side by side, as the message wants them. */
static int add_profile(struct bucket_message *m, const struct bucket *b, enum profile_type type,
		       const struct selection *base)
{
	struct selection sel = *base;
	size_t i = m->message.n_profiles;
	int r;

	sel.type = type;
	r = query_bucket(b, &sel, &m->profiles[i]);
	if (r >= 0)
		r = wire_profile_pack(m->profiles[i], &m->packed[i]);
	if (r < 0)
		return r;
	m->message.n_profiles++;
	return 0;
}

/* Who reported is not kept, so only those who see everything see units of work. */
static int add_work(struct bucket_message *m, const struct bucket *b)
{
	const struct columns *c = &b->columns[COLUMNS_WORK];

	if (c->n == 0)
		return 0;
	m->work = new0(Sysprofd__V1__Work, c->n);
	m->message.work = new0(Sysprofd__V1__Work *, c->n);
	if (!m->work || !m->message.work)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		const struct stack *s = &b->dict->stacks[c->stack[i]];

		sysprofd__v1__work__init(&m->work[i]);
		m->work[i].name = strdup(dict_str(b->dict, b->dict->frames[s->frame].name));
		m->work[i].units = c->count[i];
		if (!m->work[i].name)
			return -ENOMEM;
		m->message.work[m->message.n_work++] = &m->work[i];
	}
	return 0;
}

int bucket_message_new(const struct bucket *b, unsigned types, const struct selection *s,
		       struct bucket_message **ret)
{
	_cleanup_(bucket_message_free_p) struct bucket_message *m = new0(struct bucket_message, 1);
	struct selection sel = *s;
	int r;

	if (!m)
		return -ENOMEM;
	sysprofd__v1__bucket__init(&m->message);
	sel.from_wall_ns = b->meta.start_wall_ns;
	sel.until_wall_ns = b->meta.start_wall_ns + MAX(b->meta.length_ns, (uint64_t)1);
	m->message.sequence = b->meta.seq;
	m->message.start_ns = b->meta.start_wall_ns;
	m->message.covered_ns = b->meta.covered_ns;
	m->message.cpus = b->meta.cpus;
	m->message.busy_ns = b->meta.busy_us * NSEC_PER_USEC;
	m->message.gap = b->meta.gap ? (char *)gap_reason_name((enum gap_reason)b->meta.gap)
				     : (char *)"";
	memcpy(m->boot_id, b->meta.boot_id, BOOT_ID_LEN);
	m->message.boot_id = m->boot_id;
	m->message.profiles = m->packed;
	if (s->visibility.all) {
		r = add_work(m, b);
		if (r < 0)
			return r;
	}
	for (int i = 0; i < PROFILE_TYPE_N; i++) {
		if (!(types & 1U << i))
			continue;
		r = add_profile(m, b, (enum profile_type)i, &sel);
		if (r < 0)
			return r;
	}
	*ret = TAKE_PTR(m);
	return 0;
}

struct listing {
	struct call *call;
	unsigned types;
	struct selection selection;
	Sysprofd__V1__Bucket *buckets[LIST_BUCKETS_MAX];
	struct bucket_message *messages[LIST_BUCKETS_MAX];
	size_t n, bytes;
	uint64_t last_seq;
};

/* 1 ends the listing. */
static int on_bucket(void *ctx, const struct bucket *b)
{
	struct listing *l = ctx;
	struct bucket_message *m;
	int r;

	if (__atomic_load_n(&l->call->cancelled, __ATOMIC_RELAXED))
		return -ECANCELED;
	r = bucket_message_new(b, l->types, &l->selection, &m);
	if (r < 0)
		return r;
	l->messages[l->n] = m;
	l->buckets[l->n++] = &m->message;
	l->bytes += protobuf_c_message_get_packed_size(&m->message.base);
	l->last_seq = b->meta.seq;
	return l->n == LIST_BUCKETS_MAX || l->bytes > LIST_BYTES;
}

static int parse_sequence(const char *s, uint64_t *ret)
{
	char *end;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	return *end || errno ? -EINVAL : 0;
}

/* Splits a cursor; 1 when it belongs to another store. */
static int read_cursor(struct call *c, const char *cursor, const char *uuid, uint64_t *ret_seq)
{
	const char *colon = strrchr(cursor, ':');
	size_t len = colon ? (size_t)(colon - cursor) : 0;
	uint64_t seq;

	*ret_seq = 0;
	if (!*cursor)
		return 0;
	if (len == 0 || len >= UUID_MAX || parse_sequence(colon + 1, &seq) < 0)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "bad after_cursor \"%s\"", cursor);
	if (strlen(uuid) != len || memcmp(uuid, cursor, len) != 0)
		return 1;
	*ret_seq = seq;
	return 0;
}

static int list(struct call *c, struct store_reader *reader, uint32_t limit, struct listing *l)
{
	const Sysprofd__V1__ListBucketsRequest *m =
		(const Sysprofd__V1__ListBucketsRequest *)c->request;
	Sysprofd__V1__ListBucketsResponse response = SYSPROFD__V1__LIST_BUCKETS_RESPONSE__INIT;
	const char *uuid = store_reader_uuid(reader) ?: "";
	char cursor[UUID_MAX + 24];
	int r = read_cursor(c, m->after_cursor, uuid, &l->last_seq);

	if (r < 0)
		return r;
	response.resync = r == 1;
	r = store_reader_list(reader, l->last_seq, limit, on_bucket, l);
	if (r < 0)
		return r;
	snprintf(cursor, sizeof(cursor), "%.*s:%" PRIu64, UUID_MAX - 1, uuid, l->last_seq);
	response.next_cursor = cursor;
	response.buckets = l->buckets;
	response.n_buckets = l->n;
	return call_reply(c, &response.base, &response.host);
}

int method_list_buckets(struct call *c, struct worker *w)
{
	const Sysprofd__V1__ListBucketsRequest *m =
		(const Sysprofd__V1__ListBucketsRequest *)c->request;
	struct store_reader *reader = worker_reader(w);
	_cleanup_free_ struct listing *l = NULL;
	int r;

	if (m->limit > LIST_BUCKETS_MAX)
		return rpc_fail(&c->error, RPC_INVALID_ARGUMENT, "limit is at most %d",
				LIST_BUCKETS_MAX);
	if (!reader)
		return rpc_fail(&c->error, RPC_UNAVAILABLE, "the store cannot be read");
	l = new0(struct listing, 1);
	if (!l)
		return -ENOMEM;
	l->call = c;
	l->selection.visibility = c->peer->visibility;
	r = types_from_message(m->type, &l->types, &c->error);
	if (r >= 0)
		r = list(c, reader, m->limit ?: LIST_BUCKETS, l);
	for (size_t i = 0; i < l->n; i++)
		bucket_message_free(l->messages[i]);
	return r;
}
