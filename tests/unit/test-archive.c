// SPDX-License-Identifier: GPL-2.0-or-later
/* The queue before the store: what it drops is told, what it holds is seen, and who looks does not disturb. */
#include "store-fixture.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/clock.h"
#include "base/log.h"
#include "manager/archive.h"

#define QUEUED_MAX (RECENT_CLOSED_MAX - 1)

struct fixture {
	char *directory;
	struct symbolizer *symbolizer;
	struct archive *archive;
	/* Closed, the archive thread is held up after it has stored a bucket. */
	bool gate;
	sem_t arrived, go;
	size_t n_stored;
	uint64_t last_seq;
};

static void on_stored(void *ctx, struct bucket *b)
{
	struct fixture *f = ctx;

	assert_non_null(b);
	assert_true(b->meta.seq > f->last_seq);
	f->last_seq = b->meta.seq;
	bucket_free(b);
	__atomic_add_fetch(&f->n_stored, 1, __ATOMIC_RELEASE);
	if (!__atomic_load_n(&f->gate, __ATOMIC_ACQUIRE))
		return;
	sem_post(&f->arrived);
	sem_wait(&f->go);
}

static struct store_options limits(const struct fixture *f, uint64_t max_bytes)
{
	return (struct store_options){
		.directory = f->directory,
		.max_bytes = max_bytes,
		.repack_buckets = 60,
	};
}

static int no_binary(void *ctx, uint64_t key)
{
	return -ENOENT;
}

static int setup(void **state)
{
	const struct symbolizer_options so = { .open_binary = no_binary,
					       .cache_bytes = 65536,
					       .reply_timeout_ns = SECOND };
	struct fixture *f = new0(struct fixture, 1);
	struct archive_options o = { .stored = on_stored, .ctx = f };

	f->directory = new_directory();
	sem_init(&f->arrived, 0, 0);
	sem_init(&f->go, 0, 0);
	assert_int_equal(symbolizer_new(&so, &f->symbolizer), 0);
	o.symbolizer = f->symbolizer;
	o.store = limits(f, 1 << 30);
	assert_int_equal(archive_start(&o, &f->archive), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	archive_stop(f->archive);
	symbolizer_free(f->symbolizer);
	remove_tree(f->directory);
	free(f->directory);
	sem_destroy(&f->arrived);
	sem_destroy(&f->go);
	free(f);
	return 0;
}

static void push_at(struct fixture *f, uint64_t i, uint64_t start)
{
	struct filled filled = { .bucket = small_bucket(i, start) };

	filled.bucket->meta.source[PROFILE_ON_CPU].stored = 10 + i;
	archive_push(f->archive, &filled);
	assert_null(filled.bucket);
}

static void push(struct fixture *f, uint64_t i)
{
	push_at(f, i, DAY_ONE + i * 10 * SECOND);
}

static void wait_stored(struct fixture *f, size_t n)
{
	for (int i = 0; __atomic_load_n(&f->n_stored, __ATOMIC_ACQUIRE) < n; i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
}

static void wait_dropped(struct fixture *f, uint64_t n)
{
	struct archive_stats st = {};

	for (int i = 0; archive_get_stats(f->archive, &st), st.dropped < n; i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
}

/* Stores bucket 0, and holds the thread up there. */
static void hold_up(struct fixture *f)
{
	__atomic_store_n(&f->gate, true, __ATOMIC_RELEASE);
	push(f, 0);
	sem_wait(&f->arrived);
}

static void let_go(struct fixture *f)
{
	__atomic_store_n(&f->gate, false, __ATOMIC_RELEASE);
	sem_post(&f->go);
}

static void assert_loss(const struct bucket_meta *m, uint64_t n)
{
	assert_int_equal(m->source[PROFILE_ON_CPU].lost[LOSS_QUEUE_FULL], n);
	assert_int_equal(m->gap, n ? GAP_STORE : GAP_NONE);
}

struct expected {
	uint64_t first; /* behind bucket 0, without a gap between them */
	uint64_t lost; /* told by that one */
	uint64_t n;
};

static int check_stored(void *ctx, const struct bucket *b)
{
	struct expected *e = ctx;
	uint64_t i = (b->meta.start_wall_ns - DAY_ONE) / (10 * SECOND);

	assert_int_equal(i, e->n ? e->first + e->n - 1 : 0);
	assert_loss(&b->meta, e->n == 1 ? e->lost : 0);
	assert_int_equal(b->meta.source[PROFILE_ON_CPU].seen, 10 + i + (e->n == 1 ? e->lost : 0));
	e->n++;
	return 0;
}

static void assert_in_store(struct fixture *f, struct expected e, uint64_t n)
{
	struct store_reader *reader = NULL;

	assert_int_equal(store_reader_new(f->directory, &reader), 0);
	assert_int_equal(store_reader_list(reader, 0, 100, check_stored, &e), 0);
	assert_int_equal(e.n, n);
	store_reader_free(reader);
}

/* The oldest go; the first that is left says how much that was, to queries and in the store. */
static void test_full_queue(void **state)
{
	struct fixture *f = *state;
	struct archive_stats st;
	struct recent recent = {};

	hold_up(f);
	for (uint64_t i = 1; i <= QUEUED_MAX + 2; i++)
		push(f, i);
	archive_get_stats(f->archive, &st);
	assert_int_equal(st.dropped, 2);
	assert_int_equal(st.lost[PROFILE_ON_CPU], 11 + 12);
	assert_int_equal(st.queued, QUEUED_MAX);
	assert_int_equal(archive_recent(f->archive, mono_now_ns(), &recent), 0);
	assert_int_equal(recent.n_closed, QUEUED_MAX);
	for (size_t i = 0; i < QUEUED_MAX; i++) {
		assert_int_equal(recent.closed[i]->meta.start_wall_ns,
				 DAY_ONE + (3 + i) * 10 * SECOND);
		assert_loss(&recent.closed[i]->meta, i ? 0 : 11 + 12);
	}
	recent_done(&recent);
	let_go(f);
	wait_stored(f, 1 + QUEUED_MAX);
	assert_in_store(f, (struct expected){ .first = 3, .lost = 11 + 12 }, 1 + QUEUED_MAX);
}

/* A bucket that no store takes holds up nothing, and is told by the next one, whenever that comes. */
static void test_refused(void **state)
{
	struct fixture *f = *state;

	push(f, 0);
	wait_stored(f, 1);
	push_at(f, 1, UINT64_MAX / 2);
	wait_dropped(f, 1);
	push(f, 2);
	wait_stored(f, 2);
	assert_in_store(f, (struct expected){ .first = 2, .lost = 11 }, 2);
}

static void test_refused_before_others(void **state)
{
	struct fixture *f = *state;

	hold_up(f);
	push_at(f, 1, UINT64_MAX / 2);
	push_at(f, 2, UINT64_MAX / 2);
	push(f, 3);
	push(f, 4);
	let_go(f);
	wait_stored(f, 3);
	assert_in_store(f, (struct expected){ .first = 3, .lost = 11 + 12 }, 3);
}

static void assert_limit(struct fixture *f, uint64_t bytes)
{
	struct archive_stats st;

	archive_get_stats(f->archive, &st);
	assert_int_equal(st.store.limit_bytes, bytes);
}

static void test_reopened(void **state)
{
	struct fixture *f = *state;
	struct store_options o = limits(f, 64 << 20);

	push(f, 0);
	wait_stored(f, 1);
	assert_limit(f, 1 << 30);
	archive_reconfigure(f->archive, &o);
	push(f, 1);
	wait_stored(f, 2);
	assert_limit(f, 64 << 20);
	/* One that cannot be opened leaves the limits as they are. */
	o.directory = "/proc/self/nothing/here";
	o.max_bytes = 32 << 20;
	archive_reconfigure(f->archive, &o);
	push(f, 2);
	wait_stored(f, 3);
	assert_limit(f, 64 << 20);
	assert_in_store(f, (struct expected){ .first = 1 }, 3);
}

static void *look(void *arg)
{
	struct fixture *f = arg;

	while (__atomic_load_n(&f->n_stored, __ATOMIC_ACQUIRE) < 100) {
		struct recent recent = {};

		assert_int_equal(archive_recent(f->archive, mono_now_ns(), &recent), 0);
		for (size_t i = 1; i < recent.n_closed; i++)
			assert_int_equal(recent.closed[i]->meta.start_wall_ns,
					 recent.closed[i - 1]->meta.start_wall_ns + 10 * SECOND);
		recent_done(&recent);
	}
	return NULL;
}

/* Two that look all the time, while buckets come, are named and stored. */
static void test_many_look(void **state)
{
	struct fixture *f = *state;
	pthread_t readers[2];
	struct archive_stats st = {};

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, look, f), 0);
	for (uint64_t i = 0; i < 100; i++) {
		while (archive_get_stats(f->archive, &st), st.queued >= QUEUED_MAX)
			usleep(1000);
		push(f, i);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	assert_in_store(f, (struct expected){ .first = 1 }, 100);
}

#define archive_test(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		archive_test(test_full_queue),
		archive_test(test_refused),
		archive_test(test_refused_before_others),
		archive_test(test_reopened),
		archive_test(test_many_look),
	};

	log_set_level(-1); /* the failures that are told are meant to be */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
