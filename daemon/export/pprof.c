// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pprof's profile.proto, written field by field (the format is frozen and small) and gzip-compressed.
 *
 * Addresses. A frame is a file offset, so no address of any process exists here; one is made for each binary.
 * Readers undo it by pprof's rule: file offset = address - mapping.start + mapping.offset. A mapping begins at
 * the page of the lowest offset that was sampled, as a process's mapping of its text does, and ends behind the
 * highest: readers find the ELF segment by that range, and a mapping that covered the file from 0 would make
 * them take the first segment, which is another one than the text's when a linker separates them.
 *
 * Kernel frames are offsets from _stext and share one mapping, [kernel.kallsyms]. Frames outside of files have
 * no mapping.
 */
#include <inttypes.h>
#include <stdio.h>
#include <zlib.h>

#include "../bpf/sysprofd.h"
#include "base/clock.h"
#include "export/caption.h"
#include "export/escape.h"
#include "export/export.h"
#include "export/tree.h"

#define PAGE 4096ULL
#define MAIN_BASE \
	0x555555554000ULL /* where the kernel puts a main program when it does not randomise */
#define LIBRARY_BASE 0x7f0000000000ULL
#define LIBRARY_END 0x7ffff0000000ULL
#define LIBRARY_ALIGN 0x200000ULL
#define KERNEL_BASE 0xffffffff81000000ULL
#define KERNEL_LIMIT 0xffffffffffffffffULL
#define SPAN_MAX (1ULL << 32) /* of offsets in one binary; a wider one has no mapping */
#define TEXT_MAX 256

enum { /* field numbers of profile.proto */
       FIELD_SAMPLE_TYPE = 1,
       FIELD_SAMPLE,
       FIELD_MAPPING,
       FIELD_LOCATION,
       FIELD_FUNCTION,
       FIELD_STRING_TABLE,
       FIELD_TIME_NANOS = 9,
       FIELD_DURATION_NANOS,
       FIELD_PERIOD_TYPE,
       FIELD_PERIOD,
       FIELD_COMMENT,
       FIELD_DEFAULT_SAMPLE_TYPE,
};

struct mapping {
	uint64_t start, limit, offset;
	uint64_t weight; /* exclusive, for the choice of the first */
	uint64_t lowest, highest; /* offsets of the frames in use */
	uint32_t id; /* in the file; 0: none */
	bool used, named, all_files, all_lines;
};

struct writer {
	const struct profile *p;
	struct strbuf *out; /* the message, uncompressed */
	struct dict *strings; /* the string table: only its strings are used */
	struct mapping *mappings; /* by binary id; [0] stands for the kernel */
	bool *frame_used;
	uint32_t *location_of; /* by frame id */
	uint32_t *alone; /* by function id: its location without a frame */
	size_t cap_alone;
	uint32_t n_mappings, n_functions, n_locations;
	struct index functions;
	struct function {
		uint32_t name, system_name, file;
	} * function;
	size_t cap_function;
	struct strbuf scratch; /* a submessage at hand */
	int error;
};

static void writer_done(struct writer *w)
{
	dict_free(w->strings);
	free(w->mappings);
	free(w->frame_used);
	free(w->alone);
	free(w->location_of);
	free(w->function);
	index_done(&w->functions);
	strbuf_done(&w->scratch);
}

/* ---- protobuf -------------------------------------------------------------------------------- */

static void put_varint(struct strbuf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		strbuf_putc(b, (char)(v | 0x80));
	strbuf_putc(b, (char)v);
}

static void put_uint(struct strbuf *b, unsigned field, uint64_t v)
{
	if (v == 0)
		return;
	put_varint(b, field << 3);
	put_varint(b, v);
}

static void put_bytes(struct strbuf *b, unsigned field, const void *data, size_t len)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, len);
	strbuf_add(b, data, len);
}

/* Ends the submessage in w->scratch. */
static void put_scratch(struct writer *w, unsigned field)
{
	put_bytes(w->out, field, w->scratch.data, w->scratch.len);
	if (w->scratch.error)
		w->error = w->scratch.error;
	strbuf_reset(&w->scratch);
}

static uint64_t string_id(struct writer *w, const char *s)
{
	_cleanup_(strbuf_done) struct strbuf clean = {};
	int64_t id;

	/* One string that is not UTF-8 makes readers refuse the whole profile. */
	escape_utf8(&clean, s);
	id = clean.error ? clean.error : dict_string(w->strings, clean.data ?: "");
	if (id < 0) {
		w->error = (int)id;
		return 0;
	}
	return (uint64_t)id;
}

/* ---- what is used ---------------------------------------------------------------------------- */

static uint32_t next_parent(const struct dict *d, uint32_t stack)
{
	uint32_t parent = d->stacks[stack].parent;

	return parent < stack ? parent : 0;
}

static bool has_mapping(const struct dict *d, const struct frame *f)
{
	uint32_t kind;

	if (f->kind == FRAME_KERNEL)
		return true;
	if (f->kind != FRAME_NATIVE || f->binary == 0 || f->binary >= d->n_binaries)
		return false;
	kind = d->binaries[f->binary].kind;
	return kind == BINARY_ELF || kind == BINARY_VDSO;
}

static struct mapping *mapping_of(struct writer *w, const struct frame *f)
{
	if (!has_mapping(w->p->dict, f))
		return NULL;
	return &w->mappings[f->kind == FRAME_KERNEL ? 0 : f->binary];
}

static void use_frame(struct writer *w, uint32_t id, uint64_t leaf_weight)
{
	const struct frame *f = &w->p->dict->frames[id];
	struct mapping *m = mapping_of(w, f);

	if (m)
		m->weight += leaf_weight;
	if (w->frame_used[id])
		return;
	w->frame_used[id] = true;
	if (!m)
		return;
	if (!m->used)
		*m = (struct mapping){ .weight = m->weight,
				       .lowest = f->offset,
				       .highest = f->offset,
				       .used = true,
				       .all_files = true,
				       .all_lines = true };
	m->lowest = MIN(m->lowest, f->offset);
	m->highest = MAX(m->highest, f->offset);
	m->named |= f->name != 0;
	m->all_files &= f->file != 0;
	m->all_lines &= f->line != 0;
}

static void use_rows(struct writer *w)
{
	const struct profile *p = w->p;
	const struct dict *d = p->dict;
	bool sampled = profile_has_sampled_rows(p);

	for (size_t i = 0; i < p->columns.n; i++) {
		uint64_t weight = profile_weight(p, i);

		if (row_is_instructions(p, i))
			weight = 0;
		else if (!profile_row_shown(p, sampled, i))
			continue;
		for (uint32_t s = p->columns.stack[i]; s > 0 && s < d->n_stacks;
		     s = next_parent(d, s)) {
			if (d->stacks[s].frame > 0 && d->stacks[s].frame < d->n_frames)
				use_frame(w, d->stacks[s].frame, weight);
			weight = 0;
		}
	}
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* The binary that the heaviest executable is, else the heaviest with a file, else the kernel, else none. */
static uint32_t main_binary(const struct writer *w)
{
	const struct profile *p = w->p;
	const struct dict *d = p->dict;
	_cleanup_free_ uint64_t *by_exe = new0(uint64_t, d->n_strings);
	uint32_t exe = 0, best = 0;

	for (size_t i = 0; by_exe && i < p->columns.n; i++) {
		uint32_t s = p->columns.series[i];
		uint32_t path = s < d->n_series ? d->series[s].label[LABEL_EXE] : 0;

		if (path == 0 || path >= d->n_strings)
			continue;
		if (!row_is_instructions(p, i))
			by_exe[path] += profile_weight(p, i);
		if (by_exe[path] >= by_exe[exe])
			exe = path;
	}
	for (uint32_t i = 1; i < d->n_binaries; i++) {
		if (!w->mappings[i].used)
			continue;
		if (exe && d->binaries[i].path == exe)
			return i;
		if (best == 0 || w->mappings[i].weight > w->mappings[best].weight)
			best = i;
	}
	return best;
}

static void place(struct writer *w, uint32_t binary, uint64_t *cursor)
{
	struct mapping *m = &w->mappings[binary];
	uint64_t offset = m->lowest & ~(PAGE - 1);
	uint64_t size = ((m->highest - offset) | (PAGE - 1)) + 1;

	if (!m->used || m->id)
		return;
	if (binary == 0) {
		*m = (struct mapping){ .start = KERNEL_BASE,
				       .limit = KERNEL_LIMIT,
				       .used = true,
				       .named = m->named,
				       .all_files = m->all_files,
				       .all_lines = m->all_lines,
				       .id = ++w->n_mappings };
		return;
	}
	if (m->highest - offset >= SPAN_MAX || *cursor + size > LIBRARY_END)
		return;
	m->start = *cursor;
	m->limit = *cursor + size;
	m->offset = offset;
	m->id = ++w->n_mappings;
	*cursor = ((m->limit | (LIBRARY_ALIGN - 1)) + 1) + LIBRARY_ALIGN;
}

static void write_mapping(struct writer *w, uint32_t binary)
{
	const struct mapping *m = &w->mappings[binary];
	const struct dict *d = w->p->dict;
	const struct binary *b = &d->binaries[binary];
	const char *path = "[kernel.kallsyms]", *build_id = "";
	struct strbuf *s = &w->scratch;

	if (binary) {
		path = dict_str(d, b->path);
		if (str_empty(path))
			path = dict_str(d, b->name);
		build_id = dict_str(d, b->build_id);
	}
	put_uint(s, 1, m->id);
	put_uint(s, 2, m->start);
	put_uint(s, 3, m->limit);
	put_uint(s, 4, m->offset);
	put_uint(s, 5, string_id(w, path));
	put_uint(s, 6, string_id(w, build_id));
	put_uint(s, 7, m->named);
	put_uint(s, 8, m->named && m->all_files);
	put_uint(s, 9, m->named && m->all_lines);
	put_scratch(w, FIELD_MAPPING);
}

static void write_mappings(struct writer *w)
{
	uint32_t first = main_binary(w), n = (uint32_t)w->p->dict->n_binaries;
	uint64_t main_cursor = MAIN_BASE, cursor = LIBRARY_BASE;

	if (first) {
		place(w, first, &main_cursor);
		if (w->mappings[first].id)
			write_mapping(w, first);
	}
	for (uint32_t i = 1; i <= n; i++) {
		uint32_t binary = i < n ? i : 0; /* the kernel last */

		if (binary == first && first)
			continue;
		place(w, binary, &cursor);
		if (w->mappings[binary].id)
			write_mapping(w, binary);
	}
}

/* ---- functions and locations ----------------------------------------------------------------- */

static bool function_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct writer *w = ctx;

	return memcmp(&w->function[id - 1], key, sizeof(struct function)) == 0;
}

static uint32_t function_id(struct writer *w, const char *name, const char *system_name,
			    const char *file)
{
	struct function f = { (uint32_t)string_id(w, name), (uint32_t)string_id(w, system_name),
			      (uint32_t)string_id(w, file) };
	uint64_t hash = ((uint64_t)f.name << 32 | f.file) * 0x9e3779b97f4a7c15ULL ^ f.system_name;
	uint32_t id;
	int r;

	hash ^= hash >> 29;
	id = index_find(&w->functions, hash, function_equal, w, &f);
	if (id)
		return id;
	r = ARRAY_GROW(w->function, w->cap_function, w->n_functions + 1);
	if (r >= 0)
		r = index_add(&w->functions, hash, w->n_functions + 1);
	if (r < 0) {
		w->error = r;
		return 0;
	}
	w->function[w->n_functions++] = f;
	put_uint(&w->scratch, 1, w->n_functions);
	put_uint(&w->scratch, 2, f.name);
	put_uint(&w->scratch, 3, f.system_name);
	put_uint(&w->scratch, 4, f.file);
	put_scratch(w, FIELD_FUNCTION);
	return w->n_functions;
}

static void write_location(struct writer *w, uint32_t mapping, uint64_t address, uint32_t function,
			   uint32_t line)
{
	_cleanup_(strbuf_done) struct strbuf l = {};

	put_uint(&w->scratch, 1, ++w->n_locations);
	put_uint(&w->scratch, 2, mapping);
	put_uint(&w->scratch, 3, address);
	if (function) {
		put_uint(&l, 1, function);
		put_uint(&l, 2, line);
		put_bytes(&w->scratch, 4, l.data, l.len);
	}
	if (l.error)
		w->error = l.error;
	put_scratch(w, FIELD_LOCATION);
}

/*
 * A frame without a name gets no line where its mapping says has_functions = false, so that the reader may
 * name it from the file. In a mapping that was symbolised it is printed as module+0xoffset: nobody would ask
 * again.
 */
static void write_frame(struct writer *w, uint32_t id)
{
	const struct dict *d = w->p->dict;
	const struct frame *f = &d->frames[id];
	const struct mapping *m = mapping_of(w, f);
	uint64_t address = f->kind == FRAME_MARKER ? 0 : f->offset;
	char buf[TEXT_MAX];
	const char *name = frame_name(d, id, buf, sizeof(buf));
	const char *system_name = f->system_name ? dict_str(d, f->system_name) : name;
	uint32_t mapping = 0, function = 0;

	if (m && m->id) {
		mapping = m->id;
		address = f->offset - m->offset + m->start;
	}
	if (!mapping || m->named)
		function = function_id(w, name, system_name, dict_str(d, f->file));
	write_location(w, mapping, address, function, f->line);
	w->location_of[id] = w->n_locations;
}

static void write_frames(struct writer *w)
{
	for (uint32_t i = 1; i < w->p->dict->n_frames; i++)
		if (w->frame_used[i])
			write_frame(w, i);
}

/* A location for a name alone: a system call, a missing stack. */
static uint32_t named_location(struct writer *w, const char *name)
{
	uint32_t id = function_id(w, name, name, "");
	int r = ARRAY_GROW(w->alone, w->cap_alone, id + 1);

	if (r < 0) {
		w->error = r;
		return 0;
	}
	if (!w->alone[id]) {
		write_location(w, 0, 0, id, 0);
		w->alone[id] = w->n_locations;
	}
	return w->alone[id];
}

/* ---- samples --------------------------------------------------------------------------------- */

static void put_label(struct writer *w, const char *key, const char *value)
{
	_cleanup_(strbuf_done) struct strbuf l = {};

	if (str_empty(value))
		return;
	put_uint(&l, 1, string_id(w, key));
	put_uint(&l, 2, string_id(w, value));
	put_bytes(&w->scratch, 3, l.data, l.len);
	if (l.error)
		w->error = l.error;
}

static void put_number_label(struct writer *w, const char *key, uint64_t value)
{
	_cleanup_(strbuf_done) struct strbuf l = {};

	put_uint(&l, 1, string_id(w, key));
	put_uint(&l, 3, value);
	put_uint(&l, 4, string_id(w, "id")); /* a unit, or readers print "1234pid" */
	put_bytes(&w->scratch, 3, l.data, l.len);
	if (l.error)
		w->error = l.error;
}

static void put_series_labels(struct writer *w, uint32_t id)
{
	const struct dict *d = w->p->dict;
	const struct series *s;

	if (id == 0 || id >= d->n_series)
		return;
	s = &d->series[id];
	for (int i = 0; i < LABEL_N; i++)
		put_label(w, label_name((enum label)i), dict_str(d, s->label[i]));
	if (s->pid)
		put_number_label(w, "pid", s->pid);
	if (s->tid)
		put_number_label(w, "tid", s->tid);
	if (!(s->flags & SERIES_OTHER))
		put_number_label(w, "uid", s->uid);
}

static void put_type_labels(struct writer *w, uint32_t key, uint32_t aux)
{
	char buf[TEXT_MAX];

	switch (w->p->type) {
	case PROFILE_OFF_CPU:
		put_label(w, "cause", off_cause_name(OFF_KEY_CAUSE(key)));
		put_label(w, "state", off_state_name(OFF_KEY_STATE(key)));
		put_label(w, "wait", wait_kind_name(OFF_KEY_WAIT(key)));
		put_label(w, "idle", OFF_KEY_IDLE(key) ? "true" : "");
		break;
	case PROFILE_SYSCALLS:
		put_label(w, "syscall", syscall_text(key, buf, sizeof(buf)));
		if (SYSCALL_KEY_ERRNO(key))
			put_label(w, "errno", errno_text(SYSCALL_KEY_ERRNO(key), buf, sizeof(buf)));
		break;
	case PROFILE_FUTEX:
		put_label(w, "class", futex_class_name(FUTEX_KEY_CLASS(key)));
		put_label(w, "outcome", futex_outcome_name(FUTEX_KEY_OUTCOME(key)));
		if (aux)
			put_label(w, "lock", lock_text(w->p->dict, aux, buf, sizeof(buf)));
		break;
	default:
		break;
	}
}

/* Leaf first. A call is the leaf of its stack, where there is one. */
static void put_locations(struct writer *w, size_t row, struct strbuf *ids)
{
	const struct profile *p = w->p;
	const struct dict *d = p->dict;
	char buf[TEXT_MAX];
	uint32_t stack = p->columns.stack[row];

	if (stack >= d->n_stacks)
		stack = 0;
	if (p->type == PROFILE_SYSCALLS)
		put_varint(ids,
			   named_location(w, syscall_text(p->columns.key[row], buf, sizeof(buf))));
	else if (stack == 0)
		put_varint(ids, named_location(w, "[no stack]"));
	for (; stack; stack = next_parent(d, stack)) {
		uint32_t frame = d->stacks[stack].frame;

		if (frame < d->n_frames && w->location_of[frame])
			put_varint(ids, w->location_of[frame]);
	}
}

static void put_values(struct writer *w, size_t row, struct strbuf *values)
{
	const struct columns *c = &w->p->columns;
	uint64_t second = c->value[row];
	bool instructions = row_is_instructions(w->p, row);

	if (w->p->instructions.sampled) {
		put_varint(values, instructions ? 0 : MIN(c->count[row], (uint64_t)INT64_MAX));
		put_varint(values, instructions ? 0 : MIN(second, (uint64_t)INT64_MAX));
		put_varint(values, instructions ? MIN(second, (uint64_t)INT64_MAX) : 0);
		return;
	}
	if (w->p->type == PROFILE_SYSCALLS)
		second = SYSCALL_KEY_ERRNO(c->key[row]) ? c->count[row] : 0;
	put_varint(values, MIN(c->count[row], (uint64_t)INT64_MAX));
	put_varint(values, MIN(second, (uint64_t)INT64_MAX));
}

static void write_samples(struct writer *w)
{
	_cleanup_(strbuf_done) struct strbuf ids = {}, values = {};
	const struct columns *c = &w->p->columns;
	bool sampled = profile_has_sampled_rows(w->p);

	for (size_t i = 0; i < c->n && !w->error; i++) {
		if (!profile_row_shown(w->p, sampled, i) && !row_is_instructions(w->p, i))
			continue;
		strbuf_reset(&ids);
		strbuf_reset(&values);
		put_locations(w, i, &ids);
		put_values(w, i, &values);
		put_bytes(&w->scratch, 1, ids.data, ids.len);
		put_bytes(&w->scratch, 2, values.data, values.len);
		put_series_labels(w, c->series[i]);
		put_type_labels(w, c->key[i], c->aux[i]);
		put_scratch(w, FIELD_SAMPLE);
	}
	if (ids.error || values.error)
		w->error = -ENOMEM;
}

/* ---- the profile ----------------------------------------------------------------------------- */

static const struct value_types {
	const char *type[2], *unit[2], *by_default;
} value_types[PROFILE_TYPE_N] = {
	[PROFILE_ON_CPU] = { { "samples", "cpu" }, { "count", "nanoseconds" }, "cpu" },
	[PROFILE_OFF_CPU] = { { "events", "off_cpu" }, { "count", "nanoseconds" }, "off_cpu" },
	[PROFILE_SYSCALLS] = { { "calls", "errors" }, { "count", "count" }, "calls" },
	[PROFILE_FUTEX] = { { "waits", "futex_wait" }, { "count", "nanoseconds" }, "futex_wait" },
};

static void write_value_type(struct writer *w, unsigned field, const char *type, const char *unit)
{
	put_uint(&w->scratch, 1, string_id(w, type));
	put_uint(&w->scratch, 2, string_id(w, unit));
	put_scratch(w, field);
}

static void write_comment(struct writer *w)
{
	_cleanup_(strbuf_done) struct strbuf text = {};

	strbuf_puts(&text, "sysprofd " SYSPROFD_VERSION "; ");
	caption_what(w->p, &text);
	strbuf_puts(&text, "; ");
	caption_missing(w->p, &text);
	if (text.error)
		w->error = text.error;
	else
		put_uint(w->out, FIELD_COMMENT, string_id(w, text.data));
}

static void write_head(struct writer *w)
{
	const struct profile *p = w->p;
	const struct value_types of_event = { { "samples", profile_unit(p) },
					      { "count", "count" },
					      profile_unit(p) };
	const struct value_types *v = p->event ? &of_event : &value_types[p->type];

	for (int i = 0; i < 2; i++)
		write_value_type(w, FIELD_SAMPLE_TYPE, v->type[i], v->unit[i]);
	if (p->instructions.sampled)
		write_value_type(w, FIELD_SAMPLE_TYPE, sample_event_name(EVENT_INSTRUCTIONS),
				 "count");
	put_uint(w->out, FIELD_TIME_NANOS, p->from_wall_ns);
	put_uint(w->out, FIELD_DURATION_NANOS, p->covered_ns);
	/* The period of events is not one number: the kernel keeps up a rate. */
	if (p->event) {
		write_value_type(w, FIELD_PERIOD_TYPE, profile_unit(p), "count");
		put_uint(w->out, FIELD_PERIOD, p->samples ? p->total / p->samples : 0);
	} else if (p->type == PROFILE_ON_CPU) {
		write_value_type(w, FIELD_PERIOD_TYPE, "cpu", "nanoseconds");
		put_uint(w->out, FIELD_PERIOD, p->rate_mhz ? 1000 * NSEC_PER_SEC / p->rate_mhz : 0);
	}
	put_uint(w->out, FIELD_DEFAULT_SAMPLE_TYPE, string_id(w, v->by_default));
	write_comment(w);
}

static int write_profile(struct writer *w)
{
	const struct dict *d = w->p->dict;
	int r = dict_new(&w->strings);

	if (r < 0)
		return r;
	w->mappings = new0(struct mapping, d->n_binaries + 1);
	w->frame_used = new0(bool, d->n_frames + 1);
	w->location_of = new0(uint32_t, d->n_frames + 1);
	if (!w->mappings || !w->frame_used || !w->location_of)
		return -ENOMEM;
	write_head(w);
	use_rows(w);
	write_mappings(w);
	write_frames(w);
	write_samples(w);
	for (size_t i = 0; i < w->strings->n_strings; i++) {
		const char *s = w->strings->strings[i];

		put_bytes(w->out, FIELD_STRING_TABLE, s, strlen(s));
	}
	return w->error < 0 ? w->error : strbuf_error(w->out);
}

/* ---- gzip ------------------------------------------------------------------------------------ */

static int gzip(const struct strbuf *in, struct strbuf *out)
{
	z_stream z = {};
	char *room;
	int r;

	if (in->len > UINT32_MAX) /* what avail_in can say */
		return -EFBIG;
	/* 15 + 16: the largest window, gzip framing. The header carries no time: same profile, same bytes. */
	if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) !=
	    Z_OK)
		return -ENOMEM;
	z.avail_out = (uInt)MIN(deflateBound(&z, in->len), (uLong)UINT32_MAX);
	room = strbuf_reserve(out, z.avail_out);
	if (!room) {
		deflateEnd(&z);
		return out->error;
	}
	z.next_out = (Bytef *)room;
	z.next_in = (Bytef *)in->data;
	z.avail_in = (uInt)in->len;
	r = deflate(&z, Z_FINISH);
	out->len += z.total_out;
	deflateEnd(&z);
	return r == Z_STREAM_END ? 0 : -EIO;
}

int export_pprof(const struct profile *p, struct strbuf *out)
{
	_cleanup_(strbuf_done) struct strbuf message = {};
	_cleanup_(writer_done) struct writer w = { .p = p, .out = &message };
	int r = write_profile(&w);

	return r < 0 ? r : gzip(&message, out);
}
