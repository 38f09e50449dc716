// SPDX-License-Identifier: GPL-2.0-or-later
/* What becomes of rows about locks: classes, verdicts, and the rows of an answer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../../bpf/sysprofd.h"
#include "model/profile.h"
#include "query/internal.h"
#include "query/locks.h"
#include "serve/lock-evidence.h"

/* ---- classes -------------------------------------------------------------------------------------- */

static void test_classes(void **state)
{
	static const struct {
		const char *function;
		enum lock_class lock_class;
	} cases[] = {
		{ "pthread_mutex_lock", LOCK_CLASS_MUTEX },
		{ "___pthread_mutex_lock", LOCK_CLASS_MUTEX },
		{ "__pthread_mutex_lock_full", LOCK_CLASS_MUTEX },
		{ "__GI___lll_lock_wait", LOCK_CLASS_MUTEX },
		{ "__lll_lock_wait_private", LOCK_CLASS_MUTEX },
		{ "__pthread_mutex_cond_lock", LOCK_CLASS_MUTEX },
		{ "pthread_cond_timedwait", LOCK_CLASS_CONDVAR },
		{ "__pthread_cond_wait_common", LOCK_CLASS_CONDVAR },
		{ "___pthread_rwlock_wrlock", LOCK_CLASS_RWLOCK },
		{ "__pthread_rwlock_rdlock_full64", LOCK_CLASS_RWLOCK },
		{ "__new_sem_wait_slow64", LOCK_CLASS_SEMAPHORE },
		{ "sem_timedwait", LOCK_CLASS_SEMAPHORE },
		{ "__pthread_clockjoin_ex", LOCK_CLASS_JOIN },
		{ "pthread_barrier_wait", LOCK_CLASS_BARRIER },
		{ "std::sys::sync::mutex::futex::Mutex::lock_contended", LOCK_CLASS_MUTEX },
		{ "std::sys::unix::locks::futex_mutex::Mutex::lock_contended", LOCK_CLASS_MUTEX },
		{ "std::sys::sync::condvar::futex::Condvar::wait", LOCK_CLASS_CONDVAR },
		{ "parking_lot::raw_mutex::RawMutex::lock_slow", LOCK_CLASS_MUTEX },
		{ "runtime.futex", LOCK_CLASS_RUNTIME },
		{ "runtime.lock2", LOCK_CLASS_MUTEX },
		{ "Unsafe_Park", LOCK_CLASS_RUNTIME },
		{ "os::PlatformEvent::park", LOCK_CLASS_RUNTIME },
		/* Who wakes may wait for those who were woken before. */
		{ "pthread_cond_broadcast", LOCK_CLASS_UNKNOWN },
		/* What everybody has on the way says nothing. */
		{ "__futex_abstimed_wait_common64", LOCK_CLASS_UNKNOWN },
		{ "syscall", LOCK_CLASS_UNKNOWN },
		{ "start_thread", LOCK_CLASS_UNKNOWN },
		{ "my_pthread_mutex_lock_wrapper", LOCK_CLASS_UNKNOWN },
		{ "", LOCK_CLASS_UNKNOWN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (lock_class_of(cases[i].function) != cases[i].lock_class)
			fail_msg("%s: %s", cases[i].function,
				 lock_class_name(lock_class_of(cases[i].function)));
}

/* What a language makes of a condition variable says more than that. */
static void test_classes_along(void **state)
{
	static const struct {
		const char *functions[6];
		enum lock_class lock_class;
	} cases[] = {
		{ { "__futex_abstimed_wait_common64", "pthread_cond_wait",
		    "os::PlatformEvent::park", "ObjectMonitor::EnterI(JavaThread*)" },
		  LOCK_CLASS_MUTEX },
		{ { "pthread_cond_timedwait", "Parker::park(bool, long)", "Unsafe_Park" },
		  LOCK_CLASS_RUNTIME },
		{ { "runtime.futex", "runtime.futexsleep", "runtime.notesleep", "runtime.stopm" },
		  LOCK_CLASS_SCHEDULER },
		/* A mutex is a mutex, whoever takes it. */
		{ { "__lll_lock_wait", "pthread_mutex_lock", "Parker::park" }, LOCK_CLASS_MUTEX },
		{ { "pthread_cond_wait", "pool_wait", "pthread_mutex_lock" }, LOCK_CLASS_CONDVAR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		enum lock_class c = LOCK_CLASS_UNKNOWN;

		for (const char *const *f = cases[i].functions; *f; f++)
			c = lock_class_along(c, *f);
		assert_int_equal(c, cases[i].lock_class);
	}
}

/* ---- verdicts ------------------------------------------------------------------------------------- */

#define MS NSEC_PER_MSEC

/* A mutex that was waited for 100 times, 10 ms each. */
static struct lock_facts mutex(void)
{
	struct lock_facts f = {
		.lock_class = LOCK_CLASS_MUTEX,
		.waits = 100,
		.total_ns = 1000 * MS,
		.max_ns = 20 * MS,
		.wakes = 100,
		.woken = 100,
		.most = 3,
		.met = 50,
	};

	f.bins[23] = 100; /* from 8.4 ms on */
	return f;
}

static void test_holders(void **state)
{
	struct lock_facts f = mutex();

	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.seen[LOCK_STATE_UNKNOWN] = 100;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.held_ns[LOCK_STATE_BLOCKED] = 600 * MS;
	f.held_ns[LOCK_STATE_RUNNING] = 300 * MS;
	f.held_ns[LOCK_STATE_RUNNABLE] = 100 * MS;
	assert_int_equal(lock_judge(&f), VERDICT_IO);
	f.held_ns[LOCK_STATE_RUNNABLE] = 1100 * MS;
	assert_int_equal(lock_judge(&f), VERDICT_PREEMPTED);
	f.held_ns[LOCK_STATE_RUNNING] = 2000 * MS;
	assert_int_equal(lock_judge(&f), VERDICT_LONG);
	/* Many short holds are no long one. */
	f.bins[23] = 0;
	f.bins[14] = 100;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
}

/* Where no hold was measured from begin to end, what was seen decides, if it is enough. */
static void test_looks(void **state)
{
	struct lock_facts f = mutex();

	f.seen[LOCK_STATE_BLOCKED] = 2;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.seen[LOCK_STATE_BLOCKED] = 20;
	f.seen[LOCK_STATE_RUNNING] = 10;
	assert_int_equal(lock_judge(&f), VERDICT_IO);
}

static void test_herd_and_pool(void **state)
{
	struct lock_facts f = {
		.lock_class = LOCK_CLASS_CONDVAR,
		.waits = 1000,
		.total_ns = 20 * MS * 1000,
		.wakes = 10,
		.woken = 1000,
		.most = 100,
		.met = 990,
	};

	assert_int_equal(lock_judge(&f), VERDICT_HERD);
	/* They went on and did not come back. */
	f.met = 99;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	/* A barrier wakes all of them, and should. */
	f.met = 990;
	f.lock_class = LOCK_CLASS_BARRIER;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.lock_class = LOCK_CLASS_CONDVAR;
	f.wakes = f.woken = 1000;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	/* Woken twice a second. */
	f.total_ns = 500 * MS * 1000;
	assert_int_equal(lock_judge(&f), VERDICT_IDLE);
	/* Twenty times a second, and nobody woke it. */
	f.total_ns = 50 * MS * 1000;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.timed_out = 900;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f.timed_out = 950;
	assert_int_equal(lock_judge(&f), VERDICT_IDLE);
	/* A mutex is no place to wait for work, however long. */
	f.lock_class = LOCK_CLASS_MUTEX;
	assert_int_equal(lock_judge(&f), VERDICT_CONTENDED);
	f = (struct lock_facts){ .lock_class = LOCK_CLASS_UNKNOWN, .most = 100 };
	assert_int_equal(lock_judge(&f), VERDICT_IDLE);
}

static void test_percentiles(void **state)
{
	struct lock_facts f = { .waits = 100, .max_ns = 100 * MS };

	assert_int_equal(lock_percentile(&f, 0.5), 0);
	f.bins[20] = 98;
	f.bins[26] = 2;
	assert_int_equal(lock_percentile(&f, 0.5), (1 << 21) - 1);
	assert_int_equal(lock_percentile(&f, 0.98), (1 << 21) - 1);
	/* Not longer than the longest, */
	assert_int_equal(lock_percentile(&f, 0.99), 100 * MS);
	/* if that is of all of them. */
	f.waits = 99;
	assert_int_equal(lock_percentile(&f, 0.99), (1 << 27) - 1);
	/* The last bin goes on for ever. */
	f = (struct lock_facts){ .waits = 100, .max_ns = 60000 * MS };
	f.bins[LOCK_BIN_LAST] = 100;
	assert_int_equal(lock_percentile(&f, 0.5), 60000 * MS);
}

/* ---- the answer ------------------------------------------------------------------------------------ */

static uint32_t named_stack(struct dict *d, const char *const *functions)
{
	uint32_t stack = 0;

	for (; *functions; functions++)
		stack = (uint32_t)dict_stack(
			d, stack,
			(uint32_t)dict_frame(
				d, &(struct frame){ .kind = FRAME_NATIVE,
						    .flags = FRAME_NAMED,
						    .name = (uint32_t)dict_string(d, *functions),
						    .offset = (uint64_t)(uintptr_t)*functions }));
	return stack;
}

static struct lock_row *row_of(struct lock_answer *a, const char *name)
{
	for (size_t i = 0; i < a->n_rows; i++)
		if (streq(a->rows[i].name, name))
			return &a->rows[i];
	return NULL;
}

static void add(struct bucket *b, uint32_t series, uint32_t stack, uint32_t key, uint32_t lock,
		uint64_t count, uint64_t value, uint64_t max)
{
	assert_int_equal(columns_add(&b->columns[PROFILE_FUTEX], series, stack, key, lock, count,
				     value, max),
			 0);
}

static uint32_t named_lock(struct dict *d, const char *name, uint64_t address)
{
	return (uint32_t)dict_lock(d, &(struct lock){ .name = (uint32_t)dict_string(d, name),
						      .flags = 2,
						      .pid = 7,
						      .address = address });
}

/* Two processes' worth of rows: a mutex whose holder is blocked, and a condition variable of two words. */
static struct bucket *two_locks(void)
{
	static const char *const waiter[] = { "main", "ask", "pthread_mutex_lock", NULL };
	static const char *const pool[] = { "main", "pool", "pthread_cond_wait", NULL };
	static const char *const holder[] = { "main", "save", "fsync", NULL };
	struct bucket *b;
	uint32_t process, thread, m, c0, c1, w, p, h;

	assert_int_equal(bucket_new(&b), 0);
	b->meta.start_wall_ns = 1000 * NSEC_PER_SEC;
	b->meta.length_ns = b->meta.covered_ns = 10 * NSEC_PER_SEC;
	process = (uint32_t)dict_series(b->dict, &(struct series){ .pid = 7, .start = 1 });
	thread = (uint32_t)dict_series(b->dict, &(struct series){ .pid = 7, .tid = 8, .start = 1 });
	m = named_lock(b->dict, "table", 0x1000);
	c0 = named_lock(b->dict, "work", 0x2028);
	c1 = named_lock(b->dict, "work", 0x202c);
	w = named_stack(b->dict, waiter);
	p = named_stack(b->dict, pool);
	h = named_stack(b->dict, holder);
	add(b, thread, w, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), m, 10, 50000, 9000);
	add(b, thread, w, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_TIMED_OUT), m, 1, 1000, 1000);
	add(b, process, 0, FUTEX_ASPECT(FUTEX_HISTOGRAM) | FUTEX_DETAIL(22), m, 11, 0, 0);
	add(b, process, 0, FUTEX_ASPECT(FUTEX_CROWD), m, 4, 0, 3);
	add(b, process, 0, FUTEX_ASPECT(FUTEX_WAKES), m, 10, 10, 0);
	add(b, process, 0, FUTEX_ASPECT(FUTEX_WAKES) | FUTEX_DETAIL(WAKES_NOBODY), m, 5, 0, 0);
	add(b, thread, h, FUTEX_ASPECT(FUTEX_WAKES) | FUTEX_DETAIL(WAKES_SAMPLED), m, 2, 2, 1);
	add(b, thread, 0,
	    FUTEX_ASPECT(FUTEX_HOLDER) |
		    FUTEX_DETAIL(HOLDER_DETAIL(LOCK_STATE_BLOCKED, WAIT_UNKNOWN)),
	    m, 8, 0, 0);
	add(b, thread, h,
	    FUTEX_ASPECT(FUTEX_HOLDER) | FUTEX_DETAIL(HOLDER_DETAIL(LOCK_STATE_BLOCKED, WAIT_IO)),
	    m, 0, 40000, 9000);
	add(b, process, 0, FUTEX_ASPECT(FUTEX_HOLDER), m, 3, 0, 0);
	add(b, thread, p, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), c0, 3, 6000000, 2000000);
	add(b, thread, p, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), c1, 2, 4000000, 3000000);
	/* Woken and never waited for: no lock. */
	add(b, process, 0, FUTEX_ASPECT(FUTEX_WAKES) | FUTEX_DETAIL(WAKES_NOBODY),
	    named_lock(b->dict, "nobody", 0x3000), 9, 0, 0);
	return b;
}

static struct lock_answer *ask(const struct bucket *b, struct filter *filters, size_t n)
{
	struct selection sel = { .from_wall_ns = 1000 * NSEC_PER_SEC,
				 .until_wall_ns = 1010 * NSEC_PER_SEC,
				 .filters = filters,
				 .n_filters = n,
				 .visibility.all = true };
	struct query_source src = { .open = b };
	struct lock_answer *a = NULL;

	assert_int_equal(query_locks(&src, &sel, (struct lock_limits){ 10, 3, 0 }, &a), 0);
	return a;
}

static void test_answer(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	_cleanup_(lock_answer_free_p) struct lock_answer *a = ask(b, NULL, 0);
	const struct lock_row *m = row_of(a, "table"), *c = row_of(a, "work");

	assert_int_equal(a->n_rows, 2);
	/* The one that idles is last, though its waits are longer. */
	assert_ptr_equal(m, &a->rows[0]);
	assert_int_equal(m->facts.lock_class, LOCK_CLASS_MUTEX);
	assert_int_equal(m->facts.waits, 11);
	assert_int_equal(m->facts.timed_out, 1);
	assert_int_equal(m->facts.total_ns, 51 * MS);
	assert_int_equal(m->facts.bins[22], 11);
	assert_int_equal(m->facts.most, 3);
	assert_int_equal(m->facts.met, 4);
	assert_int_equal(m->facts.wakes, 10);
	assert_int_equal(m->facts.woken, 10);
	assert_int_equal(m->facts.idle_wakes, 5);
	assert_int_equal(m->facts.seen[LOCK_STATE_BLOCKED], 8);
	assert_int_equal(m->facts.seen[LOCK_STATE_UNKNOWN], 3);
	assert_int_equal(m->facts.held_ns[LOCK_STATE_BLOCKED], 40 * MS);
	assert_int_equal(m->verdict, VERDICT_IO);
	assert_int_equal(m->waiters.n, 1);
	assert_string_equal(m->waiters.s[0].place, "ask < main");
	assert_int_equal(m->waiters.s[0].count, 11);
	assert_int_equal(m->holders.n, 2);
	assert_string_equal(m->holders.s[0].stack, "main;save;fsync");
	assert_int_equal(m->holders.s[0].wait, WAIT_IO);
	assert_int_equal(m->holders.s[0].tid, 8);
	assert_int_equal(m->unlockers.n, 1);
	assert_int_equal(c->facts.lock_class, LOCK_CLASS_CONDVAR);
	assert_int_equal(c->facts.waits, 5);
	assert_int_equal(c->facts.max_ns, 3000 * MS);
	assert_int_equal(c->waiters.n, 1);
	assert_int_equal(c->waiters.s[0].count, 5);
	assert_int_equal(c->verdict, VERDICT_IDLE);
}

/* A function's locks are those that it waits for, with all that is known of them. */
static void test_filter(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	struct filter f = { .key = FILTER_FUNCTION, .glob = (char *)"ask" };
	_cleanup_(lock_answer_free_p) struct lock_answer *a = ask(b, &f, 1);

	assert_int_equal(a->n_rows, 1);
	assert_string_equal(a->rows[0].name, "table");
	assert_int_equal(a->rows[0].facts.bins[22], 11);
	assert_int_equal(a->rows[0].holders.n, 2);
}

/* A thread's locks are those that it waits for. What holds them up is the same, whoever asks. */
static void test_filter_threads(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	struct filter f = { .key = FILTER_TID, .glob = (char *)"9" };
	_cleanup_(lock_answer_free_p) struct lock_answer *a = NULL;
	uint32_t m = named_lock(b->dict, "table", 0x1000);
	uint32_t other = (uint32_t)dict_series(b->dict,
					       &(struct series){ .pid = 7, .tid = 9, .start = 1 });

	add(b, other, 0, FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), m, 2, 3000, 2000);
	a = ask(b, &f, 1);
	assert_int_equal(a->n_rows, 1);
	assert_string_equal(a->rows[0].name, "table");
	assert_int_equal(a->rows[0].facts.waits, 2);
	assert_int_equal(a->rows[0].facts.total_ns, 3 * MS);
	assert_int_equal(a->rows[0].facts.bins[22], 11);
	assert_int_equal(a->rows[0].facts.most, 3);
	assert_int_equal(a->rows[0].facts.wakes, 10);
	assert_int_equal(a->rows[0].holders.n, 2);
	assert_int_equal(a->rows[0].verdict, VERDICT_IO);
}

/* Who waits for longer than the range is known by the process alone. */
static void test_filter_crowd(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	struct filter f = { .key = FILTER_PID, .glob = (char *)"7" };
	struct filter wait = { .key = FILTER_WAIT, .glob = (char *)"io" };
	uint32_t process = (uint32_t)dict_series(b->dict, &(struct series){ .pid = 7, .start = 1 });
	_cleanup_(lock_answer_free_p) struct lock_answer *a = NULL;

	add(b, process, 0, FUTEX_ASPECT(FUTEX_CROWD), named_lock(b->dict, "stuck", 0x4000), 0, 0,
	    2);
	a = ask(b, &f, 1);
	assert_int_equal(a->n_rows, 3);
	assert_non_null(row_of(a, "stuck"));
	a = lock_answer_free(a);
	f.glob = (char *)"8";
	a = ask(b, &f, 1);
	assert_int_equal(a->n_rows, 0);
	a = lock_answer_free(a);
	f = (struct filter){ .key = FILTER_TID, .glob = (char *)"8" };
	a = ask(b, &f, 1);
	assert_int_equal(a->n_rows, 2);
	a = lock_answer_free(a);
	/* Waits for locks have no kind: none is "io". */
	a = ask(b, &wait, 1);
	assert_int_equal(a->n_rows, 0);
}

/* Locks that a bucket does not tell apart are no lock of which something follows. */
static void test_others(void **state)
{
	static const char *const waiter[] = { "main", "ask", "pthread_mutex_lock", NULL };
	static const char *const holder[] = { "main", "save", "fsync", NULL };
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	_cleanup_(lock_answer_free_p) struct lock_answer *a = NULL;
	_cleanup_(strbuf_done) struct strbuf evidence = {};
	uint32_t thread = (uint32_t)dict_series(b->dict,
						&(struct series){ .pid = 7, .tid = 8, .start = 1 });
	uint32_t other = (uint32_t)dict_lock(
		b->dict,
		&(struct lock){ .name = (uint32_t)dict_string(b->dict, LOCK_OTHER), .flags = 2 });
	const struct lock_row *row;

	add(b, thread, named_stack(b->dict, waiter), FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN),
	    other, 10, 90000, 9000);
	add(b, thread, named_stack(b->dict, holder),
	    FUTEX_ASPECT(FUTEX_HOLDER) | FUTEX_DETAIL(HOLDER_DETAIL(LOCK_STATE_BLOCKED, WAIT_IO)),
	    other, 8, 40000, 9000);
	a = ask(b, NULL, 0);
	row = row_of(a, LOCK_OTHER);
	assert_int_equal(a->n_rows, 3);
	assert_non_null(row);
	assert_int_equal(row->facts.waits, 10);
	assert_int_equal(row->facts.lock_class, LOCK_CLASS_UNKNOWN);
	assert_int_equal(row->verdict, VERDICT_CONTENDED);
	assert_string_equal(row->comm, "");
	assert_int_equal(row->waiters.n, 1);
	assert_int_equal(row->holders.n, 0);
	assert_int_equal(row->facts.seen[LOCK_STATE_BLOCKED], 0);
	assert_int_equal(row->facts.held_ns[LOCK_STATE_BLOCKED], 0);
	lock_evidence(&row->facts, row->verdict, &evidence);
	assert_string_equal(evidence.data, "locks beyond the 2,000 of a bucket, together");
}

static void assert_evidence(const struct lock_facts *f, const char *expected)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	lock_evidence(f, lock_judge(f), &b);
	assert_string_equal(b.data, expected);
}

/* One look at the holder does not tell why others wait, but that it can be found. */
static void test_evidence_of_few_waits(void **state)
{
	struct lock_facts f = { .lock_class = LOCK_CLASS_MUTEX, .waits = 1, .total_ns = 50 * MS };

	assert_evidence(&f, "waited once, 50.0 ms on average; who holds it is not known, see who "
			    "wakes");
	f.waits = 2;
	f.seen[LOCK_STATE_BLOCKED] = 1;
	assert_evidence(&f, "waited 2 times, 25.0 ms on average; who holds it was looked up once, "
			    "too rarely to tell why");
}

/* What would not fit into an answer is not built first. */
static void test_too_large(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	_cleanup_(lock_answer_free_p) struct lock_answer *a = NULL;
	struct selection sel = { .from_wall_ns = 1000 * NSEC_PER_SEC,
				 .until_wall_ns = 1010 * NSEC_PER_SEC,
				 .visibility.all = true };
	struct query_source src = { .open = b };
	size_t bytes = 0;

	a = ask(b, NULL, 0);
	for (size_t i = 0; i < a->n_rows; i++) {
		const struct lock_stacks *all[] = { &a->rows[i].waiters, &a->rows[i].holders,
						    &a->rows[i].unlockers };

		for (size_t k = 0; k < ARRAY_SIZE(all); k++)
			for (size_t n = 0; n < all[k]->n; n++)
				bytes += strlen(all[k]->s[n].stack);
	}
	assert_true(bytes > 0);
	a = lock_answer_free(a);
	assert_int_equal(query_locks(&src, &sel, (struct lock_limits){ 10, 3, bytes - 1 }, &a),
			 -EFBIG);
	assert_null(a);
	assert_int_equal(query_locks(&src, &sel, (struct lock_limits){ 10, 3, bytes }, &a), 0);
}

static uint32_t condvar_at(struct bucket *b, uint32_t pid, const char *name, uint64_t address,
			   const char *function)
{
	const char *const waiter[] = { "main", function, NULL };
	uint32_t s = (uint32_t)dict_series(b->dict, &(struct series){ .pid = pid, .start = 1 });
	uint32_t lock = (uint32_t)dict_lock(
		b->dict, &(struct lock){ .name = (uint32_t)dict_string(b->dict, name),
					 .flags = 2,
					 .pid = pid,
					 .address = address });

	add(b, s, named_stack(b->dict, waiter), FUTEX_KEY(FUTEX_CLASS_WAIT, FUTEX_WOKEN), lock, 1,
	    1000, 1000);
	return lock;
}

/* Only those of the C library have two words: others may be neighbours. */
static void test_words(void **state)
{
	static const char rust[] = "std::sys::sync::condvar::futex::Condvar::wait";
	static const char glibc[] = "__pthread_cond_wait";
	_cleanup_(bucket_free_p) struct bucket *b = NULL;
	_cleanup_(lock_answer_free_p) struct lock_answer *a = NULL;

	assert_int_equal(bucket_new(&b), 0);
	b->meta.start_wall_ns = 1000 * NSEC_PER_SEC;
	b->meta.length_ns = b->meta.covered_ns = 10 * NSEC_PER_SEC;
	condvar_at(b, 7, "ready", 0x5000, rust);
	condvar_at(b, 7, "done", 0x5004, rust);
	/* A parent and its child. */
	condvar_at(b, 7, "parent", 0x6000, glibc);
	condvar_at(b, 8, "child", 0x6004, glibc);
	condvar_at(b, 8, "child", 0x6000, glibc);
	condvar_at(b, 7, "parent", 0x6004, glibc);
	a = ask(b, NULL, 0);
	assert_int_equal(a->n_rows, 4);
	assert_int_equal(row_of(a, "ready")->facts.waits, 1);
	assert_int_equal(row_of(a, "done")->facts.waits, 1);
	assert_int_equal(row_of(a, "parent")->facts.waits, 2);
	assert_int_equal(row_of(a, "child")->facts.waits, 2);
	assert_int_equal(row_of(a, "child")->pid, 8);
}

/* What is left out of the places that people read, here and for who waits off-CPU. */
static void test_c_library(void **state)
{
	static const struct {
		const char *binary;
		bool is;
	} cases[] = {
		{ "libc.so.6", true },
		{ "libc-2.31.so", true },
		{ "libpthread.so.0", true },
		{ "libpthread-2.31.so", true },
		{ "ld-linux-x86-64.so.2", true },
		{ "ld-2.31.so", true },
		{ "ld-musl-x86_64.so.1", true },
		{ "libc.musl-x86_64.so.1", true },
		{ "libc-client.so.2007e", false },
		{ "ld-watcher", false },
		{ "libcurl.so.4", false },
		{ "", false },
	};
	_cleanup_(bucket_free_p) struct bucket *b = NULL;

	assert_int_equal(bucket_new(&b), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct binary binary = { .name = (uint32_t)dict_string(b->dict, cases[i].binary) };
		struct frame f = { .binary = (uint32_t)dict_binary(b->dict, &binary) };

		if (query_in_c_library(b->dict, &f) != cases[i].is)
			fail_msg("%s", cases[i].binary);
	}
}

/* Rows about locks of processes that are not asked for need not be held. */
static void test_filter_early(void **state)
{
	static const struct projection all = { PROJECT_ALL, PROJECT_ALL, PROJECT_ALL, PROJECT_ALL };
	_cleanup_(bucket_free_p) struct bucket *b = two_locks();
	_cleanup_(merge_done) struct merge m = {};
	struct filter f = { .key = FILTER_PID, .glob = (char *)"9" };
	struct selection sel = { .type = PROFILE_FUTEX,
				 .aspects = 1U << FUTEX_WAITS | 1U << FUTEX_HISTOGRAM |
					    1U << FUTEX_HOLDER | 1U << FUTEX_CROWD,
				 .filters_choose = true,
				 .filters = &f,
				 .n_filters = 1,
				 .visibility.all = true };
	uint32_t shared = (uint32_t)dict_lock(b->dict,
					      &(struct lock){ .flags = 1, .address = 0x7000 });

	/* Its waiters may be of any process. */
	add(b, 0, 0, FUTEX_ASPECT(FUTEX_CROWD), shared, 1, 0, 2);
	assert_int_equal(merge_init(&m, &sel, all), 0);
	assert_int_equal(merge_add(&m, b->dict, &b->columns[PROFILE_FUTEX]), 0);
	assert_int_equal(m.n_cells - 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),	       cmocka_unit_test(test_classes_along),
		cmocka_unit_test(test_holders),	       cmocka_unit_test(test_looks),
		cmocka_unit_test(test_herd_and_pool),  cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_answer),	       cmocka_unit_test(test_filter),
		cmocka_unit_test(test_filter_threads), cmocka_unit_test(test_filter_crowd),
		cmocka_unit_test(test_others),	       cmocka_unit_test(test_evidence_of_few_waits),
		cmocka_unit_test(test_too_large),      cmocka_unit_test(test_words),
		cmocka_unit_test(test_c_library),      cmocka_unit_test(test_filter_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
