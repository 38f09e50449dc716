// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Damaged files: whatever is flipped, cut or put there, the store opens, takes buckets, and what it still
 * yields is what was stored.
 */
#include "store-fixture.h"

#include <sqlite3.h>

#define BUCKETS 150

static uint64_t state = 1181783497276652981ULL;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* BUCKETS of one day, two packs and 30 recent ones, closed. */
static void fill(const char *directory)
{
	struct store *s = open_store(directory);

	for (uint64_t i = 0; i < BUCKETS; i++) {
		append_small(s, i, DAY_ONE + i * SECOND);
		maintain_all(s);
	}
	store_close(s);
}

static struct strbuf read_whole(const char *path)
{
	struct strbuf b = {};
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	p = strbuf_reserve(&b, (size_t)st.st_size);
	assert_non_null(p);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	b.len = (size_t)st.st_size;
	close(fd);
	return b;
}

static void write_whole(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

/* Every line of b is in a, in order. */
static bool is_part_of(const char *b, const char *a)
{
	while (*b) {
		size_t n = strcspn(b, "\n") + 1;

		while (*a && strncmp(a, b, n) != 0)
			a += strcspn(a, "\n") + 1;
		if (!*a)
			return false;
		b += n;
	}
	return true;
}

/* Names may read "[damaged]" where a chunk of the dictionary was lost; numbers may not differ. */
static void blank_names(char *s)
{
	char *from = s, *to = s;

	for (bool name = false; *from; from++) {
		if (*from == ' ')
			name = (from[1] >= 'a' && from[1] <= 'z' && strchr(from + 1, ' ') &&
				(strncmp(from, " prog", 5) == 0)) ||
			       from[1] == '[' || from[1] == ';';
		if (!name || *from == '\n')
			*to++ = *from;
	}
	*to = 0;
}

static uint64_t check_everything(struct store *s)
{
	struct store_stats stats;

	maintain_all(s);
	store_get_stats(s, &stats);
	return stats.damaged_blobs;
}

/* ---- one byte ---- */

/* Flips a bit in the payload of the blob that this query yields, and in any old copies of it. */
static void flip_in_blob(const char *path, const char *query, struct strbuf *file)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	char head[32], *at;
	size_t n, found = 0;

	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, query, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	/* Short blobs lie in one piece; the first bytes of long ones do, too. */
	n = (size_t)MIN(sqlite3_column_bytes(st, 0), 32);
	memcpy(head, sqlite3_column_blob(st, 0), n);
	while ((at = memmem(file->data, file->len, head, n))) {
		at[14] ^= 0x10;
		found++;
	}
	assert_true(found > 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static void flip_and_count(const char *directory, const char *query, enum profile_type type,
			   uint64_t damaged, uint64_t gone)
{
	struct strbuf file;
	char path[PATH_LEN];
	struct reading r;
	struct store *s;

	fill(directory);
	assert_int_equal(count_files(directory, ".db", path), 1);
	file = read_whole(path);
	flip_in_blob(path, query, &file);
	write_whole(path, file.data, file.len);
	strbuf_done(&file);
	s = open_store(directory);
	r = read_all(directory, type);
	assert_int_equal(r.buckets, BUCKETS);
	assert_int_equal(r.damaged, gone);
	reading_done(&r);
	assert_int_equal(check_everything(s), damaged);
	/* The damage stays counted, once, and does not spread: not by reopening, not by packing. */
	store_close(s);
	s = open_store(directory);
	for (uint64_t i = 0; i < 30; i++)
		append_small(s, BUCKETS + i, DAY_ONE + (BUCKETS + i) * SECOND);
	assert_int_equal(check_everything(s), damaged);
	store_close(s);
	s = open_store(directory);
	assert_int_equal(check_everything(s), damaged);
	r = read_all(directory, type);
	assert_int_equal(r.buckets, BUCKETS + 30);
	assert_int_equal(r.damaged, gone);
	reading_done(&r);
	store_close(s);
	assert_int_equal(count_files(directory, ".corrupt", NULL), 0);
}

static void test_byte_in_recent(void **st)
{
	flip_and_count(*st, "SELECT syscalls FROM recent WHERE seq = 130", PROFILE_SYSCALLS, 1, 1);
}

static void test_byte_in_pack(void **st)
{
	flip_and_count(*st, "SELECT data FROM packed WHERE id = 60 * 16 + 1", PROFILE_OFF_CPU, 1,
		       60);
}

static void test_byte_in_other_type(void **st)
{
	flip_and_count(*st, "SELECT data FROM packed WHERE id = 60 * 16 + 1", PROFILE_ON_CPU, 1, 0);
}

static void test_byte_in_meta(void **st)
{
	/* Nobody knows any more which bucket the samples belong to: lost for all types. */
	flip_and_count(*st, "SELECT data FROM packed WHERE id = 120 * 16 + 8", PROFILE_FUTEX, 1,
		       60);
}

static void test_byte_in_dictionary(void **st)
{
	/* Names are gone, numbers are not. */
	flip_and_count(*st, "SELECT data FROM dict WHERE kind = 0 ORDER BY id LIMIT 1",
		       PROFILE_ON_CPU, 1, 0);
}

/* Anywhere at all: nothing wrong is ever told, and the store goes on. */
static void test_bytes_anywhere(void **st)
{
	struct reading before[PROFILE_TYPE_N];
	uint64_t silent = 0, damaged = 0, set_aside = 0;
	struct strbuf file;
	char path[PATH_LEN];

	fill(*st);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
		before[t] = read_all(*st, (enum profile_type)t);
		blank_names(before[t].text.data);
	}
	assert_int_equal(count_files(*st, ".db", path), 1);
	file = read_whole(path);
	for (size_t round = 0; round < 150; round++) {
		size_t at = next_random() % file.len;
		struct store_stats stats;
		uint8_t old = (uint8_t)file.data[at];
		struct store *s;
		bool same = true;

		file.data[at] ^= (char)(1 + next_random() % 255);
		remove_tree(*st);
		assert_int_equal(mkdir(*st, 0700), 0);
		write_whole(path, file.data, file.len);
		file.data[at] = (char)old;
		for (size_t t = 0; t < PROFILE_TYPE_N; t++) {
			struct reading r = read_all(*st, (enum profile_type)t);

			blank_names(r.text.data);
			if (!is_part_of(r.text.data, before[t].text.data))
				fail_msg("byte %zu: wrong data of type %zu\n%s", at, t,
					 r.text.data);
			same &= streq(r.text.data, before[t].text.data);
			reading_done(&r);
		}
		s = open_store(*st);
		assert_true(append_small(s, 999, DAY_ONE + 2 * DAY) > 0);
		maintain_all(s);
		store_get_stats(s, &stats);
		damaged += stats.damaged_blobs > 0;
		set_aside += stats.corrupt_files > 0;
		silent += !same && stats.damaged_blobs == 0 && stats.corrupt_files == 0;
		store_close(s);
	}
	print_message("150 flips: %" PRIu64 " in blobs, %" PRIu64 " files set aside\n", damaged,
		      set_aside);
	assert_int_equal(silent, 0);
	assert_true(damaged > 20);
	for (size_t t = 0; t < PROFILE_TYPE_N; t++)
		reading_done(&before[t]);
	strbuf_done(&file);
}

/* ---- files ---- */

/* Puts these bytes in place of a good file and expects the store to go on. */
static void survive(const char *directory, const char *path, const void *data, size_t len,
		    bool set_aside)
{
	struct reading r;
	struct store *s;

	remove_tree(directory);
	assert_int_equal(mkdir(directory, 0700), 0);
	write_whole(path, data, len);
	r = read_all(directory, PROFILE_ON_CPU);
	reading_done(&r);
	s = open_store(directory);
	append_small(s, 1, DAY_ONE + 5000 * SECOND);
	maintain_all(s);
	r = read_all(directory, PROFILE_ON_CPU);
	assert_true(r.buckets >= 1);
	assert_int_equal(r.last_seq > 0, 1);
	reading_done(&r);
	store_close(s);
	if (set_aside)
		assert_int_equal(count_files(directory, ".db.corrupt", NULL), 1);
}

static void test_truncated(void **st)
{
	struct strbuf file;
	char path[PATH_LEN];

	fill(*st);
	assert_int_equal(count_files(*st, ".db", path), 1);
	file = read_whole(path);
	for (size_t len = 0; len < file.len; len += len < 200 ? 17 : 3001)
		survive(*st, path, file.data, len, false);
	strbuf_done(&file);
}

static void test_garbage(void **st)
{
	char path[PATH_LEN], garbage[20000];

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)next_random();
	snprintf(path, sizeof(path), "%s/2026-01-01.0000000000000001.db", (char *)*st);
	survive(*st, path, garbage, sizeof(garbage), true);
	strcpy(garbage, "SQLite format 3");
	survive(*st, path, garbage, sizeof(garbage), true);
	survive(*st, path, "hello", 5, true);
	survive(*st, path, "", 0, false);
}

/* An SQLite file of someone else is not ours; one of a later version is, and is left alone. */
static void test_other_databases(void **st)
{
	char path[PATH_LEN], corrupt[PATH_LEN + 16];
	struct store_stats stats;
	sqlite3 *db = NULL;
	struct store *s;

	snprintf(path, sizeof(path), "%s/2026-01-01.0000000000000001.db", (char *)*st);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE t(x)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	s = open_store(*st);
	append_small(s, 1, DAY_ONE);
	store_get_stats(s, &stats);
	assert_int_equal(stats.corrupt_files, 1);
	snprintf(corrupt, sizeof(corrupt), "%s.corrupt", path);
	assert_int_equal(access(corrupt, F_OK), 0);
	store_close(s);
	count_files(*st, ".db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	s = open_store(*st);
	assert_true(append_small(s, 2, DAY_ONE + SECOND) > 1);
	maintain_all(s);
	assert_int_equal(count_files(*st, ".db", NULL), 2);
	assert_int_equal(access(path, F_OK), 0);
	store_close(s);
}

/* The directory holds all sorts of things. */
static void test_strange_directory(void **st)
{
	static const char *const names[] = { "2026-01-01.db",
					     "2026-13-01.0000000000000001.db",
					     "notes.txt",
					     "2026-01-01.000000000000000A.db",
					     "2026-01-01.0000000000000000.db",
					     "store.id.new",
					     "2026-01-01.ffffffffffffffff.db" };
	char path[PATH_LEN];
	struct reading r;
	struct store *s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", (char *)*st, names[i]);
		write_whole(path, "x", 1);
	}
	snprintf(path, sizeof(path), "%s/2026-01-01.0000000000000005.db", (char *)*st);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/2026-01-01.0000000000000006.db", (char *)*st);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	snprintf(path, sizeof(path), "%s/2026-01-01.0000000000000007.db", (char *)*st);
	assert_int_equal(mkfifo(path, 0600), 0);
	s = open_store(*st);
	for (uint64_t i = 0; i < 5; i++)
		append_small(s, i, DAY_ONE + i * SECOND);
	maintain_all(s);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, 5);
	reading_done(&r);
	store_close(s);
	assert_int_equal(access("/etc/passwd", R_OK), 0);
}

static void test_identity_lost(void **st)
{
	static const char *const contents[] = {
		"", "garbage", "sysprofd-store 1\nuuid zz\nnext 1\n",
		"sysprofd-store 1\nuuid 00112233445566778899aabbccddeeff\nnext "
		"18446744073709551615\nreserved 18446744073709551615\ntrusted 0\n"
	};
	char path[PATH_LEN];
	uint64_t last = 0;

	snprintf(path, sizeof(path), "%s/store.id", (char *)*st);
	for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
		struct store *s = open_store(*st);
		uint64_t seq = append_small(s, i, DAY_ONE + i * SECOND);

		assert_int_equal(seq, last + 1);
		last = seq;
		store_close(s);
		write_whole(path, contents[i], strlen(contents[i]));
	}
}

/* Numbers are not given twice when the file that knew them is gone. */
static void test_sequence_survives_loss(void **st)
{
	uint64_t last = 0;

	for (size_t round = 0; round < 6; round++) {
		struct store *s = open_store(*st);
		char path[PATH_LEN];

		for (uint64_t i = 0; i < 5; i++) {
			uint64_t seq = append_small(s, i, DAY_ONE + round * DAY + i * SECOND);

			assert_true(seq > last);
			last = seq;
		}
		store_close(s);
		while (count_files(*st, ".db", path) > round % 2) {
			if (round == 4)
				write_whole(path, "junk junk junk junk junk", 24);
			else
				unlink(path);
			if (round == 4)
				break;
		}
	}
}

/* A file that was made for a bucket that failed does not get in the way of another day's. */
static void test_empty_file(void **st)
{
	struct bucket *b = small_bucket(1, DAY_ONE);
	struct store *s = open_store(*st);
	struct reading r;

	add_row(&b->columns[PROFILE_ON_CPU], 77, 0, 0, 0, 1, 1, 1);
	assert_int_equal(store_append(s, b), -EINVAL);
	assert_int_equal(count_files(*st, ".db", NULL), 1);
	assert_int_equal(append_small(s, 1, DAY_ONE + DAY), 1);
	assert_int_equal(count_files(*st, ".db", NULL), 1);
	b->meta.start_wall_ns = DAY_ONE + 2 * DAY;
	assert_int_equal(store_append(s, b), -EINVAL);
	store_close(s);
	s = open_store(*st);
	assert_int_equal(append_small(s, 2, DAY_ONE + 3 * DAY), 2);
	assert_int_equal(count_files(*st, ".db", NULL), 2);
	r = read_all(*st, PROFILE_ON_CPU);
	assert_int_equal(r.buckets, 2);
	reading_done(&r);
	bucket_free(b);
	store_close(s);
}

static int expect_other_lock(void *ctx, const struct bucket *b)
{
	const struct columns *c = &b->columns[PROFILE_FUTEX];
	unsigned *found = ctx;

	for (size_t i = 0; i < c->n; i++)
		*found += streq(dict_str(b->dict, b->dict->locks[c->aux[i]].name), LOCK_OTHER);
	return 0;
}

/* The lock that stands for all others has no place, as what shows damage has none. It is another all the same. */
static void test_no_place_is_no_damage(void **st)
{
	struct store *s = open_store(*st);
	struct store_reader *reader;
	unsigned found = 0;

	for (uint64_t i = 0; i < 100; i++) {
		struct bucket *b = small_bucket(i, DAY_ONE + i * SECOND);
		struct lock l = { .name = checked(dict_string(b->dict, LOCK_OTHER)), .flags = 2 };

		add_row(&b->columns[PROFILE_FUTEX], 1, 0, 0, checked(dict_lock(b->dict, &l)), 1, 1,
			1);
		assert_int_equal(store_append(s, b), 0);
		bucket_free(b);
		maintain_all(s);
	}
	assert_int_equal(store_reader_new(*st, &reader), 0);
	assert_int_equal(store_reader_list(reader, 0, 1000, expect_other_lock, &found), 0);
	assert_int_equal(found, 100);
	store_reader_free(reader);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		store_test(test_byte_in_recent),     store_test(test_byte_in_pack),
		store_test(test_byte_in_other_type), store_test(test_byte_in_meta),
		store_test(test_byte_in_dictionary), store_test(test_bytes_anywhere),
		store_test(test_truncated),	     store_test(test_garbage),
		store_test(test_other_databases),    store_test(test_strange_directory),
		store_test(test_identity_lost),	     store_test(test_sequence_survives_loss),
		store_test(test_empty_file),	     store_test(test_no_place_is_no_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
