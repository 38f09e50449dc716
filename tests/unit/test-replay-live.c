// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Snapshots of real programs, written to a file and read again, walked from that alone: by our walk, with tables of the
 * very binaries, against libdw, frame by frame; and every return address of a complete stack follows a call.
 *
 *	test-replay-live --record PID FILE	stops the thread for as long as it takes to copy its stack
 *	test-replay-live --replay FILE [ROOT]	shows both stacks; ROOT: where its binaries lie
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <signal.h>
#include <time.h>

#include "after-call.h"
#include "base/clock.h"
#include "base/io.h"
#include "collect/walk.h"
#include "run-program.h"
#include "snapshot.h"
#include "stop-thread.h"
#include "symbol/vdso.h"
#include "unwind/compile.h"
#include "unwind/unwinder.h"
#include "unwinder-tables.h"

#define STOPS 40
#define BINARIES_MAX 256
#define TGID 1
#define START 1

struct stack {
	uint64_t ips[MAX_USER_FRAMES];
	size_t n;
	bool ended; /* it was followed to its end */
};

struct replay {
	struct unwinder *unwinder;
	struct walk_tables tables;
	uint64_t version;
	const char *root; /* before all paths */
	/* Binaries by their key, less 1. */
	char *paths[BINARIES_MAX];
	int fds[BINARIES_MAX];
	size_t n;
	const struct snapshot *at;
};

/* ---- binaries ----------------------------------------------------------------------------------- */

static bool is_file(const struct snapshot_map *m)
{
	return streq(m->path, "[vdso]") || (m->path[0] == '/' && m->path[1] != '/');
}

/* 0: there is no room for more. */
static uint64_t binary_of(struct replay *r, const struct snapshot_map *m)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < r->n; i++)
		if (streq(r->paths[i], m->path))
			return i + 1;
	if (r->n == BINARIES_MAX)
		return 0;
	snprintf(path, sizeof(path), "%s%s", r->root ?: "", m->path);
	r->fds[r->n] = streq(m->path, "[vdso]") ? vdso_open() : open(path, O_RDONLY | O_CLOEXEC);
	r->paths[r->n] = strdup(m->path);
	return r->paths[r->n] ? ++r->n : 0;
}

static void make_tables(struct replay *r)
{
	uint64_t key;

	while ((key = unwinder_next(r->unwinder))) {
		_cleanup_free_ struct table *t = NULL;
		int fd = r->fds[key - 1];

		if (fd >= 0)
			(void)table_compile(fd, &t);
		unwinder_answer(r->unwinder, key, t, NULL, UNWIND_LACK_CFI, true);
	}
}

/* ---- our walk ------------------------------------------------------------------------------------ */

static int replay_init(struct replay *r, const char *root)
{
	*r = (struct replay){ .root = root };
	return unwinder_new(&(struct unwinder_options){}, &r->unwinder);
}

static void replay_done(struct replay *r)
{
	unwinder_free(r->unwinder);
	for (size_t i = 0; i < r->n; i++) {
		free(r->paths[i]);
		close_fd(r->fds[i]);
	}
}

static int install(struct replay *r, const struct snapshot *s)
{
	struct unwinder_region regions[SNAPSHOT_MAPS];
	int q;

	for (size_t i = 0; i < s->n_maps; i++) {
		const struct snapshot_map *m = &s->maps[i];

		regions[i] = (struct unwinder_region){ m->start, m->end, m->offset, 0,
						       UNWINDER_CODE };
		if (is_file(m)) {
			regions[i].binary = binary_of(r, m);
			regions[i].kind = UNWINDER_FILE;
		}
	}
	q = unwinder_put(r->unwinder, TGID, START, ++r->version, regions, s->n_maps);
	make_tables(r);
	unwinder_settle(r->unwinder);
	return q;
}

static void walk_by_us(struct replay *r, struct snapshot *s, struct walk_result *ret)
{
	struct walk_begin b = {
		.ip = s->regs[REGS_IP],
		.sp = s->regs[REGS_SP],
		.fp = s->regs[REGS_FP],
		.regs = s->regs,
		.word = 8,
		.ip_mask = ~0UL,
		.tables = &r->tables,
		.read = snapshot_memory,
		.read_ctx = s,
	};

	r->at = s;
	r->tables = tables_of(r->unwinder);
	if (install(r, s) < 0)
		print_message("no room for the mappings\n");
	find_space(r->unwinder, TGID, START, &b.space);
	walk_stack(&b, ret);
}

/* ---- libdw's -------------------------------------------------------------------------------------- */

static int no_elf(Dwfl_Module *m, void **user, const char *name, Dwarf_Addr base, char **file,
		  Elf **elf)
{
	return -1;
}

static int no_debuginfo(Dwfl_Module *m, void **user, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **debug)
{
	return -1;
}

static pid_t next_thread(Dwfl *d, void *ctx, void **thread_arg)
{
	bool first = *thread_arg == NULL;

	*thread_arg = ctx;
	return first ? 1 : 0;
}

static bool word_at(Dwfl *d, Dwarf_Addr address, Dwarf_Word *ret, void *ctx)
{
	return snapshot_memory(ctx, ret, sizeof(*ret), address) == 0;
}

static bool initial_registers(Dwfl_Thread *t, void *ctx)
{
	const struct snapshot *s = ctx;
#if defined(__x86_64__)
	static const uint8_t words[] = REGS_OF_DWARF_TABLE;
	Dwarf_Word regs[17];

	for (size_t i = 0; i < 16; i++)
		regs[i] = s->regs[words[i]];
	regs[16] = s->regs[REGS_IP];
	return dwfl_thread_state_registers(t, 0, 17, regs);
#else
	dwfl_thread_state_register_pc(t, s->regs[REGS_IP]);
	return dwfl_thread_state_registers(t, 0, 32, s->regs);
#endif
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.memory_read = word_at,
	.set_initial_registers = initial_registers,
};

/* By which the addresses in the file are shifted; UINT64_MAX: it maps no segment of it. */
static uint64_t bias_of(int fd, const struct snapshot_map *m)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	uint64_t bias = UINT64_MAX;
	GElf_Phdr p;
	size_t n;

	if (elf && elf_getphdrnum(elf, &n) == 0)
		for (size_t i = 0; i < n && bias == UINT64_MAX; i++)
			if (gelf_getphdr(elf, (int)i, &p) && p.p_type == PT_LOAD &&
			    (p.p_flags & PF_X) && m->offset >= (p.p_offset & ~0xfffUL) &&
			    m->offset < p.p_offset + p.p_filesz)
				bias = m->start - (m->offset - p.p_offset + p.p_vaddr);
	elf_end(elf);
	return bias;
}

static void report_modules(Dwfl *d, struct replay *r, const struct snapshot *s)
{
	uint64_t seen[SNAPSHOT_MAPS] = {};

	for (size_t i = 0; i < s->n_maps; i++) {
		uint64_t key = is_file(&s->maps[i]) ? binary_of(r, &s->maps[i]) : 0, bias;
		bool twice = false;
		int fd;

		for (size_t k = 0; k < i; k++)
			twice |= seen[k] == key;
		seen[i] = key;
		if (!key || twice || r->fds[key - 1] < 0)
			continue;
		bias = bias_of(r->fds[key - 1], &s->maps[i]);
		fd = fcntl(r->fds[key - 1], F_DUPFD_CLOEXEC, 3);
		if (bias == UINT64_MAX ||
		    !dwfl_report_elf(d, s->maps[i].path, r->paths[key - 1], fd, bias, true))
			close_fd(fd);
	}
}

static int on_frame(Dwfl_Frame *f, void *ctx)
{
	struct stack *k = ctx;
	bool exact = false;
	Dwarf_Addr pc;

	if (!dwfl_frame_pc(f, &pc, &exact) || k->n == MAX_USER_FRAMES)
		return DWARF_CB_ABORT;
	/* As the record has it: of all but the leaf the byte before is meant. */
	k->ips[k->n] = pc + (exact && k->n > 0);
	k->n++;
	return DWARF_CB_OK;
}

static void walk_by_libdw(struct replay *r, struct snapshot *s, struct stack *ret)
{
	static const Dwfl_Callbacks callbacks = { .find_elf = no_elf,
						  .find_debuginfo = no_debuginfo };
	Dwfl *d = dwfl_begin(&callbacks);

	*ret = (struct stack){};
	elf_version(EV_CURRENT);
	dwfl_report_begin(d);
	report_modules(d, r, s);
	if (dwfl_report_end(d, NULL, NULL) == 0 && dwfl_attach_state(d, NULL, 1, &threads, s))
		ret->ended = dwfl_getthread_frames(d, 1, on_frame, ret) == 0;
	dwfl_end(d);
}

/* ---- calls ---------------------------------------------------------------------------------------- */

static bool read_code(void *ctx, void *to, size_t size, uint64_t from)
{
	struct replay *r = ctx;
	const struct snapshot_map *m = snapshot_map_at(r->at, from);
	uint64_t key = m && is_file(m) ? binary_of(r, m) : 0;

	return key && r->fds[key - 1] >= 0 &&
	       pread_full(r->fds[key - 1], to, size, from - m->start + m->offset) >= 0;
}

static void show_frame(void *ctx, uint64_t ip)
{
	struct replay *r = ctx;
	const struct snapshot_map *m = snapshot_map_at(r->at, ip);

	print_message("  %lx %s+0x%lx\n", ip, m ? m->path : "?", m ? ip - m->start + m->offset : 0);
}

/* ---- one program ---------------------------------------------------------------------------------- */

/* Through a file: nothing else is known to the replay. False when the program has ended. */
static bool take(pid_t pid, struct snapshot *ret)
{
	static struct snapshot s;
	FILE *f = tmpfile();

	assert_non_null(f);
	if (!stop_thread(pid)) {
		fclose(f);
		return false;
	}
	assert_int_equal(snapshot_take(pid, &s), 0);
	assert_true(let_go(pid));
	snapshot_write(&s, f);
	rewind(f);
	assert_int_equal(snapshot_read(f, ret), 0);
	fclose(f);
	assert_int_equal(ret->n_maps, s.n_maps);
	assert_memory_equal(ret->regs, s.regs, sizeof(s.regs));
	for (size_t i = 0; i < ARRAY_SIZE(s.stacks); i++) {
		assert_int_equal(ret->stacks[i].n, s.stacks[i].n);
		assert_memory_equal(ret->stacks[i].bytes, s.stacks[i].bytes, s.stacks[i].n);
	}
	return true;
}

struct tally {
	unsigned stops, same, differ, partial, libdw_failed;
	struct calls calls;
};

static void show_both(struct replay *r, const struct walk_result *ours, const struct stack *truth)
{
	print_message(" ours, %s (%d):\n",
		      ours->end == WALK_COMPLETE ? "complete" : "partial, see enum walk_end",
		      ours->end);
	for (size_t i = 0; i < ours->n; i++)
		show_frame(r, ours->ips[i]);
	print_message(" libdw's%s:\n", truth->ended ? "" : ", not to its end");
	for (size_t i = 0; i < truth->n; i++)
		show_frame(r, truth->ips[i]);
}

static void judge(struct replay *r, struct snapshot *s, struct tally *t)
{
	static struct walk_result ours;
	static struct stack truth;
	bool same;

	walk_by_us(r, s, &ours);
	walk_by_libdw(r, s, &truth);
	t->stops++;
	if (ours.end == WALK_COMPLETE)
		check_calls(ours.ips, ours.n, read_code, r, show_frame, &t->calls);
	same = ours.n == truth.n && memcmp(ours.ips, truth.ips, truth.n * sizeof(*truth.ips)) == 0;
	if (!truth.ended)
		t->libdw_failed++;
	else if (ours.end != WALK_COMPLETE)
		t->partial++;
	else if (same)
		t->same++;
	else
		t->differ++;
	if (truth.ended && (ours.end != WALK_COMPLETE || !same))
		show_both(r, &ours, &truth);
}

static struct tally replay_program(const char *name, const char *command)
{
	static struct snapshot s;
	struct tally t = {};
	struct replay r;
	pid_t pid = start(command);

	assert_int_equal(replay_init(&r, NULL), 0);
	sleep_us(500000);
	while (t.stops < STOPS && take(pid, &s)) {
		judge(&r, &s, &t);
		sleep_us(1000 + (unsigned)(random() % 9000));
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
	replay_done(&r);
	print_message(
		"%-8s %u stops: %u the same, %u differ, %u partial, %u libdw could not; of %lu "
		"return addresses %lu follow no call, %lu of signals, %lu not in files\n",
		name, t.stops, t.same, t.differ, t.partial, t.libdw_failed, t.calls.checked,
		t.calls.strangers, t.calls.signals, t.calls.unreadable);
	assert_true(t.stops >= STOPS / 2);
	assert_int_equal(t.differ, 0);
	assert_int_equal(t.calls.strangers, 0);
	return t;
}

/* ---- programs -------------------------------------------------------------------------------------- */

static const struct {
	const char *name, *command;
} programs[] = {
	{ "python",
	  "exec python3 -c '\nimport re, json\ndef f(n):\n  return 1 if n < 2 else f(n-1) + "
	  "f(n-2)\n"
	  "while True:\n  f(12); sorted(str(i) for i in range(500)); json.dumps([1] * 99)'" },
	{ "perl",
	  "exec perl -e 'sub f { my $n = shift; $n < 2 ? 1 : f($n-1) + f($n-2) } while (1) { "
	  "f(10); my @a = sort map { \"x$_\" } 1..300; join(\",\", @a) =~ s/x(\\d)/y$1/gr }'" },
	{ "openssl", "exec openssl speed -seconds 60 -evp chacha20-poly1305 rsa2048" },
	{ "git", "exec git diff --no-index --stat /usr/include /usr/lib/gcc" },
};

static struct tally replay_all_the_same(const char *name, const char *command)
{
	struct tally t = replay_program(name, command);

	assert_true(t.same >= t.stops / 2);
	assert_true(t.partial <= t.stops / 10);
	assert_true(t.calls.checked >= t.stops);
	return t;
}

static void test_programs(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		replay_all_the_same(programs[i].name, programs[i].command);
}

static void write_functions(const char *path, unsigned n)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f,
			"int f%u(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] "
			"* %u; return s; }\n",
			i, i);
	fclose(f);
}

/* The compiler at work, and what it made. */
static void test_built(void **state)
{
	char dir[] = "/tmp/test-replay.XXXXXX", command[256];

	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command), "%s/f.c", dir);
	write_functions(command, 5000);
	snprintf(command, sizeof(command),
		 "exec $(gcc -print-prog-name=cc1) -quiet -O3 -o /dev/null %s/f.c", dir);
	replay_all_the_same("cc1", command);
	snprintf(command, sizeof(command),
		 "gcc -O2 -w -fomit-frame-pointer -o %s/u tests/workload/unwind.c -lrt", dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "exec %s/u 60 deep", dir);
	replay_all_the_same("deep", command);
	snprintf(command, sizeof(command), "exec %s/u 60 signal", dir);
	/* Mostly in the handler, on a stack of its own. */
	assert_true(replay_all_the_same("signal", command).calls.signals > 0);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* Code that is made at run time is in no file: libdw does not know it. */
static void test_node(void **state)
{
	struct tally t = replay_program(
		"node", "exec node -e 'function f(n) { return n < 2 ? n : f(n - 1) + "
			"f(n - 2) } while (true) f(20)'");

	assert_true(t.calls.checked >= t.stops);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static void test_file(void **state)
{
	static const char *const bad[] = {
		"registers 1 2\n",
		"map 2000 1000 0 /x\n",
		"map x\n",
		"stack 1000 0g\n",
		"stack 1000 00\nstack 1002 00\nstack 1004 00\n",
		"stack 1000\n",
		"frobnicate\n",
		"",
	};
	static struct snapshot s;
	struct utsname u;

	uname(&u);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		FILE *f = tmpfile();

		assert_non_null(f);
		fprintf(f, "sysprofd-snapshot 1 %s\n# a comment\n\n%s", u.machine, bad[i]);
		rewind(f);
		assert_int_equal(snapshot_read(f, &s), -EBADMSG);
		fclose(f);
	}
}

/* ---- by hand ------------------------------------------------------------------------------------------ */

static int record(pid_t pid, const char *path)
{
	static struct snapshot s;
	FILE *f = fopen(path, "we");
	int r;

	if (!f || !stop_thread(pid)) {
		perror(f ? "ptrace" : path);
		return EXIT_FAILURE;
	}
	r = snapshot_take(pid, &s);
	let_go(pid);
	if (r >= 0)
		snapshot_write(&s, f);
	return fclose(f) == 0 && r >= 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int replay(const char *path, const char *root)
{
	static struct snapshot s;
	static struct walk_result ours;
	static struct stack truth;
	struct calls calls = {};
	struct replay r;
	FILE *f = fopen(path, "re");

	if (!f || snapshot_read(f, &s) < 0 || replay_init(&r, root) < 0) {
		fprintf(stderr, "%s: no snapshot of this machine\n", path);
		return EXIT_FAILURE;
	}
	fclose(f);
	walk_by_us(&r, &s, &ours);
	walk_by_libdw(&r, &s, &truth);
	show_both(&r, &ours, &truth);
	print_message(" return addresses of ours that follow no call:\n");
	check_calls(ours.ips, ours.n, read_code, &r, show_frame, &calls);
	replay_done(&r);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_built),
		cmocka_unit_test(test_node),
	};

	if (argc == 4 && streq(argv[1], "--record"))
		return record(atoi(argv[2]), argv[3]);
	if (argc >= 3 && streq(argv[1], "--replay"))
		return replay(argv[2], argc > 3 ? argv[3] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
