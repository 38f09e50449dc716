/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Buckets made by hand for tests of daemon/query, and what is asked about them.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "../bpf/sysprofd.h"
#include "query/query.h"

#define T0 (1700000000ULL * NSEC_PER_SEC) /* a multiple of 10 s */
#define SEC NSEC_PER_SEC
#define BOOT "0123456789abcdef0123456789abcdef"

struct who {
	const char *comm, *thread, *unit, *exe, *container, *pod;
	uint32_t pid, tid, uid, flags;
	uint64_t start;
};

static inline uint32_t ok_id(int64_t id)
{
	assert_true(id >= 0);
	return (uint32_t)id;
}

static inline uint32_t str_id(struct dict *d, const char *s)
{
	return ok_id(dict_string(d, s));
}

static inline uint32_t series_id(struct dict *d, struct who w)
{
	struct series s = {
		.pid = w.pid, .tid = w.tid, .uid = w.uid, .flags = w.flags, .start = w.start
	};

	s.label[LABEL_COMM] = str_id(d, w.comm);
	s.label[LABEL_THREAD] = str_id(d, w.thread);
	s.label[LABEL_UNIT] = str_id(d, w.unit);
	s.label[LABEL_EXE] = str_id(d, w.exe);
	s.label[LABEL_CONTAINER] = str_id(d, w.container);
	s.label[LABEL_POD] = str_id(d, w.pod);
	return ok_id(dict_series(d, &s));
}

/* "name@binary": kind by the binary; a name in brackets without binary is a marker; "+0x10@b" is unnamed. */
static inline uint32_t frame_id(struct dict *d, const char *spec)
{
	char name[256];
	const char *at = strchr(spec, '@'), *binary = at ? at + 1 : "app";
	struct binary b = {};
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };

	snprintf(name, sizeof(name), "%.*s", at ? (int)(at - spec) : (int)strlen(spec), spec);
	if (!at && name[0] == '[')
		return ok_id(dict_marker(d, name));
	b.kind = streq(binary, "[kernel]") ? BINARY_KERNEL : BINARY_ELF;
	b.name = str_id(d, binary);
	b.path = b.name;
	if (b.kind == BINARY_ELF) {
		char path[300];

		snprintf(path, sizeof(path), "/usr/lib/%s", binary);
		b.path = str_id(d, path);
	}
	f.binary = ok_id(dict_binary(d, &b));
	if (b.kind == BINARY_KERNEL)
		f.kind = FRAME_KERNEL;
	if (name[0] == '+') {
		f.offset = strtoull(name + 1, NULL, 16);
	} else {
		f.name = str_id(d, name);
		/* Any offset will do, as long as a name has the same one in every dictionary. */
		for (const char *c = name; *c; c++)
			f.offset = f.offset * 31 + (unsigned char)*c;
	}
	return ok_id(dict_frame(d, &f));
}

/* "root;mid;leaf" */
static inline uint32_t stack_id(struct dict *d, const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	char *rest = copy, *part;
	uint32_t stack = 0;

	assert_non_null(copy);
	while ((part = strsep(&rest, ";")))
		stack = ok_id(dict_stack(d, stack, frame_id(d, part)));
	return stack;
}

static inline struct bucket *make_bucket(uint64_t start_wall_ns, uint64_t seq)
{
	struct bucket *b = NULL;

	assert_int_equal(bucket_new(&b), 0);
	b->meta = (struct bucket_meta){ .seq = seq,
					.boot_id = BOOT,
					.start_wall_ns = start_wall_ns,
					.length_ns = 10 * SEC,
					.covered_ns = 10 * SEC,
					.cpus = 2 };
	for (int i = 0; i < PROFILE_TYPE_N; i++)
		b->meta.source[i].active = true;
	b->meta.source[PROFILE_ON_CPU].rate_mhz = 19000;
	return b;
}

static inline void add_row(struct bucket *b, enum profile_type type, uint32_t series,
			   uint32_t stack, uint32_t key, uint32_t aux, uint64_t count,
			   uint64_t value, uint64_t max)
{
	assert_int_equal(columns_add(&b->columns[type], series, stack, key, aux, count, value, max),
			 0);
}

static inline void on_cpu(struct bucket *b, struct who w, const char *path, uint64_t count,
			  uint64_t us)
{
	add_row(b, PROFILE_ON_CPU, series_id(b->dict, w), stack_id(b->dict, path), 0, 0, count, us,
		0);
}

static inline void off_total(struct bucket *b, struct who w, unsigned cause, uint64_t n,
			     uint64_t us)
{
	add_row(b, PROFILE_OFF_CPU, series_id(b->dict, w), 0, OFF_KEY(cause, 0, 1), 0, n, us, 0);
}

static inline void off_sample(struct bucket *b, struct who w, const char *path, unsigned cause,
			      unsigned task_state, uint64_t n, uint64_t us)
{
	add_row(b, PROFILE_OFF_CPU, series_id(b->dict, w), stack_id(b->dict, path),
		OFF_KEY(cause, task_state, 0), 0, n, us, 0);
}

static inline void calls(struct bucket *b, struct who w, uint32_t key, uint64_t n)
{
	add_row(b, PROFILE_SYSCALLS, series_id(b->dict, w), 0, key, 0, n, 0, 0);
}

#define NATIVE(nr, err) SYSCALL_KEY(SYSCALL_ABI_NATIVE, nr, err)
#define NR_READ SYS_read
#define NR_GETPID SYS_getpid

/* ---- questions ------------------------------------------------------------------------------------------- */

/* The whole time around T0, everything visible. */
static inline struct selection whole(enum profile_type type)
{
	return (struct selection){ .type = type,
				   .from_wall_ns = T0,
				   .until_wall_ns = T0 + 600 * SEC,
				   .visibility = { .all = true } };
}

static inline void where(struct selection *s, enum filter_key key, const char *glob, bool negate)
{
	s->filters = realloc(s->filters, (s->n_filters + 1) * sizeof(*s->filters));
	assert_non_null(s->filters);
	s->filters[s->n_filters++] = (struct filter){ key, strdup(glob), negate };
}

static inline const struct top_row *row_named(const struct top *t, const char *name)
{
	for (size_t i = 0; i < t->n_rows; i++)
		if (streq(t->rows[i].name, name))
			return &t->rows[i];
	return NULL;
}

static _unused_ const struct who app = {
	.comm = "app", .thread = "app", .unit = "app.service", .pid = 10, .tid = 10, .start = 5
};
static _unused_ const struct who app_io = {
	.comm = "app", .thread = "io", .unit = "app.service", .pid = 10, .tid = 11, .start = 5
};
static _unused_ const struct who db = {
	.comm = "db", .thread = "db", .unit = "db.service", .pid = 20, .tid = 20, .start = 6
};

static inline struct top *top_of(const struct query_source *src, const struct selection *s,
				 enum dimension by, bool by_total, uint32_t limit)
{
	struct top *t = NULL;

	assert_int_equal(query_top(src, s, by, by_total, limit, &t), 0);
	return t;
}

static inline struct profile *merged(const struct query_source *src, const struct selection *s,
				     uint32_t max_nodes)
{
	struct profile *p = NULL;

	assert_int_equal(query_merge(src, s, max_nodes, &p), 0);
	return p;
}

static inline uint64_t sum_of(const struct profile *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->columns.n; i++)
		sum += p->columns.value[i];
	return sum;
}

static inline const struct series_line *line_named(const struct series_answer *a, const char *name)
{
	for (size_t i = 0; i < a->n_lines; i++)
		if (streq(a->lines[i].name, name))
			return &a->lines[i];
	return NULL;
}
