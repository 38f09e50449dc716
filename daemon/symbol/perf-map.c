// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Known code is kept as pieces: sorted, apart from each other, each with the name that was said last about its
 * addresses. New entries are collected in the order of their coming, and laid over the pieces by a sweep over the
 * addresses, in which of all that cover a place the youngest wins. So entries that are hidden by later ones cost
 * nothing for long, however often a map repeats itself.
 */
#include <sys/stat.h>
#include <xxhash.h>

#include "base/index.h"
#include "base/utf8.h"
#include "symbol/perf-map.h"

#define CHUNK 65536 /* also the longest line that is looked at */
#define FILE_MAX (1ULL << 30)
#define PIECES_MAX (1U << 20)
#define FRESH_MAX (1U << 16) /* then they are laid over the pieces */
#define TEXT_MAX (8U << 20)
/* What is compared to know whether a file has only grown. */
#define HEAD_MAX 4096
#define TAIL_MAX 256

struct piece {
	uint64_t start;
	uint32_t size;
	uint32_t name; /* into text */
};

struct entry {
	struct piece piece;
	uint32_t age; /* greater: younger; pieces have 0 */
};

struct text {
	char *data; /* [0] is NUL */
	size_t n, cap;
	struct index index;
};

struct perf_map {
	struct piece *pieces;
	size_t n, cap;
	struct entry *fresh;
	size_t n_fresh, cap_fresh;
	struct text text;

	uint64_t at; /* what lies before it was read */
	uint64_t size; /* of the file at the end of the last reading */
	int64_t changed_sec, changed_nsec;
	bool dump; /* a jitdump */
	bool skipping; /* within a line that is too long */
	bool full; /* of names that are in use */
	uint8_t head[HEAD_MAX], tail[TAIL_MAX]; /* of the file; the tail ends at `at` */
	size_t n_head, n_tail;
	struct perf_map_stats stats;
};

/* ---- names --------------------------------------------------------------------------------------- */

static bool text_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct text *t = ctx;

	return streq(t->data + id, key);
}

static void text_done(struct text *t)
{
	free(t->data);
	index_done(&t->index);
	*t = (struct text){};
}

/* Where the name lies, or -errno. */
static int64_t text_put(struct text *t, const char *name)
{
	size_t len = strlen(name) + 1, at = MAX(t->n, (size_t)1);
	uint64_t hash = XXH3_64bits(name, len);
	uint32_t id = index_find(&t->index, hash, text_equal, t, name);

	if (id)
		return id;
	if (at + len > TEXT_MAX)
		return -ENOSPC;
	if (ARRAY_GROW(t->data, t->cap, at + len) < 0 ||
	    index_add(&t->index, hash, (uint32_t)at) < 0)
		return -ENOMEM;
	memcpy(t->data + at, name, len);
	t->n = at + len;
	return (int64_t)at;
}

static int move_name(struct text *to, const struct text *from, uint32_t *name)
{
	int64_t id = text_put(to, from->data + *name);

	if (id < 0)
		return (int)id;
	*name = (uint32_t)id;
	return 0;
}

/* Forgets the names of code that is no more. */
static int compact_text(struct perf_map *m)
{
	struct text t = {};
	int r = 0;

	for (size_t i = 0; i < m->n && r >= 0; i++)
		r = move_name(&t, &m->text, &m->pieces[i].name);
	if (r < 0) {
		/* Names that were moved are lost with the rest. */
		text_done(&t);
		m->n = 0;
		text_done(&m->text);
		return r;
	}
	text_done(&m->text);
	m->text = t;
	m->full = t.n > TEXT_MAX / 4 * 3;
	return 0;
}

/* ---- the sweep ----------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->piece.start != y->piece.start)
		return x->piece.start < y->piece.start ? -1 : 1;
	return x->age < y->age ? -1 : 1;
}

static uint64_t end_of(const struct piece *p)
{
	return p->start + p->size;
}

struct sweep {
	const struct piece *old; /* both sorted by start */
	const struct entry *new;
	size_t n_old, n_new, at_old, at_new;
	struct entry *heap; /* those that cover the place, the youngest on top */
	size_t n_heap, cap_heap;
	struct piece *out;
	size_t n_out, cap_out;
};

static int push(struct sweep *s, const struct entry *e)
{
	size_t i = s->n_heap;
	int r = ARRAY_GROW(s->heap, s->cap_heap, i + 1);

	if (r < 0)
		return r;
	s->n_heap++;
	for (; i > 0 && s->heap[(i - 1) / 2].age < e->age; i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = *e;
	return 0;
}

static void pop(struct sweep *s)
{
	struct entry last = s->heap[--s->n_heap];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < s->n_heap; i = child) {
		if (child + 1 < s->n_heap && s->heap[child + 1].age > s->heap[child].age)
			child++;
		if (s->heap[child].age < last.age)
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = last;
}

/* Where the next entry begins that does not cover the place yet. */
static uint64_t next_start(const struct sweep *s)
{
	uint64_t a = s->at_old < s->n_old ? s->old[s->at_old].start : UINT64_MAX;
	uint64_t b = s->at_new < s->n_new ? s->new[s->at_new].piece.start : UINT64_MAX;

	return MIN(a, b);
}

static int enter(struct sweep *s, uint64_t place)
{
	int r = 0;

	while (r >= 0 && s->at_old < s->n_old && s->old[s->at_old].start == place)
		r = push(s, &(struct entry){ .piece = s->old[s->at_old++] });
	while (r >= 0 && s->at_new < s->n_new && s->new[s->at_new].piece.start == place)
		r = push(s, &s->new[s->at_new++]);
	return r;
}

static int put_piece(struct sweep *s, uint64_t start, uint64_t end, uint32_t name)
{
	struct piece *last = s->n_out ? &s->out[s->n_out - 1] : NULL;
	int r;

	if (last && last->name == name && end_of(last) == start &&
	    end - last->start <= UINT32_MAX) {
		last->size = (uint32_t)(end - last->start);
		return 0;
	}
	if (s->n_out == PIECES_MAX)
		return -ENOSPC;
	r = ARRAY_GROW(s->out, s->cap_out, s->n_out + 1);
	if (r < 0)
		return r;
	s->out[s->n_out++] = (struct piece){ start, (uint32_t)(end - start), name };
	return 0;
}

static int run_sweep(struct sweep *s)
{
	uint64_t place = next_start(s);
	int r = 0;

	while (place != UINT64_MAX) {
		uint64_t end;

		r = enter(s, place);
		if (r < 0)
			return r;
		while (s->n_heap && end_of(&s->heap[0].piece) <= place)
			pop(s);
		if (!s->n_heap) {
			place = next_start(s);
			continue;
		}
		end = MIN(end_of(&s->heap[0].piece), next_start(s));
		r = put_piece(s, place, end, s->heap[0].piece.name);
		if (r < 0)
			return r;
		place = end;
	}
	return 0;
}

/* Lays the fresh entries over the pieces. Without room they are dropped, and counted. */
static int settle(struct perf_map *m)
{
	struct sweep s = { .old = m->pieces, .new = m->fresh, .n_old = m->n, .n_new = m->n_fresh };
	int r;

	if (m->n_fresh == 0)
		return 0;
	qsort(m->fresh, m->n_fresh, sizeof(*m->fresh), compare_entries);
	r = run_sweep(&s);
	free(s.heap);
	if (r < 0) {
		free(s.out);
		m->stats.dropped += m->n_fresh;
	} else {
		free(m->pieces);
		m->pieces = s.out;
		m->n = s.n_out;
		m->cap = s.cap_out;
	}
	m->n_fresh = 0;
	return r == -ENOSPC ? 0 : r;
}

static int add(struct perf_map *m, uint64_t start, uint64_t size, const char *name, size_t len)
{
	char clean[PERF_MAP_NAME_MAX];
	int64_t id;
	int r;

	utf8_sanitize(clean, sizeof(clean), name, len);
	id = text_put(&m->text, clean);
	if (id == -ENOSPC && !m->full) {
		r = settle(m);
		if (r >= 0)
			r = compact_text(m);
		if (r < 0)
			return r;
		id = text_put(&m->text, clean);
	}
	if (id == -ENOSPC) {
		m->stats.dropped++;
		return 0;
	}
	if (id < 0)
		return (int)id;
	r = ARRAY_GROW(m->fresh, m->cap_fresh, m->n_fresh + 1);
	if (r < 0)
		return r;
	m->fresh[m->n_fresh] = (struct entry){
		.piece = { start, (uint32_t)size, (uint32_t)id },
		.age = (uint32_t)m->n_fresh + 1,
	};
	return ++m->n_fresh == FRESH_MAX ? settle(m) : 0;
}

/* ---- text ---------------------------------------------------------------------------------------- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A hexadecimal number with or without 0x, and the blanks behind it. */
static bool take_number(const char **p, const char *end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *from;

	if (end - *p > 2 && (*p)[0] == '0' && ((*p)[1] | 0x20) == 'x')
		*p += 2;
	for (from = *p; *p < end && digit(**p) >= 0; (*p)++) {
		if (v >> 60)
			return false;
		v = v << 4 | (unsigned)digit(**p);
	}
	if (*p == from || *p == end || (**p != ' ' && **p != '\t'))
		return false;
	while (*p < end && (**p == ' ' || **p == '\t'))
		(*p)++;
	*ret = v;
	return true;
}

static int take_line(struct perf_map *m, const char *p, const char *end)
{
	uint64_t start, size;

	m->stats.lines++;
	while (end > p && (end[-1] == '\r' || end[-1] == ' '))
		end--;
	if (!take_number(&p, end, &start) || !take_number(&p, end, &size) || p == end ||
	    size > UINT32_MAX || start > UINT64_MAX - size) {
		m->stats.skipped++;
		return 0;
	}
	return size ? add(m, start, size, p, (size_t)(end - p)) : 0;
}

/* Returns how much of the chunk was dealt with; the last line may not be complete yet. */
static ssize_t take_lines(struct perf_map *m, const char *buf, size_t n)
{
	const char *p = buf, *end = buf + n, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		int r = 0;

		if (m->skipping)
			m->skipping = false;
		else
			r = take_line(m, p, nl);
		if (r < 0)
			return r;
		p = nl + 1;
	}
	if (p == buf && n == CHUNK) {
		if (!m->skipping) {
			m->stats.lines++;
			m->stats.skipped++;
		}
		m->skipping = true;
		return (ssize_t)n;
	}
	return p - buf;
}

static int read_text(struct perf_map *m, int fd, uint64_t budget)
{
	_cleanup_free_ char *buf = malloc(CHUNK);
	uint64_t until = m->at + budget;

	if (!buf)
		return -ENOMEM;
	while (m->at < until) {
		ssize_t n = pread(fd, buf, CHUNK, (off_t)m->at), done;

		if (n < 0)
			return negative_errno();
		m->stats.read_bytes += (uint64_t)n;
		done = take_lines(m, buf, (size_t)n);
		if (done < 0)
			return (int)done;
		m->at += (uint64_t)done;
		if (done == 0)
			return 0;
	}
	return 1;
}

/* ---- jitdump ------------------------------------------------------------------------------------- */

/* As in the kernel's tools/perf/Documentation/jitdump-specification.txt. */
#define DUMP_MAGIC 0x4a695444
#define DUMP_LOAD 0

struct dump_header {
	uint32_t magic, version, total_size, machine, pad, pid;
	uint64_t timestamp, flags;
};

struct dump_record {
	uint32_t id, total_size;
	uint64_t timestamp;
};

struct dump_load {
	struct dump_record record;
	uint32_t pid, tid;
	uint64_t vma, address, size, index;
	char name[PERF_MAP_NAME_MAX]; /* or longer; the code follows */
};
_Static_assert(offsetof(struct dump_load, name) == 56, "no hole before the name");

static int take_load(struct perf_map *m, const struct dump_load *l, size_t n)
{
	size_t room = n - offsetof(struct dump_load, name), len = strnlen(l->name, room);

	m->stats.lines++;
	if (l->size == 0 || l->size > UINT32_MAX || l->address > UINT64_MAX - l->size || len == 0) {
		m->stats.skipped++;
		return 0;
	}
	return add(m, l->address, l->size, l->name, len);
}

static int read_dump(struct perf_map *m, int fd, uint64_t budget)
{
	for (uint64_t spent = 0; spent < budget; spent += sizeof(struct dump_load)) {
		struct dump_load l;
		ssize_t n = pread(fd, &l, sizeof(l), (off_t)m->at);
		int r = 0;

		if (n < 0)
			return negative_errno();
		if ((size_t)n < sizeof(l.record) || l.record.total_size > m->size - m->at)
			return 0; /* it is being written */
		if (l.record.total_size < sizeof(l.record))
			return -EBADMSG;
		m->stats.read_bytes += (uint64_t)n;
		n = MIN(n, (ssize_t)l.record.total_size);
		if (l.record.id == DUMP_LOAD && (size_t)n > offsetof(struct dump_load, name))
			r = take_load(m, &l, (size_t)n);
		if (r < 0)
			return r;
		m->at += l.record.total_size;
	}
	return 1;
}

/* Finds out what kind of file it is. 1: that is to be seen when there is more of it. */
static int begin(struct perf_map *m, int fd)
{
	struct dump_header h;
	ssize_t n = pread(fd, &h, sizeof(h), 0);

	if (n < (ssize_t)sizeof(h.magic) || h.magic != DUMP_MAGIC)
		return 0;
	if (n < (ssize_t)sizeof(h))
		return 1;
	if (h.total_size < sizeof(h) || h.total_size > m->size)
		return -EBADMSG;
	m->dump = true;
	m->at = h.total_size;
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static void forget(struct perf_map *m)
{
	m->n = m->n_fresh = 0;
	text_done(&m->text);
	m->at = m->size = 0;
	m->n_head = m->n_tail = 0;
	m->dump = m->skipping = m->full = false;
}

static bool still_there(int fd, const uint8_t *want, size_t n, uint64_t at)
{
	uint8_t buf[MAX(HEAD_MAX, TAIL_MAX)];

	return pread(fd, buf, n, (off_t)at) == (ssize_t)n && memcmp(buf, want, n) == 0;
}

/* Whether the file still is what was read, and perhaps more. */
static bool has_only_grown(const struct perf_map *m, int fd, const struct stat *st)
{
	bool touched = m->changed_sec != st->st_mtim.tv_sec ||
		       m->changed_nsec != st->st_mtim.tv_nsec;
	uint64_t size = (uint64_t)st->st_size;

	if (!touched && size == m->size)
		return true;
	return size > m->size && still_there(fd, m->head, m->n_head, 0) &&
	       still_there(fd, m->tail, m->n_tail, m->at - m->n_tail);
}

static void remember(struct perf_map *m, int fd)
{
	ssize_t n;

	if (m->n_head < HEAD_MAX) {
		n = pread(fd, m->head, (size_t)MIN(m->at, (uint64_t)HEAD_MAX), 0);
		m->n_head = (size_t)MAX(n, 0);
	}
	n = (ssize_t)MIN(m->at, (uint64_t)TAIL_MAX);
	n = pread(fd, m->tail, (size_t)n, (off_t)(m->at - (uint64_t)n));
	m->n_tail = (size_t)MAX(n, 0);
}

int perf_map_read(struct perf_map *m, int fd, uint64_t budget)
{
	struct stat st;
	int r = 0, settled;

	if (fstat(fd, &st) < 0)
		return negative_errno();
	if ((uint64_t)st.st_size > FILE_MAX)
		return -EFBIG;
	if (!has_only_grown(m, fd, &st))
		forget(m);
	m->size = (uint64_t)st.st_size;
	m->changed_sec = st.st_mtim.tv_sec;
	m->changed_nsec = st.st_mtim.tv_nsec;
	if (m->at == 0)
		r = begin(m, fd);
	if (r > 0)
		return 0;
	if (r == 0)
		r = m->dump ? read_dump(m, fd, budget) : read_text(m, fd, budget);
	settled = settle(m);
	if (r >= 0 && settled < 0)
		r = settled;
	/* What could not be taken in is no beginning to go on from. */
	if (r < 0)
		forget(m);
	else
		remember(m, fd);
	return r;
}

const char *perf_map_find(const struct perf_map *m, uint64_t address)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (end_of(&m->pieces[mid]) > address)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < m->n && m->pieces[lo].start <= address ? m->text.data + m->pieces[lo].name
							   : NULL;
}

/* ---- life ---------------------------------------------------------------------------------------- */

int perf_map_new(struct perf_map **ret)
{
	struct perf_map *m = new0(struct perf_map, 1);

	if (!m)
		return -ENOMEM;
	*ret = m;
	return 0;
}

struct perf_map *perf_map_free(struct perf_map *m)
{
	if (!m)
		return NULL;
	free(m->pieces);
	free(m->fresh);
	text_done(&m->text);
	free(m);
	return NULL;
}

void perf_map_stats(const struct perf_map *m, struct perf_map_stats *ret)
{
	const struct index *x = &m->text.index;

	*ret = m->stats;
	ret->bytes = sizeof(*m) + m->cap * sizeof(*m->pieces) + m->cap_fresh * sizeof(*m->fresh) +
		     m->text.cap + (x->slots ? (x->mask + 1) * sizeof(*x->slots) : 0);
}
