// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Dictionary chunks. What a damaged chunk held becomes copies of element 1 of its kind, so that all other ids
 * keep their meaning: the cost of damage is a name, not a day.
 */
#include "base/utf8.h"
#include "store/dictionary.h"

#define DAMAGED "[damaged]"
#define DAMAGED_ID 1

/* Beyond these a new file begins. About 12 MiB of memory for the writer, 20 ms of loading for a reader. */
#define FULL_STRINGS 131072
#define FULL_BYTES (8U << 20)
#define FULL_FRAMES 131072
#define FULL_STACKS 262144
#define FULL_SERIES 65536
#define FULL_LOCKS 65536

/* ---- elements as tables ------------------------------------------------------------------------- */

static const struct table_field binary_fields[] = {
	TABLE_FIELD(struct binary, name),	TABLE_FIELD(struct binary, path),
	TABLE_FIELD(struct binary, build_id),	TABLE_FIELD(struct binary, kind),
	TABLE_FIELD(struct binary, dev),	TABLE_FIELD(struct binary, ino),
	TABLE_FIELD(struct binary, generation),
};

static const struct table_field frame_fields[] = {
	TABLE_FIELD(struct frame, binary),	TABLE_FIELD(struct frame, name),
	TABLE_FIELD(struct frame, system_name), TABLE_FIELD(struct frame, file),
	TABLE_FIELD(struct frame, line),	TABLE_FIELD(struct frame, kind),
	TABLE_FIELD(struct frame, flags),	TABLE_FIELD(struct frame, offset),
};

static const struct table_field stack_fields[] = {
	TABLE_FIELD(struct stack, parent),
	TABLE_FIELD(struct stack, frame),
};

/* The label array is one field each: their number is part of the format. */
_Static_assert(LABEL_N == 9, "a label more is a field more: raise STORE_VERSION");
static const struct table_field series_fields[] = {
	TABLE_FIELD(struct series, label[LABEL_COMM]),
	TABLE_FIELD(struct series, label[LABEL_EXE]),
	TABLE_FIELD(struct series, label[LABEL_THREAD]),
	TABLE_FIELD(struct series, label[LABEL_UNIT]),
	TABLE_FIELD(struct series, label[LABEL_CGROUP]),
	TABLE_FIELD(struct series, label[LABEL_CONTAINER]),
	TABLE_FIELD(struct series, label[LABEL_POD]),
	TABLE_FIELD(struct series, label[LABEL_NAMESPACE]),
	TABLE_FIELD(struct series, label[LABEL_BUILD_ID]),
	TABLE_FIELD(struct series, pid),
	TABLE_FIELD(struct series, tid),
	TABLE_FIELD(struct series, uid),
	TABLE_FIELD(struct series, flags),
	TABLE_FIELD(struct series, start),
};

static const struct table_field lock_fields[] = {
	TABLE_FIELD(struct lock, binary),  TABLE_FIELD(struct lock, name),
	TABLE_FIELD(struct lock, flags),   TABLE_FIELD(struct lock, pid),
	TABLE_FIELD(struct lock, address), TABLE_FIELD(struct lock, offset),
};

struct frame_name {
	uint32_t id, name, system_name, file, line, flags;
};

static const struct table_field frame_name_fields[] = {
	TABLE_FIELD(struct frame_name, id),	     TABLE_FIELD(struct frame_name, name),
	TABLE_FIELD(struct frame_name, system_name), TABLE_FIELD(struct frame_name, file),
	TABLE_FIELD(struct frame_name, line),	     TABLE_FIELD(struct frame_name, flags),
};

struct lock_name {
	uint32_t id, name, flags;
};

static const struct table_field lock_name_fields[] = {
	TABLE_FIELD(struct lock_name, id),
	TABLE_FIELD(struct lock_name, name),
	TABLE_FIELD(struct lock_name, flags),
};

#define TABLE(type, fields_of)                                                                 \
	{                                                                                      \
		.fields = fields_of, .n_fields = ARRAY_SIZE(fields_of), .stride = sizeof(type) \
	}
static const struct table {
	const struct table_field *fields;
	size_t n_fields, stride;
} tables[DICT_KINDS] = {
	[DICT_BINARIES] = TABLE(struct binary, binary_fields),
	[DICT_FRAMES] = TABLE(struct frame, frame_fields),
	[DICT_STACKS] = TABLE(struct stack, stack_fields),
	[DICT_SERIES] = TABLE(struct series, series_fields),
	[DICT_LOCKS] = TABLE(struct lock, lock_fields),
	[DICT_FRAME_NAMES] = TABLE(struct frame_name, frame_name_fields),
	[DICT_LOCK_NAMES] = TABLE(struct lock_name, lock_name_fields),
};

/* One of the dict's arrays. */
struct array {
	void **items;
	size_t *n, *cap, stride;
};

static struct array array_of(struct dict *d, enum dict_kind kind)
{
#define ARRAY_OF(x)                                                   \
	(struct array)                                                \
	{                                                             \
		(void **)&d->x, &d->n_##x, &d->cap_##x, sizeof(*d->x) \
	}
	switch (kind) {
	case DICT_STRINGS:
		return ARRAY_OF(strings);
	case DICT_BINARIES:
		return ARRAY_OF(binaries);
	case DICT_FRAMES:
		return ARRAY_OF(frames);
	case DICT_STACKS:
		return ARRAY_OF(stacks);
	case DICT_SERIES:
		return ARRAY_OF(series);
	case DICT_LOCKS:
		return ARRAY_OF(locks);
	default:
		assert(!"an element kind");
		return (struct array){};
	}
#undef ARRAY_OF
}

static size_t count_of(const struct dictionary *d, enum dict_kind kind)
{
	return *array_of(d->dict, kind).n;
}

/* ---- filling ------------------------------------------------------------------------------------ */

/* Appends without asking whether an equal element exists. */
static int push(struct dict *d, enum dict_kind kind, const void *rows, size_t n)
{
	struct array a = array_of(d, kind);
	int r = array_grow(a.items, a.cap, *a.n + n, a.stride);

	if (r < 0)
		return r;
	memcpy((char *)*a.items + *a.n * a.stride, rows, n * a.stride);
	*a.n += n;
	return 0;
}

static int push_string(struct dict *d, const char *s, size_t len)
{
	char *copy = strndup(s, len);
	int r;

	if (!copy)
		return -ENOMEM;
	r = push(d, DICT_STRINGS, &copy, 1);
	if (r < 0) {
		free(copy);
		return r;
	}
	d->bytes += len + 1;
	return 0;
}

static int64_t intern(struct dict *d, enum dict_kind kind, const void *row)
{
	const struct stack *s = row;

	switch (kind) {
	case DICT_BINARIES:
		return dict_binary(d, row);
	case DICT_FRAMES:
		return dict_frame(d, row);
	case DICT_STACKS:
		return dict_stack(d, s->parent, s->frame);
	case DICT_SERIES:
		return dict_series(d, row);
	default:
		return dict_lock(d, row);
	}
}

static int add(struct dictionary *d, enum dict_kind kind, const void *row)
{
	int64_t id;
	size_t n;

	if (!d->indexed)
		return push(d->dict, kind, row, 1);
	n = count_of(d, kind);
	id = intern(d->dict, kind, row);
	if (id < 0)
		return (int)id;
	/* Equal to an earlier one, which happens around damage: it keeps its own id all the same. */
	return (size_t)id < n ? push(d->dict, kind, row, 1) : 0;
}

static int add_string(struct dictionary *d, const char *s, size_t len)
{
	int64_t id;
	size_t n;

	if (!utf8_valid(s, len)) {
		d->dict->repeats = true;
		return push_string(d->dict, DAMAGED, strlen(DAMAGED));
	}
	if (!d->indexed)
		return push_string(d->dict, s, len);
	n = d->dict->n_strings;
	id = dict_string_n(d->dict, s, len);
	if (id < 0)
		return (int)id;
	return (size_t)id < n ? push_string(d->dict, s, len) : 0;
}

/* Element 1 of each kind, by which damage is shown. */
static int add_damaged_elements(struct dictionary *d)
{
	struct binary binary = { .name = DAMAGED_ID, .kind = BINARY_UNKNOWN };
	struct frame frame = { .name = DAMAGED_ID, .kind = FRAME_MARKER, .flags = FRAME_NAMED };
	struct stack stack = { .frame = DAMAGED_ID };
	struct series series = { .label[LABEL_COMM] = DAMAGED_ID, .flags = SERIES_OTHER };
	struct lock lock = { .name = DAMAGED_ID, .flags = 2 };
	int r = add_string(d, DAMAGED, strlen(DAMAGED));

	if (r >= 0)
		r = add(d, DICT_BINARIES, &binary);
	if (r >= 0)
		r = add(d, DICT_FRAMES, &frame);
	if (r >= 0)
		r = add(d, DICT_STACKS, &stack);
	if (r >= 0)
		r = add(d, DICT_SERIES, &series);
	if (r >= 0)
		r = add(d, DICT_LOCKS, &lock);
	return r;
}

int dictionary_init(struct dictionary *d, bool indexed)
{
	int r;

	*d = (struct dictionary){ .indexed = indexed };
	r = dict_new(&d->dict);
	if (r >= 0)
		r = add_damaged_elements(d);
	if (r < 0) {
		dictionary_done(d);
		return r;
	}
	for (size_t k = 0; k < DICT_ELEMENT_KINDS; k++)
		d->stored[k] = d->merged[k] = DAMAGED_ID + 1;
	return 0;
}

void dictionary_done(struct dictionary *d)
{
	dict_free(d->dict);
	free(d->frame_named);
	free(d->lock_named);
	*d = (struct dictionary){};
}

static int fill_damaged(struct dictionary *d, enum dict_kind kind, size_t n)
{
	int r = 0;

	d->dict->repeats = true;
	for (size_t i = 0; i < n && r >= 0; i++) {
		struct array a = array_of(d->dict, kind);

		if (kind == DICT_STRINGS) {
			r = push_string(d->dict, DAMAGED, strlen(DAMAGED));
		} else {
			char row[sizeof(struct series)]; /* the largest */

			memcpy(row, (char *)*a.items + DAMAGED_ID * a.stride, a.stride);
			r = push(d->dict, kind, row, 1);
		}
	}
	return r;
}

_Static_assert(sizeof(struct series) >= sizeof(struct binary) &&
		       sizeof(struct series) >= sizeof(struct frame) &&
		       sizeof(struct series) >= sizeof(struct lock),
	       "series is the largest element");

/* ---- loading ------------------------------------------------------------------------------------ */

static void bound(struct dict *d, uint32_t *id, size_t n)
{
	if (*id < n)
		return;
	*id = DAMAGED_ID;
	d->repeats = true;
}

/* References must lead to what exists, so that nobody has to check them again. */
static void make_valid(struct dict *d, enum dict_kind kind, void *row, size_t own_id)
{
	struct binary *b = row;
	struct frame *f = row;
	struct stack *st = row;
	struct series *se = row;
	struct lock *l = row;

	switch (kind) {
	case DICT_BINARIES:
		bound(d, &b->name, d->n_strings);
		bound(d, &b->path, d->n_strings);
		bound(d, &b->build_id, d->n_strings);
		if (b->kind < BINARY_ELF || b->kind > BINARY_UNKNOWN)
			b->kind = BINARY_UNKNOWN;
		break;
	case DICT_FRAMES:
		bound(d, &f->binary, d->n_binaries);
		bound(d, &f->name, d->n_strings);
		bound(d, &f->system_name, d->n_strings);
		bound(d, &f->file, d->n_strings);
		if (f->kind < FRAME_NATIVE || f->kind > FRAME_MARKER) {
			*f = d->frames[DAMAGED_ID];
			d->repeats = true;
		}
		break;
	case DICT_STACKS:
		if (st->parent >= own_id) {
			*st = d->stacks[DAMAGED_ID];
			d->repeats = true;
		}
		bound(d, &st->frame, d->n_frames);
		break;
	case DICT_SERIES:
		for (size_t i = 0; i < LABEL_N; i++)
			bound(d, &se->label[i], d->n_strings);
		break;
	case DICT_LOCKS:
		bound(d, &l->binary, d->n_binaries);
		bound(d, &l->name, d->n_strings);
		break;
	default:
		break;
	}
}

static int load_strings(struct dictionary *d, struct blob_reader *blobs, struct blob_in *in,
			size_t skip, size_t n)
{
	uint64_t total = 0;

	if (ARRAY_GROW(blobs->numbers, blobs->cap_numbers, n) < 0)
		return -ENOMEM;
	if (get_stream64(in, blobs->numbers, n) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		if (blobs->numbers[i] > BLOB_MAX_RAW)
			return -EBADMSG;
		total += blobs->numbers[i];
	}
	if (total != (uint64_t)(in->end - in->p))
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		int r = i < skip ? 0 : add_string(d, (const char *)in->p, blobs->numbers[i]);

		if (r < 0)
			return r;
		in->p += blobs->numbers[i];
	}
	return 0;
}

static int load_table(struct dictionary *d, enum dict_kind kind, struct blob_reader *blobs,
		      struct blob_in *in, size_t skip, size_t n)
{
	size_t stride = tables[kind].stride, own_id = count_of(d, kind);
	_cleanup_free_ char *rows = calloc(n, stride);
	int r;

	if (!rows)
		return -ENOMEM;
	r = get_table(blobs, in, tables[kind].fields, tables[kind].n_fields, rows, stride, n);
	if (r < 0)
		return r;
	if (in->p != in->end)
		return -EBADMSG;
	for (size_t i = skip; i < n; i++)
		make_valid(d->dict, kind, rows + i * stride, own_id++);
	if (!d->indexed)
		return push(d->dict, kind, rows + skip * stride, n - skip);
	for (size_t i = skip; i < n && r >= 0; i++)
		r = add(d, kind, rows + i * stride);
	return r;
}

static int load_frame_names(struct dictionary *d, struct blob_reader *blobs, struct blob_in *in,
			    size_t n)
{
	_cleanup_free_ struct frame_name *names = new0(struct frame_name, n);
	struct dict *dict = d->dict;
	int r;

	if (!names)
		return -ENOMEM;
	r = get_table(blobs, in, frame_name_fields, ARRAY_SIZE(frame_name_fields), names,
		      sizeof(*names), n);
	for (size_t i = 0; i < n && r >= 0; i++) {
		struct frame *f;

		if (names[i].id >= dict->n_frames || names[i].id <= DAMAGED_ID)
			continue;
		f = &dict->frames[names[i].id];
		f->name = names[i].name;
		f->system_name = names[i].system_name;
		f->file = names[i].file;
		f->line = names[i].line;
		f->flags = (uint16_t)names[i].flags;
		make_valid(dict, DICT_FRAMES, f, 0);
	}
	return r;
}

static int load_lock_names(struct dictionary *d, struct blob_reader *blobs, struct blob_in *in,
			   size_t n)
{
	_cleanup_free_ struct lock_name *names = new0(struct lock_name, n);
	struct dict *dict = d->dict;
	int r;

	if (!names)
		return -ENOMEM;
	r = get_table(blobs, in, lock_name_fields, ARRAY_SIZE(lock_name_fields), names,
		      sizeof(*names), n);
	for (size_t i = 0; i < n && r >= 0; i++) {
		struct lock *l;

		if (names[i].id >= dict->n_locks || names[i].id <= DAMAGED_ID)
			continue;
		l = &dict->locks[names[i].id];
		l->name = names[i].name;
		l->flags = names[i].flags;
		make_valid(dict, DICT_LOCKS, l, 0);
	}
	return r;
}

/* The columns of a row of DICTIONARY_SELECT. */
struct chunk {
	uint64_t kind, first, n;
	const void *data;
	size_t len;
};

static struct chunk chunk_of(sqlite3_stmt *row)
{
	return (struct chunk){
		.kind = (uint64_t)sqlite3_column_int64(row, 1),
		.first = (uint64_t)sqlite3_column_int64(row, 2),
		.n = (uint64_t)sqlite3_column_int64(row, 3),
		.data = sqlite3_column_blob(row, 4),
		.len = (size_t)sqlite3_column_bytes(row, 4),
	};
}

static int open_chunk(struct blob_reader *blobs, const struct chunk *c, struct blob_in *ret)
{
	uint64_t key[] = { c->kind, c->first, c->n };

	return blob_open(blobs, CONTENT_DICT, key, ARRAY_SIZE(key), c->data, c->len, ret);
}

static bool chunk_plausible(const struct chunk *c)
{
	return c->kind < DICT_KINDS && c->n > 0 && c->n <= DICT_CHUNK_MAX &&
	       c->first <= DICT_MAX - c->n;
}

int dictionary_check(struct blob_reader *blobs, sqlite3_stmt *row)
{
	struct chunk c = chunk_of(row);
	struct blob_in in;

	return chunk_plausible(&c) ? open_chunk(blobs, &c, &in) : -EBADMSG;
}

static int load_elements(struct dictionary *d, struct blob_reader *blobs, const struct chunk *c)
{
	enum dict_kind kind = (enum dict_kind)c->kind;
	size_t have = count_of(d, kind);
	struct blob_in in;
	int r;

	if (c->first + c->n <= have)
		return 0; /* merged from what is known */
	r = open_chunk(blobs, c, &in);
	if (r >= 0 && c->first > have) {
		/* The chunk before this one was lost, row and all. */
		r = fill_damaged(d, kind, c->first - have);
		have = count_of(d, kind);
	}
	if (r >= 0)
		r = kind == DICT_STRINGS ? load_strings(d, blobs, &in, have - c->first, c->n)
					 : load_table(d, kind, blobs, &in, have - c->first, c->n);
	if (r != -EBADMSG)
		return r;
	d->damaged++;
	/* The row's own numbers are believed only where they fit what is known. */
	have = count_of(d, kind);
	return c->first <= have ? fill_damaged(d, kind, c->first + c->n - have) : 0;
}

static int load_chunk(struct dictionary *d, struct blob_reader *blobs, const struct chunk *c)
{
	struct blob_in in;
	int r;

	if (!chunk_plausible(c)) {
		d->damaged++;
		return 0;
	}
	if (c->kind < DICT_ELEMENT_KINDS)
		return load_elements(d, blobs, c);
	r = open_chunk(blobs, c, &in);
	if (r >= 0)
		r = c->kind == DICT_FRAME_NAMES ? load_frame_names(d, blobs, &in, c->n)
						: load_lock_names(d, blobs, &in, c->n);
	if (r != -EBADMSG)
		return r;
	d->damaged++;
	return 0;
}

/* What is loaded is stored; a writer keeps in mind which names are. */
static int remember_stored(struct dictionary *d)
{
	struct dict *dict = d->dict;

	if (ARRAY_GROW(d->frame_named, d->cap_frame_named, dict->n_frames) < 0 ||
	    ARRAY_GROW(d->lock_named, d->cap_lock_named, dict->n_locks) < 0)
		return -ENOMEM;
	for (size_t i = d->stored[DICT_FRAMES]; i < dict->n_frames; i++)
		d->frame_named[i] = (dict->frames[i].flags & FRAME_NAMED) != 0;
	for (size_t i = d->stored[DICT_LOCKS]; i < dict->n_locks; i++)
		d->lock_named[i] = (dict->locks[i].flags & 2) != 0;
	for (size_t k = 0; k < DICT_ELEMENT_KINDS; k++)
		d->stored[k] = count_of(d, (enum dict_kind)k);
	return 0;
}

int dictionary_load(struct dictionary *d, sqlite3_stmt *select, struct blob_reader *blobs)
{
	int r;

	sql_bind_u64(select, 1, (uint64_t)d->last_row);
	while ((r = sql_step(select)) > 0) {
		struct chunk c = chunk_of(select);

		d->last_row = sqlite3_column_int64(select, 0);
		r = load_chunk(d, blobs, &c);
		if (r < 0)
			break;
	}
	sqlite3_reset(select);
	if (r >= 0 && d->indexed)
		r = remember_stored(d);
	if (r < 0)
		return r;
	if (d->indexed)
		memcpy(d->merged, d->stored, sizeof(d->merged));
	return 0;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static int insert_chunk(sqlite3_stmt *insert, struct blob_writer *blobs, enum dict_kind kind,
			size_t first, size_t n)
{
	_cleanup_(strbuf_done) struct strbuf blob = {};
	uint64_t key[] = { kind, first, n };
	int r = blob_seal(blobs, CONTENT_DICT, key, ARRAY_SIZE(key), &blob);

	if (r < 0)
		return r;
	for (int i = 0; i < 3; i++)
		sql_bind_u64(insert, i + 1, key[i]);
	sql_bind_blob(insert, 4, blob.data, blob.len);
	r = sql_run(insert);
	sqlite3_clear_bindings(insert);
	return r;
}

static int put_strings(struct blob_writer *blobs, const struct dict *d, size_t first, size_t n)
{
	if (ARRAY_GROW(blobs->numbers, blobs->cap_numbers, n) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		blobs->numbers[i] = strlen(d->strings[first + i]);
	put_stream(blobs, blobs->numbers, n);
	for (size_t i = 0; i < n; i++)
		strbuf_puts(&blobs->payload, d->strings[first + i]);
	return strbuf_error(&blobs->payload);
}

/* Elements first .. until - 1, in chunks of bounded size. */
static int write_elements(const struct dictionary *d, enum dict_kind kind, size_t first,
			  size_t until, sqlite3_stmt *insert, struct blob_writer *blobs)
{
	struct array a = array_of(d->dict, kind);
	int r = 0;

	while (first < until && r >= 0) {
		size_t n = MIN(until - first, (size_t)DICT_CHUNK_MAX);

		blob_begin(blobs);
		if (kind == DICT_STRINGS)
			r = put_strings(blobs, d->dict, first, n);
		else
			r = put_table(blobs, tables[kind].fields, tables[kind].n_fields,
				      (char *)*a.items + first * a.stride, a.stride, n);
		if (r >= 0)
			r = insert_chunk(insert, blobs, kind, first, n);
		first += n;
	}
	return r;
}

static bool frame_name_is_new(const struct dictionary *d, uint32_t id)
{
	return id > DAMAGED_ID && id < d->stored[DICT_FRAMES] && !d->frame_named[id] &&
	       (d->dict->frames[id].flags & FRAME_NAMED);
}

static bool lock_name_is_new(const struct dictionary *d, uint32_t id)
{
	return id > DAMAGED_ID && id < d->stored[DICT_LOCKS] && !d->lock_named[id] &&
	       (d->dict->locks[id].flags & 2);
}

/* Names are written in chunks; a full one goes out and the next begins. */
static int write_names(struct blob_writer *blobs, sqlite3_stmt *insert, enum dict_kind kind,
		       const void *rows, size_t n)
{
	size_t stride = tables[kind].stride;
	int r = 0;

	for (size_t done = 0; done < n && r >= 0; done += DICT_CHUNK_MAX) {
		size_t part = MIN(n - done, (size_t)DICT_CHUNK_MAX);

		blob_begin(blobs);
		r = put_table(blobs, tables[kind].fields, tables[kind].n_fields,
			      (const char *)rows + done * stride, stride, part);
		if (r >= 0)
			r = insert_chunk(insert, blobs, kind, 0, part);
	}
	return r;
}

static int write_frame_names(const struct dictionary *d, sqlite3_stmt *insert,
			     struct blob_writer *blobs, const struct dictionary_touched *t)
{
	_cleanup_free_ struct frame_name *names = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < t->n_frames; i++) {
		uint32_t id = t->frames[i];
		const struct frame *f = &d->dict->frames[id];

		if (!frame_name_is_new(d, id))
			continue;
		if (ARRAY_GROW(names, cap, n + 1) < 0)
			return -ENOMEM;
		names[n++] = (struct frame_name){ id,	   f->name, f->system_name,
						  f->file, f->line, f->flags };
	}
	return write_names(blobs, insert, DICT_FRAME_NAMES, names, n);
}

static int write_lock_names(const struct dictionary *d, sqlite3_stmt *insert,
			    struct blob_writer *blobs, const struct dictionary_touched *t)
{
	_cleanup_free_ struct lock_name *names = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < t->n_locks; i++) {
		uint32_t id = t->locks[i];

		if (!lock_name_is_new(d, id))
			continue;
		if (ARRAY_GROW(names, cap, n + 1) < 0)
			return -ENOMEM;
		names[n++] = (struct lock_name){ id, d->dict->locks[id].name,
						 d->dict->locks[id].flags };
	}
	return write_names(blobs, insert, DICT_LOCK_NAMES, names, n);
}

int dictionary_write(const struct dictionary *d, sqlite3_stmt *insert, struct blob_writer *blobs,
		     const struct dictionary_touched *touched)
{
	int r = 0;

	for (unsigned k = 0; k < DICT_ELEMENT_KINDS && r >= 0; k++)
		r = write_elements(d, (enum dict_kind)k, d->stored[k],
				   count_of(d, (enum dict_kind)k), insert, blobs);
	if (r >= 0)
		r = write_frame_names(d, insert, blobs, touched);
	if (r >= 0)
		r = write_lock_names(d, insert, blobs, touched);
	return r;
}

void dictionary_stored(struct dictionary *d, const struct dictionary_touched *touched)
{
	for (size_t i = 0; i < touched->n_frames; i++)
		if (frame_name_is_new(d, touched->frames[i]))
			d->frame_named[touched->frames[i]] = 1;
	for (size_t i = 0; i < touched->n_locks; i++)
		if (lock_name_is_new(d, touched->locks[i]))
			d->lock_named[touched->locks[i]] = 1;
	/* Without memory the new elements are written once more, which readers skip. */
	(void)!remember_stored(d);
}

int dictionary_merge(const struct dictionary *d, sqlite3 *db, sqlite3_stmt *insert,
		     sqlite3_stmt *delete, struct blob_writer *blobs)
{
	int64_t last;
	int r;

	/* The new rows come before the old ones go: row ids must grow, readers remember the last one. */
	r = sql_integer(db, "SELECT max(id) FROM dict", 0, &last);
	for (unsigned k = 0; k < DICT_ELEMENT_KINDS && r >= 0; k++) {
		if (d->stored[k] == d->merged[k])
			continue;
		r = write_elements(d, (enum dict_kind)k, d->merged[k], d->stored[k], insert, blobs);
		if (r < 0)
			return r;
		sql_bind_u64(delete, 1, k);
		sql_bind_u64(delete, 2, d->merged[k]);
		sql_bind_u64(delete, 3, (uint64_t)last);
		r = sql_run(delete);
	}
	return r;
}

void dictionary_merged(struct dictionary *d)
{
	memcpy(d->merged, d->stored, sizeof(d->merged));
}

bool dictionary_is_full(const struct dictionary *d)
{
	const struct dict *x = d->dict;

	return x->n_strings > FULL_STRINGS || x->bytes > FULL_BYTES ||
	       x->n_binaries > FULL_STRINGS || x->n_frames > FULL_FRAMES ||
	       x->n_stacks > FULL_STACKS || x->n_series > FULL_SERIES || x->n_locks > FULL_LOCKS;
}
