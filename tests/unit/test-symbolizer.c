// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The symbolizer with its real helper: this program is the helper when it is executed with --symbol-helper.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "parser/parser.h"
#include "symbol/answers.h"
#include "helper/channel.h"
#include "symbol/elf.h"
#include "symbol/symbolizer.h"
#include "sysprofd/v1/helper.pb-c.h"

/* ---- binaries by key --------------------------------------------------------------------------- */

#define KEY_SELF 1 /* this program */
#define KEY_GARBAGE 2
#define KEY_FIFO 3
#define KEY_GONE 4
#define KEY_TRUNCATED 5

struct fixture {
	struct symbolizer *symbolizer;
	struct dict *dict;
	uint64_t keys[16]; /* by binary id */
	int opened;
	int stop_pid; /* stopped when a binary is opened: the request then finds a helper that hangs */
	int kill_pid;
};

static int open_by_key(void *ctx, uint64_t key)
{
	struct fixture *f = ctx;
	char buf[4096] = "\177ELF\2\1\1";
	int fd, self;

	f->opened++;
	if (f->stop_pid)
		kill(f->stop_pid, SIGSTOP);
	if (f->kill_pid)
		kill(f->kill_pid, SIGKILL);
	switch (key) {
	case KEY_SELF:
		return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	case KEY_GARBAGE:
		fd = memfd_create("garbage", MFD_CLOEXEC);
		for (size_t i = 16; i < sizeof(buf); i++)
			buf[i] = (char)(i * 7919 >> 3);
		assert_int_equal(write_full(fd, buf, sizeof(buf)), 0);
		return fd;
	case KEY_FIFO: {
		int pair[2];

		assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
		close_fd(pair[1]);
		return pair[0];
	}
	case KEY_TRUNCATED:
		fd = memfd_create("truncated", MFD_CLOEXEC);
		self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread_full(self, buf, sizeof(buf), 0), 0);
		close_fd(self);
		assert_int_equal(write_full(fd, buf, sizeof(buf)), 0);
		return fd;
	default:
		return -ENOENT;
	}
}

/* The file offset of a place in this program. */
static uint64_t own_offset(const void *p)
{
	uint64_t a = (uint64_t)(uintptr_t)p, start, end, offset, found = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && a >= start &&
		    a < end)
			found = a - start + offset;
	fclose(f);
	assert_int_not_equal(found, 0);
	return found;
}

int exported_function(int x);
__attribute__((noinline)) int exported_function(int x)
{
	return x * 3 + 1;
}

static int static_lock_word = 7;

static struct fixture *fixture_new(uint64_t reply_timeout_ns)
{
	struct fixture *f = new0(struct fixture, 1);
	struct symbolizer_options o = {
		.open_binary = open_by_key,
		.open_ctx = f,
		.reply_timeout_ns = reply_timeout_ns,
	};

	assert_int_equal(symbolizer_new(&o, &f->symbolizer), 0);
	assert_int_equal(dict_new(&f->dict), 0);
	return f;
}

static void fixture_free(struct fixture *f)
{
	symbolizer_free(f->symbolizer);
	dict_free(f->dict);
	free(f);
}

static uint32_t add_binary_of(struct fixture *f, uint64_t key, const char *build_id, uint64_t ino,
			      uint64_t author)
{
	struct binary b = {
		.name = (uint32_t)dict_string(f->dict, "x"),
		.build_id = (uint32_t)dict_string(f->dict, build_id),
		.kind = BINARY_ELF,
		.dev = 1,
		.ino = ino,
		.generation = author,
	};
	int64_t id = dict_binary(f->dict, &b);

	assert_true(id > 0 && id < 16);
	f->keys[id] = key;
	return (uint32_t)id;
}

static uint32_t add_binary(struct fixture *f, uint64_t key, const char *build_id, uint64_t ino)
{
	return add_binary_of(f, key, build_id, ino, 0);
}

static uint32_t add_frame(struct fixture *f, uint32_t binary, uint64_t offset)
{
	struct frame x = { .binary = binary, .offset = offset, .kind = FRAME_NATIVE };
	int64_t id = dict_frame(f->dict, &x);

	assert_true(id > 0);
	return (uint32_t)id;
}

static int name_all(struct fixture *f, uint64_t seconds)
{
	return symbolizer_name(f->symbolizer, f->dict, f->keys, f->dict->n_binaries,
			       mono_now_ns() + seconds * NSEC_PER_SEC);
}

static const char *frame_name(const struct fixture *f, uint32_t id)
{
	return dict_str(f->dict, f->dict->frames[id].name);
}

static bool is_final(const struct fixture *f, uint32_t id)
{
	return f->dict->frames[id].flags & FRAME_NAMED;
}

static struct symbolizer_stats stats(const struct fixture *f)
{
	struct symbolizer_stats s;

	symbolizer_stats(f->symbolizer, &s);
	return s;
}

/* ---- tests ------------------------------------------------------------------------------------- */

static void names_frames_and_locks(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t self = add_binary(f, KEY_SELF, "", 10), gone = add_binary(f, KEY_GONE, "", 11);
	uint64_t offset = own_offset(exported_function);
	uint32_t a = add_frame(f, self, offset + 1), b = add_frame(f, self, offset + 2);
	uint32_t none = add_frame(f, self, 8), lost = add_frame(f, gone, 100);
	struct lock l = {
		.binary = self, .pid = 1, .address = 99, .offset = own_offset(&static_lock_word)
	};
	int64_t lock = dict_lock(f->dict, &l), beyond;
	char text[64];

	assert_true(lock > 0);
	/* Memory that adjoins the file's, and was taken for its .bss. */
	l.offset += 3 << 20;
	beyond = dict_lock(f->dict, &l);
	assert_true(beyond > 0);
	/* One frame's binary cannot be opened: it stays for later. */
	assert_int_equal(name_all(f, 20), 1);
	assert_string_equal(frame_name(f, a), "exported_function");
	assert_string_equal(frame_name(f, b), "exported_function");
	assert_int_equal(f->dict->frames[a].system_name, 0);
	assert_true(is_final(f, none));
	assert_string_equal(frame_name(f, none), "");
	assert_false(is_final(f, lost));
	assert_string_equal(dict_str(f->dict, f->dict->locks[lock].name), "static_lock_word");
	assert_int_equal(f->dict->locks[lock].flags & 2, 2);
	assert_string_equal(lock_text(f->dict, (uint32_t)beyond, text, sizeof(text)), "0x63");
	assert_int_equal(f->dict->locks[beyond].binary, 0);
	assert_int_equal(f->dict->locks[beyond].flags & 2, 2);
	assert_int_equal(stats(f).requests, 2); /* code and data */
	assert_true(stats(f).helper_pid > 0);

	/* The same places in another bucket come from the cache. */
	dict_free(f->dict);
	assert_int_equal(dict_new(&f->dict), 0);
	self = add_binary(f, KEY_SELF, "", 10);
	a = add_frame(f, self, offset + 1);
	l.binary = self;
	beyond = dict_lock(f->dict, &l);
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(lock_text(f->dict, (uint32_t)beyond, text, sizeof(text)), "0x63");
	assert_string_equal(frame_name(f, a), "exported_function");
	assert_int_equal(stats(f).requests, 2);
	assert_int_equal(stats(f).crashes + stats(f).timeouts, 0);
	fixture_free(f);
}

/* What the sandbox is, test-sandbox tells; here: that the parser is in one. */
static void helper_is_confined(void **state)
{
	struct fixture *f = fixture_new(0);
	_cleanup_(strbuf_done) struct strbuf b = {};
	char path[64];

	add_frame(f, add_binary(f, KEY_SELF, "", 10), own_offset(exported_function));
	assert_int_equal(name_all(f, 20), 0);
	snprintf(path, sizeof(path), "/proc/%d/status", stats(f).helper_pid);
	assert_int_equal(read_file_at(AT_FDCWD, path, 16384, &b), 0);
	assert_non_null(strstr(b.data, "CapPrm:\t0000000000000000"));
	assert_non_null(strstr(b.data, "NoNewPrivs:\t1"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_non_null(strstr(b.data, "Seccomp:\t2"));
	snprintf(path, sizeof(path), "/proc/%d/limits", stats(f).helper_pid);
	b.len = 0;
	assert_int_equal(read_file_at(AT_FDCWD, path, 16384, &b), 0);
	assert_non_null(strstr(b.data, "Max address space         1073741824"));
#endif
	fixture_free(f);
}

static void many_offsets(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t self = add_binary(f, KEY_SELF, "", 10);
	uint64_t offset = own_offset(exported_function);
	uint32_t last = 0;

	for (uint64_t i = 0; i < 2000; i++)
		last = add_frame(f, self, offset + i);
	assert_int_equal(name_all(f, 120), 0);
	for (uint32_t i = 1; i <= last; i++)
		assert_true(is_final(f, i));
	assert_int_equal(stats(f).requests, 8);
	fixture_free(f);
}

static void wrong_file(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t self = add_binary(f, KEY_SELF, "00112233445566778899aabbccddeeff00112233", 10);
	uint32_t a = add_frame(f, self, own_offset(exported_function) + 1);

	/* The file behind the path is another build than the one that was mapped: no name is better. */
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, a), "");
	fixture_free(f);
}

/* Who copies a build-id has no say in the names of whom he copied it from. */
static void copied_build_id(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	_cleanup_(elf_table_free_p) struct elf_table *t = NULL;
	uint64_t offset = own_offset(exported_function) + 1;
	struct fixture *f = fixture_new(0);
	uint32_t copy, real;

	assert_int_equal(elf_table_new(fd, -1, ELF_WANT_CODE, &t), 0);
	assert_string_not_equal(elf_table_build_id(t), "");
	copy = add_frame(f, add_binary_of(f, KEY_GARBAGE, elf_table_build_id(t), 0, 1000), offset);
	assert_int_equal(name_all(f, 20), 0);
	real = add_frame(f, add_binary(f, KEY_SELF, elf_table_build_id(t), 0), offset);
	assert_int_not_equal(copy, real);
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, copy), "");
	assert_string_equal(frame_name(f, real), "exported_function");
	fixture_free(f);
}

static void hostile_files(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t ids[3];

	ids[0] = add_frame(f, add_binary(f, KEY_GARBAGE, "", 20), 100);
	ids[1] = add_frame(f, add_binary(f, KEY_TRUNCATED, "", 21), own_offset(exported_function));
	assert_int_equal(name_all(f, 20), 0);
	assert_int_equal(stats(f).requests, 2);
	/* Openers give no FIFO; the helper would refuse it. */
	ids[2] = add_frame(f, add_binary(f, KEY_FIFO, "", 22), 100);
	assert_int_equal(name_all(f, 20), 1);
	assert_int_equal(stats(f).requests, 3);
	for (int i = 0; i < 3; i++)
		assert_string_equal(frame_name(f, ids[i]), "");
	assert_int_equal(stats(f).crashes + stats(f).timeouts, 0);
	fixture_free(f);
}

static void killed_while_idle(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t self = add_binary(f, KEY_SELF, "", 10), a;
	uint64_t offset = own_offset(exported_function);
	int pid;

	add_frame(f, self, offset);
	assert_int_equal(name_all(f, 20), 0);
	pid = stats(f).helper_pid;
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (waitid(P_PID, (id_t)pid, &(siginfo_t){}, WEXITED | WNOWAIT) < 0)
		;
	a = add_frame(f, self, offset + 1);
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, a), "exported_function");
	assert_int_not_equal(stats(f).helper_pid, pid);
	assert_int_equal(stats(f).crashes, 0);
	fixture_free(f);
}

static void hung_helper(void **state)
{
	struct fixture *f = fixture_new(3 * NSEC_PER_SEC);
	uint32_t self = add_binary(f, KEY_SELF, "", 10), a;
	uint64_t offset = own_offset(exported_function), begin;

	add_frame(f, self, offset);
	assert_int_equal(name_all(f, 20), 0);

	f->stop_pid = stats(f).helper_pid;
	a = add_frame(f, self, offset + 1);
	begin = mono_now_ns();
	assert_int_equal(name_all(f, 20), 1);
	assert_true(mono_now_ns() - begin < 15 * NSEC_PER_SEC);
	assert_int_equal(stats(f).timeouts, 1);
	assert_int_equal(kill(f->stop_pid, 0), -1); /* killed and reaped, though it was stopped */
	assert_false(is_final(f, a));

	/* A new one answers. */
	f->stop_pid = 0;
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, a), "exported_function");

	/* The second failure is enough: this binary is not asked about again. */
	f->stop_pid = stats(f).helper_pid;
	a = add_frame(f, self, offset + 2);
	assert_int_equal(name_all(f, 20), 1);
	f->stop_pid = 0;
	f->opened = 0;
	assert_int_equal(name_all(f, 20), 0);
	assert_int_equal(f->opened, 0);
	assert_true(is_final(f, a));
	assert_string_equal(frame_name(f, a), "");
	assert_int_equal(stats(f).poisoned, 1);

	/* Others are. */
	a = add_frame(f, add_binary(f, KEY_SELF, "", 30), offset + 2);
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, a), "exported_function");
	fixture_free(f);
}

static void killed_at_work(void **state)
{
	struct fixture *f = fixture_new(0);
	uint32_t self = add_binary(f, KEY_SELF, "", 10), a;
	uint64_t offset = own_offset(exported_function);

	add_frame(f, self, offset);
	assert_int_equal(name_all(f, 20), 0);
	/* Stopped first, so that it dies with the request unanswered. */
	f->stop_pid = f->kill_pid = stats(f).helper_pid;
	a = add_frame(f, self, offset + 1);
	(void)name_all(f, 20);
	f->stop_pid = f->kill_pid = 0;
	assert_int_equal(name_all(f, 20), 0);
	assert_string_equal(frame_name(f, a), "exported_function");
	fixture_free(f);
}

static void short_deadline(void **state)
{
	struct fixture *f = fixture_new(20 * NSEC_PER_SEC);
	uint32_t self = add_binary(f, KEY_SELF, "", 10), a;
	uint64_t offset = own_offset(exported_function), begin = mono_now_ns();
	int pid;

	add_frame(f, self, offset);
	assert_int_equal(name_all(f, 0), 1);
	assert_int_equal(name_all(f, 20), 0);

	/* Left behind by the deadline, not killed: the answer is taken in by the next call. */
	f->stop_pid = pid = stats(f).helper_pid;
	a = add_frame(f, self, offset + 1);
	assert_int_equal(symbolizer_name(f->symbolizer, f->dict, f->keys, f->dict->n_binaries,
					 mono_now_ns() + 200 * NSEC_PER_MSEC),
			 1);
	f->stop_pid = 0;
	assert_int_equal(kill(pid, SIGCONT), 0);
	f->opened = 0;
	assert_int_equal(name_all(f, 20), 0);
	assert_int_equal(f->opened, 0);
	assert_string_equal(frame_name(f, a), "exported_function");
	assert_int_equal(stats(f).helper_pid, pid);
	assert_int_equal(stats(f).timeouts + stats(f).crashes, 0);
	assert_true(mono_now_ns() - begin < 15 * NSEC_PER_SEC);
	fixture_free(f);
}

static void vdso_is_named(void **state)
{
	struct fixture *f = fixture_new(0);
	struct binary b = { .name = (uint32_t)dict_string(f->dict, "[vdso]"), .kind = BINARY_VDSO };
	int64_t id = dict_binary(f->dict, &b);
	int found = 0;

	assert_true(id > 0);
	for (uint64_t i = 0; i < 4096; i += 16)
		add_frame(f, (uint32_t)id, i);
	assert_int_equal(name_all(f, 20), 0);
	for (uint32_t i = 1; i < f->dict->n_frames; i++)
		found += strstr(frame_name(f, i), "clock_gettime") != NULL;
	assert_true(found > 0);
	fixture_free(f);
}

/* ---- the channel and the cache ------------------------------------------------------------------- */

static void hostile_messages(void **state)
{
	static const struct {
		uint8_t bytes[16];
		size_t len;
		int error;
	} cases[] = {
		{ { 0xff, 0xff, 0xff, 0xff, 0x0f }, 5, -EMSGSIZE },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, 6, -EBADMSG },
		{ { 0x03, 0xff, 0xff, 0xff }, 4, -EBADMSG },
		{ { 0x02, 0x0f, 0x00 }, 3, -EBADMSG }, /* wire type 7 */
		{ { 0x05, 0x08 }, 2, -EPIPE },
		{ { 0 }, 0, -EPIPE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct channel c;
		ProtobufCMessage *m = NULL;
		int pair[2], fd = -1;

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		assert_int_equal(channel_init(&c, pair[0], 1000), 0);
		assert_int_equal(write_full(pair[1], cases[i].bytes, cases[i].len), 0);
		close_fd(pair[1]);
		assert_int_equal(channel_receive(&c, &sysprofd__v1__parse_request__descriptor,
						 mono_now_ns() + NSEC_PER_SEC, &m, &fd),
				 cases[i].error);
		channel_done(&c);
	}
}

static void decoding_is_bounded(void **state)
{
	static uint8_t bytes[1 << 20];
	struct channel c;
	ProtobufCMessage *m = NULL;
	int pair[2], fd = -1;
	pid_t pid;

	/* Half a million empty symbols. */
	bytes[0] = 0xfc;
	bytes[1] = 0xff;
	bytes[2] = 0x3f;
	for (size_t i = 3; i + 1 < sizeof(bytes); i += 2)
		bytes[i] = 4 << 3 | 2;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	if (pid == 0) {
		close_fd(pair[0]);
		_exit(write_full(pair[1], bytes, 3 + 0xffffc) == 0 ? 0 : 1);
	}
	close_fd(pair[1]);
	assert_int_equal(channel_init(&c, pair[0], 1 << 20), 0);
	assert_int_equal(channel_receive(&c, &sysprofd__v1__parse_response__descriptor,
					 mono_now_ns() + 10 * NSEC_PER_SEC, &m, &fd),
			 -EBADMSG);
	assert_int_equal(c.decoded, 0);
	channel_done(&c);
	waitpid(pid, NULL, 0);
}

static void cache_is_bounded(void **state)
{
	struct answer_key key = { .binary = { 1, 2 }, .kind = 1 };
	const char *name, *system_name;
	struct answers a;
	char text[64];

	answers_init(&a, 256 << 10);
	for (uint64_t i = 0; i < 100000; i++) {
		key.offset = i;
		snprintf(text, sizeof(text), "name_%lu", i / 3);
		assert_int_equal(answers_put(&a, &key, text, i % 2 ? "mangled" : ""), 0);
		/* One that is asked for all the time stays. */
		key.offset = 0;
		assert_true(answers_get(&a, &key, &name, &system_name));
		assert_string_equal(name, "name_0");
	}
	assert_true(answers_bytes(&a) < 400 << 10);
	key.offset = 99999;
	assert_true(answers_get(&a, &key, &name, &system_name));
	assert_string_equal(name, "name_33333");
	assert_string_equal(system_name, "mangled");
	key.offset = 5;
	assert_false(answers_get(&a, &key, &name, &system_name));
	answers_done(&a);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_frames_and_locks), cmocka_unit_test(helper_is_confined),
		cmocka_unit_test(many_offsets),		  cmocka_unit_test(wrong_file),
		cmocka_unit_test(copied_build_id),	  cmocka_unit_test(hostile_files),
		cmocka_unit_test(killed_while_idle),	  cmocka_unit_test(hung_helper),
		cmocka_unit_test(killed_at_work),	  cmocka_unit_test(short_deadline),
		cmocka_unit_test(vdso_is_named),	  cmocka_unit_test(hostile_messages),
		cmocka_unit_test(decoding_is_bounded),	  cmocka_unit_test(cache_is_bounded),
	};

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
