// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "collect/mapping.h"

#define MAX_MAPS 64

static struct binaries *binaries;
static struct object *file_a, *file_b;

static struct object *object(const char *path, uint64_t ino)
{
	struct sighting s = { .gone = true,
			      .pid_fd = -1,
			      .path = path,
			      .path_len = strlen(path),
			      .dev = 1,
			      .ino = ino };

	return binaries_see(binaries, &s);
}

static int setup(void **state)
{
	int fd = proc_open("/proc");
	_cleanup_(opener_unref_p) struct opener *opener = NULL;
	struct binaries_options o = { .proc_fd = fd };
	int r = fd < 0 ? fd : opener_new(false, &opener);

	o.opener = opener;
	if (r >= 0)
		r = binaries_new(&o, &binaries);
	close_fd(fd);
	if (r < 0)
		return r;
	file_a = object("/a", 1);
	file_b = object("/b", 2);
	return file_a && file_b ? 0 : -1;
}

static int teardown(void **state)
{
	/* Every image has given its references back: only those of the test are left. */
	assert_int_equal(file_a->refs, 1);
	assert_int_equal(file_b->refs, 1);
	object_unref(binaries, file_a);
	object_unref(binaries, file_b);
	binaries = binaries_free(binaries);
	return 0;
}

static int add(struct image *im, uint64_t start, uint64_t end, struct object *o, uint64_t offset,
	       uint64_t from)
{
	struct mapping m = { start, end, offset, from, object_ref(o) };

	return image_add(im, MAX_MAPS, &m);
}

/* Sorted, disjoint, never empty. */
static void check_invariants(const struct image *im)
{
	for (size_t i = 0; i < im->n; i++) {
		assert_true(im->maps[i].start < im->maps[i].end);
		assert_true(i == 0 || im->maps[i - 1].end <= im->maps[i].start);
	}
}

static void check(const struct image *im, uint64_t mono, uint64_t address, const struct object *o,
		  uint64_t offset)
{
	const struct mapping *m = image_find(im, mono, address);

	check_invariants(im);
	if (!o) {
		assert_null(m);
		return;
	}
	assert_non_null(m);
	assert_ptr_equal(m->object, o);
	assert_int_equal(address - m->start + m->offset, offset);
}

static void test_split(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	assert_int_equal(add(im, 0x1000, 0x9000, file_a, 0x100, 10), 0);
	assert_int_equal(add(im, 0x3000, 0x4000, file_b, 0, 20), 0);
	assert_int_equal(im->n, 3);
	check(im, 30, 0x0fff, NULL, 0);
	check(im, 30, 0x1000, file_a, 0x100);
	check(im, 30, 0x2fff, file_a, 0x20ff);
	check(im, 30, 0x3000, file_b, 0);
	check(im, 30, 0x3fff, file_b, 0xfff);
	check(im, 30, 0x4000, file_a, 0x3100);
	check(im, 30, 0x8fff, file_a, 0x80ff);
	check(im, 30, 0x9000, NULL, 0);
	/* Before, it was as it was. */
	check(im, 19, 0x3000, file_a, 0x2100);
	image_expire(im, 20);
	check(im, 19, 0x3000, file_a, 0x2100);
	image_expire(im, 21);
	check(im, 19, 0x3000, file_b, 0);
}

static void test_overlaps(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	for (uint64_t i = 1; i <= 8; i++)
		assert_int_equal(
			add(im, i * 0x1000, (i + 1) * 0x1000, i % 2 ? file_a : file_b, i, 1), 0);
	assert_int_equal(im->n, 8);
	/* Cuts the first, swallows two, cuts the last. */
	assert_int_equal(add(im, 0x2800, 0x5800, file_a, 0x7000, 2), 0);
	assert_int_equal(im->n, 7);
	check(im, 2, 0x27ff, file_b, 2 + 0x7ff);
	check(im, 2, 0x2800, file_a, 0x7000);
	check(im, 2, 0x57ff, file_a, 0x9fff);
	check(im, 2, 0x5800, file_a, 5 + 0x800);
	/* Everything. */
	assert_int_equal(add(im, 0, 0x100000, file_b, 0, 3), 0);
	assert_int_equal(im->n, 1);
	check(im, 3, 0x5000, file_b, 0x5000);
	check(im, 2, 0x5000, file_a, 0x7000 + 0x2800);
	check(im, 1, 0x5000, file_a, 5);
}

static void test_same_again(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	assert_int_equal(add(im, 0x1000, 0x9000, file_a, 0x1000, 10), 0);
	assert_int_equal(add(im, 0x1000, 0x9000, file_a, 0x1000, 20), 0);
	assert_int_equal(add(im, 0x2000, 0x3000, file_a, 0x2000, 30), 0);
	assert_int_equal(im->n, 1);
	assert_int_equal(im->n_past, 0);
	assert_int_equal(im->maps[0].from_mono_ns, 10);
	/* The same file elsewhere is not the same. */
	assert_int_equal(add(im, 0x2000, 0x3000, file_a, 0x5000, 40), 0);
	assert_int_equal(im->n, 3);
}

/* A record from before what is there already does not undo it. */
static void test_late_record(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	assert_int_equal(add(im, 0x1000, 0x2000, file_b, 0, 50), 0);
	assert_int_equal(add(im, 0x1000, 0x2000, file_a, 0, 40), 1);
	check(im, 60, 0x1000, file_b, 0);
	check(im, 45, 0x1000, file_a, 0);
	/* Nothing was there before: the later one is the best guess. */
	check(im, 30, 0x1000, file_b, 0);
}

static void test_anonymous(void **state)
{
	struct object *anon = binaries_anonymous(binaries);
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(
			add(im, 0x10000 + i * 0x1000, 0x11000 + i * 0x1000, anon, 0, i + 1), 0);
	assert_int_equal(im->n, 1);
	assert_int_equal(im->n_past, 0);
	check(im, 2000, 0x10000 + 999 * 0x1000, anon, 999 * 0x1000);
	/* Once more, page by page, from the end. */
	for (uint64_t i = 1000; i > 0; i--)
		assert_int_equal(add(im, 0xf000 + i * 0x1000, 0x10000 + i * 0x1000, anon, 0, 3000),
				 0);
	assert_int_equal(im->n, 1);
	/* Below: the whole begins lower then. */
	assert_int_equal(add(im, 0xf000, 0x10000, anon, 0, 4000), 0);
	assert_int_equal(im->n, 1);
	check(im, 5000, 0x10000, anon, 0x1000);
	/* Across a hole and a file. */
	assert_int_equal(add(im, 0x800000, 0x801000, anon, 0, 5000), 0);
	assert_int_equal(add(im, 0x700000, 0x701000, file_a, 0, 5000), 0);
	assert_int_equal(im->n, 3);
	assert_int_equal(add(im, 0x600000, 0x800000, anon, 0, 6000), 0);
	assert_int_equal(im->n, 2);
	check(im, 7000, 0x700000, anon, 0x100000);
	check(im, 5500, 0x700000, file_a, 0);
	im = image_unref(im);
	object_unref(binaries, anon);
}

static void test_limit(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;
	struct mapping bad = { 0x2000, 0x1000, 0, 1, object_ref(file_a) };

	assert_int_equal(image_new(binaries, &im), 0);
	for (uint64_t i = 0; i < MAX_MAPS; i++)
		assert_int_equal(add(im, i * 0x2000, i * 0x2000 + 0x1000, file_a, 0, 1), 0);
	assert_int_equal(add(im, 0x1000000, 0x1001000, file_a, 0, 1), -ENOSPC);
	assert_int_equal(add(im, 0x200, 0x300, file_b, 0, 1), -ENOSPC);
	/* What takes no more room is taken. */
	assert_int_equal(add(im, 0, 0x1000, file_b, 0, 2), 0);
	assert_int_equal(im->n, MAX_MAPS);
	assert_int_equal(image_add(im, MAX_MAPS, &bad), -EINVAL);
}

/* The past of one image is bounded, whatever its process does. */
static void test_endless_past(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;

	assert_int_equal(image_new(binaries, &im), 0);
	for (uint64_t i = 1; i <= 20000; i++)
		assert_int_equal(add(im, 0x1000, 0x2000, i % 2 ? file_a : file_b, 0, i), 0);
	assert_int_equal(im->n, 1);
	assert_true(im->n_past <= 4096);
	check(im, 19999, 0x1000, file_a, 0);
	image_expire(im, UINT64_MAX);
	assert_int_equal(im->n_past, 0);
}

static void test_snapshot(void **state)
{
	_cleanup_(image_unref_p) struct image *im = NULL;
	struct object *anon = binaries_anonymous(binaries);
	struct mapping_list l = {};
	struct mapping maps[] = {
		{ 0x1000, 0x3000, 0, 100, object_ref(file_a) },
		{ 0x4000, 0x5000, 0, 100, object_ref(anon) },
		{ 0x5000, 0x6000, 0, 100, object_ref(anon) },
		{ 0x5800, 0x6000, 0, 100, object_ref(file_b) }, /* overlaps */
		{ 0x8000, 0x8000, 0, 100, object_ref(file_b) }, /* empty */
	};
	static const int results[] = { 0, 0, 0, -EBADMSG, -EBADMSG };

	assert_int_equal(image_new(binaries, &im), 0);
	assert_int_equal(add(im, 0x1000, 0x3000, file_a, 0, 10), 0);
	assert_int_equal(add(im, 0x7000, 0x8000, file_b, 0, 20), 0);
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		assert_int_equal(mapping_list_add(&l, binaries, MAX_MAPS, &maps[i]), results[i]);
	assert_int_equal(l.n, 2);
	image_replace(im, &l, 100);
	assert_int_equal(l.n, 0);
	assert_int_equal(im->n, 2);
	assert_int_equal(im->maps[0].from_mono_ns, 10);
	check(im, 101, 0x5800, anon, 0x1800);
	check(im, 101, 0x7000, NULL, 0);
	check(im, 99, 0x7000, file_b, 0);
	im = image_unref(im);
	object_unref(binaries, anon);
}

static void test_copy_on_write(void **state)
{
	_cleanup_(image_unref_p) struct image *parent = NULL, *child = NULL;

	assert_int_equal(image_new(binaries, &parent), 0);
	assert_int_equal(add(parent, 0x1000, 0x2000, file_a, 0, 1), 0);
	child = image_ref(parent);
	assert_int_equal(image_own(&child), 0);
	assert_ptr_not_equal(parent, child);
	assert_int_equal(add(child, 0x1000, 0x2000, file_b, 0, 2), 0);
	check(parent, 3, 0x1000, file_a, 0);
	check(child, 3, 0x1000, file_b, 0);
	assert_int_equal(image_own(&child), 0);
}

/* ---- files that claim to be others -------------------------------------------------------------- */

struct claim {
	char path[64];
	void *at;
	struct stat st;
};

/* A page of a file with the build-id "abcdefghijklmnopqrst", mapped here. */
static void claim_new(struct claim *c, uid_t owner)
{
	static const uint8_t page[4096] = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0abcdefghijklmnopqrst";
	int fd;

	snprintf(c->path, sizeof(c->path), "/tmp/sysprofd-claim-XXXXXX");
	fd = mkstemp(c->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	assert_int_equal(fchown(fd, owner, owner), 0);
	assert_int_equal(fstat(fd, &c->st), 0);
	c->at = mmap(NULL, sizeof(page), PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(c->at, MAP_FAILED);
	close(fd);
}

static void claim_done(struct claim *c)
{
	unlink(c->path);
	munmap(c->at, 4096);
}

static struct object *claim_seen(const struct claim *c)
{
	struct sighting s = { .pid = (uint32_t)getpid(),
			      .pid_fd = -1,
			      .start = (uintptr_t)c->at,
			      .end = (uintptr_t)c->at + 4096,
			      .path = c->path,
			      .path_len = strlen(c->path),
			      .build_id = (const uint8_t *)"abcdefghijklmnopqrst",
			      .build_id_len = 20 };
	struct object *o = binaries_see(binaries, &s);

	assert_non_null(o);
	return o;
}

/* Neither the path nor the bytes of an object are ever another author's, whoever is seen first or last. */
static void test_copied_build_id(void **state)
{
	struct object *theirs, *ours, *again;
	struct claim copy, real;
	struct stat st;
	int fd;

	if (getuid() != 0) {
		print_message("needs root, to give a file away\n");
		skip();
	}
	claim_new(&copy, 12345);
	claim_new(&real, 0);
	theirs = claim_seen(&copy);
	ours = claim_seen(&real);
	again = claim_seen(&copy);
	assert_ptr_not_equal(theirs, ours);
	assert_string_equal(theirs->path, copy.path);
	assert_string_equal(ours->path, real.path);
	/* No descriptor is kept here: the mapping that was seen last is tried first, and is not believed. */
	fd = binaries_open(binaries, ours->key);
	assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == real.st.st_ino);
	close_fd(fd);
	fd = binaries_open(binaries, theirs->key);
	assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == copy.st.st_ino);
	close_fd(fd);
	object_unref(binaries, theirs);
	object_unref(binaries, ours);
	object_unref(binaries, again);
	claim_done(&copy);
	claim_done(&real);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),	      cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_same_again),    cmocka_unit_test(test_late_record),
		cmocka_unit_test(test_anonymous),     cmocka_unit_test(test_limit),
		cmocka_unit_test(test_endless_past),  cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_copy_on_write), cmocka_unit_test(test_copied_build_id),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
