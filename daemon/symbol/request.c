// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include <xxhash.h>

#include "base/utf8.h"
#include "symbol/demangle.h"
#include "symbol/symbolizer-internal.h"

/* ---- keys ---------------------------------------------------------------------------------------- */

struct identity symbol_identity(const struct naming *n, uint32_t binary, enum kind kind)
{
	const struct binary *b = &n->dict->binaries[binary];
	const char *build_id = dict_str(n->dict, b->build_id);
	/* What becomes of a file's lines is none of its names' business. */
	uint64_t fields[7] = { b->dev, b->ino, b->generation, b->kind, 0, 0, kind == KIND_LINES };
	XXH128_hash_t h;

	if (*build_id) {
		h = XXH3_128bits_withSeed(build_id, strlen(build_id), n->s->seed);
		fields[0] = h.low64;
		fields[1] = h.high64;
		fields[4] = 1;
	} else if (!b->ino && binary < n->n_keys) {
		/* Without any identity, the registry's key is one as long as this daemon runs. */
		fields[4] = 2;
		fields[5] = n->keys[binary];
	}
	h = XXH3_128bits_withSeed(fields, sizeof(fields), n->s->seed);
	return (struct identity){ { h.low64, h.high64 } };
}

/* What a map says of an address holds for the call that asked. */
static uint32_t turn_of(const struct symbolizer *s, enum kind kind)
{
	return kind == KIND_JIT ? s->turn : 0;
}

static struct answer_key key_of(const struct identity *binary, enum kind kind, uint64_t offset,
				uint32_t turn)
{
	return (struct answer_key){
		{ binary->hash[0], binary->hash[1] }, offset, (uint32_t)kind, turn
	};
}

struct answer_key symbol_key_for_now(const struct naming *n, const struct identity *binary,
				     enum kind kind, uint64_t offset)
{
	return key_of(binary, (enum kind)(kind | FOR_NOW), offset, n->now);
}

static struct answer_key reserved_key(const struct identity *binary, enum kind kind,
				      uint64_t offset, uint32_t reserved)
{
	return key_of(binary, (enum kind)(kind | RESERVED), offset, reserved);
}

struct answer_key symbol_key(const struct symbolizer *s, const struct identity *binary,
			     enum kind kind, uint64_t offset)
{
	return key_of(binary, kind, offset, turn_of(s, kind));
}

/* ---- answers -------------------------------------------------------------------------------------- */

/* Build-ids in side-band records are cut at 20 bytes: they agree as far as both go. */
static bool contradicts(const char *expected, const char *found)
{
	return *expected && *found &&
	       strncmp(expected, found, MIN(strlen(expected), strlen(found))) != 0;
}

/* What the answer says about one offset, or "" when it says nothing. */
static void take_symbol(const struct pending *p, const Sysprofd__V1__ParseResponse *m, size_t i,
			char name[static SYMBOL_NAME_MAX], char system_name[static SYMBOL_NAME_MAX])
{
	const Sysprofd__V1__Symbol *y = i < m->n_symbols ? m->symbols[i] : NULL;

	name[0] = system_name[0] = '\0';
	if (!y || contradicts(p->build_id, m->build_id))
		return;
	/* The helper cleans names too, but a helper that was taken over might not. */
	utf8_sanitize(name, SYMBOL_NAME_MAX, y->name, strlen(y->name));
	utf8_sanitize(system_name, SYMBOL_NAME_MAX, y->system_name, strlen(y->system_name));
}

static void take_place(struct symbolizer *s, const struct pending *p,
		       const Sysprofd__V1__ParseResponse *m, size_t i, const struct answer_key *key)
{
	_cleanup_(strbuf_done) struct strbuf text = {};

	if (m->n_places && i >= m->n_places)
		return; /* not reached in time: to be asked about again */
	if (i < m->n_places && !contradicts(p->build_id, m->build_id))
		inlines_write(m->places[i], &text);
	if (strbuf_error(&text) >= 0)
		(void)answers_put(&s->answers, key, text.data ?: "", "");
}

void symbol_forget_parts(struct symbolizer *s)
{
	while (s->n_parts) {
		struct debug_part *p = &s->parts[--s->n_parts];

		free(p->path);
		free(p->directory);
	}
}

static int take_parts(struct symbolizer *s, const Sysprofd__V1__ParseResponse *m)
{
	symbol_forget_parts(s);
	for (size_t i = 0; i < m->n_wanted_files && i < HELPER_PARTS_MAX; i++) {
		const Sysprofd__V1__WantedFile *w = m->wanted_files[i];
		struct debug_part *p = &s->parts[s->n_parts++];

		*p = (struct debug_part){ .kind = w->kind,
					  .id = w->id,
					  .path = strdup(w->path),
					  .directory = strdup(w->directory) };
		snprintf(p->build_id, sizeof(p->build_id), "%s", w->build_id);
		if (!p->path || !p->directory) {
			symbol_forget_parts(s);
			break;
		}
	}
	return WANTS_PARTS;
}

static int take_hints(struct symbolizer *s, const Sysprofd__V1__ParseResponse *m)
{
	struct debug_hints *h = &s->hints;

	snprintf(h->build_id, sizeof(h->build_id), "%s", m->build_id);
	snprintf(h->link, sizeof(h->link), "%s", m->debug_link);
	return WANTS_DEBUG_FILE;
}

/*
 * 0: the answer is in the cache; WANTS_DEBUG_FILE, WANTS_PARTS: with reservation; -EREMOTEIO: the file could not be parsed for
 * want of something.
 */
static int take_answer(struct symbolizer *s, const Sysprofd__V1__ParseResponse *m)
{
	const struct pending *p = &s->pending;
	char name[SYMBOL_NAME_MAX], system_name[SYMBOL_NAME_MAX];
	bool wants = false, wants_parts = false;

	s->counters.map_lines_skipped += m->lines_skipped;
	s->counters.map_entries_dropped += m->entries_dropped;
	switch (m->status) {
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_OK:
		if (p->kind == KIND_LINES ? m->n_places > p->n : m->n_symbols != p->n)
			return -EBADMSG;
		wants = m->wants_debug_file && !p->settled;
		wants_parts = m->n_wanted_files > 0;
		break;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_UNFINISHED:
		return UNFINISHED;
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_DAMAGED:
	case SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_TOO_LARGE:
		if (m->n_symbols)
			return -EBADMSG;
		break;
	default:
		return -EREMOTEIO;
	}
	for (size_t i = 0; i < p->n; i++) {
		struct answer_key key =
			wants || wants_parts
				? reserved_key(&p->binary, p->kind, p->offsets[i], p->reserved)
				: key_of(&p->binary, p->kind, p->offsets[i], p->turn);

		/* Without memory the frame stays unnamed and is asked for again. */
		if (p->kind == KIND_LINES) {
			take_place(s, p, m, i, &key);
			continue;
		}
		take_symbol(p, m, i, name, system_name);
		(void)answers_put(&s->answers, &key, name, system_name);
	}
	s->counters.cache_bytes = answers_bytes(&s->answers);
	return wants ? take_hints(s, m) : wants_parts ? take_parts(s, m) : 0;
}

int symbol_settle(struct symbolizer *s, uint64_t deadline_mono_ns)
{
	Sysprofd__V1__ParseResponse *m;
	_cleanup_close_ int fd = -1;
	int r;

	if (!s->exchange.active)
		return 0;
	r = exchange_receive(&s->exchange, deadline_mono_ns, &m, &fd);
	if (r < 0)
		return r;
	r = take_answer(s, m);
	exchange_end(&s->exchange, m, r);
	return r == -EBADMSG ? -EIO : r;
}

int symbol_ask(struct naming *n, const struct batch *b, const struct exchange_files *files,
	       bool settled)
{
	Sysprofd__V1__ParseRequest m = SYSPROFD__V1__PARSE_REQUEST__INIT;
	struct pending *p = &n->s->pending;
	int r;

	/* Another caller may have left a request under way while the lock was not held. */
	if (symbol_settle(n->s, n->deadline) == -ETIMEDOUT)
		return -ETIMEDOUT;
	p->binary = b->identity;
	p->kind = b->items[0].kind;
	p->turn = turn_of(n->s, p->kind);
	p->settled = settled;
	p->reserved = n->reserved = (uint32_t)n->s->exchange.last_id;
	snprintf(p->build_id, sizeof(p->build_id), "%s",
		 dict_str(n->dict, n->dict->binaries[b->items[0].binary].build_id));
	memcpy(p->offsets, b->offsets, b->n * sizeof(*b->offsets));
	p->n = b->n;
	m.kind = (Sysprofd__V1__ParseKind)p->kind;
	m.n_offsets = p->n;
	m.offsets = p->offsets;
	r = exchange_send(&n->s->exchange, &p->binary, &m, files, n->deadline);
	return r < 0 ? r : symbol_settle(n->s, n->deadline);
}

int symbol_accept(struct naming *n, const struct batch *b, bool for_now)
{
	for (size_t i = 0; i < b->n; i++) {
		struct answer_key key = reserved_key(&b->identity, b->items[0].kind, b->offsets[i],
						     n->reserved);
		_cleanup_free_ char *name = NULL, *system_name = NULL;
		const char *known, *system;

		if (!answers_get(&n->s->answers, &key, &known, &system))
			continue;
		/* Adding may move what was found. */
		name = strdup(known);
		system_name = strdup(system);
		key = for_now ? symbol_key_for_now(n, &b->identity, b->items[0].kind, b->offsets[i])
			      : symbol_key(n->s, &b->identity, b->items[0].kind, b->offsets[i]);
		if (name && system_name)
			(void)answers_put(&n->s->answers, &key, name, system_name);
	}
	return 0;
}
