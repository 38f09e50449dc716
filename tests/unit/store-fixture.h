/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A directory for one test, small buckets whose contents follow from their number, and readings to compare. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/store.h"

#define PATH_LEN 512 /* of what count_files() writes */
#define SECOND NSEC_PER_SEC
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define DAY_ONE (1767225600ULL * SECOND) /* 2026-01-01T00:00:00Z */

static inline void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		if (streq(e->d_name, ".") || streq(e->d_name, ".."))
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0) < 0)
			unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

/* Memory where there is some: every commit waits for the disk, and no test here pulls the plug. */
static inline const char *temporary(void)
{
	const char *tmp = getenv("TMPDIR");
	struct statvfs fs;

	if (tmp)
		return tmp;
	if (access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &fs) == 0 &&
	    fs.f_bavail * fs.f_frsize > 64 << 20)
		return "/dev/shm";
	return "/tmp";
}

static inline char *new_directory(void)
{
	char *path;

	assert_true(asprintf(&path, "%s/sysprofd-store-XXXXXX", temporary()) > 0);
	assert_non_null(mkdtemp(path));
	return path;
}

static inline int directory_setup(void **st)
{
	*st = new_directory();
	return 0;
}

static inline int directory_teardown(void **st)
{
	remove_tree(*st);
	free(*st);
	return 0;
}

#define store_test(f) cmocka_unit_test_setup_teardown(f, directory_setup, directory_teardown)

static inline struct store *open_store(const char *directory)
{
	struct store_options o = { .directory = directory,
				   .max_bytes = 1ULL << 30,
				   .repack_buckets = 60,
				   .check_eagerly = true };
	struct store *s = NULL;

	assert_int_equal(store_open(&o, &s), 0);
	return s;
}

static inline uint32_t checked(int64_t id)
{
	assert_true(id >= 0);
	return (uint32_t)id;
}

static inline void add_row(struct columns *c, uint32_t series, uint32_t stack, uint32_t key,
			   uint32_t aux, uint64_t count, uint64_t value, uint64_t max)
{
	assert_int_equal(columns_add(c, series, stack, key, aux, count, value, max), 0);
}

static inline uint32_t frame_named(struct dict *d, const char *name, uint64_t offset, bool named)
{
	struct binary b = { .kind = BINARY_ELF };
	struct frame f = { .kind = FRAME_NATIVE, .offset = offset };

	b.name = checked(dict_string(d, "prog"));
	b.build_id = checked(dict_string(d, "00ff00ff"));
	f.binary = checked(dict_binary(d, &b));
	if (named) {
		f.name = checked(dict_string(d, name));
		f.flags = FRAME_NAMED;
	}
	return checked(dict_frame(d, &f));
}

/* Bucket number i: a few rows of each type, some the same in every bucket, some only here. */
static inline struct bucket *small_bucket(uint64_t i, uint64_t start)
{
	struct series s = { .pid = 100, .tid = 100, .uid = 1, .start = 5 };
	struct lock l = { .pid = 100, .address = 0x1000 + i % 3 * 8 };
	uint32_t common, rare, stack, series, lock;
	struct bucket *b = NULL;
	char name[32];

	assert_int_equal(bucket_new(&b), 0);
	b->meta.start_wall_ns = start;
	b->meta.length_ns = b->meta.covered_ns = 10 * SECOND;
	b->meta.cpus = 4;
	strcpy(b->meta.boot_id, "00112233445566778899aabbccddeeff");
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		b->meta.source[t].active = true;
	b->meta.source[PROFILE_ON_CPU].seen = 10 + i;
	s.label[LABEL_COMM] = checked(dict_string(b->dict, "prog"));
	series = checked(dict_series(b->dict, &s));
	common = frame_named(b->dict, "main", 0x100, true);
	snprintf(name, sizeof(name), "f%" PRIu64, i % 100);
	rare = frame_named(b->dict, name, 0x1000 + i % 100 * 16, true);
	stack = checked(dict_stack(b->dict, 0, common));
	lock = checked(dict_lock(b->dict, &l));
	add_row(&b->columns[PROFILE_ON_CPU], series, stack, 0, 0, 1, 1000 + i, 0);
	stack = checked(dict_stack(b->dict, stack, rare));
	add_row(&b->columns[PROFILE_ON_CPU], series, stack, 0, 0, 2, 7 * i, 0);
	add_row(&b->columns[PROFILE_OFF_CPU], series, 0, OFF_KEY(1, 0, 1), 0, 3, 100 * i, 0);
	add_row(&b->columns[PROFILE_OFF_CPU], series, stack, OFF_KEY(1, 1, 0), 0, 1, 90 * i, 0);
	add_row(&b->columns[PROFILE_SYSCALLS], series, 0, 39, 0, i * i + 1, 0, 0);
	add_row(&b->columns[PROFILE_FUTEX], series, stack, FUTEX_KEY(0, 1), lock, 2, 50 + i, 40);
	return b;
}

/* Appends bucket i and returns its sequence number. */
static inline uint64_t append_small(struct store *s, uint64_t i, uint64_t start)
{
	struct bucket *b = small_bucket(i, start);
	uint64_t seq;

	assert_int_equal(store_append(s, b), 0);
	seq = b->meta.seq;
	bucket_free(b);
	return seq;
}

static inline void maintain_all(struct store *s)
{
	int r;

	while ((r = store_maintain(s)) > 0)
		;
	assert_int_equal(r, 0);
}

/* What a scan yields, in a form that can be compared: a line for each bucket. */
struct reading {
	struct strbuf text;
	uint64_t buckets, damaged, last_seq, rows, count, value, seen;
	bool in_order;
};

static inline void reading_done(struct reading *r)
{
	strbuf_done(&r->text);
}

static inline int read_bucket(void *ctx, const struct dict *d, const struct bucket_meta *m,
			      const struct columns *c)
{
	struct reading *r = ctx;
	char text[256];

	r->in_order &= m->seq > r->last_seq;
	r->last_seq = m->seq;
	r->buckets++;
	if (!c) {
		r->damaged++;
		return 0;
	}
	r->seen += m->source[PROFILE_ON_CPU].seen;
	strbuf_printf(&r->text, "%" PRIu64 " @%" PRIu64 ":", m->seq, m->start_wall_ns);
	for (size_t i = 0; i < c->n; i++) {
		assert_true(c->series[i] < d->n_series && c->stack[i] < d->n_stacks);
		strbuf_printf(&r->text, " %s",
			      dict_str(d, d->series[c->series[i]].label[LABEL_COMM]));
		for (uint32_t k = c->stack[i]; k; k = d->stacks[k].parent)
			strbuf_printf(&r->text, ";%s",
				      frame_text(d, d->stacks[k].frame, text, sizeof(text)));
		strbuf_printf(&r->text, " %x %" PRIu64 " %" PRIu64 " %" PRIu64, c->key[i],
			      c->count[i], c->value[i], c->max[i]);
		r->count += c->count[i];
		r->value += c->value[i];
	}
	r->rows += c->n;
	strbuf_putc(&r->text, '\n');
	return 0;
}

static inline struct reading read_with(struct store_reader *reader, enum profile_type type,
				       uint64_t from, uint64_t until)
{
	struct reading r = { .in_order = true };

	strbuf_puts(&r.text, "");
	assert_int_equal(store_reader_scan(reader, type, from, until, NULL, read_bucket, &r), 0);
	assert_int_equal(strbuf_error(&r.text), 0);
	assert_true(r.in_order);
	return r;
}

static inline struct reading read_all(const char *directory, enum profile_type type)
{
	struct store_reader *reader = NULL;
	struct reading r;

	assert_int_equal(store_reader_new(directory, &reader), 0);
	r = read_with(reader, type, 0, UINT64_MAX);
	store_reader_free(reader);
	return r;
}

/* Files whose name ends like this; the first in order of name into path. */
static inline size_t count_files(const char *directory, const char *end, char *path)
{
	char first[NAME_MAX + 1] = "";
	DIR *dir = opendir(directory);
	struct dirent *e;
	size_t n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir))) {
		size_t len = strlen(e->d_name), k = strlen(end);

		if (len < k || !streq(e->d_name + len - k, end))
			continue;
		if (n++ == 0 || strcmp(e->d_name, first) < 0)
			strcpy(first, e->d_name);
	}
	closedir(dir);
	if (path)
		assert_true(snprintf(path, PATH_LEN, "%s/%s", directory, first) < PATH_LEN);
	return n;
}

static inline uint64_t directory_bytes(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *e;
	struct stat st;
	uint64_t bytes = 0;

	while ((e = readdir(dir)))
		if (fstatat(dirfd(dir), e->d_name, &st, 0) >= 0 && S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_size;
	closedir(dir);
	return bytes;
}
