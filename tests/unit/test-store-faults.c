// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The promises under faults: kill -9 at any moment loses at most the bucket that was being written; a full
 * disk costs the oldest data and mends itself; an allocation that fails is an error, not a crash.
 */
#include "store-fixture.h"

#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "../bench/model.h"

static uint64_t state = 362436069362436069ULL;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* ---- kill -9 ---- */

#define KILLS 100
/* Buckets of an hour, so that days change while the writer dies. */
#define STEP HOUR

/* Writes buckets from number `i` on and tells the parent of each one that is stored. */
static void write_until_killed(const char *directory, uint64_t i, int told)
{
	struct store_options o = { .directory = directory,
				   .max_bytes = 1ULL << 30,
				   .repack_buckets = 12,
				   .check_eagerly = true };
	struct store *s;

	if (store_open(&o, &s) < 0)
		_exit(1);
	for (;; i++) {
		struct bucket *b = small_bucket(i, DAY_ONE + i * STEP);

		if (store_append(s, b) < 0)
			_exit(2);
		if (write(told, &i, sizeof(i)) != sizeof(i))
			_exit(3);
		bucket_free(b);
		while (store_maintain(s) > 0)
			;
	}
}

/* Starts a writer, kills it some time after its first bucket; the number of the last one it told of. */
static uint64_t write_and_kill(const char *directory, uint64_t first)
{
	uint64_t last = first, i;
	int told[2], status;
	pid_t child;

	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(told[0]);
		write_until_killed(directory, first, told[1]);
	}
	close(told[1]);
	assert_int_equal(read(told[0], &last, sizeof(last)), sizeof(last));
	usleep((useconds_t)(next_random() % 40000));
	assert_int_equal(kill(child, SIGKILL), 0);
	while (read(told[0], &i, sizeof(i)) == sizeof(i))
		last = i;
	close(told[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return last;
}

static void test_kill(void **st)
{
	uint64_t next = 0;

	for (size_t round = 0; round < KILLS; round++) {
		uint64_t last = write_and_kill(*st, next), n;
		struct reading on, calls;

		on = read_all(*st, PROFILE_ON_CPU);
		calls = read_all(*st, PROFILE_SYSCALLS);
		n = on.buckets;
		/* All that was told, and at most the one that was not. */
		assert_in_range(n, last + 1, last + 2);
		assert_int_equal(on.damaged, 0);
		assert_int_equal(on.value, n * 1000 + 8 * (n * (n - 1) / 2));
		assert_int_equal(on.last_seq, n);
		assert_int_equal(calls.buckets, n);
		assert_int_equal(calls.count, n + (n - 1) * n * (2 * n - 1) / 6);
		reading_done(&on);
		reading_done(&calls);
		next = n;
	}
	assert_int_equal(count_files(*st, ".corrupt", NULL), 0);
	assert_true(count_files(*st, ".db", NULL) > 1);
}

/* ---- full disk ---- */

static int tmpfs_setup(void **st)
{
	*st = NULL;
	if (geteuid() != 0)
		return 0;
	/* Our own mounts: nothing stays behind, whatever happens. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 0;
	*st = new_directory();
	if (mount("tmpfs", *st, "tmpfs", 0, "size=8m,mode=0755") < 0) {
		rmdir(*st);
		free(*st);
		*st = NULL;
	}
	return 0;
}

static int tmpfs_teardown(void **st)
{
	if (!*st)
		return 0;
	umount2(*st, MNT_DETACH);
	rmdir(*st);
	free(*st);
	return 0;
}

#define tmpfs_test(f) cmocka_unit_test_setup_teardown(f, tmpfs_setup, tmpfs_teardown)

static void need_tmpfs(void **st)
{
	if (*st)
		return;
	print_message("mounting a tmpfs needs root\n");
	skip();
}

/* Takes every free byte. */
static void fill_disk(const char *directory)
{
	static const char zeros[4096];
	char path[PATH_LEN];
	int fd;

	snprintf(path, sizeof(path), "%s/filler", directory);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	close(fd);
}

static void free_disk(const char *directory)
{
	char path[PATH_LEN];

	snprintf(path, sizeof(path), "%s/filler", directory);
	assert_int_equal(unlink(path), 0);
}

static int append_model(struct store *s, struct model *m, uint64_t i)
{
	struct bucket *b = model_bucket(m, DAY_ONE + i * 10 * SECOND);
	int r = store_append(s, b);

	bucket_free(b);
	return r;
}

static void maintain_some(struct store *s)
{
	for (size_t i = 0; i < 200 && store_maintain(s) > 0; i++)
		;
}

static void assert_newest(const char *directory, uint64_t i)
{
	struct reading r = read_all(directory, PROFILE_ON_CPU);
	char text[64];

	snprintf(text, sizeof(text), "@%" PRIu64 ":", (uint64_t)(DAY_ONE + i * 10 * SECOND));
	assert_non_null(strstr(r.text.data, text));
	assert_int_equal(r.damaged, 0);
	reading_done(&r);
}

/* The limit is far beyond the disk: the store must live with what there is. */
static void test_small_disk(void **st)
{
	struct store_stats stats;
	struct model *m;
	struct store *s;

	need_tmpfs(st);
	m = malloc(sizeof(*m));
	assert_non_null(m);
	model_init(m, 6);
	s = open_store(*st);
	for (uint64_t i = 0; i < 2000; i++) {
		int r = append_model(s, m, i);

		if (r < 0)
			fail_msg("bucket %" PRIu64 ": %s", i, strerror(-r));
		maintain_some(s);
	}
	store_get_stats(s, &stats);
	assert_string_equal(stats.state, "ok");
	assert_int_equal(stats.append_errors, 0);
	print_message("%" PRIu64 " buckets kept in %" PRIu64 " KiB of 8 MiB\n", stats.buckets,
		      stats.bytes >> 10);
	assert_in_range(stats.buckets, 500, 1999);
	assert_newest(*st, 1999);
	store_close(s);
	free(m);
}

/* Somebody else fills the disk, several times, and frees it again. */
static void test_disk_filled_and_freed(void **st)
{
	uint64_t i = 0, refused = 0;
	struct store_stats stats;
	struct model *m;
	struct store *s;

	need_tmpfs(st);
	m = malloc(sizeof(*m));
	assert_non_null(m);
	model_init(m, 7);
	s = open_store(*st);
	for (size_t round = 0; round < 4; round++) {
		for (size_t k = 0; k < 100; k++, i++) {
			assert_int_equal(append_model(s, m, i), 0);
			maintain_some(s);
		}
		for (size_t k = 0; k < 100; k++, i++) {
			int r;

			/* Greedy: whatever the store frees is taken, but not at once. */
			if (k % 10 == 0)
				fill_disk(*st);
			r = append_model(s, m, i);
			assert_true(r == 0 || r == -ENOSPC);
			refused += r < 0;
			maintain_some(s);
		}
		fill_disk(*st);
		/* A crash on a full disk, and a start on it. */
		if (round % 2) {
			store_close(s);
			s = open_store(*st);
			(void)!append_model(s, m, i++);
		}
		free_disk(*st);
		assert_int_equal(append_model(s, m, i), 0);
		assert_newest(*st, i++);
		maintain_some(s);
		store_get_stats(s, &stats);
		assert_string_equal(stats.state, "ok");
		assert_int_equal(count_files(*st, "reserve", NULL), 1);
		assert_int_equal(count_files(*st, ".corrupt", NULL), 0);
	}
	print_message("%" PRIu64 " of %" PRIu64 " refused, %" PRIu64 " kept, %" PRIu64 " dropped\n",
		      refused, i, stats.buckets, stats.dropped_buckets);
	assert_true(refused < i / 4);
	store_close(s);
	free(m);
}

/* ---- allocation ---- */

#if defined(__SANITIZE_ADDRESS__)
#define CAN_FAIL_MALLOC 0
static uint64_t allocations, fail_at;
#else
#define CAN_FAIL_MALLOC 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static uint64_t allocations, fail_at;

static bool refuse(void)
{
	if (++allocations != fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	return refuse() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return refuse() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return refuse() ? NULL : __libc_realloc(p, n);
}
#endif

static int count_bucket(void *ctx, const struct dict *d, const struct bucket_meta *m,
			const struct columns *c)
{
	*(uint64_t *)ctx += c != NULL;
	return 0;
}

static int count_listed(void *ctx, const struct bucket *b)
{
	(*(uint64_t *)ctx)++;
	return 0;
}

/* One of everything, each call allowed to fail with -ENOMEM. What was stored stays. */
static bool one_of_everything(const char *directory, struct bucket *b, uint64_t *stored)
{
	struct store_options o = { .directory = directory,
				   .max_bytes = 1ULL << 30,
				   .repack_buckets = 3,
				   .check_eagerly = true };
	struct store_reader *reader = NULL;
	struct store *s = NULL;
	uint64_t n = 0;
	int r, e;

	r = store_open(&o, &s);
	if (r < 0) {
		assert_int_equal(r, -ENOMEM);
		return false;
	}
	e = store_append(s, b);
	*stored += e == 0;
	while ((r = store_maintain(s)) > 0)
		;
	if (e == 0)
		e = r;
	r = store_reader_new(directory, &reader);
	if (r == 0)
		r = store_reader_scan(reader, PROFILE_OFF_CPU, 0, UINT64_MAX, NULL, count_bucket,
				      &n);
	if (r == 0)
		r = store_reader_list(reader, 0, 1000, count_listed, &n);
	store_reader_free(reader);
	store_close(s);
	assert_true(e == 0 || e == -ENOMEM || e == -EBUSY || e == -EIO);
	assert_true(r == 0 || r == -ENOMEM);
	return e == 0 && r == 0;
}

static void test_allocation_fails(void **st)
{
	struct bucket *b = small_bucket(1, DAY_ONE);
	uint64_t stored = 0, n = 1;
	struct reading r;

	if (!CAN_FAIL_MALLOC) {
		bucket_free(b);
		print_message("the sanitizer owns malloc\n");
		skip();
	}
	for (;; n++) {
		bool ok;

		allocations = 0;
		fail_at = n;
		ok = one_of_everything(*st, b, &stored);
		fail_at = 0;
		if (ok && allocations < n)
			break;
		r = read_all(*st, PROFILE_ON_CPU);
		if (r.buckets - r.damaged != stored)
			fail_msg("allocation %" PRIu64 ": %" PRIu64 " of %" PRIu64 " buckets", n,
				 r.buckets, stored);
		reading_done(&r);
		/* A growing store would make this quadratic. */
		if (stored > 20) {
			remove_tree(*st);
			assert_int_equal(mkdir(*st, 0700), 0);
			stored = 0;
		}
	}
	print_message("%" PRIu64 " allocations\n", n);
	assert_true(n > 100);
	assert_int_equal(count_files(*st, ".corrupt", NULL), 0);
	bucket_free(b);
}

/* As a helper between fork and exec does whose daemon was killed. */
static void test_lock_of_the_dead(void **st)
{
	int fd = open(*st, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t pid;

	assert_int_equal(flock(fd, LOCK_EX), 0);
	pid = fork();
	if (pid == 0) {
		usleep(200000);
		_exit(0);
	}
	close(fd);
	store_close(open_store(*st));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		store_test(test_kill),
		tmpfs_test(test_small_disk),
		tmpfs_test(test_disk_filled_and_freed),
		store_test(test_allocation_fails),
		store_test(test_lock_of_the_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
